//! Memory that every device takes without a copy: direct I/O and DMA need addresses that are
//! multiples of a power of two, and data elsewhere is copied first.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// No device needs more: addresses at multiples of this.
pub const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// Bytes at an address that is a multiple of [`ALIGNMENT`].
///
/// ```
/// use zonal::aligned::{ALIGNMENT, AlignedBytes};
/// let mut memory = AlignedBytes::zeroed(5000);
/// memory[4999] = 7;
/// assert_eq!((memory.len(), memory.as_ptr().addr() % ALIGNMENT), (8192, 0));
/// ```
#[derive(Default)]
pub struct AlignedBytes(Box<[Page]>);

impl AlignedBytes {
    /// At least `bytes` bytes, in whole multiples of [`ALIGNMENT`].
    pub fn zeroed(bytes: usize) -> Self {
        Self(vec![Page([0; ALIGNMENT]); bytes.div_ceil(ALIGNMENT)].into())
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
