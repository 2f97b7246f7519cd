//! Rules of the open and the active limit, by trial.
//!
//! Zones outside the range that are open or active use up a part of a limit; that is subtracted.

use serde::Serialize;
use zonal::nvme::{NvmeStatus, status};
use zonal::{LbaCount, Rules, Zone, ZoneAction, ZoneCond};

use crate::bench::{Answer, Bench, Checked, ONE, Refused, Stop, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};
use crate::target::Interface;
/// A limit, as reported and as found by trial.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// The limited resource: `open` or `active` zones.
    pub resource: &'static str,
    /// The limit that the device reports; null for no limit.
    pub reported_max: Option<u32>,
    /// How many zones there could be at once; null if the range has too few zones to find out.
    pub trial_max: Option<u32>,
}

const OPEN: &str = "ZNS 1.1, 2.1.1 (Maximum Open Resources)";
const ACTIVE: &str = "ZNS 1.1, 2.1.1 (Maximum Active Resources)";

const fn must(id: &'static str, clause: &'static str, requires: &'static str, check: Try) -> Row {
    Row { id, clause, level: Level::Must, needs: Needs::Zones(2), requires, check }
}

const fn should(id: &'static str, clause: &'static str, requires: &'static str, check: Try) -> Row {
    Row { id, clause, level: Level::Should, needs: Needs::Zones(2), requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    must("open.up-to", OPEN, "As many zones as the limit can be opened.", open_up_to),
    must("open.refused", OPEN, "One more zone is not opened.", open_refused),
    should("open.status", OPEN, "The refusal names the open or the active limit.", open_status),
    must("open.unchanged", OPEN, "A zone that was not opened stays Empty.", open_unchanged),
    must("open.write", OPEN, "A write to one more zone is refused.", open_write),
    must("open.append", OPEN, "An append to one more zone is refused.", open_append),
    must("open.explicit-stay", OPEN, "Explicitly opened zones are not closed for others.", stay),
    must("open.close-frees", OPEN, "A zone that is closed makes room.", close_frees),
    must("open.finish-frees", OPEN, "A zone that is finished makes room.", finish_frees),
    must("open.reset-frees", OPEN, "A zone that is reset makes room.", reset_frees),
    must("open.full-frees", OPEN, "A zone that is written Full makes room.", full_frees),
    should("open.finish-empty", OPEN, "At the limit an Empty zone can be finished.", finish_empty),
    must("open.reset-full", OPEN, "At the limit a Full zone can be reset.", reset_full),
    should("open.implicit-yields", OPEN, "An implicitly opened zone yields to a write.", yields),
    should(
        "open.implicit-yields-open",
        OPEN,
        "An implicitly opened zone yields to an open.",
        yields_open,
    ),
    must("open.count", OPEN, "Writes to many zones open no more than the limit.", count),
    must("open.closed-write", OPEN, "At the limit a Closed zone takes no write.", closed_write),
    should("open.none", OPEN, "Without a limit every zone of the range can be opened.", open_none),
    must("active.up-to", ACTIVE, "As many zones as the limit can be active.", active_up_to),
    must("active.refused", ACTIVE, "A write to one more zone is refused.", active_refused),
    should("active.status", ACTIVE, "The refusal names the active limit.", active_status),
    must(
        "active.unchanged",
        ACTIVE,
        "A zone that did not become active stays Empty.",
        active_unchanged,
    ),
    must("active.open", ACTIVE, "One more zone is not opened.", active_open),
    must("active.append", ACTIVE, "An append to one more zone is refused.", active_append),
    must("active.goes-on", ACTIVE, "At the limit active zones take writes.", goes_on),
    must("active.close-keeps", ACTIVE, "A zone that is closed stays active.", close_keeps),
    must("active.finish-frees", ACTIVE, "A zone that is finished makes room.", active_finish_frees),
    must("active.reset-frees", ACTIVE, "A zone that is reset makes room.", active_reset_frees),
    must("active.full-frees", ACTIVE, "A zone that is written Full makes room.", active_full_frees),
    should(
        "active.finish-empty",
        ACTIVE,
        "At the limit an Empty zone can be finished.",
        active_finish_empty,
    ),
    must(
        "active.count",
        ACTIVE,
        "The report shows as many active zones as were made.",
        active_count,
    ),
    should("active.none", ACTIVE, "Without a limit every zone can be active.", active_none),
];

/// Zones that are tried where there is no limit.
const MANY: usize = 64;

/// How zones are made to use up a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Opened explicitly.
    Opened,
    /// Written, so that they are opened implicitly.
    Written,
    /// Written and closed.
    Closed,
}

/// Zones at a limit, and one more that is Empty.
struct AtLimit<'b> {
    used: &'b [Zone],
    next: Zone,
}

/// How many zones of the range may still be open.
fn open_room(bench: &Bench<'_>) -> Result<usize, Stop> {
    let geometry = bench.device().geometry();
    let Some(limit) = geometry.max_open() else { return skip("the device reports no open limit") };
    if bench.outside(|cond| cond == ZoneCond::ImplicitOpen) > 0 {
        return skip("the device may close an implicitly open zone outside the range for another");
    }
    let open = limit.saturating_sub(bench.outside(ZoneCond::is_open));
    let active = geometry
        .max_active()
        .map_or(u32::MAX, |limit| limit.saturating_sub(bench.outside(ZoneCond::is_active)));
    if open == 0 || active == 0 {
        return skip("zones outside the range use up the limit");
    }
    Ok(open.min(active) as usize)
}

fn active_room(bench: &Bench<'_>) -> Result<usize, Stop> {
    let Some(limit) = bench.device().geometry().max_active() else {
        return skip("the device reports no active limit");
    };
    match limit.saturating_sub(bench.outside(ZoneCond::is_active)) {
        0 => skip("zones outside the range use up the limit"),
        room => Ok(room as usize),
    }
}

/// Resets the range and uses up `room` zones.
fn at_limit<'b>(bench: &'b Bench<'_>, room: usize, how: How) -> Result<AtLimit<'b>, Stop> {
    let Some(next) = bench.zones.get(room).copied() else {
        return skip(format!("it needs {} sequential zones in the range", room + 1));
    };
    bench.zone(0)?;
    bench.reset_range()?;
    let used = &bench.zones[..room];
    for zone in used {
        bench.ready(take(bench, zone, how))?;
    }
    Ok(AtLimit { used, next })
}

fn take(bench: &Bench<'_>, zone: &Zone, how: How) -> Answer<()> {
    match how {
        How::Opened => bench.act(zone.id, ZoneAction::Open),
        How::Written => bench.write(zone.start, ONE),
        How::Closed => {
            bench.write(zone.start, ONE)?;
            bench.act(zone.id, ZoneAction::Close)
        }
    }
}

fn opened<'b>(bench: &'b Bench<'_>) -> Result<AtLimit<'b>, Stop> {
    at_limit(bench, open_room(bench)?, How::Opened)
}

fn active<'b>(bench: &'b Bench<'_>) -> Result<AtLimit<'b>, Stop> {
    at_limit(bench, active_room(bench)?, How::Closed)
}

fn succeeds<T>(answer: &Answer<T>) -> Checked {
    require(answer.is_ok(), "success", || told(answer))
}

fn refused<T>(answer: &Answer<T>) -> Checked {
    require(answer.is_err(), "a refusal", || told(answer))
}

/// Tries to use up `room` zones; a step that fails breaks the rule.
fn up_to(bench: &Bench<'_>, room: usize, how: How) -> Checked {
    if bench.zones.len() < room {
        return skip(format!("it needs {room} sequential zones in the range"));
    }
    bench.zone(0)?;
    bench.reset_range()?;
    for (number, zone) in bench.zones[..room].iter().enumerate() {
        let answer = take(bench, zone, how);
        require(answer.is_ok(), format!("{room} zones"), || {
            format!("{number} zones; for the next one {}", told(&answer))
        })?;
    }
    Ok(())
}

fn open_up_to(bench: &Bench<'_>) -> Checked {
    up_to(bench, open_room(bench)?, How::Opened)
}

fn open_refused(bench: &Bench<'_>) -> Checked {
    let zones = opened(bench)?;
    refused(&bench.act(zones.next.id, ZoneAction::Open))
}

fn names_limit(bench: &Bench<'_>, refused: &Refused, allowed: &[NvmeStatus]) -> Checked {
    /// `EOVERFLOW` and `ETOOMANYREFS`: the kernel's errors for the two statuses.
    const ERRNOS: [i32; 2] = [75, 109];
    let names = match bench.target.interface {
        Interface::Block => ERRNOS.contains(&refused.errno),
        Interface::Library | Interface::Nvme | Interface::Scsi => allowed.contains(&refused.status),
    };
    require(names, "a failure that names the limit", || refused.text.clone())
}

fn open_status(bench: &Bench<'_>) -> Checked {
    let zones = opened(bench)?;
    match bench.act(zones.next.id, ZoneAction::Open) {
        Ok(()) => skip("the zone was opened"),
        Err(refused) => {
            names_limit(bench, &refused, &[status::TOO_MANY_OPEN, status::TOO_MANY_ACTIVE])
        }
    }
}

fn stays_empty(bench: &Bench<'_>, zone: &Zone) -> Checked {
    let cond = bench.report(zone.id)?.cond;
    require(cond == ZoneCond::Empty, "empty", || cond.name().to_owned())
}

fn open_unchanged(bench: &Bench<'_>) -> Checked {
    let zones = opened(bench)?;
    match bench.act(zones.next.id, ZoneAction::Open) {
        Ok(()) => skip("the zone was opened"),
        Err(_) => stays_empty(bench, &zones.next),
    }
}

fn open_write(bench: &Bench<'_>) -> Checked {
    let zones = opened(bench)?;
    let answer = bench.write(zones.next.start, ONE);
    bench.report(zones.next.id)?;
    refused(&answer)
}

fn open_append(bench: &Bench<'_>) -> Checked {
    bench.needs_appends()?;
    let zones = opened(bench)?;
    refused(&bench.append(zones.next.id, ONE))
}

fn stay(bench: &Bench<'_>) -> Checked {
    let zones = opened(bench)?;
    let _ = bench.write(zones.next.start, ONE);
    bench.report(zones.next.id)?;
    for zone in zones.used {
        let cond = bench.report(zone.id)?.cond;
        let expected = format!("zone {} explicit-open", zone.id);
        require(cond == ZoneCond::ExplicitOpen, expected, || cond.name().to_owned())?;
    }
    Ok(())
}

fn frees(bench: &Bench<'_>, step: impl FnOnce(&Zone) -> Answer<()>) -> Checked {
    let zones = opened(bench)?;
    bench.ready(step(&zones.used[0]))?;
    succeeds(&bench.act(zones.next.id, ZoneAction::Open))
}

fn close_frees(bench: &Bench<'_>) -> Checked {
    if bench
        .device()
        .geometry()
        .max_active()
        .is_some_and(|limit| bench.device().geometry().max_open().is_some_and(|open| limit <= open))
    {
        return skip("a closed zone still counts against the active limit");
    }
    // A zone with data, which ZBC does not make Empty.
    frees(bench, |zone| {
        bench.write(zone.start, ONE)?;
        bench.act(zone.id, ZoneAction::Close)
    })
}

fn finish_frees(bench: &Bench<'_>) -> Checked {
    frees(bench, |zone| bench.act(zone.id, ZoneAction::Finish))
}

fn reset_frees(bench: &Bench<'_>) -> Checked {
    frees(bench, |zone| bench.act(zone.id, ZoneAction::Reset))
}

fn full_frees(bench: &Bench<'_>) -> Checked {
    frees(bench, |zone| bench.fill(zone.start, zone.capacity))
}

fn finish_empty(bench: &Bench<'_>) -> Checked {
    if bench.target.rules == Rules::Zbc {
        return skip("these rules let a device refuse it: it needs an open zone for a moment");
    }
    let zones = opened(bench)?;
    succeeds(&bench.act(zones.next.id, ZoneAction::Finish))
}

fn reset_full(bench: &Bench<'_>) -> Checked {
    let room = open_room(bench)?;
    let Some(next) = bench.zones.get(room).copied() else {
        return skip(format!("it needs {} sequential zones in the range", room + 1));
    };
    bench.reset_range()?;
    bench.ready(bench.fill(next.start, next.capacity))?;
    for zone in &bench.zones[..room] {
        bench.ready(bench.act(zone.id, ZoneAction::Open))?;
    }
    succeeds(&bench.act(next.id, ZoneAction::Reset))
}

/// Zones at the open limit that were opened implicitly; more may be active.
fn implicit<'b>(bench: &'b Bench<'_>) -> Result<AtLimit<'b>, Stop> {
    let room = open_room(bench)?;
    if active_room(bench).is_ok_and(|active| active <= room) {
        return skip("the active limit is reached first");
    }
    at_limit(bench, room, How::Written)
}

fn yields(bench: &Bench<'_>) -> Checked {
    let zones = implicit(bench)?;
    let answer = bench.write(zones.next.start, ONE);
    bench.report(zones.next.id)?;
    succeeds(&answer)
}

fn yields_open(bench: &Bench<'_>) -> Checked {
    let zones = implicit(bench)?;
    succeeds(&bench.act(zones.next.id, ZoneAction::Open))
}

fn count(bench: &Bench<'_>) -> Checked {
    let zones = implicit(bench)?;
    let _ = bench.write(zones.next.start, ONE);
    let open = bench.report_range()?.iter().filter(|zone| zone.cond.is_open()).count();
    let room = zones.used.len();
    require(open <= room, format!("at most {room} open zones"), || format!("{open} open zones"))
}

fn closed_write(bench: &Bench<'_>) -> Checked {
    let room = open_room(bench)?;
    if active_room(bench).is_ok_and(|active| active <= room) {
        return skip("the active limit is reached first");
    }
    let Some(next) = bench.zones.get(room).copied() else {
        return skip(format!("it needs {} sequential zones in the range", room + 1));
    };
    bench.reset_range()?;
    bench.ready(take(bench, &next, How::Closed))?;
    for zone in &bench.zones[..room] {
        bench.ready(bench.act(zone.id, ZoneAction::Open))?;
    }
    let answer = bench.write(next.start + ONE, ONE);
    bench.report(next.id)?;
    refused(&answer)
}

fn open_none(bench: &Bench<'_>) -> Checked {
    let geometry = bench.device().geometry();
    if geometry.max_open().is_some() || geometry.max_active().is_some() {
        return skip("the device reports a limit");
    }
    up_to(bench, bench.zones.len().min(MANY), How::Opened)
}

fn active_up_to(bench: &Bench<'_>) -> Checked {
    up_to(bench, active_room(bench)?, How::Closed)
}

fn active_refused(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    let answer = bench.write(zones.next.start, ONE);
    bench.report(zones.next.id)?;
    refused(&answer)
}

fn active_status(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    match bench.act(zones.next.id, ZoneAction::Open) {
        Ok(()) => skip("the zone was opened"),
        Err(refused) => names_limit(bench, &refused, &[status::TOO_MANY_ACTIVE]),
    }
}

fn active_unchanged(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    let _ = bench.write(zones.next.start, ONE);
    stays_empty(bench, &zones.next)
}

fn active_open(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    refused(&bench.act(zones.next.id, ZoneAction::Open))
}

fn active_append(bench: &Bench<'_>) -> Checked {
    bench.needs_appends()?;
    let zones = active(bench)?;
    refused(&bench.append(zones.next.id, ONE))
}

fn goes_on(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    succeeds(&bench.write(zones.used[0].start + ONE, ONE))
}

fn close_keeps(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    for zone in zones.used {
        let cond = bench.report(zone.id)?.cond;
        require(cond == ZoneCond::Closed, "closed", || cond.name().to_owned())?;
    }
    let answer = bench.write(zones.next.start, ONE);
    bench.report(zones.next.id)?;
    refused(&answer)
}

fn active_frees(bench: &Bench<'_>, step: impl FnOnce(&Zone) -> Answer<()>) -> Checked {
    let zones = active(bench)?;
    bench.ready(step(&zones.used[0]))?;
    let answer = bench.write(zones.next.start, ONE);
    bench.report(zones.next.id)?;
    succeeds(&answer)
}

fn active_finish_frees(bench: &Bench<'_>) -> Checked {
    active_frees(bench, |zone| bench.act(zone.id, ZoneAction::Finish))
}

fn active_reset_frees(bench: &Bench<'_>) -> Checked {
    active_frees(bench, |zone| bench.act(zone.id, ZoneAction::Reset))
}

fn active_full_frees(bench: &Bench<'_>) -> Checked {
    active_frees(bench, |zone| bench.fill(zone.start + ONE, LbaCount::new(zone.capacity.get() - 1)))
}

fn active_finish_empty(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    succeeds(&bench.act(zones.next.id, ZoneAction::Finish))
}

fn active_count(bench: &Bench<'_>) -> Checked {
    let zones = active(bench)?;
    let expected = zones.used.len();
    let found = bench.report_range()?.iter().filter(|zone| zone.cond.is_active()).count();
    require(found == expected, format!("{expected} zones"), || format!("{found} zones"))
}

fn active_none(bench: &Bench<'_>) -> Checked {
    if bench.device().geometry().max_active().is_some() {
        return skip("the device reports a limit");
    }
    up_to(bench, bench.zones.len().min(MANY), How::Closed)
}

/// The limits as reported and by trial.
pub(crate) fn found(bench: &Bench<'_>) -> Vec<Limit> {
    let geometry = bench.device().geometry();
    let trial = |how, outside: u32| {
        bench.reset_range().ok()?;
        let mut zones = bench.zones.iter();
        let taken = zones.position(|zone| take(bench, zone, how).is_err())?;
        u32::try_from(taken).ok().map(|taken| taken + outside)
    };
    let open = trial(How::Opened, bench.outside(|cond| cond == ZoneCond::ExplicitOpen));
    let active = trial(How::Closed, bench.outside(ZoneCond::is_active));
    vec![
        Limit { resource: "open", reported_max: geometry.max_open(), trial_max: open },
        Limit { resource: "active", reported_max: geometry.max_active(), trial_max: active },
    ]
}
