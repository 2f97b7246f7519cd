//! Facts about this machine that decide whether a zoned drive can be used: kernel, device nodes,
//! disks, and the kernel's log lines about them.
//!
//! [`Machine::look`] reads them below a root directory, so a test can seed a tree of its own. It
//! asks no drive, writes nothing and takes no privilege: a fact that this user cannot read is
//! `None`. [`Facts::disks`] has disks with and without a node.
//!
//! - `kernel.rs`: version, build options, interfaces.
//! - `disks.rs`: SCSI, ATA and NVMe disks, and other zoned block devices, from sysfs.
//! - `log.rs`: lines of the kernel's log that tell of trouble with a disk.

mod disks;
mod kernel;
mod log;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::Access as Wanted;

pub use self::disks::{Bus, Disk, Queue};

/// SCSI device type of a host-managed drive (ZBC, "14h").
pub const HOST_MANAGED: u64 = 0x14;

/// A machine: this one, or a tree that looks like one.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    user: Option<User>,
}

/// The user of a machine in a test.
#[derive(Clone, Debug)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group ids.
    pub groups: Vec<u32>,
}

/// The facts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Release of the kernel, such as `6.12.43-amd64`; empty if it is unknown.
    pub release: String,
    /// Build options of the kernel that matter, such as `CONFIG_BLK_DEV_ZONED`, with `y`, `m` or
    /// `n`; `None` if no file has them.
    pub options: Option<BTreeMap<&'static str, char>>,
    /// `/dev/fuse`.
    pub fuse: Node,
    /// `/dev/ublk-control`.
    pub ublk: Node,
    /// `kernel.io_uring_disabled`: 0 for no user, 1 for users without privileges, 2 for all.
    pub io_uring_disabled: Option<u64>,
    /// Every disk.
    pub disks: Vec<Disk>,
    /// Whether the kernel's log could be read.
    pub log: Readable,
}

/// Whether this user may read something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Yes.
    Yes,
    /// No.
    No,
}

/// A device node, and whether the user may read from and write to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its path on the machine, without the root of a test.
    pub path: PathBuf,
    /// The right of the user.
    pub access: Access,
}

/// The right of a user to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// There is no such node.
    Missing,
    /// The user may not read from and write to it.
    Denied,
    /// The user may do both.
    Usable,
}

impl Machine {
    /// This machine, and the user of this process.
    pub fn here() -> Self {
        Self { root: "/".into(), user: None }
    }

    /// A tree with the files of a machine, and its user.
    pub fn at(root: &Path, user: User) -> Self {
        Self { root: root.to_owned(), user: Some(user) }
    }

    /// Reads the facts.
    pub fn look(&self) -> Facts {
        let release = self.text("proc/sys/kernel/osrelease").unwrap_or_default();
        let lines = log::lines(&self.root);
        let log = if lines.is_some() { Readable::Yes } else { Readable::No };
        Facts {
            options: kernel::options(&self.root, &release),
            release,
            fuse: self.node("/dev/fuse"),
            ublk: self.node("/dev/ublk-control"),
            io_uring_disabled: self.number("proc/sys/kernel/io_uring_disabled"),
            disks: disks::all(self, &lines.unwrap_or_default()),
            log,
        }
    }

    /// A file of the machine.
    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a small file; `None` if it is empty or cannot be read.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted.
    fn names(&self, dir: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The node at an absolute path of the machine.
    fn node(&self, path: impl Into<PathBuf>) -> Node {
        let path = path.into();
        let place = self.path(path.strip_prefix("/").unwrap_or(&path));
        let access = match place.metadata() {
            Err(_) => Access::Missing,
            Ok(found) => {
                let may = match &self.user {
                    None => rustix::fs::access(&place, Wanted::READ_OK | Wanted::WRITE_OK).is_ok(),
                    Some(user) => user.may_use(&found),
                };
                if may { Access::Usable } else { Access::Denied }
            }
        };
        Node { path, access }
    }
}

impl User {
    /// Whether the mode of a file lets this user read and write it.
    fn may_use(&self, found: &fs::Metadata) -> bool {
        use std::os::unix::fs::MetadataExt;
        const BOTH: u32 = 0o6;
        let mode = found.mode();
        let bits = if self.uid == found.uid() {
            mode >> 6
        } else if self.groups.contains(&found.gid()) {
            mode >> 3
        } else {
            mode
        };
        self.uid == 0 || bits & BOTH == BOTH
    }
}

impl Facts {
    /// Major and minor version of the kernel.
    pub fn version(&self) -> Option<(u32, u32)> {
        kernel::version(&self.release)
    }

    /// A build option of the kernel: `y`, `m` or `n`; `None` if it is unknown.
    pub fn option(&self, name: &str) -> Option<char> {
        self.options.as_ref()?.get(name).copied()
    }
}
