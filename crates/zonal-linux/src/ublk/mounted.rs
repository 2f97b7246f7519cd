//! Syncs the file systems that are mounted from a block device before it is removed.
//!
//! The kernel does this itself if the file system supports it; btrfs of Linux 7.3 does not.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Syncs the file systems mounted from `node`.
pub(super) fn sync(node: &Path) {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    for point in points(&table, node) {
        let synced = File::open(&point).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        match synced {
            Ok(()) => tracing::warn!(mount = %point.display(), "still mounted; it was synced"),
            Err(error) => tracing::error!(mount = %point.display(), %error, "cannot be synced"),
        }
    }
}

/// Mount points of `node` in a table in the format of `/proc/PID/mountinfo`, see proc(5).
fn points(table: &[u8], node: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        let Some(point) = words.nth(4) else { continue };
        // Optional words end with a dash; type and source follow.
        let source = words.skip_while(|word| *word != b"-").nth(2);
        if source.is_some_and(|source| unescape(source) == node) {
            found.push(unescape(point));
        }
    }
    found
}

/// Unescapes a path of the table, where spaces and the like are `\` and three octal digits.
fn unescape(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, after @ ..] = rest {
        let digits = if *first == b'\\' { after.get(..3) } else { None };
        let octal = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
24 1 0:22 / /proc rw,relatime shared:5 - proc proc rw
60 1 0:44 / /mnt/a\\040b rw shared:7 master:2 - btrfs /dev/ublkb1 rw,space_cache=v2
61 1 0:45 / /mnt/c rw - btrfs /dev/ublkb11 rw
62 1 259:0 /sub /mnt/d rw - xfs /dev/ublkb1 rw
torn 1 2";

    #[test]
    fn mounts_of_a_device_are_found() {
        let found = points(TABLE, Path::new("/dev/ublkb1"));
        assert_eq!(found, [Path::new("/mnt/a b"), Path::new("/mnt/d")]);
        assert!(points(TABLE, Path::new("/dev/ublkb2")).is_empty());
        assert!(points(b"", Path::new("/dev/ublkb2")).is_empty());
    }

    #[test]
    fn any_word_is_unescaped() {
        assert_eq!(unescape(b"a\\134\\"), Path::new("a\\\\"));
        assert_eq!(unescape(b"\\9xx\\12"), Path::new("\\9xx\\12"));
        assert_eq!(unescape(b"\\011"), Path::new("\t"));
    }
}
