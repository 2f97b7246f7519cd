//! An ordinary disk as a namespace of the NVM command set: its Identify data structure, and its
//! commands.
//!
//! A host reads the promises of a [`Disk`] in its Identify data: deallocated blocks read as zeroes,
//! a physical unit is old or new as a whole after a power cut, and so is a write within the atomic
//! size. Other hosts see such a write at once as well.

use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros};
use zonal::disk::{self, Disk, DiskError, DiskShape, ZeroedSpace};
use zonal::nvme::decode::{BlockRange, DatasetManagement, DatasetRange, Deallocate, Durability};
use zonal::nvme::identify::{BlockFormat, IdentifyNamespace};
use zonal::nvme::{NvmeStatus, Opcode, SubmissionEntry, status};
use zonal::{Lba, LbaCount};

use super::access::{Access, Usage};
use crate::command::{DONE, Executed, Payload, Plan, TRANSFER_MAX};

/// NSFEAT bit 1: NAWUN, NAWUPF and NACWU are the atomic sizes (NVM, figure 97).
const ATOMIC_SIZES: u8 = 1 << 1;
/// NSFEAT bit 4: NPWG, NPWA, NPDG, NPDA and NOWS are the preferred sizes (NVM, figure 97).
const PREFERRED_SIZES: u8 = 1 << 4;
/// DLFEAT: deallocated blocks read as zeroes (bits 2:0 are 001b), and Write Zeroes can deallocate
/// (bit 3; NVM, figure 97).
const DEALLOCATED_IS_ZERO: u8 = 0b001 | 1 << 3;

/// A disk that is served as a namespace.
pub(crate) struct DiskNamespace {
    disk: Arc<dyn Disk>,
    usage: Usage,
}

impl DiskNamespace {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, usage: Usage::default() }
    }

    pub(crate) fn shape(&self) -> DiskShape {
        self.disk.shape()
    }

    pub(crate) const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Bytes of the largest Write Zeroes: as many blocks as the command can name.
    pub(crate) fn write_zeroes_max(&self) -> u64 {
        BlockRange::BLOCKS_MAX.get() << self.shape().block_size.shift()
    }

    pub(crate) fn flush(&self) -> Result<(), NvmeStatus> {
        self.disk.flush().map_err(failed)
    }

    /// The Identify Namespace data structure, apart from the fields that all namespaces have.
    pub(crate) fn identify(&self) -> IdentifyNamespace {
        let shape = self.shape();
        let mut answer = IdentifyNamespace::new_zeroed();
        answer.size = shape.blocks.get().into();
        answer.capacity = answer.size;
        answer.used = answer.size;
        answer.deallocation = DEALLOCATED_IS_ZERO;
        // 0's based. There are no atomic boundaries (NABSN, NABO and NABSPF are 0), no fused
        // commands (NACWU is 0), and no longer writes that would be better (NOWS is NPWG).
        let of_zero = |bytes: u64| {
            let blocks = bytes >> shape.block_size.shift();
            u16::try_from(blocks.saturating_sub(1)).unwrap_or(u16::MAX).into()
        };
        let unit = of_zero(shape.physical_size.bytes());
        answer.features = PREFERRED_SIZES;
        (answer.write_unit, answer.write_alignment) = (unit, unit);
        (answer.free_unit, answer.free_alignment) = (unit, unit);
        answer.write_optimal = unit;
        if shape.atomic.get() >= shape.block_size.bytes() {
            answer.features |= ATOMIC_SIZES;
            answer.atomic = of_zero(shape.atomic.get());
            answer.atomic_power = answer.atomic;
        }
        answer.block_formats[0] = BlockFormat {
            metadata: 0.into(),
            block_shift: u8::try_from(shape.block_size.shift()).expect("9 or 12"),
            performance: 0,
        };
        answer
    }

    /// Validates a command and says what data it transfers.
    pub(crate) fn plan(&self, entry: &SubmissionEntry) -> Result<Plan, NvmeStatus> {
        let BlockRange { first, blocks, .. } = BlockRange::decode(entry);
        match entry.opcode() {
            Opcode::FLUSH => Ok(Plan::NoData),
            Opcode::READ => self.check_transfer(first, blocks).map(Plan::ToHost),
            Opcode::WRITE => {
                self.check_writable()?;
                self.check_transfer(first, blocks).map(Plan::FromHost)
            }
            Opcode::WRITE_ZEROES => {
                self.check_writable()?;
                self.check(first, blocks)?;
                Ok(Plan::NoData)
            }
            Opcode::DATASET_MANAGEMENT => {
                // Linux sends a whole page, whatever the number of ranges in it.
                let bytes = entry.data.length.get() as usize;
                let whole = DatasetManagement::RANGES_MAX * size_of::<DatasetRange>();
                if (DatasetManagement::decode(entry).bytes()..=whole).contains(&bytes) {
                    Ok(Plan::FromHost(bytes))
                } else {
                    Err(status::SGL_LENGTH)
                }
            }
            _ => Err(status::INVALID_OPCODE),
        }
    }

    /// Executes a command that was planned, and does not join others.
    pub(crate) fn execute(
        &self,
        entry: &SubmissionEntry,
        durability: Durability,
        payload: Payload<'_>,
    ) -> Executed {
        match entry.opcode() {
            Opcode::FLUSH => self.flush()?,
            Opcode::WRITE_ZEROES => {
                let BlockRange { first, blocks, .. } = BlockRange::decode(entry);
                let space = match Deallocate::decode(entry) {
                    Deallocate::No => ZeroedSpace::Keep,
                    Deallocate::Wanted => ZeroedSpace::Free,
                };
                let durability = match durability {
                    Durability::Volatile => disk::Durability::Later,
                    Durability::Durable => disk::Durability::AtOnce,
                };
                self.disk.write_zeroes(first, blocks, space, durability).map_err(failed)?;
            }
            Opcode::DATASET_MANAGEMENT => {
                self.manage(DatasetManagement::decode(entry), payload.sent())?;
                if durability == Durability::Durable {
                    self.flush()?;
                }
            }
            _ => return Err(status::INVALID_OPCODE),
        }
        DONE
    }

    /// Performs planned reads and writes, one after the other, and returns the result of each
    /// command. One flush makes all durable ones durable, and they complete after it.
    pub(crate) fn submit<'a>(
        &self,
        accesses: impl Iterator<Item = (Lba, Access<'a>)>,
    ) -> Vec<Result<u64, NvmeStatus>> {
        let mut flushed = None;
        let (mut ends, mut durable) = (Vec::new(), Vec::new());
        for (first, access) in accesses {
            let end = match access {
                Access::Read(buffer) => {
                    self.usage.read(buffer.len());
                    self.disk.read(first, buffer).map_err(failed)
                }
                Access::Write(data, durability) => {
                    self.usage.written(data.len());
                    if durability == Durability::Durable {
                        durable.push(ends.len());
                    }
                    self.disk.write(first, data, disk::Durability::Later).map_err(failed)
                }
                Access::Append(..) => Err(status::INVALID_OPCODE),
            };
            ends.push(end.map(|()| 0));
        }
        for at in durable {
            let flushed = *flushed.get_or_insert_with(|| self.flush());
            ends[at] = ends[at].and_then(|result| flushed.map(|()| result));
        }
        ends
    }

    /// Deallocates ranges. The command is a wish and no order, but a [`Disk`] always fulfils it.
    fn manage(&self, asked: DatasetManagement, data: &[u8]) -> Result<(), NvmeStatus> {
        let ranges = data.chunks_exact(size_of::<DatasetRange>()).take(asked.ranges);
        let ranges: Vec<DatasetRange> =
            ranges.filter_map(|range| DatasetRange::read_from_bytes(range).ok()).collect();
        let places = ranges
            .iter()
            .map(|range| (Lba::new(range.first.get()), LbaCount::new(range.blocks.get().into())));
        // Before anything changes.
        for (first, blocks) in places.clone() {
            self.check(first, blocks)?;
        }
        if asked.deallocate == Deallocate::Wanted {
            self.check_writable()?;
            for (first, blocks) in places {
                self.disk.discard(first, blocks).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), NvmeStatus> {
        if self.shape().is_read_only { Err(status::WRITE_PROTECTED) } else { Ok(()) }
    }

    /// Bytes of a range of blocks; an error if the range is not within the disk.
    fn check(&self, first: Lba, blocks: LbaCount) -> Result<u64, NvmeStatus> {
        let bytes = self.shape().range(first, blocks).map_err(failed)?;
        Ok(bytes.end - bytes.start)
    }

    /// The same; an error also if the bytes exceed one transfer.
    fn check_transfer(&self, first: Lba, blocks: LbaCount) -> Result<usize, NvmeStatus> {
        let bytes = usize::try_from(self.check(first, blocks)?).ok();
        bytes.filter(|&bytes| bytes <= TRANSFER_MAX).ok_or(status::INVALID_FIELD)
    }
}

/// The status of a failure, which is logged as an error unless it is the host's own.
#[expect(clippy::needless_pass_by_value, reason = "as an error is mapped")]
fn failed(error: DiskError) -> NvmeStatus {
    let status = error.nvme_status();
    match status {
        status::INTERNAL | status::CAPACITY_EXCEEDED => tracing::error!(%error, "the disk failed"),
        _ => tracing::debug!(%error, "refused"),
    }
    status
}
