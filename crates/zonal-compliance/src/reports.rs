//! Rules of the report of zones. Nothing is written.

use zonal::{Lba, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind};

use crate::bench::{Bench, Checked, Stop, require, skip};
use crate::rule::{Level, Needs, Row};

const DESCRIPTOR: &str = "ZNS 1.1, 3.4.2.2 (zone descriptor)";
const RECEIVE: &str = "ZNS 1.1, 3.4.2 (Zone Management Receive)";
const RESOURCES: &str = "ZNS 1.1, 2.1.1 (zone resources)";

const fn row(
    id: &'static str,
    clause: &'static str,
    requires: &'static str,
    check: crate::rule::Try,
) -> Row {
    Row { id, clause, level: Level::Must, needs: Needs::Reading, requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row("report.count", RECEIVE, "The report has as many zones as the device.", count),
    row("report.first", DESCRIPTOR, "The first zone starts at block 0.", first),
    row("report.tiling", DESCRIPTOR, "Each zone starts where the one before ends.", tiling),
    row("report.end", DESCRIPTOR, "The last zone ends with the device.", end),
    row("report.same-size", DESCRIPTOR, "All zones but the last have the same size.", same_size),
    row("report.capacity", DESCRIPTOR, "No capacity is larger than the zone size.", capacity),
    row("report.capacity-zero", DESCRIPTOR, "No usable zone has a capacity of 0.", capacity_zero),
    row("report.kind", DESCRIPTOR, "Only conventional zones are without write pointer.", kind),
    row("report.wp-range", DESCRIPTOR, "Write pointers lie within the capacity.", wp_range),
    row(
        "report.wp-empty",
        DESCRIPTOR,
        "An Empty zone has its write pointer at its start.",
        wp_empty,
    ),
    row(
        "report.wp-active",
        DESCRIPTOR,
        "An open or Closed zone has a write pointer below its end.",
        wp_active,
    ),
    row(
        "report.wp-failed",
        DESCRIPTOR,
        "A ReadOnly or Offline zone has no valid write pointer.",
        wp_failed,
    ),
    row("report.open-limit", RESOURCES, "No more zones are open than the limit.", open_limit),
    row("report.active-limit", RESOURCES, "No more zones are active than the limit.", active_limit),
    row("report.limits-order", RESOURCES, "The open limit is not above the active limit.", order),
    row("report.repeat", RECEIVE, "Two reports one after the other are equal.", repeat),
    row(
        "report.from-second",
        RECEIVE,
        "A report from the second zone starts with it.",
        from_second,
    ),
    row("report.from-middle", RECEIVE, "A report from a middle zone starts with it.", from_middle),
    row("report.from-last", RECEIVE, "A report from the last zone is that zone.", from_last),
    row("report.one", RECEIVE, "A report of one zone has one zone.", one),
    row("report.none", RECEIVE, "A report of no zones has no zone.", none),
    row("report.parts", RECEIVE, "Reports of parts together are the whole report.", parts),
    row("report.beyond", RECEIVE, "A report from beyond the end has no zone.", beyond),
    Row {
        level: Level::Should,
        ..row(
            "report.append-limit",
            "ZNS 1.1, 4.1.5 (ZASL) and 3.4.1",
            "The append limit is not above the zone capacity.",
            append_limit,
        )
    },
];

fn each(bench: &Bench<'_>, expected: &str, holds: impl Fn(&Zone) -> bool) -> Checked {
    match bench.all.iter().find(|zone| !holds(zone)) {
        None => Ok(()),
        Some(zone) => Err(Stop::Fail { expected: expected.to_owned(), found: text(zone) }),
    }
}

fn text(zone: &Zone) -> String {
    let wp = zone.wp.map_or("none".to_owned(), |wp| wp.to_string());
    format!(
        "zone {}: {}, start {}, size {}, capacity {}, write pointer {wp}",
        zone.id,
        zone.cond.name(),
        zone.start,
        zone.size,
        zone.capacity
    )
}

fn part(bench: &Bench<'_>, first: usize, limit: usize) -> Result<Vec<Zone>, Stop> {
    let mut zones = Vec::new();
    let first = ZoneId::new(u32::try_from(first).unwrap_or(u32::MAX));
    match bench.device().report(first, &mut zones, limit) {
        Ok(()) => Ok(zones),
        Err(error) => Err(Stop::Fail {
            expected: format!("a report from zone {first} on"),
            found: error.to_string(),
        }),
    }
}

fn count(bench: &Bench<'_>) -> Checked {
    let zones = bench.device().geometry().zone_count() as usize;
    require(bench.all.len() == zones, format!("{zones} zones"), || {
        format!("{} zones", bench.all.len())
    })
}

fn first(bench: &Bench<'_>) -> Checked {
    let Some(zone) = bench.all.first() else { return skip("the report is empty") };
    require(zone.start == Lba::ZERO, "start 0", || text(zone))
}

fn tiling(bench: &Bench<'_>) -> Checked {
    let joined = |pair: &&[Zone]| pair[0].start.checked_add(pair[0].size) != Some(pair[1].start);
    match bench.all.windows(2).find(joined) {
        None => Ok(()),
        Some(pair) => Err(Stop::Fail {
            expected: format!("zone {} at the end of {}", pair[1].id, text(&pair[0])),
            found: text(&pair[1]),
        }),
    }
}

fn end(bench: &Bench<'_>) -> Checked {
    let Some(zone) = bench.all.last() else { return skip("the report is empty") };
    let end = Lba::ZERO + bench.device().geometry().block_count();
    require(zone.start.checked_add(zone.size) == Some(end), format!("end {end}"), || text(zone))
}

fn same_size(bench: &Bench<'_>) -> Checked {
    let size = bench.device().geometry().zone_size();
    let last = bench.all.last().map(|zone| zone.id);
    each(bench, &format!("size {size}"), |zone| zone.size == size || Some(zone.id) == last)
}

fn capacity(bench: &Bench<'_>) -> Checked {
    each(bench, "capacity at most size", |zone| zone.capacity <= zone.size)
}

fn capacity_zero(bench: &Bench<'_>) -> Checked {
    each(bench, "capacity above 0", |zone| {
        zone.cond == ZoneCond::Offline || zone.capacity > LbaCount::ZERO
    })
}

fn kind(bench: &Bench<'_>) -> Checked {
    each(bench, "NotWp for conventional zones and only for them", |zone| {
        (zone.kind == ZoneKind::Conventional) == (zone.cond == ZoneCond::NotWp)
            || matches!(zone.cond, ZoneCond::ReadOnly | ZoneCond::Offline)
    })
}

fn wp_range(bench: &Bench<'_>) -> Checked {
    each(bench, "start ≤ write pointer ≤ start + capacity", |zone| {
        zone.wp.is_none_or(|wp| {
            let end = zone.start.get().saturating_add(zone.capacity.get());
            zone.start <= wp && wp.get() <= end
        })
    })
}

fn wp_empty(bench: &Bench<'_>) -> Checked {
    each(bench, "the write pointer at the start", |zone| {
        zone.cond != ZoneCond::Empty || zone.wp == Some(zone.start)
    })
}

fn wp_active(bench: &Bench<'_>) -> Checked {
    each(bench, "a write pointer below the end of the capacity", |zone| {
        let end = zone.start.get().saturating_add(zone.capacity.get());
        !zone.cond.is_active() || zone.wp.is_some_and(|wp| wp.get() < end)
    })
}

fn wp_failed(bench: &Bench<'_>) -> Checked {
    each(bench, "no write pointer", |zone| {
        !matches!(zone.cond, ZoneCond::ReadOnly | ZoneCond::Offline) || zone.wp.is_none()
    })
}

fn at_most(bench: &Bench<'_>, limit: Option<u32>, counts: fn(ZoneCond) -> bool) -> Checked {
    let Some(limit) = limit else { return skip("the device reports no limit") };
    let found = bench.all.iter().filter(|zone| counts(zone.cond)).count();
    require(found <= limit as usize, format!("at most {limit}"), || format!("{found} zones"))
}

fn open_limit(bench: &Bench<'_>) -> Checked {
    at_most(bench, bench.device().geometry().max_open(), ZoneCond::is_open)
}

fn active_limit(bench: &Bench<'_>) -> Checked {
    at_most(bench, bench.device().geometry().max_active(), ZoneCond::is_active)
}

fn order(bench: &Bench<'_>) -> Checked {
    let geometry = bench.device().geometry();
    match (geometry.max_open(), geometry.max_active()) {
        (Some(open), Some(active)) => {
            require(open <= active, format!("at most {active} open"), || format!("{open} open"))
        }
        _ => skip("the device does not report both limits"),
    }
}

fn repeat(bench: &Bench<'_>) -> Checked {
    let (one, two) = (part(bench, 0, usize::MAX)?, part(bench, 0, usize::MAX)?);
    match one.iter().zip(&two).find(|(one, two)| one != two) {
        None => require(one.len() == two.len(), format!("{} zones again", one.len()), || {
            format!("{} zones", two.len())
        }),
        Some((one, two)) => Err(Stop::Fail { expected: text(one), found: text(two) }),
    }
}

fn starts_with(bench: &Bench<'_>, first: usize, limit: usize) -> Checked {
    let Some(expected) = bench.all.get(first) else { return skip("there are too few zones") };
    let found = part(bench, first, limit)?;
    require(found.first() == Some(expected), text(expected), || {
        found.first().map_or("no zone".to_owned(), text)
    })
}

fn from_second(bench: &Bench<'_>) -> Checked {
    starts_with(bench, 1, 4)
}

fn from_middle(bench: &Bench<'_>) -> Checked {
    starts_with(bench, bench.all.len() / 2, 4)
}

fn from_last(bench: &Bench<'_>) -> Checked {
    let last = bench.all.len().saturating_sub(1);
    starts_with(bench, last, 4)?;
    let found = part(bench, last, 4)?.len();
    require(found == 1, "one zone", || format!("{found} zones"))
}

fn one(bench: &Bench<'_>) -> Checked {
    let found = part(bench, 0, 1)?.len();
    require(found == 1, "one zone", || format!("{found} zones"))
}

fn none(bench: &Bench<'_>) -> Checked {
    let found = part(bench, 0, 0)?.len();
    require(found == 0, "no zone", || format!("{found} zones"))
}

fn parts(bench: &Bench<'_>) -> Checked {
    let whole = part(bench, 0, usize::MAX)?;
    let size = (whole.len() / 7).max(3);
    let mut joined = Vec::new();
    while joined.len() < whole.len() {
        let more = part(bench, joined.len(), size)?;
        if more.is_empty() {
            break;
        }
        joined.extend(more);
    }
    match whole.iter().zip(&joined).find(|(one, two)| one != two) {
        Some((one, two)) => Err(Stop::Fail { expected: text(one), found: text(two) }),
        None => require(joined.len() == whole.len(), format!("{} zones", whole.len()), || {
            format!("{} zones", joined.len())
        }),
    }
}

fn beyond(bench: &Bench<'_>) -> Checked {
    let mut zones = Vec::new();
    let first = ZoneId::new(bench.device().geometry().zone_count());
    // A refusal is as good.
    let _ = bench.device().report(first, &mut zones, 1);
    require(zones.is_empty(), "no zone", || format!("{} zones", zones.len()))
}

fn append_limit(bench: &Bench<'_>) -> Checked {
    bench.needs_appends()?;
    let geometry = bench.device().geometry();
    let (limit, capacity) = (geometry.max_append(), geometry.spec().zone_capacity);
    require(limit <= capacity, format!("at most {capacity} blocks"), || format!("{limit} blocks"))
}
