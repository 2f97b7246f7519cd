//! Where quickstart works: files and directories that this run made, and nothing else.
//!
//! Each of them is made by a call that fails if the name is taken. So a run never changes files
//! that were there before, and on failure it removes its own and nothing more.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::session::Way;
use crate::args::Quickstart;
use crate::output::shell;

/// Most names that a run tries for its directory.
const EARLIER_MAX: u32 = 100;

/// The drive file and the mount point of this run.
pub(super) struct Place {
    folder: PathBuf,
    /// An empty file until the run makes the drive in it.
    pub(super) drive: PathBuf,
    pub(super) way: Way,
    /// Directories of earlier runs or other programs: this run leaves them as they are.
    pub(super) earlier: Vec<PathBuf>,
    /// The files and directories of this run, in the order in which it made them.
    made: Vec<PathBuf>,
}

impl Place {
    /// Makes a place, for a mount if this user can mount here.
    pub(super) fn new(args: &Quickstart) -> Result<Self> {
        let mut place = Self {
            folder: PathBuf::new(),
            drive: PathBuf::new(),
            way: way(args),
            earlier: Vec::new(),
            made: Vec::new(),
        };
        let outcome = place.make(args.place.as_deref());
        if outcome.is_err() {
            place.clear();
        }
        outcome.map(|()| place)
    }

    fn make(&mut self, asked: Option<&Path>) -> Result<()> {
        match asked {
            None => {
                let user = rustix::process::getuid().as_raw();
                self.make_beside(Path::new("/var/tmp"), &format!("zonal-quickstart-{user}"))?;
            }
            Some(folder) if folder.symlink_metadata().is_err() => self.make_folder(folder)?,
            Some(folder) if is_empty(folder)? => folder.clone_into(&mut self.folder),
            Some(folder) => self.make_beside(folder, "zonal-quickstart")?,
        }
        self.folder = self
            .folder
            .canonicalize()
            .with_context(|| format!("finding {}", self.folder.display()))?;
        self.drive = self.folder.join("drive.zns");
        self.make_file(self.drive.clone())?;
        if let Way::Mount(point) = &mut self.way {
            *point = self.folder.join("mnt");
            let point = point.clone();
            self.make_dir(&point).with_context(|| format!("creating {}", point.display()))?;
            for path in [self.log(), self.counts()] {
                self.make_file(path)?;
            }
        }
        Ok(())
    }

    /// Makes a directory in `base`: `name`, or `name-2` and so on if it exists.
    fn make_beside(&mut self, base: &Path, name: &str) -> Result<()> {
        for number in 1..=EARLIER_MAX {
            let folder = match number {
                1 => base.join(name),
                _ => base.join(format!("{name}-{number}")),
            };
            match self.make_dir(&folder) {
                Ok(()) => {
                    self.folder = folder;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.earlier.push(folder);
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("creating {}", folder.display()));
                }
            }
        }
        let first = base.join(name);
        bail!(
            "{first} to {first}-{EARLIER_MAX} exist, from earlier runs: `rm -r {}` removes one of \
             them, --place DIR takes another place",
            shell::word(&first),
            first = first.display()
        )
    }

    /// Makes a directory, and the missing ones above it.
    fn make_folder(&mut self, folder: &Path) -> Result<()> {
        let is_missing =
            |path: &&Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err();
        let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
        for path in missing.into_iter().rev() {
            self.make_dir(path).with_context(|| format!("creating {}", path.display()))?;
        }
        folder.clone_into(&mut self.folder);
        Ok(())
    }

    fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        self.made.push(path.to_owned());
        Ok(())
    }

    fn make_file(&mut self, path: PathBuf) -> Result<()> {
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("creating {}", path.display()))?;
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
        for path in self.made.iter().rev() {
            let is_dir = path.symlink_metadata().is_ok_and(|found| found.is_dir());
            // A file that cannot be removed stays; the failure that led here is reported.
            let _ = if is_dir { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
}

fn is_empty(folder: &Path) -> Result<bool> {
    let mut entries =
        fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    Ok(entries.next().is_none())
}

/// Mounted, if this user can mount here; the reason if not. [`Place::make`] fills in the directory.
fn way(args: &Quickstart) -> Way {
    if args.no_mount {
        return Way::Library("as asked for".to_owned());
    }
    match cannot_mount() {
        Some(why) => Way::Library(why),
        None => Way::Mount(PathBuf::new()),
    }
}

/// Why this user cannot mount here, if so.
fn cannot_mount() -> Option<String> {
    const FUSE: &str = "/dev/fuse";
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(FUSE) {
        return Some(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no {FUSE} here"),
            _ => format!("{FUSE} cannot be opened: {error}"),
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper = std::env::split_paths(&path).any(|folder| folder.join("fusermount3").is_file());
    if helper || rustix::process::geteuid().is_root() {
        return None;
    }
    Some("to mount as an ordinary user, install the package fuse3".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &Path) -> Result<Place> {
        Place::new(&Quickstart {
            dir: None,
            place: Some(folder.to_owned()),
            zone_capacity: None,
            no_mount: true,
        })
    }

    #[test]
    fn place_is_new_directory_for_every_run() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("drive.zns"), "mine").unwrap();
        let [first, second] = [(); 2].map(|()| place(home.path()).unwrap());
        let home = home.path().canonicalize().unwrap();
        assert_eq!(first.folder, home.join("zonal-quickstart"));
        assert_eq!(second.folder, home.join("zonal-quickstart-2"));
        assert_eq!((first.earlier.len(), second.earlier.len()), (0, 1));
        assert_eq!(first.removal(), format!("rm -r {}", first.folder.display()));
        fs::write(first.folder.join("mine"), "mine").unwrap();
        first.clear();
        second.clear();
        assert_eq!(fs::read(first.folder.join("mine")).unwrap(), b"mine");
        assert!(!first.drive.exists() && !second.folder.exists());
        assert_eq!(fs::read(home.join("drive.zns")).unwrap(), b"mine");
    }

    #[test]
    fn place_uses_and_keeps_empty_directory() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path()).unwrap();
        assert_eq!(place.drive, home.path().canonicalize().unwrap().join("drive.zns"));
        assert_eq!(place.removal(), format!("rm -r {}", place.drive.display()));
        place.clear();
        assert!(is_empty(home.path()).unwrap());
    }

    #[test]
    fn place_creates_and_removes_missing_directories() {
        let home = tempfile::tempdir().unwrap();
        let place = place(&home.path().join("a/b")).unwrap();
        assert!(place.drive.ends_with("a/b/drive.zns"), "{}", place.drive.display());
        place.clear();
        assert!(is_empty(home.path()).unwrap());
    }

    #[test]
    fn place_refuses_existing_file() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("drive.zns");
        fs::write(&file, "mine").unwrap();
        assert!(place(&file).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }
}
