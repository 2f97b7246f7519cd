//! `-o` of `zonal mkzonefs`, as mkzonefs(8) has it.

use std::str::FromStr;

use zonal_fs::zonefs::Aggregate;

/// The features that `-o` asks for: `aggr_cnv,uid=N,gid=N,perm=OCTAL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) aggregate: Aggregate,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) perm: Option<u32>,
}

impl FromStr for Features {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut features = Self::default();
        for item in text.split(',') {
            match item.split_once('=') {
                None if item == "aggr_cnv" => features.aggregate = Aggregate::Conventional,
                Some(("uid", value)) => features.uid = Some(owner(item, value)?),
                Some(("gid", value)) => features.gid = Some(owner(item, value)?),
                Some(("perm", value)) => features.perm = Some(perm(item, value)?),
                None | Some(_) => {
                    return Err(format!("{item:?}: there are aggr_cnv, uid=N, gid=N, perm=OCTAL"));
                }
            }
        }
        Ok(features)
    }
}

impl Features {
    /// These features, replaced where `later` names others.
    pub(crate) fn and(self, later: Self) -> Self {
        let aggregate = match later.aggregate {
            Aggregate::Separate => self.aggregate,
            Aggregate::Conventional => Aggregate::Conventional,
        };
        Self {
            aggregate,
            uid: later.uid.or(self.uid),
            gid: later.gid.or(self.gid),
            perm: later.perm.or(self.perm),
        }
    }
}

fn owner(item: &str, value: &str) -> Result<u32, String> {
    let number = digits(value).and_then(|digits| digits.parse().ok());
    number.filter(|&id| id != u32::MAX).ok_or_else(|| format!("{item:?}: not a number from 0 on"))
}

fn perm(item: &str, value: &str) -> Result<u32, String> {
    let bits = digits(value).and_then(|digits| u32::from_str_radix(digits, 8).ok());
    bits.filter(|bits| *bits <= 0o7777)
        .ok_or_else(|| format!("{item:?}: not permission bits, such as 640"))
}

/// `value`, if it is digits and nothing else: parsing a number would take a sign too.
fn digits(value: &str) -> Option<&str> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_parse_like_mkzonefs() {
        let parse = |text: &str| text.parse::<Features>();
        let all = parse("aggr_cnv,uid=0,gid=100,perm=777").unwrap();
        assert_eq!(all.aggregate, Aggregate::Conventional);
        assert_eq!((all.uid, all.gid, all.perm), (Some(0), Some(100), Some(0o777)));
        for bad in [
            "",
            ",",
            "aggr_cnv,",
            "invalid,,list",
            "aggr",
            "aggr_cnv=1",
            "uid",
            "uid=",
            "uid=-1",
            "uid=+1",
            "uid=4294967295",
            "uid=4294967296",
            "gid=x",
            "perm=999",
            "perm=",
            "perm=10000",
            "perm=+7",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn features_merge_with_later_ones_winning() {
        let [first, second] =
            ["aggr_cnv,uid=1,perm=600", "uid=2"].map(|text| text.parse().unwrap());
        let all = Features::and(first, second);
        assert_eq!((all.aggregate, all.uid), (Aggregate::Conventional, Some(2)));
        assert_eq!((all.gid, all.perm), (None, Some(0o600)));
    }
}
