//! Copies while source and target change: another operation comes in the middle of each, at a place
//! that the device decides, so that every run is the same.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use zonal::{DeviceError, Lba, ZoneId};
use zonal_fs::furrow::{Furrow, MountOptions, sample};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, WriteFlags};

use crate::hooked::{Hook, Hooked};

const BLOCK: u64 = 4096;

type Between = Box<dyn FnOnce() + Send>;

/// Does something before an append, once, and fails reads from some number on.
struct InBetween {
    before_append: Mutex<Option<Between>>,
    reads_left: AtomicU32,
}

impl Hook for InBetween {
    fn before_append(&self, _zone: ZoneId) -> Result<(), DeviceError> {
        let between = self.before_append.lock().expect("no panic").take();
        if let Some(between) = between {
            between();
        }
        Ok(())
    }

    fn after_read(&self, lba: Lba, _bytes: &mut [u8]) -> Result<(), DeviceError> {
        let left = self.reads_left.load(Ordering::Relaxed);
        self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 { Err(DeviceError::Medium { lba }) } else { Ok(()) }
    }
}

/// Two empty files on such a device.
struct Copied {
    fs: Arc<Furrow>,
    device: Arc<Hooked<InBetween>>,
    source: Ino,
    target: Ino,
}

impl Copied {
    fn new() -> Self {
        let (drive, clock) = sample::formatted(64, 256);
        let hook =
            InBetween { before_append: Mutex::default(), reads_left: AtomicU32::new(u32::MAX) };
        let device = Hooked::new(drive, hook);
        let fs = Furrow::mount(device.clone(), clock, MountOptions::default()).expect("mount");
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let [source, target] = [&b"source"[..], b"target"]
            .map(|name| fs.create(&Caller::ROOT, Ino::ROOT, name, &new).expect("create").ino);
        Self { fs: Arc::new(fs), device, source, target }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        let written = self.fs.write(ino, offset, data, WriteFlags::empty());
        written.expect("there is room");
    }

    /// The next append happens after this.
    fn between(&self, between: impl FnOnce(&Furrow) + Send + 'static) {
        let fs = Arc::clone(&self.fs);
        let between: Between = Box::new(move || between(&fs));
        *self.device.hook.before_append.lock().expect("no panic") = Some(between);
    }

    /// Copies from the beginning. The operation in between has run then.
    fn copy(&self, (from, len): (u64, u64)) -> u64 {
        let (source, target) = ((self.source, from), (self.target, 0));
        let copied = self.fs.copy_range(source, target, len, WriteFlags::empty());
        assert!(self.device.hook.before_append.lock().expect("no panic").is_none());
        copied.expect("some bytes are copied")
    }

    fn content(&self, ino: Ino) -> Vec<u8> {
        let size = self.fs.getattr(ino).expect("getattr").size;
        let mut data = vec![0xee; size as usize];
        assert_eq!(self.fs.read(ino, 0, &mut data).expect("read"), data.len());
        data
    }
}

fn resize(fs: &Furrow, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &set).expect("setattr");
}

/// Bytes none of which is zero.
fn bytes(len: u64, first: u8) -> Vec<u8> {
    (0..len).map(|at| first + (at % 50) as u8).collect()
}

#[test]
fn copy_of_growing_source_stops_at_old_end() {
    let copied = Copied::new();
    let data = bytes(2 * BLOCK + 100, 1);
    copied.write(copied.source, 0, &data);
    let source = copied.source;
    copied.between(move |fs| {
        fs.write(source, 2 * BLOCK + 100, &[99; 1000], WriteFlags::empty()).expect("write");
    });
    let done = copied.copy((0, 2 * BLOCK + 100));
    assert_eq!(done, 2 * BLOCK + 100);
    assert!(copied.content(copied.target) == data);
    resize(&copied.fs, copied.target, 3 * BLOCK);
    let behind = &copied.content(copied.target)[data.len()..];
    assert!(behind.iter().all(|&byte| byte == 0), "bytes of the source behind the target's end");
}

#[test]
fn copy_keeps_write_behind_copied_range() {
    let copied = Copied::new();
    let data = bytes(2 * BLOCK + 100, 1);
    copied.write(copied.source, 0, &data);
    let target = copied.target;
    copied.between(move |fs| {
        fs.write(target, 2 * BLOCK + 200, &[99; 50], WriteFlags::empty()).expect("write");
    });
    assert_eq!(copied.copy((0, 2 * BLOCK + 100)), 2 * BLOCK + 100);
    let expected = [&data[..], &[0; 100], &[99; 50]].concat();
    assert!(copied.content(copied.target) == expected);
}

#[test]
fn copy_of_shrinking_source_ends_with_it() {
    let copied = Copied::new();
    let data = bytes(3 * BLOCK, 1);
    copied.write(copied.source, 0, &data);
    let source = copied.source;
    copied.between(move |fs| resize(fs, source, BLOCK));
    assert_eq!(copied.copy((0, 3 * BLOCK)), BLOCK);
    assert!(copied.content(copied.target) == data[..BLOCK as usize]);
}

#[test]
fn copy_bytewise_of_shrinking_source_ends_with_it() {
    const MIB: u64 = 1 << 20;
    let copied = Copied::new();
    let data = bytes(2 * MIB + 1, 1);
    copied.write(copied.source, 0, &data);
    copied.fs.sync().expect("sync");
    let source = copied.source;
    // While the first step is written.
    copied.between(move |fs| resize(fs, source, MIB + 1 + 10));
    assert_eq!(copied.copy((1, 2 * MIB)), MIB + 10);
    assert!(copied.content(copied.target) == data[1..][..MIB as usize + 10]);
}

#[test]
fn copy_failing_midway_reports_bytes_copied() {
    const MIB: u64 = 1 << 20;
    let copied = Copied::new();
    let data = bytes(2 * MIB + 1, 1);
    copied.write(copied.source, 0, &data);
    copied.fs.sync().expect("sync");
    let device = Arc::clone(&copied.device);
    copied.between(move |_| device.hook.reads_left.store(0, Ordering::Relaxed));
    let done = copied.copy((1, 2 * MIB));
    assert_eq!(done, MIB);
    let again = copied.fs.copy_range(
        (copied.source, 1 + done),
        (copied.target, done),
        MIB,
        WriteFlags::empty(),
    );
    assert!(again.is_err(), "no bytes, so the error");
    copied.device.hook.reads_left.store(u32::MAX, Ordering::Relaxed);
    assert!(copied.content(copied.target) == data[1..][..MIB as usize]);
}
