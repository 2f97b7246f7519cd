//! A large array of words that begins as zero, in huge pages where the system has them.
//!
//! Placement touches its tables at random. With pages of 4 KiB nearly each touch also misses the
//! processor's table of pages; with pages of 2 MiB few do.

use memmap2::{Advice, MmapMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Below this, huge pages would mostly be empty.
const HUGE_BYTES_MIN: usize = 4 << 20;

/// Words. Memory is taken when a word is first touched.
pub(super) enum Words<T> {
    /// From the allocator.
    Few(Vec<T>),
    /// From the system.
    Many(MmapMut),
}

impl<T: Copy + Default + FromBytes + IntoBytes + Immutable + KnownLayout> Words<T> {
    pub(super) fn zeroed(count: usize) -> Self {
        let bytes = count * size_of::<T>();
        if bytes >= HUGE_BYTES_MIN
            && let Ok(map) = MmapMut::map_anon(bytes)
        {
            // Without huge pages everything works, only slower.
            let _ = map.advise(Advice::HugePage);
            return Self::Many(map);
        }
        Self::Few(vec![T::default(); count])
    }

    pub(super) fn bytes(&self) -> u64 {
        std::mem::size_of_val(self.as_slice()) as u64
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::Few(words) => words,
            Self::Many(map) => {
                FromBytes::ref_from_bytes(map).expect("a mapping is aligned, and of whole words")
            }
        }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::Few(words) => words,
            Self::Many(map) => {
                FromBytes::mut_from_bytes(map).expect("a mapping is aligned, and of whole words")
            }
        }
    }
}
