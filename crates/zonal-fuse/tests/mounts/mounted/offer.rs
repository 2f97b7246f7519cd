//! Switches the kernel's FUSE over `io_uring` on or off while a test mounts.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const PARAMETERS: &str = "/sys/module/fuse/parameters";

/// The switch of FUSE over `io_uring`. Dropping this sets it back.
pub(crate) struct Offer {
    before: String,
    /// One test at a time changes the switch, also in another process.
    _one: File,
}

/// Sets the switch, or prints why it cannot and returns `None`.
pub(crate) fn set(value: &str) -> Option<Offer> {
    let path = Path::new(PARAMETERS).join("enable_uring");
    let Ok(one) = File::open(PARAMETERS) else {
        println!("SKIP: the fuse module is not loaded");
        return None;
    };
    flock(&one, FlockOperation::LockExclusive).unwrap();
    let Ok(before) = fs::read_to_string(&path) else {
        println!("SKIP: this kernel has no FUSE over io_uring");
        return None;
    };
    if let Err(error) = fs::write(&path, value) {
        println!("SKIP: {}: {error}", path.display());
        return None;
    }
    Some(Offer { before, _one: one })
}

impl Drop for Offer {
    fn drop(&mut self) {
        fs::write(Path::new(PARAMETERS).join("enable_uring"), &self.before).unwrap();
    }
}
