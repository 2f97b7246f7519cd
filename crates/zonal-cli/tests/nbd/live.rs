//! Disks that `zonal disk` changes while they are served.

use serde_json::Value;

use super::{Place, has, qemu_io, run};

#[test]
fn disks_are_changed_while_they_are_served() {
    if !has("qemu-io") || !has("nbdinfo") {
        return;
    }
    let place = Place::new();
    let before = place.must("disk list drive.zns");
    let served = place.serve("drive.zns//root drive.zns//small");
    assert_eq!(place.must("disk list drive.zns"), before);
    for name in ["root", "small"] {
        qemu_io(&place.uri(name), &["write -P 1 0 2M"]);
    }
    let said = place.must("disk snapshot drive.zns root monday");
    assert!(said.starts_with("root@monday: 32 MiB, read-only"), "{said}");
    place.must("disk clone drive.zns small other --thin");
    qemu_io(&place.uri("root"), &["write -P 2 1M 2M"]);
    let grown: Value =
        serde_json::from_str(&place.must("disk resize drive.zns root --size 40MiB --json"))
            .unwrap();
    assert_eq!(grown["size_bytes"], 40 << 20);
    assert_eq!(run("nbdinfo", &["--size", &place.uri("root")]).trim(), (40 << 20).to_string());
    qemu_io(&place.uri("root"), &["write -P 3 38M 2M"]);
    place.must("disk create drive.zns new --size 1MiB");
    place.must("disk rm drive.zns new");
    let list = place.must("disk list drive.zns");
    served.stop();
    assert_eq!(place.must("disk list drive.zns"), list);
    let served = place.serve("drive.zns//root drive.zns//root@monday drive.zns//other");
    qemu_io(&place.uri("root"), &["read -P 1 0 1M", "read -P 2 1M 2M", "read -P 3 38M 2M"]);
    qemu_io(&place.uri("root@monday"), &["read -P 1 0 2M", "read -P 0 2M 1M"]);
    qemu_io(&place.uri("other"), &["read -P 1 0 2M", "read -P 0 2M 1M"]);
    served.stop();
    let checked = place.must("check drive.zns");
    assert!(checked.contains("clean"), "{checked}");
}

#[test]
fn change_of_served_disk_is_refused_as_of_others() {
    let place = Place::new();
    let commands = [
        "disk info drive.zns none",
        "disk create drive.zns root --size 1MiB",
        "disk create drive.zns big --size 1TiB",
        "disk resize drive.zns root --size 1MiB",
        "disk info drive.zns none --json",
    ];
    let before = commands.map(|line| place.refused(line));
    let served = place.serve("drive.zns//root");
    let meanwhile = commands.map(|line| place.refused(line));
    assert_eq!(meanwhile, before);
    let in_use =
        "zonal: drive.zns: disk root is in use: meanwhile it can only grow, and be copied\n";
    for line in ["disk rm drive.zns root", "disk resize drive.zns root --size 1MiB --force"] {
        assert_eq!(place.refused(line), in_use);
    }
    let said = place.refused("disk list po2:drive.zns");
    assert_eq!(said, "zonal: po2:drive.zns: it is served as drive.zns: name it so\n");
    place.must("disk rm drive.zns small");
    served.stop();
}

#[test]
fn server_after_killed_one_is_reached() {
    let place = Place::new();
    let mut served = place.serve("drive.zns//root");
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let list = place.must("disk list drive.zns");
    let served = place.serve("drive.zns//root");
    assert_eq!(place.must("disk list drive.zns"), list);
    served.stop();
}
