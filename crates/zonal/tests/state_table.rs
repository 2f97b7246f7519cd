//! The zone state machine as one table to review: every condition, empty and partly written where
//! both are possible, against everything that can happen to a zone.
//!
//! After a change, look at the difference and accept it with `INSTA_UPDATE=always cargo test`.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write;

use zonal::state::{Event, Refusal, Rules, ZoneState, next, selected_by_all};
use zonal::{LbaCount, ZoneAction, ZoneCond, ZoneKind};

const CAPACITY: LbaCount = LbaCount::new(8);

/// Every state worth a row. A Full zone that holds three blocks was finished early.
fn rows() -> Vec<ZoneState> {
    let row =
        |cond, written| ZoneState { cond, written: LbaCount::new(written), ..ZoneState::EMPTY };
    ZoneCond::ALL
        .into_iter()
        .flat_map(|cond| match cond {
            ZoneCond::NotWp | ZoneCond::Empty => vec![row(cond, 0)],
            ZoneCond::ExplicitOpen | ZoneCond::Closed => vec![row(cond, 0), row(cond, 3)],
            ZoneCond::Full => vec![row(cond, 3), row(cond, 8)],
            ZoneCond::ImplicitOpen | ZoneCond::ReadOnly | ZoneCond::Offline => vec![row(cond, 3)],
        })
        .collect()
}

/// Every event worth a column; writes are given as (offset from the write pointer, blocks).
fn columns(from: ZoneState) -> Vec<(&'static str, Event)> {
    let wp = from.written.get();
    let write = |offset, blocks| Event::Write {
        offset: LbaCount::new(offset),
        blocks: LbaCount::new(blocks),
    };
    let rest = CAPACITY.get().saturating_sub(wp).max(1);
    vec![
        ("write 1 at wp", write(wp, 1)),
        ("write rest", write(wp, rest)),
        ("write too much", write(wp, rest + 1)),
        ("write off wp", write(wp + 1, 1)),
        ("append 1", Event::Append(LbaCount::new(1))),
        ("append rest", Event::Append(LbaCount::new(rest))),
        ("open", Event::Manage(ZoneAction::Open)),
        ("close", Event::Manage(ZoneAction::Close)),
        ("finish", Event::Manage(ZoneAction::Finish)),
        ("reset", Event::Manage(ZoneAction::Reset)),
        ("implicit close", Event::CloseImplicitly),
        ("power cycle", Event::PowerCycle),
        ("writes fail", Event::FailWrites),
        ("all fails", Event::FailWholly),
    ]
}

fn show(state: ZoneState) -> String {
    let mark = if state.non_sequential { "*" } else { "" };
    format!("{} {}{mark}", state.cond.name(), state.written)
}

fn outcome(rules: Rules, from: ZoneState, event: Event) -> String {
    show_outcome(from, next(rules, kind_of(from), from, event, CAPACITY))
}

/// A zone without a write pointer is conventional.
fn kind_of(from: ZoneState) -> ZoneKind {
    match from.cond {
        ZoneCond::NotWp => ZoneKind::Conventional,
        _ => ZoneKind::SequentialRequired,
    }
}

fn show_outcome(from: ZoneState, outcome: Result<ZoneState, Refusal>) -> String {
    match outcome {
        Ok(to) if to == from => "same".into(),
        Ok(to) => show(to),
        Err(refusal) => match refusal {
            Refusal::Full => "! full",
            Refusal::ReadOnly => "! read-only",
            Refusal::Offline => "! offline",
            Refusal::NotAtWritePointer => "! not at wp",
            Refusal::Boundary => "! boundary",
            Refusal::Transition => "! transition",
            Refusal::Conventional => "! conventional",
        }
        .into(),
    }
}

fn table(rules: Rules) -> String {
    let mut text =
        format!("capacity {CAPACITY}; \"! x\" is a refusal; the number is what is written\n\n");
    write!(text, "{:18}", "").unwrap();
    for (name, _) in columns(ZoneState::EMPTY) {
        write!(text, "{name:18}").unwrap();
    }
    for from in rows() {
        text = text.trim_end().to_owned() + "\n";
        write!(text, "{:18}", show(from)).unwrap();
        for (_, event) in columns(from) {
            write!(text, "{:18}", outcome(rules, from, event)).unwrap();
        }
    }
    text.trim_end().to_owned() + "\n"
}

#[test]
fn nvme_state_table_is_unchanged() {
    insta::assert_snapshot!(table(Rules::Zns));
}

/// The differences from the NVMe table alone.
#[test]
fn zbc_differences_are_unchanged() {
    let mut text = String::new();
    for from in rows() {
        for (name, event) in columns(from) {
            let (zns, zbc) = (outcome(Rules::Zns, from, event), outcome(Rules::Zbc, from, event));
            if zns != zbc {
                writeln!(text, "{:18}{name:10}NVMe: {zns:18}ZBC: {zbc}", show(from)).unwrap();
            }
        }
    }
    insta::assert_snapshot!(text);
}

/// Sequential write preferred zones under ZBC's rules; an asterisk marks a zone that was written
/// non-sequentially. The table has only differences from sequential write required zones, and the
/// writes that only a preferred zone takes.
#[test]
fn preferred_differences_are_unchanged() {
    let kind = ZoneKind::SequentialPreferred;
    let mut text = String::new();
    for from in rows().into_iter().filter(|from| from.cond != ZoneCond::NotWp) {
        let marked = ZoneState { non_sequential: from.written > LbaCount::ZERO, ..from };
        for (name, event) in columns(from) {
            let required = outcome(Rules::Zbc, from, event);
            let found = show_outcome(from, next(Rules::Zns, kind, from, event, CAPACITY));
            assert_eq!(found, show_outcome(from, next(Rules::Zbc, kind, from, event, CAPACITY)));
            if required != found {
                writeln!(
                    text,
                    "{:18}{name:18}required: {required:18}preferred: {found}",
                    show(from)
                )
                .unwrap();
            }
            // The flag stays until a reset.
            let kept = next(Rules::Zbc, kind, marked, event, CAPACITY);
            if let Ok(to) = kept {
                let is_reset = event == Event::Manage(ZoneAction::Reset);
                let stays = marked.non_sequential && !is_reset;
                assert!(to.non_sequential || !stays, "{}: {name}", show(marked));
                assert!(!(is_reset && to.non_sequential), "{}: {name}", show(marked));
            }
        }
        let write = |offset, blocks| Event::Write {
            offset: LbaCount::new(offset),
            blocks: LbaCount::new(blocks),
        };
        for (name, event) in [
            ("write 0..1", write(0, 1)),
            ("write 1..3", write(1, 2)),
            ("write 5..7", write(5, 2)),
            ("write 7..8", write(7, 1)),
            ("write 7..9", write(7, 2)),
        ] {
            let found = show_outcome(from, next(Rules::Zbc, kind, from, event, CAPACITY));
            writeln!(text, "{:18}{name:18}{found}", show(from)).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn select_all_takes_listed_conditions() {
    let mut text = String::new();
    for action in ZoneAction::ALL {
        let taken: Vec<_> = ZoneCond::ALL
            .into_iter()
            .filter(|&cond| selected_by_all(action, cond))
            .map(ZoneCond::name)
            .collect();
        writeln!(text, "{:8}{}", action.name(), taken.join(", ")).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// D1 and D3, for every cell: written data stays, except by a reset; nothing passes the capacity; a
/// zone that failed never gets better.
#[test]
fn cells_keep_invariants() {
    for rules in [Rules::Zns, Rules::Zbc] {
        for from in rows() {
            for (name, event) in columns(from) {
                let Ok(to) = next(rules, kind_of(from), from, event, CAPACITY) else { continue };
                let what = format!("{} {name}", show(from));
                assert!(to.written <= CAPACITY, "{what}");
                let reset = event == Event::Manage(ZoneAction::Reset);
                assert!(to.written >= from.written || reset, "{what}");
                let failed = matches!(from.cond, ZoneCond::ReadOnly | ZoneCond::Offline);
                assert!(!failed || to.cond >= from.cond, "{what}");
            }
        }
    }
}
