//! A zoned drive in memory: the model that every other device is compared with.
//!
//! Memory is taken as data arrives, in chunks, and given back by a reset, so a drive of many
//! terabytes costs little more than its zone table. Zeroes in sequential zones take no memory.
//! Contents are lost with the value; `flush` has nothing to do. Any number of threads; zones do not
//! disturb each other.

use std::sync::Mutex;

use crate::emulated::{BlockInZone, Emulated, Medium, initial_state};
use crate::error::Result;
use crate::failure::{FailZone, ZoneFailure};
use crate::limits::Limits;
use crate::state::{Rules, ZoneState};
use crate::{
    BlockSize, DeviceError, Geometry, GeometrySpec, LbaCount, Select, ZoneAction, ZoneCond, ZoneId,
    ZoneKind, ZonedDevice,
};

/// A zoned drive in memory.
///
/// ```
/// use zonal::{
///     BlockSize, GeometrySpec, Lba, LbaCount, MemoryDrive, ZoneId, ZoneKind, ZoneRuns,
///     ZonedDevice,
/// };
/// let drive = MemoryDrive::new(GeometrySpec {
///     block_size: BlockSize::B4096,
///     block_count: LbaCount::new(1200),
///     zone_size: LbaCount::new(300), // not a power of two
///     zone_capacity: LbaCount::new(280),
///     conventional_zones: ZoneRuns::NONE,
///     sequential_kind: ZoneKind::SequentialRequired,
///     max_open: Some(2),
///     max_active: Some(3),
///     max_append: LbaCount::new(64),
/// })?;
/// let at = drive.append(ZoneId::new(1), &[7; 8192])?;
/// assert_eq!(at, Lba::new(300));
/// let mut block = [0; 4096];
/// drive.read(at, &mut block)?;
/// assert_eq!(block, [7; 4096]);
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct MemoryDrive {
    drive: Emulated<Memory>,
}

impl MemoryDrive {
    /// An empty drive that follows the NVMe rules.
    pub fn new(spec: GeometrySpec) -> Result<Self> {
        Self::with_rules(spec, Rules::Zns)
    }

    /// An empty drive that follows `rules`.
    pub fn with_rules(spec: GeometrySpec, rules: Rules) -> Result<Self> {
        let geometry = Geometry::new(spec)?;
        let zones = geometry.zones().map(|zone| {
            let part = match geometry.kind(zone) {
                ZoneKind::Conventional | ZoneKind::SequentialPreferred => {
                    Chunks::Anywhere(Vec::new())
                }
                ZoneKind::SequentialRequired => Chunks::Sequential(Vec::new()),
            };
            (initial_state(&geometry, zone), part)
        });
        let memory = Memory { block_size: spec.block_size };
        Ok(Self { drive: Emulated::new(geometry, rules, memory, zones) })
    }

    /// Makes an empty zone full of zeroes, as if they had been written long ago.
    pub fn mark_written(&self, zone: ZoneId) -> Result<()> {
        let cond = self.zone(zone)?.cond;
        if cond != ZoneCond::Empty {
            return Err(DeviceError::Transition { zone, cond, action: ZoneAction::Finish });
        }
        // A finished zone reads as zeroes where nothing was written.
        self.manage(Select::One(zone), ZoneAction::Finish)
    }

    /// Makes a zone fail, as drives do on their own. There is no way back.
    pub fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        self.drive.fail(zone, failure.event())
    }
}

impl FailZone for MemoryDrive {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        self.fail_zone(zone, failure)
    }
}

impl ZonedDevice for MemoryDrive {
    crate::pass_on!(
        drive: geometry, report, read, write, append, manage, flush, deallocate, rotates
    );
}

/// Bytes of a chunk: large enough that a zone needs few, small enough that a drive with a little
/// data in many zones stays small.
const CHUNK: usize = 64 * 1024;

struct Memory {
    block_size: BlockSize,
}

/// Zeroes to compare with.
static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// The data of one zone.
enum Chunks {
    /// Sequential write required zone: every chunk but the last is complete, nothing is ever zeroed
    /// first.
    Sequential(Vec<Chunk>),
    /// Conventional or sequential write preferred zone: chunks where something was written.
    Anywhere(Vec<Option<Box<[u8]>>>),
}

/// A chunk of a sequential zone.
enum Chunk {
    /// So many zeroes, which take no memory.
    Zeroes(usize),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Chunk {
    fn read(&self, offset: usize, buffer: &mut [u8]) {
        match self {
            Self::Zeroes(_) => buffer.fill(0),
            Self::Bytes(bytes) => buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]),
        }
    }

    fn append(&mut self, offset: usize, data: &[u8]) {
        if let Self::Zeroes(count) = self {
            assert_eq!(*count, offset, "a sequential zone grows at its end");
            if data == &ZEROES[..data.len()] {
                *count += data.len();
                return;
            }
            let mut bytes = Vec::with_capacity(CHUNK);
            bytes.resize(offset, 0);
            *self = Self::Bytes(bytes);
        }
        let Self::Bytes(bytes) = self else { unreachable!("it has become bytes") };
        assert_eq!(bytes.len(), offset, "a sequential zone grows at its end");
        bytes.extend_from_slice(data);
    }
}

impl Memory {
    fn position(&self, at: BlockInZone) -> (usize, usize) {
        let byte = usize::try_from(at.offset.get() << self.block_size.shift())
            .expect("a zone in memory is smaller than the address space");
        (byte / CHUNK, byte % CHUNK)
    }
}

impl Medium for Memory {
    type ZoneData = Chunks;

    fn read(&self, part: &Chunks, at: BlockInZone, buffer: &mut [u8]) -> Result<()> {
        let (mut chunk, mut offset) = self.position(at);
        let mut rest = buffer;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at_mut(rest.len().min(CHUNK - offset));
            match part {
                Chunks::Sequential(chunks) => chunks[chunk].read(offset, head),
                Chunks::Anywhere(chunks) => match chunks.get(chunk) {
                    Some(Some(bytes)) => head.copy_from_slice(&bytes[offset..offset + head.len()]),
                    Some(None) | None => head.fill(0),
                },
            }
            (chunk, offset, rest) = (chunk + 1, 0, tail);
        }
        Ok(())
    }

    fn write(&self, part: &mut Chunks, at: BlockInZone, data: &[u8]) -> Result<()> {
        let (mut chunk, mut offset) = self.position(at);
        let mut rest = data;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(CHUNK - offset));
            match part {
                Chunks::Sequential(chunks) => {
                    if offset == 0 {
                        chunks.push(Chunk::Zeroes(0));
                    }
                    chunks[chunk].append(offset, head);
                }
                Chunks::Anywhere(chunks) => {
                    if chunks.len() <= chunk {
                        chunks.resize_with(chunk + 1, || None);
                    }
                    let bytes = chunks[chunk].get_or_insert_with(|| vec![0; CHUNK].into());
                    bytes[offset..offset + head.len()].copy_from_slice(head);
                }
            }
            (chunk, offset, rest) = (chunk + 1, 0, tail);
        }
        Ok(())
    }

    /// Where nothing was written there are zeroes.
    fn skip(&self, _: &mut Chunks, _: BlockInZone, _: LbaCount) -> Result<()> {
        Ok(())
    }

    fn deallocate(&self, part: &mut Chunks, at: BlockInZone, blocks: LbaCount) -> Result<()> {
        let Chunks::Anywhere(chunks) = part else { return Ok(()) };
        let (first, from) = self.position(at);
        let (last, to) = self.position(BlockInZone { offset: at.offset + blocks, ..at });
        for (number, chunk) in chunks.iter_mut().enumerate().skip(first).take(last - first + 1) {
            let from = if number == first { from } else { 0 };
            let to = if number == last { to } else { CHUNK };
            match chunk {
                Some(_) if (from, to) == (0, CHUNK) => *chunk = None,
                Some(bytes) => bytes[from..to].fill(0),
                None => {}
            }
        }
        Ok(())
    }

    fn record(&self, _zone: ZoneId, _from: ZoneState, _to: ZoneState) -> Result<()> {
        Ok(())
    }

    fn erase(&self, part: &mut Chunks, _zone: ZoneId) -> Result<()> {
        match part {
            Chunks::Sequential(chunks) => *chunks = Vec::new(),
            Chunks::Anywhere(chunks) => *chunks = Vec::new(),
        }
        Ok(())
    }

    fn flush(&self, _conditions: &Mutex<Limits>) -> Result<()> {
        Ok(())
    }
}
