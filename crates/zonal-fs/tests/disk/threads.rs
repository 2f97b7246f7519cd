//! Threads that use one disk: each sees a write of the atomic size whole or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zonal::disk::{Disk, Durability};
use zonal::{ByteCount, Lba, ManualClock, OpenMode, spec};
use zonal_fs::disk::{DiskSettings, Disks};
use zonal_fs::volume::{Volume, VolumeOptions};

use crate::{count, format, name};

#[test]
fn write_of_atomic_size_is_seen_whole() {
    let clock = Arc::new(ManualClock::new(0));
    let drive = spec::open("mem:zone=4M,zones=64", OpenMode::ReadWrite, clock.clone()).unwrap();
    format(drive.clone());
    let volume = Volume::mount(drive, clock, &VolumeOptions::default()).unwrap();
    let disks = Disks::new(volume).unwrap();
    disks.create(&name("one"), ByteCount::new(8 << 20), DiskSettings::default()).unwrap();
    let disk = disks.open(&name("one")).unwrap();
    let atomic = usize::try_from(disk.shape().atomic.get()).unwrap();
    assert_eq!(atomic, 1 << 20);
    let writers_done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u8)
            .map(|writer| {
                let disk = &disk;
                scope.spawn(move || {
                    for turn in 0..count(60) {
                        let byte = 1 + 2 * (turn % 100) as u8 + writer;
                        disk.write(Lba::new(5), &vec![byte; atomic], Durability::Later).unwrap();
                        if turn % 16 == 0 {
                            disk.flush().unwrap();
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let (mut seen, mut buffer) = (std::collections::BTreeSet::new(), vec![0; atomic]);
            while !writers_done.load(Ordering::Acquire) {
                disk.read(Lba::new(5), &mut buffer).unwrap();
                let other = buffer.iter().position(|&byte| byte != buffer[0]);
                assert_eq!(other, None, "a part of one write and a part of another");
                seen.insert(buffer[0]);
            }
            seen
        });
        for writer in writers {
            writer.join().unwrap();
        }
        writers_done.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    println!("{} different writes were seen", seen.len());
    assert!(seen.len() > 2, "the reader ran beside the writers: {seen:?}");
    drop(disk);
    disks.close().unwrap();
}
