//! How many calls of the device an operation makes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use zonal::{DeviceError, Lba, MemoryDrive, ZoneId, ZonedDevice};
use zonal_fs::vfs::{Caller, FileSystem, SetAttr, WriteFlags};

use super::gate::{Call, Gate};
use super::{BLOCK, assert_clean, create, format, map_lengths, shape};

type Result<T> = std::result::Result<T, DeviceError>;

/// A device that counts.
struct Counted {
    below: MemoryDrive,
    appends: AtomicU64,
    /// Where in memory reads went, and how many bytes.
    reads: Mutex<Vec<(usize, usize)>>,
}

impl Counted {
    fn new() -> Arc<Self> {
        let below = MemoryDrive::new(shape(32, 2048)).unwrap();
        Arc::new(Self { below, appends: AtomicU64::new(0), reads: Mutex::default() })
    }

    /// Appends since the last time.
    fn appends(&self) -> u64 {
        self.appends.swap(0, Ordering::Relaxed)
    }

    /// Reads since the last time, and how many of their bytes went straight into `buffer`.
    fn reads(&self, buffer: &[u8]) -> (usize, usize) {
        let reads = std::mem::take(&mut *self.reads.lock().unwrap());
        let range = buffer.as_ptr_range();
        let range = range.start.addr()..range.end.addr();
        let straight = reads.iter().filter(|(at, _)| range.contains(at)).map(|(_, len)| len).sum();
        (reads.len(), straight)
    }
}

impl ZonedDevice for Counted {
    zonal::pass_on!(below: geometry, report, write, manage, flush);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.reads.lock().unwrap().push((buffer.as_ptr().addr(), buffer.len()));
        self.below.read(lba, buffer)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.below.append(zone, data)
    }
}

#[test]
fn write_back_joins_blocks_of_many_small_files() {
    let drive = Counted::new();
    let fs = format(drive.clone());
    let content = |file: u64| vec![u8::try_from(file % 251).unwrap(); 4096];
    let files: Vec<_> = (0..256).map(|file| create(&fs, &format!("file {file}"))).collect();
    for (file, &ino) in (0..).zip(&files) {
        fs.write(ino, 0, &content(file), WriteFlags::empty()).unwrap();
    }
    drive.appends();
    fs.sync().unwrap();
    assert_eq!(drive.appends(), 1);
    for (file, &ino) in (0..).zip(&files) {
        let mut data = content(file + 1);
        fs.read(ino, 0, &mut data).unwrap();
        assert_eq!(data, content(file), "file {file}");
    }
    assert_eq!(map_lengths(drive.clone()), [1; 256]);
    // Blocks here and there in files of some length: in one write all the same.
    for (file, &ino) in (0..).zip(&files).take(60) {
        for block in [1, 2, 4] {
            fs.write(ino, block * BLOCK, &content(file + block), WriteFlags::empty()).unwrap();
        }
    }
    fs.sync().unwrap();
    assert_eq!(drive.appends(), 1);
    for (file, &ino) in (0..).zip(&files).take(60) {
        let mut data = vec![0; 5 << 12];
        fs.read(ino, 0, &mut data).unwrap();
        let hole = vec![0; 4096];
        let expected =
            [content(file), content(file + 1), content(file + 2), hole, content(file + 4)];
        assert_eq!(data, expected.concat(), "file {file}");
    }
    drop(fs);
    assert_clean(drive);
}

#[test]
fn write_takes_last_block_with_others() {
    let drive = Counted::new();
    let fs = format(drive.clone());
    let (ino, other) = (create(&fs, "file"), create(&fs, "other"));
    drive.appends();
    let data = vec![7; 100_100];
    fs.write(ino, 0, &data, WriteFlags::DIRECT).unwrap();
    // If the last block came in a later write, data of the other file would lie between.
    fs.write(other, 0, &data, WriteFlags::DIRECT).unwrap();
    fs.sync().unwrap();
    assert_eq!(drive.appends(), 2);
    assert_eq!(map_lengths(drive.clone()), [25, 25]);
    // The padding is zeroes, and bytes of the file behind a write stay.
    fs.write(ino, 0, &vec![8; 90_000], WriteFlags::empty()).unwrap();
    let longer = SetAttr { size: Some(110_000), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &longer).unwrap();
    fs.sync().unwrap();
    let mut found = vec![1; 110_000];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), found.len());
    assert_eq!(found, [vec![8; 90_000], vec![7; 10_100], vec![0; 9900]].concat());
    drop(fs);
    assert_clean(drive);
}

#[test]
fn write_growing_file_keeps_block_in_flight() {
    let drive = Gate::new(shape(32, 1024));
    let fs = format(drive.clone());
    let ino = create(&fs, "file");
    let len = (16 << 12) + 100;
    drive.hold(Call::Append);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| fs.write(ino, 0, &vec![1; len], WriteFlags::DIRECT));
        drive.wait_for(1);
        fs.write(ino, len as u64 + 50, &[2; 50], WriteFlags::empty()).unwrap();
        drive.open();
        write.join().unwrap().unwrap();
    });
    let mut found = vec![9; len + 100];
    fs.read(ino, 0, &mut found).unwrap();
    assert_eq!(found, [vec![1; len], vec![0; 50], vec![2; 50]].concat());
    fs.sync().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn read_of_whole_blocks_goes_straight_to_buffer() {
    let drive = Counted::new();
    let fs = format(drive.clone());
    let ino = create(&fs, "file");
    let content: Vec<u8> = (0..600_100_u32).map(|at| (at / 7 % 251) as u8).collect();
    fs.write(ino, 0, &content, WriteFlags::empty()).unwrap();
    fs.sync().unwrap();
    let kib = |kib: usize| kib << 10;
    // Offset, room, calls of the device, bytes that are not copied.
    for (offset, room, calls, straight) in [
        // The end of the file, with room for all of its last block: 147 blocks.
        (0, kib(1024), 1, 147 << 12),
        // The same without that room.
        (0, 600_100, 2, 146 << 12),
        // The last block alone, and a short read at odd offsets.
        (146 << 12, kib(128), 1, 1 << 12),
        (1000, 20_000, 1, 0),
        // A long one, cut at both ends, at one end, and not at all.
        (1000, kib(256), 3, 63 << 12),
        (kib(64), kib(128) + 1, 2, 32 << 12),
        (kib(64), kib(128), 1, 32 << 12),
    ] {
        let mut buffer = vec![0xa5; room];
        drive.reads(&buffer);
        let read = fs.read(ino, offset as u64, &mut buffer).unwrap();
        let found = drive.reads(&buffer);
        assert_eq!(found, (calls, straight), "{room} bytes at {offset}");
        let end = content.len().min(offset + room);
        assert!(buffer[..read] == content[offset..end], "{room} bytes at {offset}");
    }
    // Holes and buffered blocks are in the same places.
    fs.write(ino, 700_000, &[3; 10], WriteFlags::empty()).unwrap();
    fs.write(ino, 5000, &[4; 10], WriteFlags::empty()).unwrap();
    let mut expected = content;
    expected[5000..5010].fill(4);
    expected.resize(700_000, 0);
    expected.extend_from_slice(&[3; 10]);
    for (offset, room) in [(0, 700_010), (4999, 695_011), (4096, 90_000), (604_000, 96_010)] {
        let mut buffer = vec![0xa5; room];
        assert_eq!(fs.read(ino, offset as u64, &mut buffer).unwrap(), room);
        assert!(buffer == expected[offset..offset + room], "{room} bytes at {offset}");
    }
}
