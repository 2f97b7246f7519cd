//! How commands print results: one file per form. The subcommands decide on values and their
//! meaning.
//!
//! All results go to [`Stdout`], and messages to [`Stderr`]; a test here finds other output.

use std::fmt;
use std::io::{self, Write};

use anyhow::Error;
use signal_hook::consts::SIGPIPE;

pub(crate) use zonal::size::readable as size;

use self::failure::Failure;
use crate::interrupt;

/// Prints on [`Stdout`], as `print!` does on standard output.
macro_rules! say {
    ($($part:tt)*) => { $crate::output::print(format_args!($($part)*)) };
}

/// [`say!`] and the end of the line.
macro_rules! sayln {
    ($($part:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($part)*))) };
}

pub(crate) mod failure;
pub(crate) mod head;
pub(crate) mod json;
pub(crate) mod map;
pub(crate) mod progress;
pub(crate) mod shell;
pub(crate) mod table;

/// The function behind the macros [`say!`] and [`sayln!`].
pub(crate) fn print(text: fmt::Arguments<'_>) {
    // A failure has ended the process.
    let _ = Stdout.write_fmt(text);
}

/// As [`print()`], for a command that has to clean up before it ends: it gets the failure.
pub(crate) fn try_print(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let printed = stdout.write_fmt(text).and_then(|()| stdout.flush());
    printed.map_err(|error| Unprinted::of(&error).into())
}

/// Ends the process by SIGPIPE if the error is that the reader has closed the pipe.
pub(crate) fn end_if_unread(error: &Error) {
    let is_unread = |unprinted: &Unprinted| unprinted.kind == io::ErrorKind::BrokenPipe;
    if error.downcast_ref().is_some_and(is_unread) {
        interrupt::die_of(SIGPIPE);
    }
}

/// Standard output, for results. A write that fails ends the process, so no caller can go on as if
/// the result had been read. After a reader has gone, as in `zonal zones DEVICE | head`, the
/// process ends by SIGPIPE, like other commands; any other failure is an error.
///
/// SIGPIPE itself stays ignored, as Rust has it: a server must not end because one of its clients
/// hangs up. A server prints through [`announce`].
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        or_end(io::stdout().write(data))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_end(io::stdout().flush())
    }
}

/// Flushes the last line of standard output, if it has no newline.
pub(crate) fn finish() {
    // A failure has ended the process.
    let _ = Stdout.flush();
}

fn or_end<T>(outcome: io::Result<T>) -> io::Result<T> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => end(&error),
        outcome => outcome,
    }
}

/// Ends the process after a failed write to standard output.
pub(crate) fn end(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        interrupt::die_of(SIGPIPE);
    }
    let unprinted = Unprinted::of(error);
    Failure::new(unprinted.to_string(), unprinted.errno, Some(REDIRECT.to_owned())).print();
    std::process::exit(failure::code().into());
}

/// What to try when a result cannot be printed.
pub(crate) const REDIRECT: &str = "send standard output to another place";

/// A result that the command could not print. It is no [`io::Error`], whose advice would be about
/// drives.
#[derive(Debug)]
pub(crate) struct Unprinted {
    pub(crate) errno: Option<i32>,
    kind: io::ErrorKind,
    why: String,
}

impl Unprinted {
    fn of(error: &io::Error) -> Self {
        Self { errno: error.raw_os_error(), kind: error.kind(), why: error.to_string() }
    }
}

impl fmt::Display for Unprinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing to standard output: {}", self.why)
    }
}

impl std::error::Error for Unprinted {}

/// Prints the announcement of a server on standard output. The server goes on if that fails.
pub(crate) fn announce(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        tracing::warn!(%error, "nobody reads what this server prints");
    }
}

/// Standard error, for messages. A failure to write one has no place to be reported. Once the
/// reader has gone, the command ends by SIGPIPE; a server goes on.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match io::stderr().write(data) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                interrupt::on_broken_pipe();
                Ok(data.len())
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Ok(data.len()),
            outcome => outcome,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    use std::path::Path;

    use super::*;

    #[test]
    fn output_errors_are_handled_in_one_file() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("output/mod.rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    for call in ["io::stdout", "io::stderr"] {
                        let uses = text.matches(call).count();
                        let of_rustix = text.matches(&format!("stdio::{}", &call[4..])).count();
                        assert_eq!(uses, of_rustix, "{}: {call}", path.display());
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(rate(1_500_000, 1.0), "1.5 MB/s");
        assert_eq!(rate(1_500_000, 0.0), "0.0 MB/s");
    }
}
