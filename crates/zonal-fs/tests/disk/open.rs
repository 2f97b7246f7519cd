//! Disks that are in use: they grow, and are copied as they are at one moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use zonal::disk::{Disk, DiskError, Durability};
use zonal::{ByteCount, Lba, ManualClock, MemoryDrive};
use zonal_fs::disk::{DiskSettings, DiskSpace, Disks, Error, FurrowDisk};
use zonal_fs::furrow::sample;
use zonal_fs::vfs::Access;
use zonal_fs::volume::{Volume, VolumeOptions};

use super::{assert_clean, count, disks, format, name};

const MIB: u64 = 1 << 20;

fn drive() -> Arc<MemoryDrive> {
    let drive = Arc::new(MemoryDrive::new(sample::shape(96, 64)).unwrap());
    format(drive.clone());
    drive
}

fn numbers(disk: &FurrowDisk) -> Vec<u64> {
    let mut bytes = vec![0; disk.shape().bytes() as usize];
    disk.read(Lba::ZERO, &mut bytes).unwrap();
    let number = |block: &[u8]| u64::from_le_bytes(block[..8].try_into().unwrap());
    bytes.chunks(4096).map(number).collect()
}

#[test]
fn open_disk_grows_and_says_so() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    for space in [DiskSpace::Thick, DiskSpace::Thin] {
        let settings = DiskSettings { space, ..DiskSettings::default() };
        disks.create(&name("disk"), ByteCount::new(MIB), settings).unwrap();
        let disk = disks.open(&name("disk")).unwrap();
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&sizes);
        disk.on_resize(Box::new(move |shape| note.lock().unwrap().push(shape.bytes())));
        let behind = disk.write(Lba::new(256), &[1; 4096], Durability::Later);
        assert!(matches!(behind, Err(DiskError::OutOfRange { .. })));
        disks.resize(&name("disk"), ByteCount::new(3 * MIB)).unwrap();
        disk.write(Lba::new(767), &[1; 4096], Durability::AtOnce).unwrap();
        assert_eq!(*sizes.lock().unwrap(), [3 * MIB]);
        // Neither has the disk another size afterwards, nor does it say so.
        let too_large = disks.resize(&name("disk"), ByteCount::new(1 << 50));
        assert_eq!(too_large.is_err(), space == DiskSpace::Thick, "{too_large:?}");
        let shrunk = disks.resize(&name("disk"), ByteCount::new(MIB));
        assert!(matches!(shrunk, Err(Error::InUse { .. })));
        assert!(matches!(disks.remove(&name("disk")), Err(Error::InUse { .. })));
        let bytes = disks.info(&name("disk")).unwrap().bytes;
        assert_eq!((disk.shape().bytes(), Some(&bytes)), (bytes, sizes.lock().unwrap().last()));
        drop(disk);
        disks.remove(&name("disk")).unwrap();
    }
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn sector_of_open_disk_is_written_alone() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    disks.create(&name("disk"), ByteCount::new(MIB), DiskSettings::default()).unwrap();
    let disk = disks.open(&name("disk")).unwrap();
    disk.write(Lba::new(1), &[1; 4096], Durability::Later).unwrap();
    let part = disk.write(Lba::new(1), &[2; 512], Durability::Later);
    assert!(matches!(part, Err(DiskError::Unaligned { .. })));
    drop(disk);
    let disk = disks.open_in_sectors(&name("disk")).unwrap();
    assert_eq!((disk.shape().block_size.bytes(), disk.shape().bytes()), (512, MIB));
    disk.write(Lba::new(11), &[2; 512], Durability::AtOnce).unwrap();
    disks.snapshot(&name("disk"), &name("disk@one")).unwrap();
    drop(disk);
    for each in ["disk", "disk@one"] {
        let disk = disks.open(&name(each)).unwrap();
        assert_eq!(disk.shape().block_size.bytes(), 4096, "{each} has other settings");
        let mut block = [0; 4096];
        disk.read(Lba::new(1), &mut block).unwrap();
        let expected: Vec<u8> = (0..4096).map(|at| if at / 512 == 3 { 2 } else { 1 }).collect();
        assert_eq!(block[..], expected, "{each}");
    }
    volume.close().unwrap();
    assert_clean(drive);
}

/// Ends the threads that write, also where the test fails.
struct EndWriters<'a>(&'a AtomicBool);

impl Drop for EndWriters<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each thread numbers its writes, and writes to its blocks in turn. So a state of the disk is one
/// that it had at some moment if the block with the highest number of a thread is as new as the
/// thread was, and all its other blocks as new as they were then.
#[test]
fn snapshot_of_disk_in_use_is_of_one_moment() {
    const THREADS: u64 = 2;
    const BLOCKS: u64 = 1536;
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    let size = ByteCount::new(BLOCKS * 4096);
    let thin = DiskSettings { space: DiskSpace::Thin, ..DiskSettings::default() };
    disks.create(&name("disk"), size, thin).unwrap();
    let disk = disks.open(&name("disk")).unwrap();
    let is_over = AtomicBool::new(false);
    // Numbers of writes that have returned.
    let written: [AtomicU64; THREADS as usize] = Default::default();
    let own = BLOCKS / THREADS;
    std::thread::scope(|scope| {
        let _end = EndWriters(&is_over);
        for thread in 0..THREADS {
            let (disk, is_over, written) = (&disk, &is_over, &written[thread as usize]);
            scope.spawn(move || {
                for number in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    // Neighbours belong to different threads, so maps have many extents.
                    let lba = Lba::new(number % own * THREADS + thread);
                    let data = number.to_le_bytes().repeat(512);
                    disk.write(lba, &data, Durability::Later).unwrap();
                    written.store(number, Ordering::Release);
                }
            });
        }
        for round in 0..count(20) {
            let snapshot = name("disk").snapshot(&round.to_string()).unwrap();
            let before: Vec<u64> = written.iter().map(|at| at.load(Ordering::Acquire)).collect();
            disks.snapshot(&name("disk"), &snapshot).unwrap();
            let after: Vec<u64> = written.iter().map(|at| at.load(Ordering::Acquire)).collect();
            let found = numbers(&disks.open(&snapshot).unwrap());
            for thread in 0..THREADS {
                let of = |block: u64| found[(block * THREADS + thread) as usize];
                let last = (0..own).map(of).max().unwrap();
                let at = thread as usize;
                assert!(
                    (before[at]..=after[at] + 1).contains(&last),
                    "{last}: {before:?} {after:?}"
                );
                for block in 0..own {
                    let behind = (last + own - block) % own;
                    let wanted = last.checked_sub(behind).filter(|&number| number > 0);
                    assert_eq!(of(block), wanted.unwrap_or(0), "block {block}, of {last} writes");
                }
            }
            disks.remove(&snapshot).unwrap();
        }
    });
    drop(disk);
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn thick_disk_in_use_keeps_its_promise_beside_snapshots() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    let size = ByteCount::new(5 * MIB);
    disks.create(&name("disk"), size, DiskSettings::default()).unwrap();
    let thin = DiskSettings { space: DiskSpace::Thin, ..DiskSettings::default() };
    disks.create(&name("filler"), ByteCount::new(1 << 30), thin).unwrap();
    let disk = disks.open(&name("disk")).unwrap();
    let filler = disks.open(&name("filler")).unwrap();
    let fill = |byte: u8| {
        for at in (0..5 * 256).step_by(256) {
            disk.write(Lba::new(at), &vec![byte; MIB as usize], Durability::Later).unwrap();
        }
    };
    fill(1);
    disks.snapshot(&name("disk"), &name("disk@one")).unwrap();
    let mut at = 0;
    while filler.write(Lba::new(at), &vec![9; MIB as usize], Durability::Later).is_ok() {
        at += 256;
    }
    // The drive is full, and every block of the disk is shared.
    fill(2);
    let refused = disks.snapshot(&name("disk"), &name("disk@two"));
    assert!(matches!(refused, Err(Error::NoRoom { .. })), "{refused:?}");
    let refused = disks.resize(&name("disk"), ByteCount::new(20 * MIB));
    assert!(matches!(refused, Err(Error::NoRoom { .. })), "{refused:?}");
    assert_eq!(disk.shape().bytes(), size.get());
    fill(3);
    disks.remove(&name("disk@one")).unwrap();
    fill(4);
    disk.flush().unwrap();
    drop((disk, filler));
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn disk_of_read_only_volume_takes_no_writes() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    disks.create(&name("disk"), ByteCount::new(MIB), DiskSettings::default()).unwrap();
    volume.close().unwrap();
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let volume = Volume::mount(drive, Arc::new(ManualClock::new(1)), &options).unwrap();
    let disks = Disks::new(volume).unwrap();
    let disk = disks.open(&name("disk")).unwrap();
    assert!(disk.shape().is_read_only);
    let refused = disk.write(Lba::ZERO, &[1; 4096], Durability::Later);
    assert!(matches!(refused, Err(DiskError::ReadOnly)), "{refused:?}");
    assert_eq!(numbers(&disk), [0; 256]);
}
