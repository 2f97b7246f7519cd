//! Has the kernel offer FUSE over `io_uring`, or not, while a test mounts.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const PARAMETERS: &str = "/sys/module/fuse/parameters";

/// What the kernel offers, as long as this lives. Then it is as it was before.
pub(crate) struct Offer {
    before: String,
    /// One test at a time changes it, whatever its process.
    _one: File,
}

/// Sets what the kernel offers, or says why that cannot be and returns `None`.
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
