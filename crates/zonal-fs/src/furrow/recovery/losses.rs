//! Losses: blocks of files above a write pointer or in an offline zone.
//!
//! The rows of zones show whether anything can be lost. Only if so are the rows of all files read,
//! a few at a time.

use std::collections::{BTreeMap, BTreeSet};

use zonal::{Zone, ZoneCond, ZoneId};

use crate::furrow::drive::Drive;
use crate::furrow::format::row::{ExtentRow, InodeRow, Place, Row, SharedPlace, decode};
use crate::furrow::format::{BLOCK_BYTES, BLOCK_SHIFT};
use crate::furrow::metadata::paths::Paths;
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

/// Losses, those of a file that lie side by side as one, up to a bound.
#[derive(Debug, Default)]
pub(in crate::furrow) struct Losses {
    pub(in crate::furrow) found: Vec<Loss>,
    /// Those beyond the bound.
    pub(in crate::furrow) more: u64,
}

impl Losses {
    const KEPT_MAX: usize = 1000;

    /// Finds what the drive has lost of what lives in its zones. `live_in` says how many blocks
    /// live in a zone, and where they end.
    pub(in crate::furrow) fn find(
        drive: &Drive,
        view: &View,
        (zones, live_in): (&[Zone], &dyn Fn(u32) -> (u32, u32)),
    ) -> Result<Self> {
        let mut losses = Self::default();
        let may_be = zones.iter().any(|zone| {
            let (live, end) = live_in(zone.id.get());
            live > 0 && why_lost(drive, zone, end).is_some()
        });
        if !may_be {
            return Ok(losses);
        }
        let mut extents = BTreeMap::new();
        each_row(drive, view, (RowKind::Extent, RowKind::Backrefs), &mut |key, row| {
            if let Row::Extent(ExtentRow { zone, block, .. }, crcs) = row {
                let at = (zone.get(), block.get());
                // A part of it may still be there, which its files would find out.
                if lost_of(drive, zones, at, crcs.len()).is_some() {
                    extents.insert(key.owner(), at);
                }
            }
        })?;
        let mut end = 0;
        each_row(drive, view, (RowKind::Inode, RowKind::Extent), &mut |key, row| match row {
            Row::Inode(row, _) => end = end_of(&row),
            Row::Map(blocks, place) if key.at() < end => {
                let lost = match place {
                    Place::Preallocated => None,
                    Place::Zone(place, crcs) => {
                        let at = place.address();
                        lost_of(drive, zones, (at.zone, at.block), crcs.len())
                    }
                    Place::Shared(SharedPlace { extent, skip }) => {
                        extents.get(&extent.get()).and_then(|&(zone, block)| {
                            let end = block.saturating_add(skip.get()).saturating_add(blocks);
                            lost_up_to(drive, zones, (zone, end))
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
            | Row::Xattr(..)
            | Row::Name(_)
            | Row::Entry(..)
            | Row::Extent(..)
            | Row::Backrefs(_)
            | Row::Remap(..) => {}
        })?;
        Ok(losses)
    }

    /// Finds out where the files are, which takes a pass over all entries. What cannot be read
    /// leads nowhere.
    pub(in crate::furrow) fn find_paths(&mut self, drive: &Drive, view: &View) {
        if self.found.is_empty() {
            return;
        }
        let wanted: BTreeSet<u64> = self.found.iter().map(|loss| loss.ino.get()).collect();
        let mut entries = BTreeMap::new();
        let read = each_row(drive, view, (RowKind::Inode, RowKind::Extent), &mut |key, row| {
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
            loss.path = paths.path((drive, view), loss.ino);
        }
    }

    /// Says so in the log.
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

/// Rows from the first key of a kind up to that of another. One that cannot be read or decoded is a
/// matter of the check.
fn each_row(
    drive: &Drive,
    view: &View,
    (from, below): (RowKind, RowKind),
    each: &mut dyn FnMut(Key, Row<'_>),
) -> Result<()> {
    let span = KeySpan::new(Key::new(from, 0, 0), Key::new(below, 0, 0));
    view.scan(drive, span, &mut |scanned| {
        if let Scanned::Row(key, value) = scanned
            && let Ok(row) = decode(key, value)
        {
            each(key, row);
        }
    })
}

/// The block up to which a file has something: what waits to be removed is no loss.
fn end_of(row: &InodeRow) -> u64 {
    match (row.nlink.get(), row.reaping) {
        (0, _) => 0,
        (_, 0) => u64::MAX,
        (_, _) => row.size.get().div_ceil(BLOCK_BYTES as u64),
    }
}

fn lost_of(
    drive: &Drive,
    zones: &[Zone],
    (zone, block): (u32, u32),
    blocks: usize,
) -> Option<(ZoneId, &'static str)> {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    lost_up_to(drive, zones, (zone, block.saturating_add(blocks)))
}

fn lost_up_to(
    drive: &Drive,
    zones: &[Zone],
    (zone, end): (u32, u32),
) -> Option<(ZoneId, &'static str)> {
    let zone = zones.get(zone as usize)?;
    why_lost(drive, zone, end).map(|why| (zone.id, why))
}

/// Why a zone no longer has what it held below a block, if so.
fn why_lost(drive: &Drive, zone: &Zone, end: u32) -> Option<&'static str> {
    if zone.cond == ZoneCond::Offline {
        return Some("the zone is offline");
    }
    let written = zone.written()?.get() / drive.layout.per_block;
    (u64::from(end) > written).then_some("the zone's write pointer is below it")
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
