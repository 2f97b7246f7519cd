//! Rules of actions for all zones at once. They concern every zone of the device, so that they are
//! tried only if the range is the whole device.

use zonal::{Zone, ZoneAction, ZoneCond};

use crate::bench::{Bench, Checked, ONE, Stop, require, skip, told};
use crate::rule::{Level, Needs, Row, Try};
use crate::target::Interface;

const ALL: &str = "ZNS 1.1, 3.4.3 (Select All)";

const fn row(id: &'static str, requires: &'static str, check: Try) -> Row {
    Row { id, clause: ALL, level: Level::Must, needs: Needs::Zones(4), requires, check }
}

pub(crate) const ROWS: &[Row] = &[
    row("all.open-nothing", "Opening all zones of an Empty device opens none.", open_nothing),
    row("all.close-nothing", "Closing all zones of an Empty device closes none.", close_nothing),
    row(
        "all.finish-nothing",
        "Finishing all zones of an Empty device finishes none.",
        finish_nothing,
    ),
    row("all.reset-nothing", "Resetting all zones of an Empty device succeeds.", reset_nothing),
    row("all.open", "Opening all zones opens the Closed ones and no others.", open),
    row("all.close", "Closing all zones closes the open ones and no others.", close),
    row("all.finish", "Finishing all zones makes active ones Full and no others.", finish),
    row("all.reset", "Resetting all zones makes every zone Empty.", reset),
    row("all.reset-rewrites", "After a reset of all zones each takes new data.", rewrites),
];

/// The whole device, empty.
fn whole(bench: &Bench<'_>) -> Checked {
    let usable = |zone: &&Zone| !matches!(zone.cond, ZoneCond::Offline | ZoneCond::ReadOnly);
    let all = bench.all.iter().filter(usable).count();
    if bench.zones.len() + bench.conventional.len() < all {
        return skip("it concerns zones outside the range");
    }
    bench.reset_range()
}

/// Whether the interface has the action for all zones.
fn has(bench: &Bench<'_>, action: ZoneAction) -> Checked {
    if bench.target.interface == Interface::Block && action != ZoneAction::Reset {
        return skip("the kernel makes one action for each zone of it");
    }
    Ok(())
}

fn conds(bench: &Bench<'_>) -> Result<Vec<ZoneCond>, Stop> {
    Ok(bench.report_range()?.iter().map(|zone| zone.cond).collect())
}

fn nothing(bench: &Bench<'_>, action: ZoneAction) -> Checked {
    has(bench, action)?;
    whole(bench)?;
    let before = conds(bench)?;
    let answer = bench.act_all(action);
    require(answer.is_ok(), "success", || told(&answer))?;
    let after = conds(bench)?;
    require(before == after, "no change", || format!("{after:?}"))
}

fn open_nothing(bench: &Bench<'_>) -> Checked {
    nothing(bench, ZoneAction::Open)
}

fn close_nothing(bench: &Bench<'_>) -> Checked {
    nothing(bench, ZoneAction::Close)
}

fn finish_nothing(bench: &Bench<'_>) -> Checked {
    nothing(bench, ZoneAction::Finish)
}

fn reset_nothing(bench: &Bench<'_>) -> Checked {
    nothing(bench, ZoneAction::Reset)
}

/// A Closed, an open, a Full and an Empty zone first, as far as the limits allow.
fn mixed(bench: &Bench<'_>, action: ZoneAction) -> Checked {
    has(bench, action)?;
    whole(bench)?;
    let geometry = bench.device().geometry();
    if geometry.max_active().is_some_and(|limit| limit < 2)
        || geometry.max_open().is_some_and(|limit| limit < 2)
    {
        return skip("the device allows one active zone");
    }
    let zones = [0, 1, 2, 3].map(|place| bench.zone(place));
    let [closed, open, full, empty] = zones;
    let (closed, open, full, empty) = (closed?, open?, full?, empty?);
    bench.ready(bench.write(full.start, ONE))?;
    bench.ready(bench.act(full.id, ZoneAction::Finish))?;
    bench.ready(bench.write(closed.start, ONE))?;
    bench.ready(bench.act(closed.id, ZoneAction::Close))?;
    bench.ready(bench.act(open.id, ZoneAction::Open))?;
    bench.ready(bench.write(open.start, ONE))?;
    let answer = bench.act_all(action);
    require(answer.is_ok(), "success", || told(&answer))?;
    let after = |cond: ZoneCond| match (action, cond) {
        (ZoneAction::Open, ZoneCond::Closed) => ZoneCond::ExplicitOpen,
        (ZoneAction::Close, ZoneCond::ExplicitOpen) => ZoneCond::Closed,
        (ZoneAction::Finish, ZoneCond::Closed | ZoneCond::ExplicitOpen) => ZoneCond::Full,
        (ZoneAction::Reset, _) => ZoneCond::Empty,
        (_, cond) => cond,
    };
    for (zone, before) in [
        (closed, ZoneCond::Closed),
        (open, ZoneCond::ExplicitOpen),
        (full, ZoneCond::Full),
        (empty, ZoneCond::Empty),
    ] {
        let (found, expected) = (bench.report(zone.id)?.cond, after(before));
        let wanted = format!("zone {}, which was {}, {}", zone.id, before.name(), expected.name());
        require(found == expected, wanted, || found.name().to_owned())?;
    }
    Ok(())
}

fn open(bench: &Bench<'_>) -> Checked {
    mixed(bench, ZoneAction::Open)
}

fn close(bench: &Bench<'_>) -> Checked {
    mixed(bench, ZoneAction::Close)
}

fn finish(bench: &Bench<'_>) -> Checked {
    mixed(bench, ZoneAction::Finish)
}

fn reset(bench: &Bench<'_>) -> Checked {
    mixed(bench, ZoneAction::Reset)?;
    let others = conds(bench)?.into_iter().filter(|cond| *cond != ZoneCond::Empty).count();
    require(others == 0, "every zone empty", || format!("{others} zones that are not"))
}

fn rewrites(bench: &Bench<'_>) -> Checked {
    mixed(bench, ZoneAction::Reset)?;
    for place in 0..4 {
        let zone = bench.zone(place)?;
        let answer = bench.write(zone.start, ONE);
        require(answer.is_ok(), "success", || told(&answer))?;
        bench.verify(zone.id)?;
        bench.reset(&zone)?;
    }
    Ok(())
}
