//! How often signals have asked a program to end.
//!
//! The first signal asks for a clean end, a later one for an end at once. timeout(1) and service
//! managers send the first one twice, to the process and to its group. So all signals within
//! [`SAME_WISH`] of the first are the same wish.

use std::sync::mpsc::channel;
use std::time::Duration;

use signal_hook::consts::SIGHUP;

/// For how long after the first signal others are the same wish.
pub const SAME_WISH: Duration = Duration::from_secs(1);

/// The end that signals have asked for so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// No end.
    Nothing,
    /// A clean end, less than [`SAME_WISH`] ago.
    JustNow,
    /// A clean end.
    CleanEnd,
    /// An end at once.
    EndAtOnce,
}

impl Asked {
    /// After a signal. The end of a login session sends SIGTERM and then SIGHUP, so a SIGHUP never
    /// asks for an end at once.
    #[must_use]
    pub fn after_signal(self, signal: i32) -> Self {
        match self {
            Self::Nothing => Self::JustNow,
            Self::CleanEnd if signal != SIGHUP => Self::EndAtOnce,
            Self::JustNow | Self::CleanEnd | Self::EndAtOnce => self,
        }
    }

    /// After [`SAME_WISH`] since the first signal.
    #[must_use]
    pub fn after_same_wish(self) -> Self {
        match self {
            Self::JustNow => Self::CleanEnd,
            Self::Nothing | Self::CleanEnd | Self::EndAtOnce => self,
        }
    }
}

/// Blocks for [`SAME_WISH`]; no signal ends it early.
pub fn wait_for_same_wish() {
    let (_sender, nothing) = channel::<()>();
    let _ = nothing.recv_timeout(SAME_WISH);
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::{SIGINT, SIGTERM};

    use super::*;

    #[test]
    fn signals_at_once_are_one_wish() {
        let asked = Asked::Nothing.after_signal(SIGTERM);
        assert_eq!(asked.after_signal(SIGTERM).after_signal(SIGINT), Asked::JustNow);
        let later = asked.after_signal(SIGTERM).after_same_wish();
        assert_eq!(later, Asked::CleanEnd);
        assert_eq!(later.after_signal(SIGTERM), Asked::EndAtOnce);
        assert_eq!(later.after_signal(SIGHUP).after_signal(SIGHUP), Asked::CleanEnd);
        assert_eq!(Asked::Nothing.after_same_wish(), Asked::Nothing);
    }
}
