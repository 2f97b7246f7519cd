//! The kinds of file system that can be mounted: which one a device holds, and its own options.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use zonal::spec::Stack;
use zonal::{SystemClock, ZonedDevice, size};
use zonal_fs::furrow::stats::Traffic;
use zonal_fs::furrow::{self, Drives, Furrow};
use zonal_fs::options::Taken;
use zonal_fs::signature::{self, Content};
use zonal_fs::vfs::FileSystem;
use zonal_fs::zonefs::{self, ZoneFs};
use zonal_fuse::MountConfig;
use zonal_fuse::control::Control;
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::{KindOptions, Options, WriteCache};

use crate::args::FsKind;

/// The options that a mount of a kind has by default.
fn default_of(kind: FsKind) -> KindOptions {
    match kind {
        FsKind::Furrow => KindOptions::furrow(),
        FsKind::Zonefs => KindOptions::zonefs(),
    }
}

/// The kind of file system that an option belongs to; `None` if every kind has the option, or
/// none has it.
pub(super) fn owner(option: &str) -> Option<FsKind> {
    let kinds = [FsKind::Furrow, FsKind::Zonefs];
    kinds.into_iter().find(|kind| default_of(*kind).take(option) != Taken::No)
}

/// Applies an option, as mount(8) spells it.
pub(super) fn apply(options: &mut Options, option: &str) -> Result<()> {
    match (options.kind.take(option), owner(option)) {
        (Taken::Yes, _) => Ok(()),
        (Taken::No, None) => Ok(options.mount.apply(option)?),
        (Taken::No, Some(owner)) => {
            let (owner, kind) = (owner.name(), &options.mount.kind);
            bail!("mount option {option:?}: an option of {owner}, not of {kind}")
        }
        (Taken::Bad, _) => Err(bad(option)),
    }
}

/// The error of an option of a kind with a value that it cannot have.
fn bad(option: &str) -> anyhow::Error {
    let least = size::exact(furrow::MountOptions::MEMORY_MIN.get());
    let why = match option.split_once('=').map_or(option, |(name, _)| name) {
        "memory" => &format!("write a size, {least} or more"),
        "max_open_zones" => "write a number, 1 or more",
        "commit" => "write a number of seconds, from 1 to 3600",
        "errors" => "not a value that zonefs has",
        _ => "it has no value",
    };
    anyhow!("mount option {option:?}: {why}")
}

/// The default options of a new mount of `asked`, or else of the kind that the device holds.
pub(super) fn options(
    asked: Option<FsKind>,
    device: &dyn ZonedDevice,
    mount: MountConfig,
) -> Result<Options> {
    let kind = match asked {
        Some(kind) => kind,
        None => found(device)?,
    };
    let mount = MountConfig { kind: kind.name().to_owned(), ..mount };
    Ok(Options::new(mount, default_of(kind)))
}

fn found(device: &dyn ZonedDevice) -> Result<FsKind> {
    let found = signature::find(device).context("identifying what the device holds")?;
    match found.map(|found| found.kind) {
        Some(Content::Zonefs) => Ok(FsKind::Zonefs),
        // Furrow's error is the best one for a device without a signature.
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
    pub(super) fn mount(stack: &Stack, drives: Drives, options: &Options) -> Result<Self> {
        let MountConfig { access, atime, write_cache, .. } = options.mount;
        let clock = match write_cache {
            WriteCache::Through => SystemClock::new(),
            // The kernel sets some times too, by its coarse clock.
            WriteCache::Back => SystemClock::coarse(),
        };
        let (device, clock) = (Arc::clone(&stack.device), Arc::new(clock));
        Ok(match options.kind {
            KindOptions::Furrow(options) => {
                let options = furrow::MountOptions { access, atime, ..options };
                let fs = Furrow::mount(drives, clock, options)?;
                Self::Furrow(Arc::new(fs))
            }
            KindOptions::Zonefs(options) => {
                let options = zonefs::MountOptions { access, ..options };
                Self::Zonefs(Arc::new(ZoneFs::mount(device, clock, options)?))
            }
        })
    }

    /// Traffic since the mount; `None` for a file system that counts none.
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
    pub(super) fn controlled(
        &self,
        stack: &Stack,
        config: MountConfig,
        latencies: Arc<Latencies>,
    ) -> Arc<Control> {
        let clock = SystemClock::new();
        Arc::new(match self {
            Self::Furrow(fs) => Control::new(Arc::clone(fs), stack, config, latencies, &clock),
            Self::Zonefs(fs) => Control::new(Arc::clone(fs), stack, config, latencies, &clock),
        })
    }
}
