//! A map entry in place of many: the rows of those are deleted, and lie within its blocks.

use std::sync::Arc;

use zonal::MemoryDrive;
use zonal_fs::vfs::{Allocate, FileSystem, Ino, WriteFlags};

use super::{BLOCK, assert_clean, create, format, mount, shape};

/// Blocks of the file, each of which was an entry of its own.
const BLOCKS: u64 = 460;

/// Where the entry begins: so far behind that it is not loaded with the inode.
const FIRST: u64 = 400;

#[test]
fn entry_over_deleted_rows_is_changed_anywhere() {
    for (block, blocks) in (FIRST + 1..BLOCKS - 9).zip((1..9).cycle()) {
        let drive = Arc::new(MemoryDrive::new(shape(24, 512)).unwrap());
        let fs = format(drive.clone());
        let (file, other) = (create(&fs, "file"), create(&fs, "other"));
        for at in (0..BLOCKS).rev() {
            for ino in [file, other] {
                fs.write(ino, at * BLOCK, &[1; 4096], WriteFlags::DIRECT).unwrap();
            }
        }
        fs.shutdown().unwrap();
        let fs = mount(drive.clone());
        let new = vec![2; usize::try_from((BLOCKS - FIRST) * BLOCK).unwrap()];
        fs.write(file, FIRST * BLOCK, &new, WriteFlags::DIRECT).unwrap();
        // The mount that follows has the deleted rows in memory.
        fs.sync().unwrap();
        drop(fs);

        let fs = mount(drive.clone());
        assert_eq!(fs.lookup(Ino::ROOT, b"file").unwrap().ino, file);
        fs.fallocate(file, Allocate::Punch, block * BLOCK, blocks * BLOCK).unwrap();
        fs.sync().unwrap();
        let mut found = vec![0; new.len()];
        fs.read(file, FIRST * BLOCK, &mut found).unwrap();
        for (at, content) in (FIRST..).zip(found.chunks(4096)) {
            let byte = if (block..block + blocks).contains(&at) { 0 } else { 2 };
            assert!(content.iter().all(|&found| found == byte), "block {at}");
        }
        fs.shutdown().unwrap();
        assert_clean(drive);
    }
}
