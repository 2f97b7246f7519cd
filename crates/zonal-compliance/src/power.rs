//! Data after a power cut, in two runs: the first writes and returns a record of its writes, the
//! second, after the power is back, compares the zones with that record.
//!
//! D4: a zone then holds a prefix of the blocks written to it, at least up to the last flush.

use serde::{Deserialize, Serialize};
use zonal::{Lba, LbaCount, Zone, ZoneAction, ZoneCond};

use crate::bench::{Bench, Checked, Stop, require, skip};
use crate::check::{Report, Scope, summary};
use crate::rule::{Level, Needs, Rule, Verdict};
use crate::{Outcome, Target};

/// How the first run prepares a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Written, flushed, and written further.
    Written,
    /// Opened explicitly, written and flushed.
    Opened,
    /// Opened explicitly without data.
    OpenedEmpty,
    /// Written, closed and flushed.
    Closed,
    /// Written, finished and flushed.
    Finished,
    /// Written to its end and flushed.
    Filled,
    /// Written, flushed, reset and flushed again.
    Reset,
    /// Written and not flushed.
    Unflushed,
}

const ROLES: [Role; 8] = [
    Role::Written,
    Role::Opened,
    Role::OpenedEmpty,
    Role::Closed,
    Role::Finished,
    Role::Filled,
    Role::Reset,
    Role::Unflushed,
];

/// A zone before the cut.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Before {
    /// Its number.
    pub zone: u32,
    /// How the first run prepared it.
    pub role: Role,
    /// Blocks that were written before the last flush.
    pub flushed_blocks: u64,
    /// Blocks that were written.
    pub written_blocks: u64,
}

/// The record that the first run leaves for the second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Number of the format of this file.
    pub version: u32,
    /// The identity that the device reports.
    pub identity: String,
    /// Blocks of the device.
    pub block_count: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// A number that marks the data of the run.
    pub seed: u64,
    /// The zones.
    pub zones: Vec<Before>,
}

/// Number of the format.
const VERSION: u32 = 1;

/// The block at `lba` of a run.
fn block(seed: u64, lba: u64, bytes: usize) -> Vec<u8> {
    let mut word = [0; 16];
    word[..8].copy_from_slice(&lba.to_le_bytes());
    word[8..].copy_from_slice(&seed.to_le_bytes());
    word.repeat(bytes / 16)
}

fn blocks(bench: &Bench<'_>, seed: u64, zone: &Zone, first: u64, count: u64) -> Checked {
    let (mut at, end) = (zone.start.get() + first, zone.start.get() + first + count);
    while at < end {
        let part = (end - at).min(bench.target.transfer.get());
        let data: Vec<u8> =
            (at..at + part).flat_map(|lba| block(seed, lba, bench.block_bytes())).collect();
        let written = bench.device().write(Lba::new(at), &data).map_err(Into::into);
        bench.ready::<()>(written)?;
        at += part;
    }
    Ok(())
}

/// How many of the roles the range and the limits allow.
fn roles(bench: &Bench<'_>) -> &'static [Role] {
    let geometry = bench.device().geometry();
    let limits = [geometry.max_open(), geometry.max_active()];
    let active = limits.into_iter().flatten().min().unwrap_or(u32::MAX) as usize;
    // Finished, filled and reset zones are not active, but come after the active ones.
    let most = if active < 5 { active.min(2) } else { ROLES.len() };
    &ROLES[..most.min(bench.zones.len())]
}

/// The first run: writes to zones of `scope` and flushes. The caller stores the returned record on
/// another device before the power is cut.
///
/// # Errors
/// A sentence that says why the run failed.
pub fn before_cut(target: &Target<'_>, scope: Scope, seed: u64) -> Result<Record, String> {
    let all = target.device.report_all().map_err(|error| error.to_string())?;
    let bench = Bench::new(target, all, |zone| match scope {
        Scope::ReadOnly => false,
        Scope::Zones { first, last } => first <= zone && zone <= last,
    });
    let zones = prepare(&bench, seed).map_err(|stop| match stop {
        Stop::Fail { expected, found } => format!("{expected}: {found}"),
        Stop::Skip(reason) => reason,
    })?;
    let geometry = target.device.geometry();
    Ok(Record {
        version: VERSION,
        identity: target.device.identity().to_string(),
        block_count: geometry.block_count().get(),
        block_bytes: geometry.block_size().bytes(),
        seed,
        zones,
    })
}

/// Blocks that are written before the last flush, and after it.
const FLUSHED: u64 = 5;
const MORE: u64 = 3;

fn prepare(bench: &Bench<'_>, seed: u64) -> Result<Vec<Before>, Stop> {
    bench.zone(0)?;
    bench.reset_range()?;
    let mut zones = Vec::new();
    for (zone, &role) in bench.zones.iter().zip(roles(bench)) {
        let flushed_blocks = match role {
            Role::Filled => zone.capacity.get(),
            Role::OpenedEmpty | Role::Reset | Role::Unflushed => 0,
            Role::Written | Role::Opened | Role::Closed | Role::Finished => FLUSHED,
        };
        if matches!(role, Role::Opened | Role::OpenedEmpty) {
            bench.ready(bench.act(zone.id, ZoneAction::Open))?;
        }
        let first = if role == Role::Reset { FLUSHED } else { flushed_blocks };
        blocks(bench, seed, zone, 0, first)?;
        match role {
            Role::Closed => bench.ready(bench.act(zone.id, ZoneAction::Close))?,
            Role::Finished => bench.ready(bench.act(zone.id, ZoneAction::Finish))?,
            Role::Reset => {
                bench.ready(bench.flush())?;
                bench.reset(zone)?;
            }
            Role::Written | Role::Opened | Role::OpenedEmpty | Role::Filled | Role::Unflushed => {}
        }
        let written_blocks = flushed_blocks;
        zones.push(Before { zone: zone.id.get(), role, flushed_blocks, written_blocks });
    }
    bench.ready(bench.flush())?;
    for before in &mut zones {
        if matches!(before.role, Role::Written | Role::Unflushed) {
            let zone = bench.all[before.zone as usize];
            blocks(bench, seed, &zone, before.flushed_blocks, MORE)?;
            before.written_blocks += MORE;
        }
    }
    Ok(zones)
}

/// A rule about the zones of some roles.
struct PowerRule {
    id: &'static str,
    clause: &'static str,
    requires: &'static str,
    roles: &'static [Role],
    holds: fn(&Bench<'_>, &Record, &Before, &Zone) -> Checked,
}

const MACHINE: &str = "ZNS 1.1, 2.1.1 (power cycle)";
const FLUSH: &str = "NVM Express Base 2.0, 7.1 (Flush)";
const DATA: &[Role] =
    &[Role::Written, Role::Opened, Role::Closed, Role::Finished, Role::Filled, Role::Unflushed];

const RULES: [PowerRule; 9] = [
    PowerRule {
        id: "power.flushed",
        clause: FLUSH,
        requires: "What was flushed is below the write pointer.",
        roles: &[Role::Written, Role::Opened, Role::Closed],
        holds: |_, _, before, now| {
            let found = written(now);
            let expected = format!("at least {} blocks", before.flushed_blocks);
            require(found >= before.flushed_blocks, expected, || format!("{found} blocks"))
        },
    },
    PowerRule {
        id: "power.no-more",
        clause: MACHINE,
        requires: "No more is written than was.",
        roles: &[Role::Written, Role::Opened, Role::Closed, Role::Unflushed],
        holds: |_, _, before, now| {
            let found = written(now);
            let expected = format!("at most {} blocks", before.written_blocks);
            require(found <= before.written_blocks, expected, || format!("{found} blocks"))
        },
    },
    PowerRule {
        id: "power.data",
        clause: FLUSH,
        requires: "Blocks below the write pointer read as they were written.",
        roles: DATA,
        holds: data,
    },
    PowerRule {
        id: "power.not-open",
        clause: MACHINE,
        requires: "No zone is open.",
        roles: &ROLES,
        holds: |_, _, _, now| {
            require(!now.cond.is_open(), "a zone that is not open", || now.cond.name().to_owned())
        },
    },
    PowerRule {
        id: "power.active-closed",
        clause: MACHINE,
        requires: "A zone with flushed data that was open or Closed is Closed.",
        roles: &[Role::Written, Role::Opened, Role::Closed],
        holds: |_, _, _, now| is(now, ZoneCond::Closed),
    },
    PowerRule {
        id: "power.empty-stays",
        clause: MACHINE,
        requires: "A zone that was opened without data is Empty.",
        roles: &[Role::OpenedEmpty],
        holds: |_, _, _, now| is(now, ZoneCond::Empty),
    },
    PowerRule {
        id: "power.finished-stays",
        clause: MACHINE,
        requires: "A zone that was finished is Full.",
        roles: &[Role::Finished],
        holds: |_, _, _, now| is(now, ZoneCond::Full),
    },
    PowerRule {
        id: "power.filled-stays",
        clause: MACHINE,
        requires: "A zone that was written to its end is Full.",
        roles: &[Role::Filled],
        holds: |_, _, _, now| is(now, ZoneCond::Full),
    },
    PowerRule {
        id: "power.reset-stays",
        clause: MACHINE,
        requires: "A zone whose reset was flushed is Empty.",
        roles: &[Role::Reset],
        holds: |_, _, _, now| is(now, ZoneCond::Empty),
    },
];

/// Blocks below the write pointer; none where there is no valid one.
fn written(zone: &Zone) -> u64 {
    zone.wp.map_or(0, |wp| wp.get().saturating_sub(zone.start.get()))
}

fn is(zone: &Zone, cond: ZoneCond) -> Checked {
    require(zone.cond == cond, cond.name(), || zone.cond.name().to_owned())
}

fn data(bench: &Bench<'_>, record: &Record, before: &Before, now: &Zone) -> Checked {
    let there = match now.cond {
        ZoneCond::Full => before.flushed_blocks,
        _ => written(now).min(before.written_blocks),
    };
    for offset in 0..there {
        let lba = now.start + LbaCount::new(offset);
        let expected = block(record.seed, lba.get(), bench.block_bytes());
        match bench.read(lba, LbaCount::new(1)) {
            Ok(found) if found == expected => {}
            Ok(_) => {
                let expected = format!("block {lba} as it was written");
                return Err(Stop::Fail { expected, found: "other data".to_owned() });
            }
            Err(refused) => {
                let expected = format!("block {lba} as it was written");
                return Err(Stop::Fail { expected, found: refused.text });
            }
        }
    }
    Ok(())
}

/// The second run, after the power is back.
///
/// # Errors
/// If the record is of another device, as a sentence.
pub fn after_cut(target: &Target<'_>, record: &Record) -> Result<Report, String> {
    let geometry = target.device.geometry();
    let identity = target.device.identity().to_string();
    if record.version != VERSION {
        return Err(format!("the record has version {}, not {VERSION}", record.version));
    }
    if record.identity != identity
        || record.block_count != geometry.block_count().get()
        || record.block_bytes != geometry.block_size().bytes()
    {
        return Err("the record is of another device".to_owned());
    }
    let all = target.device.report_all().map_err(|error| error.to_string())?;
    let bench = Bench::new(target, all, |_| false);
    let outcomes = RULES.iter().map(|rule| judge(&bench, record, rule)).collect();
    Ok(summary(target, Scope::ReadOnly, Vec::new(), outcomes))
}

fn judge(bench: &Bench<'_>, record: &Record, power: &PowerRule) -> Outcome {
    let rule = Rule {
        id: power.id.to_owned(),
        clause: power.clause,
        requires: power.requires.to_owned(),
        level: Level::Must,
        needs: Needs::Reading,
    };
    let mut tried = 0;
    let mut checked = Ok(());
    for before in record.zones.iter().filter(|before| power.roles.contains(&before.role)) {
        tried += 1;
        let Some(now) = bench.all.get(before.zone as usize) else { continue };
        checked = (power.holds)(bench, record, before, now).map_err(|stop| in_zone(stop, before));
        if checked.is_err() {
            break;
        }
    }
    if tried == 0 {
        checked = skip("the first run had no such zone");
    }
    let verdict = match checked {
        Ok(()) => Verdict::Pass,
        Err(Stop::Skip(reason)) => Verdict::Skip { reason },
        Err(Stop::Fail { expected, found }) => Verdict::Fail { expected, found, steps: Vec::new() },
    };
    crate::check::outcome(&rule, verdict)
}

fn in_zone(stop: Stop, before: &Before) -> Stop {
    match stop {
        Stop::Fail { expected, found } => {
            let expected = format!("zone {} ({:?}): {expected}", before.zone, before.role);
            Stop::Fail { expected, found }
        }
        skip @ Stop::Skip(_) => skip,
    }
}
