//! Swap space on an ordinary disk over ublk, in a machine with little memory.
//!
//! A server that waits for memory never ends then: the machine stands still, and the host ends it
//! when its time is over.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::export::bytes_written;
use super::ublk_disk::ServedDisk;
use crate::drives;
use xtask::run;
use xtask::tally::Tally;

/// How often the memory is filled, and all of it swapped in again.
const PASSES: u64 = 3;

/// Memory that a program uses beyond all that is available.
const BEYOND_BYTES: u64 = 64 << 20;

const PAGE_BYTES: usize = 4096;

pub(super) fn checks(tally: &mut Tally) {
    tally.check("disk over ublk: swap space under memory pressure", swapped);
}

/// A program needs more memory than there is, and there is no other swap space. The drive is a
/// block device: a file system that writes the pages of a file back would allocate memory.
fn swapped() -> Result<()> {
    let disk = ServedDisk::on(drives::TWIN, &["--size=192M"], &["--swap"])?;
    let block = disk.block().to_owned();
    let on_block = |program: &str| run::quietly(Command::new(program).arg(&block)).map(drop);
    on_block("mkswap")?;
    let resident = disk.memory_in_place()?;
    for pass in 1..=PASSES {
        on_block("swapon")?;
        let before = bytes_written(&block)?;
        let mib = (memory("MemAvailable")? + BEYOND_BYTES) >> 20;
        let program = std::env::current_exe()?;
        run::quietly(Command::new(program).arg("hog").arg(mib.to_string()))?;
        let written = bytes_written(&block)? - before;
        println!("pass {pass}: {mib} MiB used, {} MiB swapped out", written >> 20);
        ensure!(written > BEYOND_BYTES / 2, "only {written} bytes were swapped out");
        on_block("swapoff")?;
    }
    let left = disk.memory_in_place()?;
    ensure!(left >= resident, "of {resident} KiB of the server, {left} KiB are in memory");
    disk.end()
}

/// Bytes, as `/proc/meminfo` has them.
fn memory(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: u64 = line.and_then(|line| line.trim().strip_suffix(" kB")).context("kB")?.parse()?;
    Ok(kib << 10)
}

/// Fills so many MiB of memory, and reads all of it back.
pub(super) fn hog(mib: usize) -> Result<()> {
    let content = |page: usize, round: usize| (page * 31 + round).to_le_bytes();
    let mut memory = vec![0_u8; mib << 20];
    for round in 0..2 {
        for (page, bytes) in memory.chunks_mut(PAGE_BYTES).enumerate() {
            for place in [0, PAGE_BYTES - 8] {
                let held = &mut bytes[place..place + 8];
                ensure!(round == 0 || held == content(page, round - 1), "page {page} is wrong");
                held.copy_from_slice(&content(page, round));
            }
        }
    }
    Ok(())
}
