//! Super blocks: ours and those of Debian's mkzonefs are the same, and each side mounts the
//! other's.

use anyhow::{Context, Result, ensure};

use super::shape::{DISK, SSD, Shape};
use super::side::Drive;
use crate::calls::{self, Calls, compare};
use xtask::run;
use xtask::tally::Tally;

/// Options of mkzonefs, and a word for them.
const FORMATS: [(&str, &Shape, &[&str]); 8] = [
    ("default", &DISK, &[]),
    ("label", &DISK, &["-L", "a label"]),
    ("aggregated", &DISK, &["-o", "aggr_cnv"]),
    ("owner", &DISK, &["-o", "uid=1000,gid=100"]),
    ("permissions", &DISK, &["-o", "perm=600"]),
    ("all", &DISK, &["-L", "all options", "-o", "aggr_cnv,uid=7,gid=8,perm=755"]),
    ("default", &SSD, &[]),
    ("all", &SSD, &["-L", "all options", "-o", "aggr_cnv,uid=7,gid=8,perm=755"]),
];

/// Where the UUID lies.
const UUID: std::ops::Range<usize> = 72..88;

/// All checks of this file.
pub(super) fn checks(rows: &[compare::Row], tally: &mut Tally) {
    for (name, shape, options) in FORMATS {
        let name = format!("zonefs super block, {name}, {}", shape.name);
        tally.check(&name, || check(shape, options, rows));
    }
}

fn check(shape: &Shape, options: &[&str], rows: &[compare::Row]) -> Result<()> {
    let kernel = Drive::kernel(shape)?;
    let here = Drive::here(shape)?;
    let said = kernel.format(options).context("formatting with Debian's tool")?;
    let theirs = kernel.super_block()?;
    keep(shape, options, &theirs)?;
    let uuid = theirs[UUID].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let options = [options, &["-U", &uuid]].concat();
    let ours_said = here.format(&options).context("formatting with ours")?;
    let ours = here.super_block()?;
    ensure!(theirs == ours, "{}", first_difference(&theirs, &ours));
    let said = said.replace(&kernel.name().display().to_string(), "DEVICE");
    let ours_said = ours_said.replace(&here.name().display().to_string(), "DEVICE");
    ensure!(said == ours_said, "mkzonefs said\n{said}\nand ours\n{ours_said}");
    let identified = identify(&kernel)?;
    kernel.set_super_block(&ours).context("giving our super block to the kernel")?;
    here.set_super_block(&theirs).context("giving the super block of Debian's tool to us")?;
    let again = identify(&kernel)?;
    ensure!(identified == again, "blkid: {identified} of theirs, {again} of ours");
    let theirs = tree(&kernel).context("the kernel's zonefs, with our super block")?;
    let ours = tree(&here).context("our zonefs, with the super block of Debian's tool")?;
    compare::logs(&theirs, &ours, rows).map(|_| ())
}

fn first_difference(theirs: &[u8], ours: &[u8]) -> String {
    match theirs.iter().zip(ours).position(|(a, b)| a != b) {
        Some(at) => format!("byte {at} is {} of theirs, {} of ours", theirs[at], ours[at]),
        None => format!("{} bytes of theirs, {} of ours", theirs.len(), ours.len()),
    }
}

/// Keeps the super block of Debian's tool next to the log of this run, for the fixtures.
fn keep(shape: &Shape, options: &[&str], bytes: &[u8]) -> Result<()> {
    let name = format!("{}{}", shape.name, options.concat().replace([',', '=', ' '], "-"));
    std::fs::write(format!("/share/{name}.superblock"), bytes).context("keeping a super block")
}

/// The output of blkid about the drive of the kernel.
fn identify(drive: &Drive) -> Result<String> {
    let mut command = std::process::Command::new("blkid");
    command.args(["-p", "-o", "export", "-s", "LABEL", "-s", "TYPE", "-s", "FSBLOCKSIZE"]);
    run::quietly(command.arg(drive.name()))
}

/// Every attribute of every file and directory.
fn tree(drive: &Drive) -> Result<String> {
    let mount = drive.mount("errors=remount-ro")?;
    let mut log = Vec::new();
    let dir = mount.path().to_path_buf();
    let calls = Calls { dir, seed: 0, count: 0, limited: false, device: None };
    calls::run(&calls, &mut log)?;
    mount.unmount()?;
    Ok(String::from_utf8(log)?)
}
