//! glibc's allocator, made to keep freed memory: otherwise benchmarks of drives in memory measure
//! the kernel's page faults after each reset.

use std::process::{Command, ExitStatus};

/// Settings of glibc in the environment: memory that is freed stays with the process.
pub const KEEP_FREED: [(&str, &str); 3] = [
    ("MALLOC_TRIM_THRESHOLD_", "1099511627776"),
    ("MALLOC_MMAP_THRESHOLD_", "1099511627776"),
    ("MALLOC_TOP_PAD_", "67108864"),
];

/// Starts this program again with [`KEEP_FREED`] and waits for its end; returns only in the program
/// that has these settings.
pub fn keep_freed() {
    if std::env::var_os(KEEP_FREED[0].0).is_some() {
        return;
    }
    let program = std::env::current_exe().expect("a program knows its path");
    let status = Command::new(program).args(std::env::args().skip(1)).envs(KEEP_FREED).status();
    std::process::exit(i32::from(!status.as_ref().is_ok_and(ExitStatus::success)));
}
