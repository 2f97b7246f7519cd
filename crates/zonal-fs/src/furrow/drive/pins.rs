//! Read pins: a zone that is being read is not reset.
//!
//! A reader finds blocks under the state lock and pins their zones before it unlocks the state, so
//! no thread resets such a zone before the read has ended. A thread that needs the zone waits for
//! its readers, with a timeout: a device may hang.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::FsError;
use crate::furrow::planted::{Planted, mistake};
use crate::furrow::sync::{Condvar, Mutex, UnderLock};
use crate::vfs::Result;

/// How long a thread that needs a zone waits for reads of it: as long as Linux lets a disk command
/// take before it resets the disk (`SD_TIMEOUT`).
const READ_PATIENCE_MS: u64 = 30_000;

/// Readers of each zone.
pub(in crate::furrow) struct ReadPins {
    zones: Box<[AtomicU32]>,
    /// How many threads wait for a zone without readers.
    idle_waiters: AtomicU32,
    idle_turn: Mutex<()>,
    became_idle: Condvar,
    /// How long a thread that needs a zone waits for its readers.
    patience_ms: AtomicU64,
    /// A thread has waited that long, and no read has ended since.
    reads_hang: AtomicBool,
    planted: Planted,
}

impl ReadPins {
    /// Pins for this many zones.
    pub(super) fn new(zones: u32) -> Self {
        Self {
            zones: (0..zones).map(|_| AtomicU32::new(0)).collect(),
            idle_waiters: AtomicU32::new(0),
            idle_turn: Mutex::new(()),
            became_idle: Condvar::new(),
            patience_ms: AtomicU64::new(READ_PATIENCE_MS),
            reads_hang: AtomicBool::new(false),
            planted: Planted::default(),
        }
    }

    /// Plants mistakes for a test.
    pub(super) fn planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Keeps other threads from resetting a zone while the caller reads it. The caller has the
    /// state locked: otherwise a reset could come first.
    pub(in crate::furrow) fn pin_zone(&self, _state: &impl UnderLock, zone: u32) {
        self.zones[zone as usize].fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`pin_zone`](Self::pin_zone).
    pub(in crate::furrow) fn unpin_zone(&self, zone: u32) {
        let before = self.zones[zone as usize].fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.idle_waiters.load(Ordering::SeqCst) > 0 {
            let _turn = self.idle_turn.lock().expect("no holder panicked");
            mistake!(self, KeepIdleWaiting, return);
            self.became_idle.notify_all();
        }
    }

    /// Whether a zone has no reader.
    pub(in crate::furrow) fn is_idle(&self, zone: u32) -> bool {
        self.zones[zone as usize].load(Ordering::SeqCst) == 0
    }

    /// Waits for readers to end while `must_wait` is true. They began before their blocks died, and
    /// no new ones begin. If they take longer than [`READ_PATIENCE_MS`], the device hangs: this
    /// returns an error then, and later callers get it at once.
    pub(in crate::furrow) fn wait(&self, must_wait: impl Fn() -> bool) -> Result<()> {
        let hangs = self.reads_hang.load(Ordering::Acquire);
        let patience = if hangs { Duration::ZERO } else { self.patience() };
        self.idle_waiters.fetch_add(1, Ordering::SeqCst);
        let turn = self.idle_turn.lock().expect("no holder panicked");
        let waited = self.became_idle.wait_timeout_while(turn, patience, |()| must_wait());
        let hangs = waited.expect("no holder panicked").1.timed_out();
        self.idle_waiters.fetch_sub(1, Ordering::SeqCst);
        self.reads_hang.store(hangs, Ordering::Release);
        if hangs { Err(FsError::ReadsHang { waited: self.patience() }) } else { Ok(()) }
    }

    /// How long a thread that needs a zone waits for its readers.
    fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(Ordering::Relaxed))
    }

    /// Sets how long a thread waits. For tests.
    #[cfg(test)]
    pub(in crate::furrow) fn set_patience(&self, patience: Duration) {
        let ms = u64::try_from(patience.as_millis()).expect("a short time");
        self.patience_ms.store(ms, Ordering::Relaxed);
    }
}
