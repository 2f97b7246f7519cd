//! Zones that fail: on real drives by themselves, on emulated ones on request.

use crate::ZoneId;
use crate::error::Result;
use crate::state::Event;

/// How a zone fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFailure {
    /// It becomes ReadOnly.
    ReadOnly,
    /// It becomes Offline.
    Offline,
}

impl ZoneFailure {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Offline => "offline",
        }
    }

    pub(crate) const fn event(self) -> Event {
        match self {
            Self::ReadOnly => Event::FailWrites,
            Self::Offline => Event::FailWholly,
        }
    }
}

/// A drive whose zones fail on request.
pub trait FailZone: Send + Sync {
    /// Makes a zone fail. There is no way back.
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()>;
}
