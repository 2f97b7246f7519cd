//! Times of zone management, and the effect of resets on the commands beside them.
//!
//! The drive's figures come from the same public raw data as the points.

use zonal::workload::Pattern;
use zonal::workload::queued::{self, Beside, Workload};
use zonal::{
    Clock, DeviceError, Io, LbaCount, Select, VirtualQueue, ZoneAction, ZoneId, ZonedDevice,
};

use super::{Figures, workload};
use crate::config::Config;
use crate::error::{Result, SimError};
use crate::ssd::SimSsd;

/// Blocks of a zone of the drive.
const CAPACITY: u64 = 275_712;

/// Repetitions of each action; times vary.
const ROUNDS: u32 = 8;

/// Virtual time between two actions: the flash has nothing to do any more.
const REST_NS: u64 = 5_000_000_000;

/// Virtual time beside resets.
const BESIDE_NS: u64 = 5_000_000_000;

/// A time of the drive, and of the simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Managed {
    /// The action.
    pub name: &'static str,
    /// Its time on the drive.
    pub drive_us: f64,
    /// Its time on the simulated drive.
    pub ours_us: f64,
}

impl Managed {
    /// The error, as a share of the measured time.
    pub fn error(&self) -> f64 {
        self.ours_us / self.drive_us - 1.0
    }
}

/// The operation to time.
#[derive(Clone, Copy)]
enum Timed {
    Action(ZoneAction),
    /// A reset of a zone that was finished before.
    ResetFinished,
    Write,
    Append,
}

/// Name and operation, blocks written to the zone before, and the time on the drive.
const ACTIONS: [(&str, Timed, u64, f64); 17] = [
    ("open", Timed::Action(ZoneAction::Open), 0, 9.5),
    ("close", Timed::Action(ZoneAction::Close), 1, 10.9),
    ("first write of 4 KiB", Timed::Write, 0, 13.5),
    ("first append of 4 KiB", Timed::Append, 0, 17.6),
    ("finish, empty", Timed::Action(ZoneAction::Finish), 0, 14.0),
    ("finish, 1 block", Timed::Action(ZoneAction::Finish), 1, 907_000.0),
    ("finish, 50 %", Timed::Action(ZoneAction::Finish), CAPACITY / 2, 457_000.0),
    ("finish, all but the last block", Timed::Action(ZoneAction::Finish), CAPACITY - 1, 2_600.0),
    ("finish, full", Timed::Action(ZoneAction::Finish), CAPACITY, 14.0),
    ("reset, empty", Timed::Action(ZoneAction::Reset), 0, 1_600.0),
    ("reset, 1 block", Timed::Action(ZoneAction::Reset), 1, 1_700.0),
    ("reset, 25 %", Timed::Action(ZoneAction::Reset), CAPACITY / 4, 7_900.0),
    ("reset, full", Timed::Action(ZoneAction::Reset), CAPACITY, 15_800.0),
    ("reset, 1 block, finished", Timed::ResetFinished, 1, 1_700.0),
    ("reset, 25 %, finished", Timed::ResetFinished, CAPACITY / 4, 5_100.0),
    ("reset, 100 %, finished", Timed::ResetFinished, CAPACITY, 15_400.0),
    ("write of 4 KiB", Timed::Write, 1, 11.4),
];

/// Times all actions on drives of a config.
pub fn managed(config: &Config) -> Result<Vec<Managed>> {
    let failed = |error: DeviceError| SimError::Config { what: error.to_string() };
    let mut rows = Vec::new();
    for (name, timed, blocks, drive_us) in ACTIONS {
        let drive = SimSsd::new(config)?;
        let mut sum_us = 0.0;
        for round in 0..ROUNDS {
            sum_us += time_us(&drive, timed, blocks, round).map_err(failed)?;
        }
        rows.push(Managed { name, drive_us, ours_us: sum_us / f64::from(ROUNDS) });
    }
    for (name, pattern, drive_us) in [
        ("append of 4 KiB beside resets", Pattern::Append, 28.8),
        ("read of 4 KiB beside resets", Pattern::RandomRead, 130.9),
    ] {
        let drive = SimSsd::new(config)?;
        let one = workload(pattern, LbaCount::new(1), 1, 1, Beside::Resets);
        let workload = Workload { time_ns: BESIDE_NS, ..one };
        let outcome = queued::run(&drive, &workload)
            .map_err(|error| SimError::Config { what: format!("{name}: {error}") })?;
        rows.push(Managed { name, drive_us, ours_us: Figures::of(&outcome).mean_us });
    }
    Ok(rows)
}

#[expect(clippy::cast_precision_loss, reason = "times for people")]
fn time_us(
    drive: &SimSsd,
    timed: Timed,
    blocks: u64,
    round: u32,
) -> std::result::Result<f64, DeviceError> {
    let zone = ZoneId::new(round);
    let begun = drive.clock().monotonic_ns();
    let mut now = queued::fill(drive, drive, zone, LbaCount::new(blocks), begun)? + REST_NS;
    let block = [0; 4096];
    let (begin, end) = match timed {
        Timed::Action(action) => (now, drive.manage_at(Select::One(zone), action, now)?),
        Timed::ResetFinished => {
            now = drive.manage_at(Select::One(zone), ZoneAction::Finish, now)? + REST_NS;
            (now, drive.manage_at(Select::One(zone), ZoneAction::Reset, now)?)
        }
        Timed::Write => {
            let lba = drive.geometry().zone_start(zone) + LbaCount::new(blocks);
            (now, perform(drive, Io::write(lba, &block), now)?)
        }
        Timed::Append => (now, perform(drive, Io::append(zone, &block), now)?),
    };
    // Reset the zone, so that none is active in the next round, which uses another one.
    let over = drive.manage_at(Select::One(zone), ZoneAction::Reset, end + REST_NS)?;
    let passed = over.saturating_sub(drive.clock().monotonic_ns());
    drive.clock().advance_ns(passed + REST_NS);
    Ok((end - begin) as f64 / 1e3)
}

fn perform(drive: &SimSsd, mut io: Io<'_>, now: u64) -> std::result::Result<u64, DeviceError> {
    let end = drive.perform_at(&mut io, now);
    io.outcome().map(|_| end)
}
