//! Reads, writes, appends and flushes that have arrived together: the device gets them as one
//! batch.
//!
//! Each has its own piece of the thread's memory. The thread copies data to write from the driver
//! before, and data that it has read to the driver afterwards. It answers requests when they are
//! done: requests without a need for a flush first, the others after one flush for all of them.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use io_uring::IoUring;
use rustix::io::Errno;
use zonal::aligned::ALIGNMENT;
use zonal::nvme::decode::Durability;
use zonal::{AlignedBytes, Io, Op};

use super::abi::{self, Descriptor, SECTOR_SHIFT, op};
use super::export::errno;
use super::queue::At;
use super::zoned::ZonedWork;

/// Most bytes of data of a batch: more than one request has.
const DATA_MAX: usize = 4 * abi::IO_BYTES_MAX as usize;

/// A request of a batch.
#[derive(Debug)]
struct Member {
    tag: u16,
    durability: Durability,
    /// Which request of the device it is; `None` for a flush.
    number: Result<Option<usize>, Errno>,
}

/// Bytes of data of a request; an error if there are too many.
pub(super) fn data_bytes(request: Descriptor) -> Result<usize, Errno> {
    match (request.operation(), (request.count as usize) << SECTOR_SHIFT) {
        (op::FLUSH, _) => Ok(0),
        (_, bytes) if bytes > abi::IO_BYTES_MAX as usize => Err(Errno::INVAL),
        (_, bytes) => Ok(bytes),
    }
}

/// Bytes of memory for the data of a request.
fn memory_bytes(request: Descriptor) -> usize {
    data_bytes(request).unwrap_or(0).next_multiple_of(ALIGNMENT)
}

fn durability(request: Descriptor) -> Durability {
    match request.operation() {
        op::FLUSH => Durability::Durable,
        op::WRITE | op::ZONE_APPEND if request.op_flags & abi::FUA != 0 => Durability::Durable,
        _ => Durability::Volatile,
    }
}

impl ZonedWork<'_> {
    /// Whether a request is performed together with others.
    fn joins_others(&self, request: Descriptor) -> bool {
        match request.operation() {
            op::READ => !self.is_at_end(request),
            op::WRITE | op::ZONE_APPEND | op::FLUSH => true,
            _ => false,
        }
    }

    /// How many of the arrived requests form one batch: the first ones that join others, as far as
    /// there may be memory for their data. 0 if the first is performed alone.
    pub(super) fn batch_len(&self, tags: &[u16]) -> usize {
        let mut bytes = 0;
        let fits = |tag: &&u16| {
            let request = self.worker.descriptors.get(**tag);
            bytes += memory_bytes(request);
            self.joins_others(request) && bytes <= DATA_MAX
        };
        tags.iter().take_while(fits).count()
    }

    /// Serves requests together, and answers them.
    pub(super) fn serve_batch(
        &self,
        ring: &mut IoUring,
        tags: &[u16],
        memory: &mut AlignedBytes,
    ) -> io::Result<()> {
        let needed = tags.iter().map(|&tag| memory_bytes(self.worker.descriptors.get(tag))).sum();
        if memory.len() < needed {
            *memory = AlignedBytes::zeroed(needed.next_power_of_two());
        }
        let (members, mut ios) = self.prepare(tags, memory);
        // A panic in a device must not leave programs waiting forever.
        let performed = AssertUnwindSafe(|| self.export.submit(&mut ios));
        if catch_unwind(performed).is_err() {
            tracing::error!(?members, "serving these requests panicked");
        }
        let answer = |ring: &mut IoUring, member: &Member, flushed: Result<(), Errno>| {
            let done = member.number.and_then(|number| match number {
                Some(number) => self.finish(member.tag, &ios[number]),
                None => Ok(At::bytes(0)),
            });
            self.worker.push_answer(ring, member.tag, done.and_then(|at| flushed.map(|()| at)));
        };
        let is_durable = |member: &&Member| member.durability == Durability::Durable;
        for member in members.iter().filter(|member| !is_durable(member)) {
            answer(ring, member, Ok(()));
        }
        if members.iter().any(|member| is_durable(&member)) {
            ring.submit()?;
            let flushed = self.worker.guarded(|| self.export.flush());
            for member in members.iter().filter(is_durable) {
                answer(ring, member, flushed);
            }
        }
        Ok(())
    }

    /// Makes requests of the device from the kernel's requests, with the data to write.
    fn prepare<'m>(&self, tags: &[u16], memory: &'m mut [u8]) -> (Vec<Member>, Vec<Io<'m>>) {
        let (mut members, mut ios) = (Vec::with_capacity(tags.len()), Vec::new());
        let mut rest = memory;
        for &tag in tags {
            let request = self.worker.descriptors.get(tag);
            let (place, left) = mem::take(&mut rest).split_at_mut(memory_bytes(request));
            rest = left;
            let io = data_bytes(request)
                .and_then(|bytes| self.request(tag, request, &mut place[..bytes]));
            let number = io.map(|io| {
                io.map(|io| {
                    ios.push(io);
                    ios.len() - 1
                })
            });
            members.push(Member { tag, durability: durability(request), number });
        }
        (members, ios)
    }

    /// Makes a request of the device from one of the kernel; `None` for a flush, which comes when
    /// the others are done.
    fn request<'m>(
        &self,
        tag: u16,
        request: Descriptor,
        data: &'m mut [u8],
    ) -> Result<Option<Io<'m>>, Errno> {
        Ok(match request.operation() {
            op::READ => Some(Io::read(self.lba(request.sector)?, data)),
            // The device itself refuses a write that begins before its end and reaches beyond it.
            op::WRITE if self.lba(request.sector)? >= self.device_end() => return Err(Errno::IO),
            op::WRITE => {
                let lba = self.lba(request.sector)?;
                self.worker.take(tag, data)?;
                Some(Io::write(lba, data))
            }
            op::ZONE_APPEND => {
                let zone = self.zone(request.sector)?;
                self.worker.take(tag, data)?;
                Some(Io::append(zone, data))
            }
            _ => None,
        })
    }

    /// How a request has ended.
    fn finish(&self, tag: u16, io: &Io<'_>) -> Result<At, Errno> {
        let at = match &io.result {
            Some(Ok(at)) => *at,
            Some(Err(error)) => return Err(errno(error)),
            None => return Err(Errno::IO),
        };
        match &io.op {
            Op::Read { buffer, .. } => self.worker.give(tag, buffer)?,
            Op::Append { data, .. } => {
                return Ok(At { bytes: data.len(), sector: at.get() << self.block_shift() });
            }
            Op::Write { .. } | Op::Flush => {}
        }
        Ok(At::bytes(io.op.len()))
    }
}
