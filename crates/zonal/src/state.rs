//! The zone state machine: what each operation does to one zone's condition and write pointer.
//!
//! [`next`] is the whole of it, a pure function. It follows the NVMe Zoned Namespace Command Set
//! 1.1, section 2.1.1 ("Zone State Machine": ZSE Empty, ZSIO Implicitly Opened, ZSEO Explicitly
//! Opened, ZSC Closed, ZSF Full, ZSRO Read Only, ZSO Offline) and section 3.4.3 ("Zone Management
//! Send"); under [`Rules::Zbc`] it follows ZBC-2 where that says otherwise, and for sequential
//! write preferred zones always, since NVMe has none. `limits.rs` decides whether the open and
//! active limits allow a transition. The reviewed table is `tests/snapshots/state_table__*.snap`.

use crate::{LbaCount, ZoneAction, ZoneCond, ZoneKind};

/// The command set whose rules a drive follows where NVMe and SCSI differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// NVMe Zoned Namespaces.
    #[default]
    Zns,
    /// SCSI zoned block commands: opening a Full zone and closing an Empty or Full one do nothing
    /// and succeed; closing a zone in which nothing is written makes it Empty.
    Zbc,
}

/// Condition and fill of one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneState {
    /// The condition.
    pub cond: ZoneCond,
    /// Blocks of data from the zone's start on. Below the capacity for a zone that was finished
    /// early: its write pointer is at the end, but nothing was ever stored up there. Kept, but not
    /// reported, for a zone that failed. Zero for a conventional zone.
    pub written: LbaCount,
    /// Whether a write since the last reset did not start at the write pointer: ZBC's zone
    /// attribute "Non-Sequential Write Resources Active". Only of sequential write preferred zones.
    pub non_sequential: bool,
}

impl ZoneState {
    /// Nothing written.
    pub const EMPTY: Self =
        Self { cond: ZoneCond::Empty, written: LbaCount::ZERO, non_sequential: false };

    /// A conventional zone.
    pub const NOT_WP: Self = Self { cond: ZoneCond::NotWp, ..Self::EMPTY };
}

/// An event of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write of `blocks` at `offset` from the zone's start.
    Write {
        /// Where, in blocks from the zone's start.
        offset: LbaCount,
        /// How much.
        blocks: LbaCount,
    },
    /// An append of so many blocks.
    Append(LbaCount),
    /// An action of the host.
    Manage(ZoneAction),
    /// The device closes the zone to make room for another open one (NVMe ZSIO → ZSC).
    CloseImplicitly,
    /// The drive loses power and comes back: open zones become Closed (NVMe ZSIO, ZSEO → ZSC),
    /// and a zone in which nothing is written needs no resource.
    PowerCycle,
    /// The device can no longer write the zone.
    FailWrites,
    /// The device can no longer read or write the zone.
    FailWholly,
}

/// Why the state machine refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The zone is Full.
    Full,
    /// The zone is ReadOnly.
    ReadOnly,
    /// The zone is Offline.
    Offline,
    /// The write does not start at the write pointer.
    NotAtWritePointer,
    /// The write would pass the end of the capacity.
    Boundary,
    /// There is no such transition.
    Transition,
    /// A conventional zone has neither actions nor appends.
    Conventional,
}

/// The state after `event`, or why there is none. `kind` and `capacity` are the zone's.
///
/// ```
/// use zonal::state::{Event, Refusal, Rules, ZoneState, next};
/// use zonal::{LbaCount, ZoneCond, ZoneKind};
/// let capacity = LbaCount::new(8);
/// let next = |from, event| next(Rules::Zns, ZoneKind::SequentialRequired, from, event, capacity);
/// let write = |offset, blocks| Event::Write { offset, blocks: LbaCount::new(blocks) };
/// let open = next(ZoneState::EMPTY, write(LbaCount::ZERO, 3)).unwrap();
/// assert_eq!(open.cond, ZoneCond::ImplicitOpen);
/// let full = next(open, write(open.written, 5)).unwrap();
/// assert_eq!(full.cond, ZoneCond::Full);
/// assert_eq!(next(full, write(full.written, 1)), Err(Refusal::Full));
/// ```
pub fn next(
    rules: Rules,
    kind: ZoneKind,
    from: ZoneState,
    event: Event,
    capacity: LbaCount,
) -> Result<ZoneState, Refusal> {
    match event {
        Event::Write { offset, blocks } => match kind {
            ZoneKind::SequentialPreferred => write_preferred(from, offset, blocks, capacity),
            ZoneKind::Conventional | ZoneKind::SequentialRequired => {
                write(from, offset, blocks, capacity)
            }
        },
        // SCSI has no appends. Here they are writes at the pointer in every sequential zone, as
        // Linux makes them of the appends to SCSI drives.
        Event::Append(_) if from.cond == ZoneCond::NotWp => Err(Refusal::Conventional),
        Event::Append(blocks) => write(from, from.written, blocks, capacity),
        Event::Manage(action) => match kind {
            ZoneKind::SequentialPreferred => manage(Rules::Zbc, from, action),
            ZoneKind::Conventional | ZoneKind::SequentialRequired => manage(rules, from, action),
        },
        Event::CloseImplicitly => match from.cond {
            ZoneCond::ImplicitOpen => Ok(ZoneState { cond: ZoneCond::Closed, ..from }),
            ZoneCond::NotWp
            | ZoneCond::Empty
            | ZoneCond::ExplicitOpen
            | ZoneCond::Closed
            | ZoneCond::Full
            | ZoneCond::ReadOnly
            | ZoneCond::Offline => Err(Refusal::Transition),
        },
        Event::PowerCycle if !from.cond.is_active() => Ok(from),
        Event::PowerCycle if from.written == LbaCount::ZERO => Ok(ZoneState::EMPTY),
        Event::PowerCycle => Ok(ZoneState { cond: ZoneCond::Closed, ..from }),
        // A failed zone does not get better.
        Event::FailWrites if from.cond == ZoneCond::Offline => Err(Refusal::Transition),
        Event::FailWrites => Ok(ZoneState { cond: ZoneCond::ReadOnly, ..from }),
        Event::FailWholly => Ok(ZoneState { cond: ZoneCond::Offline, ..from }),
    }
}

/// Writes and appends: condition first, then the pointer, then the end of the capacity.
fn write(
    from: ZoneState,
    offset: LbaCount,
    blocks: LbaCount,
    capacity: LbaCount,
) -> Result<ZoneState, Refusal> {
    let end = offset.checked_add(blocks).ok_or(Refusal::Boundary)?;
    let open = match from.cond {
        ZoneCond::NotWp if end > capacity => return Err(Refusal::Boundary),
        ZoneCond::NotWp => return Ok(from),
        cond => opened_by_write(cond)?,
    };
    if offset != from.written {
        return Err(Refusal::NotAtWritePointer);
    }
    if end > capacity {
        return Err(Refusal::Boundary);
    }
    let cond = if end == capacity { ZoneCond::Full } else { open };
    Ok(ZoneState { cond, written: end, ..from })
}

/// A write of a sequential write preferred zone: anywhere, also below the pointer and in a Full
/// zone, which stays Full. The pointer never goes back.
fn write_preferred(
    from: ZoneState,
    offset: LbaCount,
    blocks: LbaCount,
    capacity: LbaCount,
) -> Result<ZoneState, Refusal> {
    let end = offset.checked_add(blocks).ok_or(Refusal::Boundary)?;
    let (open, pointer) = match from.cond {
        ZoneCond::Full => (ZoneCond::Full, capacity),
        cond => (opened_by_write(cond)?, from.written),
    };
    if end > capacity {
        return Err(Refusal::Boundary);
    }
    Ok(ZoneState {
        cond: if end == capacity { ZoneCond::Full } else { open },
        written: from.written.max(end),
        non_sequential: from.non_sequential || offset != pointer,
    })
}

/// The condition of a zone that is not Full while a write goes into it.
fn opened_by_write(cond: ZoneCond) -> Result<ZoneCond, Refusal> {
    match cond {
        ZoneCond::NotWp => Err(Refusal::Conventional),
        ZoneCond::Full => Err(Refusal::Full),
        ZoneCond::ReadOnly => Err(Refusal::ReadOnly),
        ZoneCond::Offline => Err(Refusal::Offline),
        // ZSE → ZSIO and ZSC → ZSIO; an explicitly opened zone stays so.
        ZoneCond::Empty | ZoneCond::Closed | ZoneCond::ImplicitOpen => Ok(ZoneCond::ImplicitOpen),
        ZoneCond::ExplicitOpen => Ok(ZoneCond::ExplicitOpen),
    }
}

fn manage(rules: Rules, from: ZoneState, action: ZoneAction) -> Result<ZoneState, Refusal> {
    let to = |cond| Ok(ZoneState { cond, ..from });
    let nothing_written = from.written == LbaCount::ZERO;
    match (action, from.cond) {
        (_, ZoneCond::NotWp) => Err(Refusal::Conventional),
        // No action of ours leaves ZSRO; ZSO has no way out at all.
        (_, ZoneCond::ReadOnly | ZoneCond::Offline) => Err(Refusal::Transition),
        (
            ZoneAction::Open,
            ZoneCond::Empty | ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed,
        ) => to(ZoneCond::ExplicitOpen),
        (ZoneAction::Open, ZoneCond::Full)
        | (ZoneAction::Close, ZoneCond::Empty | ZoneCond::Full) => match rules {
            Rules::Zns => Err(Refusal::Transition),
            Rules::Zbc => Ok(from),
        },
        (ZoneAction::Close, ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed) => {
            match rules {
                Rules::Zbc if nothing_written => Ok(ZoneState::EMPTY),
                Rules::Zns | Rules::Zbc => to(ZoneCond::Closed),
            }
        }
        (
            ZoneAction::Finish,
            ZoneCond::Empty
            | ZoneCond::ImplicitOpen
            | ZoneCond::ExplicitOpen
            | ZoneCond::Closed
            | ZoneCond::Full,
        ) => to(ZoneCond::Full),
        (
            ZoneAction::Reset,
            ZoneCond::Empty
            | ZoneCond::ImplicitOpen
            | ZoneCond::ExplicitOpen
            | ZoneCond::Closed
            | ZoneCond::Full,
        ) => Ok(ZoneState::EMPTY),
    }
}

/// Whether "Select All" of an action takes a zone in this condition (NVMe ZNS 3.4.3).
pub const fn selected_by_all(action: ZoneAction, cond: ZoneCond) -> bool {
    match action {
        ZoneAction::Open => matches!(cond, ZoneCond::Closed),
        ZoneAction::Close => cond.is_open(),
        ZoneAction::Finish => cond.is_active(),
        ZoneAction::Reset => cond.is_active() || matches!(cond, ZoneCond::Full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: LbaCount = LbaCount::new(8);

    fn state(cond: ZoneCond, written: u64) -> ZoneState {
        ZoneState { cond, written: LbaCount::new(written), ..ZoneState::EMPTY }
    }

    fn next_required(from: ZoneState, event: Event) -> Result<ZoneState, Refusal> {
        next(Rules::Zns, ZoneKind::SequentialRequired, from, event, CAPACITY)
    }

    #[test]
    fn condition_is_checked_before_pointer_before_boundary() {
        let far = Event::Write { offset: LbaCount::new(7), blocks: LbaCount::new(9) };
        let at = |from| next_required(from, far).unwrap_err();
        assert_eq!(at(state(ZoneCond::Full, 8)), Refusal::Full);
        assert_eq!(at(state(ZoneCond::Closed, 3)), Refusal::NotAtWritePointer);
        assert_eq!(at(state(ZoneCond::Closed, 7)), Refusal::Boundary);
    }

    #[test]
    fn finish_keeps_data_length() {
        let finish = Event::Manage(ZoneAction::Finish);
        let full = next_required(state(ZoneCond::Closed, 3), finish);
        assert_eq!(full, Ok(state(ZoneCond::Full, 3)));
    }

    #[test]
    fn write_overflowing_is_refused() {
        let event = Event::Write { offset: LbaCount::new(u64::MAX), blocks: LbaCount::new(2) };
        for kind in [ZoneKind::Conventional, ZoneKind::SequentialPreferred] {
            let from = match kind {
                ZoneKind::Conventional => ZoneState::NOT_WP,
                ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => ZoneState::EMPTY,
            };
            assert_eq!(next(Rules::Zns, kind, from, event, CAPACITY), Err(Refusal::Boundary));
        }
    }
}
