//! Whether what files share lies inside an extent, and each extent has as many references as it says.
//!
//! So many extents at a time as there is memory for; the map rows that name them come in a pass.

use super::super::format::row::{Place, Row, decode};
use super::super::invariant::{self as rule, Problems};
use super::super::table::key::{Key, RowKind};
use super::pass::{Item, Source};
use super::{CheckPhase, place_text};
use crate::vfs::{Ino, Result};

/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 1024;

struct Extent {
    id: u64,
    blocks: u32,
    /// References that it says it has.
    stated: u32,
    found: u32,
}

/// Compares all extents with the map rows that name them.
pub(super) fn check(source: &mut Source<'_>, memory: u64, problems: &mut Problems) -> Result<()> {
    let most = usize::try_from(memory / size_of::<Extent>() as u64).unwrap_or(usize::MAX).max(16);
    let end = Key::new(RowKind::Owners, 0, 0);
    let mut from = Key::new(RowKind::Extent, 0, 0);
    while from < end {
        let first = from.owner();
        let mut extents = Vec::new();
        while from < end && extents.len() < most {
            let found = source.view.rows(source.drive, (from, end), ROWS_AT_ONCE.min(most))?;
            extents.extend(found.rows.iter().filter_map(|(key, value)| extent_of(*key, value)));
            from = found.end;
        }
        let below = if from < end { from.owner() } else { u64::MAX };
        let range = (Key::BASE_END, Key::new(RowKind::Extent, 0, 0));
        source.pass(CheckPhase::Shared, range, &mut |item| {
            if let Item::Row(key, Row::Map(blocks, place), _) = item
                && let Place::Shared(shared) = &place
                && (first..below).contains(&shared.extent.get())
            {
                let at = extents.binary_search_by_key(&shared.extent.get(), |extent| extent.id);
                let end = shared.skip.get().checked_add(blocks);
                let extent = at.ok().map(|at| &mut extents[at]);
                match extent.filter(|extent| end.is_some_and(|end| end <= extent.blocks)) {
                    Some(extent) => extent.found = extent.found.saturating_add(1),
                    None => {
                        let (ino, first) = (Ino::new(key.owner()), key.at());
                        let place = place_text(blocks, &place);
                        let what = format!("inode {ino} block {first}: {place}");
                        problems.add_of(rule::MAPS, ino, what);
                    }
                }
            }
        })?;
        for Extent { id, stated, found, .. } in extents {
            if stated != found || found == 0 {
                let what = format!("extent {id} says {stated} references and has {found}");
                problems.add(rule::REFERENCES, what);
            }
        }
    }
    Ok(())
}

fn extent_of(key: Key, value: &[u8]) -> Option<Extent> {
    let Ok(Row::Extent(row, crcs)) = decode(key, value) else { return None };
    let blocks = u32::try_from(crcs.len()).ok()?;
    Some(Extent { id: key.owner(), blocks, stated: row.refs.get(), found: 0 })
}
