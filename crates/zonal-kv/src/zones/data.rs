//! Bytes of files: written, read, cut, sealed.

use std::collections::BTreeSet;
use std::ops::Range;

use zonal_fs::FsError;
use zonal_fs::vfs::{Access, FileSystem, Result};

use super::format::{Extent, Kind};
use super::owed::{ATTEMPTS, at_once};
use super::{State, ZoneStore, lock};

/// Bytes that a file gathers before it writes them.
const GATHER: usize = 256 << 10;

/// Attempts of one write: two in the current zone file, then others in other zone files.
const WRITES: usize = 4;

impl ZoneStore {
    /// Adds bytes to the end of a file. When it returns, zones for all of them are reserved. After
    /// an error the file has none of them. If the drive refuses the write, the bytes stay in
    /// memory, and a later write, commit or close tries it again.
    pub(super) fn grow(&self, state: &mut State, ino: u64, data: &[u8]) -> Result<()> {
        if file(state, ino)?.buffer.len() >= GATHER {
            // The drive has refused these bytes before. So at most these and one more write wait in
            // memory.
            self.place(state, ino)?;
        }
        self.reserve(state, ino, data.len() as u64)?;
        self.reopen_tail(state, ino)?;
        let now = self.clock.wall_ns();
        let inode = file(state, ino)?;
        inode.buffer.extend_from_slice(data);
        inode.mtime_ns = now;
        let gathered = inode.buffer.len();
        self.touch(state, ino);
        if gathered >= GATHER
            && let Err(error) = self.place(state, ino)
        {
            tracing::warn!(ino, %error, "what was written to a file stays in memory for now");
        }
        Ok(())
    }

    /// Marks a file as changed since the last record of the map.
    pub(super) fn touch(&self, state: &mut State, ino: u64) {
        self.placed.remove(ino);
        state.dirty_inodes.insert(ino);
        state.dirty_since_ns.get_or_insert_with(|| self.clock.wall_ns());
    }

    /// Reads the bytes of a padded last block back into memory, so that the file can grow there.
    fn reopen_tail(&self, state: &mut State, ino: u64) -> Result<()> {
        let block = self.block;
        let inode = file(state, ino)?;
        let Some(last) = inode.extents.last_mut() else { return Ok(()) };
        let over = last.len % block;
        if over == 0 {
            return Ok(());
        }
        let mut tail = vec![0; memory(over)];
        self.read_zone(last.zone, last.start + last.len - over, &mut tail)?;
        last.len -= over;
        let zone = last.zone;
        inode.buffer = tail;
        inode.extents.retain(|extent| extent.len > 0);
        if !inode.has_bytes_in(zone) {
            inode.retire(zone);
            state.doom(zone);
        }
        self.touch(state, ino);
        Ok(())
    }

    /// Reserves as many zones as a file needs for its bytes and `more`, or none.
    fn reserve(&self, state: &mut State, ino: u64, more: u64) -> Result<()> {
        let inode = file(state, ino)?;
        // The bytes of a padded last block are written again.
        let tail = inode.extents.last().map_or(0, |last| last.len % self.block);
        let bytes = tail + inode.buffer.len() as u64 + more;
        if inode.placed() == tail && bytes < self.block {
            return Ok(());
        }
        let need = bytes.next_multiple_of(self.block);
        let mut room: u64 = inode.reserved.iter().map(|zone| self.capacity(*zone)).sum();
        if let Some(zone) = inode.current {
            room += self.capacity(zone) - self.written(zone)?;
        }
        let mut taken = Vec::new();
        while room < need {
            match self.take_zone(state) {
                Ok(zone) => {
                    room += self.capacity(zone);
                    taken.push(zone);
                }
                Err(error) => {
                    state.free.extend(taken);
                    return Err(error);
                }
            }
        }
        file(state, ino)?.reserved.extend(taken);
        Ok(())
    }

    fn take_zone(&self, state: &mut State) -> Result<u32> {
        let mut refused = at_once(&state.resets).into_iter();
        loop {
            while let Some(zone) = state.free.pop_first() {
                if self.is_good(zone) {
                    return Ok(zone);
                }
            }
            let zone = refused.next().ok_or(FsError::NoSpace)?;
            self.empty(state, zone);
        }
    }

    /// Writes the whole blocks of every changed file. Returns the files that have blocks left in
    /// memory, and the first error.
    pub(super) fn place_all(&self, state: &mut State) -> (BTreeSet<u64>, Result<()>) {
        let dirty: Vec<u64> = state.dirty_inodes.iter().copied().collect();
        let (mut left, mut outcome) = (BTreeSet::new(), Ok(()));
        for ino in dirty {
            let inode = state.inodes.get(&ino);
            if inode.is_some_and(|inode| inode.links > 0 && inode.kind == Kind::File)
                && let Err(error) = self.place(state, ino)
            {
                left.insert(ino);
                outcome = outcome.and(Err(error));
            }
        }
        (left, outcome)
    }

    /// Writes the whole blocks of a file's buffer.
    fn place(&self, state: &mut State, ino: u64) -> Result<()> {
        let len = file(state, ino)?.buffer.len();
        self.write_out(state, ino, len - len % memory(self.block))
    }

    /// Writes `len` bytes of a file's buffer, in whole blocks.
    fn write_out(&self, state: &mut State, ino: u64, len: usize) -> Result<()> {
        let mut done = 0;
        let mut outcome = Ok(());
        while done < len && outcome.is_ok() {
            outcome = self.write_part(state, ino, done..len).map(|part| done += part);
        }
        file(state, ino)?.buffer.drain(..done);
        outcome
    }

    /// Writes the first bytes of a range of the buffer, as many as fit in one zone, and returns
    /// their number.
    fn write_part(&self, state: &mut State, ino: u64, range: Range<usize>) -> Result<usize> {
        let mut failed = 0;
        loop {
            let (zone, at, room) = self.room(state, ino)?;
            state.has_written = true;
            let inode = file(state, ino)?;
            let part = range.len().min(memory(room));
            match self.write_zone(zone, at, &inode.buffer[range.start..range.start + part]) {
                Ok(()) => {
                    inode.place_extent(Extent { zone, start: at, len: part as u64 });
                    state.written_bytes += part as u64;
                    return Ok(part);
                }
                Err(error @ FsError::ZoneLimit(_)) => {
                    if !self.finish_one(state, Some(ino))? {
                        return Err(error);
                    }
                }
                Err(error) => {
                    tracing::warn!(zone, %error, "a zone file cannot be written");
                    failed += 1;
                    if failed == WRITES || self.zones.access() == Access::ReadOnly {
                        return Err(error);
                    }
                    if failed > 1 || !self.is_good(zone) {
                        self.go_elsewhere(state, ino, zone)?;
                    }
                }
            }
        }
    }

    /// Moves the end of a file to another zone; its written bytes stay readable. If no zone is
    /// free, the file stays where it is, because it has reserved the room there for its bytes.
    fn go_elsewhere(&self, state: &mut State, ino: u64, zone: u32) -> Result<()> {
        match self.take_zone(state) {
            Ok(next) => file(state, ino)?.reserved.push_back(next),
            Err(FsError::NoSpace) if self.is_good(zone) => return Ok(()),
            Err(FsError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        self.leave(state, ino);
        Ok(())
    }

    /// Makes room for another active zone: finishes the zone with the least remaining space, of all
    /// files except `but`, and returns whether it found one. The file of that zone reserves another
    /// zone first. Zones in which no file grows come first.
    pub(super) fn finish_one(&self, state: &mut State, but: Option<u64>) -> Result<bool> {
        if self.finish_unused(state) {
            return Ok(true);
        }
        let mut others = Vec::new();
        for (ino, inode) in state.inodes.iter().filter(|(ino, _)| Some(**ino) != but) {
            if let Some(zone) = inode.current.filter(|zone| self.is_active(*zone)) {
                others.push((self.capacity(zone) - self.written(zone)?, *ino, zone));
            }
        }
        others.sort_unstable();
        let mut outcome = Ok(false);
        for (_, ino, zone) in others.into_iter().take(ATTEMPTS) {
            if !file(state, ino)?.has_bytes_in(zone) {
                // The zone has only the remains of a failed write: its file can begin at its start
                // again.
                match self.set_zone_size(zone, 0) {
                    Ok(()) => return Ok(true),
                    Err(error) => outcome = Err(error),
                }
                continue;
            }
            // The gathered bytes of the file need a place after that too.
            let next = self.take_zone(state)?;
            if let Err(error) = self.set_zone_size(zone, self.capacity(zone)) {
                // The file keeps this zone; another zone may be finished instead.
                state.free.insert(next);
                outcome = Err(error);
                continue;
            }
            let inode = file(state, ino)?;
            inode.reserved.push_back(next);
            inode.retire(zone);
            tracing::debug!(
                zone,
                ino,
                "a zone file is filled up: the drive has too few active zones"
            );
            return Ok(true);
        }
        outcome
    }

    /// The zone file in which a file grows, the end of that zone file, and its remaining bytes.
    fn room(&self, state: &mut State, ino: u64) -> Result<(u32, u64, u64)> {
        loop {
            let inode = file(state, ino)?;
            if let Some(zone) = inode.current {
                let (at, capacity) = (self.written(zone)?, self.capacity(zone));
                if at < capacity {
                    return Ok((zone, at, capacity - at));
                }
            }
            let next = match inode.reserved.pop_front() {
                Some(zone) => zone,
                None => self.take_zone(state)?,
            };
            file(state, ino)?.current = Some(next);
        }
    }

    /// Closes a file that has no writer any more: pads its last block with zeroes, and finishes its
    /// zone, which then takes no active resources of the drive. The caller can repeat it after an
    /// error.
    pub(super) fn seal(&self, state: &mut State, ino: u64) -> Result<()> {
        let block = memory(self.block);
        let inode = file(state, ino)?;
        if inode.links > 0 && (!inode.extents.is_empty() || inode.buffer.len() >= block) {
            let len = inode.buffer.len();
            let fill = len.next_multiple_of(block) - len;
            inode.buffer.resize(len + fill, 0);
            let written = self.write_out(state, ino, len + fill);
            let inode = file(state, ino)?;
            if written.is_ok() && fill > 0 {
                let last = inode.extents.last_mut().expect("a block was written");
                last.len -= fill as u64;
            } else {
                let left = inode.buffer.len().saturating_sub(fill);
                inode.buffer.truncate(left);
            }
            if len > 0 {
                self.touch(state, ino);
            }
            written?;
        }
        let unused = std::mem::take(&mut file(state, ino)?.reserved);
        state.free.extend(unused);
        self.leave(state, ino);
        Ok(())
    }

    /// Shortens a file to `size` bytes.
    pub(super) fn cut(&self, state: &mut State, ino: u64, size: u64) -> Result<()> {
        let inode = file(state, ino)?;
        let placed = inode.placed();
        if size > inode.size() {
            return Err(FsError::Unsupported { what: "files on zonefs with holes" });
        }
        let now = self.clock.wall_ns();
        self.touch(state, ino);
        let inode = file(state, ino)?;
        inode.mtime_ns = now;
        inode.buffer.truncate(memory(size.saturating_sub(placed)));
        if size >= placed {
            return Ok(());
        }
        // The last block may be partly used now. The next append reads it back into memory.
        let before: BTreeSet<u32> = inode.extents.iter().map(|extent| extent.zone).collect();
        let mut left = size;
        inode.extents.retain_mut(|extent| {
            extent.len = extent.len.min(left);
            left -= extent.len;
            extent.len > 0
        });
        let used: BTreeSet<u32> = inode.extents.iter().map(|extent| extent.zone).collect();
        for zone in before.difference(&used) {
            file(state, ino)?.retire(*zone);
            state.doom(*zone);
        }
        Ok(())
    }

    /// Reads into `buffer` from `offset` on and returns the number of bytes.
    pub(super) fn read_file(&self, ino: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        {
            let placed = self.placed.begin_read();
            if let Some(extents) = placed.extents(ino) {
                return self.read_parts(parts(extents, offset, buffer.len()), buffer);
            }
        }
        let mut state = lock(&self.state);
        let inode = file(&mut state, ino)?;
        let found = parts(&inode.extents, offset, buffer.len());
        let (in_zones, size) = (inode.placed(), inode.size());
        let end = size.min(offset.saturating_add(buffer.len() as u64));
        let from = offset.max(in_zones);
        if from < end {
            let bytes = &inode.buffer[memory(from - in_zones)..memory(end - in_zones)];
            buffer[memory(from - offset)..memory(end - offset)].copy_from_slice(bytes);
        }
        let _placed = self.placed.begin_read();
        drop(state);
        self.read_parts(found, buffer)?;
        Ok(memory(end.saturating_sub(offset)))
    }

    /// Reads parts of zone files and returns the end of the last one in the buffer.
    fn read_parts(&self, parts: Vec<Part>, buffer: &mut [u8]) -> Result<usize> {
        let mut end = 0;
        for Part { zone, start, place } in parts {
            end = place.end;
            self.read_zone(zone, start, &mut buffer[place])?;
        }
        Ok(end)
    }

    /// Reads from byte `at` of a zone file, until the buffer is full.
    fn read_zone(&self, zone: u32, at: u64, buffer: &mut [u8]) -> Result<()> {
        if self.zones.read(self.zone(zone), at, buffer)? == buffer.len() {
            return Ok(());
        }
        let why = format!("zone file seq/{zone} has fewer bytes than the name map says");
        Err(FsError::Corrupt { what: "a file", why })
    }
}

impl super::Inode {
    fn place_extent(&mut self, new: Extent) {
        match self.extents.last_mut() {
            Some(last) if last.zone == new.zone && last.start + last.len == new.start => {
                last.len += new.len;
            }
            Some(_) | None => self.extents.push(new),
        }
    }

    /// Stops growing the file in this zone.
    fn retire(&mut self, zone: u32) {
        if self.current == Some(zone) {
            self.current = None;
        }
    }
}

/// Bytes of a zone file that go into a buffer.
struct Part {
    zone: u32,
    start: u64,
    place: Range<usize>,
}

/// The parts of zone files that a read of `len` bytes at `offset` needs.
fn parts(extents: &[Extent], offset: u64, len: usize) -> Vec<Part> {
    let end = offset.saturating_add(len as u64);
    let mut parts = Vec::new();
    let mut at = 0;
    for extent in extents {
        let (from, to) = (offset.max(at), end.min(at + extent.len));
        if from < to {
            let place = memory(from - offset)..memory(to - offset);
            parts.push(Part { zone: extent.zone, start: extent.start + from - at, place });
        }
        at += extent.len;
    }
    parts
}

/// A file by its number.
pub(super) fn file(state: &mut State, ino: u64) -> Result<&mut super::Inode> {
    let inode = state.inodes.get_mut(&ino).ok_or(FsError::NotFound)?;
    match inode.kind {
        Kind::File => Ok(inode),
        Kind::Directory => Err(FsError::IsDirectory),
    }
}

/// A length as `usize`.
pub(super) fn memory(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
