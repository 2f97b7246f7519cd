//! Space for copies of shared blocks: the promise of fallocate(2) for a file that shares its
//! blocks.

use std::sync::Arc;

use zonal::MemoryDrive;
use zonal_fs::FsError;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{Allocate, Caller, FileSystem, Ino, SetAttr, WriteFlags};

use super::{BLOCK, Dice, assert_clean, create, fill, format, mount, shape};

const BLOCKS: u64 = 1500;

/// A drive with a file, and a second one that shares all of its blocks.
fn shared() -> (Arc<MemoryDrive>, Furrow, [Ino; 2]) {
    let drive = Arc::new(MemoryDrive::new(shape(96, 64)).unwrap());
    let fs = format(drive.clone());
    let (original, copy) = (create(&fs, "original"), create(&fs, "copy"));
    fill(&fs, original, BLOCKS);
    let bytes = BLOCKS * BLOCK;
    let copied = fs.copy_range((original, 0), (copy, 0), bytes, WriteFlags::empty()).unwrap();
    assert_eq!(copied, bytes);
    fs.sync().unwrap();
    (drive, fs, [original, copy])
}

fn free(fs: &Furrow) -> u64 {
    fs.statfs().unwrap().blocks_free
}

/// Writes another file until the drive is full.
fn fill_drive(fs: &Furrow) {
    let rest = create(fs, "rest");
    let mut at = 0;
    loop {
        match fs.write(rest, at, &[9; 4096], WriteFlags::empty()) {
            Ok(_) => at += BLOCK,
            Err(FsError::NoSpace) => break,
            Err(error) => panic!("block {at}: {error}"),
        }
    }
    fs.sync().unwrap();
}

fn assert_content(fs: &Furrow, ino: Ino, byte: u8) {
    let mut block = [0; 4096];
    for at in 0..BLOCKS {
        assert_eq!(fs.read(ino, at * BLOCK, &mut block).unwrap(), 4096);
        assert!(block.iter().all(|&found| found == byte), "block {at}");
    }
}

#[test]
fn preallocated_copy_is_written_on_full_drive() {
    let (drive, fs, [original, copy]) = shared();
    let before = free(&fs);
    fs.fallocate(original, Allocate::KeepSize, 0, BLOCKS * BLOCK).unwrap();
    let taken = before - free(&fs);
    assert!((BLOCKS..BLOCKS + 8).contains(&taken), "{taken}");
    // A second time there is nothing left to preallocate.
    fs.fallocate(original, Allocate::Extend, 0, BLOCKS * BLOCK).unwrap();
    assert!(before - free(&fs) < BLOCKS + 8);
    fill_drive(&fs);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive.clone());

    let fs = mount(drive.clone());
    let mut dice = Dice(7);
    for _ in 0..200 {
        let at = dice.below(BLOCKS) * BLOCK;
        fs.write(original, at, &[3; 4096], WriteFlags::empty()).unwrap();
    }
    for at in (0..BLOCKS).step_by(100) {
        fs.write(original, at * BLOCK, &vec![3; 100 * 4096], WriteFlags::DIRECT).unwrap();
    }
    fs.sync().unwrap();
    assert_content(&fs, original, 3);
    assert_content(&fs, copy, 1);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn shared_blocks_without_space_fail_on_full_drive() {
    let (_, fs, [original, _]) = shared();
    fill_drive(&fs);
    let write = |at| fs.write(original, at * BLOCK, &[3; 4096], WriteFlags::empty());
    let refused = (0..BLOCKS).find_map(|at| write(at).err());
    assert!(matches!(refused, Some(FsError::NoSpace)), "{refused:?}");
}

#[test]
fn preallocation_of_copies_fails_without_room() {
    let (drive, fs, [original, copy]) = shared();
    fill_drive(&fs);
    let before = free(&fs);
    let refused = fs.fallocate(original, Allocate::KeepSize, 0, BLOCKS * BLOCK).unwrap_err();
    assert!(matches!(refused, FsError::NoSpace), "{refused}");
    assert_eq!(free(&fs), before);
    assert_content(&fs, copy, 1);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn space_for_copies_is_free_once_nothing_is_shared() {
    let (drive, fs, [original, copy]) = shared();
    let before = free(&fs);
    let range = BLOCKS / 3 * BLOCK..BLOCKS / 2 * BLOCK;
    fs.fallocate(original, Allocate::KeepSize, range.start + 5, range.end - range.start).unwrap();
    let taken = before - free(&fs);
    assert!((BLOCKS / 6..=BLOCKS / 6 + 8).contains(&taken), "{taken}");
    // The space is the file's own, and does not go to a copy of the copy.
    let third = create(&fs, "third");
    let copied = fs.copy_range((original, 0), (third, 0), BLOCKS * BLOCK, WriteFlags::empty());
    assert_eq!(copied.unwrap(), BLOCKS * BLOCK);
    assert!(before - free(&fs) <= taken + 8);
    for ino in [copy, third] {
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, ino, &empty).unwrap();
    }
    for _ in 0..64 {
        fs.tick().unwrap();
    }
    for at in (0..BLOCKS).step_by(100) {
        fs.write(original, at * BLOCK, &vec![3; 100 * 4096], WriteFlags::DIRECT).unwrap();
    }
    fs.sync().unwrap();
    assert!(free(&fs) + 8 >= before, "{} of {before}", free(&fs));
    assert_content(&fs, original, 3);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}
