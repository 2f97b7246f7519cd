//! Rules of sequential write preferred zones: SCSI and ATA have them, NVMe has not.

use zonal::{LbaCount, Zone, ZoneAction, ZoneCond};

use crate::bench::{Answer, Bench, Checked, ONE, Stop, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};

const WRITES: &str = "ZBC-2 (sequential write preferred zones)";
const MARK: &str = "ZBC-2, REPORT ZONES command (NON_SEQ bit)";
const RESET: &str = "ZBC-2, RESET WRITE POINTER command";
const LIMITS: &str = "ZBC-2, Zoned Block Device Characteristics VPD page";

const fn row(id: &'static str, clause: &'static str, requires: &'static str, check: Try) -> Row {
    Row { id, clause, level: Level::Must, needs: Needs::Preferred, requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row("preferred.pointer", WRITES, "A write at the pointer moves it to its end.", pointer),
    row("preferred.below", WRITES, "A block below the write pointer takes a write again.", below),
    row("preferred.kept", WRITES, "A write below the pointer leaves it where it is.", kept),
    row("preferred.above", WRITES, "A write beyond the pointer moves it to its end.", above),
    row("preferred.hole", WRITES, "Blocks that a write leaves out hold no older data.", hole),
    row("preferred.full", WRITES, "A Full zone takes writes and stays Full.", full),
    row("preferred.last", WRITES, "A write of the last block makes the zone Full.", last),
    row("preferred.closed", WRITES, "A write opens a Closed zone.", closed),
    row("preferred.sequential", MARK, "Writes at the pointer leave no mark.", sequential),
    row("preferred.marked", MARK, "A write elsewhere marks the zone.", marked),
    row("preferred.empty", MARK, "A first write behind the zone's start marks it.", empty),
    row("preferred.reset", RESET, "A reset takes pointer, data and mark away.", reset),
    row("preferred.limits", LIMITS, "There is no limit of open zones.", limits),
];

/// An empty zone with room for the steps.
fn zone(bench: &Bench<'_>) -> Result<Zone, Stop> {
    match bench.preferred.first() {
        Some(zone) if zone.capacity >= LbaCount::new(8) => {
            bench.reset(zone)?;
            Ok(*zone)
        }
        _ => skip("the zone holds fewer than 8 blocks"),
    }
}

fn succeeds<T>(answer: &Answer<T>) -> Checked {
    require(answer.is_ok(), "success", || told(answer))
}

/// The same zone after the steps.
fn after(bench: &Bench<'_>, zone: &Zone, expected: &str, test: impl Fn(&Zone) -> bool) -> Checked {
    let found = bench.report(zone.id)?;
    require(test(&found), expected, || format!("{found:?}"))
}

/// Writes each block once, and finds the pointer there.
fn write(bench: &Bench<'_>, zone: &Zone, blocks: &[u64], pointer: u64) -> Checked {
    for &block in blocks {
        succeeds(&bench.write(zone.start + LbaCount::new(block), ONE))?;
    }
    let expected = format!("a write pointer {pointer} blocks behind the start");
    after(bench, zone, &expected, |found| {
        found.written().is_some_and(|written| written.get() == pointer)
    })
}

fn pointer(bench: &Bench<'_>) -> Checked {
    write(bench, &zone(bench)?, &[0, 1, 2], 3)
}

/// Writes a block twice and reads the data of the second write.
fn again(bench: &Bench<'_>, zone: &Zone, block: u64) -> Checked {
    let lba = zone.start + LbaCount::new(block);
    let data = bench.data(lba, ONE);
    let answer = bench.device().write(lba, &data).map_err(Into::into);
    succeeds::<()>(&answer)?;
    let is_there = bench.read(lba, ONE).is_ok_and(|found| found == data);
    require(is_there, format!("block {lba} as written last"), || "other data".to_owned())
}

fn below(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[0, 1, 2], 3)?;
    again(bench, &zone, 1)
}

fn kept(bench: &Bench<'_>) -> Checked {
    write(bench, &zone(bench)?, &[0, 1, 2, 0], 3)
}

fn above(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[0, 5], 6)?;
    bench.verify(zone.id)
}

fn hole(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    let blocks = LbaCount::new(4);
    bench.ready(bench.fill(zone.start, blocks))?;
    let Ok(old) = bench.read(zone.start, blocks) else { return skip("it cannot be read") };
    bench.reset(&zone)?;
    write(bench, &zone, &[5], 6)?;
    let found = bench.read(zone.start, blocks);
    let shows_old = found.is_ok_and(|found| found == old);
    require(!shows_old, "other blocks than before the reset", || "the old ones".to_owned())
}

fn full(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    bench.ready(bench.fill(zone.start, LbaCount::new(2)))?;
    bench.ready(bench.act(zone.id, ZoneAction::Finish))?;
    again(bench, &zone, 1)?;
    again(bench, &zone, 5)?;
    after(bench, &zone, "Full", |found| found.cond == ZoneCond::Full)
}

fn last(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    succeeds(&bench.write(zone.start + (zone.capacity - ONE), ONE))?;
    after(bench, &zone, "Full", |found| found.cond == ZoneCond::Full)
}

fn closed(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[0, 1], 2)?;
    bench.ready(bench.act(zone.id, ZoneAction::Close))?;
    write(bench, &zone, &[0], 2)?;
    after(bench, &zone, "ImplicitOpen", |found| found.cond == ZoneCond::ImplicitOpen)
}

fn sequential(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[0, 1, 2], 3)?;
    after(bench, &zone, "no mark", |found| !found.non_sequential)
}

fn marked(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[0, 1, 0], 2)?;
    after(bench, &zone, "a mark", |found| found.non_sequential)
}

fn empty(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[3], 4)?;
    after(bench, &zone, "a mark", |found| found.non_sequential)
}

fn reset(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    write(bench, &zone, &[3, 1], 4)?;
    succeeds(&bench.act(zone.id, ZoneAction::Reset))?;
    after(bench, &zone, "Empty, with the pointer at the start and no mark", |found| {
        found.cond == ZoneCond::Empty && found.wp == Some(zone.start) && !found.non_sequential
    })
}

fn limits(bench: &Bench<'_>) -> Checked {
    for zone in &bench.preferred {
        bench.reset(zone)?;
        succeeds(&bench.act(zone.id, ZoneAction::Open))?;
    }
    bench.preferred.iter().try_for_each(|zone| bench.reset(zone))
}
