//! A mounted directory for the rules that volumes are tested by too.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::mounted::Mounted;
use crate::rules::{Open, Outcome, Place, Rename, Stat};

fn errno<T>(outcome: io::Result<T>) -> Outcome<T> {
    outcome.map_err(|error| error.raw_os_error().expect("from the system"))
}

impl Place for Mounted {
    fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        errno(fs::read(self.path(path)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Outcome<()> {
        errno(fs::write(self.path(path), content))
    }

    fn create_new(&self, path: &str) -> Outcome<()> {
        errno(File::create_new(self.path(path))).map(drop)
    }

    fn create_dir(&self, path: &str) -> Outcome<()> {
        errno(fs::create_dir(self.path(path)))
    }

    fn remove_file(&self, path: &str) -> Outcome<()> {
        errno(fs::remove_file(self.path(path)))
    }

    fn remove_dir(&self, path: &str) -> Outcome<()> {
        errno(fs::remove_dir(self.path(path)))
    }

    fn rename(&self, from: &str, to: &str, how: Rename) -> Outcome<()> {
        let flags = match how {
            Rename::Replace => RenameFlags::empty(),
            Rename::NoReplace => RenameFlags::NOREPLACE,
            Rename::Exchange => RenameFlags::EXCHANGE,
        };
        let renamed = renameat_with(CWD, self.path(from), CWD, self.path(to), flags);
        errno(renamed.map_err(io::Error::from))
    }

    fn hard_link(&self, original: &str, link: &str) -> Outcome<()> {
        errno(fs::hard_link(self.path(original), self.path(link)))
    }

    fn symlink(&self, target: &str, link: &str) -> Outcome<()> {
        errno(symlink(target, self.path(link)))
    }

    fn read_link(&self, path: &str) -> Outcome<Vec<u8>> {
        errno(fs::read_link(self.path(path))).map(|target| target.into_os_string().into_vec())
    }

    fn stat(&self, path: &str) -> Outcome<Stat> {
        let meta = errno(fs::symlink_metadata(self.path(path)))?;
        Ok(Stat {
            ino: meta.ino(),
            nlink: meta.nlink(),
            size: meta.len(),
            perm: meta.mode() & 0o7777,
            ctime: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    fn names(&self, path: &str) -> Outcome<Vec<String>> {
        let mut names = Vec::new();
        for entry in errno(fs::read_dir(self.path(path)))? {
            names.push(errno(entry)?.file_name().into_string().unwrap());
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &str) -> Outcome<Box<dyn Open + '_>> {
        let file = errno(OpenOptions::new().read(true).write(true).open(self.path(path)))?;
        Ok(Box::new(file))
    }
}

impl Open for File {
    fn write_at(&self, data: &[u8], offset: u64) -> Outcome<()> {
        errno(self.write_all_at(data, offset))
    }

    fn content(&self) -> Outcome<Vec<u8>> {
        let mut content = vec![0; 1 << 16];
        let read = errno(self.read_at(&mut content, 0))?;
        content.truncate(read);
        Ok(content)
    }

    fn nlink(&self) -> Outcome<u64> {
        errno(self.metadata()).map(|meta| meta.nlink())
    }
}
