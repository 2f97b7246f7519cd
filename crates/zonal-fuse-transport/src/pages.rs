//! Page-aligned buffers, for direct I/O.

/// Size of a page in bytes.
pub const PAGE: usize = 4096;

/// A page-aligned buffer of zeroes. It takes memory only where it is written.
pub struct Pages {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    /// A buffer of `len` bytes.
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_at_page() {
        let mut pages = Pages::new(5000);
        assert_eq!(pages.bytes_mut().len(), 5000);
        assert_eq!(pages.bytes().as_ptr().align_offset(PAGE), 0);
    }
}
