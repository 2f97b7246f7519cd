//! Metadata that the device refuses to read, in either copy.
//!
//! A copy with a wrong checksum stays wrong: if both copies are wrong, their rows are lost. But a
//! read that the device refuses may succeed later, when its link is up again. So a step of the
//! table fails rather than drop such rows, and later steps try again, until the device has refused
//! them for [`REFUSED_NS_MAX`]. A mount for writing fails rather than rebuild such rows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::part::corrupt;
use super::part::{PartError, Section};
use crate::furrow::sync::Mutex;
use crate::vfs::Result;

/// Nanoseconds after which a section counts as lost that the device refuses to read: ten minutes.
/// It takes less to replace a cable or to reset a link.
const REFUSED_NS_MAX: u64 = 600 * 1_000_000_000;

/// Reads that the device has refused since the mount.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Refusals {
    any: AtomicBool,
    /// Monotonic time at which the device first refused to read a section of a part for a step. A
    /// step that can read it writes its rows to another part, so no entry needs to go.
    since: Mutex<BTreeMap<(u64, Section), u64>>,
}

impl Refusals {
    /// Notes that the device has refused a read, if there is such an error.
    pub(super) fn note(&self, error: Option<&PartError>) {
        if error.is_some() {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Whether the device has refused any read.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Fails if the device has refused a read of a step that may still succeed later.
    pub(in crate::furrow) fn judge(&self, error: Option<PartError>, now_ns: u64) -> Result<()> {
        let Some(error) = error else { return Ok(()) };
        let mut since = self.since.lock().expect("no holder panicked");
        let since = *since.entry((error.part, error.section)).or_insert(now_ns);
        if now_ns.saturating_sub(since) < REFUSED_NS_MAX {
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
        assert!(refusals.judge(Some(error.clone()), REFUSED_NS_MAX + 4).is_err());
        assert!(refusals.judge(Some(other), REFUSED_NS_MAX + 5).is_err());
        assert!(refusals.judge(Some(error), REFUSED_NS_MAX + 5).is_ok());
    }
}
