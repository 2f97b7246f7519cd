//! Extents are as large as the order of writing allows, and shared extents stay whole.

use std::sync::Arc;

use zonal::{MemoryDrive, ZonedDevice};
use zonal_fs::furrow::{DataCheck, DumpWhat, check, dump};
use zonal_fs::vfs::{FileSystem, WriteFlags};

use super::{BLOCK, assert_clean, create, format, map_lengths, mount, shape};

#[test]
fn extents_of_ordered_writes_are_largest() {
    for (piece, flags) in [
        (1, WriteFlags::empty()),
        (1, WriteFlags::DIRECT),
        (1, WriteFlags::DURABLE),
        (8, WriteFlags::DIRECT),
        (32, WriteFlags::empty()),
        (256, WriteFlags::empty()),
    ] {
        let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(shape(32, 1024)).unwrap());
        let fs = format(drive.clone());
        let ino = create(&fs, "in order");
        let data = vec![5; usize::try_from(piece * BLOCK).unwrap()];
        for at in (0..1024).step_by(usize::try_from(piece).unwrap()) {
            fs.write(ino, at * BLOCK, &data, flags).unwrap();
        }
        fs.sync().unwrap();
        // The largest is an eighth of a zone.
        let lengths = map_lengths(drive.clone());
        assert_eq!(lengths, [128; 8], "{piece} blocks at a time, {flags:?}");
        assert_clean(drive);
    }
}

#[test]
fn extents_are_separate_only_while_shared() {
    let drive: Arc<dyn ZonedDevice> = Arc::new(MemoryDrive::new(shape(32, 1024)).unwrap());
    let fs = format(drive.clone());
    let (source, copy) = (create(&fs, "source"), create(&fs, "copy"));
    fs.write(source, 0, &vec![3; 64 << 12], WriteFlags::empty()).unwrap();
    let extents = || {
        fs.sync().unwrap();
        let mut found = Vec::new();
        dump(drive.clone(), DumpWhat::Extents, &mut |extent| {
            found.push((extent["blocks"].as_u64().unwrap(), extent["refs"].as_u64().unwrap()));
        })
        .unwrap();
        found
    };
    assert_eq!(extents(), []);
    fs.copy_range((source, 16 * BLOCK), (copy, 0), 32 * BLOCK, WriteFlags::empty()).unwrap();
    assert_eq!(extents(), [(32, 2)]);
    // Only the source has the blocks now, and its next write makes them its own.
    fs.write(copy, 0, &vec![4; 32 << 12], WriteFlags::DIRECT).unwrap();
    assert_eq!(extents(), [(32, 1)]);
    fs.write(source, 20 * BLOCK, &[4; 4096], WriteFlags::DIRECT).unwrap();
    assert_eq!(extents(), []);
    let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.blocks, 64 + 32, "nothing is kept that nobody has");
    drop(fs);
    let fs = mount(drive);
    let mut data = vec![0; 64 << 12];
    fs.read(source, 0, &mut data).unwrap();
    let four = 20 << 12..21 << 12;
    assert!(
        data.iter().enumerate().all(|(at, &byte)| byte == if four.contains(&at) { 4 } else { 3 })
    );
}
