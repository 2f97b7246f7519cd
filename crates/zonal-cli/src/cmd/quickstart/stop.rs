//! ^C: the work ends at its next step and everything is cleaned up; a later ^C ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use zonal_fuse::asked::{Asked, wait_for_same_wish};

/// Whether the user wants to stop.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for the signals, in a thread that ends with the process.
    pub(super) fn on_signals() -> Result<Self> {
        let stop = Self::default();
        let is_asked = Arc::clone(&stop.0);
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.context("listening for signals")?;
        let listen = move || {
            let mut asked = Asked::Nothing;
            while let Some(signal) = signals.forever().next() {
                asked = asked.after_signal(signal);
                is_asked.store(true, Ordering::Relaxed);
                if asked == Asked::JustNow {
                    wait_for_same_wish();
                    signals.pending().for_each(drop);
                    asked = asked.after_same_wish();
                }
                if asked == Asked::EndAtOnce {
                    low_level::exit(128 + signal);
                }
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .context("listening for signals")?;
        Ok(stop)
    }

    /// An error once the user wants to stop.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("stopped on request");
        }
        Ok(())
    }
}
