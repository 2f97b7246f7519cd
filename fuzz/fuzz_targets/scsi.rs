//! See `scsi::scsi`.
#![no_main]

#[path = "../scsi.rs"]
mod scsi;

libfuzzer_sys::fuzz_target!(|data: &[u8]| scsi::scsi(data));
