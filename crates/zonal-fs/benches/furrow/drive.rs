//! A drive in memory on which a block of one repeated word takes hardly any room, so that files of
//! a hundred gigabytes fit: the benchmarks write such blocks as data, so it stores only metadata in
//! full. Words differ, so checksums do as well, and metadata is as hard to compress as any.
//!
//! A drive that is loaded or made in a file keeps its metadata there, so that the memory of the
//! program is the file system's, and that of [`stored`](SparseDrive::stored). It keeps to the zone
//! state machine and counts its calls. It does not enforce the limits of open and active zones: the
//! tests do that.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Result as IoResult, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use zonal::error::Result;
use zonal::state::{Event, Rules, ZoneState, next};
use zonal::{
    BlockSize, Geometry, GeometrySpec, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId,
    ZoneKind, ZoneRuns, ZonedDevice,
};

const BLOCK: usize = 4096;

/// The drive.
pub(crate) struct SparseDrive {
    geometry: Geometry,
    zones: Box<[Mutex<Slot>]>,
    counts: Atomics,
    /// The stored blocks of a drive in a file, each zone at its place.
    file: Option<File>,
}

#[derive(Default)]
struct Atomics {
    writes: AtomicU64,
    written: AtomicU64,
    reads: AtomicU64,
    read: AtomicU64,
    flushes: AtomicU64,
    resets: AtomicU64,
}

/// Calls of a drive, counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Writes and appends.
    pub(crate) writes: u64,
    /// Bytes of them.
    pub(crate) written: u64,
    /// Reads.
    pub(crate) reads: u64,
    /// Bytes of them.
    pub(crate) read: u64,
    /// Flushes.
    pub(crate) flushes: u64,
    /// Zones reset.
    pub(crate) resets: u64,
}

impl std::ops::Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            writes: self.writes - earlier.writes,
            written: self.written - earlier.written,
            reads: self.reads - earlier.reads,
            read: self.read - earlier.read,
            flushes: self.flushes - earlier.flushes,
            resets: self.resets - earlier.resets,
        }
    }
}

struct Slot {
    state: ZoneState,
    /// In the order of writing, so sorted by start; each reaches to the start of the next.
    pieces: Vec<Piece>,
    /// The largest number of pieces that the slot has had: their memory stays allocated.
    pieces_max: usize,
}

struct Piece {
    start: u64,
    content: Content,
}

enum Content {
    /// This word, again and again.
    Same(u64),
    Stored(Vec<u8>),
    /// This many bytes, in the drive's file.
    InFile(u64),
}

/// Where a zone's content is stored: in memory, or in a file from some place on.
type Place<'a> = Option<(&'a File, u64)>;

/// A drive of `zones` zones of `zone_mib` MiB, with the limits that most drives have.
pub(crate) fn shape(zones: u64, zone_mib: u64) -> GeometrySpec {
    let zone_size = LbaCount::new(zone_mib << 8);
    GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(zones * zone_size.get()),
        zone_size,
        zone_capacity: zone_size,
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(14),
        max_active: Some(14),
        max_append: LbaCount::new(256),
    }
}

impl SparseDrive {
    /// An empty drive of this [`shape`].
    pub(crate) fn new(zones: u64, zone_mib: u64) -> Self {
        let geometry = Geometry::new(shape(zones, zone_mib));
        let geometry = geometry.expect("a possible shape");
        let empty = || Slot { state: ZoneState::EMPTY, pieces: Vec::new(), pieces_max: 0 };
        let zones = geometry.zones().map(|_| Mutex::new(empty())).collect();
        Self { geometry, zones, counts: Atomics::default(), file: None }
    }

    /// The same, with stored blocks in a file, and room for all pieces from the start. The drive
    /// returns this room when it goes, so its work changes nothing that the allocator keeps.
    pub(crate) fn in_file(zones: u64, zone_mib: u64) -> IoResult<Self> {
        let drive = Self { file: Some(tempfile::tempfile()?), ..Self::new(zones, zone_mib) };
        let blocks = usize::try_from(drive.geometry.zone_size().get()).expect("a zone in memory");
        for slot in &drive.zones {
            slot.lock().expect("no holder panicked").pieces.reserve_exact(blocks);
        }
        Ok(drive)
    }

    /// Bytes of all zones.
    pub(crate) fn bytes(&self) -> u64 {
        self.geometry.block_count().get() * BLOCK as u64
    }

    /// Its calls so far.
    pub(crate) fn counts(&self) -> Counts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        Counts {
            writes: get(&counts.writes),
            written: get(&counts.written),
            reads: get(&counts.reads),
            read: get(&counts.read),
            flushes: get(&counts.flushes),
            resets: get(&counts.resets),
        }
    }

    /// Bytes of this program's memory that its content takes.
    pub(crate) fn stored(&self) -> u64 {
        let of = |piece: &Piece| match &piece.content {
            Content::Same(_) | Content::InFile(_) => 0,
            Content::Stored(bytes) => bytes.len() as u64,
        };
        let zones = self.zones.iter().map(|slot| {
            let slot = slot.lock().expect("no holder panicked");
            let pieces = slot.pieces.len().max(slot.pieces_max);
            let places = (pieces * size_of::<Piece>()) as u64;
            if self.file.is_some() {
                return places;
            }
            places + slot.pieces.iter().map(of).sum::<u64>()
        });
        zones.sum()
    }

    /// Writes its content to a file.
    pub(crate) fn save(&self, path: &Path) -> IoResult<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let zone_mib = self.geometry.zone_size().get() >> 8;
        put(&mut file, &[u64::from(self.geometry.zone_count()), zone_mib])?;
        for slot in &self.zones {
            let slot = slot.lock().expect("no holder panicked");
            let cond = ZoneCond::ALL.iter().position(|cond| *cond == slot.state.cond);
            let cond = cond.expect("every condition is in the list") as u64;
            put(&mut file, &[cond, slot.state.written.get(), slot.pieces.len() as u64])?;
            for piece in &slot.pieces {
                match &piece.content {
                    Content::Same(word) => put(&mut file, &[piece.start, 0, *word])?,
                    Content::Stored(bytes) => {
                        put(&mut file, &[piece.start, 1, bytes.len() as u64])?;
                        file.write_all(bytes)?;
                    }
                    Content::InFile(_) => panic!("a loaded drive is not saved"),
                }
            }
        }
        file.flush()
    }

    /// A drive with the content of a file.
    pub(crate) fn load(path: &Path) -> IoResult<Self> {
        let mut file = BufReader::new(File::open(path)?);
        let [zones, zone_mib] = get(&mut file)?;
        let drive = Self::in_file(zones, zone_mib)?;
        for (zone, slot) in drive.geometry.zones().zip(&drive.zones) {
            let mut slot = slot.lock().expect("no holder panicked");
            let [cond, written, pieces] = get(&mut file)?;
            let cond = ZoneCond::ALL[usize::try_from(cond).expect("a condition")];
            slot.state = ZoneState { cond, written: LbaCount::new(written), ..ZoneState::EMPTY };
            for _ in 0..pieces {
                let [start, kind, value] = get(&mut file)?;
                let content = if kind == 0 {
                    Content::Same(value)
                } else {
                    let mut bytes = vec![0; usize::try_from(value).expect("it was in memory")];
                    file.read_exact(&mut bytes)?;
                    let (stored, from) = drive.place_of(zone).expect("it has a file");
                    stored.write_all_at(&bytes, from + start * BLOCK as u64)?;
                    Content::InFile(value)
                };
                slot.pieces.push(Piece { start, content });
            }
        }
        Ok(drive)
    }

    fn slot(&self, zone: ZoneId) -> MutexGuard<'_, Slot> {
        self.zones[zone.index()].lock().expect("no holder panicked")
    }

    fn place_of(&self, zone: ZoneId) -> Place<'_> {
        let from = self.geometry.zone_start(zone).get() * BLOCK as u64;
        self.file.as_ref().map(|file| (file, from))
    }

    fn store(&self, zone: ZoneId, at: Option<LbaCount>, data: &[u8]) -> Lba {
        let mut slot = self.slot(zone);
        let offset = at.unwrap_or(slot.state.written);
        let blocks = LbaCount::new((data.len() / BLOCK) as u64);
        let event = Event::Write { offset, blocks };
        let (kind, capacity) = (self.geometry.kind(zone), self.geometry.capacity_of(zone));
        slot.state = next(Rules::Zns, kind, slot.state, event, capacity)
            .unwrap_or_else(|refusal| panic!("a write to zone {zone} is refused: {refusal:?}"));
        if is_same(data) {
            slot.push(offset.get(), &data[..BLOCK], None);
        } else {
            for (block, start) in data.chunks_exact(BLOCK).zip(offset.get()..) {
                slot.push(start, block, self.place_of(zone));
            }
        }
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.geometry.zone_start(zone) + offset
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) {
        let mut slot = self.slot(zone);
        let (kind, capacity) = (self.geometry.kind(zone), self.geometry.capacity_of(zone));
        slot.state = next(Rules::Zns, kind, slot.state, Event::Manage(action), capacity)
            .unwrap_or_else(|refusal| panic!("{action:?} of zone {zone} is refused: {refusal:?}"));
        if action == ZoneAction::Reset {
            if self.file.is_some() {
                slot.pieces_max = slot.pieces_max.max(slot.pieces.len());
                slot.pieces.clear();
            } else {
                slot.pieces = Vec::new();
            }
            self.counts.resets.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether all words are the same one.
fn is_same(data: &[u8]) -> bool {
    data[8..] == data[..data.len() - 8]
}

fn first_word(data: &[u8]) -> u64 {
    u64::from_le_bytes(data[..8].try_into().expect("eight bytes"))
}

fn put(file: &mut impl Write, words: &[u64]) -> IoResult<()> {
    words.iter().try_for_each(|word| file.write_all(&word.to_le_bytes()))
}

fn get<const N: usize>(file: &mut impl Read) -> IoResult<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}

impl Slot {
    /// Adds a block behind the last piece, or a run of blocks of the same word.
    fn push(&mut self, start: u64, block: &[u8], place: Place<'_>) {
        let last = self.pieces.last_mut().map(|piece| &mut piece.content);
        let is_same = is_same(block);
        if let Some((file, from)) = place
            && !is_same
        {
            file.write_all_at(block, from + start * BLOCK as u64).expect("room for the drive");
        }
        match last {
            Some(Content::Same(word)) if is_same && *word == first_word(block) => {}
            Some(Content::Stored(bytes)) if !is_same => bytes.extend_from_slice(block),
            Some(Content::InFile(bytes)) if !is_same => *bytes += BLOCK as u64,
            Some(Content::Same(_) | Content::Stored(_) | Content::InFile(_)) | None => {
                let content = match place {
                    _ if is_same => Content::Same(first_word(block)),
                    Some(_) => Content::InFile(BLOCK as u64),
                    None => Content::Stored(block.to_vec()),
                };
                self.pieces.push(Piece { start, content });
            }
        }
    }

    /// Blocks from `start` on, zeroes where nothing is written.
    fn read(&self, start: u64, buffer: &mut [u8], place: Place<'_>) {
        let mut at = start;
        let mut rest = buffer;
        while !rest.is_empty() {
            let after = self.pieces.partition_point(|piece| piece.start <= at);
            let end = self.pieces.get(after).map_or(self.state.written.get(), |next| next.start);
            let blocks = usize::try_from(end.saturating_sub(at)).expect("a zone in memory");
            let room = if blocks == 0 { rest.len() } else { rest.len().min(blocks * BLOCK) };
            let (head, tail) = rest.split_at_mut(room);
            match after.checked_sub(1).map(|piece| &self.pieces[piece]) {
                Some(piece) if blocks > 0 => match &piece.content {
                    Content::Same(word) => {
                        let word = word.to_le_bytes();
                        head.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
                    }
                    Content::Stored(bytes) => {
                        let from = usize::try_from(at - piece.start).expect("inside") * BLOCK;
                        head.copy_from_slice(&bytes[from..from + head.len()]);
                    }
                    Content::InFile(_) => {
                        let (file, from) = place.expect("it has a file");
                        file.read_exact_at(head, from + at * BLOCK as u64).expect("it was written");
                    }
                },
                Some(_) | None => head.fill(0),
            }
            at += (head.len() / BLOCK) as u64;
            rest = tail;
        }
    }
}

impl ZonedDevice for SparseDrive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        for id in self.geometry.zones().skip(first.index()).take(limit) {
            let state = self.slot(id).state;
            let (start, capacity) = (self.geometry.zone_start(id), self.geometry.capacity_of(id));
            let end = if state.cond == ZoneCond::Full { capacity } else { state.written };
            zones.push(Zone {
                id,
                kind: ZoneKind::SequentialRequired,
                non_sequential: false,
                cond: state.cond,
                start,
                size: self.geometry.size_of(id),
                capacity,
                wp: Some(start + end),
            });
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let (mut lba, mut rest) = (lba, buffer);
        while !rest.is_empty() {
            let (zone, offset) = self.geometry.locate(lba);
            let left = self.geometry.size_of(zone) - offset;
            let room = usize::try_from(left.get()).expect("a zone in memory") * BLOCK;
            let (head, tail) = rest.split_at_mut(room.min(rest.len()));
            self.slot(zone).read(offset.get(), head, self.place_of(zone));
            lba += LbaCount::new((head.len() / BLOCK) as u64);
            rest = tail;
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let (zone, offset) = self.geometry.locate(lba);
        self.store(zone, Some(offset), data);
        Ok(())
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        Ok(self.store(zone, None, data))
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match zones {
            Select::One(zone) => self.manage_one(zone, action),
            Select::All => {
                for zone in self.geometry.zones() {
                    if self.slot(zone).state.cond != ZoneCond::Empty {
                        self.manage_one(zone, action);
                    }
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
