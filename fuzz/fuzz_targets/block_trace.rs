//! See `block_traces::block_trace`.
#![no_main]

#[path = "../block_traces.rs"]
mod block_traces;

libfuzzer_sys::fuzz_target!(|data: &[u8]| block_traces::block_trace(data));
