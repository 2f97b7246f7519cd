//! Medians, ratios and spreads, and how numbers are printed.

use std::fmt;

/// The middle value; of an even number of values the mean of both in the middle.
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(f64::NAN, |spread| spread.median)
}

/// The median of the ratios of two subjects in the same rounds.
pub fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}

/// The spread of a figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle.
    pub median: f64,
    /// The lowest value.
    pub least: f64,
    /// The highest value.
    pub most: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, most })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, least, most] = [self.median, self.least, self.most].map(digits);
        if least == most { f.write_str(&median) } else { write!(f, "{median} ({least} to {most})") }
    }
}

/// A number with at least four digits that count, all digits before the point, and no zeros at the
/// end.
pub fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        size if size >= 0.1 => 4,
        _ => 6,
    };
    let text = format!("{value:.places$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let mut grouped = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { grouped } else { format!("{grouped}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_count_is_the_mean_of_both_in_the_middle() {
        let found = Spread::of(&[4.0, 1.0, 3.0, 2.0]).expect("there are values");
        assert_eq!(found, Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert!(median(&[]).is_nan());
        assert_eq!(ratio(&[2.0, 9.0, 8.0], &[1.0, 3.0, 2.0]).to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn digits_keep_four_that_count_and_drop_zeros() {
        let cases = [
            (450_486_272.0, "450,486,272"),
            (1234.5, "1,234"),
            (-123_456.0, "-123,456"),
            (641.53, "641.5"),
            (13.0, "13"),
            (1.1652, "1.165"),
            (1.10, "1.1"),
            (0.986, "0.986"),
            (0.00094, "0.00094"),
            (0.0, "0"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            assert_eq!(digits(value), expected);
        }
        assert_eq!(Spread::of(&[1.0, 3.0, 2.0]).expect("values").to_string(), "2 (1 to 3)");
        assert_eq!(Spread::of(&[7.0, 7.0]).expect("values").to_string(), "7");
    }
}
