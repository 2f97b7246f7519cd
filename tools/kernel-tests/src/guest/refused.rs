//! The drive that Linux refuses, end to end: QEMU's, with zones of 3 MiB.
//!
//! Natively, our file systems are on it; through `po2:` and an export, the kernel's are.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::contents::{Contents, Syncing};
use super::export::{Export, Way};
use super::file_systems::Kind;
use super::mounted::Mounted;
use super::side::{self, zonal};
use super::zone_files;
use crate::drives::{self, REFUSED};
use xtask::run;
use xtask::tally::Tally;

/// The drive for the kernel's file systems.
pub(super) const ADAPTED: &str = "po2:/dev/drives/zns1-generic";

/// Bytes that are written to the Furrow at first: half of the drive.
const FILL: u64 = (drives::ZONES as u64 * drives::CAPACITY_MIB as u64 / 2) << 20;

/// A tree that every guest has, with directories, links and programs.
const TREE: &str = "/usr/lib/modules";

/// The kernel's file systems that need no conventional zones.
const KINDS: [Kind; 4] = [Kind::Zonefs, Kind::Btrfs, Kind::Xfs, Kind::F2fs];

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("Linux refuses zones of 3 MiB", is_refused);
    tally.check("the refused drive: what zonal tells of it", told);
    tally.check("the refused drive: our zonefs", our_zonefs);
    tally.check("the refused drive: Furrow", furrow);
    for kind in KINDS {
        for way in Way::ALL {
            tally.check(&format!("the refused drive: {kind:?} over {way}"), || {
                despite_lost_commands(|| {
                    let (export, disk) = Export::start(way, ADAPTED)?;
                    kind.exercise(&disk)?;
                    export.end()
                })
            });
        }
    }
}

/// Once in ten runs on a busy host, QEMU's controller did not answer a command. The guest's kernel
/// then resets the controller, and all outstanding commands fail. No layer above can help that, so
/// the check is run once more.
fn despite_lost_commands(check: impl Fn() -> Result<()>) -> Result<()> {
    let resets = || -> Result<usize> {
        let log = run::quietly(&mut Command::new("dmesg"))?;
        Ok(log.lines().filter(|line| line.contains("timeout, reset controller")).count())
    };
    let before = resets()?;
    match check() {
        Err(error) if resets()? > before => {
            println!("QEMU's controller lost a command, so once more: {error:#}");
            check()
        }
        outcome => outcome,
    }
}

/// Its disk is hidden and has no node; its twin is there.
fn is_refused() -> Result<()> {
    let node = fs::canonicalize(REFUSED)?;
    ensure!(fs::metadata(&node)?.file_type().is_char_device(), "{} is a disk", node.display());
    let name = node.file_name().and_then(|name| name.to_str()).context("a name")?;
    let disk = name.replacen("ng", "nvme", 1);
    let hidden = fs::read_to_string(format!("/sys/block/{disk}/hidden"))?;
    ensure!(hidden.trim() == "1", "{disk} is not hidden");
    ensure!(!Path::new("/dev").join(&disk).exists(), "{disk} has a node");
    let log = run::quietly(&mut Command::new("dmesg"))?;
    ensure!(log.contains("invalid zone size: 768 "), "the kernel says nothing of the zone size");
    ensure!(fs::metadata(drives::TWIN)?.file_type().is_block_device(), "the twin is no disk");
    Ok(())
}

fn told() -> Result<()> {
    let info: serde_json::Value = serde_json::from_str(&zonal(&["info", "--json", REFUSED])?)?;
    let zone = u64::from(drives::CAPACITY_MIB) << 20;
    for (field, expected) in [
        ("zones", u64::from(drives::ZONES)),
        ("zone_size_bytes", zone),
        ("zone_capacity_bytes", zone),
        ("block_size_bytes", u64::from(drives::BLOCK)),
        ("open_zones_max", u64::from(drives::OPEN_MAX)),
        ("active_zones_max", u64::from(drives::ACTIVE_MAX)),
    ] {
        ensure!(info[field] == expected, "{field} is {}, not {expected}", info[field]);
    }
    Ok(())
}

fn our_zonefs() -> Result<()> {
    zonal(&["mkzonefs", "-f", REFUSED])?;
    zone_files::exercise(|place| Mounted::zonal("zonefs", REFUSED, place))
}

/// Files with known contents, and a copied tree.
fn furrow() -> Result<()> {
    zonal(&["mkfs", "--force", REFUSED])?;
    let place = side::mount_point()?;
    let mounted = Mounted::zonal("furrow", REFUSED, &place)?;
    let mut contents = Contents::new(&place.join("files"), Syncing::Files)?;
    contents.fill(FILL)?;
    contents.change()?;
    contents.fill(FILL / 3)?;
    let copy = place.join("tree");
    run::quietly(Command::new("cp").arg("-a").arg(TREE).arg(&copy))?;
    mounted.unmount()?;
    zonal(&["check", REFUSED])?;
    let mounted = Mounted::zonal("furrow", REFUSED, &place)?;
    contents.verify()?;
    let count = same_tree(Path::new(TREE), &copy)?;
    ensure!(count > 50, "a tree of {count} entries");
    mounted.unmount()
}

/// Entries of two trees that are the same; an error says where they are not.
fn same_tree(one: &Path, other: &Path) -> Result<usize> {
    let names = |folder: &Path| -> Result<Vec<_>> {
        let mut names: Vec<_> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
        names.sort();
        Ok(names)
    };
    let listed = names(one)?;
    ensure!(listed == names(other)?, "{} has other entries", other.display());
    let mut count = listed.len();
    for name in listed {
        let (one, other) = (one.join(&name), other.join(&name));
        let (metadata, copied) = (one.symlink_metadata()?, other.symlink_metadata()?);
        let mode = metadata.permissions().mode();
        ensure!(mode == copied.permissions().mode(), "{} has another mode", other.display());
        let same = if metadata.is_dir() {
            count += same_tree(&one, &other)?;
            true
        } else if metadata.is_symlink() {
            fs::read_link(&one)? == fs::read_link(&other)?
        } else {
            fs::read(&one)? == fs::read(&other)?
        };
        if !same {
            bail!("{} is no copy of {}", other.display(), one.display());
        }
    }
    Ok(count)
}
