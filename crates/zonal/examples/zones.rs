//! Writes into a drive whose zone size is not a power of two, and shows what its zones become.
//!
//! ```text
//! cargo run -p zonal --example zones            # a drive in memory
//! cargo run -p zonal --example zones drive.zns  # a drive file that is there
//! ```

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::sync::Arc;

use zonal::{ManualClock, OpenMode, Select, ZoneAction, ZoneId, ZonedDevice, spec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "mem:zone=96M,zones=6,open=2".into());
    let device = spec::open(&name, OpenMode::ReadWrite, Arc::new(ManualClock::new(0)))?;
    let block = vec![42; device.geometry().block_size().bytes().try_into().expect("small")];

    // Appends open zones; the third one closes the first, which was not used for longest.
    for zone in 0..3 {
        let at = device.append(ZoneId::new(zone), &block)?;
        println!("zone {zone}: appended at block {at}");
    }
    device.manage(Select::One(ZoneId::new(1)), ZoneAction::Finish)?;
    // A write that is not at the write pointer says where the pointer is.
    let start = device.geometry().zone_start(ZoneId::new(2));
    if let Err(error) = device.write(start, &block) {
        println!("{error}");
    }
    device.flush()?;
    for zone in device.report_all()?.iter().take(5) {
        println!("{:>3}  {:14} {:>6} blocks remain", zone.id, zone.cond.name(), zone.remaining());
    }
    Ok(())
}
