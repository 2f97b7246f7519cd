//! Opening a device, and mounting the file system that it holds.

use std::sync::Arc;

use zonal::spec::{Openers, Stack};
use zonal::{Clock, OpenMode};
use zonal_fs::furrow::stats::Traffic;
use zonal_fs::furrow::{self, AtimePolicy, Furrow, MkfsOptions, MountOptions};
use zonal_fs::signature::{self, Content};
use zonal_fs::vfs::{Access, Caller, FileSystem};
use zonal_fs::volume::VolumeOptions;
use zonal_fs::zonefs;

use crate::uri::{Address, Blank, Hints};
use crate::zones::ZoneStore;
use crate::{Error, Result};

pub(crate) fn open_device(spec: &str, clock: &Arc<dyn Clock>) -> Result<Stack> {
    let openers = Openers::builtin()
        .with_schemes(&[zonal_sim::SCHEME])
        .with_schemes(&zonal_linux::SCHEMES)
        .with_paths(zonal_linux::open);
    openers
        .open(spec, OpenMode::ReadWrite, Arc::clone(clock))
        .map_err(|source| Error::Open { device: spec.to_owned(), source })
}

/// The file system that a device holds.
#[derive(Clone)]
pub(crate) enum Files {
    Furrow(Arc<Furrow>),
    Zones(Arc<ZoneStore>),
}

impl Files {
    pub(crate) fn fs(&self) -> &dyn FileSystem {
        match self {
            Self::Furrow(furrow) => &**furrow,
            Self::Zones(zones) => &**zones,
        }
    }

    pub(crate) fn into_fs(self) -> Arc<dyn FileSystem> {
        match self {
            Self::Furrow(furrow) => furrow,
            Self::Zones(zones) => zones,
        }
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        match self {
            Self::Furrow(furrow) => furrow.uuid(),
            Self::Zones(zones) => zones.uuid(),
        }
    }

    /// When the file system was made, nanoseconds since 1970.
    pub(crate) fn created_ns(&self) -> zonal_fs::vfs::Result<i64> {
        Ok(self.fs().getattr(self.fs().root())?.btime.as_ns())
    }

    /// Bytes written to the device since it was opened.
    pub(crate) fn traffic(&self) -> Traffic {
        match self {
            Self::Furrow(furrow) => furrow.live().since_mount,
            Self::Zones(zones) => zones.traffic(),
        }
    }

    /// Commits since the file system was made.
    pub(crate) fn commits(&self) -> u64 {
        match self {
            Self::Furrow(furrow) => furrow.stats().batches,
            Self::Zones(zones) => zones.commits(),
        }
    }
}

pub(crate) fn mount_files(
    stack: &Stack,
    clock: &Arc<dyn Clock>,
    address: &Address,
) -> zonal_fs::vfs::Result<Files> {
    let device = || Arc::clone(&stack.device);
    let uuid = uuid::Uuid::new_v4().into_bytes();
    let found = signature::find(&*stack.device)?.map(|found| found.kind);
    let is_zonefs = match (&found, address.blank) {
        (Some(Content::Zonefs), _) => true,
        (None, Blank::Zonefs) => {
            let options = zonefs::MkfsOptions { uuid, ..zonefs::MkfsOptions::default() };
            zonefs::mkfs(&*stack.device, &options, &mut |_| ())?;
            true
        }
        (None, Blank::Furrow) => {
            let options = MkfsOptions { uuid, ..MkfsOptions::default() };
            furrow::mkfs(device(), &**clock, &options, &mut |_| ())?;
            false
        }
        // Furrow's error describes the content best.
        (None, Blank::Refuse) | (Some(Content::Furrow | Content::Foreign(_)), _) => false,
    };
    if is_zonefs {
        let zones = ZoneStore::mount(device(), Arc::clone(clock), Access::ReadWrite)?;
        return Ok(Files::Zones(Arc::new(zones)));
    }
    let options = MountOptions {
        atime: AtimePolicy::Never,
        memory: address.memory,
        follows_hints: address.hints == Hints::Follow,
        ..MountOptions::default()
    };
    Ok(Files::Furrow(Arc::new(Furrow::mount(device(), Arc::clone(clock), options)?)))
}

pub(crate) fn volume_options() -> VolumeOptions {
    VolumeOptions {
        caller: Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: 0o022,
            ..Caller::ROOT
        },
        ..VolumeOptions::default()
    }
}
