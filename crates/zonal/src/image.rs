//! Images: the content and state of every zone as a value, cheap to copy, and drives made of them.
//!
//! An [`Image`] is the content of a drive without power. [`Image::power_on`] makes a drive of it;
//! the drive's writes go to the drive and never to the image, so one image is the start of any
//! number of drives. Data is shared, not copied. [`layer::record`](crate::layer::record) tells
//! which images a power cut can leave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::emulated::{BlockInZone, Emulated, Medium, initial_state};
use crate::error::Result;
use crate::failure::ZoneFailure;
use crate::limits::Limits;
use crate::state::{self, Event, Rules, ZoneState};
use crate::{
    BlockSize, Geometry, Lba, LbaCount, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZonedDevice,
};

/// Content and state of every zone.
#[derive(Clone)]
pub struct Image {
    geometry: Geometry,
    zones: Vec<ImageZone>,
}

/// One zone of an image.
#[derive(Clone)]
struct ImageZone {
    state: ZoneState,
    data: Arc<Extents>,
}

/// The data written to a zone. It has no blocks beyond the write pointer.
#[derive(Clone)]
enum Extents {
    /// Sequential write required zone: in the order of writing, so sorted by start. A piece
    /// replaces all earlier ones from its start on.
    Sequential(Vec<WrittenBlocks>),
    /// Conventional or sequential write preferred zone: every block on its own.
    Anywhere(BTreeMap<u64, WrittenBlocks>),
}

/// Blocks of one write.
#[derive(Clone)]
struct WrittenBlocks {
    start: u64,
    bytes: Arc<[u8]>,
    /// Where in `bytes` the piece begins.
    skip: usize,
}

/// How the last block of a write that was cut off looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Whole, as block devices promise.
    Whole,
    /// A small part of it is written, the rest is noise.
    Torn,
}

impl Image {
    /// A drive on which nothing was ever written.
    pub fn empty(geometry: &Geometry) -> Self {
        let zone = |zone| {
            let data = Extents::empty(geometry.kind(zone));
            ImageZone { state: initial_state(geometry, zone), data: Arc::new(data) }
        };
        Self { geometry: *geometry, zones: geometry.zones().map(zone).collect() }
    }

    /// Its shape.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A drive that starts from this image.
    pub fn power_on(&self) -> ImageDrive {
        let pieces = Pieces { block_size: self.geometry.block_size() };
        let zones = self.zones.iter().map(|zone| (zone.state, Arc::clone(&zone.data)));
        ImageDrive { drive: Emulated::new(self.geometry, Rules::Zns, pieces, zones) }
    }

    /// How many blocks of a zone are written; 0 for a conventional one.
    pub fn written(&self, zone: ZoneId) -> LbaCount {
        self.zones[zone.index()].state.written
    }

    /// Stores the first `blocks` blocks of `bytes`, where the zone takes them.
    pub(crate) fn store(
        &mut self,
        at: BlockInZone,
        bytes: &Arc<[u8]>,
        blocks: LbaCount,
        tail: Tail,
    ) {
        let block_size = self.geometry.block_size();
        let size = block_bytes(block_size);
        let capacity = self.geometry.capacity_of(at.zone);
        let slot = &mut self.zones[at.zone.index()];
        let event = Event::Write { offset: at.offset, blocks };
        slot.state =
            state::next(Rules::Zns, self.geometry.kind(at.zone), slot.state, event, capacity)
                .expect("the drive took this write in this state");
        let data = Arc::make_mut(&mut slot.data);
        data.put(at.offset, bytes, blocks, block_size);
        if tail == Tail::Torn {
            let last = blocks - LbaCount::new(1);
            let from = size * usize::try_from(last.get()).expect("inside a buffer");
            data.put(
                at.offset + last,
                &tear(&bytes[from..from + size]),
                LbaCount::new(1),
                block_size,
            );
        }
    }

    /// Whether anything can be written anywhere in the zone.
    pub(crate) fn is_conventional(&self, zone: ZoneId) -> bool {
        self.zones[zone.index()].state.cond == ZoneCond::NotWp
    }

    /// Takes blocks of a conventional zone away.
    pub(crate) fn deallocate(&mut self, at: BlockInZone, blocks: LbaCount) {
        Arc::make_mut(&mut self.zones[at.zone.index()].data).deallocate(at.offset, blocks);
    }

    /// Performs an action on one zone.
    pub(crate) fn manage(&mut self, zone: ZoneId, action: ZoneAction) {
        let capacity = self.geometry.capacity_of(zone);
        let slot = &mut self.zones[zone.index()];
        let (kind, event) = (self.geometry.kind(zone), Event::Manage(action));
        slot.state = state::next(Rules::Zns, kind, slot.state, event, capacity)
            .expect("the drive did this action in this state");
        if action == ZoneAction::Reset {
            slot.data = Arc::new(Extents::empty(kind));
        }
    }

    /// Changes one bit of a stored block, as a failing medium does. Does nothing if the block is
    /// not written.
    pub fn flip_bit(&mut self, lba: Lba, bit: u64) {
        let (zone, offset) = self.geometry.locate(lba);
        let block_size = self.geometry.block_size();
        let slot = &mut self.zones[zone.index()];
        let mut block = vec![0; block_bytes(block_size)];
        slot.data.read(offset.get(), &mut block, block_size);
        let at = usize::try_from(bit / 8).unwrap_or(0) % block.len();
        block[at] ^= 1 << (bit % 8);
        if slot.state.cond == ZoneCond::NotWp || offset < slot.state.written {
            Arc::make_mut(&mut slot.data).overwrite(offset, &block);
        }
    }

    /// Puts a zone back to its content in another image of the same drive, like firmware that loses
    /// its map.
    pub fn put_back(&mut self, zone: ZoneId, earlier: &Self) {
        assert_eq!(self.geometry, earlier.geometry, "both are images of one drive");
        self.zones[zone.index()] = earlier.zones[zone.index()].clone();
    }

    /// Makes a zone fail for good.
    pub fn fail_zone(&mut self, zone: ZoneId, failure: ZoneFailure) {
        let capacity = self.geometry.capacity_of(zone);
        let slot = &mut self.zones[zone.index()];
        let (kind, event) = (self.geometry.kind(zone), failure.event());
        if let Ok(state) = state::next(Rules::Zns, kind, slot.state, event, capacity) {
            slot.state = state;
        }
    }

    /// The effect of a loss of power: no zone stays open.
    pub(crate) fn close_all(&mut self) {
        for slot in &mut self.zones {
            if slot.state.cond.is_active() {
                let empty = slot.state.written == LbaCount::ZERO;
                slot.state.cond = if empty { ZoneCond::Empty } else { ZoneCond::Closed };
            }
        }
    }

    /// Active zones.
    pub(crate) fn active_count(&self) -> usize {
        self.zones.iter().filter(|zone| zone.state.cond.is_active()).count()
    }
}

fn block_bytes(block_size: BlockSize) -> usize {
    1 << block_size.shift()
}

/// A torn block: its first 1/32 is written, enough for a header but not for the rest. The
/// rest is noise and not zeroes, so it differs from a block that was never written.
fn tear(block: &[u8]) -> Arc<[u8]> {
    let kept = block.len() / 32;
    block[..kept].iter().copied().chain(std::iter::repeat_n(0xa5, block.len() - kept)).collect()
}

impl Extents {
    /// The extents of a zone in which nothing is written.
    fn empty(kind: ZoneKind) -> Self {
        match kind {
            ZoneKind::Conventional | ZoneKind::SequentialPreferred => {
                Self::Anywhere(BTreeMap::new())
            }
            ZoneKind::SequentialRequired => Self::Sequential(Vec::new()),
        }
    }

    /// Takes everything away, as a reset does.
    fn clear(&mut self) {
        match self {
            Self::Sequential(pieces) => pieces.clear(),
            Self::Anywhere(pieces) => pieces.clear(),
        }
    }

    fn put(&mut self, at: LbaCount, bytes: &Arc<[u8]>, blocks: LbaCount, block_size: BlockSize) {
        let (start, bytes) = (at.get(), Arc::clone(bytes));
        match self {
            Self::Sequential(pieces) => pieces.push(WrittenBlocks { start, bytes, skip: 0 }),
            Self::Anywhere(pieces) => {
                let skips = (0..).step_by(block_bytes(block_size));
                for (start, skip) in (start..start + blocks.get()).zip(skips) {
                    pieces.insert(start, WrittenBlocks { start, bytes: Arc::clone(&bytes), skip });
                }
            }
        }
    }

    /// Takes blocks of a conventional zone away.
    fn deallocate(&mut self, at: LbaCount, blocks: LbaCount) {
        if let Self::Anywhere(pieces) = self {
            let mut kept = pieces.split_off(&at.get());
            pieces.append(&mut kept.split_off(&(at + blocks).get()));
        }
    }

    /// Replaces one block in the middle.
    fn overwrite(&mut self, at: LbaCount, block: &[u8]) {
        let start = at.get();
        match self {
            Self::Sequential(pieces) => {
                let after = pieces.partition_point(|piece| piece.start <= start);
                let piece = &mut pieces[after - 1];
                let mut bytes = piece.bytes.to_vec();
                let blocks = usize::try_from(start - piece.start).expect("inside the piece");
                let from = piece.skip + blocks * block.len();
                bytes[from..from + block.len()].copy_from_slice(block);
                piece.bytes = bytes.into();
            }
            Self::Anywhere(pieces) => {
                pieces.insert(start, WrittenBlocks { start, bytes: block.into(), skip: 0 });
            }
        }
    }

    /// Reads blocks, zeroes where there are none. The caller has cut the range off at the write
    /// pointer.
    fn read(&self, mut start: u64, buffer: &mut [u8], block_size: BlockSize) {
        let size = block_bytes(block_size);
        let mut rest = buffer;
        while !rest.is_empty() {
            let (piece, next) = self.piece_at(start);
            let from = piece.map(|piece| {
                let blocks = usize::try_from(start - piece.start).expect("inside a zone");
                &piece.bytes[(piece.skip + blocks * size).min(piece.bytes.len())..]
            });
            let room = next.map_or(rest.len(), |next| {
                usize::try_from(next - start).map_or(rest.len(), |blocks| blocks * size)
            });
            let (head, tail) = rest.split_at_mut(room.min(rest.len()));
            let from = from.unwrap_or(&[]);
            let stored = from.len().min(head.len());
            head[..stored].copy_from_slice(&from[..stored]);
            head[stored..].fill(0);
            start += (head.len() / size) as u64;
            rest = tail;
        }
    }

    /// The piece that block `at` is in, and where the next one begins.
    fn piece_at(&self, at: u64) -> (Option<&WrittenBlocks>, Option<u64>) {
        match self {
            Self::Sequential(pieces) => {
                let after = pieces.partition_point(|piece| piece.start <= at);
                let piece = after.checked_sub(1).map(|index| &pieces[index]);
                (piece, pieces.get(after).map(|piece| piece.start))
            }
            Self::Anywhere(pieces) => (pieces.get(&at), Some(at + 1)),
        }
    }
}

/// The medium of an [`ImageDrive`]: pieces, copied when they are changed.
struct Pieces {
    block_size: BlockSize,
}

impl Medium for Pieces {
    type ZoneData = Arc<Extents>;

    fn read(&self, part: &Self::ZoneData, at: BlockInZone, buffer: &mut [u8]) -> Result<()> {
        part.read(at.offset.get(), buffer, self.block_size);
        Ok(())
    }

    fn write(&self, part: &mut Self::ZoneData, at: BlockInZone, data: &[u8]) -> Result<()> {
        let blocks = LbaCount::new((data.len() >> self.block_size.shift()) as u64);
        Arc::make_mut(part).put(at.offset, &data.into(), blocks, self.block_size);
        Ok(())
    }

    /// Where nothing was written there are zeroes.
    fn skip(&self, _: &mut Self::ZoneData, _: BlockInZone, _: LbaCount) -> Result<()> {
        Ok(())
    }

    fn deallocate(
        &self,
        part: &mut Self::ZoneData,
        at: BlockInZone,
        blocks: LbaCount,
    ) -> Result<()> {
        Arc::make_mut(part).deallocate(at.offset, blocks);
        Ok(())
    }

    fn record(&self, _zone: ZoneId, _from: ZoneState, _to: ZoneState) -> Result<()> {
        Ok(())
    }

    fn erase(&self, part: &mut Self::ZoneData, _zone: ZoneId) -> Result<()> {
        Arc::make_mut(part).clear();
        Ok(())
    }

    fn flush(&self, _conditions: &Mutex<Limits>) -> Result<()> {
        Ok(())
    }
}

/// A drive in memory that began as an image.
pub struct ImageDrive {
    drive: Emulated<Pieces>,
}

impl ImageDrive {
    /// Makes a zone fail, as drives do on their own. There is no way back.
    pub fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        self.drive.fail(zone, failure.event())
    }
}

impl ZonedDevice for ImageDrive {
    crate::pass_on!(drive: geometry, report, read, write, append, manage, flush, deallocate);
}
