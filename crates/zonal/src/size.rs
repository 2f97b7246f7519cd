//! Sizes as people write and read them: `4096`, `96M`, `16KiB`, `1.92TB`.
//!
//! The one grammar of every size on a command line, in a device specification and in a config.
//! Upper and lower case mean the same:
//!
//! | unit | bytes |
//! | --- | --- |
//! | none, `B` | 1 |
//! | `K`, `Ki` or `KiB`, and so with `M`, `G`, `T`, `P`, `E` | 1024, 1024², and so on |
//! | `KB`, and so with `M`, `G`, `T`, `P`, `E` | 1000, 1000², and so on |
//!
//! dd(1) and truncate(1) count so, too. fio takes `KB` for 1024 bytes and `KiB` for 1000 unless it
//! has `kb_base=1000`; `K` is 1024 for all of them. The number may have a fraction; a part of a
//! byte is dropped. A space may stand before the unit. A `b` alone is refused: it is 512 bytes for
//! dd and one for fio.

use crate::ByteCount;

/// The letters of units: each stands for 1024 times the one before it, or for 1000 times.
const LETTERS: &str = "KMGTPEZY";

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It is no number with a unit.
    #[error("{text:?} is not a size: write 4096, 96M, 96MiB (96 × 1024²) or 1.92TB (1.92 × 1000⁴)")]
    NotASize {
        /// The text.
        text: String,
    },
    /// It has more bytes than 64 bits count.
    #[error("{text:?} is too large: a size is below 16 EiB")]
    TooLarge {
        /// The text.
        text: String,
    },
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
    let (number, factor) =
        number_and_factor(text).ok_or_else(|| SizeError::NotASize { text: text.to_owned() })?;
    let bytes = bytes(number, factor);
    bytes.map(ByteCount::new).ok_or_else(|| SizeError::TooLarge { text: text.to_owned() })
}

/// A decimal number, taken apart.
struct Number<'a> {
    whole: &'a str,
    fraction: &'a str,
}

fn number_and_factor(text: &str) -> Option<(Number<'_>, u128)> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = factor(unit.trim_start_matches(' '))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_digits(whole) && is_digits(fraction)).then_some((Number { whole, fraction }, factor))
}

/// Bytes of a unit.
fn factor(unit: &str) -> Option<u128> {
    if matches!(unit, "" | "B") {
        return Some(1);
    }
    let letter = unit.chars().next()?.to_ascii_uppercase();
    let power = u32::try_from(LETTERS.find(letter)?).ok()? + 1;
    match unit[letter.len_utf8()..].to_ascii_lowercase().as_str() {
        "" | "i" | "ib" => Some(1024_u128.pow(power)),
        "b" => Some(1000_u128.pow(power)),
        _ => None,
    }
}

/// The bytes, rounded down. In whole numbers: 1.92 TB has no rounding error. `None` if 64 bits do
/// not count them.
fn bytes(Number { whole, fraction }: Number<'_>, factor: u128) -> Option<u64> {
    // Digits behind these make less than a byte, up to EiB.
    let fraction = &fraction[..fraction.len().min(19)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = fraction.parse::<u128>().ok()?.checked_mul(factor)? / scale;
    let bytes = whole.parse::<u128>().ok()?.checked_mul(factor)?.checked_add(part)?;
    u64::try_from(bytes).ok()
}

/// The shortest text that [`parse`] takes for exactly so many bytes: `1077MiB`, `4096` as `4KiB`.
pub fn exact(bytes: u64) -> String {
    let units = LETTERS.bytes().zip(1..7).rev().flat_map(|(letter, power)| {
        let letter = char::from(letter);
        // As the SI writes them: kB, MB.
        let decimal = if letter == 'K' { 'k' } else { letter };
        [(format!("{letter}iB"), 1024_u64.pow(power)), (format!("{decimal}B"), 1000_u64.pow(power))]
    });
    let mut whole = units.filter(|(_, one)| bytes >= *one && bytes.is_multiple_of(*one));
    let (name, one) = whole.next().unwrap_or(("B".to_owned(), 1));
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
            ("4EiB", 4 << 60),
            ("15e", 15 << 60),
            ("18EB", 18_000_000_000_000_000_000),
            ("1kB", 1_000),
            ("1TB", 1_000_000_000_000),
            ("1.92TB", 1_920_000_000_000),
            ("0.3K", 307),
            ("18446744073709551615", u64::MAX),
            // In any case, and short: dd(1), truncate(1) and fio(1) take most of these.
            ("8k", 8 << 10),
            ("10g", 10 << 30),
            ("10gb", 10_000_000_000),
            ("10GIB", 10 << 30),
            ("8mib", 8 << 20),
            ("8Mb", 8_000_000),
            ("8KB", 8_000),
            ("8Gi", 8 << 30),
            ("0.00000000000000000000000000000000000000000000001M", 0),
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
            ".5GB",
            "5.",
            "1e3",
            "M",
            "8X",
            "8iB",
            "8 M B",
            // 512 bytes for dd, one for fio.
            "8b",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a size: write"), "{error}");
        }
        for text in ["99999999PiB", "16EiB", "19EB", "18446744073709551616", "1Z", "1YiB"] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is too large: a size is below 16 EiB"));
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
