//! Rules of writes that concern more than one operation: neighbours, resets, flushes, batches,
//! every zone of the range.

use zonal::{Io, Lba, LbaCount, ZoneAction, ZoneCond};

use crate::bench::{Bench, Checked, ONE, Stop, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};
use crate::target::Interface;

const MACHINE: &str = "ZNS 1.1, 2.1.1 (Zone State Machine)";
const RESET: &str = "ZNS 1.1, 3.4.3 (Reset Zone)";
const FLUSH: &str = "NVM Express Base 2.0, 7.1 (Flush)";
const WRITE: &str = "NVM Command Set 1.0, 3.2.6 (Write)";
const TWO: LbaCount = LbaCount::new(2);

const fn row(
    id: &'static str,
    clause: &'static str,
    level: Level,
    requires: &'static str,
    check: Try,
) -> Row {
    Row { id, clause, level, needs: Needs::Zones(2), requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row(
        "zone.neighbour",
        MACHINE,
        Level::Must,
        "A write to a zone changes no other zone.",
        neighbour,
    ),
    row(
        "zone.neighbour-full",
        MACHINE,
        Level::Must,
        "A zone that becomes Full changes no other zone.",
        neighbour_full,
    ),
    row(
        "zone.neighbour-reset",
        RESET,
        Level::Must,
        "A reset changes no other zone.",
        neighbour_reset,
    ),
    row(
        "zone.neighbour-finish",
        MACHINE,
        Level::Must,
        "A finish changes no other zone.",
        neighbour_finish,
    ),
    row(
        "zone.every-fills",
        MACHINE,
        Level::Must,
        "Every zone can be written to its capacity.",
        fills,
    ),
    row(
        "zone.every-reads",
        MACHINE,
        Level::Must,
        "Every zone reads as it was written.",
        every_reads,
    ),
    row("reset.twice", RESET, Level::Must, "A reset of an Empty zone succeeds.", reset_twice),
    row(
        "reset.pointer",
        RESET,
        Level::Must,
        "A reset moves the write pointer to the start.",
        pointer,
    ),
    row("reset.capacity", RESET, Level::Must, "A reset leaves size and capacity.", capacity),
    row(
        "reset.hides",
        RESET,
        Level::Should,
        "Blocks of a reset zone do not read as before.",
        hides,
    ),
    row("reset.rewrites", RESET, Level::Must, "A reset zone takes new data.", rewrites),
    row("reset.many", RESET, Level::Must, "A zone can be written and reset 50 times.", many),
    row(
        "flush.clean",
        FLUSH,
        Level::Must,
        "A flush succeeds if there is nothing to do.",
        flush_clean,
    ),
    row(
        "flush.open",
        FLUSH,
        Level::Must,
        "A flush leaves condition and write pointer.",
        flush_open,
    ),
    row("flush.data", FLUSH, Level::Must, "A flush leaves data.", flush_data),
    row("write.odd-length", WRITE, Level::Must, "A write of part of a block is refused.", odd),
    row("write.beyond", WRITE, Level::Must, "A write beyond the end is refused.", beyond),
    row("write.far", WRITE, Level::Must, "A write to the largest address is refused.", far),
    row("write.large", WRITE, Level::Must, "The largest write is stored whole.", large),
    row("write.small", WRITE, Level::Must, "Writes of single blocks follow each other.", small),
    row("write.batch", WRITE, Level::Must, "Writes in flight to several zones all arrive.", batch),
    row(
        "write.order",
        MACHINE,
        Level::Must,
        "Of two writes of the same block, the second is refused.",
        same_block,
    ),
    row(
        "finish.reads",
        MACHINE,
        Level::Must,
        "A finished zone reads as it was written.",
        finish_reads,
    ),
    row(
        "finish.reset",
        MACHINE,
        Level::Must,
        "A finished zone can be reset and written.",
        finish_reset,
    ),
    row(
        "close.goes-on",
        MACHINE,
        Level::Must,
        "Writes to a Closed zone go on where they ended.",
        close,
    ),
    row(
        "read.written-and-not",
        MACHINE,
        Level::Should,
        "A read over the write pointer succeeds.",
        over,
    ),
];

fn succeeds<T>(answer: &crate::bench::Answer<T>) -> Checked {
    require(answer.is_ok(), "success", || told(answer))
}

/// Both zones empty, then `step` on the first; the second has to stay as it is, with two blocks.
fn neighbour_of(bench: &Bench<'_>, step: impl FnOnce() -> Checked) -> Checked {
    let (one, two) = (bench.zone(0)?, bench.zone(1)?);
    bench.reset(&one)?;
    bench.reset(&two)?;
    bench.ready(bench.write(two.start, TWO))?;
    if bench.device().geometry().max_active().is_some_and(|limit| limit < 2) {
        bench.ready(bench.act(two.id, ZoneAction::Finish))?;
    }
    let before = bench.report(two.id)?;
    step()?;
    let after = bench.report(two.id)?;
    let closed = before.cond == ZoneCond::ImplicitOpen && after.cond == ZoneCond::Closed;
    require(
        before.wp == after.wp && (before.cond == after.cond || closed),
        format!("{before:?}"),
        || format!("{after:?}"),
    )?;
    bench.verify(two.id)
}

fn neighbour(bench: &Bench<'_>) -> Checked {
    neighbour_of(bench, || bench.ready(bench.write(bench.zones[0].start, ONE)))
}

fn neighbour_full(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    neighbour_of(bench, || bench.ready(bench.fill(zone.start, zone.capacity)))
}

fn neighbour_reset(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    neighbour_of(bench, || {
        bench.ready(bench.write(zone.start, ONE))?;
        bench.reset(&zone)
    })
}

fn neighbour_finish(bench: &Bench<'_>) -> Checked {
    neighbour_of(bench, || bench.ready(bench.act(bench.zones[0].id, ZoneAction::Finish)))
}

/// Zones that are filled: the first, the last and some between.
fn some(bench: &Bench<'_>) -> Vec<zonal::Zone> {
    const MOST: usize = 16;
    let step = bench.zones.len().div_ceil(MOST).max(1);
    let last = bench.zones.last().copied();
    let mut zones: Vec<_> = bench.zones.iter().step_by(step).copied().collect();
    zones.extend(last.filter(|last| zones.last() != Some(last)));
    zones
}

fn fills(bench: &Bench<'_>) -> Checked {
    for zone in some(bench) {
        bench.reset(&zone)?;
        succeeds(&bench.fill(zone.start, zone.capacity))?;
        let cond = bench.report(zone.id)?.cond;
        require(cond == ZoneCond::Full, format!("zone {} full", zone.id), || cond.name().into())?;
    }
    Ok(())
}

fn every_reads(bench: &Bench<'_>) -> Checked {
    bench.reset_range()?;
    for zone in some(bench) {
        bench.ready(bench.fill(zone.start, zone.capacity))?;
    }
    for zone in some(bench) {
        bench.verify(zone.id)?;
    }
    Ok(())
}

fn reset_twice(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    succeeds(&bench.act(zone.id, ZoneAction::Reset))
}

fn pointer(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, TWO))?;
    bench.reset(&zone)?;
    let found = bench.report(zone.id)?.wp;
    require(found == Some(zone.start), format!("{}", zone.start), || format!("{found:?}"))
}

fn capacity(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, TWO))?;
    bench.reset(&zone)?;
    let found = bench.report(zone.id)?;
    let same = found.capacity == zone.capacity && found.size == zone.size;
    require(same, format!("{zone:?}"), || format!("{found:?}"))
}

fn hides(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, TWO))?;
    let before = bench.ready(bench.read(zone.start, TWO))?;
    if bench.verify(zone.id).is_err() {
        return skip("the device does not store what is written");
    }
    bench.reset(&zone)?;
    match bench.read(zone.start, TWO) {
        Err(_) => Ok(()),
        Ok(found) => require(found != before, "other data", || "the data from before".to_owned()),
    }
}

fn rewrites(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    for _ in 0..2 {
        bench.reset(&zone)?;
        succeeds(&bench.write(zone.start, TWO))?;
    }
    bench.verify(zone.id)
}

fn many(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    for _ in 0..50 {
        succeeds(&bench.act(zone.id, ZoneAction::Reset))?;
        succeeds(&bench.write(zone.start, ONE))?;
    }
    bench.verify(zone.id)
}

fn flush_clean(bench: &Bench<'_>) -> Checked {
    bench.reset(&bench.zone(0)?)?;
    succeeds(&bench.flush())?;
    succeeds(&bench.flush())
}

fn flush_open(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, TWO))?;
    let before = bench.report(zone.id)?;
    succeeds(&bench.flush())?;
    let after = bench.report(zone.id)?;
    require(before == after, format!("{before:?}"), || format!("{after:?}"))
}

fn flush_data(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, TWO))?;
    succeeds(&bench.flush())?;
    bench.verify(zone.id)
}

fn odd(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    let data = vec![7; bench.block_bytes() + 100];
    let answer = bench.device().write(zone.start, &data);
    let after = bench.report(zone.id)?;
    // A block device may have written the whole blocks of it.
    let kept = after.wp == Some(zone.start) || bench.target.interface == Interface::Block;
    require(answer.is_err() && kept, "a refusal, and an Empty zone", || format!("{after:?}"))
}

fn refuses_at(bench: &Bench<'_>, lba: Lba) -> Checked {
    let answer = bench.device().write(lba, &bench.data(lba, ONE));
    require(answer.is_err(), "a refusal", || "it succeeded".to_owned())
}

fn beyond(bench: &Bench<'_>) -> Checked {
    refuses_at(bench, Lba::ZERO + bench.device().geometry().block_count())
}

fn far(bench: &Bench<'_>) -> Checked {
    let shift = bench.device().geometry().block_size().shift();
    refuses_at(bench, Lba::new((u64::MAX >> 1 >> shift) - 1))
}

fn large(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    let blocks = bench.target.transfer.min(zone.capacity);
    succeeds(&bench.write(zone.start, blocks))?;
    let found = bench.report(zone.id)?;
    let is_there = found.cond == ZoneCond::Full || found.wp == Some(zone.start + blocks);
    require(is_there, format!("{blocks} blocks"), || format!("{found:?}"))?;
    bench.verify(zone.id)
}

fn small(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    for block in 0..zone.capacity.get().min(32) {
        succeeds(&bench.write(zone.start + LbaCount::new(block), ONE))?;
    }
    bench.verify(zone.id)
}

fn batch(bench: &Bench<'_>) -> Checked {
    let (one, two) = (bench.zone(0)?, bench.zone(1)?);
    if bench.device().geometry().max_active().is_some_and(|limit| limit < 2) {
        return skip("the device allows one active zone");
    }
    bench.reset(&one)?;
    bench.reset(&two)?;
    let lbas: Vec<Lba> = (0..4)
        .flat_map(|block| [one.start, two.start].map(|start| start + LbaCount::new(block)))
        .collect();
    let data: Vec<Vec<u8>> = lbas.iter().map(|lba| bench.data(*lba, ONE)).collect();
    let mut batch: Vec<Io<'_>> =
        lbas.iter().zip(&data).map(|(&lba, data)| Io::write(lba, data)).collect();
    bench.device().submit(&mut batch);
    drop(batch);
    for (lba, data) in lbas.into_iter().zip(&data) {
        let found = bench.read(lba, ONE);
        let is_there = found.as_ref().is_ok_and(|found| found == data);
        require(is_there, format!("block {lba} as written"), || "other data".to_owned())?;
    }
    Ok(())
}

fn same_block(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, ONE))?;
    let again = bench.device().write(zone.start, &bench.data(zone.start, ONE));
    require(again.is_err(), "a refusal", || "it succeeded".to_owned())?;
    // The report makes a kernel take writes to the zone again.
    bench.report(zone.id)?;
    bench.verify(zone.id)
}

fn finish_reads(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, TWO))?;
    bench.ready(bench.act(zone.id, ZoneAction::Finish))?;
    bench.verify(zone.id)
}

fn finish_reset(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    finish_reads(bench)?;
    succeeds(&bench.act(zone.id, ZoneAction::Reset))?;
    succeeds(&bench.write(zone.start, ONE))?;
    bench.verify(zone.id)
}

fn close(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    for block in 0..4 {
        succeeds(&bench.write(zone.start + LbaCount::new(block), ONE))?;
        bench.ready(bench.act(zone.id, ZoneAction::Close))?;
    }
    bench.verify(zone.id)
}

fn over(bench: &Bench<'_>) -> Checked {
    let zone = bench.zone(0)?;
    bench.reset(&zone)?;
    bench.ready(bench.write(zone.start, ONE))?;
    match bench.read(zone.start, TWO) {
        Ok(_) => Ok(()),
        Err(refused) => Err(Stop::Fail { expected: "success".to_owned(), found: refused.text }),
    }
}
