//! zonefs as a library: formats a drive, appends to a zone, reads back and empties it. No FUSE, no
//! root.
//!
//! ```text
//! cargo run -p zonal-fs --example zonefs            # a drive in memory
//! cargo run -p zonal-fs --example zonefs drive.zns  # a drive file that holds nothing
//! ```

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::sync::Arc;

use zonal::{ManualClock, OpenMode, spec};
use zonal_fs::FsError;
use zonal_fs::vfs::{Caller, FileSystem, OpenFor, SetAttr, WriteFlags};
use zonal_fs::zonefs::{Group, MkfsOptions, MountOptions, OpenPolicy, ZoneFs, mkfs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "mem:zone=3M,zones=20,open=4".into());
    let clock = Arc::new(ManualClock::new(0));
    let device = spec::open(&name, OpenMode::ReadWrite, clock.clone())?;

    // Only the super block is written. Every other zone is a file.
    let made = mkfs(&*device, &MkfsOptions::default(), &mut |_| ())?;
    println!("{} zones are files", made.usable);

    let options = MountOptions { open: OpenPolicy::Explicit, ..MountOptions::default() };
    let fs = ZoneFs::mount(device, clock, options)?;
    let file = fs.file(Group::Sequential, 0).ok_or(FsError::NotFound)?;

    // With explicit open this opens the zone, or says that too many are open already.
    fs.open(file, OpenFor::Writing)?;
    let append = WriteFlags::DIRECT | WriteFlags::APPEND;
    for record in 1..=3 {
        let written = fs.write(file, 0, &[record; 4096], append)?;
        println!("record {record} went to byte {}", written.offset);
    }
    if let Err(error) = fs.write(file, 0, &[4; 4096], WriteFlags::DIRECT) {
        println!("writing byte 0 again: {error}");
    }
    let mut block = [0; 4096];
    let len = fs.read(file, 4096, &mut block)?;
    println!("byte 4096 on: {len} bytes of {}", block[0]);
    println!("active files: {}", fs.stats().nr_active_seq_files);

    // Truncating to nothing resets the zone; to the largest size would finish it.
    let emptied = SetAttr { size: Some(0), ..SetAttr::default() };
    println!("emptied: {} bytes", fs.setattr(&Caller::ROOT, file, &emptied)?.size);
    fs.close(file, OpenFor::Writing);
    fs.shutdown()?;
    Ok(())
}
