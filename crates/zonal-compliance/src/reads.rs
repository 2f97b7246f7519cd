//! Rules of reads that need nothing to be written.

use zonal::{Lba, LbaCount, Zone, ZoneCond};

use crate::bench::{Answer, Bench, Checked, ONE, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};
use crate::target::Interface;

const READS: &str = "ZNS 1.1, 2.1.1 (reads)";
const RANGE: &str = "NVM Command Set 1.0, 3.2.4 (Read)";
const TWO: LbaCount = LbaCount::new(2);

const fn row(
    id: &'static str,
    clause: &'static str,
    level: Level,
    requires: &'static str,
    check: Try,
) -> Row {
    Row { id, clause, level, needs: Needs::Reading, requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row("read.first", RANGE, Level::Must, "The first block can be read.", first),
    row("read.last", RANGE, Level::Should, "The last block of the last zone can be read.", last),
    row("read.beyond", RANGE, Level::Must, "A read beyond the end is refused.", beyond),
    row("read.over-end", RANGE, Level::Must, "A read over the end is refused.", over_end),
    row("read.far", RANGE, Level::Must, "A read of the largest address is refused.", far),
    row("read.odd-length", RANGE, Level::Must, "A read of part of a block is refused.", odd),
    row("read.stable", READS, Level::Should, "Unwritten blocks read the same twice.", stable),
    row(
        "read.unwritten",
        READS,
        Level::Should,
        "Unwritten blocks read as one byte value.",
        unwritten,
    ),
    row("read.changes-nothing", READS, Level::Must, "A read changes no zone.", changes_nothing),
    row("read.across-zones", READS, Level::Should, "A read over a zone's end succeeds.", across),
    row("read.gap", READS, Level::Should, "A read between capacity and size succeeds.", gap),
    row("read.offline", READS, Level::Must, "A read of an Offline zone is refused.", offline),
    row("read.read-only", READS, Level::Must, "A ReadOnly zone can be read.", read_only),
];

/// A zone whose first block can be read. A SCSI drive may refuse reads of unwritten blocks (ZBC-2,
/// URSWRZ).
fn readable(bench: &Bench<'_>) -> Result<Zone, crate::bench::Stop> {
    let any = bench.target.interface != Interface::Scsi;
    let holds_some = |zone: &Zone| zone.written().is_none_or(|written| written >= ONE);
    let usable = |zone: &&Zone| zone.cond != ZoneCond::Offline && (any || holds_some(zone));
    match bench.all.iter().find(usable) {
        Some(zone) => Ok(*zone),
        None if any => skip("every zone is offline"),
        None => skip("no zone that can be read has data"),
    }
}

/// Success, or a refusal that the interface allows: of unwritten blocks, of gap zones, and over the
/// end of a zone (ZBC-2, "Reads" of each zone type).
fn succeeds_or_restricted<T>(bench: &Bench<'_>, answer: &Answer<T>) -> Checked {
    if answer.is_err() && bench.target.interface == Interface::Scsi {
        return skip("a SCSI drive may refuse this read");
    }
    succeeds(answer)
}

fn succeeds<T>(answer: &Answer<T>) -> Checked {
    require(answer.is_ok(), "success", || told(answer))
}

fn refused<T>(answer: &Answer<T>) -> Checked {
    require(answer.is_err(), "a refusal", || told(answer))
}

fn first(bench: &Bench<'_>) -> Checked {
    succeeds(&bench.read(readable(bench)?.start, ONE))
}

fn end(bench: &Bench<'_>) -> Lba {
    Lba::ZERO + bench.device().geometry().block_count()
}

fn last(bench: &Bench<'_>) -> Checked {
    if bench.all.last().is_none_or(|zone| zone.cond == ZoneCond::Offline) {
        return skip("the last zone is offline");
    }
    succeeds_or_restricted(bench, &bench.read(Lba::new(end(bench).get() - 1), ONE))
}

fn beyond(bench: &Bench<'_>) -> Checked {
    refused(&bench.read(end(bench), ONE))
}

fn over_end(bench: &Bench<'_>) -> Checked {
    refused(&bench.read(Lba::new(end(bench).get() - 1), TWO))
}

fn far(bench: &Bench<'_>) -> Checked {
    let shift = bench.device().geometry().block_size().shift();
    refused(&bench.read(Lba::new((u64::MAX >> 1 >> shift) - 1), ONE))
}

fn odd(bench: &Bench<'_>) -> Checked {
    let mut buffer = vec![0; bench.block_bytes() + 100];
    let answer = bench.device().read(readable(bench)?.start, &mut buffer);
    require(answer.is_err(), "a refusal", || "it succeeded".to_owned())
}

/// A block above a write pointer.
fn above(bench: &Bench<'_>) -> Result<Lba, crate::bench::Stop> {
    let holds_some = |zone: &&Zone| zone.cond == ZoneCond::Empty || zone.cond.is_active();
    let found = bench.all.iter().filter(holds_some).find_map(|zone| {
        let last = zone.start.get() + zone.capacity.get().checked_sub(1)?;
        zone.wp.filter(|wp| wp.get() <= last).map(|_| Lba::new(last))
    });
    match found {
        Some(lba) => Ok(lba),
        None => skip("every zone is written"),
    }
}

fn stable(bench: &Bench<'_>) -> Checked {
    let lba = above(bench)?;
    let (Ok(one), Ok(two)) = (bench.read(lba, ONE), bench.read(lba, ONE)) else {
        return skip("the device refuses reads of unwritten blocks");
    };
    require(one == two, "the same data", || format!("block {lba} differs"))
}

fn unwritten(bench: &Bench<'_>) -> Checked {
    let lba = above(bench)?;
    let Ok(data) = bench.read(lba, ONE) else {
        return skip("the device refuses reads of unwritten blocks");
    };
    require(data.iter().all(|byte| *byte == data[0]), "one byte value", || {
        format!("block {lba} reads as data")
    })
}

fn changes_nothing(bench: &Bench<'_>) -> Checked {
    let zone = readable(bench)?;
    let before = bench.report(zone.id)?;
    let _ = bench.read(zone.start, ONE);
    let _ = bench.read(zone.start + (zone.capacity - ONE), ONE);
    let after = bench.report(zone.id)?;
    require(before == after, format!("{before:?}"), || format!("{after:?}"))
}

fn across(bench: &Bench<'_>) -> Checked {
    let both = |pair: &&[Zone]| pair.iter().all(|zone| zone.cond != ZoneCond::Offline);
    let Some(pair) = bench.all.windows(2).find(both) else { return skip("there is one zone") };
    succeeds_or_restricted(bench, &bench.read(Lba::new(pair[1].start.get() - 1), TWO))
}

fn gap(bench: &Bench<'_>) -> Checked {
    let usable = |zone: &&Zone| zone.cond != ZoneCond::Offline && zone.capacity < zone.size;
    let Some(zone) = bench.all.iter().find(usable) else {
        return skip("capacity and size are equal");
    };
    succeeds_or_restricted(bench, &bench.read(zone.start + zone.capacity, ONE))
}

fn offline(bench: &Bench<'_>) -> Checked {
    match bench.all.iter().find(|zone| zone.cond == ZoneCond::Offline) {
        Some(zone) => refused(&bench.read(zone.start, ONE)),
        None => skip("no zone is offline"),
    }
}

fn read_only(bench: &Bench<'_>) -> Checked {
    match bench.all.iter().find(|zone| zone.cond == ZoneCond::ReadOnly) {
        Some(zone) => succeeds(&bench.read(zone.start, ONE)),
        None => skip("no zone is read-only"),
    }
}
