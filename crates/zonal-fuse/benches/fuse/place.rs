//! The mounts that are compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench_support::process_ns;
use rustix::mount::{UnmountFlags, unmount};

use crate::daemon::Daemon;

/// Says whether the kernel offers FUSE over `io_uring`.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// Names of places that others are compared with.
pub(crate) const FURROW: &str = "Furrow";
pub(crate) const EXT4: &str = "ext4";
pub(crate) const FURROW_BY_RINGS: &str = "Furrow, io_uring";

/// A directory in which files are made.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) dir: PathBuf,
    served: Served,
}

/// The server of a place.
enum Served {
    Daemon(Daemon),
    Loop,
    Kernel,
}

impl Place {
    /// A server that appends to a log. It has files in one directory and no more.
    pub(crate) fn ceiling(home: &Path) -> Self {
        Self::of_daemon("FUSE ceiling", "ceiling-log", home)
    }

    /// Furrow with few threads and with many, on a drive in memory and on one whose calls take 100
    /// µs.
    pub(crate) fn of_threads(home: &Path) -> Vec<Self> {
        [
            ("few threads", "furrow"),
            ("34 threads", "furrow-many"),
            ("100 µs, few threads", "furrow-slow"),
            ("100 µs, 34 threads", "furrow-slow-many"),
        ]
        .map(|(name, what)| Self::of_daemon(name, what, home))
        .into()
    }

    /// Furrow in up to three ways, and two file systems of the kernel.
    pub(crate) fn all(home: &Path) -> Vec<Self> {
        let mut places = vec![Self::of_daemon(FURROW, "furrow", home)];
        if fs::read_to_string(RINGS).is_ok_and(|value| value.starts_with('Y')) {
            places.push(Self::of_daemon(FURROW_BY_RINGS, "furrow-rings", home));
        } else {
            println!("SKIP FUSE over io_uring: the kernel does not offer it (see {RINGS})");
        }
        places.push(Self::of_daemon("Furrow, write-back", "furrow-back", home));
        match Self::ext4(home) {
            Some(place) => places.push(place),
            None => println!("SKIP ext4: it needs mkfs.ext4 and a loop device"),
        }
        let dir = home.join("plain-files");
        fs::create_dir(&dir).expect("a directory");
        places.push(Self { name: "tmpfs", dir, served: Served::Kernel });
        places
    }

    fn of_daemon(name: &'static str, what: &str, home: &Path) -> Self {
        let daemon = Daemon::start(what, home);
        Self { name, dir: daemon.point.clone(), served: Served::Daemon(daemon) }
    }

    /// ext4 on a loop device, as large as Furrow's drive.
    fn ext4(home: &Path) -> Option<Self> {
        let (image, dir) = (home.join("ext4.image"), home.join("mnt-ext4"));
        fs::create_dir(&dir).ok()?;
        fs::File::create(&image).ok()?.set_len(4 << 30).ok()?;
        let ran = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let is_made = ran(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && ran(Command::new("mount").args(["-o", "loop,noatime"]).arg(&image).arg(&dir));
        is_made.then_some(Self { name: EXT4, dir, served: Served::Loop })
    }

    /// Processor time of its daemon so far, in nanoseconds. The time of the kernel's own threads
    /// belongs to no process.
    pub(crate) fn processor_ns(&self) -> u64 {
        match &self.served {
            Served::Daemon(daemon) => process_ns(daemon.process()),
            Served::Loop | Served::Kernel => 0,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Served::Loop = self.served {
            // Nothing is lost with it.
            let _ = unmount(&self.dir, UnmountFlags::DETACH);
        }
    }
}
