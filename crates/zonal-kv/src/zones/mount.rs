//! Opening: reads the name map, and repairs the remains of a power cut or a kill.
//!
//! Writes of the previous process, its newest record included, may still be in a cache of the
//! drive, if a flush failed or the process was killed. So the mount flushes the drive before it
//! reads: all records that it finds are durable, and it resets no zone because of a record that a
//! power cut can undo.
//!
//! A record that is not whole ends the map, if it can have been cut off: the power failed while it
//! was being written, and no call that waited for it has returned. A bad record with others behind
//! it was durable: then the map is damaged, and the mount refuses the drive. A close writes an
//! empty record, so after a close every record with entries is followed by another one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use zonal::{Clock, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::signature::{self, Content};
use zonal_fs::vfs::{Access, FileSystem, Result};
use zonal_fs::zonefs::{ErrorPolicy, Group, Health, MountOptions, ZoneFs};

use super::data::memory;
use super::format::{self, Entry, Head, Kind, Record};
use super::placed::PlacedFiles;
use super::{Inode, Journal, MAP_ZONES, ROOT, State, ZoneStore, lock};

/// The fewest zone files for a store: two for the map, and some for data.
const ZONES_MIN: u32 = 6;

impl ZoneStore {
    /// Whether a device holds a zonefs with a name map.
    pub fn is_on(device: &Arc<dyn ZonedDevice>, clock: &Arc<dyn Clock>) -> Result<bool> {
        if signature::find(&**device)?.map(|found| found.kind) != Some(Content::Zonefs) {
            return Ok(false);
        }
        let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
        let zones = ZoneFs::mount(Arc::clone(device), Arc::clone(clock), options)?;
        let mut magic = [0; format::MAGIC.len()];
        for number in 0..MAP_ZONES {
            if let Some(zone) = zones.file(Group::Sequential, number)
                && zones.health(zone)? == Health::Good
                && zones.read(zone, 0, &mut magic)? == magic.len()
                && magic == format::MAGIC
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Opens the files on a zonefs, or makes the name map on an empty one. A read-only mount writes
    /// nothing and repairs only its state in memory.
    pub fn mount(
        device: Arc<dyn ZonedDevice>,
        clock: Arc<dyn Clock>,
        access: Access,
    ) -> Result<Self> {
        let block = device.geometry().block_size().bytes();
        // Each record is on the drive once its append has returned.
        let options = MountOptions {
            errors: ErrorPolicy::Repair,
            rotational: Some(false),
            access,
            ..MountOptions::default()
        };
        let zones = ZoneFs::mount(device, Arc::clone(&clock), options)?;
        let store = Self {
            created_ns: clock.wall_ns(),
            opened_ns: clock.monotonic_ns(),
            rights: access,
            clock,
            block,
            zones,
            state: Mutex::default(),
            journal: Mutex::new(Journal {
                zone: 1,
                end: 0,
                generation: 0,
                commit: 0,
                is_unsure: true,
                written_bytes: 0,
            }),
            placed: PlacedFiles::default(),
        };
        store.start()
    }

    fn start(mut self) -> Result<Self> {
        let count = self.zones.stats().sequential_files;
        if count < ZONES_MIN {
            let why = format!("it has {count} sequential zones; {ZONES_MIN} are the least");
            return Err(FsError::Unsuitable { why });
        }
        for number in 0..MAP_ZONES {
            if self.zones.health(self.zone(number))? != Health::Good {
                let why = format!("zone file seq/{number} has failed: the name map needs it");
                return Err(FsError::Foreign { what: "zonefs", why });
            }
        }
        // F3: with the records durable, every zone reset below is one to which no durable record
        // refers.
        if self.rights == Access::ReadWrite {
            self.zones.sync()?;
        }
        let (first, second) = (self.content(0)?, self.content(1)?);
        let maps = [self.records(&first), self.records(&second)];
        let newest = (0..MAP_ZONES)
            .zip(&maps)
            .filter_map(|(zone, map)| map.first().map(|record| (record.head.generation, zone)))
            .max();
        let contents = [&first, &second];
        for (content, map) in contents.into_iter().zip(&maps) {
            self.check_end(content, map, newest.map_or(0, |newest| newest.0))?;
        }
        if let Some((_, zone)) = newest {
            self.check_last(contents[zone as usize], &maps[zone as usize])?;
        }
        let mut state = match newest {
            None => self.fresh(count, &first, &second)?,
            Some((_, zone)) => {
                let records = &maps[zone as usize];
                let last = records.last().expect("it has a snapshot").head;
                self.created_ns = last.created_ns.cast_signed();
                *lock(&self.journal) = Journal {
                    zone,
                    end: 0,
                    generation: last.generation,
                    commit: last.commit,
                    is_unsure: true,
                    written_bytes: 0,
                };
                replay(records)?
            }
        };
        self.put_right(&mut state, count)?;
        for (ino, inode) in &state.inodes {
            self.placed.insert(*ino, inode);
        }
        *lock(&self.state) = state;
        // Blocks behind the last record stay there: the map goes on in the other zone.
        self.commit()?;
        Ok(self)
    }

    /// The whole content of a zone file.
    fn content(&self, number: u32) -> Result<Vec<u8>> {
        let mut content = vec![0; memory(self.written(number)?)];
        let read = self.zones.read(self.zone(number), 0, &mut content)?;
        content.truncate(read);
        Ok(content)
    }

    /// The records of a zone file, in order: a snapshot and changes, up to the first record that is
    /// not whole.
    fn records<'a>(&self, content: &'a [u8]) -> Vec<Record<'a>> {
        let mut records: Vec<Record<'a>> = Vec::new();
        let mut at = 0;
        while let Some(record) = self.follows(content, at, records.last().map(|last| last.head)) {
            at += record.len;
            records.push(record);
        }
        records
    }

    /// The record at `at`, if it is the one after `last`.
    fn follows<'a>(&self, content: &'a [u8], at: u64, last: Option<Head>) -> Option<Record<'a>> {
        let record = format::decode(content, at, self.block)?;
        let head = record.head;
        let fits = match last {
            None => head.is_snapshot,
            Some(last) => {
                !head.is_snapshot
                    && head.generation == last.generation
                    && head.commit == last.commit + 1
            }
        };
        (fits && head.uuid == self.zones.superblock().uuid).then_some(record)
    }

    /// Refuses a map with a whole record behind a bad one. Older generations do not matter.
    fn check_end(&self, content: &[u8], map: &[Record<'_>], generation: u64) -> Result<()> {
        let mut at: u64 = map.iter().map(|record| record.len).sum();
        while at < content.len() as u64 {
            let later = format::decode(content, at, self.block);
            let uuid = self.zones.superblock().uuid;
            if later
                .is_some_and(|later| later.head.uuid == uuid && later.head.generation >= generation)
            {
                let end: u64 = map.iter().map(|record| record.len).sum();
                return Err(damaged(end, &format!("one at byte {at} is whole")));
            }
            at += self.block;
        }
        Ok(())
    }

    /// Refuses a map whose last record cannot have been cut off. A power cut leaves the first
    /// blocks of the record that was being written, and the last of these blocks may be noise.
    fn check_last(&self, content: &[u8], map: &[Record<'_>]) -> Result<()> {
        let end: u64 = map.iter().map(|record| record.len).sum();
        let left = content.len() as u64 - end;
        if left == 0 {
            return Ok(());
        }
        if left > self.block {
            match format::claimed_len(content, end, self.block) {
                None => return Err(damaged(end, "its first block is not the last one")),
                Some(len) if left > len => {
                    return Err(damaged(end, &format!("something follows at byte {}", end + len)));
                }
                Some(_) => {}
            }
        }
        tracing::warn!(
            byte = end,
            "the last record of the name map is not whole, as after a power cut while it was written: \
             what it said is not there"
        );
        Ok(())
    }

    /// The state of a new store. The zone files have to be empty, except for a first record that
    /// was cut off.
    fn fresh(&self, count: u32, first: &[u8], second: &[u8]) -> Result<State> {
        let begun = first.is_empty()
            || (first.len() as u64 == self.block && first.starts_with(&format::MAGIC));
        let mut others_empty = second.is_empty();
        for number in MAP_ZONES..count {
            others_empty &= self.written(number)? == 0;
        }
        if !begun || !others_empty {
            let why = "its zone files have data and no name map; \
                       `zonal mkzonefs --force` makes the drive empty";
            return Err(FsError::Foreign { what: "zonefs", why: why.to_owned() });
        }
        let mut root = Inode::new(Kind::Directory, self.created_ns);
        root.links = 1;
        let mut state = State { next_ino: ROOT + 1, ..State::default() };
        state.inodes.insert(ROOT, root);
        Ok(state)
    }

    /// Resets zones that belong to no file, finishes zones in which no file grows, and collects the
    /// free ones.
    fn put_right(&self, state: &mut State, count: u32) -> Result<()> {
        let mut used = BTreeSet::new();
        for (ino, inode) in &state.inodes {
            for extent in &inode.extents {
                let bad = |why: &str| FsError::Corrupt {
                    what: "the name map",
                    why: format!("inode {ino} has bytes in zone file seq/{}, {why}", extent.zone),
                };
                if !(MAP_ZONES..count).contains(&extent.zone) {
                    return Err(bad("which is none of files"));
                }
                let written = self.written(extent.zone)?;
                let is_good = self.zones.health(self.zone(extent.zone))? == Health::Good;
                if is_good && extent.start.saturating_add(extent.len) > written {
                    return Err(bad(&format!("which ends at {written}, before them")));
                }
                used.insert(extent.zone);
            }
        }
        for number in MAP_ZONES..count {
            if self.zones.health(self.zone(number))? != Health::Good {
                continue;
            }
            let (written, capacity) = (self.written(number)?, self.capacity(number));
            match used.contains(&number) {
                true if written < capacity && self.rights == Access::ReadWrite => {
                    self.fill_up(state, number);
                }
                true => {}
                false if written > 0 && self.rights == Access::ReadOnly => {}
                false if written > 0 => {
                    self.empty(state, number);
                }
                false => {
                    state.free.insert(number);
                }
            }
        }
        debug_assert!(self.zones.file(Group::Sequential, count).is_none(), "these are all");
        Ok(())
    }
}

/// The error for a bad record that was durable.
fn damaged(at: u64, how_known: &str) -> FsError {
    let why = format!(
        "the record at byte {at} is bad, and {how_known}; `zonal mkzonefs --force` makes the drive empty"
    );
    FsError::Corrupt { what: "the name map", why }
}

/// Applies the records in order.
fn replay(records: &[Record<'_>]) -> Result<State> {
    let mut state = State::default();
    for record in records {
        state.next_ino = record.head.next_ino;
        for entry in &record.entries {
            match entry {
                Entry::Inode { ino, kind, mtime_ns, btime_ns, extents, tail } => {
                    let mut inode = Inode::new(*kind, *btime_ns);
                    inode.mtime_ns = *mtime_ns;
                    inode.extents.clone_from(extents);
                    inode.buffer = tail.to_vec();
                    state.inodes.insert(*ino, inode);
                }
                Entry::Name { parent, name, ino: 0 } => {
                    state.names.remove(&(*parent, name.to_vec()));
                }
                Entry::Name { parent, name, ino } => {
                    state.names.insert((*parent, name.to_vec()), *ino);
                }
            }
        }
    }
    for ((parent, name), ino) in &state.names {
        let lost = || {
            let name = String::from_utf8_lossy(name);
            let why = format!("the name {name:?} in directory {parent} leads to no inode");
            FsError::Corrupt { what: "the name map", why }
        };
        state.inodes.get_mut(ino).ok_or_else(lost)?.links += 1;
    }
    if let Some(root) = state.inodes.get_mut(&ROOT) {
        root.links += 1;
    }
    // Inodes without a name were deleted.
    state.inodes.retain(|_, inode| inode.links > 0);
    Ok(state)
}
