//! What the kernel requests of a device, and the replies.

use rustix::io::Errno;
use zonal::{Lba, Select, Zone, ZoneAction, ZoneId};

pub(super) use zonal::nvme::decode::Durability;

/// A request of the kernel. Buffers are whole blocks.
#[derive(Debug)]
pub(super) enum Request<'a> {
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
    /// Make durable what was completed before.
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

/// How a request completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is done.
    Done,
    /// An append went here.
    At(Lba),
}

/// Serves the requests. Called from several threads at once.
pub(super) trait Target: Send + Sync {
    /// Serves one request, while other threads serve others. `blk_errors[]` in `block/blk-core.c` is
    /// how the kernel maps an errno.
    fn serve(&self, request: Request<'_>) -> Result<Reply, Errno>;
}
