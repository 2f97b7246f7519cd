//! Writes the archive that a kernel unpacks into its first root file system: cpio, format "newc".
//!
//! Kernel documentation: `driver-api/early-userspace/buffer-format`. Archives may be concatenated.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const CHAR_DEVICE: u32 = 0o020_000;

/// Length of an entry's head, which the name follows.
const HEAD: usize = 110;

/// An archive under construction. Everything in it belongs to root.
pub(crate) struct Cpio<W: Write> {
    out: W,
    entries: u32,
}

impl<W: Write> Cpio<W> {
    /// An archive that is written to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self { out, entries: 0 }
    }

    /// A directory with the usual permissions.
    pub(crate) fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name.as_bytes(), DIRECTORY | 0o755, (0, 0), &[])
    }

    /// An executable file.
    pub(crate) fn program(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.entry(name.as_bytes(), REGULAR | 0o755, (0, 0), content)
    }

    /// A plain file.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.entry(name.as_bytes(), REGULAR | 0o644, (0, 0), content)
    }

    /// A character device, for root only.
    pub(crate) fn char_device(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        self.entry(name.as_bytes(), CHAR_DEVICE | 0o600, (major, minor), &[])
    }

    /// Everything below `folder`, in the order of the names.
    pub(crate) fn tree(&mut self, folder: &Path) -> Result<()> {
        self.below(folder, folder)
    }

    fn below(&mut self, top: &Path, folder: &Path) -> Result<()> {
        let mut entries = fs::read_dir(folder)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| format!("listing {}", folder.display()))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = path.strip_prefix(top).expect("it lies below the top").as_os_str();
            let metadata = path.symlink_metadata()?;
            let perm = metadata.permissions().mode() & 0o7777;
            let reading = || format!("reading {}", path.display());
            if metadata.is_dir() {
                self.entry(name.as_bytes(), DIRECTORY | perm, (0, 0), &[])?;
                self.below(top, &path)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).with_context(reading)?;
                let target = target.as_os_str().as_bytes();
                self.entry(name.as_bytes(), SYMLINK | 0o777, (0, 0), target)?;
            } else {
                let content = fs::read(&path).with_context(reading)?;
                self.entry(name.as_bytes(), REGULAR | perm, (0, 0), &content)?;
            }
        }
        Ok(())
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry(b"TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &[u8], mode: u32, device: (u32, u32), body: &[u8]) -> Result<()> {
        let size = u32::try_from(body.len()).ok();
        ensure!(size.is_some(), "a file of {} bytes is too large for cpio", body.len());
        self.entries += 1;
        let name_size = u32::try_from(name.len() + 1).context("a name is too long for cpio")?;
        let fields = [
            self.entries,
            mode,
            0, // owner
            0, // group
            1, // links
            0, // time
            size.unwrap_or_default(),
            0, // device of the file system
            0,
            device.0,
            device.1,
            name_size,
            0, // checksum, unused in this format
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name)?;
        self.out.write_all(&[0])?;
        self.pad(HEAD + name.len() + 1)?;
        self.out.write_all(body)?;
        self.pad(body.len())
    }

    /// Names and bodies end at a multiple of four.
    fn pad(&mut self, written: usize) -> Result<()> {
        let missing = written.next_multiple_of(4) - written;
        Ok(self.out.write_all(&[0; 3][..missing])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_entries_start_at_multiples_of_four() {
        let mut cpio = Cpio::new(Vec::new());
        cpio.directory("d").unwrap();
        cpio.file("d/five", b"12345").unwrap();
        let bytes = cpio.finish().unwrap();
        let heads: Vec<usize> =
            (0..bytes.len() - 6).filter(|at| &bytes[*at..at + 6] == b"070701").collect();
        assert_eq!(heads.len(), 3);
        assert!(heads.iter().all(|at| at % 4 == 0), "{heads:?}");
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[heads[1] + 54..heads[1] + 62], b"00000005", "the size of the body");
    }
}
