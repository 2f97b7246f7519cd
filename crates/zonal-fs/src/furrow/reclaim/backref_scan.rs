//! Back-reference scan: finds the owners of blocks in zones whose back-references are not complete.
//!
//! After a crash these are the zones that were being written. One pass over all rows finds the
//! owners for all of them. It runs in steps, so that reclaim can empty other zones meanwhile.
//! Blocks that are written during the scan get back-references as usual; a row that changes after
//! the scan has read it leaves a hint that leads nowhere, like any other. The scan skips lost rows:
//! reclaim does not empty zones that hold blocks of theirs.

use std::collections::BTreeMap;

use zonal::retry::Retries;

use crate::FsError;
use crate::furrow::format::Address;
use crate::furrow::format::backref::Backref;
use crate::furrow::format::row::{Row, decode};
use crate::furrow::metadata::State;
use crate::furrow::metadata::map::place::{ExtentId, Owner};
use crate::furrow::reclaim::Reclaimer;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::refused::REFUSED_NS_MAX;
use crate::furrow::table::view::Refused;
use crate::furrow::zones::{Listed, Role, Zones};
use crate::vfs::{Ino, Result};

/// Rows that one step of the scan reads.
const ROWS_AT_ONCE: usize = 4096;

/// The key after the last row of a map or of an extent.
const END: Key = Key::new(RowKind::Backrefs, 0, 0);

/// A scan under way.
#[derive(Debug)]
pub(super) struct BackrefScan {
    zones: BTreeMap<u32, ScannedZone>,
    /// The first row that the scan has not read yet.
    next: Key,
    /// Whether the device has refused to read that row.
    refused: Retries<Key>,
    /// Whether the scan has passed rows that the device has refused to read for long.
    skips_refused: bool,
}

/// A zone whose back-references the scan looks for.
#[derive(Debug)]
struct ScannedZone {
    /// Resets of the zone when the scan began: another one makes `found` void.
    resets: u32,
    found: Vec<Backref>,
}

impl BackrefScan {
    /// A scan for all zones that need one; `None` if no zone does.
    fn new(state: &State) -> Option<Self> {
        let incomplete = state.zones.ids().filter(|&zone| {
            let slot = state.zones.slot(zone);
            slot.live > 0 && slot.listed == Listed::No
        });
        let zones: BTreeMap<u32, ScannedZone> = incomplete
            .map(|zone| {
                let resets = state.zones.slot(zone).resets;
                (zone, ScannedZone { resets, found: Vec::new() })
            })
            .collect();
        let (next, refused) = (Key::BASE_END, Retries::default());
        (!zones.is_empty()).then_some(Self { zones, next, refused, skips_refused: false })
    }

    /// Notes the blocks that a row names.
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
        if let Some(scanned) = self.zones.get_mut(&zone).filter(|_| is_sound) {
            scanned.found.push(Backref { block, blocks, owner });
        }
    }

    /// Ends the scan after the last row: the back-references of its zones are complete now.
    fn end(self, state: &mut State) {
        for (zone, ScannedZone { resets, found }) in self.zones {
            let slot = state.zones.slot_mut(zone);
            if slot.resets != resets || slot.listed != Listed::No {
                continue;
            }
            slot.listed =
                if self.skips_refused { Listed::SearchedInPart } else { Listed::Searched };
            for record in found {
                state.zones.record_owner(zone, record);
            }
        }
    }
}

impl Zones {
    /// Whether zones with this role can become victims only after a scan.
    pub(in crate::furrow) fn need_scan(&self, role: Role, now_ns: u64) -> bool {
        self.all().any(|(zone, slot)| {
            let is_unlisted = slot.live > 0 && !slot.unreadable && slot.listed == Listed::No;
            slot.role == role && is_unlisted && self.unread.is_due(zone, now_ns)
        })
    }
}

impl Reclaimer {
    /// Scans some rows, and returns whether there are more to scan. After an error the next call
    /// goes on at the same row; a row that the device refuses to read for ten minutes is lost.
    pub(in crate::furrow) fn scan_some(&self) -> Result<bool> {
        let mut current = self.scanning.lock().expect("no holder panicked");
        let mut scan = match current.take() {
            Some(scan) => scan,
            None => {
                let scan = BackrefScan::new(&self.tree.read_state());
                let Some(scan) = scan else { return Ok(false) };
                tracing::info!(zones = scan.zones.len(), "a scan for back-references begins");
                scan
            }
        };
        let found = match self.tree.rows(scan.next, END, ROWS_AT_ONCE) {
            Ok(found) => found,
            Err(error) => {
                let is_refused = matches!(error, FsError::Refused { .. });
                let now = self.log.clock.monotonic_ns();
                let is_old = is_refused && scan.refused.put_off(scan.next, now) >= REFUSED_NS_MAX;
                let refused = if is_old { Refused::IsLost } else { Refused::MayReturn };
                let rest = KeySpan::new(scan.next, END);
                let past = self.tree.view.past_lost(&self.drive, rest, refused);
                if let Some(past) = past {
                    (scan.next, scan.refused) = (past, Retries::default());
                    scan.skips_refused |= is_refused;
                }
                // The next step continues there.
                *current = Some(scan);
                return if past.is_some() { Ok(true) } else { Err(error) };
            }
        };
        scan.refused = Retries::default();
        for (key, value) in &found.rows {
            match decode(*key, value) {
                Ok(row) => scan.note(*key, &row),
                Err(why) => tracing::error!(%why, "a row cannot be read"),
            }
        }
        if found.end < END {
            scan.next = found.end;
            *current = Some(scan);
            return Ok(true);
        }
        scan.end(&mut self.tree.write_accounts());
        Ok(false)
    }

    /// Scans some rows, and returns whether there are more to scan now. An error costs only the
    /// zones that the scan is for, until a later call succeeds.
    pub(in crate::furrow) fn scan_on(&self) -> bool {
        self.scan_some().unwrap_or_else(|error| {
            tracing::warn!(%error, "the scan for back-references waits");
            false
        })
    }

    /// Scans to the end, for a writer that finds no room otherwise.
    pub(super) fn scan_all(&self) {
        while self.scan_on() {}
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

    /// Empties a zone, even if that gains nothing.
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
        let rows = fs.tree.backref_rows(full).unwrap();
        assert_eq!(rows.len(), 1, "written in order: {rows:?}");
        let open = zones(&fs).into_iter().find(|(_, is_open, _)| *is_open).unwrap().0;
        assert_eq!(fs.tree.backref_rows(open).unwrap(), [], "in memory");
        fs.shutdown().unwrap();
        drop(fs);
        assert_clean(&drive);
        let fs = mount(&drive, &clock);
        assert_eq!(fs.tree.backref_rows(open).unwrap().len(), 1);
        assert!(zones(&fs).iter().all(|(_, _, listed)| *listed == Listed::Yes));
        // Later back-references become further rows.
        write(&fs, file, 2 * ZONE_BLOCKS, 1, 2);
        fs.copy_range((file, 0), (create(&fs, "copy"), 0), 3 * BLOCK, WriteFlags::empty()).unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.tree.backref_rows(full).unwrap().len(), 2, "and the shared extent");
        drop(fs);
        assert_clean(&drive);
    }

    #[test]
    fn backref_rows_go_with_contents_of_zone() {
        let (drive, clock) = formatted(32, ZONE_BLOCKS);
        let fs = mount(&drive, &clock);
        let file = create(&fs, "file");
        let bytes = fs.tree.read_state().rows.totals.row_bytes();
        write(&fs, file, 0, 3 * ZONE_BLOCKS, 1);
        fs.sync().unwrap();
        let zone = zones(&fs)[0].0;
        assert!(!fs.tree.backref_rows(zone).unwrap().is_empty());
        fs.fallocate(file, crate::vfs::Allocate::Punch, 0, 3 * ZONE_BLOCKS * BLOCK).unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.tree.backref_rows(zone).unwrap(), []);
        assert_eq!(fs.tree.read_state().rows.totals.row_bytes(), bytes);
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
            crate::furrow::zones::backrefs::Records::default();
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
