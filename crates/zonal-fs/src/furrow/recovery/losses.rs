//! Losses: blocks of files above a write pointer or in an offline zone.
//!
//! The rows of zones show whether any block can be lost. Only then does a mount read the rows of
//! all files, a few at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use zonal::{Zone, ZoneCond, ZoneId};

use crate::furrow::drive::Drive;
use crate::furrow::format::row::{ExtentRow, InodeRow, Place, Row, SharedPlace, decode};
use crate::furrow::format::{Address, BLOCK_SHIFT};
use crate::furrow::recovery::paths::Paths;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::view::View;
use crate::furrow::table::view::scan::Scanned;
use crate::vfs::{Ino, Result};

/// Data that the drive no longer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The zone that held them.
    pub zone: ZoneId,
    /// Why they are gone.
    pub why: &'static str,
    /// A path that leads to the file, if one does.
    pub path: Option<String>,
}

/// Losses, up to a bound. Adjoining losses of one file count as one.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Losses {
    pub(in crate::furrow) found: Vec<Loss>,
    /// Losses beyond the bound.
    pub(in crate::furrow) more: u64,
}

impl Losses {
    const KEPT_MAX: usize = 1000;

    /// Finds live data that the drive has lost. `live_end` returns where the live blocks of a zone
    /// end; `None` if it has none.
    pub(in crate::furrow) fn find(
        drive: &Drive,
        view: &View,
        zones: &[Zone],
        live_end: impl Fn(u32) -> Option<u32>,
    ) -> Result<Self> {
        let mut losses = Self::default();
        let drive_has = DriveContent { drive, zones };
        let may_be = zones.iter().any(|zone| {
            live_end(zone.id.get())
                .is_some_and(|end| drive_has.lost_below(zone.id.get(), end).is_some())
        });
        if !may_be {
            return Ok(losses);
        }
        let mut extents = BTreeMap::new();
        each_row(drive, view, RowKind::Extent..RowKind::Backrefs, &mut |key, row| {
            if let Row::Extent(ExtentRow { zone, block, .. }, crcs) = row {
                let at = Address { zone: zone.get(), block: block.get() };
                // If a part of it is still there, the maps that name it decide below.
                if drive_has.lost_of(at, crcs.len()).is_some() {
                    extents.insert(key.owner(), at);
                }
            }
        })?;
        let mut end = 0;
        each_row(drive, view, RowKind::Inode..RowKind::Extent, &mut |key, row| match row {
            Row::Inode(row, _) => end = end_of(&row),
            Row::Map(blocks, place) if key.at() < end => {
                let lost = match place {
                    Place::Preallocated => None,
                    Place::Zone(place, crcs) => drive_has.lost_of(place.address(), crcs.len()),
                    Place::Shared(SharedPlace { extent, skip }, _) => {
                        extents.get(&extent.get()).and_then(|at| {
                            let end = at.block.saturating_add(skip.get()).saturating_add(blocks);
                            drive_has.lost_below(at.zone, end)
                        })
                    }
                };
                if let Some((zone, why)) = lost {
                    let (offset, len) = (key.at() << BLOCK_SHIFT, u64::from(blocks) << BLOCK_SHIFT);
                    let ino = Ino::new(key.owner());
                    losses.add(Loss { ino, offset, len, zone, why, path: None });
                }
            }
            Row::Map(..)
            | Row::Totals(_)
            | Row::Zone(_)
            | Row::Orphan
            | Row::Learned(_)
            | Row::Discard(_)
            | Row::Xattr(..)
            | Row::Name(_)
            | Row::Entry(..)
            | Row::Extent(..)
            | Row::Backrefs(_)
            | Row::Remap(..) => {}
        })?;
        Ok(losses)
    }

    /// Finds paths of the files, by a pass over all directory entries. It skips entries that cannot
    /// be read.
    pub(in crate::furrow) fn find_paths(&mut self, drive: &Drive, view: &View) {
        if self.found.is_empty() {
            return;
        }
        let wanted: BTreeSet<u64> = self.found.iter().map(|loss| loss.ino.get()).collect();
        let mut entries = BTreeMap::new();
        let read = each_row(drive, view, RowKind::Inode..RowKind::Extent, &mut |key, row| {
            if let Row::Entry(row, name) = row
                && wanted.contains(&row.ino.get())
            {
                entries.entry(row.ino.get()).or_insert_with(|| (key.owner(), name.into()));
            }
        });
        if let Err(error) = read {
            tracing::debug!(%error, "not all paths of lost data are found");
        }
        let mut paths = Paths::of(entries);
        for loss in &mut self.found {
            loss.path = paths.path(drive, view, loss.ino);
        }
    }

    /// Logs them.
    pub(in crate::furrow) fn log(&self) {
        for loss in &self.found {
            let file = loss.path.clone().unwrap_or_else(|| format!("inode {}", loss.ino));
            tracing::error!(
                file, offset = loss.offset, bytes = loss.len, zone = %loss.zone,
                "data is lost: {}", loss.why
            );
        }
        if self.more > 0 {
            tracing::error!(more = self.more, "and more data is lost");
        }
    }

    fn add(&mut self, loss: Loss) {
        if let Some(last) = self.found.last_mut()
            && (last.ino, last.zone, last.why) == (loss.ino, loss.zone, loss.why)
            && last.offset + last.len == loss.offset
        {
            last.len += loss.len;
        } else if self.found.len() < Self::KEPT_MAX {
            self.found.push(loss);
        } else {
            self.more += 1;
        }
    }
}

/// Calls `each` with every row of these kinds. It skips rows that cannot be read or decoded: the
/// check reports those.
fn each_row(
    drive: &Drive,
    view: &View,
    kinds: Range<RowKind>,
    each: &mut dyn FnMut(Key, Row<'_>),
) -> Result<()> {
    let span = KeySpan::new(Key::new(kinds.start, 0, 0), Key::new(kinds.end, 0, 0));
    view.scan(drive, span, &mut |scanned| {
        if let Scanned::Row(key, value) = scanned
            && let Ok(row) = decode(key, value)
        {
            each(key, row);
        }
    })
}

/// The block at which the map of a file ends for its users: entries that truncation has still to
/// remove are no loss.
fn end_of(row: &InodeRow) -> u64 {
    if row.nlink.get() == 0 { 0 } else { row.truncate_from().unwrap_or(u64::MAX) }
}

/// Which blocks the drive still has, according to its report of zones.
struct DriveContent<'a> {
    drive: &'a Drive,
    zones: &'a [Zone],
}

impl DriveContent<'_> {
    /// The zone of some blocks and why it has lost them, if it has.
    fn lost_of(&self, at: Address, blocks: usize) -> Option<(ZoneId, &'static str)> {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.lost_below(at.zone, at.block.saturating_add(blocks))
    }

    /// The same for blocks that end at `end` in a zone.
    fn lost_below(&self, zone: u32, end: u32) -> Option<(ZoneId, &'static str)> {
        let zone = self.zones.get(zone as usize)?;
        if zone.cond == ZoneCond::Offline {
            return Some((zone.id, "the zone is offline"));
        }
        let written = zone.written()?.get() / self.drive.layout.per_block;
        let is_above = u64::from(end) > written;
        is_above.then_some((zone.id, "the zone's write pointer is below it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_adjoin_merge_and_are_bounded() {
        let mut losses = Losses::default();
        let loss = |ino, offset| {
            let (zone, why) = (ZoneId::new(3), "the zone is offline");
            Loss { ino: Ino::new(ino), offset, len: 4096, zone, why, path: None }
        };
        (0..50).for_each(|block| losses.add(loss(2, block * 4096)));
        assert_eq!(losses.found, [Loss { len: 50 * 4096, ..loss(2, 0) }]);
        (3..5003).for_each(|ino| losses.add(loss(ino, 0)));
        assert_eq!((losses.found.len(), losses.more), (Losses::KEPT_MAX, 4001));
    }
}
