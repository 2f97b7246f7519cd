//! Buffers that begin at a page, so that what is in them can go to a device by direct I/O.

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Bytes, the first of them at the beginning of a page. They take memory only once they are written to.
pub struct Pages {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    /// Room for so many bytes.
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, len }
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    /// All of them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_at_a_page() {
        let mut pages = Pages::new(5000);
        assert_eq!(pages.bytes_mut().len(), 5000);
        assert_eq!(pages.bytes().as_ptr().align_offset(PAGE), 0);
    }
}
