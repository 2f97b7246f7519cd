//! See `sessions::nvme_tcp`.
#![no_main]

#[path = "../sessions.rs"]
mod sessions;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sessions::nvme_tcp(data));
