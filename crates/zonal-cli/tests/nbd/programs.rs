//! Programs that check a disk on zones: fio with checksums, and file systems in images.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Place, has, run};

/// Random writes of all sizes with checksums. qemu-io tests trims: fio 3.33 aborts when a job that
/// verifies trims.
#[test]
fn fio_verifies_small_and_large_writes() {
    if !has("fio") {
        return;
    }
    let place = Place::new();
    let served = place.serve("drive.zns//root drive.zns//small");
    // Over NBD a disk of any block size takes sectors.
    for (name, block) in [("root", 4096), ("root", 512), ("small", 512)] {
        for depth in [1, 32] {
            let arguments = [
                format!("--name={name}"),
                "--ioengine=nbd".into(),
                format!("--uri={}", place.uri(name)),
                "--rw=randwrite".into(),
                format!("--bsrange={block}-1m"),
                format!("--blockalign={block}"),
                format!("--iodepth={depth}"),
                "--size=32m".into(),
                "--io_size=96m".into(),
                "--verify=crc32c".into(),
                "--verify_fatal=1".into(),
                "--verify_state_save=0".into(),
                "--serialize_overlap=1".into(),
                "--fsync=40".into(),
                "--randseed=7".into(),
            ];
            let said = run("fio", &arguments.each_ref().map(String::as_str));
            assert!(said.contains("err= 0"), "{name}, depth {depth}: {said}");
        }
    }
    served.stop();
    let checked = place.must("check drive.zns");
    assert!(checked.contains("clean"), "{checked}");
}

/// A file system, and the commands that make and check one in a file.
struct Kind {
    name: &'static str,
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "ext4",
        make: &["mkfs.ext4", "-q", "-F", "-d", "files"],
        check: &["e2fsck", "-f", "-n"],
    },
    Kind { name: "xfs", make: &["mkfs.xfs", "-q", "-f"], check: &["xfs_repair", "-n", "-f"] },
    Kind {
        name: "btrfs",
        make: &["mkfs.btrfs", "-q", "-f", "--rootdir", "files"],
        check: &["btrfs", "check", "--check-data-csum"],
    },
];

#[test]
fn images_of_file_systems_are_whole_after_restart() {
    if !has("nbdcopy") {
        return;
    }
    let place = Place::with_zones(320);
    fs::create_dir(place.file("files")).unwrap();
    for number in 0..40_u32 {
        let content = number.to_le_bytes().repeat(500 * (number as usize + 1));
        fs::write(place.file("files").join(number.to_string()), content).unwrap();
    }
    let run_in = |command: &[&str], image: &Path| {
        let mut program = Command::new(command[0]);
        super::text(
            &program.current_dir(place.0.path()).args(&command[1..]).arg(image).output().unwrap(),
        )
    };
    for kind in KINDS {
        if !has(kind.make[0]) || !has(kind.check[0]) {
            continue;
        }
        let (image, back) = (place.file("image"), place.file("back"));
        // XFS wants 300 MiB, and most of an image is empty.
        fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        run_in(kind.make, &image);
        place.must(&format!("disk create drive.zns {} --size 320MiB --thin", kind.name));
        let served = place.serve(&format!("drive.zns//{}", kind.name));
        run("nbdcopy", &["--flush", image.to_str().unwrap(), &place.uri(kind.name)]);
        served.stop();
        let served = place.serve(&format!("drive.zns//{}", kind.name));
        run("nbdcopy", &[&place.uri(kind.name), back.to_str().unwrap()]);
        served.stop();
        assert!(fs::read(&back).unwrap() == fs::read(&image).unwrap(), "{}", kind.name);
        run_in(kind.check, &back);
        fs::remove_file(&back).unwrap();
        place.must(&format!("disk rm drive.zns {}", kind.name));
    }
    let checked = place.must("check drive.zns");
    assert!(checked.contains("clean"), "{checked}");
}
