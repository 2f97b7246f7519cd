//! Reads, writes and appends of a zoned namespace side by side.

use zonal::nvme::NvmeStatus;
use zonal::nvme::decode::Durability;
use zonal::{Io, Lba, Op};

use super::access::Access;
use super::zoned::ZonedNamespace;

/// The part of an access that remains once it is a request of the device.
#[derive(Clone, Copy)]
struct Asked {
    kind: Kind,
    bytes: usize,
    durability: Durability,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Append,
}

impl ZonedNamespace {
    /// Performs planned accesses and returns the result of each command. One flush makes all
    /// durable ones durable, and they complete after it.
    pub(crate) fn submit<'a>(
        &self,
        accesses: impl Iterator<Item = (Lba, Access<'a>)>,
    ) -> Vec<Result<u64, NvmeStatus>> {
        let (asked, mut batch): (Vec<Asked>, Vec<Io<'a>>) =
            accesses.map(|(first, access)| self.request(first, access)).unzip();
        let is_durable = |asked: &Asked| asked.durability == Durability::Durable;
        if asked.iter().any(is_durable) {
            batch.push(Io::flush());
        }
        self.device().submit(&mut batch);
        let flushed = match batch.pop_if(|last| matches!(last.op, Op::Flush)).map(Io::outcome) {
            Some(Err(error)) => Err(self.failed(error)),
            Some(Ok(_)) | None => Ok(()),
        };
        let ends = asked.into_iter().zip(batch);
        ends.map(|(asked, io)| {
            let end = self.end(asked, io);
            if is_durable(&asked) { end.and_then(|at| flushed.map(|()| at)) } else { end }
        })
        .collect()
    }

    fn request<'a>(&self, first: Lba, access: Access<'a>) -> (Asked, Io<'a>) {
        let (kind, bytes, durability, io) = match access {
            Access::Read(buffer) => {
                let bytes = buffer.len();
                (
                    Kind::Read,
                    bytes,
                    Durability::Volatile,
                    Io::read(first, self.there(first, buffer)),
                )
            }
            Access::Write(data, durability) => {
                (Kind::Write, data.len(), durability, Io::write(first, data))
            }
            Access::Append(data, durability) => {
                let zone = self.zone_at(first).expect("the plan says that a zone starts there");
                (Kind::Append, data.len(), durability, Io::append(zone, data))
            }
        };
        (Asked { kind, bytes, durability }, io)
    }

    /// The part of a buffer that the device fills. The rest is the gap of a smaller last zone.
    fn there<'a>(&self, first: Lba, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let end = Lba::ZERO + self.geometry().block_count();
        let there = if first < end { self.geometry().bytes(end - first).get() } else { 0 };
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(buffer.len());
        let (buffer, gap) = buffer.split_at_mut(there);
        gap.fill(0);
        buffer
    }

    fn end(&self, asked: Asked, io: Io<'_>) -> Result<u64, NvmeStatus> {
        match (asked.kind, io.outcome()) {
            (Kind::Read, Ok(_)) => {
                self.usage().read(asked.bytes);
                Ok(0)
            }
            (Kind::Write, Ok(_)) => {
                self.usage().written(asked.bytes);
                Ok(0)
            }
            (Kind::Append, Ok(at)) => {
                self.usage().written(asked.bytes);
                Ok(at.get())
            }
            (Kind::Write, Err(error)) => Err(self.failed_write(error)),
            (Kind::Read | Kind::Append, Err(error)) => Err(self.failed(error)),
        }
    }
}
