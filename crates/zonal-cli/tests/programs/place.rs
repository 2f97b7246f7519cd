//! A drive file with a Furrow, and its mount.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;
use zonal_fuse::unmount::daemon_of;

use crate::server::wait_for_end;
use crate::{text, zonal};

pub(crate) struct Place {
    folder: TempDir,
    mount_point: &'static str,
}

impl Place {
    /// Makes the drive and mounts it; `None`, after a message, where nothing can be mounted.
    pub(crate) fn new(shape: &[&str]) -> Option<Self> {
        let place = Self::unmade("mnt")?;
        fs::create_dir(place.dir()).unwrap();
        let drive = place.path("drive.zns");
        zonal(&[&["create", text(&drive)], shape].concat());
        zonal(&["mkfs", text(&drive)]);
        place.mount("");
        Some(place)
    }

    /// A directory where a drive is to be made and mounted on `mount_point`.
    pub(crate) fn unmade(mount_point: &'static str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            println!("SKIP: mounting needs root and /dev/fuse");
            return None;
        }
        let folder = TempDir::with_prefix("zonal-programs-").unwrap();
        Some(Self { folder, mount_point })
    }

    /// A path outside the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The directory it is mounted on.
    pub(crate) fn dir(&self) -> PathBuf {
        self.path(self.mount_point)
    }

    /// Mounts the drive with `layers` in front.
    pub(crate) fn mount(&self, layers: &str) {
        let (drive, dir, log) = (self.path("drive.zns"), self.dir(), self.path("log"));
        let device = format!("{layers}{}", text(&drive));
        zonal(&["mount", &device, text(&dir), "--log", text(&log)]);
    }

    pub(crate) fn unmount(&self) {
        zonal(&["umount", text(&self.dir())]);
    }

    /// Unmounts a drive that cannot be synced any more.
    pub(crate) fn unmount_by_force(&self) {
        let daemon = self.daemon();
        let ended = pidfd_open(daemon, PidfdFlags::empty()).unwrap();
        zonal(&["umount", "--force", text(&self.dir())]);
        wait_for_end(&ended);
    }

    /// Kills the daemon; the mount stays, dead.
    pub(crate) fn kill_daemon(&self) {
        let daemon = pidfd_open(self.daemon(), PidfdFlags::empty()).unwrap();
        pidfd_send_signal(&daemon, Signal::KILL).unwrap();
        wait_for_end(&daemon);
    }

    /// Clears the mount of a killed daemon away.
    pub(crate) fn clear(&self) {
        rustix::mount::unmount(self.dir(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }

    fn daemon(&self) -> Pid {
        Pid::from_raw(daemon_of(&self.dir()).unwrap().cast_signed()).unwrap()
    }

    /// All data and metadata of the drive, which is not mounted, are in order.
    pub(crate) fn check(&self) {
        let told = zonal(&["check", "--data", text(&self.path("drive.zns"))]);
        assert!(told.contains(": clean, "), "{told}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir()).output();
    }
}
