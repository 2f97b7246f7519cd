//! The lifetime that a program states for the data it writes: a hint, which
//! [`sharing`](super::sharing) and [`life`](super::life) follow. Linux's `fcntl(F_SET_RW_HINT)`
//! has the same numbers.

/// How long the data written to a file will live: the scale of Linux's `F_SET_RW_HINT` and of
/// RocksDB's `WriteLifeTimeHint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteLifetime {
    /// Nothing is known.
    #[default]
    None,
    /// It is deleted soon, like a write-ahead log.
    Short,
    /// Longer than short.
    Medium,
    /// Longer than medium.
    Long,
    /// Like the lowest level of an LSM tree.
    Extreme,
}

impl WriteLifetime {
    /// Every lifetime, the shortest first.
    pub const ALL: [Self; 5] = [Self::None, Self::Short, Self::Medium, Self::Long, Self::Extreme];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
            Self::Extreme => "extreme",
        }
    }

    /// The lifetime with this word.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|lifetime| lifetime.name().as_bytes() == name)
    }

    /// Its lifetime class: 0 dies first. Data without a hint shares the zone of short-lived data.
    pub const fn class(self) -> u8 {
        match self {
            Self::None | Self::Short => 0,
            Self::Medium => 1,
            Self::Long => 2,
            Self::Extreme => 3,
        }
    }

    /// The hint that a lifetime class would have: its word is the class's too.
    pub const fn of_class(class: u8) -> Self {
        match class {
            0 => Self::Short,
            1 => Self::Medium,
            2 => Self::Long,
            _ => Self::Extreme,
        }
    }

    /// Its number for `F_SET_RW_HINT` (`RWH_WRITE_LIFE_*` in Linux's `fcntl.h`): 0 for none, and
    /// from 2 for short to 5 for extreme.
    pub const fn hint(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Short => 2,
            Self::Medium => 3,
            Self::Long => 4,
            Self::Extreme => 5,
        }
    }

    /// The lifetime that a number for `F_SET_RW_HINT` means. Treats 1, "no hint is wanted", like 0.
    pub fn from_hint(hint: u64) -> Option<Self> {
        match hint {
            1 => Some(Self::None),
            _ => Self::ALL.into_iter().find(|lifetime| lifetime.hint() == hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_convert_to_names_and_numbers_and_back() {
        for lifetime in WriteLifetime::ALL {
            assert_eq!(WriteLifetime::from_name(lifetime.name().as_bytes()), Some(lifetime));
            assert_eq!(WriteLifetime::from_hint(lifetime.hint()), Some(lifetime));
        }
        assert_eq!([0, 1, 2, 3].map(|class| WriteLifetime::of_class(class).class()), [0, 1, 2, 3]);
        assert_eq!(WriteLifetime::from_hint(1), Some(WriteLifetime::None));
        assert_eq!(WriteLifetime::from_hint(6), None);
        assert_eq!(WriteLifetime::from_name(b"Short"), None);
    }
}
