//! See `table::part`.
#![no_main]

#[path = "../table.rs"]
#[allow(dead_code, reason = "a fuzzer's binary uses one target")]
mod table;

libfuzzer_sys::fuzz_target!(|data: &[u8]| table::part(data));
