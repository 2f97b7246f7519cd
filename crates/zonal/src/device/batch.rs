//! Requests that a device is given together, by [`ZonedDevice::submit`].
//!
//! A drive works on many requests at once. A caller that knows several gives them in one batch, so
//! the time of all of them is about that of the longest. Each request carries its own result.
//!
//! ```
//! use zonal::{Io, Lba, MemoryDrive, Profile, ZoneId, ZonedDevice};
//! let drive = MemoryDrive::new(Profile::Small.geometry())?;
//! let (data, mut unwritten) = ([1; 4096], [7; 4096]);
//! let append = Io::append(ZoneId::new(3), &data);
//! let mut batch = [append, Io::flush(), Io::read(Lba::ZERO, &mut unwritten)];
//! drive.submit(&mut batch);
//! let [appended, ..] = batch;
//! assert_eq!(appended.outcome()?, drive.geometry().zone_start(ZoneId::new(3)));
//! assert_eq!(unwritten, [0; 4096]);
//! # Ok::<(), zonal::DeviceError>(())
//! ```

use super::ZonedDevice;
use crate::error::Result;
use crate::{Lba, ZoneId};

/// A request; the calls of [`ZonedDevice`] of the same names have the details.
#[derive(Debug)]
pub enum Op<'a> {
    /// Reads whole blocks from `lba` on.
    Read {
        /// First block.
        lba: Lba,
        /// Where to put them.
        buffer: &'a mut [u8],
    },
    /// Writes whole blocks at `lba`.
    Write {
        /// First block.
        lba: Lba,
        /// The data.
        data: &'a [u8],
    },
    /// Writes whole blocks at the zone's write pointer.
    Append {
        /// The zone.
        zone: ZoneId,
        /// The data.
        data: &'a [u8],
    },
    /// Makes durable the changes of the requests before it in the batch, and of all calls that
    /// returned before the batch.
    Flush,
}

impl Op<'_> {
    /// Bytes that it moves.
    pub const fn len(&self) -> usize {
        match self {
            Self::Read { buffer, .. } => buffer.len(),
            Self::Write { data, .. } | Self::Append { data, .. } => data.len(),
            Self::Flush => 0,
        }
    }

    /// Whether it moves no data.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same request, for a shorter time.
    pub const fn reborrow(&mut self) -> Op<'_> {
        match self {
            Op::Read { lba, buffer } => Op::Read { lba: *lba, buffer },
            Op::Write { lba, data } => Op::Write { lba: *lba, data },
            Op::Append { zone, data } => Op::Append { zone: *zone, data },
            Op::Flush => Op::Flush,
        }
    }

    /// Gives its place the numbers of another layer.
    pub(crate) fn renumber(
        &mut self,
        zone_of: impl FnOnce(ZoneId) -> ZoneId,
        lba_of: impl FnOnce(Lba) -> Lba,
    ) {
        match self {
            Self::Read { lba, .. } | Self::Write { lba, .. } => *lba = lba_of(*lba),
            Self::Append { zone, .. } => *zone = zone_of(*zone),
            Self::Flush => {}
        }
    }

    /// Performs it by a single call. Returns where its data is, block 0 for a flush.
    pub fn perform<D: ZonedDevice + ?Sized>(&mut self, device: &D) -> Result<Lba> {
        match self {
            Self::Read { lba, buffer } => device.read(*lba, buffer).map(|()| *lba),
            Self::Write { lba, data } => device.write(*lba, data).map(|()| *lba),
            Self::Append { zone, data } => device.append(*zone, data),
            Self::Flush => device.flush().map(|()| Lba::ZERO),
        }
    }
}

/// A request of a batch.
#[derive(Debug)]
pub struct Io<'a> {
    /// The request.
    pub op: Op<'a>,
    /// Its result, once [`ZonedDevice::submit`] has returned: where its data is.
    pub result: Option<Result<Lba>>,
}

impl<'a> Io<'a> {
    /// A request that has not been submitted.
    pub const fn new(op: Op<'a>) -> Self {
        Self { op, result: None }
    }

    /// A read.
    pub const fn read(lba: Lba, buffer: &'a mut [u8]) -> Self {
        Self::new(Op::Read { lba, buffer })
    }

    /// A write.
    pub const fn write(lba: Lba, data: &'a [u8]) -> Self {
        Self::new(Op::Write { lba, data })
    }

    /// An append.
    pub const fn append(zone: ZoneId, data: &'a [u8]) -> Self {
        Self::new(Op::Append { zone, data })
    }

    /// A flush.
    pub const fn flush() -> Self {
        Self::new(Op::Flush)
    }

    /// Performs it by a single call.
    pub fn perform<D: ZonedDevice + ?Sized>(&mut self, device: &D) {
        self.result = Some(self.op.perform(device));
    }

    /// How it ended.
    ///
    /// # Panics
    /// If it was not submitted.
    pub fn outcome(self) -> Result<Lba> {
        self.result.expect("it was submitted, and a device leaves no request without a result")
    }
}

/// The part of a batch that a layer passes on, and where the results belong.
#[derive(Default)]
pub(crate) struct Part<'a, 'b> {
    ios: Vec<Io<'a>>,
    results: Vec<&'b mut Option<Result<Lba>>>,
}

impl<'a, 'b> Part<'a, 'b> {
    /// Adds a request and the place of its result.
    pub(crate) fn push(&mut self, op: Op<'a>, result: &'b mut Option<Result<Lba>>) {
        self.ios.push(Io::new(op));
        self.results.push(result);
    }

    /// Submits the part to `device`.
    pub(crate) fn submit<D: ZonedDevice + ?Sized>(mut self, device: &D) {
        if !self.ios.is_empty() {
            device.submit(&mut self.ios);
        }
        for (io, result) in self.ios.into_iter().zip(self.results) {
            *result = io.result;
        }
    }
}
