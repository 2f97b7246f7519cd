//! Suites and programs of other projects, through a real mount.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

mod directory;
mod fsx;
#[path = "../mounts/mounted/mod.rs"]
mod mounted;
mod pjdfstest;
mod programs;

#[test]
#[ignore = "the daemon of the other tests"]
fn daemon() {
    mounted::daemon();
}
