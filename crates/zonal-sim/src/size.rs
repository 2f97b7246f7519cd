//! Sizes as people write them in a config: `4096`, `"16KiB"`, `"1.92TB"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes. Written with a unit of 1024 (`KiB` to `PiB`) or of 1000 (`kB` to `PB`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Units, the larger ones first; of those that divide a size, the largest is written.
const UNITS: [(&str, u64); 11] = [
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

impl Size {
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a size: write 4096, \"16KiB\" or \"1.92TB\"");
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim();
        let factor = if unit.is_empty() {
            1
        } else {
            UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let whole: u128 = whole.parse().map_err(|_| wrong())?;
        // Thousandths and finer, exactly: 1.92 TB has no rounding error.
        let scale = 10_u128.checked_pow(u32::try_from(part.len()).map_err(|_| wrong())?);
        let scale = scale.ok_or_else(wrong)?;
        let part: u128 = if part.is_empty() { 0 } else { part.parse().map_err(|_| wrong())? };
        whole
            .checked_mul(scale)
            .and_then(|whole| whole.checked_add(part))
            .and_then(|all| all.checked_mul(u128::from(factor)))
            .and_then(|bytes| u64::try_from(bytes / scale).ok())
            .map(Self)
            .ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found =
            UNITS.iter().find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (name, factor) = found.copied().unwrap_or(("B", 1));
        write!(f, "{}{name}", self.0 / factor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("4096", 4096),
            ("16KiB", 16 << 10),
            ("1.92TB", 1_920_000_000_000),
            ("0.5GiB", 1 << 29),
            ("1077MiB", 1077 << 20),
        ] {
            let size: Size = text.parse().expect("a size");
            assert_eq!(size.bytes(), bytes, "{text}");
            assert_eq!(size.to_string().parse::<Size>(), Ok(size), "{text}");
        }
        for text in ["", "x", "4 bananas", "1.2.3GB", "-1", "99999999PiB", ".5GB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
