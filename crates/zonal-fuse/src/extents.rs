//! Extents of files as extended attributes, which the server makes when they are read: where the
//! content of a file lies, also for users who may not read the control directory.
//!
//! | attribute | content |
//! | --- | --- |
//! | `user.zonal.extents.OFFSET` of a file | its extents from a byte on |
//! | `user.zonal.extents.INODE.OFFSET` of the root | extents of all files, from a byte of an inode on |
//!
//! The second one is for root and for the user who mounted.
//!
//! A line for each extent has six words: inode, offset and length in bytes, zone, offset in the
//! zone in bytes, and `own` or `shared`. The value ends with the last line that fits the buffer; a
//! program goes on at the end of the last extent. An empty value is the end.

use std::fmt::Write;

use zonal::ZoneId;
use zonal_fs::vfs::{FileExtent, FileSystem, Ino, Listing, Result};

/// First part of the names.
pub(crate) const PREFIX: &str = "user.zonal.extents.";

/// Longest value that Linux takes (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 65_536;

/// A question by such a name: where to begin, and the inode behind the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    start: (Ino, u64),
    end: Ino,
}

impl Question {
    /// The question by an attribute of a file.
    pub(crate) fn of_file(name: &[u8], ino: Ino) -> Option<Self> {
        let offset = number(rest(name)?)?;
        Some(Self { start: (ino, offset), end: Ino::new(ino.get().checked_add(1)?) })
    }

    /// The question by an attribute of the root.
    pub(crate) fn of_root(name: &[u8]) -> Option<Self> {
        let (ino, offset) = rest(name)?.split_once('.')?;
        Some(Self { start: (Ino::new(number(ino)?), number(offset)?), end: Ino::new(1 << 63) })
    }

    /// The answer, of `len` bytes at most.
    pub(crate) fn answer(self, fs: &dyn FileSystem, len: usize) -> Result<Vec<u8>> {
        let len = if len == 0 { VALUE_MAX } else { len.min(VALUE_MAX) };
        let mut text = String::new();
        fs.extents(self.start, self.end, &mut |extent| {
            let before = text.len();
            let FileExtent { ino, offset, len: bytes, zone, zone_offset, shared } = extent;
            let share = if shared { "shared" } else { "own" };
            writeln!(text, "{} {offset} {bytes} {} {zone_offset} {share}", ino.get(), zone.get())
                .expect("a string takes all");
            // A first line that is too long shows that the buffer is too small.
            if before == 0 || text.len() <= len {
                return Listing::More;
            }
            text.truncate(before);
            Listing::Enough
        })?;
        Ok(text.into_bytes())
    }
}

/// Whether the server answers an attribute of this name.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

fn rest(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name.strip_prefix(PREFIX.as_bytes())?).ok()
}

/// A number of digits alone.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name that asks a file for its extents from a byte on.
pub fn of_file(offset: u64) -> String {
    format!("{PREFIX}{offset}")
}

/// The name that asks the root for the extents of all files from a byte of an inode on.
pub fn of_root(ino: u64, offset: u64) -> String {
    format!("{PREFIX}{ino}.{offset}")
}

/// Parses a value; `None` if it has another form.
pub fn parse(value: &[u8]) -> Option<Vec<FileExtent>> {
    let text = std::str::from_utf8(value).ok()?;
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [ino, offset, len, zone, zone_offset, share] = words[..] else { return None };
        let len = number(len).filter(|len| *len > 0)?;
        let (offset, zone_offset) = (number(offset)?, number(zone_offset)?);
        offset.checked_add(len).and(zone_offset.checked_add(len))?;
        Some(FileExtent {
            ino: Ino::new(number(ino)?),
            offset,
            len,
            zone: ZoneId::new(u32::try_from(number(zone)?).ok()?),
            zone_offset,
            shared: match share {
                "own" => false,
                "shared" => true,
                _ => return None,
            },
        })
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::{LbaCount, ManualClock, OpenMode, ZonedDevice, spec};
    use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
    use zonal_fs::vfs::{Caller, FileKind, NewInode, WriteFlags};

    use super::*;

    /// A file system and its drive.
    fn mounted() -> (Furrow, Arc<dyn ZonedDevice>) {
        let clock = Arc::new(ManualClock::new(0));
        let shape = "mem:zones=40,zone=1M,conventional=0";
        let device = spec::open_stack(shape, OpenMode::ReadWrite, clock.clone()).unwrap().device;
        mkfs(device.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        (Furrow::mount(device.clone(), clock, MountOptions::default()).unwrap(), device)
    }

    fn create(fs: &Furrow, name: &str) -> Ino {
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap().ino
    }

    /// All extents, by as many questions as buffers of `len` bytes need.
    fn all(fs: &Furrow, len: usize) -> Vec<FileExtent> {
        let (mut found, mut at) = (Vec::new(), (0, 0));
        loop {
            let question = Question::of_root(of_root(at.0, at.1).as_bytes()).unwrap();
            let answer = question.answer(fs, len).unwrap();
            assert!(answer.len() <= len, "{}", answer.len());
            let extents = parse(&answer).unwrap();
            let Some(last) = extents.last() else { return found };
            at = (last.ino.get(), last.end());
            found.extend(extents);
        }
    }

    #[test]
    fn extents_cover_content_of_files_with_any_buffer() {
        let (fs, device) = mounted();
        let (first, second) = (create(&fs, "first"), create(&fs, "second"));
        fs.write(first, 0, &vec![1; 3 << 20], WriteFlags::DIRECT).unwrap();
        for block in [9, 7, 5] {
            fs.write(second, block * 4096, &[2; 4096], WriteFlags::DIRECT).unwrap();
        }
        fs.sync().unwrap();
        let found = all(&fs, 60_000);
        assert!(found.iter().all(|extent| !extent.shared));
        let bytes = |ino| -> u64 {
            found.iter().filter(|extent| extent.ino == ino).map(|extent| extent.len).sum()
        };
        assert_eq!((bytes(first), bytes(second)), (3 << 20, 3 * 4096));
        for extent in &found {
            let (mut inside, mut stored) = (vec![0; 4096], vec![0; 4096]);
            fs.read(extent.ino, extent.offset, &mut inside).unwrap();
            let blocks =
                LbaCount::new(extent.zone_offset >> device.geometry().block_size().shift());
            device.read(device.geometry().zone_start(extent.zone) + blocks, &mut stored).unwrap();
            assert!(inside == stored, "{extent:?}");
        }
        assert!(found.is_sorted_by_key(|extent| (extent.ino, extent.offset)));
        assert_eq!(all(&fs, 100), found);
        let question = Question::of_file(of_file(6 * 4096).as_bytes(), second).unwrap();
        let later = parse(&question.answer(&fs, 0).unwrap()).unwrap();
        assert_eq!(later.iter().map(|extent| extent.offset / 4096).collect::<Vec<_>>(), [7, 9]);
    }

    #[test]
    fn extents_of_copy_are_shared() {
        let (fs, _device) = mounted();
        let (first, copy) = (create(&fs, "first"), create(&fs, "copy"));
        fs.write(first, 0, &vec![1; 1 << 16], WriteFlags::DIRECT).unwrap();
        fs.copy_range((first, 0), (copy, 0), 1 << 16, WriteFlags::empty()).unwrap();
        fs.sync().unwrap();
        let found = all(&fs, 60_000);
        let [one, other] = found[..] else { panic!("{found:?}") };
        assert!(one.shared && other.shared);
        assert_eq!((one.zone, one.zone_offset), (other.zone, other.zone_offset));
        assert_eq!([one.ino, other.ino], [first, copy]);
    }

    #[test]
    fn extents_of_other_form_are_refused() {
        assert_eq!(parse(b""), Some(Vec::new()));
        assert!(parse(b"1 0 4096 7 0 own\n").is_some());
        for wrong in ["1 0 0 7 0 own", "1 0 4096 7 0", "1 0 4096 7 0 none", "x 0 1 1 1 own", "\n"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        let max = u64::MAX;
        assert_eq!(parse(format!("1 {max} 2 7 0 own\n").as_bytes()), None);
        for wrong in ["user.zonal.extents.", "user.zonal.extents.+1", "user.zonal.extents.1.2.3"] {
            assert_eq!(Question::of_file(wrong.as_bytes(), Ino::ROOT), None, "{wrong}");
            assert_eq!(Question::of_root(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
