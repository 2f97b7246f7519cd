//! Power cuts of the host and kills of the process, simulated under a real `FileDrive`.
//!
//! The simulated host keeps every sector's versions since it was last made durable; a power cut
//! leaves any of them, each sector for itself, so writes are lost, reordered and torn. Power goes
//! at a chosen operation of the host file, so also in the middle of a flush. After each cut every
//! zone must hold what D4 promises; after each kill everything must be as it was.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zerocopy::IntoBytes;

use super::super::backing::Backing;
use super::super::format::{Description, Layout, PAGE, encode_header};
use super::super::{FileDrive, OpenMode};
use crate::error::Errno;
use crate::{
    BlockSize, Geometry, GeometrySpec, LbaCount, Rules, Select, Zone, ZoneAction, ZoneCond, ZoneId,
    ZoneKind, ZoneRuns, ZonedDevice, repeat,
};

mod during_flush;
mod failed_sync;
mod preferred;

const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

/// A host's file in its page cache and on its disk.
#[derive(Default)]
struct Host {
    len: u64,
    disk: BTreeMap<u64, Sector>,
    /// The versions of each sector since it was last made durable, oldest first.
    cached: BTreeMap<u64, Vec<Sector>>,
    /// Sectors that could not be written to the disk: they are still read, and no sync tries again.
    forgotten: BTreeMap<u64, Sector>,
    /// The fate of cached data at the next sync, and at the next durable write.
    next_sync: Fate,
    next_record: Fate,
    /// Operations until the power goes; `None`: it stays.
    operations_left: Option<u64>,
    last_part: LastPart,
    /// Runs in the middle of the next sync.
    during_sync: Option<Box<dyn FnOnce() + Send>>,
}

/// The fate of cached data.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Durable,
    /// The disk does not take it.
    Forgotten,
}

/// How much of the last write gets into the cache.
#[derive(Clone, Copy, Default)]
enum LastPart {
    #[default]
    Nothing,
    Half,
    All,
}

impl Host {
    fn sector(&self, index: u64) -> Sector {
        let cached = self.cached.get(&index).and_then(|versions| versions.last());
        let forgotten = self.forgotten.get(&index);
        *cached.or(forgotten).or_else(|| self.disk.get(&index)).unwrap_or(&[0; SECTOR])
    }

    fn operate(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            None => Ok(()),
            Some(0) => {
                // No process is left to write more.
                self.last_part = LastPart::Nothing;
                Err(io::Error::other("the power is cut"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// Puts bytes into the cache; `fill` gives them by position.
    fn put(&mut self, offset: u64, len: usize, fill: impl Fn(usize) -> u8) {
        let mut at = 0;
        while at < len {
            let position = usize::try_from(offset).unwrap() + at;
            let (index, from) = ((position / SECTOR) as u64, position % SECTOR);
            let count = (SECTOR - from).min(len - at);
            let mut sector = self.sector(index);
            for (byte, source) in sector[from..from + count].iter_mut().zip(at..) {
                *byte = fill(source);
            }
            self.cached.entry(index).or_default().push(sector);
            at += count;
        }
    }

    fn write_back(&mut self, sectors: std::ops::Range<u64>, fate: Fate) -> io::Result<()> {
        let indices: Vec<u64> = self.cached.range(sectors).map(|(&index, _)| index).collect();
        for index in indices {
            let newest = *self.cached.remove(&index).unwrap().last().unwrap();
            if fate == Fate::Forgotten {
                self.forgotten.insert(index, newest);
            } else {
                self.forgotten.remove(&index);
                self.disk.insert(index, newest);
            }
        }
        if fate == Fate::Forgotten { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Each sector becomes any of its versions, the durable one included.
    fn cut(&mut self, rng: &mut ChaCha8Rng) {
        self.operations_left = None;
        self.forgotten.clear();
        // Some cuts keep most, some lose most.
        let keep = rng.random_range(0.0..=1.0);
        for (index, versions) in std::mem::take(&mut self.cached) {
            if rng.random_bool(keep) {
                self.disk.insert(index, versions[rng.random_range(0..versions.len())]);
            }
        }
    }
}

#[derive(Clone, Default)]
struct SharedHost(Arc<Mutex<Host>>);

impl SharedHost {
    fn lock(&self) -> MutexGuard<'_, Host> {
        self.0.lock().unwrap()
    }
}

impl Backing for SharedHost {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let host = self.lock();
        let mut at = 0;
        while at < buffer.len() {
            let position = usize::try_from(offset).unwrap() + at;
            let (index, from) = ((position / SECTOR) as u64, position % SECTOR);
            let count = (SECTOR - from).min(buffer.len() - at);
            buffer[at..at + count].copy_from_slice(&host.sector(index)[from..from + count]);
            at += count;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut host = self.lock();
        let last_part = host.last_part;
        let alive = host.operate();
        // A process that is killed during a write may leave a part of it, in whole sectors.
        let middle = (offset + data.len() as u64 / 2) / SECTOR as u64 * SECTOR as u64;
        let done = match (&alive, last_part) {
            (Ok(()), _) | (Err(_), LastPart::All) => data.len(),
            (Err(_), LastPart::Half) => usize::try_from(middle.saturating_sub(offset)).unwrap(),
            (Err(_), LastPart::Nothing) => 0,
        };
        host.put(offset, done, |at| data[at]);
        alive
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)?;
        let sector = SECTOR as u64;
        let end = (offset + data.len() as u64).div_ceil(sector);
        let mut host = self.lock();
        let fate = std::mem::take(&mut host.next_record);
        host.write_back(offset / sector..end, fate)
    }

    fn sync(&self) -> io::Result<()> {
        let meanwhile = self.lock().during_sync.take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        let mut host = self.lock();
        host.operate()?;
        let fate = std::mem::take(&mut host.next_sync);
        host.write_back(0..u64::MAX, fate)
    }

    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.punch(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut host = self.lock();
        host.operate()?;
        host.put(offset, usize::try_from(len).unwrap(), |_| 0);
        Ok(())
    }
}

/// The data of one zone since one reset: a stamp for each block.
#[derive(Clone, Default)]
struct Life {
    blocks: Vec<u64>,
    finished: bool,
}

/// The changes of a zone.
struct History {
    /// Lives since the last flush: the one that was flushed first, then one for each reset.
    lives: Vec<Life>,
    /// The flushed blocks of the first life.
    flushed_blocks: usize,
    flushed_finish: bool,
}

/// A request that is not yet acknowledged.
enum InFlight {
    Write(ZoneId, Vec<u64>),
    Reset(ZoneId),
    Finish(ZoneId),
}

struct Run {
    in_flight: Option<InFlight>,
    host: SharedHost,
    drive: FileDrive,
    boot: u8,
    zones: Vec<History>,
    rng: ChaCha8Rng,
    stamp: u64,
}

const CAPACITY: usize = 14;

/// Zones that are used, spread so that a snapshot's sectors all change.
const USED: u32 = 6;
const SPREAD: u32 = 23;
const ZONES: u64 = 140;

/// Small zones, and a journal that is soon full.
fn description() -> Description {
    let geometry = Geometry::new(GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(ZONES * 17),
        zone_size: LbaCount::new(17),
        zone_capacity: LbaCount::new(CAPACITY as u64),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(2),
        max_active: Some(4),
        max_append: LbaCount::new(8),
    })
    .unwrap();
    Description { geometry, rules: Rules::Zns, uuid: [9; 16], journal_len: PAGE }
}

fn open(host: &SharedHost, boot: u8) -> crate::error::Result<FileDrive> {
    let boot = Some([boot; 16]);
    FileDrive::open_on(Box::new(host.clone()), Path::new("sim"), OpenMode::ReadWrite, boot)
}

fn block(stamp: u64) -> Sector {
    std::array::from_fn(|at| stamp.to_le_bytes()[at % 8] ^ u8::try_from(at / 8).unwrap())
}

impl Run {
    fn new(seed: u64) -> Self {
        let (host, description) = (SharedHost::default(), description());
        host.lock().len = Layout::new(&description).file_len;
        for copy in [0, 1] {
            let header = encode_header(&description, copy);
            host.write_durable_at(u64::from(copy) * PAGE, header.as_bytes()).unwrap();
        }
        let drive = open(&host, 0).unwrap();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (boot, zones, stamp, in_flight) = (0, Vec::new(), 0, None);
        let mut run = Self { in_flight, host, drive, boot, zones, rng, stamp };
        run.rebase();
        run
    }

    /// Takes the present content of the drive as flushed.
    fn rebase(&mut self) {
        let zones = self.drive.report_all().unwrap();
        self.zones = zones
            .iter()
            .step_by(SPREAD as usize)
            .take(USED as usize)
            .map(|zone| {
                let (life, blocks) = (self.read_life(zone), self.stored(zone));
                History { lives: vec![life], flushed_blocks: blocks, flushed_finish: is_full(zone) }
            })
            .collect();
    }

    /// Blocks of data in a zone, recognised by content: a stamp is never zero.
    fn stored(&self, zone: &Zone) -> usize {
        self.read_life(zone).blocks.len()
    }

    fn read_life(&self, zone: &Zone) -> Life {
        let mut bytes = vec![0; usize::try_from(zone.size.get()).unwrap() * SECTOR];
        self.drive.read(zone.start, &mut bytes).unwrap();
        let sectors: Vec<&[u8]> = bytes.chunks(SECTOR).collect();
        let data = sectors.iter().position(|sector| **sector == [0; SECTOR]).unwrap();
        let rest = sectors[data..].iter().all(|sector| **sector == [0; SECTOR]);
        assert!(rest, "zone {}: something beyond what is written", zone.id);
        let stamp = |sector: &&[u8]| u64::from_le_bytes(sector[..8].try_into().unwrap());
        let blocks: Vec<u64> = sectors[..data].iter().map(stamp).collect();
        for (&stamp, sector) in blocks.iter().zip(&sectors) {
            assert!(**sector == block(stamp), "zone {}: a torn block below the pointer", zone.id);
        }
        if !is_full(zone) {
            assert_eq!(zone.written().unwrap().get(), blocks.len() as u64, "zone {}", zone.id);
        }
        Life { blocks, finished: is_full(zone) }
    }

    /// Runs one random operation; the acknowledged part goes into the history.
    fn step(&mut self) -> crate::error::Result<()> {
        let id = ZoneId::new(self.rng.random_range(0..USED) * SPREAD);
        let one = Select::One(id);
        match self.rng.random_range(0..20) {
            0..=9 => self.write(id)?,
            10..=11 => {
                self.drive.flush()?;
                for zone in &mut self.zones {
                    zone.lives.drain(..zone.lives.len() - 1);
                    zone.flushed_blocks = zone.lives[0].blocks.len();
                    zone.flushed_finish = zone.lives[0].finished;
                }
            }
            12..=14 => {
                self.in_flight = Some(InFlight::Reset(id));
                self.drive.manage(one, ZoneAction::Reset)?;
                self.zones[index(id)].lives.push(Life::default());
            }
            15 => {
                self.in_flight = Some(InFlight::Finish(id));
                self.drive.manage(one, ZoneAction::Finish)?;
                self.zones[index(id)].lives.last_mut().unwrap().finished = true;
            }
            16 => ignore_limits(self.drive.manage(one, ZoneAction::Open))?,
            17 => ignore_limits(self.drive.manage(one, ZoneAction::Close))?,
            _ => {
                let before = self.drive.report_all()?;
                self.restart(self.boot)?;
                assert_eq!(self.drive.report_all()?, before, "a kill changed the zones");
                self.check_exactly();
            }
        }
        self.in_flight = None;
        Ok(())
    }

    fn write(&mut self, id: ZoneId) -> crate::error::Result<()> {
        let life = self.zones[index(id)].lives.last().unwrap();
        let room = CAPACITY - life.blocks.len();
        if life.finished || room == 0 {
            return Ok(());
        }
        let count = self.rng.random_range(1..=room.min(8));
        let stamps: Vec<u64> = (0..count as u64).map(|next| self.stamp + next + 1).collect();
        self.stamp += count as u64;
        self.in_flight = Some(InFlight::Write(id, stamps.clone()));
        let data: Vec<u8> = stamps.iter().flat_map(|&stamp| block(stamp)).collect();
        match self.drive.append(id, &data) {
            Ok(_) => {
                let life = self.zones[index(id)].lives.last_mut().unwrap();
                life.blocks.extend(stamps);
                life.finished = life.blocks.len() == CAPACITY;
                Ok(())
            }
            Err(error) => ignore_limits(Err(error)),
        }
    }

    /// A new process, without anything done for the old one.
    fn restart(&mut self, boot: u8) -> crate::error::Result<()> {
        let next = open(&self.host, boot)?;
        std::mem::forget(std::mem::replace(&mut self.drive, next));
        self.boot = boot;
        Ok(())
    }

    /// Everything acknowledged is there, and nothing else.
    fn check_exactly(&self) {
        for (zone, history) in
            self.drive.report_all().unwrap().iter().step_by(SPREAD as usize).zip(&self.zones)
        {
            let (found, life) = (self.read_life(zone), history.lives.last().unwrap());
            assert_eq!(found.blocks, life.blocks, "zone {}", zone.id);
            assert_eq!(found.finished, life.finished, "zone {}", zone.id);
        }
    }

    /// kill −9 in the middle of an operation: it has happened wholly or not at all, and everything
    /// else is as it was.
    fn kill(&mut self) {
        self.host.lock().operations_left = None;
        self.restart(self.boot).unwrap();
        let zones = self.drive.report_all().unwrap();
        match self.in_flight.take() {
            Some(InFlight::Write(id, stamps)) => {
                let found = self.read_life(&zones[id.index()]);
                let life = self.zones[index(id)].lives.last_mut().unwrap();
                if found.blocks.len() > life.blocks.len() {
                    life.blocks.extend(stamps);
                    life.finished = found.finished;
                }
            }
            Some(InFlight::Reset(id)) if zones[id.index()].cond == ZoneCond::Empty => {
                self.zones[index(id)].lives.push(Life::default());
            }
            Some(InFlight::Finish(id)) => {
                let life = self.zones[index(id)].lives.last_mut().unwrap();
                life.finished = is_full(&zones[id.index()]);
            }
            Some(InFlight::Reset(_)) | None => {}
        }
        self.check_exactly();
    }

    /// Power cut, reboot, and D4 for every zone.
    fn cut(&mut self) {
        self.host.lock().cut(&mut self.rng);
        self.restart(self.boot + 1).unwrap();
        let zones = self.drive.report_all().unwrap();
        let active = zones.iter().filter(|zone| zone.cond.is_active()).count();
        assert!(active <= 4, "{active} active zones");
        for zone in zones.iter().step_by(SPREAD as usize).take(USED as usize) {
            assert!(!zone.cond.is_open(), "zone {} is still open", zone.id);
            let found = self.read_life(zone);
            let history = &self.zones[index(zone.id)];
            let possible = history.lives.iter().enumerate().any(|(index, life)| {
                let least = if index == 0 { history.flushed_blocks } else { 0 };
                let finish_kept = index > 0 || !history.flushed_finish || found.finished;
                found.blocks.len() >= least
                    && life.blocks.starts_with(&found.blocks)
                    && (life.finished || !found.finished)
                    && finish_kept
            });
            let lives: Vec<_> = history.lives.iter().map(|life| &life.blocks).collect();
            assert!(
                possible,
                "zone {} ({}): {:?}, {} were flushed of {lives:?}",
                zone.id,
                zone.cond.name(),
                found.blocks,
                history.flushed_blocks,
            );
        }
        self.rebase();
    }
}

/// Which of the used zones it is.
fn index(id: ZoneId) -> usize {
    (id.get() / SPREAD) as usize
}

fn is_full(zone: &Zone) -> bool {
    zone.cond == ZoneCond::Full
}

fn ignore_limits(result: crate::error::Result<()>) -> crate::error::Result<()> {
    use crate::DeviceError as E;
    match result {
        Err(E::TooManyActive { .. } | E::TooManyOpen { .. } | E::Transition { .. }) => Ok(()),
        other => other,
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..6 {
        {
            let mut host = run.host.lock();
            host.operations_left = Some(run.rng.random_range(0..200));
            host.last_part =
                [LastPart::Nothing, LastPart::Half, LastPart::All][run.rng.random_range(0..3)];
        }
        while run.step().is_ok() {}
        if run.rng.random_bool(0.5) { run.kill() } else { run.cut() }
    }
}

/// `SEED=n` begins with another run, `COUNT=n` makes more or fewer of them.
#[test]
fn power_cut_leaves_prefix_up_to_last_flush() {
    let (first, count) = (repeat::seed(0), repeat::count(400));
    // 1260 once showed that an open has to sync the writes that the killed process left.
    for seed in (first..first + count).chain([1260]) {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "failed with SEED={seed} COUNT=1");
    }
}

#[test]
fn journal_and_snapshot_alternate_many_times() {
    let mut run = Run::new(1);
    for round in 0..600_u64 {
        let zone = ZoneId::new(u32::try_from(round % 3).unwrap());
        run.drive.append(zone, &block(round + 1)).unwrap();
        run.drive.flush().unwrap();
        if run.drive.zone(zone).unwrap().cond == ZoneCond::Full {
            run.drive.manage(Select::One(zone), ZoneAction::Reset).unwrap();
        }
        if round % 100 == 99 {
            run.rebase();
            run.cut();
        }
    }
}

/// A snapshot that rots is noticed, not papered over with an older one.
#[test]
fn snapshot_lost_is_error() {
    let mut run = Run::new(1);
    for round in 0..50_u64 {
        run.drive.append(ZoneId::ZERO, &block(round + 1)).unwrap();
        run.drive.flush().unwrap();
        if run.drive.zone(ZoneId::ZERO).unwrap().cond == ZoneCond::Full {
            run.drive.manage(Select::One(ZoneId::ZERO), ZoneAction::Reset).unwrap();
        }
    }
    run.rebase();
    run.cut();
    let layout = Layout::new(&description());
    for copy in 0..2 {
        let at = layout.snapshot_at + copy * layout.snapshot_len + 20;
        run.host.write_durable_at(at, &[0xff]).unwrap();
    }
    let error = open(&run.host, 99).err().expect("must not open").to_string();
    assert!(error.contains("zone table is damaged"), "{error}");
}

#[test]
fn header_torn_once_is_harmless_twice_is_error() {
    let mut run = Run::new(1);
    run.drive.append(ZoneId::ZERO, &block(1)).unwrap();
    run.drive.flush().unwrap();
    run.rebase();
    run.host.write_durable_at(100, &[1; 60]).unwrap();
    run.cut();
    run.host.write_durable_at(PAGE + 100, &[1; 60]).unwrap();
    let error = open(&run.host, 99).err().expect("must not open").to_string();
    assert!(error.contains("checksum"), "{error}");
}

/// Any bytes in place of the tables: an error or a drive, never a panic.
#[test]
fn tables_damaged_never_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let layout = Layout::new(&description());
    for _ in 0..300 {
        let run = Run::new(1);
        for round in 0..40_u64 {
            let _ =
                run.drive.append(ZoneId::new(u32::try_from(round % 3).unwrap()), &block(round + 1));
            run.drive.flush().unwrap();
        }
        for _ in 0..rng.random_range(1..20) {
            let at = rng.random_range(0..layout.data_at);
            let near = rng.random_range(0..3 * PAGE);
            let at = if rng.random_bool(0.7) { near } else { at };
            let bytes: Vec<u8> = (0..rng.random_range(1..40)).map(|_| rng.random()).collect();
            run.host.write_durable_at(at, &bytes).unwrap();
        }
        let boot = rng.random_range(0..2);
        if let Ok(drive) = open(&run.host, boot) {
            assert_eq!(drive.report_all().unwrap().len() as u64, ZONES);
        }
    }
}
