//! `zonal serve ublk`: arguments that the command refuses before it asks the kernel for a device.
//! All other tests need a kernel with ublk: `cargo xtask vm`.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output};

fn zonal(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    command.current_dir(folder).args(line.split(' ')).output().unwrap()
}

#[test]
fn serve_ublk_swap_refuses_drives_in_files_and_devices() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "create drive.zns --zones=32 --zone-size=4M",
        "mkfs drive.zns",
        "disk create drive.zns root --size=16M",
    ] {
        assert!(zonal(folder.path(), line).status.success(), "{line}");
    }
    for (device, why) in [
        ("drive.zns//root", "a disk on drive.zns cannot be swap space"),
        ("po2:drive.zns//root", "a disk on po2:drive.zns cannot be swap space"),
        ("drive.zns", "--swap is for disks, DEVICE//NAME; drive.zns is a device"),
    ] {
        let output = zonal(folder.path(), &format!("serve ublk --swap {device}"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(why), "{device}: {said}");
    }
}
