//! A log that several threads append to, and its records after the process dies: `cargo run
//! --example append_log`.

#![allow(clippy::print_stdout, reason = "it is an example")]

use std::error::Error;
use std::sync::Arc;

use zonal::{OpenMode, SystemClock, spec};
use zonal_fs::furrow::{self, MkfsOptions};
use zonal_fs::volume::{OpenFlags, Upkeep, Volume, VolumeOptions, WriteLifetime};

/// Bytes of a record.
const RECORD: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", run()?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) fn run() -> Result<String, Box<dyn Error>> {
    let clock = Arc::new(SystemClock::new());
    let drive = spec::open("mem:zone=4M,zones=32", OpenMode::ReadWrite, clock.clone())?;
    furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
    let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
    let volume = Volume::mount(drive.clone(), clock.clone(), &options)?;

    // Appends of several threads do not overlap: each is told where its data went.
    let flags = OpenFlags::READ | OpenFlags::APPEND | OpenFlags::CREATE;
    let log = volume.open_with("wal", flags, 0o644)?;
    log.set_write_lifetime(WriteLifetime::Short)?;
    std::thread::scope(|scope| {
        for writer in 1..=4 {
            let log = &log;
            scope.spawn(move || {
                for _ in 0..100 {
                    log.append(&[writer; RECORD]).expect("the drive has room");
                }
                // Durable: everything that this thread has appended, and perhaps more.
                log.sync_data().expect("the drive works");
            });
        }
    });
    let synced = log.metadata()?.size;
    log.append(&[9; RECORD])?;

    // As if the process were killed: nothing is closed, and only the content of the drive is left.
    // Records that were not synced may be gone; synced ones are not.
    drop(log);
    std::mem::forget(volume);
    let volume = Volume::mount(drive, clock, &options)?;
    let records = volume.read("wal")?;
    let is_whole =
        records.chunks(RECORD).all(|record| record.iter().all(|byte| *byte == record[0]));
    volume.close()?;
    assert!(records.len() as u64 >= synced && is_whole);
    Ok(format!("{} records synced, every one is there and whole\n", synced / RECORD as u64))
}
