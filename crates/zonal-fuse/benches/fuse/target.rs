//! The targets of the comparison, with the same operations for all.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use zonal::{Lba, LbaCount, Select, ZoneAction, ZoneId, ZonedDevice};
use zonal_fs::vfs::{Caller, FileSystem, Ino, ReadFlags, SetAttr, WriteFlags};
use zonal_fs::zonefs::{Group, ZoneFs};

const O_DIRECT: i32 = 0o40000;

/// One target of the comparison.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The process that serves it.
    pub(crate) daemon: Option<u32>,
}

pub(crate) enum Kind {
    /// Files `0`, `1`, … in a directory that begin anew when truncated.
    Zones(PathBuf),
    /// Files that are overwritten.
    Plain(PathBuf),
    /// zonefs without a mount.
    Library(Arc<ZoneFs>),
    /// The device without a file system.
    Device(Arc<dyn ZonedDevice>),
}

/// A measured operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Write,
    RandomRead,
    BufferedRead,
    FirstRead,
}

impl Op {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Write, "sequential direct write"),
        (Self::RandomRead, "random direct read"),
        (Self::BufferedRead, "sequential buffered read, cold"),
        (Self::FirstRead, "first buffered read after direct writes"),
    ];
}

/// One file of a target, open for one operation.
pub(crate) enum Handle<'a> {
    Zone(File),
    Plain(File),
    Library(&'a ZoneFs, Ino),
    Device(&'a dyn ZonedDevice, ZoneId),
}

impl Target {
    /// Opens the file of one job.
    pub(crate) fn open(&self, job: u32, op: Op) -> Handle<'_> {
        let file = |dir: &PathBuf| {
            let buffered = matches!(op, Op::BufferedRead | Op::FirstRead);
            let direct = if buffered { 0 } else { O_DIRECT };
            let mut options = File::options();
            options.read(true).write(op == Op::Write).custom_flags(direct);
            options.open(dir.join(job.to_string())).expect("the file is there")
        };
        match &self.kind {
            Kind::Zones(dir) => Handle::Zone(file(dir)),
            Kind::Plain(dir) => Handle::Plain(file(dir)),
            Kind::Library(fs) => {
                Handle::Library(fs, fs.file(Group::Sequential, job).expect("a zone for each job"))
            }
            // The first zone holds the super block.
            Kind::Device(device) => Handle::Device(&**device, ZoneId::new(job + 1)),
        }
    }
}

impl Handle<'_> {
    /// Whether there is a page cache before it.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self, Self::Zone(_) | Self::Plain(_))
    }

    /// Makes the file empty, where it only grows.
    pub(crate) fn restart(&self) {
        match self {
            Self::Zone(file) => file.set_len(0).expect("the zone can be reset"),
            Self::Plain(_) => {}
            Self::Library(fs, ino) => {
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                fs.setattr(&Caller::ROOT, *ino, &set).expect("the zone can be reset");
            }
            Self::Device(device, zone) => {
                device.manage(Select::One(*zone), ZoneAction::Reset).expect("it can be reset");
            }
        }
    }

    /// Drops the file's pages from the page cache.
    pub(crate) fn cool(&self) {
        if let Self::Zone(file) | Self::Plain(file) = self {
            fadvise(file, 0, None, Advice::DontNeed).expect("only advice");
        }
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) {
        match self {
            Self::Zone(file) | Self::Plain(file) => {
                assert_eq!(file.write_at(data, offset).expect("written"), data.len());
            }
            Self::Library(fs, ino) => {
                fs.write(*ino, offset, data, WriteFlags::DIRECT).expect("written");
            }
            Self::Device(device, zone) => {
                device.write(lba(*device, *zone, offset), data).expect("written");
            }
        }
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) {
        match self {
            Self::Zone(file) | Self::Plain(file) => {
                assert_eq!(file.read_at(buffer, offset).expect("read"), buffer.len());
            }
            Self::Library(fs, ino) => {
                let read = fs.read_with(*ino, offset, buffer, ReadFlags::DIRECT);
                assert_eq!(read.expect("read"), buffer.len());
            }
            Self::Device(device, zone) => {
                device.read(lba(*device, *zone, offset), buffer).expect("read");
            }
        }
    }
}

fn lba(device: &dyn ZonedDevice, zone: ZoneId, offset: u64) -> Lba {
    let geometry = device.geometry();
    geometry.zone_start(zone) + LbaCount::new(offset >> geometry.block_size().shift())
}
