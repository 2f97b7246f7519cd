//! Rows that lead to blocks or from them: back-references and remap tables.

use super::Survey;
use crate::furrow::format::ZoneGeneration;
use crate::furrow::format::backref::Backref;
use crate::furrow::format::key::Key;
use crate::furrow::format::remap::{self, RemapRow};
use crate::furrow::format::row::backrefs_bytes;
use crate::furrow::invariant as rule;

impl Survey<'_> {
    /// Checks a row of back-references, and counts it for its zone.
    pub(super) fn put_backrefs(&mut self, key: Key, records: &[Backref], bytes: usize) {
        self.add_place_bytes(backrefs_bytes(bytes).into());
        let zone = usize::try_from(key.owner()).ok().filter(|&zone| zone < self.zones.len());
        let is_known = |&zone: &usize| {
            let row = self.zone_rows[zone].as_ref();
            let is_inside = |record: &Backref| record.end() <= self.slots[zone].capacity;
            self.zones[zone].live > 0
                && row.is_some_and(|row| key.at() < u64::from(row.next_owners.get()))
                && records.iter().all(is_inside)
        };
        let Some(zone) = zone.filter(is_known) else {
            let may_lack = self.has_lost_remaps || self.lost.touch_places();
            if may_lack || self.lost.touch_zone(key.owner()) {
                // Lost rows may own blocks of this zone.
                return;
            }
            let what = format!("owners of zone {}, row {}", key.owner(), key.at());
            return self.others.add(rule::OWNERS, what);
        };
        self.zones[zone].owner_bytes += u64::from(backrefs_bytes(bytes));
        self.zones[zone].records += records.len() as u64;
    }

    /// Checks that a remap table is valid for its zones, and has a number of its own.
    pub(super) fn put_remap(&mut self, key: Key, row: &RemapRow, tail: &[u8]) {
        let capacity = |zone: u64| {
            let zone = ZoneGeneration::from_raw(u32::try_from(zone).ok()?).zone() as usize;
            self.slots.get(zone).map(|slot| u64::from(slot.capacity))
        };
        let blocks = remap::decode(row, tail)
            .unwrap_or_default()
            .iter()
            .map(|run| u64::from(run.blocks))
            .sum::<u64>();
        let fits = |zone: u64, end: u64| capacity(zone).is_some_and(|capacity| end <= capacity);
        let is_sound = fits(key.owner(), u64::from(row.first.get()) + u64::from(row.span.get()))
            && fits(row.zone.get().into(), u64::from(row.block.get()) + blocks);
        if !is_sound || !self.moved.insert(key.at()) {
            let what = format!(
                "table {} of blocks moved out of zone and generation {}",
                key.at(),
                key.owner()
            );
            self.problems.add(rule::MOVED, what);
        }
    }
}
