//! Resets of zones without live blocks, once no durable row refers to them any more (F3).

use crate::furrow::planted::mistake;
use crate::furrow::sync::MutexGuard;
use crate::furrow::write::Writer;
use crate::furrow::zones::Role;

impl Writer {
    /// Resets one zone that no durable row refers to any more (F3), and returns whether there was
    /// one. A writer short of free zones calls it too.
    pub(in crate::furrow) fn reset_one(&self) -> bool {
        let _turn = self.lock_resetting();
        let Some(zone) = self.tree.write_accounts().zones.next_reset() else { return false };
        self.reset_zone(zone);
        true
    }

    pub(super) fn lock_resetting(&self) -> MutexGuard<'_, ()> {
        self.resetting.lock().expect("no holder panicked")
    }

    /// Tries zones again whose reset the drive has refused; returns whether it has reset one.
    pub(in crate::furrow) fn reset_again(&self) -> bool {
        let _turn = self.lock_resetting();
        self.tree.write_accounts().zones.retry_resets();
        loop {
            let Some(zone) = self.tree.write_accounts().zones.next_reset() else { return false };
            if self.reset_zone(zone) {
                return true;
            }
        }
    }

    /// Resets a zone without live blocks, and returns whether the drive did.
    pub(in crate::furrow) fn reset_zone(&self, zone: u32) -> bool {
        let outcome = self.drive.reset(zone);
        let cond = outcome.as_ref().err().and_then(|_| self.drive.cond(zone));
        let mut state = self.tree.write_accounts();
        if state.zones.slot(zone).role != Role::PendingReset {
            return false;
        }
        match outcome {
            Ok(()) => {
                let generation = state.zones.slot(zone).generation;
                state.zones.release(zone);
                mistake!(self.tree, KeepGeneration, {
                    state.zones.slot_mut(zone).generation = generation;
                });
                self.meters.victim_is_over(zone, self.tree.layout().capacity(zone));
                true
            }
            Err(error) => {
                tracing::warn!(zone, %error, "a zone could not be reset; it is tried again");
                state.zones.reset_refused(zone, cond, self.clock.monotonic_ns());
                false
            }
        }
    }
}
