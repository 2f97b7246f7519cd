//! The fuzz target `block_trace` reads bytes as a block trace, of the format they look like and of
//! every other. Nothing may panic, and every request must be possible.
//!
//! `cargo fuzz run block_trace` runs it with libFuzzer; `crates/zonal-sim/tests/fuzz.rs` runs it
//! over `fixtures/corpus/block_trace/` and mutations of it.

use std::io::Cursor;

use zonal_sim::trace::{BadLines, Format, Reader, Trace};

/// The bytes as they are, and under each format with bad lines passed over.
pub(crate) fn block_trace(data: &[u8]) {
    read(data, &Trace::default());
    for (_, format) in Format::ALL {
        let bad_lines = BadLines::Skip;
        read(data, &Trace { format: Some(format), bad_lines, ..Trace::default() });
    }
}

fn read(data: &[u8], options: &Trace) {
    let Ok(mut reader) = Reader::from_source("it", Cursor::new(data.to_vec()), options) else {
        return;
    };
    // Compressed bytes may become very many.
    for _ in 0..100_000 {
        let Ok(Some(record)) = reader.record() else { return };
        assert!(record.bytes > 0 && record.offset + record.bytes < 1 << 63, "{record:?}");
    }
}
