//! A disk of the guest that has no zones: `zonal create` cuts it into virtual ones. Checks the
//! output of the command line at each step, and both of our file systems on the disk.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::side::zonal;
use crate::drives;
use xtask::run;
use xtask::tally::Tally;

const MOUNT: &str = "/tmp/virtual";

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("a disk without zones is refused until it is cut into zones", refused);
    tally.check("what the kernel has mounted is not cut into zones", mounted);
    for (kind, make) in [("zonefs", "mkzonefs"), ("furrow", "mkfs")] {
        tally.check(&format!("{kind} on virtual zones"), || file_system(make));
    }
}

/// The words of a command that has to fail.
fn failing(arguments: &[&str]) -> Result<String> {
    match zonal(arguments) {
        Ok(output) => bail!("{arguments:?} does not fail: {output}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn expect(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in {text:?}");
    }
    Ok(())
}

fn refused() -> Result<()> {
    let create = ["create", drives::PLAIN, "--zone-size", "16MiB"];
    expect(&failing(&["info", drives::PLAIN])?, &["has no zones", "zonal create"])?;
    run::quietly(Command::new("mkfs.xfs").args(["-q", "-f", drives::PLAIN]))?;
    expect(&failing(&create)?, &["holds xfs", "--force"])?;
    expect(&zonal(&[create.as_slice(), &["--force"]].concat())?, &["zones of 16 MiB"])?;
    expect(&zonal(&["info", drives::PLAIN])?, &["63 zones", "16 MiB", "no limit", "63 empty"])?;
    expect(&failing(&create)?, &["holds zonal_drive"])?;
    zonal(&["create", drives::PLAIN, "--zone-size=3MiB", "--zones=64", "--max-open=4", "-f"])?;
    expect(&zonal(&["info", drives::PLAIN])?, &["64 zones", "not a power of two", "at most 4"])
}

fn mounted() -> Result<()> {
    fs::create_dir_all(MOUNT)?;
    run::quietly(Command::new("mkfs.xfs").args(["-q", "-f", drives::PLAIN]))?;
    run::quietly(Command::new("mount").args(["-t", "xfs", drives::PLAIN, MOUNT]))?;
    let outcome = failing(&["create", drives::PLAIN, "--zone-size=16MiB", "--force"]);
    run::quietly(Command::new("umount").arg(MOUNT))?;
    expect(&outcome?, &["in use by another process"])
}

/// Makes one, copies a tree there, and finds it again.
fn file_system(make: &str) -> Result<()> {
    fs::create_dir_all(MOUNT)?;
    zonal(&["create", drives::PLAIN, "--zone-size=24MiB", "--conventional=1", "--force"])?;
    zonal(&[make, drives::PLAIN])?;
    let bytes: Vec<u8> = (0..786_432_u32).flat_map(u32::to_le_bytes).collect();
    fs::write("/tmp/bytes", &bytes)?;
    let file = if make == "mkfs" { "file" } else { "seq/0" };
    let file = format!("{MOUNT}/{file}");
    for round in 0..2 {
        zonal(&["mount", drives::PLAIN, MOUNT])?;
        let used = if round == 0 {
            let target = format!("of={file}");
            let copy = ["if=/tmp/bytes", &target, "bs=128k", "conv=notrunc", "oflag=direct"];
            run::quietly(Command::new("dd").args(copy)).map(drop)
        } else {
            fs::read(&file).map_err(Into::into).and_then(|found| {
                ensure!(found == bytes, "{file} holds something else");
                Ok(())
            })
        };
        zonal(&["umount", MOUNT])?;
        used?;
    }
    Ok(())
}
