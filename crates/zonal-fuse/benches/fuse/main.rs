//! What does a mount cost beside the least that FUSE costs, and beside ext4 on the same medium?
//!
//! `cargo bench -p zonal-fuse --bench fuse`, as root, runs five parts; a word after `--` chooses
//! one, and further words choose its rows by part of their name:
//!
//! - `files`: data and names in Furrow, by `/dev/fuse`, by `io_uring` and with the write-back
//!   cache, in a server that appends to a log and does nothing else (the FUSE ceiling), in ext4 on
//!   a loop device, and in tmpfs;
//! - `depth`: the rows of `files` with few and with many threads, in memory and on a drive whose
//!   calls take 100 µs;
//! - `trees`: programs that work on many small files;
//! - `zonefs`: zone files against the ceiling, and the library against the bare device;
//! - `instructions`: those of the library of zonefs and of the bare device.
//!
//! All places take turns within each round, so that what else the machine does meets all of them.
//! Figures are medians of the rounds, and ratios medians of the ratios of each round. Drive files,
//! images and plain files lie in `BENCH_DIR`, `/dev/shm` without it.

#![expect(clippy::print_stdout, reason = "it is its result")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

mod ceiling;
mod content;
mod daemon;
mod files;
mod instructions;
mod jobs;
mod place;
mod target;
mod time;
mod trees;
mod zone_files;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// glibc's setting for when freed memory goes back to the kernel.
const KEEP_MEMORY: &str = "MALLOC_TRIM_THRESHOLD_";

fn main() {
    if daemon::is_asked_for() || instructions::are_asked_for() {
        return;
    }
    if env::var_os(KEEP_MEMORY).is_none() {
        return again();
    }
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("SKIP: needs root and /dev/fuse");
    }
    let home = env::var_os("BENCH_DIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let dir = TempDir::with_prefix_in("zonal-bench-", home).expect("a place for drive files");
    let wants = |part: &str| words.first().is_none_or(|word| word == part);
    let rows = words.get(1..).unwrap_or_default();
    if wants("instructions") {
        instructions::print();
    }
    if wants("files") {
        files::measure(dir.path(), rows);
    }
    if wants("depth") {
        files::measure_in(&place::Place::of_threads(dir.path()), rows);
    }
    if wants("trees") {
        trees::measure(dir.path(), rows);
    }
    if wants("zonefs") {
        zone_files::measure_all(dir.path(), rows);
    }
}

/// Whether `name` has one of `rows` in it, or all rows are wanted.
fn is_wanted(name: &str, rows: &[String]) -> bool {
    rows.is_empty() || rows.iter().any(|row| name.contains(row.as_str()))
}

/// Starts this program again with an allocator that keeps what a reset frees: otherwise the writes
/// measure the kernel's page faults.
fn again() {
    let limit = (1_u64 << 40).to_string();
    let status = Command::new(env::current_exe().expect("a program knows its path"))
        .args(env::args().skip(1))
        .env(KEEP_MEMORY, &limit)
        .env("MALLOC_MMAP_THRESHOLD_", &limit)
        .env("MALLOC_TOP_PAD_", (64 << 20).to_string())
        .status();
    let succeeded = status.is_ok_and(|status| status.success());
    std::process::exit(i32::from(!succeeded));
}
