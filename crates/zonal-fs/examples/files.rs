//! Writes and reads files on a zoned drive: `cargo run --example files [DEVICE]`.
//!
//! The device is anything that a specification names, such as a drive file of `zonal create`; with
//! none, a drive in memory. One that holds no file system gets one.

#![allow(clippy::print_stdout, reason = "it is an example")]

use std::error::Error;
use std::sync::Arc;

use zonal::{OpenMode, SystemClock, spec};
use zonal_fs::furrow::{self, MkfsOptions};
use zonal_fs::signature;
use zonal_fs::volume::{Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1);
    print!("{}", run(device.as_deref().unwrap_or("mem:zone=96M,zones=40"))?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) fn run(device: &str) -> Result<String, Box<dyn Error>> {
    // The library reads no clock of its own: a program hands in the machine's.
    let clock = Arc::new(SystemClock::new());
    let drive = spec::open(device, OpenMode::ReadWrite, clock.clone())?;
    if signature::find(&*drive)?.is_none() {
        furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
    }
    let volume = Volume::mount(drive, clock, &VolumeOptions::default())?;

    // Small files at once.
    volume.create_dir_all("notes/today")?;
    volume.write("notes/today/first", b"written as a whole\n")?;

    // Parts of a large one through a handle. The handle keeps the file when its name goes.
    let file = volume.create("table")?;
    file.write_all_at(&vec![7; 1 << 20], 0)?;
    file.write_all_at(b"in the middle", 500_000)?;
    volume.rename("table", "notes/table")?;
    volume.remove_file("notes/table")?;
    let mut found = [0; 13];
    file.read_exact_at(&mut found, 500_000)?;
    drop(file);

    // Everything up to here is durable when this returns.
    volume.sync()?;
    let text = String::from_utf8(volume.read("notes/today/first")?)?;
    volume.close()?;
    Ok(format!("{text}{}\n", String::from_utf8_lossy(&found)))
}
