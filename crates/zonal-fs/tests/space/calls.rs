//! How many calls of the device an operation makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::{
    DeviceError, Geometry, Lba, MemoryDrive, Select, Zone, ZoneAction, ZoneId, ZonedDevice,
};
use zonal_fs::vfs::{FileSystem, WriteFlags};

use super::{BLOCK, assert_clean, create, format, map_lengths, shape};

type Result<T> = std::result::Result<T, DeviceError>;

/// A device that counts.
struct Counted {
    below: MemoryDrive,
    appends: AtomicU64,
    reads: AtomicU64,
}

impl Counted {
    fn new() -> Arc<Self> {
        let below = MemoryDrive::new(shape(32, 2048)).unwrap();
        Arc::new(Self { below, appends: AtomicU64::new(0), reads: AtomicU64::new(0) })
    }

    /// Appends since the last time.
    fn appends(&self) -> u64 {
        self.appends.swap(0, Ordering::Relaxed)
    }
}

impl ZonedDevice for Counted {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        self.below.report(first, zones, limit)
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.below.read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.below.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.below.append(zone, data)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.below.manage(zones, action)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }
}

#[test]
fn the_blocks_of_many_small_files_are_one_write() {
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
