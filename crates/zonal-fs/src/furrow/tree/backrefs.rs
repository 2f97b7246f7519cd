//! Back-references of zones: listing them for the next commit, and reading them from the table.

use super::Tree;
use crate::FsError;
use crate::furrow::format::backref::{BACKREFS_MAX, Backref};
use crate::furrow::format::row::{Row, decode, encode};
use crate::furrow::metadata::Ending;
use crate::furrow::metadata::backrefs::{Due, NewRows, mark_of};
use crate::furrow::metadata::place::Owner;
use crate::furrow::planted::PlantedBug;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::zones::records::settle;
use crate::vfs::Result;

/// Records that are looked at while changes wait.
const RECORDS_AT_ONCE: usize = 256;

/// Rows of owners that are read at once.
const ROWS_AT_ONCE: usize = 64;

impl Tree {
    /// Makes rows of owners of the records of a zone for the next batch: of those that still lead
    /// somewhere. Says whether there was such a zone.
    pub(in crate::furrow) fn list_owners(&self, ending: Ending) -> bool {
        let due = self.read_state().zones.next_due(ending);
        let Some(due) = due else { return false };
        let (zone, rows) = (due.zone, self.new_rows(due));
        self.write_accounts().zones.new_owners.insert(zone, rows);
        true
    }

    fn new_rows(&self, Due { zone, resets, records }: Due) -> NewRows {
        let mark = mark_of(&records);
        let mut kept = self.leading_somewhere(zone, records);
        if self.has_planted(PlantedBug::ForgetExtentOwners) {
            kept.retain(|record| !matches!(record.owner, Owner::Extent(_)));
        }
        settle(&mut kept);
        kept.sort_unstable_by_key(|record| record.owner);
        let rows = kept.chunks(BACKREFS_MAX).map(|chunk| encode(&Row::Backrefs(chunk.into())));
        NewRows { resets, records: mark, values: rows.collect() }
    }

    /// Those records of a zone that still lead somewhere. Where nearly all do it costs more to look
    /// than to keep the others.
    fn leading_somewhere(&self, zone: u32, records: Vec<Backref>) -> Vec<Backref> {
        let listed: u64 = records.iter().map(|record| u64::from(record.blocks)).sum();
        let live = u64::from(self.read_state().zones.slot(zone).live);
        if live * 8 >= listed * 7 {
            return records;
        }
        let mut kept = Vec::with_capacity(records.len());
        for chunk in records.chunks(RECORDS_AT_ONCE) {
            let state = self.read_state();
            kept.extend(chunk.iter().filter(|record| state.leads_somewhere(zone, record)));
        }
        kept
    }

    /// What the rows of owners of a zone say.
    pub(in crate::furrow) fn owner_rows(&self, zone: u32) -> Result<Vec<Backref>> {
        let mut records = Vec::new();
        let mut from = Key::new(RowKind::Backrefs, zone.into(), 0);
        let below = Key::new(RowKind::Backrefs, u64::from(zone) + 1, 0);
        while from < below {
            let found = self.rows(from, below, ROWS_AT_ONCE)?;
            for (key, value) in &found.rows {
                let corrupt = |why| FsError::Corrupt { what: "table", why };
                if let Row::Backrefs(row) = decode(*key, value).map_err(corrupt)? {
                    records.extend_from_slice(&row);
                }
            }
            from = found.end;
        }
        Ok(records)
    }
}
