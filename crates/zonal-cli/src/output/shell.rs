//! Words of the commands that we print: users paste them into a shell.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// A word that a shell reads back as `word`, on one line of a terminal.
pub(crate) fn word(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_bytes();
    match str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => escaped(bytes),
    }
}

/// Whether no shell gives this letter a meaning, wherever it stands in a word.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || "/._-+,:@%".contains(letter)
}

/// The word with escapes for bytes that a terminal cannot show.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::from("$'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => write!(text, "\\{}", char::from(*byte)),
            b' '..=b'~' => write!(text, "{}", char::from(*byte)),
            _ => write!(text, "\\{byte:03o}"),
        }
        .expect("a string takes all");
    }
    text + "'"
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::process::Command;

    use super::*;

    #[test]
    fn word_is_read_back_by_shell() {
        let words: [&[u8]; 13] = [
            b"/srv/drive-1_a.zns",
            b"nqn.2024-01.org:x@1,2+3%",
            b"/dir/a b/qs",
            b"",
            b"it's",
            b"$(reboot) `reboot` $HOME",
            b"a;b&c|d>e<f*g?h[i]{j,k}",
            b"~root",
            b"#x=!y\\z\"",
            "größe ü".as_bytes(),
            b"two\nlines\ttab",
            b"\x1b[2J'\\",
            b"not \xff UTF-8",
        ];
        for bytes in words {
            let given = word(OsStr::from_bytes(bytes));
            assert!(!given.contains(char::is_control), "{given:?}");
            let script = OsString::from(format!("printf %s {given}"));
            let output = Command::new("bash").arg("-c").arg(script).output().unwrap();
            assert_eq!(output.stdout, bytes, "{given}");
        }
        assert_eq!(word("/srv/a.zns"), "/srv/a.zns");
        assert_eq!(word("/dir/a b/qs"), "'/dir/a b/qs'");
    }
}
