//! The search for owners of blocks in zones whose owners are not listed.
//!
//! After a crash these are the zones that were being written. One pass over all rows finds the
//! owners for all these zones. It runs in steps, so that reclaim can meanwhile empty other zones.
//! Blocks that are written during the search are recorded as usual, and what the search reads
//! before a row changes is a hint like any other. Rows that are lost are passed over: zones with
//! blocks of theirs are not emptied then.

use std::collections::BTreeMap;

use crate::furrow::format::Address;
use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::{Row, decode};
use crate::furrow::metadata::State;
use crate::furrow::metadata::place::{ExtentId, Owner};
use crate::furrow::reclaim::Reclaimer;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::zones::{Listed, Role, Zones};
use crate::vfs::{Ino, Result};

/// Rows that one step reads.
const ROWS_AT_ONCE: usize = 4096;

/// Behind the last row of a map or of an extent.
const END: Key = Key::new(RowKind::Backrefs, 0, 0);

/// A search under way.
#[derive(Debug)]
pub(in crate::furrow) struct Search {
    zones: BTreeMap<u32, Wanted>,
    /// The first row that was not read yet.
    next: Key,
}

/// A zone whose owners are searched.
#[derive(Debug)]
struct Wanted {
    /// How often it had been emptied: nothing is to be found any more after the next time.
    resets: u32,
    found: Vec<Backref>,
}

impl Search {
    /// For all zones that need one; `None` if there are none.
    fn new(state: &State) -> Option<Self> {
        let wanted = state.zones.ids().filter(|&zone| {
            let slot = state.zones.slot(zone);
            slot.live > 0 && slot.listed == Listed::No
        });
        let zones: BTreeMap<u32, Wanted> = wanted
            .map(|zone| {
                let resets = state.zones.slot(zone).resets;
                (zone, Wanted { resets, found: Vec::new() })
            })
            .collect();
        (!zones.is_empty()).then_some(Self { zones, next: Key::BASE_END })
    }

    /// Notes what a row says.
    fn note(&mut self, key: Key, row: &Row<'_>) {
        let Some((at, crcs)) = row.stored() else { return };
        let owner = if key.kind() == RowKind::Extent {
            Owner::Extent(ExtentId(key.owner()))
        } else {
            Owner::Entry(Ino::new(key.owner()), key.at())
        };
        let Address { zone, block } = at;
        let blocks = u32::try_from(crcs.len()).unwrap_or(u32::MAX);
        let is_sound = blocks > 0 && block.checked_add(blocks).is_some();
        if let Some(wanted) = self.zones.get_mut(&zone).filter(|_| is_sound) {
            wanted.found.push(Backref { block, blocks, owner });
        }
    }

    /// All rows were read: the zones are listed now.
    fn end(self, state: &mut State) {
        for (zone, Wanted { resets, found }) in self.zones {
            let slot = state.zones.slot_mut(zone);
            if slot.resets != resets || slot.listed != Listed::No {
                continue;
            }
            slot.listed = Listed::Searched;
            for record in found {
                state.zones.record_owner(zone, record);
            }
        }
    }
}

impl Zones {
    /// Whether there are zones to be emptied whose owners have to be searched first.
    pub(in crate::furrow) fn await_search(&self, role: Role) -> bool {
        self.slots.iter().any(|slot| {
            slot.role == role && slot.live > 0 && !slot.unreadable && slot.listed == Listed::No
        })
    }
}

impl Reclaimer {
    /// Reads some rows of the search, and says whether there are more to read.
    pub(in crate::furrow) fn search_some(&self) -> Result<bool> {
        let mut current = self.searching.lock().expect("no holder panicked");
        let mut search = match current.take() {
            Some(search) => search,
            None => {
                let Some(search) = Search::new(&self.tree.read_state()) else { return Ok(false) };
                tracing::info!(zones = search.zones.len(), "the owners of blocks are searched");
                search
            }
        };
        let found = match self.tree.rows(search.next, END, ROWS_AT_ONCE) {
            Ok(found) => found,
            Err(error) => {
                let past = self.tree.view.past_lost(&self.drive, KeySpan::new(search.next, END));
                search.next = past.unwrap_or(search.next);
                // It goes on there the next time.
                *current = Some(search);
                return if past.is_some() { Ok(true) } else { Err(error) };
            }
        };
        for (key, value) in &found.rows {
            match decode(*key, value) {
                Ok(row) => search.note(*key, &row),
                Err(why) => tracing::error!(%why, "a row cannot be read"),
            }
        }
        if found.end < END {
            search.next = found.end;
            *current = Some(search);
            return Ok(true);
        }
        search.end(&mut self.tree.write_accounts());
        Ok(false)
    }

    /// Searches to the end. For a writer that finds no room otherwise.
    pub(in crate::furrow) fn search_all(&self) -> Result<()> {
        while self.search_some()? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zonal::{ManualClock, ZonedDevice};

    use super::*;
    use crate::furrow::sample::formatted;
    use crate::furrow::zones::Urgency;
    use crate::furrow::{Access, DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, NewInode, WriteFlags};

    const BLOCK: u64 = 4096;
    const ZONE_BLOCKS: u64 = 64;

    fn mount(drive: &Arc<dyn ZonedDevice>, clock: &Arc<ManualClock>) -> Furrow {
        Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap()
    }

    fn create(fs: &Furrow, name: &str) -> Ino {
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).unwrap().ino
    }

    fn write(fs: &Furrow, ino: Ino, block: u64, count: u64, byte: u8) {
        let bytes = usize::try_from(count * BLOCK).unwrap();
        fs.write(ino, block * BLOCK, &vec![byte; bytes], WriteFlags::DIRECT).unwrap();
    }

    /// Zones in which something lives: their number, whether they are written, whether they are
    /// listed.
    fn zones(fs: &Furrow) -> Vec<(u32, bool, Listed)> {
        let state = fs.tree.read_state();
        let zones = state.zones.ids().map(|zone| (zone, state.zones.slot(zone)));
        let zones = zones.filter(|(_, slot)| slot.live > 0);
        zones.map(|(zone, slot)| (zone, matches!(slot.role, Role::Open(_)), slot.listed)).collect()
    }

    fn assert_clean(drive: &Arc<dyn ZonedDevice>) {
        let report = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    /// Empties a zone whatever there is to win by it.
    fn empty(fs: &Furrow, zone: u32) {
        fs.tree.write_state().zones.seal(zone);
        for _ in 0..100 {
            if fs.tree.read_state().zones.slot(zone).live == 0 {
                return;
            }
            fs.reclaimer.reclaim_some(u32::MAX, Urgency::Emergency).unwrap();
            fs.sync().unwrap();
        }
        panic!("{} blocks stay in zone {zone}", fs.tree.read_state().zones.slot(zone).live);
    }

    #[test]
    fn backrefs_are_rows_when_sealed_and_after_unmount() {
        let (drive, clock) = formatted(32, ZONE_BLOCKS);
        let fs = mount(&drive, &clock);
        let file = create(&fs, "file");
        write(&fs, file, 0, 2 * ZONE_BLOCKS - 10, 1);
        fs.sync().unwrap();
        let full = zones(&fs)[0].0;
        let rows = fs.tree.owner_rows(full).unwrap();
        assert_eq!(rows.len(), 1, "written in order: {rows:?}");
        let open = zones(&fs).into_iter().find(|(_, is_open, _)| *is_open).unwrap().0;
        assert_eq!(fs.tree.owner_rows(open).unwrap(), [], "in memory");
        fs.shutdown().unwrap();
        drop(fs);
        assert_clean(&drive);
        let fs = mount(&drive, &clock);
        assert_eq!(fs.tree.owner_rows(open).unwrap().len(), 1);
        assert!(zones(&fs).iter().all(|(_, _, listed)| *listed == Listed::Yes));
        // What comes later becomes further rows.
        write(&fs, file, 2 * ZONE_BLOCKS, 1, 2);
        fs.copy_range((file, 0), (create(&fs, "copy"), 0), 3 * BLOCK, WriteFlags::empty()).unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.tree.owner_rows(full).unwrap().len(), 2, "and the shared extent");
        drop(fs);
        assert_clean(&drive);
    }

    #[test]
    fn backref_rows_go_with_contents_of_zone() {
        let (drive, clock) = formatted(32, ZONE_BLOCKS);
        let fs = mount(&drive, &clock);
        let file = create(&fs, "file");
        let bytes = fs.tree.read_state().totals.row_bytes;
        write(&fs, file, 0, 3 * ZONE_BLOCKS, 1);
        fs.sync().unwrap();
        let zone = zones(&fs)[0].0;
        assert!(!fs.tree.owner_rows(zone).unwrap().is_empty());
        fs.fallocate(file, crate::vfs::Allocate::Punch, 0, 3 * ZONE_BLOCKS * BLOCK).unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.tree.owner_rows(zone).unwrap(), []);
        assert_eq!(fs.tree.read_state().totals.row_bytes, bytes);
        drop(fs);
        assert_clean(&drive);
    }

    #[test]
    fn backref_scan_empties_zone_left_open_by_crash() {
        let (drive, clock) = formatted(32, ZONE_BLOCKS);
        let fs = mount(&drive, &clock);
        let (file, copy) = (create(&fs, "file"), create(&fs, "copy"));
        // The last one first: a file so long has a zone of its own.
        (0..20).rev().for_each(|block| write(&fs, file, block * 3, 1, 1));
        fs.copy_range((file, 0), (copy, 0), BLOCK, WriteFlags::empty()).unwrap();
        fs.sync().unwrap();
        drop(fs);
        assert_clean(&drive);
        let fs = mount(&drive, &clock);
        let [(zone, is_open, listed)] = zones(&fs)[..] else { panic!("one zone") };
        assert_eq!((is_open, listed), (true, Listed::No));
        (20..30).for_each(|block| write(&fs, file, block * 3, 1, 1));
        fs.tree.write_state().zones.seal(zone);
        let is_victim = |fs: &Furrow| fs.tree.read_state().zones.is_victim(zone, Urgency::Normal);
        assert!(!is_victim(&fs), "not before the search");
        empty(&fs, zone);
        let mut data = [0; 4096];
        for block in 0..30 {
            fs.read(file, block * 3 * BLOCK, &mut data).unwrap();
            assert_eq!(data, [1; 4096], "block {block}");
        }
        fs.read(copy, 0, &mut data).unwrap();
        assert_eq!(data, [1; 4096]);
        drop(fs);
        assert_clean(&drive);
    }

    #[test]
    fn backref_scan_covers_zone_with_wrong_list() {
        let (drive, clock) = formatted(32, ZONE_BLOCKS);
        let fs = mount(&drive, &clock);
        let file = create(&fs, "file");
        write(&fs, file, 0, 20, 1);
        let zone = zones(&fs)[0].0;
        fs.tree.write_state().zones.slot_mut(zone).records =
            crate::furrow::zones::records::Records::default();
        fs.sync().unwrap();
        empty(&fs, zone);
        fs.sync().unwrap();
        drop(fs);
        assert_clean(&drive);
    }

    #[test]
    fn backref_scan_is_idle_on_read_only_mount() {
        let (drive, clock) = formatted(32, ZONE_BLOCKS);
        let fs = mount(&drive, &clock);
        write(&fs, create(&fs, "file"), 0, 20, 1);
        fs.sync().unwrap();
        drop(fs);
        let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
        let fs = Furrow::mount(drive, clock, options).unwrap();
        assert_eq!(
            fs.step(crate::furrow::Work::Reclaim).unwrap(),
            crate::furrow::StepProgress::Idle
        );
    }
}
