//! The drive over the target in memory: the contract of every device, and everything that can go
//! wrong between a host and a drive.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use zonal::{
    BlockSize, DeviceError, GeometrySpec, Io, Lba, LbaCount, MemoryDrive, OpenMode, Rules, Select,
    ZoneAction, ZoneCond, ZoneFailure, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

use self::target::{Adapter, BYTES_MAX, Kind, Target, Trouble, When};
use super::ScsiDrive;
use super::channel::{Channel, Dialect};
use super::sense::Sense;
use super::transport::host;

mod hostile;
mod realms;
mod target;
mod unusual;

/// A module whose file is in another crate. `cargo xtask check` looks for modules of this crate
/// alone.
macro_rules! of_other_crate {
    ($name:ident, $path:literal) => {
        #[path = $path]
        #[allow(unfulfilled_lint_expectations, reason = "written for tests outside of a crate")]
        mod $name;
    };
}
of_other_crate!(contract, "../../../../zonal/tests/contract/mod.rs");

const ZONE: ZoneId = ZoneId::new(2);
const BLOCK: usize = 4096;

/// Six zones, the first one conventional.
const SPEC: GeometrySpec = GeometrySpec {
    block_size: BlockSize::B4096,
    block_count: LbaCount::new(6 * 60),
    zone_size: LbaCount::new(60),
    zone_capacity: LbaCount::new(60),
    conventional_zones: ZoneRuns::leading(1),
    sequential_kind: ZoneKind::SequentialRequired,
    max_open: Some(3),
    max_active: None,
    max_append: LbaCount::new(60),
};

/// A drive, its target, and the memory below.
struct Rig {
    drive: ScsiDrive,
    target: Arc<Target>,
    memory: Arc<MemoryDrive>,
}

fn open(target: &Arc<Target>, mode: OpenMode) -> Result<ScsiDrive, DeviceError> {
    let mut channel = Channel::new(Box::new(Arc::clone(target)));
    channel.pause_ms = 0;
    ScsiDrive::over(channel, Path::new("sg9"), mode)
}

fn rig(spec: GeometrySpec, shift: u32, adapter: Adapter) -> Rig {
    let memory = Arc::new(MemoryDrive::with_rules(spec, Rules::Zbc).unwrap());
    let target = Target::new(memory.clone(), shift, adapter);
    let drive = open(&target, OpenMode::ReadWrite).unwrap();
    Rig { drive, target, memory }
}

fn plain() -> Rig {
    rig(SPEC, 0, Adapter::Scsi)
}

fn sense(key: u8, asc: u8, ascq: u8) -> Trouble {
    Trouble::Sense(Sense::new(key, asc, ascq))
}

const ABORTED: Trouble = Trouble::Sense(Sense::new(0xb, 0, 0));
const TIMED_OUT: Trouble = Trouble::Host(host::TIME_OUT);

impl Rig {
    fn start(&self) -> Lba {
        self.drive.geometry().zone_start(ZONE)
    }

    fn append(&self, byte: u8) -> Result<Lba, DeviceError> {
        self.drive.append(ZONE, &[byte; BLOCK])
    }

    fn read(&self, lba: Lba) -> u8 {
        let mut block = [0xee; BLOCK];
        self.drive.read(lba, &mut block).unwrap();
        assert!(block.iter().all(|byte| *byte == block[0]));
        block[0]
    }
}

/// Checks that ZBC lets drives break, and the behaviour that differs.
const OTHERWISE: [(&str, &str); 1] =
    [("actions follow the state machine", "by ZBC-2 a zone that is not open may be closed")];

/// Drives of every kind that is supported, with the name of each.
fn shapes() -> Vec<(&'static str, GeometrySpec, u32, Adapter)> {
    let gaps = GeometrySpec { zone_capacity: LbaCount::new(50), ..SPEC };
    let odd = GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(5 * 77 + 13),
        zone_size: LbaCount::new(77),
        zone_capacity: LbaCount::new(77),
        max_open: None,
        ..SPEC
    };
    let scattered = GeometrySpec { conventional_zones: "1,4".parse().unwrap(), ..SPEC };
    vec![
        ("4Kn", SPEC, 0, Adapter::Scsi),
        ("512e with gaps", gaps, 3, Adapter::Scsi),
        ("512n, a smaller last zone", odd, 0, Adapter::Scsi),
        ("scattered conventional zones", scattered, 3, Adapter::Scsi),
        ("ATA, 4Kn with gaps", gaps, 0, Adapter::AtaOnly),
        ("ATA, 512e", SPEC, 3, Adapter::AtaOnly),
        ("ATA, 512n", odd, 0, Adapter::AtaOnly),
    ]
}

#[test]
fn scsi_drives_keep_device_contract() {
    let mut count = 0;
    for (name, spec, shift, adapter) in shapes() {
        for (what, check) in contract::CHECKS {
            if OTHERWISE.iter().any(|(other, _)| other == what) {
                continue;
            }
            let rig = rig(spec, shift, adapter);
            contract::run(&rig.drive, name, what, *check);
            count += 1;
        }
    }
    println!("{count} checks");
}

#[test]
fn drive_reports_shape_and_identity() {
    for (name, spec, shift, adapter) in shapes() {
        let rig = rig(spec, shift, adapter);
        let expected = MemoryDrive::new(spec).unwrap();
        let found = GeometrySpec { max_append: spec.max_append, ..*rig.drive.geometry().spec() };
        assert_eq!(&found, expected.geometry().spec(), "{name}");
        let identity = rig.drive.identity();
        assert_eq!(
            identity.to_string(),
            "HGST HSH721414AL, 9JG1WXYZ, naa.5000cca264d4a039",
            "{name}"
        );
    }
}

#[test]
fn drive_that_refuses_scsi_is_driven_by_ata() {
    let rig = rig(SPEC, 0, Adapter::AtaOnly);
    assert_eq!(rig.drive.channel.dialect, Dialect::Ata);
    let refused = rig.target.count(Kind::Report);
    rig.append(7).unwrap();
    assert_eq!(rig.read(rig.start()), 7);
    rig.drive.flush().unwrap();
    rig.drive.manage(Select::All, ZoneAction::Reset).unwrap();
    let log = rig.target.log.lock().unwrap();
    let is_ata = |command: &super::cdb::Command| matches!(command, super::cdb::Command::Ata(_));
    assert!(log.iter().rev().take(5).all(is_ata), "{log:?}");
    assert!(refused >= 3, "one report as SCSI, the others as ATA");
}

#[test]
fn drive_that_fails_while_it_is_opened_is_error() {
    let memory = Arc::new(MemoryDrive::new(SPEC).unwrap());
    let target = Target::new(memory, 0, Adapter::Scsi);
    for (kind, trouble) in [(Kind::Report, sense(3, 0x11, 0)), (Kind::Question, sense(4, 0x44, 0))]
    {
        target.fail(kind, u32::MAX, When::Before, trouble);
        let error = open(&target, OpenMode::ReadWrite).err().unwrap();
        assert!(matches!(error, DeviceError::Io { .. }), "{error}");
        assert!(error.to_string().contains("sense"), "{error}");
        target.recover();
    }
}

#[test]
fn drive_that_takes_no_ata_commands_is_driven_by_scsi() {
    let memory = Arc::new(MemoryDrive::with_rules(SPEC, Rules::Zbc).unwrap());
    let target = Target::new(memory, 0, Adapter::Scsi);
    let is_ata = |command: &super::cdb::Command| matches!(command, super::cdb::Command::Ata(_));
    for trouble in [Trouble::Forbidden, Trouble::Host(0x07), sense(5, 0x20, 0)] {
        target.fail_if(is_ata, u32::MAX, When::Before, trouble);
        let drive = open(&target, OpenMode::ReadOnly).unwrap();
        assert_eq!(drive.channel.dialect, Dialect::Scsi);
        assert_eq!(drive.geometry().max_open(), Some(3));
        target.recover();
    }
}

#[test]
fn open_for_writing_is_refused_without_right_to_flush() {
    for adapter in [Adapter::Scsi, Adapter::AtaOnly] {
        let memory = Arc::new(MemoryDrive::with_rules(SPEC, Rules::Zbc).unwrap());
        let target = Target::new(memory, 0, adapter);
        target.fail(Kind::Flush, u32::MAX, When::Before, Trouble::Forbidden);
        let error = open(&target, OpenMode::ReadWrite).err().expect("writes could be lost");
        assert!(error.to_string().contains("CAP_SYS_RAWIO"), "{error}");
        open(&target, OpenMode::ReadOnly).expect("reads lose nothing");
    }
}

#[test]
fn commands_are_repeated_if_drive_did_not_start() {
    let rig = plain();
    let kinds = [Kind::Read, Kind::Write, Kind::Report, Kind::Manage, Kind::Flush];
    for trouble in [sense(6, 0x2a, 9), sense(2, 4, 1), Trouble::Status(0x08), Trouble::Host(0x0d)] {
        for kind in kinds {
            rig.target.fail(kind, 5, When::Before, trouble);
        }
        let lba = rig.append(3).unwrap();
        assert_eq!(rig.read(lba), 3);
        rig.drive.report_all().unwrap();
        rig.drive.flush().unwrap();
        rig.drive.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
        assert_eq!(lba, rig.start(), "once, not more");
    }
}

#[test]
fn drive_busy_for_good_is_error() {
    let rig = plain();
    for (trouble, tries) in [(Trouble::Status(0x28), 61), (sense(6, 0x28, 0), 9)] {
        let before = rig.target.count(Kind::Write);
        rig.target.fail(Kind::Write, u32::MAX, When::Before, trouble);
        let error = rig.append(1).unwrap_err();
        assert!(matches!(error, DeviceError::Io { .. }), "{error}");
        assert_eq!(rig.target.count(Kind::Write) - before, tries);
        rig.target.recover();
    }
    assert_eq!(rig.append(2).unwrap(), rig.start());
}

#[test]
fn write_aborted_is_repeated_only_if_it_did_nothing() {
    let rig = plain();
    rig.append(1).unwrap();
    rig.target.fail(Kind::Write, 2, When::Before, ABORTED);
    let second = rig.append(2).unwrap();
    assert_eq!(second, rig.start() + LbaCount::new(1));
    rig.target.fail(Kind::Write, 1, When::After, ABORTED);
    let at = second + LbaCount::new(1);
    let before = rig.target.count(Kind::Write);
    let error = rig.drive.write(at, &[3; BLOCK]).unwrap_err();
    assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
    assert_eq!(rig.target.count(Kind::Write) - before, 1, "only the report is asked for");
    // It happened all the same: the next one goes behind it.
    let fourth = rig.append(4).unwrap();
    assert_eq!(fourth, at + LbaCount::new(1));
    let all: Vec<u8> = (0..4).map(|at| rig.read(rig.start() + LbaCount::new(at))).collect();
    assert_eq!(all, [1, 2, 3, 4]);
}

#[test]
fn write_to_conventional_zone_is_repeated() {
    let rig = plain();
    rig.target.fail(Kind::Write, 2, When::After, ABORTED);
    rig.drive.write(Lba::new(7), &[5; BLOCK]).unwrap();
    assert_eq!(rig.read(Lba::new(7)), 5);
}

#[test]
fn write_timed_out_leaves_known_pointer() {
    for (when, next) in [(When::Before, 1), (When::After, 2)] {
        let rig = plain();
        rig.append(1).unwrap();
        rig.target.fail(Kind::Write, 1, when, TIMED_OUT);
        let error = rig.append(2).unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::TIMEDOUT, "{error}");
        let at = rig.append(3).unwrap();
        assert_eq!(at, rig.start() + LbaCount::new(next), "{when:?}");
        assert_eq!((rig.read(rig.start()), rig.read(at)), (1, 3));
    }
}

#[test]
fn write_of_unknown_outcome_is_followed_by_report() {
    let rig = plain();
    rig.append(1).unwrap();
    rig.target.fail(Kind::Write, 1, When::After, TIMED_OUT);
    rig.target.fail(Kind::Report, u32::MAX, When::Before, sense(4, 0x44, 0));
    rig.append(2).unwrap_err();
    // As long as the drive reports nothing, nothing is written, and nothing read by a guess.
    let writes = rig.target.count(Kind::Write);
    let at = rig.start() + LbaCount::new(1);
    rig.append(3).unwrap_err();
    rig.drive.write(at, &[3; BLOCK]).unwrap_err();
    rig.drive.read(at, &mut [0; BLOCK]).unwrap_err();
    assert_eq!(rig.target.count(Kind::Write), writes);
    rig.target.recover();
    let error = rig.drive.write(at, &[3; BLOCK]).unwrap_err();
    assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
    assert_eq!(rig.append(4).unwrap(), at + LbaCount::new(1));
    assert_eq!(rig.read(at), 2);
}

#[test]
fn write_of_several_commands_stops_at_failure() {
    let rig = rig(SPEC, 3, Adapter::Scsi);
    let blocks = BYTES_MAX / 4096;
    let data: Vec<u8> = (0..3 * blocks).flat_map(|at| vec![at.to_le_bytes()[0]; BLOCK]).collect();
    rig.drive.write(rig.start(), &data).unwrap();
    let mut found = vec![0; data.len()];
    rig.drive.read(rig.start(), &mut found).unwrap();
    assert!(found == data);
    assert_eq!((rig.target.count(Kind::Write), rig.target.count(Kind::Read)), (3, 3));
    rig.drive.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
    let second = rig.start().get() * 8 + BYTES_MAX / 512;
    let is_second = move |command: &super::cdb::Command| match command {
        super::cdb::Command::Write(range) => range.first.get() == second,
        _ => false,
    };
    rig.target.fail_if(is_second, 1, When::Before, sense(3, 0x0c, 0));
    let error = rig.drive.write(rig.start(), &data).unwrap_err();
    let expected = rig.start() + LbaCount::new(blocks);
    assert!(matches!(error, DeviceError::Medium { lba } if lba == expected), "{error}");
    assert_eq!(rig.append(9).unwrap(), expected);
}

#[test]
fn drive_that_vanishes_fails_all_later_calls() {
    for trouble in [Trouble::Vanish, Trouble::Host(host::NO_CONNECT)] {
        let rig = plain();
        rig.append(1).unwrap();
        rig.target.fail(Kind::Read, 1, When::Before, trouble);
        let gone = |result: Result<(), DeviceError>| {
            let error = result.unwrap_err();
            assert_eq!(error.errno(), rustix::io::Errno::NODEV, "{error}");
        };
        gone(rig.drive.read(rig.start(), &mut [0; BLOCK]));
        let before = rig.target.log.lock().unwrap().len();
        gone(rig.append(2).map(drop));
        gone(rig.drive.read(rig.start(), &mut [0; BLOCK]));
        gone(rig.drive.flush());
        gone(rig.drive.report_all().map(drop));
        gone(rig.drive.manage(Select::All, ZoneAction::Reset));
        assert_eq!(rig.target.log.lock().unwrap().len(), before, "nothing is sent any more");
    }
}

#[test]
fn medium_error_names_block() {
    let rig = rig(SPEC, 3, Adapter::Scsi);
    for byte in 0..4 {
        rig.append(byte).unwrap();
    }
    let bad = (rig.start().get() + 2) * 8;
    let hits = move |command: &super::cdb::Command| match command {
        super::cdb::Command::Read(range) => {
            (range.first.get()..range.first.get() + u64::from(range.blocks)).contains(&bad)
        }
        _ => false,
    };
    rig.target.fail_if(hits, u32::MAX, When::Before, sense(3, 0x11, 0));
    let bad = rig.start() + LbaCount::new(2);
    let error = rig.drive.read(bad, &mut [0; BLOCK]).unwrap_err();
    assert!(matches!(error, DeviceError::Medium { lba } if lba == bad), "{error}");
    assert_eq!(rig.read(rig.start()), 0);
}

#[test]
fn zones_that_fail_are_named() {
    for adapter in [Adapter::Scsi, Adapter::AtaOnly] {
        let rig = rig(SPEC, 0, adapter);
        rig.append(5).unwrap();
        rig.memory.fail_zone(ZONE, ZoneFailure::ReadOnly).unwrap();
        assert!(matches!(rig.append(1), Err(DeviceError::ZoneReadOnly { zone: ZONE })));
        assert_eq!(rig.read(rig.start()), 5, "a read-only zone is readable");
        let reset = rig.drive.manage(Select::One(ZONE), ZoneAction::Reset);
        assert!(matches!(reset, Err(DeviceError::ZoneReadOnly { zone: ZONE })), "{reset:?}");
        rig.memory.fail_zone(ZONE, ZoneFailure::Offline).unwrap();
        let read = rig.drive.read(rig.start(), &mut [0; BLOCK]);
        assert!(matches!(read, Err(DeviceError::ZoneOffline { zone: ZONE })), "{read:?}");
        assert!(matches!(rig.append(1), Err(DeviceError::ZoneOffline { zone: ZONE })));
        assert_eq!(rig.drive.zone(ZONE).unwrap().cond, ZoneCond::Offline);
    }
}

#[test]
fn write_of_other_program_is_noticed() {
    for adapter in [Adapter::Scsi, Adapter::AtaOnly] {
        let rig = rig(SPEC, 0, adapter);
        rig.append(1).unwrap();
        rig.memory.append(ZONE, &[2; BLOCK]).unwrap();
        let at = rig.start() + LbaCount::new(1);
        let error = rig.drive.write(at, &[3; BLOCK]).unwrap_err();
        assert!(matches!(error, DeviceError::NotAtWritePointer { .. }), "{error}");
        rig.memory.append(ZONE, &[4; BLOCK]).unwrap();
        assert_eq!(rig.append(5).unwrap(), at + LbaCount::new(2));
        assert_eq!(rig.read(at), 2);
        rig.memory.manage(Select::One(ZONE), ZoneAction::Finish).unwrap();
        assert!(matches!(rig.append(6), Err(DeviceError::ZoneFull { .. })));
        rig.memory.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
        assert_eq!(rig.append(7).unwrap(), rig.start());
    }
}

#[test]
fn read_of_zone_that_is_reset_meanwhile_has_zeroes() {
    for adapter in [Adapter::Scsi, Adapter::AtaOnly] {
        let rig = rig(SPEC, 0, adapter);
        for byte in 1..4 {
            rig.append(byte).unwrap();
        }
        rig.memory.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
        rig.memory.append(ZONE, &[9; BLOCK]).unwrap();
        let mut found = [0xee; 3 * BLOCK];
        rig.drive.read(rig.start(), &mut found).unwrap();
        assert!(found[..BLOCK].iter().all(|byte| *byte == 9));
        assert!(found[BLOCK..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn action_for_all_zones_is_one_command() {
    let rig = plain();
    rig.append(1).unwrap();
    rig.drive.append(ZONE.next(), &[1; BLOCK]).unwrap();
    rig.drive.manage(Select::All, ZoneAction::Reset).unwrap();
    assert_eq!(rig.target.count(Kind::Manage), 1);
    assert_eq!(rig.append(2).unwrap(), rig.start());
    // Without an answer, the drive reports every write pointer again.
    rig.target.fail(Kind::Manage, 1, When::After, TIMED_OUT);
    rig.drive.manage(Select::All, ZoneAction::Reset).unwrap_err();
    assert_eq!(rig.append(3).unwrap(), rig.start());
    rig.target.fail(Kind::Report, 1, When::Before, sense(4, 0x44, 0));
    rig.drive.manage(Select::All, ZoneAction::Reset).unwrap();
    assert_eq!(rig.append(4).unwrap(), rig.start());
}

#[test]
fn flush_after_reset_finds_lost_blocks() {
    let rig = plain();
    rig.append(1).unwrap();
    rig.target.fail(Kind::Flush, 1, When::Before, sense(6, 0x29, 0));
    rig.drive.flush().unwrap();
    rig.append(2).unwrap();
    // The drive loses power, and with it the content of its cache.
    rig.memory.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
    rig.target.fail(Kind::Flush, 1, When::Before, sense(6, 0x29, 1));
    let error = rig.drive.flush().unwrap_err().to_string();
    assert!(error.contains("lost blocks of 1 zones, such as 2"), "{error}");
    rig.drive.flush().unwrap();
    assert_eq!(rig.append(3).unwrap(), rig.start());
}

#[test]
fn blocks_beyond_pointer_are_zeroes_without_command() {
    let rig = plain();
    rig.append(9).unwrap();
    let blocks = usize::try_from(SPEC.block_count.get()).unwrap();
    let mut all = vec![0xee; blocks * BLOCK];
    rig.drive.read(Lba::ZERO, &mut all).unwrap();
    let written = usize::try_from(rig.start().get()).unwrap() * BLOCK;
    assert!(all[written..written + BLOCK].iter().all(|byte| *byte == 9));
    assert_eq!(all.iter().filter(|byte| **byte != 0).count(), BLOCK);
    // Four for the conventional zone, one for the block.
    assert_eq!(rig.target.count(Kind::Read), 5);
}

#[test]
fn drive_open_for_reading_changes_nothing() {
    let rig = plain();
    rig.append(1).unwrap();
    let before = rig.target.count(Kind::Flush);
    let reader = open(&rig.target, OpenMode::ReadOnly).unwrap();
    reader.flush().unwrap();
    assert_eq!(rig.target.count(Kind::Flush), before);
    for refused in [
        reader.write(rig.start(), &[1; BLOCK]),
        reader.append(ZONE, &[1; BLOCK]).map(drop),
        reader.manage(Select::All, ZoneAction::Reset),
    ] {
        assert!(matches!(refused, Err(DeviceError::OpenedReadOnly)), "{refused:?}");
    }
    let mut block = [0; BLOCK];
    reader.read(rig.start(), &mut block).unwrap();
    assert_eq!(block, [1; BLOCK]);
}

#[test]
fn host_aware_drive_takes_writes_anywhere() {
    let kind = ZoneKind::SequentialPreferred;
    let rig = rig(GeometrySpec { sequential_kind: kind, max_open: None, ..SPEC }, 3, Adapter::Scsi);
    let at = rig.start() + LbaCount::new(7);
    rig.drive.write(at, &[1; BLOCK]).unwrap();
    rig.drive.write(rig.start(), &[2; BLOCK]).unwrap();
    assert_eq!(rig.append(3).unwrap(), at + LbaCount::new(1));
    assert_eq!((rig.read(rig.start()), rig.read(at)), (2, 1));
    let zone = rig.drive.zone(ZONE).unwrap();
    assert_eq!((zone.kind, zone.non_sequential), (kind, true));
}

#[test]
fn requests_of_batch_are_in_flight_together() {
    let rig = plain();
    let (one, two) = ([1; BLOCK], [2; BLOCK]);
    let mut blocks = vec![[0xee; BLOCK]; 40];
    let mut batch = vec![
        Io::append(ZONE, &one),
        Io::append(ZONE.next(), &two),
        Io::append(ZONE, &two),
        Io::flush(),
    ];
    let reads = blocks
        .iter_mut()
        .enumerate()
        .map(|(number, block)| Io::read(rig.start() + LbaCount::new(number as u64 % 2), block));
    batch.extend(reads);
    rig.drive.submit(&mut batch);
    for io in batch {
        io.outcome().unwrap();
    }
    for (number, block) in blocks.iter().enumerate() {
        assert_eq!(usize::from(block[0]), number % 2 + 1);
    }
}

/// The outcome of a command that a random test makes fail.
const TROUBLES: [Trouble; 5] = [
    Trouble::Sense(Sense::new(6, 0x29, 0)),
    Trouble::Status(0x08),
    ABORTED,
    TIMED_OUT,
    Trouble::Sense(Sense::new(3, 0x0c, 0)),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever fails, a block that was acknowledged keeps its place and its content until a reset
    /// that may have happened.
    #[test]
    fn acknowledged_blocks_survive_failures(
        steps in prop::collection::vec(
            (0..4_u8, 1..6_u32, 0..6_usize, any::<bool>(), 0..3_u32), 1..60,
        ),
        ata in any::<bool>(),
    ) {
        let rig = rig(SPEC, 3, if ata { Adapter::AtaOnly } else { Adapter::Scsi });
        let mut shadow = std::collections::BTreeMap::<Lba, u8>::new();
        for (number, (what, zone, trouble, is_after, reports)) in (1_u8..).zip(steps) {
            let zone = ZoneId::new(zone);
            let when = if is_after { When::After } else { When::Before };
            let kind = if what == 3 { Kind::Manage } else { Kind::Write };
            // Only a command that was not performed says that it was not.
            if let Some(trouble) = TROUBLES.get(trouble).filter(|_| trouble > 1 || !is_after) {
                rig.target.fail(kind, 1, when, *trouble);
            }
            rig.target.fail(Kind::Report, reports, When::Before, sense(4, 0, 0));
            let start = rig.drive.geometry().zone_start(zone);
            let in_zone = |lba: &Lba| *lba >= start && *lba < start + SPEC.zone_size;
            match what {
                3 => {
                    let _ = rig.drive.manage(Select::One(zone), ZoneAction::Reset);
                    rig.target.recover();
                    if rig.memory.zone(zone).unwrap().cond == ZoneCond::Empty {
                        shadow.retain(|lba, _| !in_zone(lba));
                    }
                }
                _ => {
                    let blocks = usize::from(what) * 9 + 1;
                    if let Ok(lba) = rig.drive.append(zone, &vec![number; blocks * BLOCK]) {
                        for at in 0..blocks as u64 {
                            let old = shadow.insert(lba + LbaCount::new(at), number);
                            prop_assert_eq!(old, None, "written twice");
                        }
                    }
                    rig.target.recover();
                }
            }
            for (lba, byte) in &shadow {
                prop_assert_eq!(rig.read(*lba), *byte, "block {}", lba);
            }
        }
    }
}
