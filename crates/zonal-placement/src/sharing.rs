//! Which files share an open zone, and which have one of their own.
//!
//! Large files have a zone each, since the whole zone is dead when the file is deleted; others
//! share the zone of their [lifetime class](super::life). A hint changes that: see [`may_share`].

use super::life::{LifeFacts, class_of, predict};
use super::lifetime::WriteLifetime;
use super::streams::Target;

/// Whether data of a file with a hint may be written to a zone that was opened for data with
/// another.
///
/// | zone \ file | none | short | medium | long | extreme |
/// | --- | --- | --- | --- | --- | --- |
/// | none, short | yes | yes | | | |
/// | medium | | | yes | | |
/// | long, extreme | | | | | |
///
/// Data that dies soon lies together, for all of it is dead before the zone's turn comes. Data that
/// lives long is kept apart: deleted one file at a time, it would leave holes, and reclaim would
/// have to move the rest out. It is the table of zoned XFS, derived from the writes of `RocksDB`
/// (Holmberg, "Zoned XFS", `xfs_good_hint_match`).
pub const fn may_share(zone: WriteLifetime, file: WriteLifetime) -> bool {
    match zone {
        WriteLifetime::None | WriteLifetime::Short => {
            matches!(file, WriteLifetime::None | WriteLifetime::Short)
        }
        WriteLifetime::Medium => matches!(file, WriteLifetime::Medium),
        WriteLifetime::Long | WriteLifetime::Extreme => false,
    }
}

/// The expected size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A small part of a zone.
    Small,
    /// A good part of a zone, or more.
    Large,
}

/// Where data of a file belongs, by the facts about it.
///
/// - Large files have a zone each, unless their hint lets them share one with their like: then all
///   of them lie together, whatever their size.
/// - Small files share a zone with their class, also where the table keeps them apart: a zone for
///   each would be more zones than may be open.
/// - Data that is overwritten in place dies block by block, and not with its file: it lies with its
///   class.
/// - Data about which nothing is known lies with the data that dies first, like `none` in the
///   table.
pub fn target_of(file: u64, size: Size, facts: LifeFacts, capacity: u64) -> Target {
    let shares = facts.hint != WriteLifetime::None && may_share(facts.hint, facts.hint);
    if size == Size::Large && facts.last_life.is_none() && !shares {
        return Target::File(file);
    }
    match facts.hint {
        WriteLifetime::None => Target::Class(class_of(predict(facts, capacity), capacity)),
        hint => Target::Hinted(hint),
    }
}

#[cfg(test)]
mod tests {
    use super::super::streams::{Budget, Choice, Locality, Streams, Supply};
    use super::*;

    const CAPACITY: u64 = 1 << 20;

    /// Whether two files lie in one zone, with a budget of `open` zones.
    fn share(size: Size, open: usize, hints: [WriteLifetime; 2]) -> bool {
        let mut streams = Streams::new(Budget::of(open), 1000);
        let mut next = 0;
        let zones = [1, 2].map(|file| {
            let facts = LifeFacts { hint: hints[file - 1], ..LifeFacts::default() };
            let target = target_of(file as u64, size, facts, CAPACITY);
            let zone = match streams.choose(target, Locality::default(), Supply::Empty, 1, |_| 1000)
            {
                Choice::Zone(zone) => zone,
                Choice::Open => {
                    next += 1;
                    streams.open(next, target, 1);
                    next
                }
                Choice::Nothing => panic!("there are empty zones"),
            };
            streams.note(zone, target, 10, 1);
            zone
        });
        zones[0] == zones[1]
    }

    #[test]
    fn sharing_follows_table() {
        // From the smallest budget with three zones for classes on.
        for open in [6, 9, 14, 120] {
            for zone in WriteLifetime::ALL {
                for file in WriteLifetime::ALL {
                    let may = may_share(zone, file);
                    let is_cold = |hint| hint >= WriteLifetime::Long;
                    let small =
                        may || is_cold(zone) && is_cold(file) && (zone == file || open < 12);
                    let found = share(Size::Small, open, [zone, file]);
                    assert_eq!(found, small, "small files of {open}, {zone:?} and {file:?}");
                    // Without a hint each has a zone of its own.
                    let large = may && ![zone, file].contains(&WriteLifetime::None);
                    let found = share(Size::Large, open, [zone, file]);
                    assert_eq!(found, large, "large files of {open}, {zone:?} and {file:?}");
                }
            }
        }
    }

    #[test]
    fn sharing_table_is_symmetric_and_isolates_long_lives() {
        let rows = WriteLifetime::ALL.map(|zone| {
            let files = WriteLifetime::ALL.map(|file| {
                assert_eq!(may_share(zone, file), may_share(file, zone));
                if may_share(zone, file) { 'y' } else { '-' }
            });
            String::from_iter(files)
        });
        assert_eq!(rows, ["yy---", "yy---", "--y--", "-----", "-----"]);
    }

    #[test]
    fn overwritten_data_lies_with_its_class() {
        for hint in WriteLifetime::ALL {
            let facts = LifeFacts { hint, last_life: Some(1 << 19), ..LifeFacts::default() };
            let target = target_of(7, Size::Large, facts, CAPACITY);
            assert!(matches!(target, Target::Class(_) | Target::Hinted(_)), "{hint:?}: {target:?}");
        }
    }
}
