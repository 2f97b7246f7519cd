//! `warm-cache`: data of direct writes is read from memory, and the data is always the latest.

use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::drive::{Drive, LARGE, PLAIN, SEPARATE, Shape, must, pause};
use super::io::{self, Aligned, open_direct, read_at, truncate};

/// A drive whose first sequential zone cannot be read.
fn unreadable(options: &str) -> Option<Drive> {
    let drive = Drive::formatted(&PLAIN, SEPARATE)?;
    let zone = PLAIN.first_seq();
    let device = format!("fault(read,zone={zone}):{}", drive.device().display());
    must(&drive.try_mount(options, &PathBuf::from(device)));
    Some(drive)
}

#[test]
fn warm_cache_reads_written_data_without_drive() {
    const LEN: u64 = 3 << 20;
    let Some(drive) = unreadable("warm-cache") else { return };
    let file = drive.seq(0);
    let read = || {
        truncate(&file, 0).unwrap();
        for offset in (0..LEN).step_by(1 << 20) {
            io::write_at(&file, OFlags::DIRECT, offset, 1 << 20).unwrap();
        }
        pause();
        read_at(&file, OFlags::empty(), 0, LEN)
    };
    // On a busy machine, pages that come too early are dropped: then no byte is read, or the first
    // ones.
    let is_whole = |found: &Aligned| found.len() as u64 == LEN;
    let found = (0..300).find_map(|_| read().ok().filter(is_whole));
    let found = found.expect("read without asking the drive");
    assert!(*found == *Aligned::content(0, LEN));
    assert_eq!(read_at(&file, OFlags::DIRECT, 0, 4096).err(), Some(Errno::IO));
}

#[test]
fn warm_cache_off_reads_from_drive() {
    let Some(drive) = unreadable("") else { return };
    io::write_at(&drive.seq(0), OFlags::DIRECT, 0, 1 << 20).unwrap();
    pause();
    assert_eq!(read_at(&drive.seq(0), OFlags::empty(), 0, 4096).err(), Some(Errno::IO));
}

/// Writes pieces, each of another byte, and reads the file after each.
fn rewrite(shape: &'static Shape, piece: u64, rounds: u8) {
    let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
    drive.mount("warm-cache");
    let file = drive.seq(0);
    for round in 0..rounds {
        truncate(&file, 0).unwrap();
        let writer = open_direct(&file);
        for nth in 0..6 {
            let byte = round.wrapping_mul(7).wrapping_add(nth);
            let mut data = Aligned::new(piece);
            data.fill(byte);
            let offset = u64::from(nth) * piece;
            assert_eq!(rustix::io::pwrite(&writer, &data, offset), Ok(data.len()));
            let read = read_at(&file, OFlags::empty(), 0, offset + piece).unwrap();
            for (at, part) in (0..).zip(read.chunks(data.len())) {
                let expected = round.wrapping_mul(7).wrapping_add(at);
                assert!(part.iter().all(|byte| *byte == expected), "round {round}, piece {at}");
            }
        }
    }
}

#[test]
fn warm_cache_rewrite_is_read_anew() {
    // Pieces that share pages, that fill pages, and that are several requests.
    rewrite(&PLAIN, 512, 40);
    rewrite(&PLAIN, 65_536, 40);
    rewrite(&LARGE, 3 << 20, 8);
}
