//! A large array of words that begins as zero.

/// Words. Memory is taken when a word is first touched.
pub(super) struct Words<T>(Vec<T>);

impl<T: Copy + Default> Words<T> {
    pub(super) fn zeroed(count: usize) -> Self {
        Self(vec![T::default(); count])
    }

    pub(super) fn bytes(&self) -> u64 {
        std::mem::size_of_val(self.0.as_slice()) as u64
    }

    pub(super) fn as_slice(&self) -> &[T] {
        &self.0
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.0
    }
}
