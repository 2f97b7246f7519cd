//! The kinds of file system that can be mounted: which one a device holds, and its own options.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use zonal::spec::Stack;
use zonal::{SystemClock, ZonedDevice, size};
use zonal_fs::furrow::stats::Traffic;
use zonal_fs::furrow::{self, Furrow};
use zonal_fs::options::Taken;
use zonal_fs::signature::{self, Content};
use zonal_fs::vfs::FileSystem;
use zonal_fs::zonefs::{self, ZoneFs};
use zonal_fuse::MountConfig;
use zonal_fuse::control::Control;
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::WriteCache;

use crate::args::FsKind;

/// Options that only one kind has.
pub(super) struct KindOptions {
    furrow: furrow::MountOptions,
    zonefs: zonefs::MountOptions,
    /// Of each kind one that no other may be given.
    own: Vec<(FsKind, String)>,
}

impl Default for KindOptions {
    fn default() -> Self {
        let commit_seconds = furrow::MountOptions::COMMIT_SECONDS_OF_MOUNT;
        let furrow = furrow::MountOptions { commit_seconds, ..Default::default() };
        Self { furrow, zonefs: zonefs::MountOptions::default(), own: Vec::new() }
    }
}

impl KindOptions {
    /// Takes what is known out of comma-separated options, and returns the others.
    pub(super) fn take(&mut self, options: &str) -> Result<String> {
        let mut others = Vec::new();
        for option in options.split(',') {
            let taken = [
                (FsKind::Furrow, self.furrow.take(option)),
                (FsKind::Zonefs, self.zonefs.take(option)),
            ];
            match taken.into_iter().find(|(_, taken)| *taken != Taken::No) {
                Some((kind, Taken::Yes)) => self.own.push((kind, option.to_owned())),
                Some((kind, Taken::Bad | Taken::No)) => return Err(bad(kind, option)),
                None => others.push(option),
            }
        }
        Ok(others.join(","))
    }

    /// Those that hold until the unmount, the last of each name.
    pub(super) fn lasting(&self) -> Vec<String> {
        let last = |name: &&str| {
            let is_it = |option: &&str| option.split_once('=').is_some_and(|(of, _)| of == *name);
            self.own.iter().map(|(_, option)| option.as_str()).rfind(is_it)
        };
        let names = ["memory", "max_open_zones", "commit"];
        names.iter().filter_map(last).map(ToOwned::to_owned).collect()
    }
}

/// An option of a kind has a value that it cannot have.
pub(super) fn bad(kind: FsKind, option: &str) -> anyhow::Error {
    let least = size::exact(furrow::MountOptions::MEMORY_MIN.get());
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    match (kind, name) {
        (FsKind::Furrow, "memory") => {
            anyhow!("mount option {option:?}: write a size, {least} or more")
        }
        (FsKind::Furrow, "max_open_zones") => {
            anyhow!("mount option {option:?}: write a number, 1 or more")
        }
        (FsKind::Furrow, "commit") => {
            anyhow!("mount option {option:?}: write a number of seconds, from 1 to 3600")
        }
        (FsKind::Furrow, _) => anyhow!("mount option {option:?}: it has no value"),
        (FsKind::Zonefs, _) => anyhow!("mount option {option:?}: not a value that zonefs has"),
    }
}

/// Which kind to mount: the one asked for, or the one that the device holds.
pub(super) fn decide(
    asked: Option<FsKind>,
    device: &dyn ZonedDevice,
    options: &KindOptions,
) -> Result<FsKind> {
    let kind = match asked {
        Some(kind) => kind,
        None => found(device)?,
    };
    match options.own.iter().find(|(owner, _)| *owner != kind) {
        Some((owner, option)) => {
            let (owner, kind) = (owner.name(), kind.name());
            bail!("mount option {option:?}: an option of {owner}, not of {kind}");
        }
        None => Ok(kind),
    }
}

fn found(device: &dyn ZonedDevice) -> Result<FsKind> {
    let found = signature::find(device).context("identifying what the device holds")?;
    match found.map(|found| found.kind) {
        Some(Content::Zonefs) => Ok(FsKind::Zonefs),
        // What Furrow says about a device without a signature is the best there is to say.
        Some(Content::Furrow) | None => Ok(FsKind::Furrow),
        Some(Content::Foreign(name)) => bail!("the device holds {name}, neither Furrow nor zonefs"),
    }
}

/// A file system of one of the kinds.
pub(super) enum Mounted {
    Furrow(Arc<Furrow>),
    Zonefs(Arc<ZoneFs>),
}

impl Mounted {
    pub(super) fn mount(
        kind: FsKind,
        stack: &Stack,
        config: &MountConfig,
        options: &KindOptions,
    ) -> Result<Self> {
        let clock = match config.write_cache {
            WriteCache::Through => SystemClock::new(),
            // The kernel gives some of the times.
            WriteCache::Back => SystemClock::coarse(),
        };
        let (device, clock) = (Arc::clone(&stack.device), Arc::new(clock));
        Ok(match kind {
            FsKind::Furrow => {
                let options = furrow::MountOptions {
                    access: config.access,
                    atime: config.atime,
                    ..options.furrow
                };
                let fs = Furrow::mount(device, clock, options)?;
                Self::Furrow(Arc::new(fs))
            }
            FsKind::Zonefs => {
                let options = zonefs::MountOptions { access: config.access, ..options.zonefs };
                Self::Zonefs(Arc::new(ZoneFs::mount(device, clock, options)?))
            }
        })
    }

    /// What has been written so far; `None` where nothing is counted.
    pub(super) fn counts(&self) -> Option<Traffic> {
        match self {
            Self::Furrow(fs) => Some(fs.live().since_mount),
            Self::Zonefs(_) => None,
        }
    }

    /// The file system.
    pub(super) fn fs(&self) -> Arc<dyn FileSystem> {
        match self {
            Self::Furrow(fs) => Arc::clone(fs) as _,
            Self::Zonefs(fs) => Arc::clone(fs) as _,
        }
    }

    /// The control directory of the file system.
    pub(super) fn controlled(&self, stack: &Stack, latencies: Arc<Latencies>) -> Arc<Control> {
        let clock = SystemClock::new();
        Arc::new(match self {
            Self::Furrow(fs) => Control::new(Arc::clone(fs), stack, latencies, &clock),
            Self::Zonefs(fs) => Control::new(Arc::clone(fs), stack, latencies, &clock),
        })
    }
}
