//! How mount(8) spells the options of zonefs.

use super::{ErrorPolicy, MountOptions, OpenPolicy};
use crate::options::Taken;

impl ErrorPolicy {
    /// Every policy, with the value of `errors=`.
    pub const ALL: [(&'static str, Self); 4] = [
        ("remount-ro", Self::RemountRo),
        ("zone-ro", Self::ZoneRo),
        ("zone-offline", Self::ZoneOffline),
        ("repair", Self::Repair),
    ];

    /// The value of `errors=`.
    pub fn name(self) -> &'static str {
        let of_self = Self::ALL.into_iter().find(|(_, policy)| *policy == self);
        of_self.map(|(name, _)| name).expect("every policy has a name")
    }
}

impl MountOptions {
    /// Takes one option: `errors=POLICY`, `explicit-open` or, which Linux lacks, `implicit-open`,
    /// `rotational` and `norotational`.
    ///
    /// ```
    /// use zonal_fs::options::Taken;
    /// use zonal_fs::zonefs::{ErrorPolicy, MountOptions};
    /// let mut options = MountOptions::default();
    /// assert_eq!(options.take("errors=repair"), Taken::Yes);
    /// assert_eq!(options.errors, ErrorPolicy::Repair);
    /// assert_eq!(options.take("errors=ignore"), Taken::Bad);
    /// assert_eq!(options.take("noatime"), Taken::No);
    /// ```
    pub fn take(&mut self, option: &str) -> Taken {
        match option.split_once('=') {
            None if option == "explicit-open" => self.open = OpenPolicy::Explicit,
            None if option == "rotational" => self.rotational = Some(true),
            None if option == "norotational" => self.rotational = Some(false),
            None if option == "implicit-open" => self.open = OpenPolicy::Implicit,
            Some(("errors", value)) => {
                let found = ErrorPolicy::ALL.into_iter().find(|(name, _)| *name == value);
                let Some((_, policy)) = found else { return Taken::Bad };
                self.errors = policy;
            }
            None if option == "errors" => return Taken::Bad,
            Some(("explicit-open" | "implicit-open" | "rotational" | "norotational", _)) => {
                return Taken::Bad;
            }
            None | Some(_) => return Taken::No,
        }
        Taken::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_match_linux() {
        let mut options = MountOptions::default();
        for (name, policy) in ErrorPolicy::ALL {
            assert_eq!(options.take(&format!("errors={name}")), Taken::Yes);
            assert_eq!((options.errors, policy.name()), (policy, name));
        }
        assert_eq!(options.take("explicit-open"), Taken::Yes);
        assert_eq!(options.open, OpenPolicy::Explicit);
        assert_eq!(options.take("implicit-open"), Taken::Yes);
        assert_eq!(options.open, OpenPolicy::Implicit);
        for bad in ["errors", "errors=", "errors=bad", "explicit-open=1"] {
            assert_eq!(options.take(bad), Taken::Bad, "{bad}");
        }
        for other in ["", "ro", "error=repair", "explicit_open"] {
            assert_eq!(options.take(other), Taken::No, "{other}");
        }
    }
}
