//! The mounts of a device, for the message of a command that finds the device in use.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where a file system of ours on the device at `path` is mounted, if it is. See proc(5) for the
/// table.
pub(crate) fn place_of(path: &Path) -> Option<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let source = path.canonicalize().ok()?.into_os_string().into_vec();
    table.split(|byte| *byte == b'\n').find_map(|line| place_in(line, &source))
}

/// The source of the mount at a directory, as its daemon named it when it mounted.
pub(crate) fn source_at(dir: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let dir = dir.canonicalize().ok()?.into_os_string().into_vec();
    // The last one covers the others.
    let line = table.split(|byte| *byte == b'\n').rfind(|line| {
        line.split(|byte| *byte == b' ').nth(4).is_some_and(|point| unescaped(point) == dir)
    })?;
    let mut words = line.split(|byte| *byte == b' ').skip_while(|word| *word != b"-");
    String::from_utf8(unescaped(words.nth(2)?)).ok()
}

/// The mount point of a line of the table that is about a mount of `source`, with layers in front
/// or without.
fn place_in(line: &[u8], source: &[u8]) -> Option<PathBuf> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let [kind, device, ..] = words.get(dash + 1..)? else { return None };
    let point = words.get(4)?;
    let device = unescaped(device);
    let layers = device.strip_suffix(source)?;
    let is_ours = matches!(*kind, b"fuse.furrow" | b"fuse.zonefs");
    let is_whole = layers.is_empty() || layers.ends_with(b":");
    (is_ours && is_whole).then(|| std::ffi::OsString::from_vec(unescaped(point)).into())
}

/// The table has a backslash and three octal digits for blanks and backslashes.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), word);
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| first == b'\\');
        let code = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &others[3..] } else { others };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_device_whatever_layers_are_in_front() {
        let line = |kind: &str, source: &str| {
            let line = format!("36 35 0:52 / /mnt/a\\040b rw shared:1 - {kind} {source} rw");
            place_in(line.as_bytes(), b"/srv/a b.zns")
        };
        let there = Some(PathBuf::from("/mnt/a b"));
        assert_eq!(line("fuse.furrow", "/srv/a\\040b.zns"), there);
        assert_eq!(line("fuse.zonefs", "po2:/srv/a\\040b.zns"), there);
        assert_eq!(line("fuse.zonefs", "/other/srv/a\\040b.zns"), None);
        assert_eq!(line("ext4", "/srv/a\\040b.zns"), None);
        assert_eq!(place_in(b"", b"/srv"), None);
    }
}
