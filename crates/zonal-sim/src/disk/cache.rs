//! The memory of a disk: writes that are not on the platters, and data that reads may want.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::config::Disk;

/// Bytes that follow each other in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) zone: u32,
    pub(super) bytes: Range<u64>,
}

impl Piece {
    pub(super) const fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Whether another piece begins where this one ends.
    const fn meets(&self, next: &Self) -> bool {
        self.zone == next.zone && self.bytes.end == next.bytes.start
    }

    pub(super) const fn overlaps(&self, other: &Self) -> bool {
        self.zone == other.zone
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }

    /// The parts that another piece does not hold.
    pub(super) fn without(&self, other: &Self) -> impl Iterator<Item = Self> {
        let Range { start, end } = self.bytes;
        let (before, behind) = if self.overlaps(other) {
            (start..other.bytes.start, other.bytes.end..end)
        } else {
            (start..end, end..end)
        };
        let zone = self.zone;
        let parts = [before, behind].into_iter().filter(|bytes| bytes.start < bytes.end);
        parts.map(move |bytes| Self { zone, bytes })
    }
}

/// A piece that waits for the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) piece: Piece,
    /// When its first byte arrived, in nanoseconds.
    pub(super) since_ns: u64,
}

/// The place of a piece in the order of arrival: the number of its first write, and its first byte,
/// because a later write may have taken its middle.
pub(super) type Key = (u64, u64);

/// Writes that wait for the head, in the order in which they arrived. A write that goes on where
/// the newest piece ends becomes a part of it; a write over waiting bytes takes their place.
pub(super) struct WriteCache {
    bytes_max: u64,
    pieces_max: usize,
    pieces: BTreeMap<Key, Waiting>,
    bytes: u64,
    next: u64,
    /// Pieces below this number get no more bytes.
    barrier: u64,
}

impl WriteCache {
    pub(super) const fn new(disk: &Disk) -> Self {
        Self {
            bytes_max: disk.write_cache.0,
            pieces_max: disk.write_pieces as usize,
            pieces: BTreeMap::new(),
            bytes: 0,
            next: 0,
            barrier: 0,
        }
    }

    /// Whether it could ever take a write.
    pub(super) const fn takes(&self, piece: &Piece) -> bool {
        piece.len() <= self.bytes_max
    }

    /// Whether it has room for a write now, with `busy` bytes of it on their way to the platters.
    pub(super) fn has_room(&self, piece: &Piece, busy: u64) -> bool {
        let joins = self
            .pieces
            .last_key_value()
            .is_some_and(|(key, last)| key.0 >= self.barrier && last.piece.meets(piece));
        self.bytes + busy + piece.len() <= self.bytes_max
            && (joins || self.pieces.len() < self.pieces_max)
    }

    /// Takes a write.
    pub(super) fn put(&mut self, piece: Piece, now: u64) {
        self.drop_overlapping(&piece);
        self.bytes += piece.len();
        let barrier = self.barrier;
        let last = self.pieces.last_entry().filter(|last| last.key().0 >= barrier);
        match last {
            Some(mut last) if last.get().piece.meets(&piece) => {
                last.get_mut().piece.bytes.end = piece.bytes.end;
            }
            _ => {
                let key = (self.next, piece.bytes.start);
                self.pieces.insert(key, Waiting { piece, since_ns: now });
                self.next += 1;
            }
        }
    }

    /// The number below which all pieces are that are here. Later writes do not join them.
    pub(super) const fn set_barrier(&mut self) -> u64 {
        self.barrier = self.next;
        self.barrier
    }

    /// Whether pieces below a barrier are left.
    pub(super) fn has_below(&self, barrier: u64) -> bool {
        self.pieces.first_key_value().is_some_and(|(key, _)| key.0 < barrier)
    }

    /// The oldest pieces, `most` at most.
    pub(super) fn oldest(&self, most: u32) -> impl Iterator<Item = (Key, &Waiting)> {
        self.pieces.iter().take(most as usize).map(|(key, waiting)| (*key, waiting))
    }

    /// Takes at most `most` bytes from the start of a piece. The rest keeps its place.
    pub(super) fn take(&mut self, key: Key, most: u64) -> Piece {
        let whole = self.pieces.remove(&key).expect("a piece of the cache");
        let Piece { zone, bytes } = whole.piece;
        let cut = bytes.end.min(bytes.start + most);
        if cut < bytes.end {
            let rest = Piece { zone, bytes: cut..bytes.end };
            self.pieces.insert((key.0, cut), Waiting { piece: rest, ..whole });
        }
        self.bytes -= cut - bytes.start;
        Piece { zone, bytes: bytes.start..cut }
    }

    /// The parts of some pieces that do not wait here.
    pub(super) fn missing(&self, parts: Vec<Piece>) -> Vec<Piece> {
        missing(parts, self.pieces.values().map(|waiting| &waiting.piece))
    }

    /// Drops the bytes that a write or a reset makes useless.
    pub(super) fn drop_overlapping(&mut self, written: &Piece) {
        let old = self.pieces.iter().filter(|(_, waiting)| waiting.piece.overlaps(written));
        let old: Vec<Key> = old.map(|(key, _)| *key).collect();
        for key in old {
            let Waiting { piece, since_ns } = self.pieces.remove(&key).expect("it was found");
            self.bytes -= piece.len();
            for rest in piece.without(written) {
                self.bytes += rest.len();
                let key = (key.0, rest.bytes.start);
                self.pieces.insert(key, Waiting { piece: rest, since_ns });
            }
        }
    }
}

/// The parts that none of some pieces holds.
pub(super) fn missing<'a>(parts: Vec<Piece>, held: impl Iterator<Item = &'a Piece>) -> Vec<Piece> {
    held.fold(parts, |parts, held| {
        if parts.iter().any(|part| part.overlaps(held)) {
            parts.iter().flat_map(|part| part.without(held)).collect()
        } else {
            parts
        }
    })
}

/// Data of reads and of reading ahead, one range for each sequential reader.
pub(super) struct ReadCache {
    most: usize,
    segments: VecDeque<Piece>,
}

impl ReadCache {
    pub(super) const fn new(disk: &Disk) -> Self {
        Self { most: disk.read_segments as usize, segments: VecDeque::new() }
    }

    /// The parts of some pieces that are not here.
    pub(super) fn missing(&self, parts: Vec<Piece>) -> Vec<Piece> {
        missing(parts, self.segments.iter())
    }

    /// Adds data that was read. At most `most` bytes of a sequential reader stay.
    pub(super) fn put(&mut self, read: &Piece, most: u64) {
        let joins = self.segments.iter().position(|segment| {
            segment.zone == read.zone
                && segment.bytes.start <= read.bytes.start
                && read.bytes.start <= segment.bytes.end
        });
        let mut segment = match joins {
            Some(at) => {
                let mut segment = self.segments.remove(at).expect("it was found");
                segment.bytes.end = segment.bytes.end.max(read.bytes.end);
                segment
            }
            None => read.clone(),
        };
        segment.bytes.start = segment.bytes.start.max(segment.bytes.end.saturating_sub(most));
        self.segments.push_back(segment);
        if self.segments.len() > self.most {
            self.segments.pop_front();
        }
    }

    /// Forgets data that a write or a reset has changed.
    pub(super) fn forget(&mut self, written: &Piece) {
        if self.segments.iter().any(|segment| segment.overlaps(written)) {
            let rest = self.segments.iter().flat_map(|segment| segment.without(written));
            self.segments = rest.collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(zone: u32, bytes: Range<u64>) -> Piece {
        Piece { zone, bytes }
    }

    fn all(cache: &WriteCache) -> Vec<Piece> {
        cache.oldest(u32::MAX).map(|(_, waiting)| waiting.piece.clone()).collect()
    }

    #[test]
    fn writes_that_go_on_become_one_piece() {
        let mut cache = WriteCache::new(&Disk::default());
        for at in 0..4 {
            cache.put(piece(1, at * 10..at * 10 + 10), at);
        }
        cache.put(piece(2, 0..10), 4);
        cache.put(piece(1, 40..50), 5);
        assert_eq!(all(&cache), [piece(1, 0..40), piece(2, 0..10), piece(1, 40..50)]);
        assert_eq!(cache.missing(vec![piece(1, 35..60)]), [piece(1, 50..60)]);
        let (first, waiting) = cache.oldest(1).next().unwrap();
        assert_eq!(waiting.since_ns, 0);
        assert_eq!(cache.take(first, 25), piece(1, 0..25));
        assert_eq!(all(&cache), [piece(1, 25..40), piece(2, 0..10), piece(1, 40..50)]);
        assert_eq!(cache.bytes, 35);
    }

    #[test]
    fn write_takes_the_place_of_waiting_bytes() {
        let mut cache = WriteCache::new(&Disk::default());
        cache.put(piece(0, 0..100), 0);
        cache.put(piece(1, 0..10), 1);
        cache.put(piece(0, 20..30), 2);
        let waiting = [piece(0, 0..20), piece(0, 30..100), piece(1, 0..10), piece(0, 20..30)];
        assert_eq!(all(&cache), waiting, "what is left keeps its age");
        assert_eq!(cache.bytes, 110);
        cache.drop_overlapping(&piece(0, 0..1 << 30));
        assert_eq!((all(&cache), cache.bytes), (vec![piece(1, 0..10)], 10));
    }

    #[test]
    fn writes_behind_barrier_are_pieces_of_their_own() {
        let mut cache = WriteCache::new(&Disk::default());
        cache.put(piece(0, 0..10), 0);
        let barrier = cache.set_barrier();
        cache.put(piece(0, 10..20), 1);
        assert_eq!(all(&cache), [piece(0, 0..10), piece(0, 10..20)]);
        let (first, _) = cache.oldest(1).next().unwrap();
        assert!(cache.has_below(barrier));
        cache.take(first, 10);
        assert!(!cache.has_below(barrier));
        assert_eq!(all(&cache), [piece(0, 10..20)]);
    }

    #[test]
    fn cache_has_room_by_bytes_and_by_pieces() {
        let disk = Disk { write_pieces: 2, write_cache: crate::Size(100), ..Disk::default() };
        let mut cache = WriteCache::new(&disk);
        assert!(cache.takes(&piece(0, 0..100)) && !cache.takes(&piece(0, 0..101)));
        cache.put(piece(0, 0..10), 0);
        cache.put(piece(1, 0..10), 0);
        assert!(cache.has_room(&piece(1, 10..90), 0), "it joins a piece");
        assert!(!cache.has_room(&piece(1, 10..91), 0), "too many bytes");
        assert!(!cache.has_room(&piece(1, 10..90), 1), "bytes on their way");
        assert!(!cache.has_room(&piece(2, 0..1), 0), "a third piece");
    }

    #[test]
    fn read_cache_keeps_the_end_of_each_reader() {
        let mut cache = ReadCache::new(&Disk { read_segments: 2, ..Disk::default() });
        cache.put(&piece(0, 0..10), 15);
        cache.put(&piece(0, 10..20), 15);
        assert_eq!(cache.missing(vec![piece(0, 4..20)]), [piece(0, 4..5)]);
        cache.put(&piece(1, 0..10), 15);
        cache.put(&piece(2, 0..10), 15);
        assert_eq!(cache.missing(vec![piece(0, 10..20), piece(1, 0..10)]), [piece(0, 10..20)]);
        cache.forget(&piece(1, 4..6));
        assert_eq!(cache.missing(vec![piece(1, 0..10)]), [piece(1, 4..6)]);
    }
}
