//! Every kind of device and every stack of layers keeps the contract, in every shape.
//!
//! A new device is one line in `devices/mod.rs`.

mod contract;
mod devices;

use contract::CHECKS;
use devices::{DEVICES, shapes};
use zonal::{MemoryDrive, Profile, ZoneId, ZonedDevice};

#[test]
fn devices_keep_contract() {
    let mut count = 0;
    for (shape, spec) in shapes() {
        for (name, make) in DEVICES {
            for (what, check) in CHECKS {
                let device = make(spec);
                let name = format!("{name} of shape {shape:?}");
                contract::run(&*device.device, &name, what, *check);
                count += 1;
            }
        }
    }
    println!("{count} checks");
}

#[test]
fn memory_drive_zeroes_before_and_after_data_read_back() {
    let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
    let (zone, block) = (ZoneId::new(3), 4096);
    // Zeroes to the middle of a chunk, data over its end, zeroes again.
    let parts = [vec![0; 10 * block], vec![7; 20 * block], vec![0; 30 * block]];
    for part in &parts {
        drive.append(zone, part).unwrap();
    }
    let mut found = vec![1; 60 * block];
    drive.read(drive.geometry().zone_start(zone), &mut found).unwrap();
    assert_eq!(found, parts.concat());
}
