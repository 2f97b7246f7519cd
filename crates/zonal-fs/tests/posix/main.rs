//! Rules of POSIX about names, on a volume. The same rules through a mount:
//! `crates/zonal-fuse/tests/mounts/posix.rs`.

#![allow(clippy::unwrap_used, reason = "this is test code")]

#[macro_use]
mod rules;

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use rules::{Open, Outcome, Place, Rename, Stat};
use zonal::{ManualClock, OpenMode, spec};
use zonal_fs::furrow::{self, MkfsOptions};
use zonal_fs::vfs::RenameFlags;
use zonal_fs::volume::{Error, File, OpenFlags, Volume, VolumeOptions};

tests_of_every_rule! { on_a_volume }

/// Runs a rule on a volume over a new Furrow.
fn on_a_volume(rule: fn(&dyn Place)) {
    let clock = Arc::new(ManualClock::new(0));
    let drive = spec::open("mem:zone=1M,zones=64", OpenMode::ReadWrite, clock.clone()).unwrap();
    furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
    let volume = Volume::mount(drive, clock, &VolumeOptions::default()).unwrap();
    rule(&volume);
    volume.close().unwrap();
}

fn errno<T>(outcome: Result<T, Error>) -> Outcome<T> {
    outcome.map_err(|error| error.errno())
}

impl Place for Volume {
    fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        errno(Self::read(self, path))
    }

    fn write(&self, path: &str, content: &[u8]) -> Outcome<()> {
        errno(Self::write(self, path, content))
    }

    fn create_new(&self, path: &str) -> Outcome<()> {
        errno(self.open_with(path, OpenFlags::WRITE | OpenFlags::CREATE_NEW, 0o644)).map(drop)
    }

    fn create_dir(&self, path: &str) -> Outcome<()> {
        errno(Self::create_dir(self, path))
    }

    fn remove_file(&self, path: &str) -> Outcome<()> {
        errno(Self::remove_file(self, path))
    }

    fn remove_dir(&self, path: &str) -> Outcome<()> {
        errno(Self::remove_dir(self, path))
    }

    fn rename(&self, from: &str, to: &str, how: Rename) -> Outcome<()> {
        let flags = match how {
            Rename::Replace => RenameFlags::empty(),
            Rename::NoReplace => RenameFlags::NOREPLACE,
            Rename::Exchange => RenameFlags::EXCHANGE,
        };
        errno(self.rename_with(from, to, flags))
    }

    fn hard_link(&self, original: &str, link: &str) -> Outcome<()> {
        errno(Self::hard_link(self, original, link))
    }

    fn symlink(&self, target: &str, link: &str) -> Outcome<()> {
        errno(Self::symlink(self, target, link))
    }

    fn read_link(&self, path: &str) -> Outcome<Vec<u8>> {
        errno(Self::read_link(self, path)).map(|target| target.into_os_string().into_vec())
    }

    fn stat(&self, path: &str) -> Outcome<Stat> {
        let attr = errno(self.symlink_metadata(path))?;
        Ok(Stat {
            ino: attr.ino.get(),
            nlink: attr.nlink.into(),
            size: attr.size,
            perm: attr.perm.into(),
            ctime: (attr.ctime.secs(), attr.ctime.nanos().into()),
        })
    }

    fn names(&self, path: &str) -> Outcome<Vec<String>> {
        let mut names = Vec::new();
        for entry in errno(self.read_dir(path))? {
            names.push(errno(entry)?.name.into_string().unwrap());
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &str) -> Outcome<Box<dyn Open + '_>> {
        let file = errno(self.open_with(path, OpenFlags::READ | OpenFlags::WRITE, 0))?;
        Ok(Box::new(file))
    }
}

impl Open for File {
    fn write_at(&self, data: &[u8], offset: u64) -> Outcome<()> {
        errno(self.write_all_at(data, offset))
    }

    fn content(&self) -> Outcome<Vec<u8>> {
        errno(self.read_to_end())
    }

    fn nlink(&self) -> Outcome<u64> {
        errno(self.metadata()).map(|attr| attr.nlink.into())
    }
}
