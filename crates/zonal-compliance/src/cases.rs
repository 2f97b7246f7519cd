//! Rules of the zone state machine: every operation in every condition, made from the table in
//! `zonal::state`.
//!
//! A case prepares a zone, performs one operation and looks at the result. Its aspects are rules of
//! their own: whether the device did or refused it, with which status, the zone's condition
//! afterwards, and the data that it holds.

use zonal::nvme::{NvmeStatus, status};
use zonal::state::{self, Event, Refusal, ZoneState};
use zonal::{Lba, LbaCount, Rules, Zone, ZoneAction, ZoneCond};

use crate::bench::{Answer, Bench, Checked, Stop, require, skip, told};
use crate::rule::{Level, Needs, Rule, clause_of, zbc_clause_of};
use crate::target::Interface;

/// How much of a zone is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Nothing,
    Two,
    AllButOne,
    All,
}

impl Fill {
    const fn blocks(self, capacity: LbaCount) -> LbaCount {
        match self {
            Self::Nothing => LbaCount::ZERO,
            Self::Two => LbaCount::new(2),
            Self::AllButOne => LbaCount::new(capacity.get() - 1),
            Self::All => capacity,
        }
    }
}

/// A zone before the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    name: &'static str,
    what: &'static str,
    cond: ZoneCond,
    fill: Fill,
}

const fn start(name: &'static str, what: &'static str, cond: ZoneCond, fill: Fill) -> Start {
    Start { name, what, cond, fill }
}

const STARTS: [Start; 12] = [
    start("empty", "an Empty zone", ZoneCond::Empty, Fill::Nothing),
    start("implicit-open", "an implicitly opened zone", ZoneCond::ImplicitOpen, Fill::Two),
    start(
        "implicit-open-last",
        "an implicitly opened zone with one block left",
        ZoneCond::ImplicitOpen,
        Fill::AllButOne,
    ),
    start(
        "explicit-open-unwritten",
        "an explicitly opened zone without data",
        ZoneCond::ExplicitOpen,
        Fill::Nothing,
    ),
    start("explicit-open", "an explicitly opened zone", ZoneCond::ExplicitOpen, Fill::Two),
    start(
        "explicit-open-last",
        "an explicitly opened zone with one block left",
        ZoneCond::ExplicitOpen,
        Fill::AllButOne,
    ),
    start("closed-unwritten", "a Closed zone without data", ZoneCond::Closed, Fill::Nothing),
    start("closed", "a Closed zone", ZoneCond::Closed, Fill::Two),
    start("closed-last", "a Closed zone with one block left", ZoneCond::Closed, Fill::AllButOne),
    start("full", "a zone written Full", ZoneCond::Full, Fill::All),
    start("finished", "a zone finished after two blocks", ZoneCond::Full, Fill::Two),
    start("finished-unwritten", "a zone finished without data", ZoneCond::Full, Fill::Nothing),
];

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    WriteAtPointer,
    WriteAbovePointer,
    WriteAtStart,
    WriteLastBlock,
    WriteRest,
    WriteOver,
    WriteGap,
    AppendOne,
    AppendRest,
    AppendOver,
    AppendLarge,
    Act(ZoneAction),
    ReadWritten,
    ReadAbove,
}

const OPERATIONS: [Operation; 17] = [
    Operation::WriteAtPointer,
    Operation::WriteAbovePointer,
    Operation::WriteAtStart,
    Operation::WriteLastBlock,
    Operation::WriteRest,
    Operation::WriteOver,
    Operation::WriteGap,
    Operation::AppendOne,
    Operation::AppendRest,
    Operation::AppendOver,
    Operation::AppendLarge,
    Operation::Act(ZoneAction::Open),
    Operation::Act(ZoneAction::Close),
    Operation::Act(ZoneAction::Finish),
    Operation::Act(ZoneAction::Reset),
    Operation::ReadWritten,
    Operation::ReadAbove,
];

/// The part of a case's result that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    Result,
    Status,
    Zone,
    Data,
}

/// A rule of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) start: Start,
    pub(crate) operation: Operation,
    pub(crate) aspect: Aspect,
}

/// Where and how much, in blocks from the zone's start.
#[derive(Clone, Copy)]
struct Place {
    offset: LbaCount,
    blocks: LbaCount,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::WriteAtPointer => "write-at-pointer",
            Self::WriteAbovePointer => "write-above-pointer",
            Self::WriteAtStart => "write-below-pointer",
            Self::WriteLastBlock => "write-last-block",
            Self::WriteRest => "write-rest",
            Self::WriteOver => "write-past-capacity",
            Self::WriteGap => "write-gap",
            Self::AppendOne => "append",
            Self::AppendRest => "append-rest",
            Self::AppendOver => "append-past-capacity",
            Self::AppendLarge => "append-too-large",
            Self::Act(action) => action.name(),
            Self::ReadWritten => "read-written",
            Self::ReadAbove => "read-above-pointer",
        }
    }

    /// As the beginning of a sentence.
    const fn what(self) -> &'static str {
        match self {
            Self::WriteAtPointer => "A write at the write pointer of",
            Self::WriteAbovePointer => "A write one block above the write pointer of",
            Self::WriteAtStart => "A write of the first block of",
            Self::WriteLastBlock => "A write of the last block of",
            Self::WriteRest => "A write of all remaining blocks of",
            Self::WriteOver => "A write of one block more than remain in",
            Self::WriteGap => "A write between capacity and size of",
            Self::AppendOne => "An append of a block to",
            Self::AppendRest => "An append of the last block to",
            Self::AppendOver => "An append of one block more than remain to",
            Self::AppendLarge => "An append over the append limit to",
            Self::Act(ZoneAction::Open) => "Opening",
            Self::Act(ZoneAction::Close) => "Closing",
            Self::Act(ZoneAction::Finish) => "Finishing",
            Self::Act(ZoneAction::Reset) => "Resetting",
            Self::ReadWritten => "A read of written blocks of",
            Self::ReadAbove => "A read of the last block, which is not written, of",
        }
    }

    const fn clause(self, set: Rules) -> &'static str {
        match self {
            Self::Act(action) if matches!(set, Rules::Zbc) => zbc_clause_of(action),
            Self::WriteAtPointer
            | Self::WriteAbovePointer
            | Self::WriteAtStart
            | Self::WriteLastBlock
            | Self::WriteRest
            | Self::WriteOver
            | Self::WriteGap => "ZNS 1.1, 2.1.1 (writes to sequential zones)",
            Self::AppendOne | Self::AppendRest | Self::AppendOver | Self::AppendLarge => {
                "ZNS 1.1, 3.4.1 (Zone Append) and 2.1.1"
            }
            Self::Act(action) => clause_of(action),
            Self::ReadWritten | Self::ReadAbove => "ZNS 1.1, 2.1.1 (reads)",
        }
    }

    const fn is_append(self) -> bool {
        matches!(self, Self::AppendOne | Self::AppendRest | Self::AppendOver | Self::AppendLarge)
    }

    const fn is_read(self) -> bool {
        matches!(self, Self::ReadWritten | Self::ReadAbove)
    }

    /// Whether it is another operation than the ones before it, in such a zone.
    fn applies(self, start: Start) -> bool {
        let is_full = start.cond == ZoneCond::Full;
        match self {
            Self::WriteAtPointer | Self::WriteAbovePointer => {
                !is_full && start.fill != Fill::AllButOne
            }
            Self::WriteAtStart => is_full || start.fill != Fill::Nothing,
            Self::WriteLastBlock | Self::AppendOne => start.fill != Fill::AllButOne,
            Self::WriteRest | Self::WriteOver => !is_full,
            Self::AppendRest | Self::AppendOver => start.fill == Fill::AllButOne,
            Self::AppendLarge => !is_full && start.fill != Fill::AllButOne,
            Self::ReadWritten => start.fill != Fill::Nothing,
            Self::ReadAbove => start.fill != Fill::All,
            Self::WriteGap | Self::Act(_) => true,
        }
    }

    /// The blocks of a write or an append; `None` for other operations.
    fn place(self, start: Start, zone: &Zone, max_append: LbaCount) -> Option<Place> {
        let (capacity, one) = (zone.capacity, LbaCount::new(1));
        let pointer = start.fill.blocks(capacity);
        let rest = capacity - pointer;
        let at = |offset, blocks| Some(Place { offset, blocks });
        match self {
            Self::WriteAtPointer | Self::AppendOne | Self::AppendRest => at(pointer, one),
            Self::WriteAbovePointer => at(pointer + one, one),
            Self::WriteAtStart => at(LbaCount::ZERO, one),
            Self::WriteLastBlock => at(capacity - one, one),
            Self::WriteRest => at(pointer, rest),
            Self::WriteOver | Self::AppendOver => at(pointer, rest + one),
            Self::WriteGap => at(capacity, one),
            Self::AppendLarge => at(pointer, max_append + one),
            Self::Act(_) | Self::ReadWritten | Self::ReadAbove => None,
        }
    }

    /// The operation as an event of the state machine; reads change nothing.
    fn event(self, start: Start, zone: &Zone, max_append: LbaCount) -> Option<Event> {
        if let Self::Act(action) = self {
            return Some(Event::Manage(action));
        }
        let Place { offset, blocks } = self.place(start, zone, max_append)?;
        Some(if self.is_append() { Event::Append(blocks) } else { Event::Write { offset, blocks } })
    }
}

/// Every rule of the state machine.
pub(crate) fn rules(set: Rules) -> Vec<(Rule, Case)> {
    let mut rules = Vec::new();
    for start in STARTS {
        for operation in OPERATIONS.into_iter().filter(|operation| operation.applies(start)) {
            for aspect in aspects(start, operation) {
                let case = Case { start, operation, aspect };
                rules.push((rule(case, set), case));
            }
        }
    }
    rules
}

/// The outcome of the state machine for a zone of 64 blocks: enough to word a rule.
fn expected_usually(case: Case, rules: Rules) -> Option<Result<ZoneState, Refusal>> {
    let capacity = LbaCount::new(64);
    let zone = Zone {
        id: zonal::ZoneId::ZERO,
        kind: zonal::ZoneKind::SequentialRequired,
        non_sequential: false,
        cond: case.start.cond,
        start: Lba::ZERO,
        size: LbaCount::new(128),
        capacity,
        wp: None,
    };
    let event = case.operation.event(case.start, &zone, LbaCount::new(16))?;
    let written = case.start.fill.blocks(capacity);
    let from = ZoneState { cond: case.start.cond, written, ..ZoneState::EMPTY };
    Some(state::next(rules, zone.kind, from, event, capacity))
}

fn aspects(start: Start, operation: Operation) -> Vec<Aspect> {
    let case = Case { start, operation, aspect: Aspect::Result };
    let refused = matches!(expected_usually(case, Rules::Zns), Some(Err(_)))
        || operation == Operation::AppendLarge;
    let mut aspects = vec![Aspect::Result];
    if refused && operation != Operation::AppendLarge {
        aspects.push(Aspect::Status);
    }
    aspects.push(Aspect::Zone);
    let is_reset = operation == Operation::Act(ZoneAction::Reset);
    if start.fill != Fill::Nothing && !is_reset && !operation.is_read() {
        aspects.push(Aspect::Data);
    }
    aspects
}

fn rule(case: Case, set: Rules) -> Rule {
    let (start, operation) = (case.start, case.operation);
    let (does, zone) = (operation.what(), start.what);
    let refused =
        matches!(expected_usually(case, set), Some(Err(_))) || operation == Operation::AppendLarge;
    let (suffix, says, level) = match case.aspect {
        Aspect::Result if refused => ("result", "is refused", Level::Must),
        Aspect::Result => ("result", "succeeds", Level::Must),
        Aspect::Status => ("status", "fails with the status of its cause", Level::Should),
        Aspect::Zone if refused => ("zone", "leaves condition and write pointer", Level::Must),
        Aspect::Zone => ("zone", "leads to the condition of the state machine", Level::Must),
        Aspect::Data => ("data", "changes no block that was written before", Level::Must),
    };
    let level = match operation {
        Operation::ReadAbove if case.aspect == Aspect::Result => Level::Should,
        _ => level,
    };
    Rule {
        id: format!("state.{}.{}.{suffix}", start.name, operation.name()),
        clause: operation.clause(set),
        requires: format!("{does} {zone} {says}."),
        level,
        needs: Needs::Zones(2),
    }
}

/// The result of a case.
pub(crate) struct Observation {
    result: Answer<Option<Lba>>,
    expected: Option<Result<ZoneState, Refusal>>,
    place: Option<Place>,
    before: Zone,
    after: Result<Zone, Stop>,
    data: Checked,
}

/// Prepares a zone and performs the operation.
pub(crate) fn observe(bench: &Bench<'_>, case: Case) -> Result<Observation, Stop> {
    let (start, operation) = (case.start, case.operation);
    if operation.is_append() {
        bench.needs_appends()?;
    }
    let zone = bench.zone(0)?;
    let max_append = bench.device().geometry().max_append();
    let place = operation.place(start, &zone, max_append);
    possible(bench, operation, &zone, place)?;
    prepare(bench, start, &zone)?;
    let before = bench.report(zone.id)?;
    let at = |place: Place| zone.start + place.offset;
    let result = match (operation, place) {
        (Operation::Act(action), _) => bench.act(zone.id, action).map(|()| None),
        (Operation::ReadWritten, _) => bench.read(zone.start, LbaCount::new(1)).map(|_| None),
        (Operation::ReadAbove, _) => {
            let last = zone.start + (zone.capacity - LbaCount::new(1));
            bench.read(last, LbaCount::new(1)).map(|_| None)
        }
        (_, Some(place)) if operation.is_append() => bench.append(zone.id, place.blocks).map(Some),
        (Operation::WriteRest, Some(place)) => bench.fill(at(place), place.blocks).map(|()| None),
        (_, Some(place)) => bench.write(at(place), place.blocks).map(|()| None),
        (_, None) => return skip("the operation has no place"),
    };
    let after = bench.report(zone.id);
    let data = bench.verify(zone.id);
    let written = start.fill.blocks(zone.capacity);
    let expected = operation.event(start, &zone, max_append).map(|event| {
        let from = ZoneState { cond: start.cond, written, ..ZoneState::EMPTY };
        match operation {
            Operation::AppendLarge => Err(Refusal::Boundary),
            _ => state::next(bench.target.rules, zone.kind, from, event, zone.capacity),
        }
    });
    Ok(Observation { result, expected, place, before, after, data })
}

/// Whether the interface can make the request.
fn possible(bench: &Bench<'_>, operation: Operation, zone: &Zone, place: Option<Place>) -> Checked {
    let Some(place) = place else { return Ok(()) };
    let max_append = bench.device().geometry().max_append();
    let is_rest = operation == Operation::WriteRest;
    if place.blocks > bench.target.transfer && !is_rest {
        return skip("the request is larger than one command");
    }
    if operation == Operation::WriteGap && zone.capacity == zone.size {
        return skip("capacity and size are equal");
    }
    if operation == Operation::AppendOver && place.blocks > max_append {
        return skip("the append limit is one block");
    }
    if operation == Operation::WriteOver
        && bench.target.interface == Interface::Block
        && (zone.capacity == zone.size || place.blocks > LbaCount::new(2))
    {
        return skip("the kernel splits this write at the end of the zone");
    }
    Ok(())
}

fn prepare(bench: &Bench<'_>, start: Start, zone: &Zone) -> Checked {
    bench.take_steps();
    bench.reset(zone)?;
    let written = start.fill.blocks(zone.capacity);
    if start.cond == ZoneCond::ExplicitOpen || start.cond == ZoneCond::Closed {
        bench.ready(bench.act(zone.id, ZoneAction::Open))?;
    }
    bench.ready(bench.fill(zone.start, written))?;
    match start.cond {
        ZoneCond::Closed => bench.ready(bench.act(zone.id, ZoneAction::Close))?,
        ZoneCond::Full if start.fill != Fill::All => {
            bench.ready(bench.act(zone.id, ZoneAction::Finish))?;
        }
        _ => {}
    }
    let found = bench.report(zone.id)?;
    if found.cond == start.cond {
        return Ok(());
    }
    let (cond, wanted) = (found.cond.name(), start.cond.name());
    skip(format!("preparing it failed: the zone is {cond}, not {wanted}"))
}

/// Whether one aspect of a case is as it has to be.
pub(crate) fn judge(bench: &Bench<'_>, case: Case, seen: &Observation) -> Checked {
    match case.aspect {
        Aspect::Result => judge_result(case, seen),
        Aspect::Status => judge_status(bench, case, seen),
        Aspect::Zone => judge_zone(seen),
        Aspect::Data => seen.data.clone(),
    }
}

fn judge_result(case: Case, seen: &Observation) -> Checked {
    match (&seen.expected, &seen.result) {
        (Some(Err(refusal)), Ok(_)) => {
            let expected = format!("a refusal ({refusal:?})");
            Err(Stop::Fail { expected, found: "it succeeded".to_owned() })
        }
        (Some(Err(_)), Err(_)) => Ok(()),
        (Some(Ok(_)) | None, Err(refused)) => {
            Err(Stop::Fail { expected: "success".to_owned(), found: refused.text.clone() })
        }
        (Some(Ok(_)) | None, Ok(address)) => match (address, seen.place) {
            (Some(found), Some(place)) if case.operation.is_append() => {
                let expected = seen.before.start + place.offset;
                require(*found == expected, format!("the address {expected}"), || {
                    format!("the append says {found}")
                })
            }
            _ => Ok(()),
        },
    }
}

/// The statuses that name the cause, and more than one where two causes are there.
fn statuses(case: Case, refusal: Refusal) -> Vec<NvmeStatus> {
    let boundary = [status::ZONE_BOUNDARY, status::ZONE_INVALID_WRITE];
    match (case.operation, refusal) {
        (Operation::WriteGap, Refusal::Full) => {
            vec![status::ZONE_FULL, status::ZONE_BOUNDARY, status::ZONE_INVALID_WRITE]
        }
        (Operation::WriteGap, _) => boundary.to_vec(),
        (_, Refusal::Full) => vec![status::ZONE_FULL],
        (_, Refusal::ReadOnly) => vec![status::ZONE_READ_ONLY],
        (_, Refusal::Offline) => vec![status::ZONE_OFFLINE],
        (_, Refusal::NotAtWritePointer) => vec![status::ZONE_INVALID_WRITE],
        (_, Refusal::Boundary) => vec![status::ZONE_BOUNDARY],
        (_, Refusal::Transition) => vec![status::INVALID_TRANSITION],
        (_, Refusal::Conventional) => vec![status::INVALID_FIELD],
    }
}

/// The errors of a block device for a request that its zone refuses: `EIO`, or `EREMOTEIO`, into
/// which Linux turns the sense key ILLEGAL REQUEST.
const ERRNOS: [i32; 2] = [5, 121];

fn judge_status(bench: &Bench<'_>, case: Case, seen: &Observation) -> Checked {
    let Some(Err(refusal)) = seen.expected else {
        return skip("these rules allow the operation");
    };
    let Err(refused) = &seen.result else {
        return skip("the operation was not refused");
    };
    if bench.target.interface == Interface::Block {
        let names_request = ERRNOS.contains(&refused.errno);
        return require(names_request, "the errno EIO or EREMOTEIO", || refused.text.clone());
    }
    let allowed = statuses(case, refusal);
    let name = |status: &NvmeStatus| {
        let NvmeStatus { kind, code } = status;
        let name = status.name().unwrap_or("unknown");
        format!("{name} ({kind:x}{code:02x}h)")
    };
    require(
        allowed.contains(&refused.status),
        allowed.iter().map(name).collect::<Vec<_>>().join(" or "),
        || format!("{}: {}", name(&refused.status), refused.text),
    )
}

fn judge_zone(seen: &Observation) -> Checked {
    let after = seen.after.clone()?;
    let (cond, wp) = match &seen.expected {
        Some(Ok(state)) => (state.cond, Some(seen.before.start + state.written)),
        Some(Err(_)) | None => (seen.before.cond, seen.before.wp),
    };
    // A device may close a zone that was opened implicitly whenever it likes.
    let is_closed = cond == ZoneCond::ImplicitOpen && after.cond == ZoneCond::Closed;
    let wp = if cond == ZoneCond::Full { after.wp } else { wp };
    let at = |wp: Option<Lba>| wp.map_or("no write pointer".to_owned(), |wp| wp.to_string());
    require(
        (after.cond == cond || is_closed) && after.wp == wp,
        format!("{}, write pointer {}", cond.name(), at(wp)),
        || {
            let found = format!("{}, write pointer {}", after.cond.name(), at(after.wp));
            format!("{found} after {}", told(&seen.result).replacen("it ", "the operation ", 1))
        },
    )
}
