//! Swap space on disks over ublk, in a machine with little memory: a server that waited for memory
//! would wait for itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::export::{Export, bytes_written};
use super::side::zonal;
use crate::drives;
use xtask::run;
use xtask::tally::Tally;

/// What a program uses beyond all memory: half of the swap space.
const BEYOND_BYTES: u64 = 64 << 20;

/// The drives are no files of the guest: to write back the pages of one, the kernel needs memory.
pub(super) fn checks(tally: &mut Tally) {
    for drive in [drives::TWIN, drives::REFUSED] {
        tally.check(&format!("swap space on a disk over ublk, on {drive}"), || swap_to(drive));
    }
}

fn swap_to(drive: &str) -> Result<()> {
    zonal(&["mkfs", drive])?;
    zonal(&["disk", "create", drive, "swap", "--size=128M"])?;
    let (export, block) = Export::ublk(&format!("{drive}//swap"), &[])?;
    run::quietly(Command::new("mkswap").arg(&block))?;
    run::quietly(Command::new("swapon").arg(&block))?;
    let needed = (available()? + BEYOND_BYTES) >> 20;
    // The directory that is shared with the host may need memory to be read.
    let program = Path::new("/root/hog");
    fs::copy(std::env::current_exe()?, program)?;
    run::quietly(Command::new(program).arg("hog").arg(needed.to_string()))?;
    let written = bytes_written(&block)?;
    println!("{needed} MiB used, {} MiB swapped out", written >> 20);
    ensure!(written >= BEYOND_BYTES / 2, "only {written} bytes were swapped out");
    run::quietly(Command::new("swapoff").arg(&block))?;
    export.end()?;
    zonal(&["check", "--data", drive]).map(drop)
}

/// Bytes that programs can have without swap space.
fn available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("MemAvailable")?;
    Ok(kib.parse::<u64>()? << 10)
}

/// Fills memory, and reads all of it back: from the end, where most is not swapped out.
pub(super) fn hog(mib: usize) -> Result<()> {
    let stamp = |number: usize| number.wrapping_mul(31).to_le_bytes();
    let mut memory = vec![0_u8; mib << 20];
    for (number, page) in memory.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&stamp(number));
    }
    for (number, page) in memory.chunks(4096).enumerate().rev() {
        ensure!(page[..8] == stamp(number), "page {number} is wrong");
    }
    Ok(())
}
