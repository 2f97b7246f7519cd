//! Points in time, as files have them.

/// A point in time since 1970-01-01 UTC, of any year that a kernel can name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    secs: i64,
    nanos: u32,
}

/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;

impl Timestamp {
    /// `nanos` after `secs`, also before 1970; nothing if they are a second or more.
    pub const fn new(secs: i64, nanos: u32) -> Option<Self> {
        if nanos < SECOND_NS { Some(Self { secs, nanos }) } else { None }
    }

    /// Nanoseconds since 1970, as a clock has them.
    pub const fn from_ns(ns: i64) -> Self {
        let second = SECOND_NS as i64;
        #[expect(clippy::cast_possible_truncation, reason = "a remainder, which is below a second")]
        let nanos = ns.rem_euclid(second) as u32;
        Self { secs: ns.div_euclid(second), nanos }
    }

    /// Nanoseconds since 1970; the least or greatest `i64` where they do not fit.
    pub const fn as_ns(self) -> i64 {
        self.secs.saturating_mul(SECOND_NS as i64).saturating_add(self.nanos as i64)
    }

    /// Whole seconds since 1970, rounded down.
    pub const fn secs(self) -> i64 {
        self.secs
    }

    /// Nanoseconds after [`secs`](Self::secs).
    pub const fn nanos(self) -> u32 {
        self.nanos
    }
}
