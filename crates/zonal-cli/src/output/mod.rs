//! How results are printed: one file per form. Values and their meaning are the subcommands'.

use std::fmt;
use std::io::{self, Write};

pub(crate) use zonal::size::readable as size;

/// Prints on standard output, as `print!` does, but ends quietly if nobody reads any more, as in
/// `zonal zones DEVICE | head`.
macro_rules! say {
    ($($part:tt)*) => { $crate::output::print(format_args!($($part)*)) };
}

/// [`say!`] and the end of the line.
macro_rules! sayln {
    ($($part:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($part)*))) };
}

pub(crate) mod json;
pub(crate) mod map;
pub(crate) mod progress;
pub(crate) mod shell;
pub(crate) mod table;

/// What the macros [`say!`] and [`sayln!`] call.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text) {
        // As a program that SIGPIPE ends.
        let code = if error.kind() == io::ErrorKind::BrokenPipe { 141 } else { 1 };
        std::process::exit(code);
    }
}

/// `12.3 MB/s`: rates are decimal, as drives and networks have them.
pub(crate) fn rate(bytes: u64, seconds: f64) -> String {
    let per_second = per_second(bytes, seconds);
    if per_second >= 1e9 {
        format!("{:.2} GB/s", per_second / 1e9)
    } else {
        format!("{:.1} MB/s", per_second / 1e6)
    }
}

/// Events per second; zero where no time passed.
#[expect(clippy::cast_precision_loss, reason = "for people, who read four digits")]
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(rate(1_500_000, 1.0), "1.5 MB/s");
        assert_eq!(rate(1_500_000, 0.0), "0.0 MB/s");
    }
}
