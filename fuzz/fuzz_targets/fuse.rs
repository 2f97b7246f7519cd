//! See `fuse::fuse`.
#![no_main]

#[path = "../fuse.rs"]
mod fuse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuse::fuse(data));
