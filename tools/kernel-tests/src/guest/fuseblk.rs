//! Furrow on block devices with zones, of every kind that the guest's kernel makes: mounted as
//! `fuseblk`, a plain sync(1) waits for a commit, the kernel keeps the disk for the mount, and
//! umount(8) returns when it is free.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::export::{Export, Way, wait_for};
use super::null_blk::NullBlk;
use super::refused::ADAPTED;
use super::shape::{SSD, Shape};
use super::side::{self, zonal};
use crate::drives;
use xtask::run;
use xtask::tally::Tally;

/// With zones enough for a Furrow.
const MEMORY: Shape = Shape { size_mib: 256, open: 8, active: 12, ..SSD };

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("Furrow as fuseblk: QEMU's namespace", || exercise(Path::new(drives::TWIN)));
    tally.check("Furrow as fuseblk: null_blk", || exercise(NullBlk::new(&MEMORY)?.path()));
    for way in Way::ALL {
        tally.check(&format!("Furrow as fuseblk: the refused drive over {way}"), || {
            let (export, disk) = Export::start(way, ADAPTED)?;
            exercise(&disk)?;
            export.end()
        });
    }
}

/// A mount without commits of its own, taken away if a check fails.
pub(super) struct Mount {
    place: PathBuf,
    daemon: String,
}

impl Mount {
    /// Mounts a device: a disk, or any other that `zonal` takes.
    pub(super) fn new(device: &Path) -> Result<Self> {
        let place = side::mount_point()?;
        let mut command = Command::new(side::ZONAL);
        command.args(["mount", "-o", "commit=3600"]).arg(device).arg(&place);
        let said = run::quietly(&mut command)?;
        let (_, rest) = said.split_once("served by process ").context("who serves it")?;
        let daemon = rest.split_whitespace().next().context("a process")?.to_owned();
        Ok(Self { place, daemon })
    }

    /// Where it is mounted.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Kills its daemon, and unmounts.
    pub(super) fn kill(&self) -> Result<()> {
        run::quietly(Command::new("kill").args(["-9", &self.daemon]))?;
        run::quietly(Command::new("umount").arg(&self.place))?;
        self.wait_for_daemon()
    }

    /// Unmounts, which has to end well, and waits until the device is free.
    pub(super) fn unmount(&self) -> Result<()> {
        zonal(&["umount", self.place.to_str().context("a name")?])?;
        self.wait_for_daemon()
    }

    /// Waits until its daemon has no open files. It may be a zombie for longer.
    fn wait_for_daemon(&self) -> Result<()> {
        let files = format!("/proc/{}/fd", self.daemon);
        wait_for(|| Ok(fs::read_dir(&files).map_or(true, |mut files| files.next().is_none())))
    }

    /// The type in the kernel's table of mounts.
    fn kind(&self) -> Result<String> {
        let place = self.place.to_str().context("a name")?;
        let table = fs::read_to_string("/proc/self/mounts")?;
        let line = table.lines().find(|line| line.split(' ').nth(1) == Some(place));
        Ok(line.and_then(|line| line.split(' ').nth(2)).context("its line")?.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Only after a failed check is it still mounted.
        let _ = run::quietly(Command::new("umount").arg("-l").arg(&self.place));
    }
}

/// Whether a program that knows no locks of ours can have the disk for itself.
fn is_free(disk: &Path) -> bool {
    File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed())
        .open(disk)
        .is_ok()
}

fn exercise(disk: &Path) -> Result<()> {
    let name = disk.to_str().context("a name")?;
    zonal(&["mkfs", "--force", name])?;
    let mount = Mount::new(disk)?;
    let kind = mount.kind()?;
    ensure!(kind == "fuseblk.furrow", "its type is {kind}");
    ensure!(!is_free(disk), "another program can have the disk");
    let file = |mount: &Mount, name: &str| mount.place.join(name);
    fs::write(file(&mount, "synced"), "content")?;
    run::quietly(&mut Command::new("sync"))?;
    fs::write(file(&mount, "later"), "content")?;
    mount.kill()?;
    let mount = Mount::new(disk)?;
    ensure!(fs::read_to_string(file(&mount, "synced"))? == "content", "what was synced is lost");
    ensure!(!file(&mount, "later").exists(), "something else has committed");
    fs::write(file(&mount, "last"), "content")?;
    run::quietly(Command::new("umount").arg(&mount.place))?;
    ensure!(is_free(disk), "umount returned before the disk was free");
    zonal(&["check", "--data", name])?;
    let names = zonal(&["ls", &format!("{name}:/")])?;
    ensure!(names.contains("synced") && names.contains("last"), "found only {names}");
    Ok(())
}
