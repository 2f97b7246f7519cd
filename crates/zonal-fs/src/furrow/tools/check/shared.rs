//! Shared extents: whether each map row that names one lies inside it, and each extent has as many
//! references as it states.
//!
//! Each pass over the map rows compares as many extents as there is memory for. If rows of inodes
//! are lost, the check can only find extents with too many references.

use crate::furrow::format::row::{ExtentRow, Place, Row};
use crate::furrow::invariant::{self as rule, Problems};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::tools::check::lost::LostRows;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::furrow::tools::check::{CheckPhase, place_text};
use crate::vfs::{Ino, Result};

struct SharedExtent {
    id: u64,
    blocks: u32,
    /// References that its row states.
    stated: u32,
    found: u32,
}

/// Compares all extents with the map rows that name them.
pub(super) fn check(
    source: &mut RowSource<'_>,
    memory: u64,
    lost: &LostRows,
    problems: &mut Problems,
) -> Result<()> {
    let most =
        usize::try_from(memory / size_of::<SharedExtent>() as u64).unwrap_or(usize::MAX).max(16);
    let end = Key::new(RowKind::Backrefs, 0, 0);
    let mut from = Some(Key::new(RowKind::Extent, 0, 0));
    while let Some(start) = from.take() {
        let first = start.owner();
        let mut extents = Vec::new();
        source.pass(CheckPhase::Shared, KeySpan::new(start, end), &mut |item| {
            let Item::Row(key, Row::Extent(row, crcs), _) = item else { return };
            if extents.len() == most {
                from.get_or_insert(key);
            } else {
                extents.extend(extent_of(key, &row, crcs.len()));
            }
        })?;
        let below = from.map_or(u64::MAX, Key::owner);
        source.pass(CheckPhase::Shared, KeySpan::INODES, &mut |item| {
            if let Item::Row(key, Row::Map(blocks, place), _) = item
                && let Place::Shared(shared, _) = &place
                && (first..below).contains(&shared.extent.get())
            {
                let at = extents.binary_search_by_key(&shared.extent.get(), |extent| extent.id);
                let end = shared.skip.get().checked_add(blocks);
                let extent = at.ok().map(|at| &mut extents[at]);
                match extent.filter(|extent| end.is_some_and(|end| end <= extent.blocks)) {
                    Some(extent) => extent.found = extent.found.saturating_add(1),
                    None if lost.cover(Key::new(RowKind::Extent, shared.extent.get(), 0)) => {}
                    None => {
                        let (ino, first) = (Ino::new(key.owner()), key.at());
                        let place = place_text(blocks, &place);
                        let what = format!("inode {ino} block {first}: {place}");
                        problems.add_of(rule::MAPS, ino, what);
                    }
                }
            }
        })?;
        for SharedExtent { id, stated, found, .. } in extents {
            let is_wrong = found > stated || (found < stated || found == 0) && !lost.touch_inodes();
            if is_wrong {
                let what = format!("extent {id} says {stated} references and has {found}");
                problems.add(rule::REFERENCES, what);
            }
        }
    }
    Ok(())
}

fn extent_of(key: Key, row: &ExtentRow, crcs: usize) -> Option<SharedExtent> {
    let blocks = u32::try_from(crcs).ok()?;
    Some(SharedExtent { id: key.owner(), blocks, stated: row.refs.get(), found: 0 })
}
