//! A swept field and its values, as in `op=5..100:5` or `victim=greedy,fifo`.

use std::str::FromStr;

use crate::config::Setting;

/// Most values of one field.
const VALUES_MAX: u128 = 100_000;

/// Names for fields that are swept often. In `op` a value is percent of the user capacity.
const SHORT: [(&str, &str); 12] = [
    ("op", "drive.op"),
    ("user", "drive.user"),
    ("kind", "drive.kind"),
    ("unit", "drive.unit"),
    ("victim", "gc.victim"),
    ("policy", "gc.victim"),
    ("frontier", "gc.frontier"),
    ("streams", "gc.streams"),
    ("handles", "fdp.handles"),
    ("isolation", "fdp.isolation"),
    ("workload", "workload.kind"),
    ("theta", "workload.theta"),
];

/// A field and the values it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// Its name, as the user wrote it.
    pub name: String,
    /// The field's path in a config.
    path: String,
    /// Values, as they were written or counted.
    pub values: Vec<String>,
}

impl Over {
    /// The field's path in a config.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The setting for a value.
    pub(super) fn setting(&self, value: &str) -> Setting {
        let value = if self.name == "op" { percent(value) } else { value.to_owned() };
        Setting { path: self.path.clone(), value }
    }
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, list) = text.split_once('=').ok_or_else(|| {
            format!("{text:?} is not FIELD=VALUES: write op=5..100:5 or victim=greedy,fifo")
        })?;
        let name = name.trim();
        let path = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, path)| path);
        let mut values = Vec::new();
        for value in list.split(',').map(str::trim) {
            match value.split_once("..") {
                None if value.is_empty() => return Err(format!("a value of {name} is empty")),
                None => values.push(value.to_owned()),
                Some((first, rest)) => values.extend(range(first, rest)?),
            }
        }
        if let Some(twice) = values.iter().enumerate().find(|(at, one)| values[..*at].contains(one))
        {
            return Err(format!("{name} = {} is there twice", twice.1));
        }
        Ok(Self { name: name.to_owned(), path: path.to_owned(), values })
    }
}

/// `a..b` or `a..b:step`, both ends included.
fn range(first: &str, rest: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("{first}..{rest} is no range: write 5..100 or 0.05..1:0.05");
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let numbers = [first, last, step].map(|text| Decimal::parse(text.trim()));
    let [Some(first), Some(last), Some(step)] = numbers else { return Err(wrong()) };
    // All three with as many digits after the point.
    let digits = first.digits.max(last.digits).max(step.digits);
    let all = [first, last, step].map(|number| number.scaled(digits));
    let [Some(first), Some(last), Some(step)] = all else { return Err(wrong()) };
    if step == 0 || last < first {
        return Err(format!("{}, with a step above 0 and the larger end last", wrong()));
    }
    if (last - first) / step >= VALUES_MAX {
        return Err(format!("{}: more than {VALUES_MAX} values", wrong()));
    }
    let values = (0..=(last - first) / step).map(|turn| first + turn * step);
    Ok(values.map(|value| Decimal { value, digits }.to_text()).collect())
}

/// A share from percent: the point two digits to the left. Text that is no number gets a `%` at its
/// end, and the config refuses it.
fn percent(text: &str) -> String {
    match Decimal::parse(text) {
        Some(number) => Decimal { digits: number.digits + 2, ..number }.to_text(),
        None => format!("{text}%"),
    }
}

/// A decimal number without rounding: value ÷ 10^digits.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    value: u128,
    digits: u32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let plain = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
        if whole.is_empty() || !plain(whole) || !plain(part) || text.len() > 18 {
            return None;
        }
        let value = format!("{whole}{part}").parse().ok()?;
        Some(Self { value, digits: u32::try_from(part.len()).ok()? })
    }

    fn scaled(self, digits: u32) -> Option<u128> {
        self.value.checked_mul(10_u128.checked_pow(digits - self.digits)?)
    }

    fn to_text(self) -> String {
        let one = 10_u128.pow(self.digits);
        let (whole, part) = (self.value / one, self.value % one);
        let part = format!("{part:0width$}", width = self.digits as usize);
        match part.trim_end_matches('0') {
            "" => whole.to_string(),
            part => format!("{whole}.{part}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        text.parse::<Over>().expect(text).values
    }

    #[test]
    fn sweep_values_are_ranges_and_lists() {
        assert_eq!(values("op=5..8"), ["5", "6", "7", "8"]);
        assert_eq!(values("drive.op=0.05..0.3:0.1"), ["0.05", "0.15", "0.25"]);
        assert_eq!(values("drive.op=0..1:0.25"), ["0", "0.25", "0.5", "0.75", "1"]);
        assert_eq!(values("op=7,28, 50..100:50"), ["7", "28", "50", "100"]);
        assert_eq!(values("victim=greedy,d-choices:5"), ["greedy", "d-choices:5"]);
        assert_eq!(values("drive.user=1.92TB,1.6TB"), ["1.92TB", "1.6TB"]);
    }

    #[test]
    fn sweep_short_names_stand_for_paths() {
        for (text, value, path, set) in [
            ("op=7", "7", "drive.op", "0.07"),
            ("op=12.5", "12.5", "drive.op", "0.125"),
            ("op=100", "100", "drive.op", "1"),
            ("policy=fifo", "fifo", "gc.victim", "fifo"),
            ("gc.low_water=8", "8", "gc.low_water", "8"),
        ] {
            let over: Over = text.parse().expect(text);
            let setting = over.setting(value);
            assert_eq!((setting.path.as_str(), setting.value.as_str()), (path, set), "{text}");
        }
    }

    #[test]
    fn sweep_values_invalid_are_refused() {
        for text in [
            "op",
            "op=",
            "op=1,,2",
            "op=5..",
            "op=9..5",
            "op=1..2:0",
            "op=-5..5",
            "op=1e3..2",
            "op=1..999999999",
            "op=7,5..8",
            "op=1..0x10",
            "op=1..2:3:4",
        ] {
            assert!(text.parse::<Over>().is_err(), "{text}");
        }
    }
}
