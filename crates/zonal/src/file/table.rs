//! The zone table of a drive file: which states are true after the process or the host stopped.
//!
//! The states are kept twice, for two ways to stop:
//!
//! - The *live table* gets each change of a zone with one small write, after the data. It is exact
//!   for as long as the host's page cache lives: through kill −9 at any moment, but not through a
//!   power cut of the host, which may keep the entry and lose the data. So it names the boot of the
//!   host that keeps it, and counts only under the same boot.
//! - The *durable table* is a snapshot and a journal of changes. A record is written by `flush`,
//!   after the data that it speaks of is durable. After another boot it counts instead: every state
//!   in it is true of flushed data (D4).
//!
//! The host may forget data that it could not write and still return it to readers: its page cache
//! has it, and the next sync succeeds. So a sync or a durable write that fails takes the live
//! table's head away: the drive is opened with the durable table from then on, as after a power
//! cut, and the durable table is written anew.
//!
//! One change must not wait for a flush. A write into a zone that was reset overwrites data
//! that the durable table may still promise, or that a flush under way is about to promise. So the
//! reset is journalled first, and the flush leaves the zone out ([`Table::discard_stale`]).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zerocopy::{FromBytes, IntoBytes};

use super::backing::Backing;
use super::format::{
    CHECKED_FROM, Description, JOURNAL_UNIT, LIVE_MAGIC, Layout, LiveHeader, PAGE_LEN,
    RECORD_MAGIC, RecordHeader, SNAPSHOT_MAGIC, SnapshotHeader, ZoneEntry, decode_entry,
    decode_state, encode_entry, encode_state,
};
use crate::crc32c;
use crate::emulated::initial_state;
use crate::limits::Limits;
use crate::state::{Event, ZoneState, next};
use crate::{Geometry, LbaCount, ZoneId};

/// Identity of one run of the host's kernel; `None` where it cannot be known.
pub(crate) type BootId = Option<[u8; 16]>;

/// The durable table as found, and where its journal goes on.
#[derive(Debug)]
struct Durable {
    states: Vec<ZoneState>,
    /// Number of the last record.
    seq: u64,
    /// Byte of the journal where the next record goes.
    tail: u64,
    /// Which snapshot holds the newest state.
    copy: u32,
}

/// The table of an open drive.
pub(crate) struct Table {
    geometry: Geometry,
    layout: Layout,
    uuid: [u8; 16],
    /// Newest recorded state of each zone, encoded.
    latest: Box<[AtomicU64]>,
    /// Zones whose newest state is not in the durable table. A flag is set after `latest`, and
    /// cleared before `latest` is read.
    dirty: Box<[AtomicBool]>,
    dirty_list: Mutex<Vec<ZoneId>>,
    /// Zones that were reset; the durable table may still promise their old data.
    stale: Box<[AtomicBool]>,
    /// Zones whose space can be given back once their reset is durable.
    emptied: Mutex<BTreeSet<ZoneId>>,
    /// Whether data was written since the last flush.
    data: AtomicBool,
    /// Whether the drive had a live table when it was opened.
    has_live_head: bool,
    /// Held during a flush. Taken before the lock of the journal.
    flushing: Mutex<()>,
    journal: Mutex<Journal>,
}

/// The state for making zone states durable, which only one thread at a time may do.
struct Journal {
    durable: Durable,
    /// The states that the running flush commits when its data is durable.
    promised: Vec<(ZoneId, ZoneState)>,
    /// A write that should have become durable failed: the content of the medium is unknown.
    broken: bool,
}

/// The states to open with.
pub(crate) struct Recovered {
    /// One for each zone.
    pub(crate) states: Vec<ZoneState>,
    /// Whether they come from the live table of this boot.
    pub(crate) live: bool,
    /// Whether there is a live table of any boot. Otherwise the durable table that was read may not
    /// be on the medium.
    has_live_head: bool,
    durable: Durable,
}

/// Reads both tables and decides which one counts.
pub(crate) fn recover(
    backing: &dyn Backing,
    drive: &Description,
    boot: BootId,
) -> std::io::Result<Result<Recovered, String>> {
    let (geometry, layout) = (&drive.geometry, Layout::new(drive));
    let read = |at: u64, end: u64| {
        let len = usize::try_from(end - at).expect("a table fits in memory");
        let mut bytes = vec![0; len];
        backing.read_at(at, &mut bytes).map(|()| bytes)
    };
    let snapshots = read(layout.snapshot_at, layout.journal_at)?;
    let journal = read(layout.journal_at, layout.journal_at + layout.journal_len)?;
    let durable = match parse_durable(drive, &snapshots, &journal) {
        Ok(durable) => durable,
        Err(why) => return Ok(Err(why)),
    };
    let live = read(layout.live_at, layout.snapshot_at)?;
    let has_live_head = live.starts_with(&LIVE_MAGIC);
    if let Some(states) = parse_live(drive, &live, boot) {
        return Ok(Ok(Recovered { states, live: true, has_live_head, durable }));
    }
    let cycle = |(&state, zone): (&ZoneState, ZoneId)| {
        next(drive.rules, geometry.kind(zone), state, Event::PowerCycle, geometry.capacity_of(zone))
            .expect("every zone can be power cycled")
    };
    let states = durable.states.iter().zip(geometry.zones()).map(cycle).collect();
    Ok(Ok(Recovered { states, live: false, has_live_head, durable }))
}

/// The live table, if it is of this boot and every entry is valid.
fn parse_live(drive: &Description, bytes: &[u8], boot: BootId) -> Option<Vec<ZoneState>> {
    let (header, _) = LiveHeader::read_from_prefix(bytes).ok()?;
    let valid = header.magic == LIVE_MAGIC
        && header.uuid == drive.uuid
        && Some(header.boot) == boot
        && header.crc == crc32c::crc32c(&header.as_bytes()[CHECKED_FROM..]);
    let entries = bytes.get(PAGE_LEN..)?;
    let count = drive.geometry.zone_count() as usize;
    let (entries, _) = <[ZoneEntry]>::ref_from_prefix_with_elems(entries, count).ok()?;
    if !valid {
        return None;
    }
    let decode = |(entry, zone)| decode_entry(&drive.geometry, zone, entry);
    entries.iter().zip(drive.geometry.zones()).map(decode).collect()
}

/// The newest snapshot and the records after it. An error where something newer must have been
/// there: that state would be wrong about flushed data.
fn parse_durable(drive: &Description, snapshots: &[u8], journal: &[u8]) -> Result<Durable, String> {
    let half = snapshots.len() / 2;
    let newest = [(0, &snapshots[..half]), (1, &snapshots[half..])]
        .into_iter()
        .filter_map(|(copy, bytes)| parse_snapshot(drive, bytes, copy))
        .max_by_key(|durable| durable.seq);
    let mut durable = newest.unwrap_or_else(|| Durable {
        states: drive.geometry.zones().map(|zone| initial_state(&drive.geometry, zone)).collect(),
        seq: 0,
        tail: 0,
        copy: 1,
    });
    while let Some((seq, entries)) = parse_record(drive, journal, durable.tail) {
        if seq > durable.seq + 1 {
            let last = durable.seq;
            return Err(format!(
                "the zone table is damaged: the journal goes on at {seq}, its snapshot ends at {last}"
            ));
        }
        if seq <= durable.seq {
            break; // Of the lap before.
        }
        for entry in entries {
            let zone = ZoneId::new(entry.zone.get());
            let state = (zone.get() < drive.geometry.zone_count())
                .then(|| decode_entry(&drive.geometry, zone, entry))
                .flatten()
                .ok_or_else(|| format!("journal record {seq} has a bad entry for zone {zone}"))?;
            durable.states[zone.index()] = state;
        }
        durable.seq = seq;
        durable.tail += record_len(entries.len());
    }
    Ok(durable)
}

fn parse_snapshot(drive: &Description, bytes: &[u8], copy: u32) -> Option<Durable> {
    let (header, words) = SnapshotHeader::read_from_prefix(bytes).ok()?;
    let count = drive.geometry.zone_count();
    let words = words.get(..count as usize * 8)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header.as_bytes()[CHECKED_FROM..]), words);
    let valid = header.magic == SNAPSHOT_MAGIC
        && header.copy == copy
        && header.zone_count == count
        && header.uuid == drive.uuid
        && header.crc == crc;
    if !valid {
        return None;
    }
    let words = <[zerocopy::little_endian::U64]>::ref_from_bytes(words).ok()?;
    let states = words
        .iter()
        .zip(drive.geometry.zones())
        .map(|(word, zone)| decode_state(&drive.geometry, zone, word.get()))
        .collect::<Option<_>>()?;
    Some(Durable { states, seq: header.seq.get(), tail: 0, copy })
}

/// The record at `tail`, if there is a valid one: its number and entries.
fn parse_record<'a>(
    drive: &Description,
    journal: &'a [u8],
    tail: u64,
) -> Option<(u64, &'a [ZoneEntry])> {
    let bytes = journal.get(usize::try_from(tail).ok()?..)?;
    let (header, body) = RecordHeader::read_from_prefix(bytes).ok()?;
    let count = header.count.get() as usize;
    let body = body.get(..count.checked_mul(size_of::<ZoneEntry>())?)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header.as_bytes()[CHECKED_FROM..]), body);
    let valid = header.magic == RECORD_MAGIC
        && header.uuid == drive.uuid
        && u64::from(header.unit.get()) * JOURNAL_UNIT == tail
        && header.crc == crc;
    if !valid {
        return None;
    }
    Some((header.seq.get(), <[ZoneEntry]>::ref_from_bytes(body).ok()?))
}

fn record_len(entries: usize) -> u64 {
    let len = size_of::<RecordHeader>() + entries * size_of::<ZoneEntry>();
    (len as u64).next_multiple_of(JOURNAL_UNIT)
}

impl Table {
    pub(crate) fn new(drive: &Description, recovered: Recovered) -> Self {
        let Recovered { states, durable, has_live_head, .. } = recovered;
        let flags = |flag: &dyn Fn(usize) -> bool| {
            (0..states.len()).map(|index| AtomicBool::new(flag(index))).collect::<Box<[_]>>()
        };
        let is_dirty = |index: usize| states[index] != durable.states[index];
        let is_stale = |index: usize| {
            states[index].written == LbaCount::ZERO
                && durable.states[index].written > LbaCount::ZERO
        };
        let pick = |flag: &dyn Fn(usize) -> bool| {
            drive.geometry.zones().filter(|zone| flag(zone.index())).collect::<Vec<_>>()
        };
        let dirty_list = Mutex::new(pick(&is_dirty));
        let emptied = pick(&is_stale).into_iter().collect();
        Self {
            geometry: drive.geometry,
            layout: Layout::new(drive),
            uuid: drive.uuid,
            latest: states.iter().map(|&state| AtomicU64::new(encode_state(state))).collect(),
            dirty: flags(&is_dirty),
            dirty_list,
            stale: flags(&is_stale),
            emptied: Mutex::new(emptied),
            // Open has synced everything that the last process wrote.
            data: AtomicBool::new(false),
            has_live_head,
            flushing: Mutex::new(()),
            journal: Mutex::new(Journal { durable, promised: Vec::new(), broken: false }),
        }
    }

    /// Writes the whole live table and then the boot it is true in.
    fn rewrite_live(&self, backing: &dyn Backing, boot: BootId) -> std::io::Result<()> {
        backing.write_at(self.layout.live_at, &[0; size_of::<LiveHeader>()])?;
        let entry = |zone: ZoneId| encode_entry(zone, self.latest(zone));
        let entries: Vec<ZoneEntry> = self.geometry.zones().map(entry).collect();
        backing.write_at(self.layout.live_entry_at(ZoneId::ZERO), entries.as_bytes())?;
        let Some(boot) = boot else { return Ok(()) };
        let mut header = LiveHeader {
            magic: LIVE_MAGIC,
            crc: 0.into(),
            reserved: 0.into(),
            uuid: self.uuid,
            boot,
        };
        header.crc = crc32c::crc32c(&header.as_bytes()[CHECKED_FROM..]).into();
        backing.write_at(self.layout.live_at, header.as_bytes())
    }

    fn latest(&self, zone: ZoneId) -> ZoneState {
        let word = self.latest[zone.index()].load(Ordering::Acquire);
        decode_state(&self.geometry, zone, word).expect("only states of the zone are recorded")
    }

    /// Records a change in the live table. The caller holds the zone's lock.
    pub(crate) fn record(
        &self,
        backing: &dyn Backing,
        zone: ZoneId,
        from: ZoneState,
        to: ZoneState,
    ) -> std::io::Result<()> {
        let entry = encode_entry(zone, to);
        backing.write_at(self.layout.live_entry_at(zone), entry.as_bytes())?;
        let index = zone.index();
        if to.written < from.written {
            self.stale[index].store(true, Ordering::Release);
        }
        self.latest[index].store(encode_state(to), Ordering::Release);
        if !self.dirty[index].swap(true, Ordering::AcqRel) {
            lock(&self.dirty_list).push(zone);
        }
        Ok(())
    }

    /// Takes the data that a zone had before its reset out of the durable table. Callers do that
    /// before they write blocks of the zone for the first time since the reset, with the zone
    /// locked.
    pub(crate) fn discard_stale(&self, backing: &dyn Backing, zone: ZoneId) -> std::io::Result<()> {
        if !self.stale[zone.index()].load(Ordering::Acquire) {
            return Ok(());
        }
        let mut journal = self.journal();
        // The zone has changed since and is dirty again: the next flush commits it.
        journal.promised.retain(|(promised, _)| *promised != zone);
        if journal.durable.states[zone.index()].written > LbaCount::ZERO {
            self.commit(backing, &mut journal, &[(zone, ZoneState::EMPTY)])?;
        }
        self.stale[zone.index()].store(false, Ordering::Release);
        Ok(())
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        lock(&self.journal)
    }

    /// Makes everything that returned before this call durable: data first, then the states that
    /// speak of it. Zones are written and reset meanwhile.
    pub(crate) fn flush(
        &self,
        backing: &dyn Backing,
        conditions: &Mutex<Limits>,
    ) -> std::io::Result<()> {
        let _turn = lock(&self.flushing);
        let mut journal = self.journal();
        journal.check()?;
        journal.promised = self.take_dirty(conditions);
        if !self.take_data_mark() && journal.promised.is_empty() {
            return Ok(());
        }
        drop(journal);
        let synced = backing.sync();
        let mut journal = self.journal();
        let changes = std::mem::take(&mut journal.promised);
        if synced.is_err() {
            self.distrust(backing, &mut journal);
        }
        synced?;
        if changes.is_empty() { Ok(()) } else { self.commit(backing, &mut journal, &changes) }
    }

    /// The changed states, to be committed. No condition changes meanwhile, so that together they
    /// keep the limits (D2).
    fn take_dirty(&self, conditions: &Mutex<Limits>) -> Vec<(ZoneId, ZoneState)> {
        let _held = lock(conditions);
        let zones = std::mem::take(&mut *lock(&self.dirty_list));
        let take = |zone: ZoneId| {
            self.dirty[zone.index()].swap(false, Ordering::AcqRel);
            (zone, self.latest(zone))
        };
        zones.into_iter().map(take).collect()
    }

    /// Notes that data was written.
    pub(crate) fn mark_data(&self) {
        self.data.store(true, Ordering::Release);
    }

    /// Whether data was written since the last call.
    fn take_data_mark(&self) -> bool {
        self.data.swap(false, Ordering::AcqRel)
    }

    /// Makes states durable: a record, or a snapshot where the journal has no room. The data they
    /// speak of must be durable already.
    fn commit(
        &self,
        backing: &dyn Backing,
        journal: &mut Journal,
        changes: &[(ZoneId, ZoneState)],
    ) -> std::io::Result<()> {
        journal.check()?;
        for &(zone, state) in changes {
            journal.durable.states[zone.index()] = state;
        }
        journal.durable.seq += 1;
        let written = if journal.durable.tail + record_len(changes.len()) <= self.layout.journal_len
        {
            self.write_record(backing, &mut journal.durable, changes)
        } else {
            self.write_snapshot(backing, &mut journal.durable)
        };
        if written.is_err() {
            self.distrust(backing, journal);
        }
        written
    }

    /// A write that should have become durable may be lost. The states of the live table speak of
    /// it, so that table must not count any more.
    fn distrust(&self, backing: &dyn Backing, journal: &mut Journal) {
        journal.broken = true;
        self.forget_live(backing);
    }

    /// Takes the head of the live table away.
    pub(crate) fn forget_live(&self, backing: &dyn Backing) {
        if let Err(error) = backing.write_at(self.layout.live_at, &[0; size_of::<LiveHeader>()]) {
            tracing::error!(%error, "the next process may rely on what was not written");
        }
    }

    /// Begins both tables of a drive that is not opened by its live one, once all else is durable.
    pub(crate) fn renew(&self, backing: &dyn Backing, boot: BootId) -> std::io::Result<()> {
        if !self.has_live_head {
            let mut journal = self.journal();
            journal.durable.seq += 1;
            self.write_snapshot(backing, &mut journal.durable)?;
        }
        self.rewrite_live(backing, boot)
    }

    fn write_record(
        &self,
        backing: &dyn Backing,
        durable: &mut Durable,
        changes: &[(ZoneId, ZoneState)],
    ) -> std::io::Result<()> {
        let unit = u32::try_from(durable.tail / JOURNAL_UNIT).expect("the journal is short");
        let count = u32::try_from(changes.len()).expect("no more changes than zones");
        let mut header = RecordHeader {
            magic: RECORD_MAGIC,
            crc: 0.into(),
            unit: unit.into(),
            seq: durable.seq.into(),
            count: count.into(),
            reserved: 0.into(),
            uuid: self.uuid,
        };
        let entries: Vec<ZoneEntry> =
            changes.iter().map(|&(zone, state)| encode_entry(zone, state)).collect();
        header.crc = crc32c::crc32c_append(
            crc32c::crc32c(&header.as_bytes()[CHECKED_FROM..]),
            entries.as_bytes(),
        )
        .into();
        let len = record_len(changes.len());
        let mut bytes = [header.as_bytes(), entries.as_bytes()].concat();
        bytes.resize(usize::try_from(len).expect("a record is short"), 0);
        backing.write_durable_at(self.layout.journal_at + durable.tail, &bytes)?;
        durable.tail += len;
        Ok(())
    }

    /// Writes the other snapshot and starts the journal again. Until the snapshot is complete, the
    /// one before and the full journal count.
    fn write_snapshot(&self, backing: &dyn Backing, durable: &mut Durable) -> std::io::Result<()> {
        let copy = 1 - durable.copy;
        let words: Vec<zerocopy::little_endian::U64> =
            durable.states.iter().map(|&state| encode_state(state).into()).collect();
        let mut header = SnapshotHeader {
            magic: SNAPSHOT_MAGIC,
            crc: 0.into(),
            copy: copy.into(),
            seq: durable.seq.into(),
            zone_count: self.geometry.zone_count().into(),
            reserved: 0.into(),
            uuid: self.uuid,
        };
        header.crc = crc32c::crc32c_append(
            crc32c::crc32c(&header.as_bytes()[CHECKED_FROM..]),
            words.as_bytes(),
        )
        .into();
        let at = self.layout.snapshot_at + u64::from(copy) * self.layout.snapshot_len;
        backing.write_durable_at(at, &[header.as_bytes(), words.as_bytes()].concat())?;
        (durable.copy, durable.tail) = (copy, 0);
        Ok(())
    }

    /// Remembers that a zone's space is free once its reset is durable.
    pub(crate) fn mark_emptied(&self, zone: ZoneId) {
        lock(&self.emptied).insert(zone);
    }

    /// Whether neither the durable table nor a flush under way promises data of a zone.
    pub(crate) fn promises_nothing(&self, zone: ZoneId) -> bool {
        let journal = self.journal();
        journal.durable.states[zone.index()].written == LbaCount::ZERO
            && journal.promised.iter().all(|(promised, _)| *promised != zone)
    }

    /// Takes the zones that were marked, once.
    pub(crate) fn take_emptied(&self) -> Vec<ZoneId> {
        std::mem::take(&mut *lock(&self.emptied)).into_iter().collect()
    }
}

impl Journal {
    /// Fails if an earlier write failed: the kernel may have dropped data that it could not write,
    /// so success later would say nothing about it.
    fn check(&self) -> std::io::Result<()> {
        if self.broken {
            return Err(std::io::Error::other("an earlier write to the zone table or sync failed"));
        }
        Ok(())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
