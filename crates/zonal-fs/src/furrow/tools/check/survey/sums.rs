//! Compares the rows of zones and of totals with the counts of the survey.

use crate::furrow::invariant as rule;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::tools::check::survey::Survey;

impl Survey<'_> {
    /// Compares live blocks, ends and bytes of back-references with the rows of zones.
    pub(super) fn compare_zones(&mut self) {
        let places_lack = self.lost.touch_places();
        for (zone, (count, row)) in self.zones.iter().zip(&self.zone_rows).enumerate() {
            if self.lost.cover(Key::new(RowKind::Zone, zone as u64, 0)) {
                continue;
            }
            let stated = row.map_or(0, |row| u64::from(row.live.get()));
            if stated < count.live || stated != count.live && !places_lack {
                let what =
                    format!("zone {zone} states {stated} live blocks and has {}", count.live);
                self.sums.add(rule::ZONE_ROWS, what);
            } else if let Some(end) = row.map(|row| row.end.get()).filter(|end| *end < count.end) {
                let what =
                    format!("zone {zone} states end {end} and has blocks up to {}", count.end);
                self.sums.add(rule::ZONE_ROWS, what);
            }
            let stated = row.map_or(0, |row| u64::from(row.owner_bytes.get()));
            let may_lack = places_lack || self.lost.touch_zone(zone as u64);
            if stated < count.owner_bytes || stated != count.owner_bytes && !may_lack {
                let found = count.owner_bytes;
                let what = format!("zone {zone} states {stated} bytes of owners and has {found}");
                self.others.add(rule::OWNERS, what);
            }
        }
    }

    /// Compares the totals with the row of totals.
    pub(super) fn compare_totals(&mut self) {
        if self.totals.is_none() && self.lost.cover(Key::MIN) {
            return;
        }
        let Some(row) = &self.totals else {
            return self.problems.add(rule::TOTALS, "there is no row of totals".into());
        };
        let found = &self.found;
        let sums = [
            ("inodes", row.inodes, found.inodes),
            ("blocks", row.live, found.live),
            ("preallocated blocks", row.preallocated, found.preallocated),
            ("bytes of rows", row.row_bytes, found.row_bytes),
            ("bytes of rows of places", row.place_bytes, found.place_bytes),
        ];
        for (what, stated, found) in sums {
            if stated.get() < found || stated.get() != found && self.lost.is_empty() {
                self.sums.add(rule::TOTALS, format!("{stated} {what} are stated, {found} found"));
            }
        }
        let counters = [row.next_ino, row.next_extent, row.data_clock];
        if counters.into_iter().any(|counter| counter.get() > u64::MAX / 2) {
            self.problems.add(rule::TOTALS, format!("a counter is at its end: {row:?}"));
        }
    }
}
