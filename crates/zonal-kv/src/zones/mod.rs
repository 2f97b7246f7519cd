//! Files with names on zonefs: each grows in zone files of its own.
//!
//! zonefs has a file for each zone and no names, and takes direct writes of whole blocks at the end
//! of a file. Tables of a key-value store are written in the same way. This module adds:
//!
//! - The bytes of a file gather in memory and are written, in whole blocks, to a zone file that
//!   belongs to this file alone; when that is full, to another one. A file under a block takes no
//!   zone.
//! - The *name map* holds the name of each file, and where its bytes lie. It is a journal in one of
//!   the zone files `seq/0` and `seq/1`: see `format`. The bytes behind a file's last whole block
//!   are in the map, until the file is closed and its last block is padded with zeroes.
//! - A commit makes everything durable: it writes data and flushes, then writes a record and
//!   flushes. A zone of a deleted file is reset after the commit that removes its name (F3).
//!
//! Files grow at their end and can be cut, but not overwritten. Zones without a write pointer
//! (`cnv`) are not used.
//!
//! | module | question |
//! | --- | --- |
//! | `format` | how is the map stored? |
//! | `mount` | how is it read, and repaired after a power cut? |
//! | `data` | how are bytes written, read, cut? |
//! | `placed` | where are the bytes of files without a writer? |
//! | [`owed`] | which work has the drive refused, and when is it tried again? |
//! | `ops` | [`FileSystem`], in terms of these |

mod data;
pub mod format;
mod mount;
mod ops;
pub mod owed;
mod placed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zonal::retry::Retries;
use zonal::{ByteCount, Clock};
use zonal_fs::FsError;
use zonal_fs::furrow::stats::Traffic;
use zonal_fs::vfs::{Access, Caller, FileSystem, Ino, Result, SetAttr, WriteFlags};
use zonal_fs::zonefs::{Group, ZoneFs};

use self::data::memory;
use self::format::{Encoder, Entry, Extent, Head, Kind};
use self::placed::PlacedFiles;

/// The root directory.
const ROOT: u64 = 1;

/// Zone files that hold the name map: the first ones of `seq`.
const MAP_ZONES: u32 = 2;

/// A file system of named files on zonefs.
pub struct ZoneStore {
    zones: ZoneFs,
    clock: Arc<dyn Clock>,
    /// Bytes of a block.
    block: u64,
    created_ns: i64,
    opened_ns: u64,
    /// The access of the mount. A failing drive can make `zones` read-only later: then changes may
    /// remain that are not durable, and a commit is an error.
    rights: Access,
    state: Mutex<State>,
    /// Held during a commit. Taken before `state`.
    journal: Mutex<Journal>,
    /// Files that can be read without `state`. Changed with `state` held.
    placed: PlacedFiles,
}

/// Files and names, as they are now.
#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<(u64, Vec<u8>), u64>,
    next_ino: u64,
    /// Empty zone files that belong to no file.
    free: BTreeSet<u32>,
    /// Zone files of deleted or cut files, to be reset once a commit has made the change durable.
    doomed: BTreeSet<u32>,
    /// Work that the drive has refused: resets of zone files to which the durable map does not
    /// lead; finishes of zone files in which no file grows; closed files to write out; a commit.
    resets: Retries<u32>,
    finishes: Retries<u32>,
    seals: Retries<u64>,
    commits: Retries<()>,
    /// Changes that the map on the drive does not have yet.
    dirty_inodes: BTreeSet<u64>,
    dirty_names: BTreeSet<(u64, Vec<u8>)>,
    /// Whether data was written since the last flush.
    has_written: bool,
    /// Bytes of files that were written to zone files since the store was opened.
    written_bytes: u64,
    /// When the oldest uncommitted change was made.
    dirty_since_ns: Option<i64>,
}

impl State {
    /// Marks a zone for reset: after the next commit the map does not lead to it any more.
    fn doom(&mut self, zone: u32) {
        self.finishes.settle(zone);
        self.doomed.insert(zone);
    }
}

/// A file or a directory.
struct Inode {
    kind: Kind,
    mtime_ns: i64,
    btime_ns: i64,
    /// The written bytes; only the last extent may end inside a block.
    extents: Vec<Extent>,
    /// The bytes after the extents, which no zone has yet.
    buffer: Vec<u8>,
    /// Names; handles; handles for writing.
    links: u32,
    pins: u32,
    writers: u32,
    /// The zone in which the file grows, and the zones reserved for it to grow in next.
    current: Option<u32>,
    reserved: VecDeque<u32>,
}

impl Inode {
    fn new(kind: Kind, now_ns: i64) -> Self {
        Self {
            kind,
            mtime_ns: now_ns,
            btime_ns: now_ns,
            extents: Vec::new(),
            buffer: Vec::new(),
            links: 0,
            pins: 0,
            writers: 0,
            current: None,
            reserved: VecDeque::new(),
        }
    }

    /// Bytes of the file in zones.
    fn placed(&self) -> u64 {
        self.extents.iter().map(|extent| extent.len).sum()
    }

    fn size(&self) -> u64 {
        self.placed() + self.buffer.len() as u64
    }

    fn has_bytes_in(&self, zone: u32) -> bool {
        self.extents.iter().any(|extent| extent.zone == zone)
    }
}

/// The end of the map, where the next record goes.
struct Journal {
    /// Its zone file.
    zone: u32,
    /// Bytes of that zone file in use.
    end: u64,
    generation: u64,
    commit: u64,
    /// The next record has to be a snapshot: the zone may hold more than the known records.
    is_unsure: bool,
    /// Bytes of records that were written since the store was opened.
    written_bytes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ZoneStore {
    /// Commits since the map was made.
    pub fn commits(&self) -> u64 {
        lock(&self.journal).commit
    }

    /// Bytes written to the drive since it was opened. Reclaim is 0: this store never moves data.
    pub fn traffic(&self) -> Traffic {
        let meta = lock(&self.journal).written_bytes;
        Traffic {
            ns: self.clock.monotonic_ns().saturating_sub(self.opened_ns),
            user: lock(&self.state).written_bytes,
            reclaim: 0,
            meta,
        }
    }

    /// The identity of the zonefs.
    pub fn uuid(&self) -> [u8; 16] {
        self.zones.superblock().uuid
    }

    /// The zone file with this number.
    fn zone(&self, number: u32) -> Ino {
        self.zones.file(Group::Sequential, number).expect("zone files are as many as at mount")
    }

    /// Bytes that a zone file holds.
    fn written(&self, number: u32) -> Result<u64> {
        Ok(self.zones.getattr(self.zone(number))?.size)
    }

    /// Bytes that a zone file can hold.
    fn capacity(&self, number: u32) -> u64 {
        self.zones.getattr(self.zone(number)).map_or(0, |attr| attr.blocks * 512)
    }

    /// Bytes that a zone file for data can hold.
    pub(crate) fn zone_capacity(&self) -> ByteCount {
        ByteCount::new(self.capacity(MAP_ZONES))
    }

    /// Sets the size of a zone file: 0 resets it, its capacity finishes it.
    fn set_zone_size(&self, number: u32, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.zones.setattr(&Caller::ROOT, self.zone(number), &set).map(drop)
    }

    /// Refuses changes on a read-only mount.
    fn check_writable(&self) -> Result<()> {
        match self.zones.access() {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(FsError::ReadOnly),
        }
    }

    /// Makes everything durable. On a read-only mount there is nothing to commit. A file whose
    /// bytes could not be written stays dirty, and the commit returns that error. The other changes
    /// become durable all the same: a deletion among them may free the zone that the file needs.
    fn commit(&self) -> Result<()> {
        if self.rights == Access::ReadOnly {
            return Ok(());
        }
        let mut journal = lock(&self.journal);
        let mut state = lock(&self.state);
        let (unplaced, placed) = self.place_all(&mut state);
        let doomed = state.doomed.clone();
        let outcome = match self.make_durable(&mut journal, state, unplaced) {
            Ok(()) => {
                if !doomed.is_empty() {
                    self.placed.wait_for_reads();
                }
                let mut state = lock(&self.state);
                for zone in doomed {
                    // F3: the map does not lead to it any more.
                    state.doomed.remove(&zone);
                    self.empty(&mut state, zone);
                }
                placed
            }
            Err(error) => {
                // The changes that `record` took are not durable: a snapshot has to repeat them.
                journal.is_unsure = true;
                lock(&self.state).has_written = true;
                Err(error)
            }
        };
        let mut state = lock(&self.state);
        match &outcome {
            Ok(()) => state.commits.settle(()),
            Err(_) => {
                state.commits.put_off((), self.clock.monotonic_ns());
            }
        }
        outcome
    }

    /// Makes all changes durable, except bytes of `unplaced` files.
    fn make_durable(
        &self,
        journal: &mut Journal,
        mut state: MutexGuard<'_, State>,
        unplaced: BTreeSet<u64>,
    ) -> Result<()> {
        let is_clean = state.dirty_inodes.is_empty() && state.dirty_names.is_empty();
        if is_clean && !journal.is_unsure {
            return Ok(());
        }
        let record = self.record(&mut state, journal)?;
        state.dirty_inodes = unplaced;
        let has_written = std::mem::take(&mut state.has_written);
        // Writers continue while the drive works.
        drop(state);
        if has_written {
            self.zones.sync()?;
        }
        self.write_record(journal, record)
    }

    /// Writes an empty record behind the last record with entries: if that one goes bad later, the
    /// next mount knows that it was not cut off.
    fn close_map(&self) -> Result<()> {
        let mut journal = lock(&self.journal);
        // If the map has no room, the first record is a snapshot, and a second, empty one has to
        // follow.
        for _ in 0..2 {
            let record = self.record(&mut lock(&self.state), &journal)?;
            let is_empty = !record.1.is_snapshot;
            self.write_record(&mut journal, record)?;
            if is_empty {
                break;
            }
        }
        Ok(())
    }

    /// The next record: the uncommitted changes, or a snapshot if the zone has no room for them.
    fn record(&self, state: &mut State, journal: &Journal) -> Result<(Encoder, Head)> {
        let changes = changes(state, self.block);
        let room = self.capacity(journal.zone) - journal.end;
        let is_snapshot = journal.is_unsure || changes.len() > room;
        let encoder = if is_snapshot { snapshot(state, self.block) } else { changes };
        if encoder.len() > self.capacity(1 - journal.zone) {
            return Err(FsError::NoSpace);
        }
        state.dirty_inodes.clear();
        state.dirty_names.clear();
        state.dirty_since_ns = None;
        let (generation, block) = if is_snapshot {
            (journal.generation + 1, 0)
        } else {
            (journal.generation, u32::try_from(journal.end / self.block).unwrap_or(u32::MAX))
        };
        let head = Head {
            uuid: self.uuid(),
            generation,
            commit: journal.commit + 1,
            created_ns: self.created_ns.cast_unsigned(),
            next_ino: state.next_ino,
            block,
            is_snapshot,
        };
        Ok((encoder, head))
    }

    /// Writes a record and makes it durable. A snapshot goes to the other zone file.
    fn write_record(&self, journal: &mut Journal, (encoder, head): (Encoder, Head)) -> Result<()> {
        let bytes = encoder.finish(&head);
        let (zone, at) = if head.is_snapshot {
            self.set_zone_size(1 - journal.zone, 0)?;
            (1 - journal.zone, 0)
        } else {
            (journal.zone, journal.end)
        };
        match self.write_zone(zone, at, &bytes) {
            Err(FsError::ZoneLimit(_)) if self.finish_one(&mut lock(&self.state), None)? => {
                self.write_zone(zone, at, &bytes)?;
            }
            outcome => outcome?,
        }
        self.zones.sync()?;
        *journal = Journal {
            zone,
            end: at + bytes.len() as u64,
            generation: head.generation,
            commit: head.commit,
            is_unsure: false,
            written_bytes: journal.written_bytes + bytes.len() as u64,
        };
        Ok(())
    }

    /// Writes whole blocks at the end of a zone file, or fails if they do not all fit.
    fn write_zone(&self, number: u32, at: u64, data: &[u8]) -> Result<()> {
        let written = self.zones.write(self.zone(number), at, data, WriteFlags::DIRECT)?;
        if written.len == data.len() as u64 { Ok(()) } else { Err(FsError::NoSpace) }
    }
}

/// Encodes the changes since the last record.
fn changes(state: &State, block: u64) -> Encoder {
    let mut encoder = Encoder::new(block);
    for ino in &state.dirty_inodes {
        if let Some(inode) = state.inodes.get(ino).filter(|inode| inode.links > 0) {
            encoder.push(&said(*ino, inode, block));
        }
    }
    for key in &state.dirty_names {
        let ino = state.names.get(key).copied().unwrap_or(0);
        encoder.push(&Entry::Name { parent: key.0, name: &key.1, ino });
    }
    encoder
}

/// Encodes all inodes and names.
fn snapshot(state: &State, block: u64) -> Encoder {
    let mut encoder = Encoder::new(block);
    for (ino, inode) in state.inodes.iter().filter(|(_, inode)| inode.links > 0) {
        encoder.push(&said(*ino, inode, block));
    }
    for ((parent, name), ino) in &state.names {
        encoder.push(&Entry::Name { parent: *parent, name, ino: *ino });
    }
    encoder
}

/// The map entry of an inode. If the drive refuses bytes of a file, the entry has less than a block
/// of them, as the format requires. No earlier record had more bytes behind the same extents.
fn said(ino: u64, inode: &Inode, block: u64) -> Entry<'_> {
    let tail = inode.buffer.len().min(memory(block) - 1);
    Entry::Inode {
        ino,
        kind: inode.kind,
        mtime_ns: inode.mtime_ns,
        btime_ns: inode.btime_ns,
        extents: inode.extents.clone(),
        tail: &inode.buffer[..tail],
    }
}
