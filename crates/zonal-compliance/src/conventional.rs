//! Rules of conventional zones, from SCSI and the kernel: NVMe has no such zones.

use zonal::{Lba, LbaCount, Zone, ZoneAction, ZoneCond};

use crate::bench::{Answer, Bench, Checked, ONE, Stop, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};
use crate::target::Interface;

const CONVENTIONAL: &str = "ZBC-2 (conventional zones)";

const fn row(id: &'static str, requires: &'static str, check: Try) -> Row {
    let clause = CONVENTIONAL;
    Row { id, clause, level: Level::Must, needs: Needs::Conventional, requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row("conventional.first", "The first block takes a write.", first),
    row("conventional.last", "The last block takes a write.", last),
    row("conventional.anywhere", "Blocks take writes in any order.", anywhere),
    row("conventional.again", "A block takes a write again.", again),
    row("conventional.report", "A write leaves the report as it is.", report),
    row("conventional.pointer", "There is no write pointer.", pointer),
    row("conventional.open", "The zone cannot be opened.", |bench| act(bench, ZoneAction::Open)),
    row("conventional.close", "The zone cannot be closed.", |bench| act(bench, ZoneAction::Close)),
    row("conventional.finish", "The zone cannot be finished.", |bench| {
        act(bench, ZoneAction::Finish)
    }),
    row("conventional.reset", "The zone cannot be reset.", |bench| act(bench, ZoneAction::Reset)),
    row("conventional.kept", "A refused action leaves the data.", kept),
    row("conventional.append", "An append is refused.", append),
];

fn zone(bench: &Bench<'_>) -> Result<Zone, Stop> {
    match bench.conventional.first() {
        Some(zone) if zone.size >= LbaCount::new(8) => Ok(*zone),
        _ => skip("the zone holds fewer than 8 blocks"),
    }
}

fn succeeds<T>(answer: &Answer<T>) -> Checked {
    require(answer.is_ok(), "success", || told(answer))
}

/// Writes blocks that have new data each, and reads them back.
fn store(bench: &Bench<'_>, lbas: &[Lba]) -> Checked {
    let mut stored = Vec::new();
    for &lba in lbas {
        let data = bench.data(lba, ONE);
        let answer = bench.device().write(lba, &data).map_err(Into::into);
        succeeds::<()>(&answer)?;
        stored.retain(|(old, _)| *old != lba);
        stored.push((lba, data));
    }
    for (lba, data) in stored {
        let is_there = bench.read(lba, ONE).is_ok_and(|found| found == data);
        require(is_there, format!("block {lba} as written"), || "other data".to_owned())?;
    }
    Ok(())
}

fn first(bench: &Bench<'_>) -> Checked {
    store(bench, &[zone(bench)?.start])
}

fn last(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    store(bench, &[zone.start + (zone.capacity - ONE)])
}

fn anywhere(bench: &Bench<'_>) -> Checked {
    let start = zone(bench)?.start;
    store(bench, &[5, 2, 7, 0].map(|block| start + LbaCount::new(block)))
}

fn again(bench: &Bench<'_>) -> Checked {
    let start = zone(bench)?.start;
    store(bench, &[start, start + ONE, start])
}

fn report(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    store(bench, &[zone.start + LbaCount::new(3)])?;
    let after = bench.report(zone.id)?;
    require(after == zone, format!("{zone:?}"), || format!("{after:?}"))
}

fn pointer(bench: &Bench<'_>) -> Checked {
    let found = bench.report(zone(bench)?.id)?;
    let is_none = found.cond == ZoneCond::NotWp && found.wp.is_none();
    require(is_none, "no write pointer", || format!("{found:?}"))
}

fn act(bench: &Bench<'_>, action: ZoneAction) -> Checked {
    let answer = bench.act(zone(bench)?.id, action);
    require(answer.is_err(), "a refusal", || told(&answer))
}

fn kept(bench: &Bench<'_>) -> Checked {
    let zone = zone(bench)?;
    let data = bench.data(zone.start, ONE);
    let answer = bench.device().write(zone.start, &data).map_err(Into::into);
    bench.ready::<()>(answer)?;
    let _ = bench.act(zone.id, ZoneAction::Reset);
    let is_there = bench.read(zone.start, ONE).is_ok_and(|found| found == data);
    require(is_there, "the data from before", || "other data".to_owned())
}

fn append(bench: &Bench<'_>) -> Checked {
    if bench.target.interface != Interface::Library {
        return skip("the interface has no appends to conventional zones");
    }
    let answer = bench.append(zone(bench)?.id, ONE);
    require(answer.is_err(), "a refusal", || told(&answer))
}
