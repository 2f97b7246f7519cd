//! A drive that breaks one rule on purpose is found by the rule that it breaks.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Mutex;

use zonal::aligned::ALIGNMENT;
use zonal::error::Result;
use zonal::{
    BlockSize, DeviceError, Geometry, GeometrySpec, Lba, LbaCount, MemoryDrive, Rules, Select,
    Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};
use zonal_compliance::{Interface, Scope, Target, check};

/// The fault of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    WriteAbovePointerIsMoved,
    WriteToFullSucceeds,
    WriteLosesData,
    AppendSaysStart,
    AppendStoresNothing,
    ResetKeepsPointer,
    ResetDoesNothing,
    CloseDoesNothing,
    OpenOfFullSucceeds,
    CloseOfEmptySucceeds,
    FinishOfClosedFails,
    FinishClosesOnly,
    OpenLimitIsHigher,
    OpenLimitIsLower,
    ActiveLimitIsHigher,
    ReportLacksZone,
    ReportIgnoresFirst,
    WriteChangesNeighbour,
    WrongStatus,
    ReadBeyondEndSucceeds,
    ReadMovesNothing,
    FlushResetsZone,
    ResetReachesOutside,
}

/// A memory drive with a fault.
struct Faulty {
    below: MemoryDrive,
    geometry: Geometry,
    fault: Fault,
    /// Data of the last write, as far as a fault needs it.
    last: Mutex<Vec<u8>>,
}

const ZONES: u32 = 12;

fn spec() -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(u64::from(ZONES) * 16),
        zone_size: LbaCount::new(16),
        zone_capacity: LbaCount::new(12),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(3),
        max_active: Some(5),
        max_append: LbaCount::new(4),
    }
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        let below = match fault {
            Fault::OpenLimitIsHigher => GeometrySpec { max_open: Some(4), ..spec() },
            Fault::OpenLimitIsLower => GeometrySpec { max_open: Some(2), ..spec() },
            Fault::ActiveLimitIsHigher => GeometrySpec { max_active: Some(6), ..spec() },
            _ => spec(),
        };
        let geometry = Geometry::new(spec()).unwrap();
        let below = MemoryDrive::new(below).unwrap();
        Self { below, geometry, fault, last: Mutex::new(Vec::new()) }
    }

    /// Fills unaligned memory as direct I/O does: it copies its own buffer there, which holds the
    /// last write if the drive has moved nothing since.
    fn copy_last_write(&self, memory: &mut [u8]) {
        if memory.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            return;
        }
        let last = self.last.lock().unwrap();
        let bytes = memory.len().min(last.len());
        memory[..bytes].copy_from_slice(&last[..bytes]);
    }

    fn cond(&self, zone: ZoneId) -> ZoneCond {
        self.below.zone(zone).unwrap().cond
    }
}

impl ZonedDevice for Faulty {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        match self.fault {
            Fault::ReportLacksZone if limit > 1 => {
                self.below.report(first, zones, limit)?;
                if first.index() + zones.len() == ZONES as usize {
                    zones.pop();
                }
                Ok(())
            }
            Fault::ReportIgnoresFirst if limit == 4 => {
                self.below.report(ZoneId::ZERO, zones, limit)
            }
            _ => self.below.report(first, zones, limit),
        }
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        if self.fault == Fault::ReadMovesNothing {
            self.copy_last_write(buffer);
            return Ok(());
        }
        match self.below.read(lba, buffer) {
            Err(DeviceError::OutOfRange { .. }) if self.fault == Fault::ReadBeyondEndSucceeds => {
                Ok(())
            }
            other => other,
        }
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let end = Lba::ZERO + self.geometry.block_count();
        if lba >= end {
            return self.below.write(lba, data);
        }
        let zone = self.geometry.locate(lba).0;
        let now = self.below.zone(zone)?;
        match self.fault {
            Fault::WriteAbovePointerIsMoved if now.wp.is_some_and(|wp| lba > wp) => {
                self.below.append(zone, &data[..4096]).map(drop)
            }
            Fault::WriteToFullSucceeds if now.cond == ZoneCond::Full => Ok(()),
            Fault::ReadMovesNothing => {
                *self.last.lock().unwrap() = data.to_vec();
                self.below.write(lba, data)
            }
            Fault::WriteLosesData => self.below.write(lba, &vec![0; data.len()]),
            Fault::WrongStatus => match self.below.write(lba, data) {
                Err(DeviceError::NotAtWritePointer { zone, .. }) => {
                    Err(DeviceError::ZoneReadOnly { zone })
                }
                other => other,
            },
            Fault::WriteChangesNeighbour if zone == ZoneId::ZERO => {
                self.below.write(lba, data)?;
                let _ = self.below.append(ZoneId::new(1), &data[..4096]);
                Ok(())
            }
            Fault::FlushResetsZone => {
                self.last.lock().unwrap().push(1);
                self.below.write(lba, data)
            }
            _ => self.below.write(lba, data),
        }
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        match self.fault {
            Fault::AppendSaysStart => {
                self.below.append(zone, data).map(|_| self.geometry.zone_start(zone))
            }
            Fault::AppendStoresNothing => self.below.append(zone, &vec![0; data.len()]),
            _ => self.below.append(zone, data),
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let Select::One(zone) = zones else { return self.below.manage(zones, action) };
        let cond = self.cond(zone);
        match (self.fault, action, cond) {
            (Fault::ResetKeepsPointer, ZoneAction::Reset, ZoneCond::Closed)
            | (Fault::ResetDoesNothing, ZoneAction::Reset, ZoneCond::Full)
            | (Fault::CloseDoesNothing, ZoneAction::Close, ZoneCond::ImplicitOpen)
            | (Fault::OpenOfFullSucceeds, ZoneAction::Open, ZoneCond::Full)
            | (Fault::CloseOfEmptySucceeds, ZoneAction::Close, ZoneCond::Empty) => Ok(()),
            (Fault::FinishOfClosedFails, ZoneAction::Finish, ZoneCond::Closed) => {
                Err(DeviceError::Transition { zone, cond, action })
            }
            (Fault::FinishClosesOnly, ZoneAction::Finish, ZoneCond::ImplicitOpen) => {
                self.below.manage(zones, ZoneAction::Close)
            }
            (Fault::ResetReachesOutside, ZoneAction::Reset, _) => {
                self.below.manage(Select::One(ZoneId::new(ZONES - 1)), action)?;
                self.below.manage(zones, action)
            }
            _ => self.below.manage(zones, action),
        }
    }

    fn flush(&self) -> Result<()> {
        if self.fault == Fault::FlushResetsZone {
            let written = !self.last.lock().unwrap().is_empty();
            if written && self.cond(ZoneId::ZERO).is_active() {
                self.below.manage(Select::One(ZoneId::ZERO), ZoneAction::Reset)?;
            }
        }
        self.below.flush()
    }
}

fn broken(fault: Fault) -> Vec<String> {
    let drive = Faulty::new(fault);
    // A zone outside the range has data.
    drive.below.append(ZoneId::new(ZONES - 1), &[7; 4096]).unwrap();
    drive.below.manage(Select::One(ZoneId::new(ZONES - 1)), ZoneAction::Finish).unwrap();
    let target = Target {
        name: "faulty",
        device: &drive,
        interface: Interface::Library,
        rules: Rules::Zns,
        transfer: LbaCount::new(256),
        filters: None,
    };
    let scope = Scope::Zones { first: ZoneId::ZERO, last: ZoneId::new(ZONES - 2) };
    let report = check(&target, scope, &mut |_, _| {}).unwrap();
    let broken: Vec<_> = report.outcomes.into_iter().filter(|one| one.verdict == "fail").collect();
    for one in &broken {
        assert!(one.expected.is_some() && one.observed.is_some(), "{one:?}");
    }
    broken.into_iter().map(|one| one.rule_name).collect()
}

#[test]
fn planted_fault_is_found_by_its_rule() {
    let faults = [
        (Fault::WriteAbovePointerIsMoved, "state.implicit-open.write-above-pointer.result"),
        (Fault::WriteToFullSucceeds, "state.full.write-below-pointer.result"),
        (Fault::WriteLosesData, "state.closed.write-at-pointer.data"),
        (Fault::AppendSaysStart, "append.next"),
        (Fault::AppendStoresNothing, "append.reads"),
        (Fault::ResetKeepsPointer, "state.closed.reset.zone"),
        (Fault::ResetDoesNothing, "state.finished-unwritten.reset.zone"),
        (Fault::CloseDoesNothing, "state.implicit-open.close.zone"),
        (Fault::OpenOfFullSucceeds, "state.full.open.result"),
        (Fault::CloseOfEmptySucceeds, "state.empty.close.result"),
        (Fault::FinishOfClosedFails, "state.closed.finish.result"),
        (Fault::FinishClosesOnly, "state.implicit-open.finish.zone"),
        (Fault::OpenLimitIsHigher, "open.refused"),
        (Fault::OpenLimitIsLower, "open.up-to"),
        (Fault::ActiveLimitIsHigher, "active.refused"),
        (Fault::ReportLacksZone, "report.count"),
        (Fault::ReportIgnoresFirst, "report.from-second"),
        (Fault::WriteChangesNeighbour, "zone.neighbour"),
        (Fault::WrongStatus, "state.closed.write-above-pointer.status"),
        (Fault::ReadBeyondEndSucceeds, "read.beyond"),
        (Fault::ReadMovesNothing, "reset.many"),
        (Fault::FlushResetsZone, "flush.open"),
        (Fault::ResetReachesOutside, "range.outside"),
    ];
    for (fault, rule) in faults {
        let found = broken(fault);
        assert!(
            found.iter().any(|one| one == rule),
            "{fault:?} is not found by {rule}: {found:#?}"
        );
    }
}

#[test]
fn drive_whose_reads_move_nothing_has_changed_no_zone_outside() {
    let found = broken(Fault::ReadMovesNothing);
    assert!(found.iter().all(|rule| rule != "range.outside"), "{found:#?}");
}
