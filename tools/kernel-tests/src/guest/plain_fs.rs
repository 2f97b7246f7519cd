//! The kernel's file systems on disks without zones: made, filled, changed, trimmed, checked by
//! their own tools, and read back.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::contents::{Contents, Syncing};
use super::mounted::Mounted;
use super::side;
use xtask::run;

/// A file system that needs no zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainFs {
    Ext4,
    /// It takes no disk below 300 MiB.
    Xfs,
    Btrfs,
}

impl PlainFs {
    pub(super) const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// As `mount` names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    pub(super) fn make(self, disk: &Path) -> Result<()> {
        let words: &[&str] = match self {
            Self::Ext4 => &["mkfs.ext4", "-q", "-F"],
            Self::Xfs => &["mkfs.xfs", "-q", "-f"],
            Self::Btrfs => &["mkfs.btrfs", "-q", "-f"],
        };
        run_on(words, disk).context("making it")
    }

    /// Has its own tool check it.
    pub(super) fn check(self, disk: &Path) -> Result<()> {
        let words: &[&str] = match self {
            Self::Ext4 => &["e2fsck", "-f", "-n"],
            Self::Xfs => &["xfs_repair", "-n"],
            Self::Btrfs => &["btrfs", "check", "--readonly"],
        };
        run_on(words, disk).context("its own check")
    }

    /// Makes one, writes `bytes` to it and more after files were changed, and checks it. `disturb`
    /// is called between, while it is mounted.
    pub(super) fn exercise(
        self,
        disk: &Path,
        bytes: u64,
        mut disturb: impl FnMut() -> Result<()>,
    ) -> Result<Exercised> {
        self.make(disk)?;
        let place = side::mount_point()?;
        let mounted = Mounted::kernel(self.name(), "discard", disk, &place)?;
        let mut contents = Contents::new(&place.join("files"), Syncing::Files)?;
        contents.fill(bytes / 2).context("filling it")?;
        disturb()?;
        contents.fill(bytes / 2).context("filling it")?;
        contents.change().context("changing files")?;
        disturb()?;
        contents.fill(bytes / 4).context("filling it again")?;
        run::quietly(Command::new("fstrim").arg(&place))?;
        contents.verify().context("reading everything back")?;
        mounted.unmount()?;
        self.check(disk)?;
        Ok(Exercised { kind: self, place, contents })
    }
}

/// An unmounted file system, and its expected content.
pub(super) struct Exercised {
    kind: PlainFs,
    place: PathBuf,
    contents: Contents,
}

impl Exercised {
    /// Mounts it again, on a disk of perhaps another name, and reads everything back.
    pub(super) fn verify(&self, disk: &Path) -> Result<()> {
        let mounted = Mounted::kernel(self.kind.name(), "ro", disk, &self.place)
            .context("mounting it again")?;
        let read = self.contents.verify();
        read.context("reading everything back after it was mounted again")?;
        mounted.unmount()
    }
}

fn run_on(words: &[&str], disk: &Path) -> Result<()> {
    run::quietly(Command::new(words[0]).args(&words[1..]).arg(disk)).map(drop)
}
