//! Units: block addresses, block counts, byte counts and zone numbers as distinct types.
//!
//! A value of one type cannot be passed where another is expected. Conversions between spaces go
//! through [`Geometry`](crate::Geometry), because only it knows the block size and the zone size.
//! Arithmetic is checked: an overflow is a bug of ours and panics with the operation's name.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// The smallest value.
            pub const ZERO: Self = Self(0);

            /// Wraps a raw number.
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The raw number.
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! count {
    ($name:ident) => {
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.checked_add(other.0).expect(concat!(stringify!($name), " sum fits")))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.checked_sub(other.0).expect(concat!(stringify!($name), " not below 0")))
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }

        impl $name {
            /// `self - other`, or zero.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// `self + other`, or `None` on overflow.
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }
        }
    };
}

unit! {
    /// Address of a logical block of the device.
    Lba(u64)
}
unit! {
    /// A number of logical blocks.
    LbaCount(u64)
}
unit! {
    /// A number of bytes.
    ByteCount(u64)
}
unit! {
    /// Number of a zone, counted from the start of the device.
    ZoneId(u32)
}

count!(LbaCount);
count!(ByteCount);

impl Lba {
    /// The address `count` blocks further, or `None` on overflow.
    pub const fn checked_add(self, count: LbaCount) -> Option<Self> {
        match self.0.checked_add(count.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl Add<LbaCount> for Lba {
    type Output = Self;
    fn add(self, count: LbaCount) -> Self {
        self.checked_add(count).expect("LBA sum fits")
    }
}

impl AddAssign<LbaCount> for Lba {
    fn add_assign(&mut self, count: LbaCount) {
        *self = *self + count;
    }
}

/// The distance from `other` up to `self`.
impl Sub for Lba {
    type Output = LbaCount;
    fn sub(self, other: Self) -> LbaCount {
        LbaCount(self.0.checked_sub(other.0).expect("LBA distance not below 0"))
    }
}

impl ZoneId {
    /// The zone after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lba_difference_is_count() {
        assert_eq!(Lba::new(10) - Lba::new(4), LbaCount::new(6));
        assert_eq!(Lba::new(4) + LbaCount::new(6), Lba::new(10));
    }

    #[test]
    #[should_panic(expected = "LBA distance not below 0")]
    fn lba_negative_distance_panics() {
        let _ = Lba::new(4) - Lba::new(10);
    }
}
