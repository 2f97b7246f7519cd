//! A real mount: data, names, rights, and the life of the mount. A file for each subject.
//!
//! Every file has tests of its own; [`mounted`] mounts for all of them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

#[path = "../../../zonal-fs/tests/posix/rules.rs"]
#[macro_use]
mod rules;

mod data;
mod differential;
mod durable;
mod kills;
mod links;
mod linux;
mod mount_life;
mod mounted;
mod other_users;
mod page_cache;
mod panics;
mod place;
mod posix;
mod privileges;
mod rings;
mod write_back;
mod zone_reads;

#[test]
#[ignore = "the daemon of the other tests"]
fn daemon() {
    mounted::daemon();
}
