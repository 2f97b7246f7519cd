//! Resets: zones without data that a commit frees, and zones that the drive has refused to reset.

use zonal::ZoneCond;

use crate::furrow::zones::{Role, Zones, is_dead};

impl Zones {
    /// Whether zones become free by the commit under way and resets alone.
    pub(in crate::furrow) fn has_pending_reset(&self) -> bool {
        self.pending > self.refused_resets.len()
    }

    /// Blocks of zones that a commit and resets give back, without more moves.
    pub(in crate::furrow) fn awaited_blocks(&self) -> u64 {
        let zones = self.emptied.len() + self.pending - self.refused_resets.len();
        zones as u64 * u64::from(self.limits.zone_blocks)
    }

    /// Zones that can be reset now.
    pub(in crate::furrow) fn reset_count(&self) -> usize {
        self.resets.len()
    }

    /// Takes out the next zone that the caller is to reset.
    pub(in crate::furrow) fn next_reset(&mut self) -> Option<u32> {
        self.resets.pop_first()
    }

    /// Notes that the drive refused to reset an empty zone, whose condition is `cond`. If a later
    /// reset may succeed, the zone waits for it. Until then it is not free, and no writer waits for
    /// it.
    pub(in crate::furrow) fn reset_refused(
        &mut self,
        zone: u32,
        cond: Option<ZoneCond>,
        now_ns: u64,
    ) {
        if is_dead(cond) {
            return self.fail(zone);
        }
        if self.slot(zone).role != Role::PendingReset {
            self.leave_role(zone, Role::PendingReset);
            self.pending += 1;
        }
        self.refused_resets.insert(zone);
        self.reset_retries.put_off(zone, now_ns);
    }

    /// How many resets the drive has refused that are tried again.
    pub(in crate::furrow) fn refused_reset_count(&self) -> usize {
        self.refused_resets.len()
    }

    /// Has the zones reset again whose reset the drive has refused, once their pauses are over.
    pub(in crate::furrow) fn retry_due_resets(&mut self, now_ns: u64) {
        let is_due = |zone: &u32| self.reset_retries.is_due(*zone, now_ns);
        let due: Vec<u32> = self.refused_resets.iter().copied().filter(is_due).collect();
        for zone in due {
            self.refused_resets.remove(&zone);
            self.resets.insert(zone);
        }
    }

    /// Has the zones reset again whose reset the drive has refused. Each commit calls this once:
    /// the drive may refuse for ever.
    pub(in crate::furrow) fn retry_resets(&mut self) {
        self.resets.append(&mut self.refused_resets);
    }

    /// Allows the reset of zones. F3: no durable row refers to them any more.
    pub(in crate::furrow) fn allow_resets(&mut self, zones: &[u32]) {
        self.resets.extend(zones);
    }
}
