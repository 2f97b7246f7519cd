//! Back-references as rows: made of those in memory for the next commit, and read from the table.

use super::Tree;
use crate::FsError;
use crate::furrow::format::backref::{BACKREFS_MAX, Backref};
use crate::furrow::format::row::{Row, decode, encode};
use crate::furrow::metadata::Ending;
use crate::furrow::metadata::map::place::Owner;
use crate::furrow::planted::mistake;
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::zones::backrefs::{DueRecords, DueZones, merge_sorted};
use crate::vfs::Result;

/// Back-references that one lock of the state covers.
const RECORDS_AT_ONCE: usize = 256;

/// Rows that one read returns.
const ROWS_AT_ONCE: usize = 64;

impl Tree {
    /// Makes rows for the next batch of a zone's back-references in memory, except for dead ones.
    /// Returns whether a zone had any due.
    pub(in crate::furrow) fn make_backref_rows(&self, ending: Ending) -> bool {
        let which = match ending {
            Ending::Record => DueZones::Closed,
            Ending::Clean => DueZones::All,
        };
        let due = self.read_state().zones.next_due(which);
        let Some(DueRecords { zone, mark, records }) = due else { return false };
        let rows = self.encode_records(zone, records);
        self.write_accounts().zones.add_encoded(zone, mark, rows);
        true
    }

    /// The rows of a zone's back-references, except for dead ones.
    fn encode_records(&self, zone: u32, records: Vec<Backref>) -> Vec<Box<[u8]>> {
        let mut kept = self.confirmed(zone, records);
        mistake!(self, ForgetExtentOwners, {
            kept.retain(|record| !matches!(record.owner, Owner::Extent(_)));
        });
        merge_sorted(&mut kept);
        kept.sort_unstable_by_key(|record| record.owner);
        let rows = kept.chunks(BACKREFS_MAX).map(|chunk| encode(&Row::Backrefs(chunk.into())));
        rows.collect()
    }

    /// Back-references of a zone that still lead to live blocks. Where nearly all blocks live, it
    /// keeps all of them: the lookups would cost more than the rows of the dead ones.
    fn confirmed(&self, zone: u32, records: Vec<Backref>) -> Vec<Backref> {
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

    /// The back-references of a zone that are in rows.
    pub(in crate::furrow) fn backref_rows(&self, zone: u32) -> Result<Vec<Backref>> {
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
