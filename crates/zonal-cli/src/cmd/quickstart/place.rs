//! Where quickstart works: files and directories that this run made, and nothing else.
//!
//! Each of them is made by a call that fails if the name is taken. So a run never changes files
//! that were there before, and on failure it removes its own and nothing more.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::UnmountFlags;
use zonal_fuse::unmount::detach;

use crate::args::Quickstart;
use crate::output::shell;

/// The drive file and the mount point of this run.
pub(super) struct Place {
    folder: PathBuf,
    /// An empty file until the run makes the drive in it.
    pub(super) drive: PathBuf,
    /// The mount point, or why the file system is used as a library.
    pub(super) mount: Result<PathBuf, String>,
    /// The files and directories of this run, in the order in which it made them.
    made: Vec<PathBuf>,
}

impl Place {
    /// Makes a place, for a mount if this user can mount here.
    pub(super) fn new(args: &Quickstart) -> Result<Self> {
        let mut place = Self {
            folder: PathBuf::new(),
            drive: PathBuf::new(),
            mount: Err("as asked for".to_owned()),
            made: Vec::new(),
        };
        let outcome = place.make(args);
        if outcome.is_err() {
            place.clear();
        }
        outcome.map(|()| place)
    }

    fn make(&mut self, args: &Quickstart) -> Result<()> {
        let folder = match &args.place {
            None => {
                let user = rustix::process::getuid().as_raw();
                self.make_beside(Path::new("/var/tmp"), &format!("zonal-quickstart-{user}"))?
            }
            Some(folder) if folder.symlink_metadata().is_err() => self.make_all(folder)?,
            Some(folder) => {
                let found = fs::read_dir(folder).map(|mut entries| entries.next().is_some());
                if found.with_context(|| format!("listing {}", folder.display()))? {
                    self.make_beside(folder, "zonal-quickstart")?
                } else {
                    folder.clone()
                }
            }
        };
        self.folder =
            folder.canonicalize().with_context(|| format!("finding {}", folder.display()))?;
        self.drive = self.folder.join("drive.zns");
        self.make_file(self.drive.clone())?;
        if !args.no_mount {
            self.mount = match why_no_mount() {
                Some(why) => Err(why),
                None => Ok(self.make_all(&self.folder.join("mnt"))?),
            };
        }
        if self.mount.is_ok() {
            self.make_file(self.log())?;
            self.make_file(self.counts())?;
        }
        Ok(())
    }

    /// Makes a directory in `base`: `name`, or `name-2` and so on if it exists.
    fn make_beside(&mut self, base: &Path, name: &str) -> Result<PathBuf> {
        let mut folder = base.join(name);
        let mut others = (2..).map(|number| base.join(format!("{name}-{number}")));
        while folder.symlink_metadata().is_ok() {
            folder = others.next().context("every name is taken")?;
        }
        self.make_all(&folder)
    }

    /// Makes a directory, and the missing ones above it.
    fn make_all(&mut self, folder: &Path) -> Result<PathBuf> {
        let is_missing =
            |path: &&Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err();
        let mut missing: Vec<&Path> = folder.ancestors().skip(1).take_while(is_missing).collect();
        missing.insert(0, folder);
        for path in missing.into_iter().rev() {
            fs::create_dir(path).with_context(|| format!("creating {}", path.display()))?;
            self.made.push(path.to_owned());
        }
        Ok(folder.to_owned())
    }

    fn make_file(&mut self, path: PathBuf) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path).with_context(|| format!("creating {}", path.display()))?;
        self.made.push(path);
        Ok(())
    }

    /// Log of the daemon.
    pub(super) fn log(&self) -> PathBuf {
        self.drive.with_extension("log")
    }

    /// File for the daemon's byte counts.
    pub(super) fn counts(&self) -> PathBuf {
        self.drive.with_extension("counts.json")
    }

    /// The command that removes everything that this run made.
    pub(super) fn removal(&self) -> String {
        // Nothing was made before the drive: the directory was there.
        if self.made.first() != Some(&self.drive) {
            return format!("rm -r {}", shell::word(&self.folder));
        }
        let made: Vec<_> = self.made.iter().map(shell::word).collect();
        format!("rm -r {}", made.join(" "))
    }

    /// Removes the files and directories of this run. A directory with files of others stays.
    pub(super) fn clear(&self) {
        // A file that cannot be removed stays; the failure that led here is reported.
        for path in self.made.iter().rev() {
            if path.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                let _ = fs::remove_file(path);
            } else if fs::remove_dir(path).is_err() && self.mount.as_ref() == Ok(path) {
                let _ = detach(path, UnmountFlags::DETACH);
                let _ = fs::remove_dir(path);
            }
        }
    }
}

/// Why this user cannot mount here, if so.
fn why_no_mount() -> Option<String> {
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("cannot open /dev/fuse: {error}"));
    }
    let can_mount = rustix::process::geteuid().is_root() || is_installed("fusermount3");
    (!can_mount).then(|| "to mount as an ordinary user, install the package fuse3".to_owned())
}

/// Whether the shell finds a program.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &Path) -> Result<Place> {
        let place = Some(folder.to_owned());
        Place::new(&Quickstart { dir: None, place, zone_capacity: None, no_mount: true })
    }

    #[test]
    fn place_removes_only_what_it_made() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        // A directory that is missing, with the one above it; then an empty one.
        let missing = place(&home.join("a/b")).unwrap();
        assert_eq!(missing.drive, home.join("a/b/drive.zns"));
        missing.clear();
        let empty = place(&home).unwrap();
        assert_eq!(empty.removal(), format!("rm -r {}", home.join("drive.zns").display()));
        empty.clear();
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
        // A directory that holds a file, and the file itself.
        let file = home.join("drive.zns");
        fs::write(&file, "mine").unwrap();
        assert!(place(&file).is_err());
        let [first, second] = [(); 2].map(|()| place(&home).unwrap());
        assert_eq!(second.folder, home.join("zonal-quickstart-2"));
        fs::write(first.folder.join("mine"), "mine").unwrap();
        first.clear();
        second.clear();
        assert_eq!(fs::read(first.folder.join("mine")).unwrap(), b"mine");
        assert!(!first.drive.exists() && !second.folder.exists());
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }
}
