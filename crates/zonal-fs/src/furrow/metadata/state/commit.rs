//! Encoding: the rows of a batch, as they were at one moment.

use crate::furrow::format::row::{Row, encode};
use crate::furrow::metadata::State;
use crate::furrow::metadata::inode::row::{encode_inode, encode_xattr};
use crate::furrow::metadata::map::place::ExtentId;
use crate::furrow::metadata::map::row::encode_map;
use crate::furrow::metadata::rows::batch::TakenRows;
use crate::furrow::metadata::state::sums::{learned_row, zone_row};
use crate::furrow::planted::{Planted, PlantedBug, mistake};
use crate::furrow::table::key::{Key, RowKind};
use crate::furrow::table::memtable::Value;
use crate::vfs::Ino;

impl State {
    /// Marks a row that is about to change. If the commit under way has yet to encode it, encodes
    /// it as it is.
    pub(in crate::furrow) fn mark(&mut self, kind: RowKind, owner: u64, at: u64) {
        let key = Key::new(kind, owner, at);
        self.encode_if_taken(key);
        self.rows.batch.mark(key);
    }

    /// If the commit under way has yet to encode a row, encodes it as it is.
    pub(super) fn encode_if_taken(&mut self, key: Key) {
        if self.rows.batch.awaits_encoding(key) {
            let value = present_value(self, key);
            self.rows.batch.enter_encoded(key, value);
        }
    }

    /// Begins a batch of all changed rows, as they are now. This takes the same short time for any
    /// number of rows: [`frozen_rows`](Self::frozen_rows) encodes them later, or a change does
    /// before it. Only the rows that a mount reads are encoded at once, since they change without
    /// marks.
    pub(in crate::furrow) fn freeze(&mut self) {
        for zone in self.zones.take_changed() {
            self.rows.mark_base(RowKind::Zone, zone.into(), 0);
        }
        let (taken, moved) = self.rows.freeze();
        self.residency.loads.note_taken(taken);
        self.residency.loads.note_taken(moved);
        let base: Vec<Key> = taken.range(..Key::BASE_END).copied().collect();
        for key in base {
            self.encode_if_taken(key);
        }
    }

    /// Up to `max` rows of the batch from a key on, as they were at its moment, and the key of the
    /// next row.
    pub(in crate::furrow) fn frozen_rows(
        &self,
        from: Key,
        max: usize,
    ) -> (Vec<(Key, Value)>, Option<Key>) {
        let mut keys = self.rows.batch.taken().range(from..);
        let rows = keys.by_ref().take(max).filter(|key| !is_left_out(key.kind(), self.planted));
        let rows = rows.map(|&key| {
            let encoded = self.rows.batch.encoded(key).cloned();
            (key, encoded.unwrap_or_else(|| present_value(self, key)))
        });
        let forgets = self.planted.has(PlantedBug::ForgetEntryDeletes);
        let is_forgotten = |(key, value): &(Key, Value)| {
            forgets && value.is_none() && key.kind() == RowKind::Entry
        };
        let rows = rows.filter(|row| !is_forgotten(row)).collect();
        (rows, keys.next().copied())
    }

    /// Ends the batch: readers of the table find all its rows. Returns memory to drop without a
    /// lock.
    pub(in crate::furrow) fn thaw(&mut self) -> TakenRows {
        // Loads that began meanwhile have found older rows.
        let taken = self.rows.batch.taken();
        self.residency.loads.note_taken(taken);
        self.residency.loads.note_taken(&self.rows.remaps.thaw(taken));
        for key in self.rows.batch.taken_unchanged() {
            if key.kind() == RowKind::Inode {
                self.inodes.forget_deleted(Ino::new(key.owner()));
            } else if key.kind() == RowKind::Extent {
                self.maps.shared.forget_deleted(ExtentId(key.owner()));
            }
        }
        // Metadata that only its changes kept in memory may be evicted now.
        self.residency.allow_trim();
        self.rows.batch.end()
    }
}

/// Whether a planted mistake leaves out rows of a kind.
fn is_left_out(kind: RowKind, planted: Planted) -> bool {
    let kinds = [
        (PlantedBug::ForgetXattrRows, RowKind::Xattr),
        (PlantedBug::ForgetTotals, RowKind::Totals),
        (PlantedBug::ForgetZoneRows, RowKind::Zone),
        (PlantedBug::ForgetOrphanRows, RowKind::Orphan),
        (PlantedBug::ForgetNames, RowKind::Name),
        (PlantedBug::ForgetDiscards, RowKind::Discard),
        (PlantedBug::ForgetMoved, RowKind::Remap),
    ];
    kinds.into_iter().any(|(bug, left_out)| kind == left_out && planted.has(bug))
}

/// The value of a changed row; `None` if it is deleted. The object that it describes is in memory,
/// or its deletion is: absence from memory alone never means a deletion.
fn present_value(state: &State, key: Key) -> Value {
    let planted = state.planted;
    let inode = || {
        let ino = Ino::new(key.owner());
        let inode = state.inodes.peek(ino);
        assert!(inode.is_some() || state.inodes.is_deleted(ino), "{key:?} is not in memory");
        inode
    };
    match key.kind() {
        RowKind::Totals => Some(encode(&Row::Totals(state.rows.totals.row(state.rows.numbers)))),
        RowKind::Zone => {
            let zone = u32::try_from(key.owner()).expect("zone numbers are u32");
            let mut row = zone_row(state.zones.slot(zone))?;
            mistake!(state, ListOpenZones, row.listed = 1);
            Some(encode(&Row::Zone(row)))
        }
        RowKind::Orphan => inode()?.is_orphan().then(|| encode(&Row::Orphan)),
        RowKind::Learned => {
            let number = u16::try_from(key.owner()).expect("one of few");
            Some(encode(&Row::Learned(&learned_row(state.learned.row(number)))))
        }
        RowKind::Inode => Some(encode_inode(inode()?, planted)),
        RowKind::Xattr => encode_xattr(inode()?, key.at()),
        RowKind::Map => {
            let file = inode()?.file().ok()?;
            assert!(file.resident.end_of(key.at()).is_some(), "{key:?} is not in memory");
            let entry = file.map.get(key.at())?;
            Some(encode_map(&entry, |zone| state.zones.generation(zone)))
        }
        RowKind::Entry => inode()?.directory().ok()?.entry_row(key.at()),
        RowKind::Extent => state.maps.shared.row(ExtentId(key.owner())),
        RowKind::Name => inode()?.directory().ok()?.name_row(key.at()),
        RowKind::Backrefs => None,
        RowKind::Remap => state.rows.remaps.value(key),
        RowKind::Discard => {
            let row = state.maps.discards.row(Ino::new(key.owner()), key.at())?;
            Some(encode(&Row::Discard(row)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsError;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{
        Allocate, Caller, FileKind, FileSystem, NewInode, RenameFlags, Result, SetAttr, WriteFlags,
        XattrMode,
    };

    /// Numbers that are the same in each run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % limit
        }
    }

    /// Does something to a few files and directories. Much of it fails.
    fn change_something(fs: &Furrow, dice: &mut Dice) -> Result<()> {
        let homes = [Ino::ROOT, fs.lookup(Ino::ROOT, b"home")?.ino];
        let home = |dice: &mut Dice| homes[usize::try_from(dice.below(2)).unwrap()];
        let name = |dice: &mut Dice| format!("name {}", dice.below(150));
        let (parent, named) = (home(dice), name(dice));
        let named = named.as_bytes();
        let offset = dice.below(64) * 4096;
        let len = (1 + dice.below(4)) * 4096;
        let data = vec![dice.0.to_le_bytes()[5]; usize::try_from(len).unwrap()];
        let other = (home(dice), name(dice));
        let other = (other.0, other.1.as_bytes());
        let kinds = [FileKind::Regular, FileKind::Regular, FileKind::Directory, FileKind::Fifo];
        let kind = kinds[usize::try_from(dice.below(4)).unwrap()];
        let new = NewInode { kind, perm: 0o644, rdev: 0, target: b"" };
        let what = dice.below(12);
        let ino = || fs.lookup(parent, named).map(|attr| attr.ino);
        match what {
            0 | 1 => drop(fs.create(&Caller::ROOT, parent, named, &new)?),
            2 | 3 => drop(fs.write(ino()?, offset, &data, WriteFlags::DIRECT)?),
            4 => drop(fs.write(ino()?, offset + 100, &data, WriteFlags::empty())?),
            5 => fs.unlink(parent, named).or_else(|_| fs.rmdir(parent, named))?,
            6 => fs.rename((parent, named), other, RenameFlags::empty())?,
            7 => fs.rename((parent, named), other, RenameFlags::EXCHANGE)?,
            8 => drop(fs.link(ino()?, other.0, other.1)?),
            9 => {
                let set = SetAttr { size: Some(offset + 5), ..SetAttr::default() };
                fs.setattr(&Caller::ROOT, ino()?, &set)?;
            }
            10 => {
                let target = (fs.lookup(other.0, other.1)?.ino, 4096);
                fs.copy_range((ino()?, 0), target, 8 * 4096, WriteFlags::empty())?;
                fs.fallocate(ino()?, Allocate::Punch, offset, len)?;
            }
            _ => {
                let mode = XattrMode::Any;
                fs.setxattr(&Caller::ROOT, ino()?, b"user.a", &data[..10], mode)?;
            }
        }
        Ok(())
    }

    fn change_some(fs: &Furrow, dice: &mut Dice, count: u64) {
        for _ in 0..count {
            if let Err(FsError::Corrupt { what, why }) = change_something(fs, dice) {
                panic!("{what}: {why}");
            }
        }
    }

    #[test]
    fn batch_encoding_is_snapshot_during_changes() {
        for seed in 1..=20 {
            let (drive, clock) = formatted(32, 1024);
            let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
            let mut dice = Dice(seed);
            let home = NewInode { kind: FileKind::Directory, perm: 0o755, rdev: 0, target: b"" };
            fs.create(&Caller::ROOT, Ino::ROOT, b"home", &home).unwrap();
            for _ in 0..10 {
                change_some(&fs, &mut dice, 200);
                fs.writer.write_back_all().unwrap();
                fs.tree.write_state().freeze();
                let (expected, rest) = fs.tree.read_state().frozen_rows(Key::MIN, usize::MAX);
                assert!(rest.is_none());
                let (mut rows, mut next) = (Vec::new(), Some(Key::MIN));
                while let Some(from) = next {
                    let (more, rest) = fs.tree.read_state().frozen_rows(from, 7);
                    rows.extend(more);
                    next = rest;
                    change_some(&fs, &mut dice, 5);
                }
                assert_eq!(rows, expected, "seed {seed}");
                // They go with the next batch, since none has written them.
                let mut state = fs.tree.write_state();
                let all = state.rows.batch.changed() | state.rows.batch.taken();
                state.rows.batch.set_changed(all);
                state.thaw();
            }
            fs.sync().unwrap();
            let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
            assert!(report.is_clean(), "seed {seed}: {report:?}");
        }
    }
}
