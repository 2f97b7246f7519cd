//! See `commands::nvme`.
#![no_main]

#[path = "../commands.rs"]
mod commands;

libfuzzer_sys::fuzz_target!(|data: &[u8]| commands::nvme(data));
