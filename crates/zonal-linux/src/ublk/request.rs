//! What the kernel asks of a device, and what it is answered.

use rustix::io::Errno;
use zonal::{Lba, Select, Zone, ZoneAction, ZoneId};

pub(super) use zonal::nvme::decode::Durability;

/// A request of the kernel. Buffers are whole blocks.
#[derive(Debug)]
pub enum Request<'a> {
    /// Read from `lba` on.
    Read {
        /// First block.
        lba: Lba,
        /// Where to put them.
        buffer: &'a mut [u8],
    },
    /// Write at `lba`.
    Write {
        /// First block.
        lba: Lba,
        /// What to write.
        data: &'a [u8],
        /// When it is durable.
        durability: Durability,
    },
    /// Write at the zone's write pointer; the reply is [`Reply::At`].
    Append {
        /// The zone.
        zone: ZoneId,
        /// What to write.
        data: &'a [u8],
        /// When it is durable.
        durability: Durability,
    },
    /// Change the condition of one zone or of all.
    Manage {
        /// Which.
        zones: Select,
        /// What to do.
        action: ZoneAction,
    },
    /// Make durable what was answered before.
    Flush,
    /// Report zones.
    Report {
        /// First zone.
        first: ZoneId,
        /// How many.
        limit: usize,
        /// Where to put them.
        zones: &'a mut Vec<Zone>,
    },
}

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Done,
    /// An append went here.
    At(Lba),
}

/// Who serves the requests. Called from several threads at once.
pub trait Target: Send + Sync {
    /// Serves one request. It may take its time: other threads serve others meanwhile. What the kernel
    /// does with an errno: `blk_errors[]` in `block/blk-core.c`.
    fn serve(&self, request: Request<'_>) -> Result<Reply, Errno>;
}
