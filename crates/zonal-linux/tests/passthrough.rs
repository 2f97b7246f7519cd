//! The contract of every device, kept by NVMe namespaces through passthrough, on both submission
//! paths; and faults that only these devices can have.
//!
//! Runs as root where `NAMESPACES` names the nodes of zoned namespaces that may be emptied, small
//! ones, and where `nvme` is installed; `cargo xtask vm` has QEMU's.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::path::{Path, PathBuf};
use std::process::Command;

use contract::CHECKS;
use zonal::{DeviceError, LbaCount, OpenMode, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice};
use zonal_linux::{PassthroughDrive, SubmissionPath};

const WAYS: [SubmissionPath; 3] =
    [SubmissionPath::Automatic, SubmissionPath::Ioctl, SubmissionPath::IoUring];

/// Runs `check` on each node by each path.
fn each(mut check: impl FnMut(&Path, SubmissionPath)) {
    let nodes = std::env::var("NAMESPACES").unwrap();
    let nodes: Vec<PathBuf> = nodes.split_whitespace().map(PathBuf::from).collect();
    assert!(!nodes.is_empty());
    for node in &nodes {
        for way in WAYS {
            check(node, way);
        }
    }
}

/// Opens a namespace and empties it.
fn empty(node: &Path, way: SubmissionPath) -> PassthroughDrive {
    let drive = PassthroughDrive::open(node, OpenMode::ReadWrite, way).unwrap();
    drive.manage(Select::All, ZoneAction::Reset).unwrap();
    drive
}

/// Data in which every block is different.
fn data(drive: &PassthroughDrive, blocks: LbaCount) -> Vec<u8> {
    let bytes = usize::try_from(drive.geometry().bytes(blocks).get()).unwrap();
    (0..bytes).map(|at| (at / 512 * 7).to_le_bytes()[0] ^ at.to_le_bytes()[0]).collect()
}

/// Checks that QEMU breaks by design, and the behaviour that differs.
const OTHERWISE: [(&str, &str); 1] =
    [("the least recently used open zone is closed", "QEMU closes the one that was opened first")];

#[test]
#[ignore = "needs zoned NVMe namespaces; run by cargo xtask test in a virtual machine"]
fn namespaces_keep_device_contract() {
    let mut number = 0;
    each(|node, way| {
        for (what, check) in CHECKS {
            if let Some((_, why)) = OTHERWISE.iter().find(|(name, _)| name == what) {
                println!("not asked: {what}: {why}");
                continue;
            }
            number += 1;
            contract::run(&empty(node, way), &format!("{} {way:?}", node.display()), what, *check);
        }
    });
    println!("{number} checks");
}

#[test]
#[ignore = "needs zoned NVMe namespaces; run by cargo xtask test in a virtual machine"]
fn transfers_larger_than_command_are_split() {
    each(|node, way| {
        let drive = empty(node, way);
        let zones = drive.report_all().unwrap();
        let capacity = zones[0].capacity;
        let data = data(&drive, capacity);
        for zone in &zones[..3] {
            // Memory at an odd address, too.
            let mut moved = vec![0; 1];
            moved.extend_from_slice(&data);
            drive.write(zone.start, &moved[1..]).unwrap();
            assert_eq!(drive.zone(zone.id).unwrap().cond, ZoneCond::Full);
        }
        let mut back = vec![0; data.len() + 1];
        for zone in &zones[..3] {
            drive.read(zone.start, &mut back[1..]).unwrap();
            assert!(back[1..] == data, "{} {way:?}: zone {}", node.display(), zone.id);
        }
    });
}

#[test]
#[ignore = "needs zoned NVMe namespaces; run by cargo xtask test in a virtual machine"]
fn appends_of_threads_return_true_places() {
    each(|node, way| {
        let drive = empty(node, way);
        let block = usize::try_from(drive.geometry().block_size().bytes()).unwrap();
        let (zone, capacity) = (ZoneId::new(1), drive.geometry().capacity_of(ZoneId::new(1)));
        let each = capacity.get() / 4;
        let places: Vec<(u64, u8)> = std::thread::scope(|scope| {
            let append = |thread: u8| {
                let drive = &drive;
                scope.spawn(move || {
                    let append = |_| drive.append(zone, &vec![thread; block]).unwrap().get();
                    (0..each).map(|at| (append(at), thread)).collect::<Vec<_>>()
                })
            };
            let threads: Vec<_> = (1..=4).map(append).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut back = vec![0; block];
        for (lba, thread) in &places {
            drive.read(zonal::Lba::new(*lba), &mut back).unwrap();
            assert!(back.iter().all(|byte| byte == thread), "{} {way:?}: {lba}", node.display());
        }
        let found = drive.zone(zone).unwrap().written().unwrap();
        assert_eq!(found.get(), each * 4, "no two went to the same place");
    });
}

/// Runs nvme-cli on a namespace, as another program that uses it.
fn nvme(node: &Path, arguments: &[&str]) {
    let (action, rest) = arguments.split_first().unwrap();
    let mut command = Command::new("nvme");
    let output = command.args(["zns", action]).arg(node).args(rest).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[test]
#[ignore = "needs zoned NVMe namespaces; run by cargo xtask test in a virtual machine"]
fn namespace_tolerates_other_writers() {
    each(|node, way| {
        let ours = empty(node, way);
        let (zone, start) = (ZoneId::new(0), ours.geometry().zone_start(ZoneId::new(0)));
        let block = usize::try_from(ours.geometry().block_size().bytes()).unwrap();
        ours.append(zone, &vec![1; block]).unwrap();
        let size = block.to_string();
        let theirs = ["zone-append", "--zslba=0", "--data=/dev/zero", "--data-size", &size];
        nvme(node, &theirs);
        let next = start + LbaCount::new(1);
        let error = ours.write(next, &vec![2; block]).unwrap_err();
        assert!(
            matches!(error, DeviceError::NotAtWritePointer { wp, .. } if wp == next + LbaCount::new(1)),
            "{error}"
        );
        assert_eq!(ours.append(zone, &vec![3; block]).unwrap(), next + LbaCount::new(1));
        let mut back = vec![9; 3 * block];
        ours.read(start, &mut back).unwrap();
        for (part, expected) in back.chunks(block).zip([1, 0, 3]) {
            assert!(part.iter().all(|byte| *byte == expected));
        }
        nvme(node, &["reset-zone", "--start-lba=0"]);
        assert_eq!(ours.append(zone, &vec![4; block]).unwrap(), start);
    });
}

#[test]
#[ignore = "needs zoned NVMe namespaces; run by cargo xtask test in a virtual machine"]
fn namespace_has_one_writer_and_observers() {
    each(|node, way| {
        let ours = empty(node, way);
        for mode in [OpenMode::ReadWrite, OpenMode::ReadLocked] {
            let again = PassthroughDrive::open(node, mode, way);
            assert!(matches!(again, Err(DeviceError::Locked { .. })), "{mode:?}");
        }
        let reader = PassthroughDrive::open(node, OpenMode::ReadOnly, way).unwrap();
        let block = usize::try_from(ours.geometry().block_size().bytes()).unwrap();
        let lba = ours.append(ZoneId::new(2), &vec![5; block]).unwrap();
        let mut back = vec![0; block];
        reader.read(lba, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == 5), "seen as soon as it is written");
        let refused = reader.append(ZoneId::new(2), &back).unwrap_err();
        assert!(matches!(refused, DeviceError::OpenedReadOnly), "{refused}");
        drop(ours);
        assert!(PassthroughDrive::open(node, OpenMode::ReadWrite, way).is_ok(), "released");
    });
}
