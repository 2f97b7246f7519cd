//! The one trait that every drive and every layer implements.
//!
//! Calls block, take `&self` and may come from any thread. A layer wraps a device and is a device:
//! nothing here knows how many layers lie below.

use std::ops::Deref;
use std::sync::Arc;

use self::batch::Io;
use self::virtual_queue::VirtualQueue;
use crate::error::Result;
use crate::identity::Identity;
use crate::{Claim, Geometry, Lba, LbaCount, Zone, ZoneAction, ZoneId};

pub mod batch;
pub mod virtual_queue;

/// Which zones an action is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// One zone.
    One(ZoneId),
    /// Every zone for which the action makes sense (NVMe "Select All"): open takes Closed zones,
    /// close takes open ones, finish takes active ones, reset takes active and Full ones.
    All,
}

/// A zoned device.
///
/// - D1: every writable zone has `start ≤ wp ≤ start + capacity ≤ start + size`.
/// - D2: open ≤ max open, active ≤ max active, open ⊆ active.
/// - D3: bytes below the write pointer never change until a reset.
/// - D4: after a power cut each sequential zone holds a prefix of its written data, at least up to
///   the last [`flush`](Self::flush) that returned.
///
/// Buffers are whole blocks. Reads may cross zones; blocks that were never written read as zeroes.
/// The device chooses the data that [deallocated](Self::deallocate) blocks read as.
pub trait ZonedDevice: Send + Sync {
    /// The fixed shape of the device.
    fn geometry(&self) -> &Geometry;

    /// Appends up to `limit` zones to `zones`, from `first` on: fewer only at the device's end.
    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()>;

    /// Reads whole blocks from `lba` on.
    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()>;

    /// Writes whole blocks at `lba`: the write pointer of its zone, or anywhere in a conventional
    /// zone.
    fn write(&self, lba: Lba, data: &[u8]) -> Result<()>;

    /// Writes whole blocks at the zone's write pointer, wherever it is, and returns where they
    /// went. At most [`Geometry::max_append`] blocks. No blocks go to the write pointer, or to the
    /// start of a zone that has none.
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba>;

    /// Changes the condition of one zone or of all.
    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()>;

    /// Makes everything that returned before this call survive a power cut: data, write pointers,
    /// conditions.
    fn flush(&self) -> Result<()>;

    /// Says that the data of blocks is not needed any more (TRIM, UNMAP, Dataset Management), so
    /// that the device may use their place. They lie in one conventional zone: a sequential one is
    /// emptied by a reset.
    ///
    /// This is a hint, and a device may ignore it. Until such a block is written again, its content
    /// is undefined: an emulated drive returns zeroes, or the old content if the host cannot punch
    /// holes; a real one may return any bytes. After a power cut, blocks for which no flush
    /// followed may have their old content.
    ///
    /// By default the device checks the range and does nothing else.
    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.geometry().locate_conventional(lba, blocks).map(drop)
    }

    /// Sets space aside for [`use_reserve`](Self::use_reserve), where the device lies in a sparse
    /// file of a host that others can fill. [`NoSpace`](crate::DeviceError::NoSpace) as long as the
    /// host has no more space than that.
    ///
    /// By default the device has all its space and needs no reserve.
    fn keep_reserve(&self) -> Result<()> {
        Ok(())
    }

    /// Gives the reserve back to the host. A file system calls it when the host refuses a write of
    /// metadata by [`NoSpace`](crate::DeviceError::NoSpace), and tries that write again: so it can
    /// delete files and reset zones on a full host. It writes no new data until
    /// [`keep_reserve`](Self::keep_reserve) succeeds again.
    fn use_reserve(&self) -> Result<()> {
        Ok(())
    }

    /// The identity that the device reports. It stays the same over restarts, and under layers.
    fn identity(&self) -> Identity {
        Identity::default()
    }

    /// Whether the medium turns: moving the head to another place costs milliseconds. A layer
    /// passes it on.
    fn rotates(&self) -> bool {
        false
    }

    /// The claim by which this process holds the device, if it is a block device of the kernel and
    /// is held. A layer does not pass it on: the kernel knows only the device below.
    fn claim(&self) -> Option<&Claim> {
        None
    }

    /// The queue of a device in virtual time, by which a program keeps requests in flight. A layer
    /// does not pass it on: its own times differ from the times of the device below.
    fn virtual_queue(&self) -> Option<&dyn VirtualQueue> {
        None
    }

    /// Performs a batch of requests, side by side as far as the device can, and gives each its
    /// result.
    ///
    /// A request that fails stops no other. Writes to one zone are done in the order of the batch;
    /// the results of appends say where they went, and other requests have no order. So a read may
    /// return the old or the new content of blocks that the same batch writes. A flush waits for
    /// all requests before it in the batch, and the requests after it wait for the flush.
    ///
    /// By default the device performs the requests one after the other.
    fn submit(&self, batch: &mut [Io<'_>]) {
        for io in batch {
            io.perform(self);
        }
    }

    /// Reports one zone.
    fn zone(&self, zone: ZoneId) -> Result<Zone> {
        let mut zones = Vec::with_capacity(1);
        self.report(zone, &mut zones, 1)?;
        zones.pop().ok_or(crate::DeviceError::NoSuchZone { zone })
    }

    /// Reports every zone.
    fn report_all(&self) -> Result<Vec<Zone>> {
        let count = self.geometry().zone_count() as usize;
        let mut zones = Vec::with_capacity(count);
        self.report(ZoneId::ZERO, &mut zones, count)?;
        Ok(zones)
    }
}

/// Methods of [`ZonedDevice`] that pass the call on, inside of an `impl`: to a field, or to the
/// target of `deref()`. A layer names the methods to which it adds nothing.
///
/// ```
/// use zonal::{MemoryDrive, ZonedDevice};
/// /// A drive that cannot be flushed.
/// struct Careless {
///     below: MemoryDrive,
/// }
/// impl ZonedDevice for Careless {
///     zonal::pass_on!(below: geometry, report, read, write, append, manage);
///     zonal::pass_on!(below: deallocate, identity, rotates, submit);
///     fn flush(&self) -> zonal::error::Result<()> {
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! pass_on {
    ($field:tt: $($method:ident),+) => {
        $($crate::pass_on! { @$method $field })+
    };
    (deref(): $($method:ident),+) => {
        $($crate::pass_on! { @$method deref() })+
    };
    (@geometry $($to:tt)+) => {
        fn geometry(&self) -> &$crate::Geometry {
            self.$($to)+.geometry()
        }
    };
    (@report $($to:tt)+) => {
        fn report(
            &self,
            first: $crate::ZoneId,
            zones: &mut Vec<$crate::Zone>,
            limit: usize,
        ) -> $crate::error::Result<()> {
            self.$($to)+.report(first, zones, limit)
        }
    };
    (@read $($to:tt)+) => {
        fn read(&self, lba: $crate::Lba, buffer: &mut [u8]) -> $crate::error::Result<()> {
            self.$($to)+.read(lba, buffer)
        }
    };
    (@write $($to:tt)+) => {
        fn write(&self, lba: $crate::Lba, data: &[u8]) -> $crate::error::Result<()> {
            self.$($to)+.write(lba, data)
        }
    };
    (@append $($to:tt)+) => {
        fn append(&self, zone: $crate::ZoneId, data: &[u8]) -> $crate::error::Result<$crate::Lba> {
            self.$($to)+.append(zone, data)
        }
    };
    (@manage $($to:tt)+) => {
        fn manage(
            &self,
            zones: $crate::Select,
            action: $crate::ZoneAction,
        ) -> $crate::error::Result<()> {
            self.$($to)+.manage(zones, action)
        }
    };
    (@flush $($to:tt)+) => {
        fn flush(&self) -> $crate::error::Result<()> {
            self.$($to)+.flush()
        }
    };
    (@deallocate $($to:tt)+) => {
        fn deallocate(
            &self,
            lba: $crate::Lba,
            blocks: $crate::LbaCount,
        ) -> $crate::error::Result<()> {
            self.$($to)+.deallocate(lba, blocks)
        }
    };
    (@identity $($to:tt)+) => {
        fn identity(&self) -> $crate::Identity {
            self.$($to)+.identity()
        }
    };
    (@rotates $($to:tt)+) => {
        fn rotates(&self) -> bool {
            self.$($to)+.rotates()
        }
    };
    (@keep_reserve $($to:tt)+) => {
        fn keep_reserve(&self) -> $crate::error::Result<()> {
            self.$($to)+.keep_reserve()
        }
    };
    (@use_reserve $($to:tt)+) => {
        fn use_reserve(&self) -> $crate::error::Result<()> {
            self.$($to)+.use_reserve()
        }
    };
    (@claim $($to:tt)+) => {
        fn claim(&self) -> Option<&$crate::Claim> {
            self.$($to)+.claim()
        }
    };
    (@virtual_queue $($to:tt)+) => {
        fn virtual_queue(&self) -> Option<&dyn $crate::VirtualQueue> {
            self.$($to)+.virtual_queue()
        }
    };
    (@submit $($to:tt)+) => {
        fn submit(&self, batch: &mut [$crate::Io<'_>]) {
            self.$($to)+.submit(batch);
        }
    };
}

/// A shared device is a device.
impl<D: ZonedDevice + ?Sized> ZonedDevice for Arc<D> {
    crate::pass_on!(
        deref(): geometry, report, read, write, append, manage, flush, deallocate, identity, rotates,
        submit, claim, virtual_queue, keep_reserve, use_reserve
    );
}
