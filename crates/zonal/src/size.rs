//! Sizes as people write and read them: `4096`, `96M`, `16KiB`, `1.92TB`.
//!
//! The one grammar of every size on a command line, in a device specification and in a config:
//!
//! | unit | bytes |
//! | --- | --- |
//! | none, `B` | 1 |
//! | `K` or `KiB`, `M` or `MiB`, `G` or `GiB`, `T` or `TiB`, `P` or `PiB` | 1024, 1024², and so on |
//! | `kB`, `MB`, `GB`, `TB`, `PB` | 1000, 1000², and so on |
//!
//! The number may have a fraction; what is no whole number of bytes is rounded down. A space may
//! stand before the unit. `KB` and `k` are refused, because they are used for both.

use crate::ByteCount;

/// Units, the larger ones first.
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

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size: write 4096, 96M, 96MiB or 1.92TB")]
pub struct SizeError {
    /// The text.
    pub text: String,
}

/// The number of bytes that a text stands for.
///
/// ```
/// use zonal::size;
/// assert_eq!(size::parse("96M")?.get(), 96 << 20);
/// assert_eq!(size::parse("96MiB")?, size::parse("96M")?);
/// assert_eq!(size::parse("1.92TB")?.get(), 1_920_000_000_000);
/// # Ok::<(), size::SizeError>(())
/// ```
pub fn parse(text: &str) -> Result<ByteCount, SizeError> {
    bytes(text).map(ByteCount::new).ok_or_else(|| SizeError { text: text.to_owned() })
}

fn bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim_start_matches(' ') {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit || is_short(unit, name))?.1,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // In whole numbers: 1.92 TB has no rounding error.
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits = |text: &str| text.parse::<u128>().ok();
    let number = digits(whole)?.checked_mul(scale)?.checked_add(digits(fraction)?)?;
    u64::try_from(number.checked_mul(factor.into())? / scale).ok()
}

/// Whether `short` is the one letter that stands for a unit of 1024: `M` for `MiB`.
fn is_short(short: &str, name: &str) -> bool {
    name.strip_suffix("iB") == Some(short)
}

/// The shortest text that [`parse`] takes for exactly so many bytes: `1077MiB`, `4096` as `4KiB`.
pub fn exact(bytes: u64) -> String {
    let found = UNITS.iter().find(|(_, one)| bytes >= *one && bytes.is_multiple_of(*one));
    let (name, one) = found.copied().unwrap_or(("B", 1));
    format!("{}{name}", bytes / one)
}

/// For people, who read about four digits: `1.5 GiB`, or without a fraction where there is none.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub fn readable(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let one = 1_u64 << (10 * unit);
    if bytes.is_multiple_of(one) {
        return format!("{} {}", bytes / one, UNITS[unit]);
    }
    format!("{:.1} {}", bytes as f64 / one as f64, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn size_parse_accepts_binary_decimal_and_fraction() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("16K", 16 << 10),
            ("16KiB", 16 << 10),
            ("16 KiB", 16 << 10),
            ("96M", 96 << 20),
            ("1077MiB", 1077 << 20),
            ("8G", 8 << 30),
            ("0.5GiB", 1 << 29),
            ("2T", 2 << 40),
            ("3P", 3 << 50),
            ("1kB", 1_000),
            ("1TB", 1_000_000_000_000),
            ("1.92TB", 1_920_000_000_000),
            ("0.3K", 307),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text).map(ByteCount::get).as_ref(), Ok(&bytes), "{text}");
        }
    }

    #[test]
    fn size_parse_rejects_invalid() {
        for text in [
            "",
            "x",
            "4 bananas",
            "1.2.3GB",
            "-1",
            "+1",
            "99999999PiB",
            ".5GB",
            "5.",
            "1e3",
            "M",
            "8X",
            "8k",
            "8KB",
            "8Mb",
            "8mib",
            "8 M B",
            "18446744073709551616",
            "0.00000000000000000000000000000000000000000000001M",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a size: write"), "{error}");
        }
    }

    #[test]
    fn size_text_is_readable() {
        for (bytes, text) in [
            (0, "0 B"),
            (96 << 20, "96 MiB"),
            (3 << 29, "1.5 GiB"),
            (1_920_000_000_000, "1.7 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(readable(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn size_exact_text_round_trips(bytes in any::<u64>(), shift in 0_u32..64) {
            let bytes = bytes >> shift << shift;
            prop_assert_eq!(parse(&exact(bytes)), Ok(ByteCount::new(bytes)));
        }

        #[test]
        fn size_parse_handles_any_text(text in "\\PC*|[0-9.]{0,50}[ A-Za-z]{0,4}") {
            let _ = parse(&text);
        }
    }
}
