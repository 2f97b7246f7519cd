//! Threads that meet at one file, or at one buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zonal::MemoryDrive;
use zonal_fs::furrow::Furrow;
use zonal_fs::vfs::{Caller, FileSystem, Ino, SetAttr, WriteFlags};

use super::gate::{Call, Gate};
use super::{create, format, shape};

fn wait_for_size(fs: &Furrow, ino: Ino, size: u64) {
    while fs.getattr(ino).unwrap().size < size {
        thread::yield_now();
    }
}

#[test]
fn write_back_by_threads_writes_each_block_once() {
    let gate = Gate::new(shape(32, 64));
    let fs = format(gate.clone());
    let (first, second) = (create(&fs, "first"), create(&fs, "second"));
    for block in 0..60 {
        fs.write(first, block * 8192, &[1; 4096], WriteFlags::empty()).unwrap();
    }
    gate.hold(Call::Append);
    thread::scope(|scope| {
        scope.spawn(|| fs.sync().unwrap());
        gate.wait_for(1);
        // Passes the bound, so this thread has to empty the buffer as well.
        scope.spawn(|| {
            for block in 0..10 {
                fs.write(second, block * 8192, &[2; 4096], WriteFlags::empty()).unwrap();
            }
        });
        wait_for_size(&fs, second, 4 * 8192 + 4096);
        // A thread that writes blocks of the commit a second time does so now.
        gate.comes_to(2);
        gate.open();
    });
    fs.sync().unwrap();
    assert_eq!(fs.stats().user_bytes, 70 * 4096);
}

#[test]
fn appends_synchronous_to_two_files_share_commit() {
    let gate = Gate::new(shape(32, 64));
    let fs = format(gate.clone());
    let files = ["one", "two", "three"].map(|name| create(&fs, name));
    fs.sync().unwrap();
    let before = fs.stats().batches;
    gate.hold(Call::Flush);
    let append = |ino| {
        let flags = WriteFlags::APPEND | WriteFlags::DURABLE;
        fs.write(ino, 0, b"line\n", flags).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| append(files[0]));
        gate.wait_for(1);
        scope.spawn(|| append(files[1]));
        scope.spawn(|| append(files[2]));
        // If they wait for the first one's commit, nothing ends this.
        for &ino in &files[1..] {
            wait_for_size(&fs, ino, 5);
        }
        gate.open();
    });
    assert_eq!(fs.stats().batches - before, 2);
}

#[test]
fn appends_to_one_file_are_whole_and_complete() {
    let fs = format(Arc::new(MemoryDrive::new(shape(40, 64)).unwrap()));
    let file = create(&fs, "log");
    thread::scope(|scope| {
        for byte in 1..=4u8 {
            let fs = &fs;
            scope.spawn(move || {
                for _ in 0..100 {
                    let flags = if byte > 2 {
                        WriteFlags::APPEND
                    } else {
                        WriteFlags::APPEND | WriteFlags::DIRECT
                    };
                    let written = fs.write(file, 0, &[byte; 5000], flags).unwrap();
                    assert_eq!(written.offset % 5000, 0);
                }
            });
        }
    });
    let mut content = vec![0; 4 * 100 * 5000 + 1];
    assert_eq!(fs.read(file, 0, &mut content).unwrap(), content.len() - 1);
    content.pop();
    let records: Vec<u8> = content
        .chunks(5000)
        .map(|record| {
            assert!(record.iter().all(|byte| *byte == record[0]), "a record is whole");
            record[0]
        })
        .collect();
    for byte in 1..=4 {
        assert_eq!(records.iter().map(|found| u32::from(*found == byte)).sum::<u32>(), 100);
    }
}

#[test]
fn read_beside_truncates_returns_only_file_bytes() {
    let fs = format(Arc::new(MemoryDrive::new(shape(32, 64)).unwrap()));
    let file = create(&fs, "file");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (fs, done) = (&fs, &done);
        for _ in 0..3 {
            scope.spawn(move || {
                let mut buffer = vec![0; 8192];
                while !done.load(Ordering::Acquire) {
                    let len = fs.read(file, 0, &mut buffer).unwrap();
                    assert!(buffer[..len].iter().all(|byte| *byte == 7), "{len} bytes read");
                }
            });
        }
        let writers = (0..2).map(|_| {
            scope.spawn(move || {
                for _ in 0..10_000 {
                    fs.write(file, 0, &[7; 4096], WriteFlags::empty()).unwrap();
                    let set = SetAttr { size: Some(0), ..SetAttr::default() };
                    fs.setattr(&Caller::ROOT, file, &set).unwrap();
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let outcome: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        assert!(outcome.iter().all(Result::is_ok), "a writer failed");
    });
}
