//! Metadata that the device refuses to give back, in either copy.
//!
//! Bytes with a wrong checksum stay wrong, and what has none better is lost. What a device refuses
//! to read it may give back when the link to it is up again. So a step of the table that would go on
//! without that fails and is tried again, until the device has refused it for [`PATIENCE_NS`]; and a
//! mount that writes does not make anew what it could not read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::part::{PartError, Section};
use super::sweep::corrupt;
use super::view::View;
use crate::furrow::sync::Mutex;
use crate::vfs::Result;

/// Nanoseconds after which what a device refuses to read counts as lost: ten minutes, as a disk that
/// is replaced or a link that is trained anew takes less.
const PATIENCE_NS: u64 = 600 * 1_000_000_000;

/// What was refused since the mount.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    any: AtomicBool,
    /// When a step was refused a section of a part for the first time, by the monotonic clock. A step
    /// that is given it writes its rows to another part.
    since: Mutex<BTreeMap<(u64, Section), u64>>,
}

impl Refusals {
    /// A reader was refused something.
    pub(super) fn note(&self, error: Option<&PartError>) {
        if error.is_some() {
            self.any.store(true, Ordering::Release);
        }
    }

    /// Whether a reader was refused anything.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// An error if a step was refused something that the device may still give back.
    pub(super) fn judge(&self, error: Option<PartError>, now_ns: u64) -> Result<()> {
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

impl View {
    /// Whether the device has refused to read what the mount has made anew.
    pub(in crate::furrow) fn is_remade_for_now(&self) -> bool {
        self.remade().is_some() && self.refusals.any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::format::Unread;

    #[test]
    fn what_a_device_refuses_is_lost_after_ten_minutes_and_not_before() {
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
