//! Names of files in messages.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// A name or a path as a message may print it: control characters, which would reach the terminal,
/// and bytes that are no UTF-8 are escaped.
///
/// ```
/// assert_eq!(zonal::shown("words"), "words");
/// assert_eq!(zonal::shown("\u{1b}[2J"), "\\u{1b}[2J");
/// ```
pub fn shown(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                text.extend(letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a string takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_terminal() {
        let table: [(&[u8], &str); 5] = [
            (b"plain name", "plain name"),
            ("größe".as_bytes(), "größe"),
            (b"two\nlines\t", "two\\nlines\\t"),
            (b"\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            (b"\xff\xfe-end", "\\xff\\xfe-end"),
        ];
        for (name, wanted) in table {
            assert_eq!(shown(OsStr::from_bytes(name)), wanted);
        }
    }
}
