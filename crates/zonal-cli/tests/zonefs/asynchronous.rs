//! Many writes to one zone at a time, from one program and from several: none is lost, none is
//! doubled, and each program's writes stay in its order.

use std::io::IoSlice;
use std::sync::Barrier;
use std::thread;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::drive::{Drive, LARGE, LIMITED, ODD, PLAIN, SEPARATE, SHORT, Shape};
use crate::io::{self, Aligned, open, read_at, size, write_at};
use crate::programs::{APPEND, Aio, Fio};

const THREADS: usize = 8;

/// Writes until the file is full; returns how many writes. Each carries the thread's number and its
/// own.
fn fill(drive: &Drive, thread: u64, bytes: u64) -> u64 {
    // Half of the threads open for appending, half append with each write.
    let (flags, each) = match thread % 2 {
        0 => (OFlags::APPEND, ReadWriteFlags::empty()),
        _ => (OFlags::empty(), ReadWriteFlags::APPEND),
    };
    let file = open(&drive.seq(0), OFlags::WRONLY | OFlags::DIRECT | flags).unwrap();
    let mut data = Aligned::new(bytes);
    for number in 0_u64.. {
        for block in data.chunks_exact_mut(512) {
            block[..8].copy_from_slice(&thread.to_le_bytes());
            block[8..16].copy_from_slice(&number.to_le_bytes());
        }
        match rustix::io::pwritev2(&file, &[IoSlice::new(&data)], 0, each) {
            Ok(written) => assert_eq!(written as u64, bytes, "thread {thread}, write {number}"),
            Err(Errno::FBIG) => return number,
            Err(error) => panic!("thread {thread}, write {number}: {error}"),
        }
    }
    unreachable!("a zone is full at some time")
}

fn check_threads(shape: &'static Shape, bytes: u64) {
    let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
    let start = Barrier::new(THREADS);
    let counts: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0_u64..)
            .take(THREADS)
            .map(|thread| {
                let (drive, start) = (&drive, &start);
                scope.spawn(move || {
                    start.wait();
                    fill(drive, thread, bytes)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.iter().sum::<u64>() * bytes, shape.capacity);
    let read = read_at(&drive.seq(0), OFlags::empty(), 0, shape.capacity).unwrap();
    let mut next = [0; THREADS];
    for write in read.chunks_exact(usize::try_from(bytes).unwrap()) {
        let word = |at: usize| u64::from_le_bytes(write[at..at + 8].try_into().unwrap());
        let thread = usize::try_from(word(0)).unwrap();
        assert_eq!(word(8), next[thread], "of thread {thread}");
        next[thread] += 1;
        assert!(write.chunks_exact(512).all(|block| block[..16] == write[..16]), "a torn write");
    }
    assert_eq!(counts, next);
}

#[test]
fn append_by_many_threads_fills_one_zone() {
    check_threads(&PLAIN, 4096);
    check_threads(&SHORT, 128 << 10);
    // The size of FUSE's requests.
    check_threads(&LARGE, 1 << 20);
}

#[test]
fn aio_writes_in_flight_keep_order() {
    for mode in ["offset", "append", "each-append"] {
        for (shape, bytes) in [(&PLAIN, 4096), (&ODD, 12288), (&LARGE, 512 << 10)] {
            let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
            for (number, options) in [(0, ""), (1, "noasync-dio")] {
                drive.mount(options);
                Aio { mode, vectors: 1, bytes, depth: 32 }.fill(&drive.seq(number));
                assert_eq!(size(&drive.seq(number)), shape.capacity);
                drive.unmount();
            }
        }
    }
}

#[test]
fn aio_overfill_gets_short_write() {
    for mode in ["offset", "append", "each-append"] {
        for (shape, bytes) in [(&PLAIN, 135_168), (&ODD, 2 << 20)] {
            let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
            Aio { mode, vectors: 1, bytes, depth: 8 }.overfill(&drive.seq(0));
            assert_eq!(size(&drive.seq(0)), shape.capacity);
        }
    }
}

/// FUSE sends the write as eight requests.
#[test]
fn aio_large_write_arrives_whole() {
    for mode in ["offset", "append", "each-append"] {
        let Some(drive) = Drive::mounted(&LARGE, SEPARATE) else { return };
        Aio { mode, vectors: 1, bytes: 8 << 20, depth: 2 }.fill(&drive.seq(0));
        let all = write_at(&drive.seq(1), OFlags::DIRECT, 0, LARGE.capacity);
        assert_eq!(all, Ok(LARGE.capacity));
        io::assert_content(&drive.seq(1), LARGE.capacity);
    }
}

#[test]
#[ignore = "needs fio; run by cargo xtask test"]
fn aio_programs_write_many_zones() {
    let Some(fio) = Fio::find() else { return };
    for engine in ["--ioengine=libaio", "--ioengine=io_uring"] {
        for shape in [&LIMITED, &ODD] {
            let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
            let files: Vec<_> = (0..4).map(|number| drive.seq(number)).collect();
            let len = format!("--size={}", shape.capacity);
            thread::scope(|scope| {
                for file in &files {
                    let (fio, drive, len) = (&fio, &drive, &len);
                    scope.spawn(move || {
                        let job = [APPEND, "--rw=write", "--direct=1", "--bs=64k", "--iodepth=32"];
                        let check = ["--verify=md5", engine, len];
                        fio.run(drive, file, &[&job[..], &check].concat());
                    });
                }
            });
            for file in &files {
                // fio writes whole blocks.
                assert_eq!(size(file), shape.capacity & !0xffff);
            }
        }
    }
}
