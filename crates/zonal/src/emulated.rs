//! The common part of all emulated drives: checks, the state machine, the limits, locking.
//!
//! An [`Emulated`] drive is this core over a [`Medium`], which only stores: memory in `memory.rs`,
//! a plain file in `file/`. The order of every change is: check, store the data, record the new
//! state in the medium, make it visible. So a reader never sees a pointer beyond the data.
//!
//! Locks, in the order they are taken: a zone's own lock (shared for reads; exclusive for writes
//! and actions), then the limits. A zone's state is one atomic word, so reports take no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use crate::error::Result;
use crate::limits::{Limits, Room};
use crate::state::{self, Event, Refusal, Rules, ZoneState};
use crate::{
    DeviceError, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind,
};

/// A block inside a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockInZone {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// Blocks from its start.
    pub(crate) offset: LbaCount,
}

/// Where an emulated drive keeps its data and its zone states.
///
/// The caller of a method that takes a zone's data has locked that zone; addresses and lengths are
/// checked, and a read never reaches beyond the written blocks.
pub(crate) trait Medium: Send + Sync {
    /// The data of each zone, behind the zone's lock.
    type ZoneData: Send + Sync;

    /// Reads stored bytes.
    fn read(&self, part: &Self::ZoneData, at: BlockInZone, buffer: &mut [u8]) -> Result<()>;

    /// Stores bytes.
    fn write(&self, part: &mut Self::ZoneData, at: BlockInZone, data: &[u8]) -> Result<()>;

    /// Zeroes blocks of a sequential write preferred zone that a write leaves out, because it
    /// begins beyond the write pointer. They have not been written since the last reset.
    fn skip(&self, part: &mut Self::ZoneData, at: BlockInZone, blocks: LbaCount) -> Result<()>;

    /// Discards blocks of a conventional zone: they read as zeroes afterwards, or as before.
    fn deallocate(
        &self,
        part: &mut Self::ZoneData,
        at: BlockInZone,
        blocks: LbaCount,
    ) -> Result<()>;

    /// Records that a zone's state changes. Called before the change is visible; a failure cancels
    /// it.
    fn record(&self, zone: ZoneId, from: ZoneState, to: ZoneState) -> Result<()>;

    /// Discards a zone's data after a reset.
    fn erase(&self, part: &mut Self::ZoneData, zone: ZoneId) -> Result<()>;

    /// Makes everything that returned before this call durable. While `conditions` is locked, no
    /// zone changes its condition.
    fn flush(&self, conditions: &Mutex<Limits>) -> Result<()>;

    /// Zones whose space may have become free by the last flush.
    fn take_emptied(&self) -> Vec<ZoneId> {
        Vec::new()
    }

    /// Gives the space of a locked, empty zone back.
    fn discard(&self, _zone: ZoneId) -> Result<()> {
        Ok(())
    }

    /// The state of a zone that another process may have changed since it was cached.
    fn refresh(&self, _zone: ZoneId, cached: ZoneState) -> Result<ZoneState> {
        Ok(cached)
    }
}

/// An emulated drive over a medium.
pub(crate) struct Emulated<M: Medium> {
    geometry: Geometry,
    rules: Rules,
    slots: Box<[Slot<M::ZoneData>]>,
    limits: Mutex<Limits>,
    /// Counts uses, for the least recently used open zone.
    uses: AtomicU64,
    medium: M,
}

struct Slot<P> {
    /// `written << 4 | non_sequential << 3 | condition`.
    word: AtomicU64,
    /// When the zone was last opened or written, in `uses`.
    used: AtomicU64,
    part: RwLock<P>,
}

impl<P> Slot<P> {
    fn state(&self) -> ZoneState {
        let word = self.word.load(Ordering::Acquire);
        let cond = ZoneCond::ALL[(word & 7) as usize];
        ZoneState { cond, written: LbaCount::new(word >> 4), non_sequential: word & 8 != 0 }
    }

    fn set(&self, state: ZoneState) {
        self.word.store(pack(state), Ordering::Release);
    }

    fn lock(&self) -> RwLockWriteGuard<'_, P> {
        self.part.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pack(state: ZoneState) -> u64 {
    state.written.get() << 4 | u64::from(state.non_sequential) << 3 | state.cond as u64
}

/// The state of a zone on a new drive.
pub(crate) fn initial_state(geometry: &Geometry, zone: ZoneId) -> ZoneState {
    match geometry.kind(zone) {
        ZoneKind::Conventional => ZoneState::NOT_WP,
        ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => ZoneState::EMPTY,
    }
}

impl<M: Medium> Emulated<M> {
    /// A drive with the given states and data, both in the order of zones.
    pub(crate) fn new(
        geometry: Geometry,
        rules: Rules,
        medium: M,
        zones: impl Iterator<Item = (ZoneState, M::ZoneData)>,
    ) -> Self {
        let mut limits = Limits::new(&geometry);
        let slots: Box<[_]> = zones
            .zip(geometry.zones())
            .map(|((state, part), zone)| {
                limits.apply(zone, ZoneCond::Empty, state.cond);
                Slot {
                    word: AtomicU64::new(pack(state)),
                    used: AtomicU64::new(0),
                    part: RwLock::new(part),
                }
            })
            .collect();
        assert_eq!(slots.len(), geometry.zone_count() as usize, "one state for each zone");
        let (limits, uses) = (Mutex::new(limits), AtomicU64::new(1));
        Self { geometry, rules, slots, limits, uses, medium }
    }

    /// Whether it stands for a disk: all drives with zones of SCSI are shingled disks.
    pub(crate) fn rotates(&self) -> bool {
        self.rules == Rules::Zbc
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn medium(&self) -> &M {
        &self.medium
    }

    fn slot(&self, zone: ZoneId) -> Result<&Slot<M::ZoneData>> {
        self.slots.get(zone.index()).ok_or(DeviceError::NoSuchZone { zone })
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let end = first.index().saturating_add(limit).min(self.slots.len());
        for (slot, zone) in self.slots[..end].iter().zip(self.geometry.zones()).skip(first.index())
        {
            let state = self.medium.refresh(zone, slot.state())?;
            zones.push(describe(&self.geometry, zone, state));
        }
        Ok(())
    }

    pub(crate) fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let blocks = self.geometry.blocks_at(lba, buffer.len())?;
        let (mut at, mut left, mut rest) = (lba, blocks, buffer);
        while left > LbaCount::ZERO {
            let (zone, offset) = self.geometry.locate(at);
            let count = left.min(self.geometry.size_of(zone) - offset);
            let (head, tail) = rest.split_at_mut(self.byte_len(count));
            self.read_in_zone(BlockInZone { zone, offset }, head)?;
            (at, left, rest) = (at + count, left - count, tail);
        }
        Ok(())
    }

    /// Reads the written blocks, and zeroes beyond.
    fn read_in_zone(&self, at: BlockInZone, buffer: &mut [u8]) -> Result<()> {
        let slot = &self.slots[at.zone.index()];
        let part = slot.part.read().unwrap_or_else(PoisonError::into_inner);
        let state = self.medium.refresh(at.zone, slot.state())?;
        if state.cond == ZoneCond::Offline {
            return Err(DeviceError::ZoneOffline { zone: at.zone });
        }
        let stored = match self.geometry.kind(at.zone) {
            ZoneKind::Conventional => self.geometry.size_of(at.zone),
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => state.written,
        };
        let stored = self.byte_len(stored.saturating_sub(at.offset)).min(buffer.len());
        let (head, tail) = buffer.split_at_mut(stored);
        tail.fill(0);
        if head.is_empty() { Ok(()) } else { self.medium.read(&part, at, head) }
    }

    pub(crate) fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let blocks = self.geometry.blocks_at(lba, data.len())?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let (zone, offset) = self.geometry.locate(lba);
        self.store(zone, Event::Write { offset, blocks }, data).map(drop)
    }

    pub(crate) fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let blocks = self.geometry.blocks(data.len())?;
        let limit = self.geometry.max_append();
        if blocks == LbaCount::ZERO {
            let zone = describe(&self.geometry, zone, self.slot(zone)?.state());
            return Ok(zone.wp.unwrap_or(zone.start));
        }
        if blocks > limit {
            return Err(DeviceError::AppendTooLarge { blocks, limit });
        }
        self.store(zone, Event::Append(blocks), data)
    }

    pub(crate) fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let Some((zone, offset)) = self.geometry.locate_conventional(lba, blocks)? else {
            return Ok(());
        };
        let slot = self.slot(zone)?;
        let mut part = slot.lock();
        // It is refused where a write would be.
        self.decide(zone, slot.state(), Event::Write { offset, blocks })?;
        self.medium.deallocate(&mut part, BlockInZone { zone, offset }, blocks)
    }

    /// Writes and appends: returns where the data went.
    fn store(&self, zone: ZoneId, event: Event, data: &[u8]) -> Result<Lba> {
        let slot = self.slot(zone)?;
        let mut part = slot.lock();
        let before = slot.state();
        let to = self.decide(zone, before, event)?;
        let offset = match event {
            Event::Write { offset, .. } => offset,
            Event::Append(_)
            | Event::Manage(_)
            | Event::CloseImplicitly
            | Event::PowerCycle
            | Event::FailWrites
            | Event::FailWholly => before.written,
        };
        let skipped = match self.geometry.kind(zone) {
            ZoneKind::SequentialPreferred => offset.saturating_sub(before.written),
            ZoneKind::Conventional | ZoneKind::SequentialRequired => LbaCount::ZERO,
        };
        if skipped > LbaCount::ZERO {
            self.medium.skip(&mut part, BlockInZone { zone, offset: before.written }, skipped)?;
        }
        let open = self.open_for_write(zone, before)?;
        let stored = self
            .medium
            .write(&mut part, BlockInZone { zone, offset }, data)
            .and_then(|()| self.advance(zone, open, to));
        if let Err(error) = stored {
            // A failed write leaves the zone as it was. If the medium cannot even record that, the
            // zone stays open.
            if open != before {
                let _ = self.transition(zone, open, before);
            }
            return Err(error);
        }
        Ok(self.geometry.zone_start(zone) + offset)
    }

    /// The state of a zone that is about to be written: it is open. A write that fills the zone at
    /// once passes through open too, and needs room.
    fn open_for_write(&self, zone: ZoneId, from: ZoneState) -> Result<ZoneState> {
        // A Full zone that takes a write stays Full.
        if matches!(from.cond, ZoneCond::NotWp | ZoneCond::Full) {
            return Ok(from);
        }
        if self.geometry.max_open().is_some() {
            let now = self.uses.fetch_add(1, Ordering::Relaxed);
            self.slots[zone.index()].used.store(now, Ordering::Relaxed);
        }
        if from.cond.is_open() {
            return Ok(from);
        }
        let open = ZoneState { cond: ZoneCond::ImplicitOpen, ..from };
        self.transition(zone, from, open)?;
        Ok(open)
    }

    /// Moves the write pointer over the stored data; the zone may become Full.
    fn advance(&self, zone: ZoneId, from: ZoneState, to: ZoneState) -> Result<()> {
        if to.cond != from.cond {
            return self.transition(zone, from, to);
        }
        if to != from {
            self.medium.record(zone, from, to)?;
            self.slots[zone.index()].set(to);
        }
        Ok(())
    }

    pub(crate) fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match zones {
            Select::One(zone) => self.manage_one(zone, action),
            Select::All => {
                if action == ZoneAction::Open
                    && let Room::OpenFull(limit) = self.limits().room_for_all_closed()
                {
                    return Err(DeviceError::TooManyOpen { zone: ZoneId::ZERO, limit });
                }
                for (slot, zone) in self.slots.iter().zip(self.geometry.zones()) {
                    if state::selected_by_all(action, slot.state().cond) {
                        self.manage_one(zone, action)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) -> Result<()> {
        let slot = self.slot(zone)?;
        let mut part = slot.lock();
        let from = slot.state();
        let to = self.decide(zone, from, Event::Manage(action))?;
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if to != from {
            self.transition(zone, from, to)?;
        }
        if action == ZoneAction::Reset && from.written > LbaCount::ZERO {
            self.medium.erase(&mut part, zone)?;
        }
        Ok(())
    }

    /// Makes a zone ReadOnly or Offline, as a failing drive does on its own.
    pub(crate) fn fail(&self, zone: ZoneId, event: Event) -> Result<()> {
        let slot = self.slot(zone)?;
        let _part = slot.lock();
        let from = slot.state();
        let to = self.decide(zone, from, event)?;
        self.transition(zone, from, to)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.medium.flush(&self.limits)?;
        let discard = |zone: ZoneId| {
            let slot = self.slot(zone)?;
            let _part = slot.lock();
            if slot.state().written == LbaCount::ZERO { self.medium.discard(zone) } else { Ok(()) }
        };
        // A zone that fails keeps no other from giving its space back.
        self.medium.take_emptied().into_iter().map(discard).fold(Ok(()), Result::and)
    }

    /// Changes a zone's condition as soon as the limits have room for it. The caller holds the
    /// zone's lock.
    ///
    /// If every zone that could be closed implicitly is being written, this waits for the lock of
    /// the least recently used one. That cannot deadlock: the waiting thread holds the lock of a
    /// zone that is not open, and a thread that writes an open zone needs no other lock of a zone.
    fn transition(&self, zone: ZoneId, from: ZoneState, to: ZoneState) -> Result<()> {
        loop {
            let mut limits = self.limits();
            match limits.room(from.cond, to.cond) {
                Room::Fits => {
                    self.medium.record(zone, from, to)?;
                    limits.apply(zone, from.cond, to.cond);
                    self.slots[zone.index()].set(to);
                    return Ok(());
                }
                Room::ActiveFull(limit) => return Err(DeviceError::TooManyActive { zone, limit }),
                Room::OpenFull(limit) => {
                    let used =
                        |zone: &ZoneId| self.slots[zone.index()].used.load(Ordering::Relaxed);
                    let mut victims: Vec<ZoneId> = limits.implicit().collect();
                    victims.sort_by_key(used);
                    let Some(&oldest) = victims.first() else {
                        return Err(DeviceError::TooManyOpen { zone, limit });
                    };
                    if !self.close_first(&mut limits, &victims)? {
                        drop(limits);
                        drop(self.slots[oldest.index()].lock());
                    }
                }
            }
        }
    }

    /// Closes the first of `victims` that is not being written right now; `false` if there is none.
    fn close_first(&self, limits: &mut Limits, victims: &[ZoneId]) -> Result<bool> {
        for &victim in victims {
            let slot = &self.slots[victim.index()];
            let _part = match slot.part.try_write() {
                Ok(part) => part,
                Err(TryLockError::Poisoned(part)) => part.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            let from = slot.state();
            let to = self.decide(victim, from, Event::CloseImplicitly)?;
            self.medium.record(victim, from, to)?;
            limits.apply(victim, from.cond, to.cond);
            slot.set(to);
            return Ok(true);
        }
        Ok(false)
    }

    /// The state machine's answer, with the facts of this zone.
    fn decide(&self, zone: ZoneId, from: ZoneState, event: Event) -> Result<ZoneState> {
        let (kind, capacity) = (self.geometry.kind(zone), self.geometry.capacity_of(zone));
        state::next(self.rules, kind, from, event, capacity)
            .map_err(|refusal| self.explain(zone, from, event, refusal))
    }

    #[cold]
    fn explain(&self, zone: ZoneId, from: ZoneState, event: Event, why: Refusal) -> DeviceError {
        let start = self.geometry.zone_start(zone);
        let (offset, blocks) = match event {
            Event::Write { offset, blocks } => (offset, blocks),
            Event::Append(blocks) => (from.written, blocks),
            Event::Manage(_)
            | Event::CloseImplicitly
            | Event::PowerCycle
            | Event::FailWrites
            | Event::FailWholly => (from.written, LbaCount::ZERO),
        };
        let lba = start + offset;
        match why {
            Refusal::Full => DeviceError::ZoneFull { zone },
            Refusal::ReadOnly => DeviceError::ZoneReadOnly { zone },
            Refusal::Offline => DeviceError::ZoneOffline { zone },
            Refusal::NotAtWritePointer => {
                DeviceError::NotAtWritePointer { zone, wp: start + from.written, lba }
            }
            Refusal::Boundary => DeviceError::CrossesZone { zone, lba, blocks },
            Refusal::Conventional => DeviceError::Conventional { zone },
            Refusal::Transition => match event {
                Event::Manage(action) => DeviceError::Transition { zone, cond: from.cond, action },
                // The device makes its own changes only where they are possible, unless the zone is
                // Offline.
                Event::Write { .. }
                | Event::Append(_)
                | Event::CloseImplicitly
                | Event::PowerCycle
                | Event::FailWrites
                | Event::FailWholly => DeviceError::ZoneOffline { zone },
            },
        }
    }

    fn byte_len(&self, count: LbaCount) -> usize {
        usize::try_from(self.geometry.bytes(count).get()).expect("a buffer's length fits")
    }
}

/// The zone as it is reported.
fn describe(geometry: &Geometry, zone: ZoneId, state: ZoneState) -> Zone {
    let (start, capacity) = (geometry.zone_start(zone), geometry.capacity_of(zone));
    let wp = match state.cond {
        ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => None,
        ZoneCond::Full => Some(start + capacity),
        ZoneCond::Empty | ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed => {
            Some(start + state.written)
        }
    };
    // D1: the pointer is inside the capacity.
    assert!(state.written <= capacity, "zone {zone} holds more than its capacity");
    let (kind, cond, size) = (geometry.kind(zone), state.cond, geometry.size_of(zone));
    let non_sequential = state.non_sequential;
    Zone { id: zone, kind, cond, start, size, capacity, wp, non_sequential }
}
