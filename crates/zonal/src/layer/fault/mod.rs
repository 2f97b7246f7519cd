//! `Fault`: errors on request, failing zones, bad bits, power cuts. For tests, and to see how a
//! program behaves on a failing drive. [`FaultPlan`] lists the faults.
//!
//! A power cut stops everything: each call fails with [`DeviceError::PowerCut`] from then on. Of
//! the changes since the last flush, each zone of the device below keeps a prefix, as D4 allows;
//! the seed decides how long. To be able to undo the rest, a plan with a power cut passes changes
//! down one at a time, and keeps in memory the data of zones that were reset since the last flush.
//! [`record`](super::record) makes every such state of a drive in memory.

mod plan;
mod power;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::device::batch::Io;
use crate::error::Result;
use crate::failure::ZoneFailure;
use crate::{DeviceError, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

use self::power::{Unflushed, ZoneChange};

pub use plan::{FaultKind, FaultOp, FaultPlan, FaultRule, PlanError};

/// A device that fails as its plan says.
///
/// ```
/// use zonal::layer::fault::{Fault, FaultPlan};
/// # use zonal::{
/// #     BlockSize, DeviceError, GeometrySpec, LbaCount, MemoryDrive, ZoneId, ZoneKind, ZoneRuns,
/// #     ZonedDevice,
/// # };
/// # let drive = MemoryDrive::new(GeometrySpec {
/// #     block_size: BlockSize::B4096, block_count: LbaCount::new(64),
/// #     zone_size: LbaCount::new(16), zone_capacity: LbaCount::new(16),
/// #     conventional_zones: ZoneRuns::NONE, sequential_kind: ZoneKind::SequentialRequired,
/// #     max_open: None, max_active: None, max_append: LbaCount::new(4) })?;
/// let plan: FaultPlan = "append,nth=2".parse().unwrap();
/// let drive = Fault::new(drive, plan);
/// assert!(drive.append(ZoneId::new(0), &[1; 4096]).is_ok());
/// let error = drive.append(ZoneId::new(0), &[2; 4096]).unwrap_err();
/// assert!(matches!(error, DeviceError::Medium { .. }));
/// assert!(drive.append(ZoneId::new(0), &[2; 4096]).is_ok());
/// # Ok::<(), DeviceError>(())
/// ```
pub struct Fault<D> {
    below: D,
    state: Mutex<State>,
    /// The changes that a power cut can take away; `None` if none is planned.
    unflushed: Option<Mutex<Unflushed>>,
}

struct State {
    rules: Vec<ArmedRule>,
    random: ChaCha8Rng,
    seed: u64,
    failed: BTreeMap<ZoneId, ZoneFailure>,
    dead: bool,
    fired: u64,
}

struct ArmedRule {
    rule: FaultRule,
    seen: u64,
    fired: u64,
}

fn armed(rules: Vec<FaultRule>) -> Vec<ArmedRule> {
    rules.into_iter().map(|rule| ArmedRule { rule, seen: 0, fired: 0 }).collect()
}

/// The effect of the first rule that fires on an operation.
enum Verdict {
    /// Nothing.
    Pass,
    /// Do it, then fail.
    Late,
    /// Store this many blocks, then fail.
    Torn(LbaCount),
    /// Change bits, by this seed.
    Flip(u64),
    /// Do it, and the power is gone before it is acknowledged.
    Cut,
}

/// An operation, as rules see it.
#[derive(Clone, Copy)]
struct Call {
    op: FaultOp,
    zone: ZoneId,
    lba: Lba,
    blocks: LbaCount,
}

impl<D: ZonedDevice> Fault<D> {
    /// `below`, with faults.
    pub fn new(below: D, plan: FaultPlan) -> Self {
        let is_cut_planned = plan.rules.iter().any(|rule| rule.kind == FaultKind::PowerCut);
        let unflushed = is_cut_planned.then(Mutex::default);
        let state = State {
            rules: armed(plan.rules),
            random: ChaCha8Rng::seed_from_u64(plan.seed),
            seed: plan.seed,
            failed: BTreeMap::new(),
            dead: false,
            fired: 0,
        };
        Self { below, state: Mutex::new(state), unflushed }
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    /// Faults made so far.
    pub fn fired(&self) -> u64 {
        self.state().fired
    }

    /// Makes faults by these rules from now on, in place of all others. A power cut must be in the
    /// plan from the start.
    pub fn arm(&self, rules: Vec<FaultRule>) {
        let needs_undo = rules.iter().any(|rule| rule.kind == FaultKind::PowerCut);
        assert!(!needs_undo || self.unflushed.is_some(), "a power cut is planned from the start");
        self.state().rules = armed(rules);
    }

    /// Makes no more faults. Zones that failed stay so, and power that is gone too.
    pub fn disarm(&self) {
        self.state().rules.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, call: Call) -> Result<Verdict> {
        self.state().judge(call)
    }

    fn call(&self, op: FaultOp, lba: Lba, bytes: usize) -> Result<Call> {
        let blocks = self.geometry().blocks_at(lba, bytes)?;
        Ok(Call { op, zone: self.geometry().locate(lba).0, lba, blocks })
    }

    /// Changes a zone below, and keeps the old state for a power cut to restore.
    fn change<T>(
        &self,
        change: ZoneChange,
        verdict: &Verdict,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(unflushed) = &self.unflushed else { return run() };
        let mut unflushed = unflushed.lock().unwrap_or_else(PoisonError::into_inner);
        if unflushed.is_cut() {
            return Err(DeviceError::PowerCut);
        }
        unflushed.before(&self.below, change)?;
        let outcome = run();
        unflushed.after(&self.below, change);
        match verdict {
            Verdict::Cut => Err(self.cut(&mut unflushed)),
            Verdict::Pass | Verdict::Late | Verdict::Torn(_) | Verdict::Flip(_) => outcome,
        }
    }

    /// Cuts the power while nothing is changed.
    fn cut_now(&self) -> DeviceError {
        let Some(unflushed) = &self.unflushed else { return DeviceError::PowerCut };
        self.cut(&mut unflushed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn cut(&self, unflushed: &mut Unflushed) -> DeviceError {
        let seed = self.state().random.next_u64();
        match unflushed.cut(&self.below, &mut ChaCha8Rng::seed_from_u64(seed)) {
            Ok(()) => DeviceError::PowerCut,
            Err(error) => {
                tracing::error!(%error, "the device below fails in the power cut");
                error
            }
        }
    }

    fn flush_below(&self) -> Result<()> {
        let Some(unflushed) = &self.unflushed else { return self.below.flush() };
        let mut unflushed = unflushed.lock().unwrap_or_else(PoisonError::into_inner);
        if unflushed.is_cut() {
            return Err(DeviceError::PowerCut);
        }
        self.below.flush()?;
        unflushed.flushed();
        Ok(())
    }

    fn check_powered(&self) -> Result<()> {
        if self.state().dead { Err(DeviceError::PowerCut) } else { Ok(()) }
    }

    /// Refuses a change of a zone that failed. A power cut happens in any case.
    fn check_writable(&self, zone: ZoneId, verdict: &Verdict) -> Result<()> {
        let refused = self.state().check_zone(zone, ZoneFailure::ReadOnly);
        match verdict {
            Verdict::Cut if refused.is_err() => Err(self.cut_now()),
            _ => refused,
        }
    }

    /// The part of `data` that is stored.
    fn stored<'a>(&self, data: &'a [u8], verdict: &Verdict) -> &'a [u8] {
        let Verdict::Torn(blocks) = verdict else { return data };
        let bytes = usize::try_from(self.geometry().bytes(*blocks).get());
        &data[..bytes.expect("a part of a buffer")]
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) -> Result<()> {
        if zone.get() >= self.geometry().zone_count() {
            return Err(DeviceError::NoSuchZone { zone });
        }
        let lba = self.geometry().zone_start(zone);
        let call = Call { op: FaultOp::Action(action), zone, lba, blocks: LbaCount::ZERO };
        let verdict = self.judge(call)?;
        self.check_writable(zone, &verdict)?;
        let change = ZoneChange::Manage(zone, action);
        self.change(change, &verdict, || self.below.manage(Select::One(zone), action))?;
        verdict.after(lba)
    }
}

impl Verdict {
    fn after(self, lba: Lba) -> Result<()> {
        match self {
            Self::Pass | Self::Flip(_) => Ok(()),
            Self::Late | Self::Torn(_) => Err(DeviceError::Medium { lba }),
            Self::Cut => Err(DeviceError::PowerCut),
        }
    }
}

impl State {
    fn judge(&mut self, call: Call) -> Result<Verdict> {
        if self.dead {
            return Err(DeviceError::PowerCut);
        }
        let Some(kind) = self.first_to_fire(call) else { return Ok(Verdict::Pass) };
        self.fired += 1;
        let (zone, lba) = (call.zone, call.lba);
        tracing::debug!(%zone, %lba, ?kind, "fault");
        match kind {
            FaultKind::Medium => Err(DeviceError::Medium { lba }),
            FaultKind::Late => Ok(Verdict::Late),
            FaultKind::Torn => Ok(self.tear(call)),
            FaultKind::Flip => Ok(Verdict::Flip(self.seed)),
            FaultKind::ActiveLimit => Err(DeviceError::TooManyActive { zone, limit: 0 }),
            FaultKind::OpenLimit => Err(DeviceError::TooManyOpen { zone, limit: 0 }),
            FaultKind::ReadOnly => {
                self.failed.entry(zone).or_insert(ZoneFailure::ReadOnly);
                self.check_zone(zone, call.severity()).map(|()| Verdict::Pass)
            }
            FaultKind::Offline => {
                self.failed.insert(zone, ZoneFailure::Offline);
                Err(DeviceError::ZoneOffline { zone })
            }
            FaultKind::PowerCut => {
                self.dead = true;
                Ok(Verdict::Cut)
            }
        }
    }

    fn first_to_fire(&mut self, call: Call) -> Option<FaultKind> {
        let Self { rules, random, .. } = self;
        let mut fires = |armed: &mut ArmedRule| {
            let rule = &armed.rule;
            if !rule.op.takes(call.op)
                || !rule.zones.as_ref().is_none_or(|zones| zones.contains(&call.zone.get()))
            {
                return false;
            }
            armed.seen += 1;
            let due = armed.seen >= rule.from && rule.times.is_none_or(|times| armed.fired < times);
            // 53 random bits make a fraction in [0, 1) without rounding.
            #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
            let fires = due
                && (rule.probability >= 1.0
                    || ((random.next_u64() >> 11) as f64 / (1u64 << 53) as f64) < rule.probability);
            armed.fired += u64::from(fires);
            fires
        };
        // Every rule counts every operation, whichever fires.
        rules.iter_mut().fold(None, |found, armed| {
            let fires = fires(armed);
            found.or_else(|| fires.then_some(armed.rule.kind))
        })
    }

    /// Some of the blocks, not all.
    fn tear(&mut self, call: Call) -> Verdict {
        let blocks = self.random.next_u64() % call.blocks.get().max(1);
        Verdict::Torn(LbaCount::new(blocks))
    }

    /// Refuses an operation that a failed zone no longer performs: `needs` is the failure that
    /// stands in the way, `Offline` for a read, `ReadOnly` for anything else.
    fn check_zone(&self, zone: ZoneId, needs: ZoneFailure) -> Result<()> {
        match (self.failed.get(&zone), needs) {
            (Some(ZoneFailure::Offline), _) => Err(DeviceError::ZoneOffline { zone }),
            (Some(ZoneFailure::ReadOnly), ZoneFailure::ReadOnly) => {
                Err(DeviceError::ZoneReadOnly { zone })
            }
            (Some(ZoneFailure::ReadOnly), ZoneFailure::Offline) | (None, _) => Ok(()),
        }
    }
}

impl Call {
    const fn severity(self) -> ZoneFailure {
        match self.op {
            FaultOp::Read => ZoneFailure::Offline,
            _ => ZoneFailure::ReadOnly,
        }
    }
}

impl FaultOp {
    /// Whether a rule for `self` is for this operation.
    fn takes(self, op: Self) -> bool {
        match self {
            Self::Any => true,
            Self::Write => matches!(op, Self::Write | Self::Append),
            Self::Manage => matches!(op, Self::Action(_)),
            Self::Read | Self::Append | Self::Flush | Self::Deallocate | Self::Action(_) => {
                self == op
            }
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for Fault<D> {
    crate::pass_on!(below: geometry, identity, rotates, keep_reserve, use_reserve);

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let state = self.state();
        if state.dead {
            return Err(DeviceError::PowerCut);
        }
        let from = zones.len();
        self.below.report(first, zones, limit)?;
        for zone in &mut zones[from..] {
            if let Some(failure) = state.failed.get(&zone.id) {
                zone.cond = match failure {
                    ZoneFailure::ReadOnly => ZoneCond::ReadOnly,
                    ZoneFailure::Offline => ZoneCond::Offline,
                };
                zone.wp = None;
            }
        }
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let call = self.call(FaultOp::Read, lba, buffer.len())?;
        let verdict = self.judge(call)?;
        if let Verdict::Cut = verdict {
            return Err(self.cut_now());
        }
        let mut at = lba;
        while at - lba < call.blocks {
            let (zone, offset) = self.geometry().locate(at);
            self.state().check_zone(zone, ZoneFailure::Offline)?;
            at += self.geometry().size_of(zone) - offset;
            if at - Lba::ZERO >= self.geometry().block_count() {
                break;
            }
        }
        self.below.read(lba, buffer)?;
        self.check_powered()?;
        if let Verdict::Flip(seed) = verdict {
            flip(seed, lba, buffer, self.geometry().block_size().bytes());
        }
        verdict.after(lba)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let call = self.call(FaultOp::Write, lba, data.len())?;
        let verdict = self.judge(call)?;
        self.check_writable(call.zone, &verdict)?;
        let data = self.stored(data, &verdict);
        let change = ZoneChange::Write(call.zone, lba, call.blocks);
        self.change(change, &verdict, || self.below.write(lba, data))?;
        verdict.after(lba)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        if zone.get() >= self.geometry().zone_count() {
            return Err(DeviceError::NoSuchZone { zone });
        }
        let lba = self.geometry().zone_start(zone);
        let call = self.call(FaultOp::Append, lba, data.len())?;
        let verdict = self.judge(call)?;
        self.check_writable(zone, &verdict)?;
        let data = self.stored(data, &verdict);
        let at =
            self.change(ZoneChange::Append(zone), &verdict, || self.below.append(zone, data))?;
        verdict.after(at).map(|()| at)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        match zones {
            Select::One(zone) => self.manage_one(zone, action),
            Select::All => {
                for zone in self.report_all()? {
                    if crate::state::selected_by_all(action, zone.cond) {
                        self.manage_one(zone.id, action)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let Some((zone, _)) = self.geometry().locate_conventional(lba, blocks)? else {
            return Ok(());
        };
        let verdict = self.judge(Call { op: FaultOp::Deallocate, zone, lba, blocks })?;
        self.check_writable(zone, &verdict)?;
        let change = ZoneChange::Write(zone, lba, blocks);
        self.change(change, &verdict, || self.below.deallocate(lba, blocks))?;
        verdict.after(lba)
    }

    fn flush(&self) -> Result<()> {
        let call =
            Call { op: FaultOp::Flush, zone: ZoneId::ZERO, lba: Lba::ZERO, blocks: LbaCount::ZERO };
        let verdict = self.judge(call)?;
        if let Verdict::Cut = verdict {
            return Err(self.cut_now());
        }
        self.flush_below()?;
        verdict.after(Lba::ZERO)
    }

    /// While nothing is to fail, a batch goes below whole. Otherwise each request may be the one
    /// that fails.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let is_armed = {
            let state = self.state();
            state.dead || !state.rules.is_empty() || !state.failed.is_empty()
        };
        if !is_armed && self.unflushed.is_none() {
            return self.below.submit(batch);
        }
        for io in batch {
            io.perform(self);
        }
    }
}

/// Changes one bit of the first block, chosen by seed and address: the same each time it is read.
fn flip(seed: u64, lba: Lba, buffer: &mut [u8], block_size: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ lba.get().rotate_left(32));
    let bit = random.next_u64() % (block_size * 8);
    if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| buffer.get_mut(at)) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests;
