//! Super blocks that Debian's mkzonefs wrote: they are read, and ours are the same, byte for byte.
//! `cargo xtask vm` compares with the tool itself; these were kept from such a run.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::PathBuf;

use zonal::profile::Changes;
use zonal::{Lba, MemoryDrive, ZonedDevice};
use zonal_fs::zonefs::{Aggregate, Label, MkfsOptions, Superblock, mkfs};

fn fixture(name: &str) -> [u8; 4096] {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/zonefs");
    fs::read(folder.join(name)).unwrap().try_into().unwrap()
}

#[test]
fn superblock_of_mkzonefs_plain_round_trips() {
    let bytes = fixture("default.superblock");
    let superblock = Superblock::parse(&bytes).unwrap();
    assert_eq!(superblock.label, Label::new("").unwrap());
    assert_eq!(superblock.aggregate, Aggregate::Separate);
    assert_eq!((superblock.uid, superblock.gid, superblock.perm), (None, None, None));
    assert_eq!(superblock.to_bytes(), bytes);
}

#[test]
fn superblock_of_mkzonefs_with_options_round_trips() {
    let bytes = fixture("all-options.superblock");
    let superblock = Superblock::parse(&bytes).unwrap();
    assert_eq!(superblock.label, Label::new("all options").unwrap());
    assert_eq!(superblock.aggregate, Aggregate::Conventional);
    assert_eq!((superblock.uid, superblock.gid), (Some(7), Some(8)));
    assert_eq!(superblock.perm, Some(0o755));
    assert_eq!(superblock.to_bytes(), bytes);
}

#[test]
fn mkfs_with_same_options_gives_same_bytes() {
    let bytes = fixture("all-options.superblock");
    let shape: Changes = "zone=1M,capacity=768K,zones=8".parse().unwrap();
    let device = MemoryDrive::new(shape.geometry().unwrap()).unwrap();
    let options = MkfsOptions {
        label: "all options".to_owned(),
        uuid: bytes[72..88].try_into().unwrap(),
        aggregate: Aggregate::Conventional,
        uid: Some(7),
        gid: Some(8),
        perm: Some(0o755),
        ..MkfsOptions::default()
    };
    mkfs(&device, &options, &mut |_| ()).unwrap();
    let mut written = [0; 4096];
    device.read(Lba::ZERO, &mut written).unwrap();
    assert_eq!(written, bytes);
}
