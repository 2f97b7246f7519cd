//! Operations that a full drive still takes, beside ext4 and XFS of the same size.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

use super::full_host::Host;
use super::{Place, text, zonal};

const FILES: u64 = 2000;
const MIB: usize = 1 << 20;

/// What a full file system has taken.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    new: u64,
    renamed: u64,
    overwritten: u64,
    deleted: u64,
}

/// Whether a call found space.
fn is_taken(outcome: &io::Result<()>) -> bool {
    if let Err(error) = outcome {
        assert_eq!(error.raw_os_error(), Some(28), "ENOSPC: {error}");
    }
    outcome.is_ok()
}

/// How many calls succeed before the first that finds no space.
fn until_full(call: impl Fn(u64) -> io::Result<()>) -> u64 {
    (0..u64::MAX).find(|&number| !is_taken(&call(number))).expect("it becomes full")
}

/// How many of the calls for all files succeed.
fn count(call: impl Fn(u64) -> io::Result<()>) -> u64 {
    (0..FILES).map(|number| u64::from(is_taken(&call(number)))).sum()
}

fn write_new(path: &Path, bytes: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![7; bytes])?;
    file.sync_all()
}

/// Fills a file system and counts what it takes then.
fn measure(dir: &Path) -> Taken {
    let (small, large) = (dir.join("small"), dir.join("large"));
    fs::create_dir(&small).unwrap();
    fs::create_dir(&large).unwrap();
    let name = |number: u64| small.join(number.to_string());
    assert_eq!(count(|number| write_new(&name(number), 4096)), FILES);
    for bytes in [4 * MIB, 64 << 10, 4096] {
        until_full(|number| write_new(&large.join(format!("{bytes}-{number}")), bytes));
    }
    let durable = || File::open(dir).unwrap().sync_all().is_ok();
    assert!(durable());
    let new = until_full(|number| File::create_new(small.join(format!("new-{number}"))).map(drop));
    let renamed_name = |number: u64| small.join(format!("renamed-to-a-longer-name-{number}"));
    let renamed = count(|number| fs::rename(name(number), renamed_name(number)));
    let now = |number: u64| {
        let old = name(number);
        if old.exists() { old } else { renamed_name(number) }
    };
    let overwritten = count(|number| {
        let file = File::options().write(true).open(now(number))?;
        file.write_all_at(&[8; 4096], 0)?;
        file.sync_all()
    });
    let deleted = count(|number| fs::remove_file(now(number)));
    assert!(durable());
    Taken { new, renamed, overwritten, deleted }
}

#[test]
#[ignore = "fills file systems of 1 GiB, as root; run by cargo xtask test"]
fn full_drive_takes_renames_overwrites_and_deletions() {
    let Some(place) = Place::mountable() else { return };
    let (drive, dir) = (place.path("large.zns"), place.dir());
    zonal(&["create", text(&drive), "--zones", "256", "--zone-size", "4MiB"]);
    zonal(&["mkfs", text(&drive)]);
    zonal(&["mount", text(&drive), text(&dir)]);
    let taken = measure(&dir);
    zonal(&["umount", text(&dir)]);
    println!("furrow: {taken:?}");
    assert_eq!(taken, Taken { renamed: FILES, overwritten: FILES, deleted: FILES, ..taken });
    for mkfs in [&["mkfs.ext4", "-q", "-F"][..], &["mkfs.xfs", "-q", "-f"]] {
        let Some(host) = Host::in_file(&place, 1024, mkfs) else {
            println!("SKIP: {} makes nothing that can be mounted here", mkfs[0]);
            continue;
        };
        println!("{}: {:?}", mkfs[0], measure(&host.0));
        unmount(&host.0, UnmountFlags::empty()).unwrap();
        fs::remove_dir(&host.0).unwrap();
    }
}
