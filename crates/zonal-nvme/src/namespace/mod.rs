//! One namespace of a subsystem: a zoned device (`zoned.rs`), or an ordinary disk (`disk.rs`); and
//! the common part of both.

use std::sync::Arc;

use zerocopy::FromZeros;
use zonal::Disk;
use zonal::nvme::identify::{IdentifyCommon, IdentifyNamespace};
use zonal::nvme::{NvmeStatus, command_set};
use zonal::spec::Stack;

pub(crate) use self::access::{Access, Usage};
use self::disk::DiskNamespace;
pub(crate) use self::zoned::{FailedZones, ZonedNamespace};
use crate::command::TRANSFER_MAX;
use crate::error::Error;
use crate::extension::ExtensionSize;

mod access;
mod batch;
mod disk;
mod zoned;

/// NSATTR bit 0: write protected (Base, figure 280).
const WRITE_PROTECTED: u8 = 1;

/// A namespace.
pub struct Namespace {
    kind: Kind,
    uuid: [u8; 16],
}

/// The device or the disk that a namespace serves.
pub(crate) enum Kind {
    /// A zoned device, by the zoned command set.
    Zoned(Box<ZonedNamespace>),
    /// An ordinary disk, by the NVM command set.
    Disk(DiskNamespace),
}

impl Namespace {
    /// A zoned namespace of the device of `stack`, which errors call `name`; `uuid` identifies it
    /// for hosts.
    pub fn new(stack: Stack, name: &str, uuid: [u8; 16]) -> Result<Self, Error> {
        Ok(Self { kind: Kind::Zoned(Box::new(ZonedNamespace::new(stack, name)?)), uuid })
    }

    /// A namespace of the NVM command set: an ordinary disk.
    pub fn of_disk(disk: Arc<dyn Disk>, uuid: [u8; 16]) -> Self {
        Self { kind: Kind::Disk(DiskNamespace::new(disk)), uuid }
    }

    /// Adds zone descriptor extensions, which are kept while the namespace is served. A disk has
    /// none.
    #[must_use]
    pub fn with_extensions(self, size: ExtensionSize) -> Self {
        let kind = match self.kind {
            Kind::Zoned(zoned) => Kind::Zoned(Box::new(zoned.with_extensions(size))),
            Kind::Disk(disk) => Kind::Disk(disk),
        };
        Self { kind, ..self }
    }

    pub(crate) const fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The zoned device, if it is one.
    pub(crate) const fn zoned(&self) -> Option<&ZonedNamespace> {
        match &self.kind {
            Kind::Zoned(zoned) => Some(zoned),
            Kind::Disk(_) => None,
        }
    }

    /// CSI: by which command set hosts use it.
    pub(crate) const fn command_set(&self) -> u8 {
        match self.kind {
            Kind::Zoned(_) => command_set::ZNS,
            Kind::Disk(_) => command_set::NVM,
        }
    }

    pub(crate) const fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    pub(crate) const fn usage(&self) -> &Usage {
        match &self.kind {
            Kind::Zoned(zoned) => zoned.usage(),
            Kind::Disk(disk) => disk.usage(),
        }
    }

    /// NSZE: blocks.
    pub(crate) fn blocks(&self) -> u64 {
        match &self.kind {
            Kind::Zoned(zoned) => zoned.block_count().get(),
            Kind::Disk(disk) => disk.shape().blocks.get(),
        }
    }

    /// Bytes of the largest Write Zeroes.
    pub(crate) fn write_zeroes_max(&self) -> u64 {
        match &self.kind {
            Kind::Zoned(_) => TRANSFER_MAX as u64,
            Kind::Disk(disk) => disk.write_zeroes_max(),
        }
    }

    pub(crate) fn flush(&self) -> Result<(), NvmeStatus> {
        match &self.kind {
            Kind::Zoned(zoned) => zoned.flush(),
            Kind::Disk(disk) => disk.flush(),
        }
    }

    /// Counts errors that may mean that a zone has failed.
    pub(crate) fn failures(&self) -> u64 {
        self.zoned().map_or(0, ZonedNamespace::failures)
    }

    /// Zones that are ReadOnly or Offline.
    pub(crate) fn failed_zones(&self) -> Result<FailedZones, NvmeStatus> {
        self.zoned().map_or_else(|| Ok(FailedZones::new()), ZonedNamespace::failed_zones)
    }

    /// The Identify Namespace data structure of the NVM command set.
    pub(crate) fn identify(&self) -> IdentifyNamespace {
        let mut answer = match &self.kind {
            Kind::Zoned(zoned) => zoned.identify(),
            Kind::Disk(disk) => disk.identify(),
        };
        answer.sharing = 1;
        answer.attributes = self.attributes();
        answer.guid = self.uuid;
        answer
    }

    /// The Identify data structure that does not depend on the command set.
    pub(crate) fn identify_common(&self) -> IdentifyCommon {
        let mut answer = IdentifyCommon::new_zeroed();
        answer.sharing = 1;
        answer.attributes = self.attributes();
        answer.status = 1;
        answer
    }

    /// NSATTR.
    fn attributes(&self) -> u8 {
        match &self.kind {
            Kind::Disk(disk) if disk.shape().is_read_only => WRITE_PROTECTED,
            Kind::Disk(_) | Kind::Zoned(_) => 0,
        }
    }
}
