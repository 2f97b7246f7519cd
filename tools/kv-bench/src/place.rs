//! Where a store can be: files of the kernel, a mount, or a drive inside the program. All of them
//! are in one scratch directory, so on the same medium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use xtask::run::quietly;

use crate::child::{self, Ended};

/// A place for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The scratch directory itself.
    Directly,
    /// ext4 on a loop device.
    Ext4,
    /// Zone files in the program: by LevelDB's `Env`, or RocksDB's `FileSystem`.
    Zonefs,
    /// Furrow in the program: by LevelDB's `Env`, or RocksDB's `FileSystem`.
    Plugin(Hints),
    /// A mount of Furrow.
    Mount(Cache, Hints),
}

/// Whether Furrow places files by the program's lifetime hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hints {
    /// It does.
    Followed,
    /// It does not.
    Ignored,
}

/// The kernel's treatment of writes to a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Each is sent at once.
    Through,
    /// They are collected.
    Back,
}

impl Place {
    /// Its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Directly => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Zonefs => "plugin on zonefs",
            Self::Plugin(Hints::Followed) => "plugin",
            Self::Plugin(Hints::Ignored) => "plugin, no hints",
            Self::Mount(Cache::Through, Hints::Followed) => "mount",
            Self::Mount(Cache::Through, Hints::Ignored) => "mount, no hints",
            Self::Mount(Cache::Back, Hints::Followed) => "mount, write-back",
            Self::Mount(Cache::Back, Hints::Ignored) => "mount, write-back, no hints",
        }
    }

    /// Why it cannot be had here.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        match self {
            Self::Ext4 if !is_root => Some("a loop device needs root"),
            Self::Ext4 if !Path::new("/sbin/mkfs.ext4").exists() => Some("there is no mkfs.ext4"),
            Self::Mount(..) if !Path::new("/dev/fuse").exists() => Some("there is no /dev/fuse"),
            Self::Mount(..) if !is_root => Some("the mount is measured as root"),
            Self::Directly | Self::Ext4 | Self::Zonefs | Self::Plugin(_) | Self::Mount(..) => None,
        }
    }
}

/// Zones of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of a zone.
    pub(crate) zone: u64,
    /// How many there are.
    pub(crate) zones: u64,
}

impl Shape {
    /// Bytes of the drive.
    pub(crate) const fn bytes(self) -> u64 {
        self.zone * self.zones
    }
}

/// Which program uses the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// LevelDB's `db_bench`.
    Level,
    /// RocksDB's.
    Rocks,
}

/// A place that has been made, with a drive of its own; dropping it unmounts and removes
/// everything.
pub(crate) struct Made {
    place: Place,
    /// The folder of `zonal` and the libraries.
    built: PathBuf,
    folder: PathBuf,
    drive: PathBuf,
    point: PathBuf,
    /// Serves the mount.
    daemon: Option<u32>,
    is_mounted: bool,
}

/// Bytes that Furrow, or files on zonefs, wrote to their drive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Data of files.
    pub(crate) user: u64,
    /// All, with metadata and reclaim.
    pub(crate) all: u64,
}

impl Made {
    /// Makes a place with a new drive.
    pub(crate) fn new(place: Place, built: &Path, scratch: &Path, shape: Shape) -> Result<Self> {
        let folder = scratch.join("place");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let (drive, point) = (folder.join("drive"), folder.join("files"));
        fs::create_dir_all(&point).with_context(|| format!("making {}", point.display()))?;
        let mut made = Self {
            place,
            built: built.to_owned(),
            folder,
            drive,
            point,
            daemon: None,
            is_mounted: false,
        };
        made.prepare(shape)?;
        Ok(made)
    }

    fn prepare(&mut self, shape: Shape) -> Result<()> {
        match self.place {
            Place::Directly => {}
            Place::Ext4 => {
                let file = fs::File::create(&self.drive)?;
                file.set_len(shape.bytes())?;
                quietly(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&self.drive))?;
                let mut mount = Command::new("mount");
                quietly(mount.args(["-o", "loop"]).arg(&self.drive).arg(&self.point))?;
                self.is_mounted = true;
            }
            Place::Zonefs => {
                self.create(shape)?;
                quietly(self.zonal().arg("mkzonefs").arg(&self.drive))?;
            }
            Place::Plugin(_) => self.make_furrow(shape)?,
            Place::Mount(cache, hints) => {
                self.make_furrow(shape)?;
                let mut mount = self.zonal();
                mount.arg("--json").arg("--log").arg(self.folder.join("log")).arg("mount");
                if cache == Cache::Back {
                    mount.args(["-o", "writeback"]);
                }
                if hints == Hints::Ignored {
                    mount.args(["-o", "nolifetime"]);
                }
                let answer = quietly(mount.arg(&self.drive).arg(&self.point))?;
                self.is_mounted = true;
                let answer: Value = serde_json::from_str(&answer).context("zonal mount")?;
                let process = answer["pid"].as_u64().and_then(|id| u32::try_from(id).ok());
                self.daemon = Some(process.context("zonal mount names no process")?);
            }
        }
        Ok(())
    }

    /// A file of the kernel in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    fn zonal(&self) -> Command {
        Command::new(self.built.join("zonal"))
    }

    fn create(&self, shape: Shape) -> Result<()> {
        let mut create = self.zonal();
        create.arg("create").arg(&self.drive).args(["--profile", "zns", "--zone-size"]);
        create.arg(shape.zone.to_string()).args(["--zone-capacity", &shape.zone.to_string()]);
        quietly(create.args(["--zones", &shape.zones.to_string()]))?;
        Ok(())
    }

    fn make_furrow(&self, shape: Shape) -> Result<()> {
        self.create(shape)?;
        quietly(self.zonal().arg("mkfs").arg(&self.drive))?;
        Ok(())
    }

    /// `program`, with the options and libraries that make it use the place.
    pub(crate) fn command(&self, engine: Engine, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder);
        let library = |name: &str| self.built.join(name);
        let inside = match self.place {
            Place::Zonefs | Place::Plugin(_) => true,
            Place::Directly | Place::Ext4 | Place::Mount(..) => false,
        };
        match (engine, inside) {
            (_, false) => {
                // Hints of RocksDB before 9.3.1 reach no file system without it.
                command.env("LD_PRELOAD", library("libzonal_hint.so"));
                command.arg(format!("--db={}", self.point.join("kv").display()));
            }
            (Engine::Level, true) => {
                command.env("LD_PRELOAD", library("libzonal_leveldb.so"));
                command.env("ZONAL_LEVELDB", self.address()).arg("--db=/kv");
            }
            (Engine::Rocks, true) => {
                command.env("LD_PRELOAD", library("libzonal_rocksdb.so"));
                command.arg(format!("--fs_uri=zonal://{}", self.address())).arg("--db=/kv");
            }
        }
        command
    }

    fn address(&self) -> String {
        let is_ignored = self.place == Place::Plugin(Hints::Ignored);
        let hints = if is_ignored { "&lifetime=off" } else { "" };
        // Unsynced changes go to this folder, which is removed even if the program is killed.
        let (drive, memory) = (self.drive.display(), self.folder.display());
        format!("{drive}?counts={}&unsynced={memory}{hints}", self.counts_file().display())
    }

    fn counts_file(&self) -> PathBuf {
        self.folder.join("counts")
    }

    /// Runs a program to its end, and measures the processor time of the process that serves the
    /// mount meanwhile, where there is one.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        scratch: &Path,
    ) -> Result<(Ended, Option<Duration>)> {
        let before = self.daemon_cpu()?;
        let ended = child::run(command, scratch)?;
        let used = self.daemon_cpu()?.zip(before);
        Ok((ended, used.map(|(after, before)| after.saturating_sub(before))))
    }

    fn daemon_cpu(&self) -> Result<Option<Duration>> {
        self.daemon.map(child::cpu_of).transpose()
    }

    /// Whether a process of its own serves it.
    pub(crate) const fn is_served(&self) -> bool {
        self.daemon.is_some()
    }

    /// The bytes written since the mount, or in the last run of a program with a plugin.
    pub(crate) fn counts(&self) -> Result<Option<Counts>> {
        let (text, [user, metadata, reclaim]) = match self.place {
            Place::Directly | Place::Ext4 => return Ok(None),
            Place::Zonefs | Place::Plugin(_) => {
                let path = self.counts_file();
                let text = fs::read_to_string(&path);
                let text = text.with_context(|| format!("reading {}", path.display()))?;
                (text, ["user_bytes", "meta_bytes", "reclaim_bytes"])
            }
            Place::Mount(..) => {
                let text = quietly(self.zonal().args(["stats", "--json"]).arg(&self.point))?;
                (text, ["user_bytes", "meta_bytes", "reclaim_bytes"])
            }
        };
        let counted: Value = serde_json::from_str(&text).context("counts of the drive")?;
        let number = |name: &str| counted[name].as_u64().with_context(|| format!("no {name}"));
        let user = number(user)?;
        Ok(Some(Counts { user, all: user + number(metadata)? + number(reclaim)? }))
    }

    /// Bytes written to the device below ext4 so far, after all of them are written.
    pub(crate) fn device_bytes(&self) -> Result<Option<u64>> {
        if self.place != Place::Ext4 {
            return Ok(None);
        }
        quietly(Command::new("sync").arg("-f").arg(&self.point))?;
        let found = quietly(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.point))?;
        let name = Path::new(found.trim()).file_name().context("the mount has no device")?;
        let path = Path::new("/sys/block").join(name).join("stat");
        let stat =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        // Sectors written.
        let sectors = stat.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
        Ok(Some(sectors.with_context(|| format!("{} has no sectors", path.display()))? * 512))
    }

    /// Bytes of the store's files.
    pub(crate) fn store_bytes(&self) -> Result<u64> {
        match self.place {
            Place::Directly | Place::Ext4 | Place::Mount(..) => {
                let entries = fs::read_dir(self.point.join("kv"))?;
                entries.map(|entry| Ok(entry?.metadata()?.len())).sum()
            }
            Place::Plugin(_) | Place::Zonefs => {
                let place = format!("{}:/kv", self.drive.display());
                let text = quietly(self.zonal().args(["ls", "--json"]).arg(place))?;
                let list: Value = serde_json::from_str(&text).context("zonal ls")?;
                Ok(sizes(&list))
            }
        }
    }

    fn unmount(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let mut unmount = Command::new("umount");
        if self.daemon.is_some() {
            unmount = self.zonal();
            unmount.arg("umount");
        }
        quietly(unmount.arg(&self.point)).map(|_| ())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
            // A mount that stays would be worse.
            let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("removing {}: {error}", self.folder.display());
        }
    }
}

/// The sum of the sizes in a listing.
fn sizes(list: &Value) -> u64 {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["size_bytes"].as_u64()).sum()
}
