//! How much does a mount cost, compared with a minimal FUSE server, and with ext4 on the same
//! medium?
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
//! - `instructions`: the instructions of the library of zonefs and of the bare device.
//!
//! All places take turns within each round, so that other programs on the machine slow all of them.
//! Figures are medians of the rounds, and ratios medians of the ratios of each round. Drive files,
//! images and plain files lie in `BENCH_DIR`, or in `/dev/shm`. `--json FILE` puts the figures into
//! a file, such as `bench/results/fuse.json`.

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
mod trees;
mod zone_files;

use std::env;
use std::path::{Path, PathBuf};

use bench_support::Report;
use tempfile::TempDir;

fn main() {
    if daemon::is_asked_for() || instructions::are_counted() {
        return;
    }
    bench_support::keep_freed();
    let mut words = env::args().skip(1).collect();
    let mut report = Report::begin("cargo bench -p zonal-fuse --bench fuse", &mut words);
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("SKIP: needs root and /dev/fuse");
    }
    let home = env::var_os("BENCH_DIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let dir = TempDir::with_prefix_in("zonal-bench-", home).expect("a place for drive files");
    let wants = |part: &str| words.first().is_none_or(|word| word == part);
    let rows = words.get(1..).unwrap_or_default();
    if wants("instructions") {
        instructions::count(&mut report);
    }
    if wants("files") {
        report.subject("files", files::ROUNDS);
        files::measure(&mut report, dir.path(), rows);
    }
    if wants("depth") {
        report.subject("depth of a mount", files::ROUNDS);
        files::measure_in(&mut report, &place::Place::of_threads(dir.path()), rows);
    }
    if wants("trees") {
        trees::measure(&mut report, dir.path(), rows);
    }
    if wants("zonefs") {
        zone_files::measure_all(&mut report, dir.path(), rows);
    }
    report.end();
}

/// Whether `name` has one of `rows` in it, or all rows are wanted.
fn is_wanted(name: &str, rows: &[String]) -> bool {
    rows.is_empty() || rows.iter().any(|row| name.contains(row.as_str()))
}
