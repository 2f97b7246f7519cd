//! The order within a batch: which requests may be at the drive at the same time.

use std::collections::BTreeMap;

use zonal::{Geometry, Io, Op, ZoneId, ZonedDevice};

/// Whether a drive takes several appends to a zone at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appends {
    /// It has a command for them.
    Together,
    /// They are writes at the write pointer.
    OneByOne,
}

/// How a round uses a zone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Only appends.
    Appends,
    /// A change that all later changes wait for.
    Closed,
}

/// The zone that a request changes; `None` if it changes none, or fails in any case.
pub(crate) fn changed_zone(geometry: &Geometry, op: &Op<'_>) -> Option<ZoneId> {
    match *op {
        Op::Write { lba, data } => {
            geometry.blocks_at(lba, data.len()).ok().filter(|blocks| blocks.get() > 0)?;
            Some(geometry.locate(lba).0)
        }
        Op::Append { zone, .. } => Some(zone).filter(|zone| zone.get() < geometry.zone_count()),
        Op::Read { .. } | Op::Flush => None,
    }
}

/// Performs a batch in rounds: `round` gets requests that may run side by side. It gets at most one
/// write to each zone, and no append with it. A flush runs alone, after all requests before it. A
/// request that `round` leaves without a result is performed alone.
pub(crate) fn in_rounds<'a, D: ZonedDevice>(
    drive: &D,
    appends: Appends,
    batch: &mut [Io<'a>],
    mut round: impl FnMut(&mut [&mut Io<'a>]),
) {
    let mut rest: Vec<&mut Io<'a>> = batch.iter_mut().collect();
    while !rest.is_empty() {
        let (mut now, mut later) = (Vec::new(), Vec::new());
        let mut zones: BTreeMap<ZoneId, Use> = BTreeMap::new();
        let mut waits = false;
        for io in rest {
            let is_flush = matches!(io.op, Op::Flush);
            if is_flush && now.is_empty() && later.is_empty() {
                io.perform(drive);
                continue;
            }
            // Requests behind a flush wait for it.
            waits |= is_flush;
            if !waits && has_room(drive.geometry(), &mut zones, &io.op, appends) {
                now.push(io);
            } else {
                later.push(io);
            }
        }
        match now.as_mut_slice() {
            [] => {}
            [one] => one.perform(drive),
            several => {
                for io in &mut *several {
                    io.result = None;
                }
                round(several);
                for io in several.iter_mut().filter(|io| io.result.is_none()) {
                    io.perform(drive);
                }
            }
        }
        rest = later;
    }
}

/// Whether a request may run together with the requests noted in `zones`.
fn has_room(
    geometry: &Geometry,
    zones: &mut BTreeMap<ZoneId, Use>,
    op: &Op<'_>,
    appends: Appends,
) -> bool {
    let Some(zone) = changed_zone(geometry, op) else { return true };
    let can_share = appends == Appends::Together && matches!(op, Op::Append { .. });
    match (zones.get(&zone), can_share) {
        (None, true) => {
            zones.insert(zone, Use::Appends);
            true
        }
        (Some(Use::Appends), true) => true,
        (found, _) => {
            let is_first = found.is_none();
            zones.insert(zone, Use::Closed);
            is_first
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use zonal::{Lba, LbaCount, MemoryDrive, Profile};

    use super::*;

    /// The rounds of a batch: which requests ran in each.
    fn rounds(appends: Appends, batch: &[(char, u32)]) -> Vec<Vec<usize>> {
        let drive = MemoryDrive::new(Profile::Small.geometry()).unwrap();
        let (data, mut memory) = ([1; 4096], vec![[0; 4096]; batch.len()]);
        let mut pointers = BTreeMap::new();
        let request = |(&(what, zone), buffer): (&(char, u32), _)| {
            let zone = ZoneId::new(zone);
            let next = pointers.entry(zone).or_insert(0);
            let lba = drive.geometry().zone_start(zone) + LbaCount::new(*next);
            *next += u64::from(matches!(what, 'w' | 'a'));
            match what {
                'w' => Io::write(lba, &data),
                'a' => Io::append(zone, &data),
                'r' => Io::read(lba, buffer),
                _ => Io::flush(),
            }
        };
        let mut ios: Vec<Io<'_>> = batch
            .iter()
            .zip(memory.iter_mut().map(<[u8; 4096]>::as_mut_slice))
            .map(request)
            .collect();
        let base = ios.as_ptr().addr();
        let seen = Mutex::new(Vec::new());
        in_rounds(&drive, appends, &mut ios, |round| {
            let number = |io: &&mut Io<'_>| {
                (std::ptr::from_ref::<Io<'_>>(io).addr() - base) / size_of::<Io<'_>>()
            };
            seen.lock().unwrap().push(round.iter().map(number).collect());
            for io in round {
                io.perform(&drive);
            }
        });
        let ends: Vec<Result<Lba, _>> = ios.into_iter().map(Io::outcome).collect();
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
        seen.into_inner().unwrap()
    }

    #[test]
    fn rounds_join_requests_to_different_zones() {
        let batch = [('r', 1), ('w', 2), ('r', 1), ('w', 3), ('a', 4)];
        assert_eq!(rounds(Appends::OneByOne, &batch), [vec![0, 1, 2, 3, 4]]);
    }

    #[test]
    fn rounds_order_writes_within_zone_only() {
        let batch = [('w', 1), ('w', 1), ('w', 2), ('w', 1), ('w', 2), ('r', 3)];
        // The last one of zone 1 is alone, and needs no round.
        assert_eq!(rounds(Appends::Together, &batch), [vec![0, 2, 5], vec![1, 4]]);
    }

    #[test]
    fn rounds_join_appends_if_drive_takes_them_together() {
        let batch = [('a', 1), ('a', 1), ('w', 1), ('a', 1), ('a', 1)];
        assert_eq!(rounds(Appends::Together, &batch), [vec![0, 1], vec![3, 4]]);
        assert_eq!(rounds(Appends::OneByOne, &batch), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn rounds_flush_is_barrier_in_both_directions() {
        let batch = [('f', 0), ('r', 1), ('w', 2), ('f', 0), ('r', 3), ('r', 4)];
        assert_eq!(rounds(Appends::Together, &batch), [vec![1, 2], vec![4, 5]]);
    }
}
