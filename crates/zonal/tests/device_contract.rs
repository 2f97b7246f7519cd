//! Every kind of device and every stack of layers keeps the contract, in every shape.
//!
//! A new device is one line in `devices/mod.rs`.

mod contract;
mod devices;

use contract::CHECKS;
use devices::{DEVICES, shapes};

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
