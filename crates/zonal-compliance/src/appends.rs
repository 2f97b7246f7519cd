//! Rules of zone appends: the device picks the address, and says which.

use std::collections::BTreeSet;
use std::thread;

use zonal::{Lba, LbaCount, ZoneAction, ZoneCond, ZoneId};

use crate::bench::{Bench, Checked, ONE, Stop, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};

const APPEND: &str = "ZNS 1.1, 3.4.1 (Zone Append)";

const fn row(id: &'static str, requires: &'static str, check: Try) -> Row {
    Row { id, clause: APPEND, level: Level::Must, needs: Needs::Zones(2), requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row("append.address", "An append to an Empty zone goes to its start.", address),
    row("append.next", "An append goes behind the one before.", next),
    row("append.reads", "Data is at the address that the append says.", reads),
    row("append.after-write", "An append goes behind a write.", after_write),
    row("append.before-write", "A write can follow an append.", before_write),
    row("append.pointer", "An append moves the write pointer by its blocks.", pointer),
    row("append.largest", "An append of the largest size succeeds.", largest),
    row("append.fills", "Appends fill a zone to its capacity.", fills),
    row("append.odd-length", "An append of part of a block is refused.", odd),
    row("append.no-zone", "An append to a zone beyond the end is refused.", no_zone),
    row("append.parallel-addresses", "Appends at the same time get different blocks.", parallel),
    row(
        "append.parallel-data",
        "Appends at the same time are stored where they say.",
        parallel_data,
    ),
    row("append.parallel-dense", "Appends at the same time leave no block out.", dense),
    row("append.zones", "Appends to two zones at the same time stay in their zones.", two_zones),
];

fn start(bench: &Bench<'_>) -> Result<zonal::Zone, Stop> {
    bench.needs_appends()?;
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    Ok(zone)
}

fn goes_to(bench: &Bench<'_>, zone: ZoneId, expected: Lba) -> Checked {
    let found = bench.append(zone, ONE);
    let is_there = found.as_ref().is_ok_and(|found| *found == expected);
    require(is_there, format!("the address {expected}"), || match &found {
        Ok(lba) => format!("the address {lba}"),
        Err(_) => told(&found),
    })
}

fn address(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    goes_to(bench, zone.id, zone.start)
}

fn next(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    bench.ready(bench.append(zone.id, ONE))?;
    goes_to(bench, zone.id, zone.start + ONE)
}

fn reads(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    for _ in 0..3 {
        let data = bench.data(zone.start, ONE);
        let lba = match bench.device().append(zone.id, &data) {
            Ok(lba) => lba,
            Err(error) => return skip(format!("the append failed: {error}")),
        };
        let found = bench.read(lba, ONE);
        let is_there = found.as_ref().is_ok_and(|found| *found == data);
        require(is_there, format!("the data at {lba}"), || match found {
            Ok(_) => "other data".to_owned(),
            Err(refused) => refused.text,
        })?;
    }
    Ok(())
}

fn after_write(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    bench.ready(bench.write(zone.start, LbaCount::new(2)))?;
    goes_to(bench, zone.id, zone.start + LbaCount::new(2))?;
    bench.verify(zone.id)
}

fn before_write(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    bench.ready(bench.append(zone.id, ONE))?;
    let answer = bench.write(zone.start + ONE, ONE);
    require(answer.is_ok(), "success", || told(&answer))?;
    bench.verify(zone.id)
}

fn pointer(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    let blocks = bench.device().geometry().max_append().min(LbaCount::new(3));
    bench.ready(bench.append(zone.id, blocks))?;
    let (found, expected) = (bench.report(zone.id)?.wp, zone.start + blocks);
    require(found == Some(expected), format!("{expected}"), || format!("{found:?}"))
}

fn largest(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    let blocks = bench.device().geometry().max_append().min(zone.capacity);
    let answer = bench.append(zone.id, blocks);
    require(answer.is_ok(), "success", || told(&answer))
}

fn fills(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    let most = bench.device().geometry().max_append();
    let mut left = zone.capacity;
    while left > LbaCount::ZERO {
        let part = left.min(most);
        let answer = bench.append(zone.id, part);
        require(answer.is_ok(), "success", || told(&answer))?;
        left -= part;
    }
    let cond = bench.report(zone.id)?.cond;
    require(cond == ZoneCond::Full, "full", || cond.name().to_owned())
}

fn odd(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    let answer = bench.device().append(zone.id, &vec![7; bench.block_bytes() + 100]);
    let after = bench.report(zone.id)?;
    let is_empty = after.cond == ZoneCond::Empty;
    require(answer.is_err() && is_empty, "a refusal, and an Empty zone", || format!("{after:?}"))
}

fn no_zone(bench: &Bench<'_>) -> Checked {
    let zone = start(bench)?;
    let none = ZoneId::new(bench.device().geometry().zone_count());
    let answer = bench.device().append(none, &bench.data(zone.start, ONE));
    require(answer.is_err(), "a refusal", || "it succeeded".to_owned())
}

/// An append that is one of several at the same time.
struct Appended {
    zone: ZoneId,
    lba: Lba,
    data: Vec<u8>,
}

/// Appends blocks to each of `zones` by as many threads, and once more, and returns where they
/// went.
fn at_once(bench: &Bench<'_>, zones: &[ZoneId]) -> Result<Vec<Appended>, Stop> {
    let device = bench.device();
    let mut jobs = Vec::new();
    for &zone in zones {
        let start = device.geometry().zone_start(zone);
        jobs.push((zone, [bench.data(start, ONE), bench.data(start, ONE)]));
    }
    let answers: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = jobs
            .into_iter()
            .map(|(zone, parts)| {
                scope.spawn(move || {
                    parts.map(|data| {
                        device.append(zone, &data).map(|lba| Appended { zone, lba, data })
                    })
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        started.into_iter().map(join).collect()
    });
    let mut appended = Vec::new();
    for answer in answers.into_iter().flatten() {
        match answer {
            Ok(one) => appended.push(one),
            Err(error) => {
                let expected = "appends that succeed".to_owned();
                return Err(Stop::Fail { expected, found: error.to_string() });
            }
        }
    }
    Ok(appended)
}

/// Four threads with two appends each to one zone.
fn into_one(bench: &Bench<'_>) -> Result<Vec<Appended>, Stop> {
    let zone = start(bench)?;
    at_once(bench, &[zone.id; 4])
}

fn parallel(bench: &Bench<'_>) -> Checked {
    let lbas: Vec<Lba> = into_one(bench)?.iter().map(|one| one.lba).collect();
    let different: BTreeSet<&Lba> = lbas.iter().collect();
    require(different.len() == lbas.len(), "different addresses", || format!("{lbas:?}"))
}

fn parallel_data(bench: &Bench<'_>) -> Checked {
    stored(bench, &into_one(bench)?)
}

fn stored(bench: &Bench<'_>, appended: &[Appended]) -> Checked {
    for one in appended {
        let is_there = bench.read(one.lba, ONE).is_ok_and(|found| found == one.data);
        require(is_there, format!("the data at {}", one.lba), || "other data".to_owned())?;
    }
    Ok(())
}

fn dense(bench: &Bench<'_>) -> Checked {
    let appended = into_one(bench)?;
    let zone = bench.zone(0)?;
    let (found, expected) =
        (bench.report(zone.id)?, zone.start + LbaCount::new(appended.len() as u64));
    let is_full = found.cond == ZoneCond::Full && expected == zone.start + zone.capacity;
    require(is_full || found.wp == Some(expected), format!("the write pointer {expected}"), || {
        format!("{found:?}")
    })
}

fn two_zones(bench: &Bench<'_>) -> Checked {
    let (one, two) = (start(bench)?, bench.zone(1)?);
    if bench.device().geometry().max_active().is_some_and(|limit| limit < 2) {
        return skip("the device allows one active zone");
    }
    bench.ready(bench.act(two.id, ZoneAction::Reset))?;
    let appended = at_once(bench, &[one.id, two.id])?;
    for one in &appended {
        let start = bench.device().geometry().zone_start(one.zone);
        let inside = one.lba >= start && one.lba < start + LbaCount::new(4);
        require(inside, format!("an address in zone {}", one.zone), || one.lba.to_string())?;
    }
    stored(bench, &appended)
}
