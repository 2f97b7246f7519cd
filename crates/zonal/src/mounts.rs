//! The mounts of this system: the kernel's table, `/proc/self/mountinfo` (proc(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mount, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The number of the file system, as stat(2) of a file on it has it, in `major:minor`.
    pub device: OsString,
    /// The directory.
    pub point: PathBuf,
    /// The type of the file system, with its subtype: `fuse.furrow`.
    pub kind: OsString,
    /// The source: for most file systems the path of a block device.
    pub source: OsString,
}

/// All mounts; of two at one directory, the second covers the first.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mounts that another process sees: those of its mount namespace.
pub fn of_process(process: u32) -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(format!("/proc/{process}/mountinfo"))?))
}

/// The mounts of a table. Leaves out a line that is no mount.
fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ').map(unescaped);
    let device = words.nth(2)?;
    let point = words.nth(1)?.into();
    // Optional words end with a dash; type and source follow.
    let mut words = words.skip_while(|word| word != "-").skip(1);
    let (kind, source) = (words.next()?, words.next()?);
    Some(Mount { device, point, kind, source })
}

/// A word of the table, in which blanks and the like are a backslash and three octal digits.
fn unescaped(word: &[u8]) -> OsString {
    let (mut bytes, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| first == b'\\');
        let code = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &others[3..] } else { others };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_found() {
        let table = b"\
24 1 0:22 / /proc rw,relatime shared:5 - proc proc rw
60 1 0:44 / /mnt/a\\040b rw shared:7 master:2 - btrfs /dev/ublkb1 rw,space_cache=v2
62 1 259:0 /sub /mnt/d rw - fuse.furrow po2:/srv/a\\040b.zns rw
torn 1 2
";
        let found = parse(table);
        let of = |mount: &Mount| {
            let Mount { device, point, kind, source } = mount;
            [device, point.as_os_str(), kind, source].map(|word| word.to_str().unwrap().to_owned())
        };
        let found: Vec<_> = found.iter().map(of).collect();
        assert_eq!(
            found,
            [
                ["0:22", "/proc", "proc", "proc"],
                ["0:44", "/mnt/a b", "btrfs", "/dev/ublkb1"],
                ["259:0", "/mnt/d", "fuse.furrow", "po2:/srv/a b.zns"],
            ]
        );
        assert!(parse(b"").is_empty());
    }

    #[test]
    fn words_are_unescaped() {
        assert_eq!(unescaped(b"a\\134\\"), "a\\\\");
        assert_eq!(unescaped(b"\\9xx\\12"), "\\9xx\\12");
        assert_eq!(unescaped(b"\\011"), "\t");
    }
}
