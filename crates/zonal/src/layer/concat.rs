//! `Concat`: several drives, one behind the other, shown as one drive.
//!
//! All members have the same block size, zone size, zone capacity and kind of sequential zones. Any
//! of them may have conventional zones. A smaller last zone ends a device, so only the last member
//! may have one.
//!
//! The limits of open and active zones are the smallest of the members': then no member refuses any
//! choice of zones. A member whose limit is not below the number of its sequential zones has none.
//! [`Limited`] keeps to them; the members alone would not.
//!
//! D4 holds for each member: a flush reaches all of them, and a power cut may leave each at another
//! time between two flushes. Members are flushed at the same time, and all of them even if one
//! fails. The log names the member that failed, with the numbers that the member itself uses.
//!
//! [`Limited`]: crate::layer::limited::Limited

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use super::limited::{Limited, ZoneLimits};
use super::refusal_of_crossing;
use crate::device::batch::{Io, Op, Part};
use crate::error::Result;
use crate::size::readable;
use crate::{
    DeviceError, FailZone, Geometry, GeometrySpec, Identity, Lba, LbaCount, Select, Zone,
    ZoneAction, ZoneFailure, ZoneId, ZoneRun, ZoneRuns, ZonedDevice,
};

/// Drives one behind the other.
///
/// ```
/// use zonal::layer::concat::Concat;
/// use zonal::{MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let drive = || MemoryDrive::new(Profile::Small.geometry());
/// let both = Concat::new(vec![drive()?, drive()?])?;
/// let zones = both.geometry().zone_count();
/// let second = ZoneId::new(zones / 2);
/// assert_eq!(both.append(second, &[1; 4096])?, both.geometry().zone_start(second));
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct Concat<D> {
    joined: Limited<Joined<D>>,
}

impl<D: ZonedDevice> Concat<D> {
    /// `members` in this order.
    pub fn new(members: Vec<D>) -> Result<Self> {
        let joined = Joined::new(members)?;
        let limits =
            ZoneLimits { open: joined.geometry.max_open(), active: joined.geometry.max_active() };
        Ok(Self { joined: Limited::new(joined, limits)? })
    }

    /// The [`FailZone`] of the whole device, over the members' own.
    pub(crate) fn failing(&self, members: Vec<Arc<dyn FailZone>>) -> Arc<dyn FailZone> {
        let zone_count = self.geometry().zone_count();
        let starts = self.joined.below().members.iter().map(|member| member.first);
        Arc::new(FailJoined { members: starts.zip(members).collect(), zone_count })
    }
}

impl<D: ZonedDevice> ZonedDevice for Concat<D> {
    crate::pass_on!(
        joined: geometry, report, read, write, append, manage, flush, deallocate, identity, rotates,
        submit, keep_reserve, use_reserve
    );
}

/// The members with one numbering.
struct Joined<D> {
    members: Vec<Member<D>>,
    geometry: Geometry,
}

struct Member<D> {
    device: D,
    /// Its place among the members, from 1.
    number: usize,
    /// Its first zone and block, as shown.
    first: ZoneId,
    start: Lba,
}

impl<D: ZonedDevice> Member<D> {
    fn zone(&self, shown: ZoneId) -> ZoneId {
        ZoneId::new(shown.get() - self.first.get())
    }

    fn lba(&self, shown: Lba) -> Lba {
        Lba::ZERO + (shown - self.start)
    }

    fn end(&self) -> Lba {
        self.start + self.device.geometry().block_count()
    }

    fn shown_lba(&self, lba: Lba) -> Lba {
        Lba::new(lba.get().saturating_add(self.start.get()))
    }

    fn shown_zone(&self, zone: ZoneId) -> ZoneId {
        ZoneId::new(zone.get().saturating_add(self.first.get()))
    }

    fn shown<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            if is_failure(&error) {
                tracing::warn!(member = self.number, %error, "a member of a concat failed");
            }
            error.renumbered(|zone| self.shown_zone(zone), |lba| self.shown_lba(lba))
        })
    }
}

impl<D: ZonedDevice> Joined<D> {
    fn new(devices: Vec<D>) -> Result<Self> {
        let invalid = |what| Err(DeviceError::Geometry { what });
        let Some(first) = devices.first().map(|device| *device.geometry()) else {
            return invalid("a concat of no drives".into());
        };
        let last = devices.len();
        let (mut blocks, mut limits) = (LbaCount::ZERO, ZoneLimits::default());
        let mut max_append = first.max_append();
        let mut members = Vec::with_capacity(last);
        let mut conventional = Vec::new();
        for (number, device) in (1..).zip(devices) {
            let geometry = *device.geometry();
            if let Some(what) = mismatch(&first, &geometry) {
                return invalid(format!("member {number} of a concat has {what}"));
            }
            let size = geometry.zone_size();
            if number < last && !geometry.block_count().get().is_multiple_of(size.get()) {
                return invalid(format!(
                    "member {number} of a concat has a smaller last zone, which only the last may have"
                ));
            }
            limits = smaller(limits, &geometry);
            max_append = max_append.min(geometry.max_append());
            let start = Lba::ZERO + blocks;
            let zones = blocks.get() / size.get();
            let first = u32::try_from(zones)
                .map_err(|_| DeviceError::Geometry { what: format!("{zones} zones") })?;
            for run in geometry.spec().conventional_zones.runs() {
                conventional.push(ZoneRun { first: first.saturating_add(run.first), ..*run });
            }
            blocks += geometry.block_count();
            members.push(Member { device, number, first: ZoneId::new(first), start });
        }
        let open = match (limits.open, limits.active) {
            (Some(open), Some(active)) => Some(open.min(active)),
            (open, _) => open,
        };
        let spec = GeometrySpec {
            block_count: blocks,
            conventional_zones: ZoneRuns::new(conventional)?,
            max_open: open,
            max_active: limits.active,
            max_append,
            ..*first.spec()
        };
        let geometry = Geometry::new(spec)?;
        Ok(Self { members, geometry })
    }

    /// The place of the member that has this zone.
    fn index_of(&self, zone: ZoneId) -> usize {
        self.members.partition_point(|member| member.first <= zone) - 1
    }

    fn member(&self, zone: ZoneId) -> Result<&Member<D>> {
        if zone.get() < self.geometry.zone_count() {
            Ok(&self.members[self.index_of(zone)])
        } else {
            Err(DeviceError::NoSuchZone { zone })
        }
    }

    /// A call of all members, even if one fails.
    fn each(&self, call: impl Fn(&Member<D>) -> Result<()>) -> Result<()> {
        self.members.iter().map(|member| member.shown(call(member))).fold(Ok(()), Result::and)
    }

    /// The member that a request is for; `None` if it is for none or for several.
    fn only_member(&self, op: &Op<'_>) -> Option<usize> {
        match op {
            Op::Read { lba, .. } | Op::Write { lba, .. } => {
                let blocks = self.geometry.blocks_at(*lba, op.len()).ok()?;
                if blocks == LbaCount::ZERO {
                    return None;
                }
                let index = self.index_of(self.geometry.locate(*lba).0);
                (*lba + blocks <= self.members[index].end()).then_some(index)
            }
            Op::Append { zone, .. } => {
                (zone.get() < self.geometry.zone_count()).then(|| self.index_of(*zone))
            }
            Op::Flush => None,
        }
    }

    /// Requests between two flushes: those of each member together, the others by a call.
    fn submit_unordered(&self, batch: &mut [Io<'_>]) {
        let is_refused =
            |op: &Op<'_>| matches!(op, Op::Write { .. }) && self.only_member(op).is_none();
        // Why a write is refused depends on those before it.
        if batch.iter().any(|io| is_refused(&io.op)) {
            for io in batch {
                io.perform(self);
            }
            return;
        }
        let mut parts: Vec<Part<'_, '_>> = self.members.iter().map(|_| Part::default()).collect();
        for Io { op, result } in &mut *batch {
            *result = None;
            let Some(index) = self.only_member(op) else { continue };
            let member = &self.members[index];
            let mut op = op.reborrow();
            op.renumber(|zone| member.zone(zone), |lba| member.lba(lba));
            parts[index].push(op, result);
        }
        for (part, member) in parts.into_iter().zip(&self.members) {
            part.submit(&member.device);
        }
        for Io { op, result } in batch {
            *result = Some(match (result.take(), self.only_member(op)) {
                (Some(outcome), Some(index)) => {
                    let member = &self.members[index];
                    member.shown(outcome).map(|lba| member.shown_lba(lba))
                }
                (_, _) => op.perform(self),
            });
        }
    }
}

/// The difference of a member from the first one, in words; `None` if they match.
fn mismatch(first: &Geometry, member: &Geometry) -> Option<String> {
    let (ours, theirs) = (first.spec(), member.spec());
    if ours.block_size != theirs.block_size {
        let (ours, theirs) = (ours.block_size.bytes(), theirs.block_size.bytes());
        return Some(format!("blocks of {theirs} bytes, the first one of {ours}"));
    }
    // Their blocks have the same size.
    let size = |blocks| readable(first.bytes(blocks).get());
    if ours.zone_size != theirs.zone_size {
        let (ours, theirs) = (size(ours.zone_size), size(theirs.zone_size));
        return Some(format!("zones of {theirs}, the first one of {ours}"));
    }
    if ours.sequential_kind != theirs.sequential_kind {
        let (ours, theirs) = (ours.sequential_kind.name(), theirs.sequential_kind.name());
        return Some(format!("{theirs} zones, the first one {ours} zones"));
    }
    if ours.zone_capacity != theirs.zone_capacity {
        let (ours, theirs) = (size(ours.zone_capacity), size(theirs.zone_capacity));
        return Some(format!("a zone capacity of {theirs}, the first one of {ours}"));
    }
    None
}

/// Whether the drive failed, rather than refused.
const fn is_failure(error: &DeviceError) -> bool {
    use DeviceError::{Io, Medium, PowerCut, ZoneOffline, ZoneReadOnly};
    matches!(error, Io { .. } | Medium { .. } | PowerCut | ZoneOffline { .. } | ZoneReadOnly { .. })
}

/// The smaller of the limits so far and the limits of a member, if its zones can reach them.
fn smaller(so_far: ZoneLimits, member: &Geometry) -> ZoneLimits {
    let sequential = member.sequential_count();
    let least = |so_far: Option<u32>, limit: Option<u32>| {
        let reachable = limit.filter(|limit| *limit < sequential);
        so_far.into_iter().chain(reachable).min()
    };
    ZoneLimits {
        open: least(so_far.open, member.max_open()),
        active: least(so_far.active, member.max_active()),
    }
}

impl<D: ZonedDevice> ZonedDevice for Joined<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let (mut next, mut left) = (first, limit);
        while left > 0 && next.get() < self.geometry.zone_count() {
            let member = &self.members[self.index_of(next)];
            let before = zones.len();
            member.shown(member.device.report(member.zone(next), zones, left))?;
            for zone in &mut zones[before..] {
                zone.renumber(|zone| member.shown_zone(zone), |lba| member.shown_lba(lba));
            }
            left = left.saturating_sub(zones.len() - before);
            next = ZoneId::new(member.first.get() + member.device.geometry().zone_count());
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let mut left = self.geometry.blocks_at(lba, buffer.len())?;
        let (mut at, mut rest) = (lba, buffer);
        while left > LbaCount::ZERO {
            let member = &self.members[self.index_of(self.geometry.locate(at).0)];
            let count = left.min(member.end() - at);
            let bytes = usize::try_from(self.geometry.bytes(count).get())
                .expect("a part of a buffer has a length that fits");
            let (head, tail) = rest.split_at_mut(bytes);
            member.shown(member.device.read(member.lba(at), head))?;
            (at, left, rest) = (at + count, left - count, tail);
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let blocks = self.geometry.blocks_at(lba, data.len())?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let zone = self.geometry.locate(lba).0;
        let member = self.member(zone)?;
        if lba + blocks > member.end() {
            return Err(refusal_of_crossing(&self.zone(zone)?, lba, blocks));
        }
        member.shown(member.device.write(member.lba(lba), data))
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let blocks = self.geometry.blocks(data.len())?;
        let (member, limit) = (self.member(zone)?, self.geometry.max_append());
        if blocks > limit {
            return Err(DeviceError::AppendTooLarge { blocks, limit });
        }
        let appended = member.device.append(member.zone(zone), data);
        member.shown(appended).map(|lba| member.shown_lba(lba))
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match zones {
            Select::One(zone) => {
                let member = self.member(zone)?;
                let one = Select::One(member.zone(zone));
                member.shown(member.device.manage(one, action))
            }
            Select::All => self
                .members
                .iter()
                .try_for_each(|member| member.shown(member.device.manage(Select::All, action))),
        }
    }

    fn flush(&self) -> Result<()> {
        let flush = |member: &Member<D>| member.shown(member.device.flush());
        let Some((first, others)) = self.members.split_first() else { return Ok(()) };
        thread::scope(|scope| {
            let start = |member| thread::Builder::new().spawn_scoped(scope, move || flush(member));
            let started: Vec<_> = others.iter().map(|member| (member, start(member))).collect();
            // Waits for all of them, even if the first fails.
            started.into_iter().fold(flush(first), |so_far, (member, thread)| {
                // Without a thread the member gets its turn here.
                let Ok(thread) = thread else { return so_far.and(flush(member)) };
                so_far.and(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            })
        })
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let Some((zone, _)) = self.geometry.locate_conventional(lba, blocks)? else {
            return Ok(());
        };
        let member = self.member(zone)?;
        member.shown(member.device.deallocate(member.lba(lba), blocks))
    }

    fn keep_reserve(&self) -> Result<()> {
        self.each(|member| member.device.keep_reserve())
    }

    fn use_reserve(&self) -> Result<()> {
        self.each(|member| member.device.use_reserve())
    }

    /// None: it is no single drive.
    fn identity(&self) -> Identity {
        Identity::default()
    }

    fn rotates(&self) -> bool {
        self.members.iter().any(|member| member.device.rotates())
    }

    /// A flush of one member must wait for all requests before it in the batch, also those to other
    /// members, so the requests between two flushes go below together.
    fn submit(&self, batch: &mut [Io<'_>]) {
        for part in batch.split_inclusive_mut(|io| matches!(io.op, Op::Flush)) {
            match part {
                [others @ .., flush @ Io { op: Op::Flush, .. }] => {
                    self.submit_unordered(others);
                    flush.perform(self);
                }
                others => self.submit_unordered(others),
            }
        }
    }
}

struct FailJoined {
    /// With the first zone of each.
    members: Vec<(ZoneId, Arc<dyn FailZone>)>,
    zone_count: u32,
}

impl FailZone for FailJoined {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        let own = self.members.iter().rfind(|(first, _)| *first <= zone);
        let (first, member) =
            own.filter(|_| zone.get() < self.zone_count).ok_or(DeviceError::NoSuchZone { zone })?;
        let shown = |zone: ZoneId| ZoneId::new(zone.get().saturating_add(first.get()));
        let inside = ZoneId::new(zone.get() - first.get());
        member.fail_zone(inside, failure).map_err(|error| error.renumbered(shown, |lba| lba))
    }
}
