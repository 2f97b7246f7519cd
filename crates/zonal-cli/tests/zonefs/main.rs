//! zonefs through a real mount made with the command: one test for every row of the conformance
//! table of the kernel's zonefs, under the number that the row has there.
//!
//! - `format`: 00xx, mkfs, mounting, the look of the tree; `sizes`: 01xx.
//! - `conventional`: 02xx; `sequential`: 030x, 031x; `reading`: 032x, 0330; `swap`: 04xx.
//! - `attributes`: 05xx, the counters; `errors`: 06xx, the effects of a failing zone.
//! - `asynchronous`: many writers of one zone; it has no numbers.
//! - `direct_reads`: files that are read directly while they are open in other ways; no numbers.
//! - `warm`: the page cache filled by direct writes; it has no numbers either.
//! - `drive`: the drive, its mount and its end; `io`: direct I/O; `programs`: fio and others.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail loudly and say why")]

mod asynchronous;
mod attributes;
mod conventional;
mod direct_reads;
mod drive;
mod errors;
mod format;
mod io;
mod programs;
mod reading;
mod sequential;
mod sizes;
mod swap;
mod warm;
