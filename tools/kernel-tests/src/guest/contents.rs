//! Files whose contents follow from a number, so that every byte of each can be checked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The longest file.
const LENGTH_MAX: u64 = 2 << 20;

/// How much is written at once.
const PART: usize = 128 << 10;

/// One file in this many is synced by itself.
const SYNC_EVERY: u64 = 8;

/// Files below a folder, with their expected contents.
pub(super) struct Contents {
    folder: PathBuf,
    files: BTreeMap<u64, Content>,
    written: u64,
    syncing: Syncing,
}

/// Files that are synced by themselves; the whole file system is synced after many files in any
/// case.
#[derive(Clone, Copy)]
pub(super) enum Syncing {
    /// Some files, each when it is written.
    Files,
    /// No file.
    Whole,
}

/// The content of a file.
#[derive(Clone, Copy)]
struct Content {
    seed: u64,
    length: u64,
}

impl Contents {
    /// An empty folder.
    pub(super) fn new(folder: &Path, syncing: Syncing) -> Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_path_buf(), files: BTreeMap::new(), written: 0, syncing })
    }

    /// The folder is at another place from now on: its file system is mounted there.
    pub(super) fn move_to(&mut self, folder: &Path) {
        folder.clone_into(&mut self.folder);
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes new files until their sizes sum up to `bytes`, or nothing has room any more.
    pub(super) fn fill(&mut self, bytes: u64) -> Result<()> {
        let mut left = bytes;
        let first = self.files.last_key_value().map_or(0, |(number, _)| number + 1);
        for number in first.. {
            let length = (4096 + mixed(number) % LENGTH_MAX).min(left);
            if length == 0 || !self.write(number, length)? {
                break;
            }
            left -= length;
        }
        self.sync()
    }

    /// Removes most of the older half, and overwrites the rest of it.
    pub(super) fn change(&mut self) -> Result<()> {
        let numbers: Vec<u64> = self.files.keys().copied().take(self.files.len() / 2).collect();
        for number in &numbers {
            if number % 4 != 0 {
                fs::remove_file(self.path(*number)).context("removing a file")?;
                self.files.remove(number);
            }
        }
        // Most file systems free the space of removed files only after a commit.
        self.sync()?;
        for number in numbers.iter().filter(|number| *number % 4 == 0) {
            let length = self.files[number].length;
            ensure!(self.write(*number, length)?, "no room to overwrite a file");
        }
        self.sync()
    }

    /// Reads everything back.
    pub(super) fn verify(&self) -> Result<()> {
        let found = fs::read_dir(&self.folder)?.count();
        ensure!(found == self.files.len(), "{found} files, not {}", self.files.len());
        for (number, content) in &self.files {
            let path = self.path(*number);
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let expected = bytes_of(content.seed, content.length);
            if let Some(at) = first_difference(&bytes, &expected) {
                anyhow::bail!("{} is wrong from byte {at} of {}", path.display(), content.length);
            }
        }
        Ok(())
    }

    /// Writes a file, and returns whether there was room; removes a file that had none.
    fn write(&mut self, number: u64, length: u64) -> Result<bool> {
        // No two contents are alike.
        let content = Content { seed: mixed(number) ^ self.written, length };
        let path = self.path(number);
        let syncing = if number.is_multiple_of(SYNC_EVERY) { self.syncing } else { Syncing::Whole };
        match write_file(&path, content, syncing) {
            Ok(()) => {
                self.files.insert(number, content);
                self.written += length;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                fs::remove_file(&path).context("removing what had no room")?;
                self.files.remove(&number);
                Ok(false)
            }
            Err(error) => Err(error).with_context(|| format!("writing {}", path.display())),
        }
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(File::open(&self.folder)?).context("syncing the file system")
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("file{number}"))
    }
}

fn write_file(path: &Path, content: Content, syncing: Syncing) -> io::Result<()> {
    let mut file = File::create(path)?;
    for part in bytes_of(content.seed, content.length).chunks(PART) {
        file.write_all(part)?;
    }
    match syncing {
        Syncing::Files => file.sync_all(),
        Syncing::Whole => Ok(()),
    }
}

/// The bytes that follow from `seed`.
pub(super) fn bytes_of(seed: u64, length: u64) -> Vec<u8> {
    let words = (0..length.div_ceil(8)).map(|at| mixed(seed.wrapping_add(at)).to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(usize::try_from(length).expect("a file fits into memory"));
    bytes
}

/// The first byte that differs between two contents.
pub(super) fn first_difference(found: &[u8], expected: &[u8]) -> Option<usize> {
    if found == expected {
        return None;
    }
    let common = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    Some(common)
}

/// A number that looks nothing like its neighbours': one step of `SplitMix64`.
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_verify_finds_changed_byte_and_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut contents = Contents::new(folder.path(), Syncing::Files).unwrap();
        contents.fill(3 << 20).unwrap();
        assert_eq!(contents.written(), 3 << 20);
        contents.change().unwrap();
        contents.fill(1 << 20).unwrap();
        contents.verify().unwrap();
        let (number, content) = contents.files.last_key_value().unwrap();
        let mut bytes = bytes_of(content.seed, content.length);
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(contents.path(*number), &bytes).unwrap();
        let error = contents.verify().unwrap_err().to_string();
        assert!(error.contains(&format!("from byte {}", content.length - 1)), "{error}");
        fs::remove_file(contents.path(*number)).unwrap();
        assert!(contents.verify().is_err());
    }
}
