//! `Limited`: a device with smaller limits of open and active zones than the one below (D2).
//!
//! It keeps its own account of conditions, and closes the least recently used implicitly open zone
//! itself where the device below still has room. Writes to open zones share a lock; a request that
//! may open a zone takes it alone. The account may lag behind the device below only by zones that
//! are active here and not there, and it looks them up again before it refuses anything.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::manage_each;
use crate::device::batch::{Io, Op};
use crate::error::Result;
use crate::limits::{Limits, Room};
use crate::state::{self, Event, Rules, ZoneState};
use crate::{
    DeviceError, Geometry, GeometrySpec, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId,
    ZoneKind, ZonedDevice,
};

/// How many zones may be open and active at once; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneLimits {
    /// Open zones.
    pub open: Option<u32>,
    /// Active zones.
    pub active: Option<u32>,
}

/// A device that keeps to limits of its own.
///
/// ```
/// use zonal::layer::limited::{Limited, ZoneLimits};
/// use zonal::{MemoryDrive, Profile, ZoneCond, ZoneId, ZonedDevice};
/// let drive = MemoryDrive::new(Profile::Small.geometry())?;
/// let drive = Limited::new(drive, ZoneLimits { open: Some(1), active: Some(2) })?;
/// for zone in [3, 4] {
///     drive.append(ZoneId::new(zone), &[1; 4096])?;
/// }
/// assert_eq!(drive.zone(ZoneId::new(3))?.cond, ZoneCond::Closed);
/// assert!(drive.append(ZoneId::new(5), &[1; 4096]).is_err());
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct Limited<D> {
    below: D,
    geometry: Geometry,
    account: RwLock<Account>,
    /// When each zone was last used, in uses so far.
    used: Vec<AtomicU64>,
    uses: AtomicU64,
}

/// Conditions of all zones, and the counts of them.
struct Account {
    conds: Vec<ZoneCond>,
    limits: Limits,
}

impl Account {
    fn cond(&self, zone: ZoneId) -> ZoneCond {
        self.conds[zone.index()]
    }

    fn set(&mut self, zone: ZoneId, cond: ZoneCond) {
        let before = std::mem::replace(&mut self.conds[zone.index()], cond);
        if before != cond {
            self.limits.apply(zone, before, cond);
        }
    }
}

impl<D: ZonedDevice> Limited<D> {
    /// `below` with these limits. Zones that are open or active already count.
    pub fn new(below: D, limits: ZoneLimits) -> Result<Self> {
        let real = *below.geometry();
        let (max_open, max_active) = (limits.open, limits.active);
        let pairs =
            [("open", max_open, real.max_open()), ("active", max_active, real.max_active())];
        for (name, ours, of_drive) in pairs {
            if let Some(most) = of_drive
                && ours.is_none_or(|ours| ours > most)
            {
                let ours = ours.map_or("none".into(), |ours| ours.to_string());
                let what = format!("a limit of {name} zones of {ours} on a drive with {most}");
                return Err(DeviceError::Geometry { what });
            }
        }
        let geometry = Geometry::new(GeometrySpec { max_open, max_active, ..*real.spec() })?;
        let zones = below.report_all()?;
        let conds = zones.iter().map(|_| ZoneCond::Empty).collect();
        let mut account = Account { conds, limits: Limits::new(&geometry) };
        for zone in &zones {
            account.set(zone.id, zone.cond);
        }
        let used = zones.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { below, geometry, account: RwLock::new(account), used, uses: AtomicU64::new(1) })
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    fn shared(&self) -> RwLockReadGuard<'_, Account> {
        self.account.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, Account> {
        self.account.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a use of the zone, unless the request failed.
    fn touch_if<T>(&self, outcome: &Result<T>, zone: ZoneId) {
        if outcome.is_ok() {
            let now = self.uses.fetch_add(1, Ordering::Relaxed);
            self.used[zone.index()].store(now, Ordering::Relaxed);
        }
    }

    /// Books the condition that the device below reports. If it reports none, the zone counts on.
    fn book(&self, account: &mut Account, zone: ZoneId) {
        if let Ok(found) = self.below.zone(zone) {
            account.set(zone, found.cond);
        }
    }

    /// The sequential write required zone that a request writes to, if its place and size are
    /// possible. The limits are of no other zones.
    fn written_zone(&self, op: &Op<'_>) -> Option<(ZoneId, Event)> {
        let (zone, event) = match op {
            Op::Read { .. } | Op::Flush => return None,
            Op::Write { lba, data } => {
                let blocks = self.geometry.blocks_at(*lba, data.len()).ok()?;
                if blocks == LbaCount::ZERO {
                    return None;
                }
                let (zone, offset) = self.geometry.locate(*lba);
                (zone, Event::Write { offset, blocks })
            }
            Op::Append { zone, data } => {
                let blocks = self.geometry.blocks(data.len()).ok()?;
                let is_refused =
                    zone.get() >= self.geometry.zone_count() || blocks > self.geometry.max_append();
                if is_refused || blocks == LbaCount::ZERO {
                    return None;
                }
                (*zone, Event::Append(blocks))
            }
        };
        (self.geometry.kind(zone) == ZoneKind::SequentialRequired).then_some((zone, event))
    }

    /// Whether the zone's condition may have changed by a request to a zone that was open.
    fn may_have_left(&self, zone: ZoneId, bytes: usize, outcome: Option<&Result<Lba>>) -> bool {
        let Some(Ok(lba)) = outcome else { return true };
        let end = self.geometry.zone_start(zone) + self.geometry.capacity_of(zone);
        self.geometry.blocks(bytes).is_ok_and(|blocks| *lba + blocks >= end)
    }

    /// Performs a request by a call.
    fn perform(&self, op: &mut Op<'_>) -> Result<Lba> {
        let Some((zone, event)) = self.written_zone(op) else { return op.perform(&self.below) };
        let account = self.shared();
        if account.cond(zone).is_open() {
            let outcome = op.perform(&self.below);
            drop(account);
            self.touch_if(&outcome, zone);
            if self.may_have_left(zone, op.len(), Some(&outcome)) {
                self.book(&mut self.alone(), zone);
            }
            return outcome;
        }
        drop(account);
        let mut account = self.alone();
        self.make_room(&mut account, Wanted { zone, to: ZoneCond::ImplicitOpen, event })?;
        let outcome = op.perform(&self.below);
        self.touch_if(&outcome, zone);
        self.book(&mut account, zone);
        outcome
    }

    /// Makes sure that the limits have room, or that the device below refuses the request anyway.
    fn make_room(&self, account: &mut Account, wanted: Wanted) -> Result<()> {
        let Wanted { zone, to, event } = wanted;
        if account.limits.room(account.cond(zone), to) == Room::Fits {
            return Ok(());
        }
        let found = self.below.zone(zone)?;
        let written = found.written().unwrap_or_default();
        let state = ZoneState { cond: found.cond, written, ..ZoneState::EMPTY };
        if state::next(Rules::Zns, found.kind, state, event, found.capacity).is_err() {
            return Ok(());
        }
        account.set(zone, found.cond);
        let active: Vec<ZoneId> =
            self.geometry.zones().filter(|zone| account.cond(*zone).is_active()).collect();
        for zone in active {
            self.book(account, zone);
        }
        loop {
            match account.limits.room(account.cond(zone), to) {
                Room::Fits => return Ok(()),
                Room::ActiveFull(limit) => return Err(DeviceError::TooManyActive { zone, limit }),
                Room::OpenFull(limit) => {
                    let used = |zone: &ZoneId| self.used[zone.index()].load(Ordering::Relaxed);
                    let victim = account.limits.implicit().min_by_key(used);
                    let victim = victim.ok_or(DeviceError::TooManyOpen { zone, limit })?;
                    self.below.manage(Select::One(victim), ZoneAction::Close)?;
                    account.set(victim, ZoneCond::Closed);
                }
            }
        }
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) -> Result<()> {
        let one = Select::One(zone);
        if zone.get() >= self.geometry.zone_count() {
            return self.below.manage(one, action);
        }
        let mut account = self.alone();
        if action == ZoneAction::Open {
            let event = Event::Manage(action);
            self.make_room(&mut account, Wanted { zone, to: ZoneCond::ExplicitOpen, event })?;
        }
        let outcome = self.below.manage(one, action);
        self.touch_if(&outcome, zone);
        self.book(&mut account, zone);
        outcome
    }

    /// Zones that a batch writes, each once.
    fn written_zones(&self, batch: &[Io<'_>]) -> BTreeSet<ZoneId> {
        batch.iter().filter_map(|io| self.written_zone(&io.op)).map(|(zone, _)| zone).collect()
    }

    /// Notes the uses of a batch, and returns the zones whose condition may have changed.
    fn note_uses(&self, batch: &[Io<'_>]) -> BTreeSet<ZoneId> {
        let mut left = BTreeSet::new();
        for Io { op, result } in batch {
            if let Some((zone, _)) = self.written_zone(op) {
                if let Some(outcome) = result {
                    self.touch_if(outcome, zone);
                }
                if self.may_have_left(zone, op.len(), result.as_ref()) {
                    left.insert(zone);
                }
            }
        }
        left
    }
}

/// A zone to open, and the event that opens it.
#[derive(Clone, Copy)]
struct Wanted {
    zone: ZoneId,
    to: ZoneCond,
    event: Event,
}

impl<D: ZonedDevice> ZonedDevice for Limited<D> {
    crate::pass_on!(below: read, flush, deallocate, identity, rotates, keep_reserve, use_reserve);

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// No zone changes meanwhile, so the report keeps to the limits.
    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let _account = self.shared();
        self.below.report(first, zones, limit)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.perform(&mut Op::Write { lba, data }).map(drop)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.perform(&mut Op::Append { zone, data })
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match (zones, action) {
            (Select::One(zone), _) => self.manage_one(zone, action),
            (Select::All, ZoneAction::Open) => manage_each(self, action),
            (Select::All, ZoneAction::Close | ZoneAction::Finish | ZoneAction::Reset) => {
                let mut account = self.alone();
                let outcome = self.below.manage(zones, action);
                for zone in self.below.report_all()? {
                    account.set(zone.id, zone.cond);
                }
                outcome
            }
        }
    }

    /// A batch that fits the limits whatever it opens goes below together, any other one by one.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let written = self.written_zones(batch);
        let account = self.shared();
        if written.iter().all(|zone| account.cond(*zone).is_open()) {
            self.below.submit(batch);
            drop(account);
            let left = self.note_uses(batch);
            if !left.is_empty() {
                let mut account = self.alone();
                for zone in left {
                    self.book(&mut account, zone);
                }
            }
            return;
        }
        drop(account);
        let mut account = self.alone();
        let more = |test: fn(ZoneCond) -> bool| {
            written.iter().filter(|zone| !test(account.cond(**zone))).count()
        };
        let fits = |limit: Option<u32>, now: u32, more: usize| {
            limit.is_none_or(|limit| now as usize + more <= limit as usize)
        };
        let (open, active) = (more(ZoneCond::is_open), more(ZoneCond::is_active));
        if fits(self.geometry.max_open(), account.limits.open_count(), open)
            && fits(self.geometry.max_active(), account.limits.active_count(), active)
        {
            self.below.submit(batch);
            self.note_uses(batch);
            for zone in written {
                self.book(&mut account, zone);
            }
            return;
        }
        drop(account);
        for Io { op, result } in batch {
            *result = Some(self.perform(op));
        }
    }
}
