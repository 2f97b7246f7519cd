//! Metadata of which the device refuses to give back either copy.
//!
//! A copy with a wrong checksum stays wrong: if both are, their rows are lost. A copy that the
//! device refuses to read may be there again later, when the link to the device is up. So a step
//! of the table fails rather than go on without such rows, and is tried again, until the device
//! has refused them for [`PATIENCE_NS`]. A mount that writes is refused rather than make such rows
//! anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::part::corrupt;
use super::part::{PartError, Section};
use crate::furrow::sync::Mutex;
use crate::vfs::Result;

/// Nanoseconds after which a section that the device refuses to read counts as lost: ten minutes.
/// To replace a cable or to reset a link takes less.
const PATIENCE_NS: u64 = 600 * 1_000_000_000;

/// The refusals since the mount.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Refusals {
    any: AtomicBool,
    /// When the device first refused to give a step this section of a part, by the monotonic clock.
    /// A step that does get it writes the rows to another part.
    since: Mutex<BTreeMap<(u64, Section), u64>>,
}

impl Refusals {
    /// The device has refused to give a reader something, if there is such an error.
    pub(super) fn note(&self, error: Option<&PartError>) {
        if error.is_some() {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Whether the device has refused to give a reader anything.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Fails if the device has refused to give a step something that it may still give back.
    pub(in crate::furrow) fn judge(&self, error: Option<PartError>, now_ns: u64) -> Result<()> {
        let Some(error) = error else { return Ok(()) };
        let mut since = self.since.lock().expect("no holder panicked");
        let since = *since.entry((error.part, error.section)).or_insert(now_ns);
        if now_ns.saturating_sub(since) < PATIENCE_NS {
            return Err(corrupt(error));
        }
        tracing::error!(%error, "the device has refused it for ten minutes: it is lost");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::format::Unread;

    #[test]
    fn device_refusal_is_loss_only_after_ten_minutes() {
        let refusals = Refusals::default();
        let copies = [Unread::Device("no answer".into()), Unread::Wrong("no magic".into())];
        let error = PartError { part: 7, section: Section::Leaf(3), copies };
        assert!(error.is_refused());
        let other = PartError { part: 8, ..error.clone() };
        assert!(refusals.judge(Some(error.clone()), 5).is_err());
        assert!(refusals.judge(None, 6).is_ok());
        assert!(refusals.judge(Some(error.clone()), PATIENCE_NS + 4).is_err());
        assert!(refusals.judge(Some(other), PATIENCE_NS + 5).is_err());
        assert!(refusals.judge(Some(error), PATIENCE_NS + 5).is_ok());
    }
}
