//! 01xx: sizes, names and inode numbers.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use crate::drive::{AGGREGATED, CONVENTIONAL, Drive, SEPARATE, SHAPES};
use crate::io::append;

/// A file's size, and the space that it takes.
fn size_and_space(path: &std::path::Path) -> (u64, u64) {
    let data = fs::metadata(path).unwrap();
    (data.size(), data.blocks() * 512)
}

#[test]
fn t0100_sizes() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        for number in 0..shape.cnv_files() {
            assert_eq!(size_and_space(&drive.cnv(number)), (shape.zone, shape.zone));
        }
        for number in 0..shape.seq_files() {
            assert_eq!(size_and_space(&drive.seq(number)), (0, shape.capacity));
        }
        // The size is the write pointer, also after the next mount.
        append(&drive.seq(1), 8192).unwrap();
        assert_eq!(size_and_space(&drive.seq(1)), (8192, shape.capacity));
        assert_eq!(fs::metadata(drive.seq(1)).unwrap().blksize(), shape.block);
        drive.remount("");
        assert_eq!(size_and_space(&drive.seq(1)), (8192, shape.capacity));
    }
}

#[test]
fn t0101_sizes_aggregated() {
    for shape in CONVENTIONAL {
        let Some(drive) = Drive::mounted(shape, AGGREGATED) else { return };
        let all = shape.zone * shape.cnv_files();
        assert_eq!(size_and_space(&drive.cnv(0)), (all, all));
        assert!(!drive.cnv(1).exists());
        for number in 0..shape.seq_files() {
            assert_eq!(size_and_space(&drive.seq(number)), (0, shape.capacity));
        }
    }
}

/// A file has the number of its first zone; root, cnv and seq come after the zones.
fn check_numbers(drive: &Drive, cnv_files: u64) {
    let shape = drive.shape;
    let number = |path| fs::metadata(path).unwrap().ino();
    assert_eq!(number(drive.root()), shape.zones);
    assert_eq!(number(drive.root().join("seq")), shape.zones + 2);
    if cnv_files > 0 {
        assert_eq!(number(drive.root().join("cnv")), shape.zones + 1);
    }
    for file in 0..cnv_files {
        assert_eq!(number(drive.cnv(file)), 1 + file);
    }
    for file in 0..shape.seq_files() {
        assert_eq!(number(drive.seq(file)), shape.first_seq() + file);
    }
    // A listing has them in the order of the zones, with the same numbers.
    let mut expected = 0..shape.seq_files();
    for entry in fs::read_dir(drive.root().join("seq")).unwrap() {
        let entry = entry.unwrap();
        let file = expected.next().unwrap();
        assert_eq!(entry.file_name().to_str().unwrap(), file.to_string());
        assert_eq!(entry.ino(), shape.first_seq() + file);
        assert!(entry.file_type().unwrap().is_file());
    }
    assert_eq!(expected.next(), None);
    // A file has one name.
    for name in ["00", "01", "+1", "-0", "64", "99999999999999999999", " 1", "a"] {
        assert!(!drive.root().join("seq").join(name).exists(), "{name:?}");
    }
}

#[test]
fn t0110_names_and_inode_numbers() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        check_numbers(&drive, shape.cnv_files());
    }
}

#[test]
fn t0111_names_and_inode_numbers_aggregated() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, AGGREGATED) else { return };
        check_numbers(&drive, shape.cnv_files().min(1));
    }
}
