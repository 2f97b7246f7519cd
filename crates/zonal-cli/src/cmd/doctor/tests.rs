//! Machines in trees of files: seeded faults, each named by its finding, and machines that are
//! well. `tests/doctor` has the faults of drives and mounts, which are real.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use zonal_fs::furrow::Live;
use zonal_fuse::control::Report as Counters;
use zonal_linux::machine::{Facts, Machine, User};

use super::finding::{Finding, Report, Seen, Severity};
use super::probe::Refusal;
use super::{content, device, disks, host, mount, space};

/// Today, about.
const NOW_NS: i64 = 1_795_000_000_000_000_000;

/// A machine with a kernel that has all that Zonal needs, and no disk.
const PLAIN: [(&str, &str); 4] = [
    ("proc/sys/kernel/osrelease", "6.12.43-amd64\n"),
    (
        "boot/config-6.12.43-amd64",
        "CONFIG_BLK_DEV_ZONED=y\nCONFIG_BLK_DEV_SD=m\nCONFIG_CHR_DEV_SG=m\nCONFIG_FUSE_FS=m\n",
    ),
    ("proc/sys/kernel/io_uring_disabled", "0\n"),
    ("dev/fuse", ""),
];

/// A host-managed SATA disk that is not bound.
const UNBOUND: [(&str, &str); 6] = [
    ("sys/bus/scsi/devices/0:0:0:0/type", "20\n"),
    ("sys/bus/scsi/devices/0:0:0:0/vendor", "ATA\n"),
    ("sys/bus/scsi/devices/0:0:0:0/model", "HGST HSH721414AL\n"),
    ("sys/bus/scsi/devices/0:0:0:0/scsi_generic/sg0/dev", "21:0\n"),
    ("sys/class/scsi_host/host0/proc_name", "ahci\n"),
    ("dev/sg0", ""),
];

/// Files that the kernel adds when its disk driver takes the disk.
const BOUND: [(&str, &str); 7] = [
    ("sys/bus/scsi/devices/0:0:0:0/block/sda/dev", "8:0\n"),
    ("sys/bus/scsi/devices/0:0:0:0/queue_depth", "32\n"),
    ("sys/block/sda/queue/zoned", "host-managed\n"),
    ("sys/block/sda/queue/scheduler", "none [mq-deadline]\n"),
    ("sys/block/sda/queue/rotational", "1\n"),
    ("sys/block/sda/size", "27344764928\n"),
    ("dev/sda", ""),
];

type Files<'a> = &'a [(&'a str, &'a str)];

/// Looks at a machine as root. Of a file that is in several lists the last one counts.
fn look(files: &[Files<'_>]) -> Seen {
    look_as(files, 0)
}

/// The facts of a machine that has these files, which only root may use.
fn facts(files: &[Files<'_>], uid: u32) -> Facts {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files.iter().copied().flatten() {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    Machine::at(root.path(), User { uid, groups: Vec::new() }).look()
}

fn look_as(files: &[Files<'_>], uid: u32) -> Seen {
    let facts = facts(files, uid);
    let mut seen = Seen::default();
    host::look(&facts, NOW_NS, Ok(()), &mut seen);
    disks::look(&facts, |_| true, |_| false, &mut seen);
    seen
}

/// The finding whose text has these words; it must be the worst of all.
#[track_caller]
fn named<'a>(findings: &'a [Finding], words: &str) -> &'a Finding {
    let text = |found: &Finding| format!("{} {}", found.symptom, found.consequence);
    let found = findings.iter().find(|found| text(found).contains(words));
    let found = found.unwrap_or_else(|| panic!("{words:?} is not in {findings:#?}"));
    let worst = findings.iter().map(|found| found.severity).min();
    assert_eq!(Some(found.severity), worst, "{findings:#?}");
    found
}

#[track_caller]
fn is_well(seen: Seen) {
    let report = Report::new("machine", seen);
    assert!(report.healthy, "{}", report.text());
}

#[test]
fn missing_fuse_device_is_named() {
    let seen = look(&[&PLAIN[..3]]);
    let found = named(&seen.findings, "there is no /dev/fuse");
    assert_eq!(found.severity, Severity::Broken);
    assert!(found.remedy.contains("modprobe fuse"), "{}", found.remedy);
    let mut refused = Seen::default();
    let facts = Machine::at(Path::new("/nowhere"), User { uid: 0, groups: Vec::new() }).look();
    host::look(&facts, NOW_NS, Err(Errno::NOENT), &mut refused);
    named(&refused.findings, "there is no /dev/fuse");
}

#[test]
fn unbound_disk_is_named_with_its_generic_node() {
    let seen = look(&[&PLAIN, &UNBOUND]);
    let found = named(&seen.findings, "no driver is bound");
    assert!(found.remedy.contains("/dev/sg0"), "{}", found.remedy);
    assert_eq!(found.subject, "sg0 (ATA HGST HSH721414AL)");
}

#[test]
fn kernel_without_zones_is_named() {
    let log = ("dev/kmsg", "3,1,2,-;sd 0:0:0:0: Unsupported ZBC host-managed device.\n");
    let without = ("boot/config-6.12.43-amd64", "CONFIG_FUSE_FS=y\nCONFIG_CHR_DEV_SG=y\n");
    for fault in [log, without] {
        let seen = look(&[&PLAIN, &UNBOUND, &[fault]]);
        let found = named(&seen.findings, "it is built without zones");
        assert!(found.remedy.contains("`zonal info /dev/sg0`"), "{}", found.remedy);
    }
}

#[test]
fn failing_report_zones_is_named() {
    let fault = [
        ("sys/block/sda/size", "0\n"),
        ("dev/kmsg", "3,1,2,-;sd 0:0:0:0: [sda] REPORT ZONES start lba 0 failed\n"),
    ];
    let seen = look(&[&PLAIN, &UNBOUND, &BOUND, &fault]);
    let found = named(&seen.findings, "REPORT ZONES fails");
    assert!(found.remedy.contains("ATA commands"), "{}", found.remedy);
    // The same, where a command meets it.
    let message = "reporting /dev/sda: Input/output error (os error 5)".to_owned();
    let refusal = Refusal { message, errno: Some(5), hint: None };
    named(&[device::not_opened("/dev/sda", &refusal)], "REPORT ZONES fails");
}

#[test]
fn wrong_rights_to_disk_and_fuse_are_named() {
    let seen = look_as(&[&PLAIN, &UNBOUND, &BOUND], 4_000_000);
    named(&seen.findings, "may not open /dev/fuse");
    let found = named(&seen.findings, "wrong rights");
    assert!(found.symptom.contains("/dev/sda"), "{}", found.symptom);
}

#[test]
fn old_kernel_with_wrong_scheduler_is_named() {
    let old = [
        ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
        ("sys/block/sda/queue/scheduler", "[none] mq-deadline\n"),
    ];
    let seen = look(&[&PLAIN, &UNBOUND, &BOUND, &old]);
    named(&seen.findings, "only mq-deadline");
    is_well(look(&[&PLAIN, &UNBOUND, &BOUND, &old[1..]]));
}

#[test]
fn bridge_that_hides_zones_is_named() {
    let bridge = [
        ("sys/class/scsi_host/host0/proc_name", "uas\n"),
        ("sys/bus/scsi/devices/0:0:0:0/type", "0\n"),
        ("sys/block/sda/queue/zoned", "none\n"),
    ];
    named(&look(&[&PLAIN, &UNBOUND, &BOUND, &bridge]).findings, "USB bridge that hides them");
}

#[test]
fn namespace_with_odd_zone_size_is_named() {
    let files = [
        ("sys/class/nvme-generic/ng0n1/dev", "243:0\n"),
        ("dev/ng0n1", ""),
        ("dev/kmsg", "4,1,2,-;nvme nvme0: invalid zone size: 768 for namespace: 1\n"),
    ];
    named(&look(&[&PLAIN, &files]).findings, "no power of two");
}

#[test]
fn queueing_that_the_kernel_gave_up_is_named() {
    let log = ("dev/kmsg", "4,1,2,-;sd 0:0:0:0: NCQ disabled due to excessive errors\n");
    named(&look(&[&PLAIN, &UNBOUND, &BOUND, &[log]]).findings, "queueing is off");
}

#[test]
fn clock_that_was_never_set_is_named() {
    let facts = Machine::at(Path::new("/nowhere"), User { uid: 0, groups: Vec::new() }).look();
    let mut seen = Seen::default();
    host::look(&facts, 86_400_000_000_000, Ok(()), &mut seen);
    assert!(seen.findings.iter().any(|found| found.subject == "clock"), "{:?}", seen.findings);
}

#[test]
fn machines_that_are_well_raise_no_alarm() {
    is_well(look(&[&PLAIN]));
    is_well(look(&[&PLAIN, &UNBOUND, &BOUND]));
    let plain_disk = [
        ("sys/bus/scsi/devices/0:0:0:0/type", "0\n"),
        ("sys/bus/scsi/devices/0:0:0:0/model", "WDC WD40EFAX-68J\n"),
        ("sys/block/sda/queue/zoned", "none\n"),
        ("sys/block/sda/queue/discard_granularity", "4096\n"),
    ];
    let seen = look(&[&PLAIN, &UNBOUND, &BOUND, &plain_disk]);
    assert!(seen.findings[0].symptom.contains("drive-managed SMR"), "{:?}", seen.findings);
    is_well(seen);
}

#[test]
fn mounted_generic_node_raises_no_alarm() {
    let facts = facts(&[&PLAIN, &UNBOUND], 0);
    let mut seen = Seen::default();
    disks::look(&facts, |_| true, |node| node == Path::new("/dev/sg0"), &mut seen);
    is_well(seen);
}

/// Counters with these names.
fn counters(named: &[(&str, serde_json::Value)]) -> Counters {
    let named = named.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Counters { kind: "furrow".into(), named, ..Counters::default() }
}

#[test]
fn counters_of_mount_name_its_faults() {
    let point = Path::new("/mnt");
    let of = |named: &[(&str, serde_json::Value)]| {
        mount::of_report("/mnt", point, &counters(named), None)
    };
    named(&of(&[("panicked", "index out of bounds".into())]), "has panicked");
    named(&of(&[("access", "read-only".into())]), "it is read-only");
    named(&of(&[("leaves_lost", 2.into())]), "neither copy");
    named(&of(&[("zones_failed", 1.into())]), "have failed");
    assert!(of(&[("access", "read-write".into())]).is_empty());
    named(&space::owed("/mnt", &counters(&[("resets_owed", 3.into())])), "could not be reset");
    named(&[mount::silent("/mnt", point, Some("T"))], "its daemon is stopped");
    named(&[mount::silent("/mnt", point, Some("D"))], "a hung drive");
    named(&[mount::hung("/mnt", point)], "nothing completed");
}

#[test]
fn busy_mount_is_told_from_idle_one() {
    let mut live = Live { block_bytes: 4096, ..Live::default() };
    live.reservations.low_mark = 2048;
    live.reclaimed.moved = 100;
    live.reclaimed.freed = 100;
    let at = |at_ns: u64, moved: u64| Counters {
        at_ns,
        live: Some(live.clone()),
        ..counters(&[("reclaim_bytes", moved.into())])
    };
    let found = mount::busy("/mnt", &at(0, 0), &at(1_000_000_000, 4 << 20)).unwrap();
    assert!(found.symptom.contains("reclaim moves 4.2 MB/s"), "{found:?}");
    assert!(found.symptom.contains("ends in about 2 s"), "{found:?}");
    assert!(mount::busy("/mnt", &at(0, 0), &at(1_000_000_000, 0)).is_none());
}

#[test]
fn full_file_system_is_told_from_one_with_room() {
    let mut live = Live { block_bytes: 4096, ..Live::default() };
    live.blocks.capacity = 10_000;
    live.blocks.used = 9_990;
    named(&[content::full("drive", &live).unwrap()], "nothing is reclaimable");
    live.blocks.available = 5_000;
    assert!(content::full("drive", &live).is_none());
}

#[test]
fn zone_that_is_free_in_one_look_only_is_no_foreign_writer() {
    let map = "s 100   0\n.   0   0\nd 100  42\n.   0   0\n";
    let zones = "0 full 0 256 192 192\n1 closed 256 256 192 8\n2 full 512 256 192 192\n3 empty 768 256 192 0\n";
    assert_eq!(space::free_with_data(map, zones), [1]);
    assert!(space::foreign("/mnt", &[1], &[]).is_none());
    named(&[space::foreign("/mnt", &[1], &[1, 3]).unwrap()], "foreign writer");
}
