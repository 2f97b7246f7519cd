//! A file as a stream, for code that takes `Read`, `Write` or `Seek`: `cargo run --example
//! streams`.

#![allow(clippy::print_stdout, reason = "it is an example")]

use std::error::Error;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;

use zonal::{OpenMode, SystemClock, spec};
use zonal_fs::furrow::{self, MkfsOptions};
use zonal_fs::volume::{Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", run()?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) fn run() -> Result<String, Box<dyn Error>> {
    let clock = Arc::new(SystemClock::new());
    let drive = spec::open("mem:zone=4M,zones=64", OpenMode::ReadWrite, clock.clone())?;
    furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
    let volume = Volume::mount(drive, clock, &VolumeOptions::default())?;
    let told = (squares(&volume)?, last_square(&volume)?);
    volume.close()?;
    Ok(format!("{} bytes, the last line is {}\n", told.0, told.1))
}

/// Writes a line for each number and returns how many bytes they are.
fn squares(volume: &Volume) -> io::Result<u64> {
    let mut lines = BufWriter::new(volume.create("squares")?);
    for number in 1..=1000_u32 {
        writeln!(lines, "{number} {}", number * number)?;
    }
    let file = lines.into_inner()?;
    file.sync_data()?; // a flush makes nothing durable, a sync does
    (&file).stream_position()
}

/// Finds the last line.
fn last_square(volume: &Volume) -> io::Result<String> {
    let mut lines = BufReader::new(volume.open("squares")?);
    lines.seek(SeekFrom::End(-20))?;
    lines.lines().last().expect("the file has lines")
}
