//! One zone as the device reports it: kind, condition, extent, write pointer; and actions on it.
//!
//! The names and numbers of the conditions are from the NVMe Zoned Namespace Command Set (section
//! "Zone State Machine") and, for [`ZoneCond::NotWp`], from ZBC. `state.rs` decides how one
//! condition becomes another.

use crate::{Lba, LbaCount, ZoneId};

/// Where a zone takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneKind {
    /// Accepts writes at any address; has no write pointer.
    Conventional,
    /// Accepts writes only at its write pointer.
    SequentialRequired,
    /// Accepts writes anywhere; its write pointer is the end of the highest block written. Only
    /// SCSI (ZBC) and ATA (ZAC) have such zones, on drives that are called host-aware.
    SequentialPreferred,
}

impl ZoneKind {
    /// Name for tables and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conventional => "conventional",
            Self::SequentialRequired => "sequential",
            Self::SequentialPreferred => "sequential-preferred",
        }
    }

    /// The number that ZBC and Linux (`blk_zone_type`) use.
    pub const fn code(self) -> u8 {
        match self {
            Self::Conventional => 1,
            Self::SequentialRequired => 2,
            Self::SequentialPreferred => 3,
        }
    }

    /// Whether such a zone has a write pointer.
    pub const fn is_sequential(self) -> bool {
        match self {
            Self::Conventional => false,
            Self::SequentialRequired | Self::SequentialPreferred => true,
        }
    }
}

/// An action on a zone, other than reads and writes. NVMe calls it Zone Send Action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneAction {
    /// Open explicitly.
    Open,
    /// Close, keeping it active.
    Close,
    /// Make it Full.
    Finish,
    /// Empty it.
    Reset,
}

impl ZoneAction {
    /// Every action, in the order of the state table.
    pub const ALL: [Self; 4] = [Self::Open, Self::Close, Self::Finish, Self::Reset];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Finish => "finish",
            Self::Reset => "reset",
        }
    }
}

/// Condition of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZoneCond {
    /// Conventional: no write pointer, always writable.
    NotWp,
    /// Nothing written.
    Empty,
    /// Opened by a write.
    ImplicitOpen,
    /// Opened by an open action.
    ExplicitOpen,
    /// Partly written, active, not open.
    Closed,
    /// Written to its end, or finished.
    Full,
    /// Failed: readable, never writable again.
    ReadOnly,
    /// Failed: neither readable nor writable.
    Offline,
}

impl ZoneCond {
    /// Every condition, in the order of the state table.
    pub const ALL: [Self; 8] = [
        Self::NotWp,
        Self::Empty,
        Self::ImplicitOpen,
        Self::ExplicitOpen,
        Self::Closed,
        Self::Full,
        Self::ReadOnly,
        Self::Offline,
    ];

    /// Whether the zone counts against the open limit.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::ImplicitOpen | Self::ExplicitOpen)
    }

    /// Whether the zone counts against the active limit.
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, Self::Closed)
    }

    /// The number that NVMe (ZNS 1.1, zone descriptor), ZBC and Linux (`blk_zone_cond`) all use.
    pub const fn code(self) -> u8 {
        match self {
            Self::NotWp => 0x0,
            Self::Empty => 0x1,
            Self::ImplicitOpen => 0x2,
            Self::ExplicitOpen => 0x3,
            Self::Closed => 0x4,
            Self::ReadOnly => 0xd,
            Self::Full => 0xe,
            Self::Offline => 0xf,
        }
    }

    /// The condition with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cond| cond.code() == code)
    }

    /// Short name for tables, as the command prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotWp => "not-wp",
            Self::Empty => "empty",
            Self::ImplicitOpen => "implicit-open",
            Self::ExplicitOpen => "explicit-open",
            Self::Closed => "closed",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::Offline => "offline",
        }
    }
}

/// A zone as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its number.
    pub id: ZoneId,
    /// Where it takes writes.
    pub kind: ZoneKind,
    /// Its condition.
    pub cond: ZoneCond,
    /// First block.
    pub start: Lba,
    /// Distance to the next zone's start.
    pub size: LbaCount,
    /// Blocks that can be written.
    pub capacity: LbaCount,
    /// Write pointer. `start + capacity` for a Full zone; `None` where there is none or it is not
    /// known: NotWp, ReadOnly, Offline.
    pub wp: Option<Lba>,
    /// Whether a write since the last reset did not start at the write pointer (`NON_SEQ` of ZBC).
    /// Only in a sequential write preferred zone.
    pub non_sequential: bool,
}

impl Zone {
    /// Gives it the numbers of another layer.
    pub(crate) fn renumber(
        &mut self,
        zone_of: impl FnOnce(ZoneId) -> ZoneId,
        lba_of: impl Fn(Lba) -> Lba,
    ) {
        self.id = zone_of(self.id);
        self.start = lba_of(self.start);
        self.wp = self.wp.map(lba_of);
    }

    /// Blocks below the write pointer; `None` where there is no write pointer.
    pub fn written(&self) -> Option<LbaCount> {
        self.wp.map(|wp| wp - self.start)
    }

    /// Capacity minus the written blocks; zero where nothing can be written.
    pub fn remaining(&self) -> LbaCount {
        match self.cond {
            ZoneCond::NotWp => self.capacity,
            ZoneCond::ReadOnly | ZoneCond::Offline | ZoneCond::Full => LbaCount::ZERO,
            ZoneCond::Empty
            | ZoneCond::ImplicitOpen
            | ZoneCond::ExplicitOpen
            | ZoneCond::Closed => self.capacity - self.written().unwrap_or(self.capacity),
        }
    }
}
