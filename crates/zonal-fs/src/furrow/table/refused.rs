//! Metadata that the device refuses to read, in either copy.
//!
//! A copy with a wrong checksum stays wrong: if both copies are wrong, their rows are lost. But a
//! read that the device refuses may succeed later, when its link is up again. So a step of the
//! table fails rather than drop such rows, and later steps try again, until the device has refused
//! each of them for [`REFUSED_NS_MAX`]. A mount for writing fails rather than rebuild such rows.

use std::sync::atomic::{AtomicBool, Ordering};

use zonal::retry::Retries;

use super::part::{RefusedSections, Section, unread};
use crate::furrow::sync::Mutex;
use crate::vfs::Result;

/// Nanoseconds after which metadata counts as lost that the device refuses to read: ten minutes. It
/// takes less to replace a cable or to reset a link.
pub(in crate::furrow) const REFUSED_NS_MAX: u64 = 600_000_000_000;

/// Reads that the device has refused since the mount.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Refusals {
    any: AtomicBool,
    /// Sections of parts that the device has refused to read for a step.
    failed: Mutex<Retries<(u64, Section)>>,
}

impl Refusals {
    /// Notes reads that the device has refused.
    pub(super) fn note(&self, refused: &RefusedSections) {
        if !refused.is_empty() {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Whether the device has refused any read.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether the pause after a refused read of a step goes on: the step would fail again.
    pub(in crate::furrow) fn is_pausing(&self, now_ns: u64) -> bool {
        !self.failed.lock().expect("no holder panicked").paused(now_ns).is_empty()
    }

    /// Fails if the device has refused any read of a step that may still succeed later.
    pub(in crate::furrow) fn judge(&self, refused: RefusedSections, now_ns: u64) -> Result<()> {
        let mut failed = self.failed.lock().expect("no holder panicked");
        let mut young = None;
        for (section, error) in refused {
            if failed.put_off(section, now_ns) < REFUSED_NS_MAX {
                young.get_or_insert(error);
            } else {
                tracing::error!(%error, "the device has refused it for ten minutes: it is lost");
            }
        }
        young.map_or(Ok(()), |error| Err(unread(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::format::Unread;
    use crate::furrow::table::part::PartError;

    const SECOND_NS: u64 = 1_000_000_000;

    fn refused(parts: &[u64]) -> RefusedSections {
        let section = Section::Leaf(3);
        let copies = [Unread::Device("no answer".into()), Unread::Wrong("no magic".into())];
        let error = |part| PartError { part, section, copies: copies.clone() };
        parts.iter().map(|&part| ((part, section), error(part))).collect()
    }

    #[test]
    fn device_refusal_is_loss_only_after_ten_minutes() {
        let refusals = Refusals::default();
        assert!(refusals.judge(RefusedSections::new(), 6).is_ok());
        for second in (0..600).step_by(30) {
            assert!(refusals.judge(refused(&[7]), second * SECOND_NS).is_err(), "{second} s");
        }
        let both = refusals.judge(refused(&[7, 8]), 600 * SECOND_NS);
        assert!(both.is_err(), "the other one may still be read");
        assert!(refusals.is_pausing(601 * SECOND_NS) && !refusals.is_pausing(664 * SECOND_NS));
        assert!(refusals.judge(refused(&[7]), 601 * SECOND_NS).is_ok());
        assert!(refusals.judge(refused(&[8]), 602 * SECOND_NS).is_err());
    }

    #[test]
    fn device_refusals_far_apart_are_no_loss() {
        let refusals = Refusals::default();
        for hour in 0..5 {
            assert!(refusals.judge(refused(&[7]), hour * 3600 * SECOND_NS).is_err(), "{hour} h");
        }
    }
}
