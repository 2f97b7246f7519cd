//! Rules of filtered and partial reports, where the interface is NVMe or SCSI commands.
//!
//! They compare a filtered report with the whole report. A range that may be written gets zones of
//! several conditions first, so that the filters have something to find.

use zonal::nvme::decode::ReportCount;
use zonal::{Lba, LbaCount, Zone, ZoneAction, ZoneCond};

use crate::bench::{Bench, Checked, ONE, Stop, require, skip};
use crate::rule::{Level, Needs, Row, Rule, Try};
use crate::target::{FilteredReport, Filters};

const RECEIVE: &str = "ZNS 1.1, 3.4.2 (Zone Receive Action Specific)";
const PARTIAL: &str = "ZNS 1.1, 3.4.2 (Partial Report)";

const fn row(id: &'static str, clause: &'static str, requires: &'static str, check: Try) -> Row {
    Row { id, clause, level: Level::Must, needs: Needs::Reading, requires, check }
}

const ROWS: &[Row] = &[
    row("filter.all", RECEIVE, "The filter for all zones finds every zone.", all),
    row("partial.whole", PARTIAL, "A whole report counts all zones that match.", whole),
    row("partial.part", PARTIAL, "A partial report counts the zones that it has.", partial),
    row(
        "partial.from-middle",
        PARTIAL,
        "The count of a report begins with its first zone.",
        middle,
    ),
    row(
        "partial.filtered",
        PARTIAL,
        "A short report with a filter counts all that match.",
        counted,
    ),
    row("filter.inside", RECEIVE, "A report from inside a zone begins with that zone.", inside),
];

/// A rule for each condition, and the rules of partial reports.
pub(crate) fn rules() -> Vec<(Rule, Try)> {
    type Pair = (ZoneCond, &'static str, Try, Try);
    const CONDS: [Pair; 7] = [
        (ZoneCond::Empty, "empty", |b| only(b, ZoneCond::Empty), |b| found(b, ZoneCond::Empty)),
        (
            ZoneCond::ImplicitOpen,
            "implicit-open",
            |b| only(b, ZoneCond::ImplicitOpen),
            |b| found(b, ZoneCond::ImplicitOpen),
        ),
        (
            ZoneCond::ExplicitOpen,
            "explicit-open",
            |b| only(b, ZoneCond::ExplicitOpen),
            |b| found(b, ZoneCond::ExplicitOpen),
        ),
        (ZoneCond::Closed, "closed", |b| only(b, ZoneCond::Closed), |b| found(b, ZoneCond::Closed)),
        (ZoneCond::Full, "full", |b| only(b, ZoneCond::Full), |b| found(b, ZoneCond::Full)),
        (
            ZoneCond::ReadOnly,
            "read-only",
            |b| only(b, ZoneCond::ReadOnly),
            |b| found(b, ZoneCond::ReadOnly),
        ),
        (
            ZoneCond::Offline,
            "offline",
            |b| only(b, ZoneCond::Offline),
            |b| found(b, ZoneCond::Offline),
        ),
    ];
    let mut rules: Vec<(Rule, Try)> = ROWS.iter().map(Row::rule).collect();
    for (cond, name, only, found) in CONDS {
        for (what, check) in [("only", only), ("count", found)] {
            let requires = match what {
                "only" => {
                    format!("The filter for {} zones finds those and no others.", cond.name())
                }
                _ => format!("The filter for {} zones counts as many as it finds.", cond.name()),
            };
            let rule = Rule {
                id: format!("filter.{name}.{what}"),
                clause: RECEIVE,
                requires,
                level: Level::Must,
                needs: Needs::Reading,
            };
            rules.push((rule, check));
        }
    }
    rules
}

fn filters<'a>(bench: &Bench<'a>) -> Result<&'a dyn Filters, Stop> {
    match bench.target.filters {
        Some(filters) => Ok(filters),
        None => skip("the interface has no filters of reports"),
    }
}

/// A request for a report.
struct Wanted {
    first: Lba,
    only: Option<ZoneCond>,
    count: ReportCount,
    room: usize,
}

fn ask(bench: &Bench<'_>, wanted: &Wanted) -> Result<FilteredReport, Stop> {
    let Wanted { first, only, count, room } = *wanted;
    filters(bench)?
        .filtered(first, only, count, room)
        .map_err(|error| Stop::Fail { expected: "a report".to_owned(), found: error.to_string() })
}

/// A zone in each condition, in the first zones of the range, if it may be written.
fn arrange(bench: &Bench<'_>) -> Result<Vec<Zone>, Stop> {
    filters(bench)?;
    if bench.zones.len() >= 4 {
        bench.reset_range()?;
        for place in [0, 1, 3] {
            let zone = bench.zone(place)?;
            bench.ready(bench.write(zone.start, ONE))?;
        }
        bench.ready(bench.act(bench.zones[1].id, ZoneAction::Close))?;
        bench.ready(bench.act(bench.zones[3].id, ZoneAction::Finish))?;
        if bench.device().geometry().max_open().is_none_or(|limit| limit > 1) {
            bench.ready(bench.act(bench.zones[2].id, ZoneAction::Open))?;
        }
    }
    match bench.device().report_all() {
        Ok(zones) => Ok(zones),
        Err(error) => Err(Stop::Fail { expected: "a report".to_owned(), found: error.to_string() }),
    }
}

fn ids<'z>(zones: impl IntoIterator<Item = &'z Zone>) -> Vec<u32> {
    zones.into_iter().map(|zone| zone.id.get()).collect()
}

fn only(bench: &Bench<'_>, cond: ZoneCond) -> Checked {
    let zones = arrange(bench)?;
    let (first, count, room) = (Lba::ZERO, ReportCount::Matching, zones.len());
    let report = ask(bench, &Wanted { first, only: Some(cond), count, room })?;
    let expected = ids(zones.iter().filter(|zone| zone.cond == cond));
    let found = ids(&report.zones);
    require(found == expected, format!("zones {expected:?}"), || format!("zones {found:?}"))
}

fn found(bench: &Bench<'_>, cond: ZoneCond) -> Checked {
    let zones = arrange(bench)?;
    let (first, count, room) = (Lba::ZERO, ReportCount::Matching, zones.len());
    let report = ask(bench, &Wanted { first, only: Some(cond), count, room })?;
    let expected = zones.iter().filter(|zone| zone.cond == cond).count() as u64;
    counts(&report, expected)
}

fn counts(report: &FilteredReport, expected: u64) -> Checked {
    require(report.count == expected, format!("a count of {expected}"), || {
        format!("a count of {}", report.count)
    })
}

fn all(bench: &Bench<'_>) -> Checked {
    let room = bench.all.len();
    let wanted = Wanted { first: Lba::ZERO, only: None, count: ReportCount::Matching, room };
    let found = ask(bench, &wanted)?.zones.len();
    require(found == room, format!("{room} zones"), || format!("{found} zones"))
}

fn whole(bench: &Bench<'_>) -> Checked {
    let wanted = Wanted { first: Lba::ZERO, only: None, count: ReportCount::Matching, room: 1 };
    counts(&ask(bench, &wanted)?, bench.all.len() as u64)
}

fn partial(bench: &Bench<'_>) -> Checked {
    let wanted = Wanted { first: Lba::ZERO, only: None, count: ReportCount::Reported, room: 1 };
    counts(&ask(bench, &wanted)?, 1)
}

fn middle(bench: &Bench<'_>) -> Checked {
    let at = bench.all.len() / 2;
    let Some(zone) = bench.all.get(at) else { return skip("there are too few zones") };
    let wanted = Wanted { first: zone.start, only: None, count: ReportCount::Matching, room: 1 };
    counts(&ask(bench, &wanted)?, (bench.all.len() - at) as u64)
}

fn counted(bench: &Bench<'_>) -> Checked {
    let zones = arrange(bench)?;
    let cond = ZoneCond::Empty;
    let expected = zones.iter().filter(|zone| zone.cond == cond).count() as u64;
    if expected < 2 {
        return skip("there are too few Empty zones");
    }
    let (first, count) = (Lba::ZERO, ReportCount::Matching);
    counts(&ask(bench, &Wanted { first, only: Some(cond), count, room: 1 })?, expected)
}

fn inside(bench: &Bench<'_>) -> Checked {
    let Some(zone) = bench.all.get(1).filter(|zone| zone.size > LbaCount::new(1)) else {
        return skip("there are too few zones");
    };
    let first = zone.start + ONE;
    let report = ask(bench, &Wanted { first, only: None, count: ReportCount::Matching, room: 2 })?;
    let found = report.zones.first().map(|zone| zone.id);
    require(found == Some(zone.id), format!("zone {} first", zone.id), || {
        format!("the report begins with {found:?}")
    })
}
