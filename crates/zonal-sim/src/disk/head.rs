//! The head of a disk: one operation at a time, and reading on behind a read.

use super::account::{Account, Position};
use super::cache::{Piece, ReadCache};
use super::platters::{Access, Place, Platters, Way};
use crate::config::{DISK_BLOCK_BYTES, Disk};

/// A time or a span, in nanoseconds.
type Ns = u64;

/// Reading on behind a read.
#[derive(Clone, Copy)]
struct Ahead {
    zone: u32,
    /// The byte below the head at `since_ns`.
    from: u64,
    since_ns: Ns,
    /// Where the disk stops.
    limit: u64,
    /// The first byte of the zone that was never written.
    written: u64,
}

/// Something that the head moves to or from the platters.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) access: Access,
    pub(super) piece: Piece,
    /// The first byte of its zone that was never written.
    pub(super) written: u64,
}

/// The head, with the data that it has read.
pub(super) struct Head {
    platters: Platters,
    read_ahead: u64,
    reads: ReadCache,
    /// Data of the operation that goes on, which the cache has when it ends.
    arriving: Vec<Piece>,
    arm: Place,
    /// The zone and the end of the last operation, if that was a write.
    written: Option<(u32, u64)>,
    ahead: Option<Ahead>,
    free_ns: Ns,
    pub(super) account: Account,
}

impl Head {
    pub(super) fn new(disk: &Disk, zone_bytes: u64) -> Self {
        Self {
            platters: Platters::new(disk, zone_bytes),
            read_ahead: disk.read_ahead.0,
            reads: ReadCache::new(disk),
            arriving: Vec::new(),
            arm: Place::START,
            written: None,
            ahead: None,
            free_ns: 0,
            account: Account::default(),
        }
    }

    /// When the last operation ends.
    pub(super) const fn free_ns(&self) -> Ns {
        self.free_ns
    }

    /// Where the last operation ended, if it was a write.
    pub(super) const fn written(&self) -> Option<(u32, u64)> {
        self.written
    }

    /// When everything is on the platters that the head has begun to write.
    pub(super) fn settled_ns(&self, now: Ns) -> Ns {
        if self.written.is_some() { now.max(self.free_ns) } else { now }
    }

    /// The parts of a read that the cache does not have at `now`. Reading on then stops later: the
    /// reader has come nearer to its end.
    pub(super) fn missing(&mut self, now: Ns, parts: Vec<Piece>) -> Vec<Piece> {
        self.catch_up(now);
        if let (Some(ahead), Some(last)) = (&mut self.ahead, parts.last())
            && last.zone == ahead.zone
            && last.bytes.end <= ahead.from
        {
            let was_there = ahead.from == ahead.limit;
            let limit = last.bytes.end + self.read_ahead;
            ahead.limit = ahead.limit.max(limit.min(ahead.written));
            if was_there && ahead.limit > ahead.from {
                // It stopped there, and waits until the place comes by again.
                let to = self.platters.place(ahead.zone, ahead.from);
                ahead.since_ns = now + self.platters.way(now, self.arm, to, Access::Read).ns();
            }
        }
        self.reads.missing(parts)
    }

    /// Leaves out the parts of reads that the cache has at `now`.
    pub(super) fn trim(&mut self, now: Ns, transfers: &mut Vec<Transfer>) {
        self.catch_up(now);
        let reads = &self.reads;
        let trimmed = transfers.iter().flat_map(|transfer| {
            let piece = vec![transfer.piece.clone()];
            let parts = if transfer.access == Access::Read { reads.missing(piece) } else { piece };
            parts.into_iter().map(|piece| Transfer { piece, ..transfer.clone() })
        });
        *transfers = trimmed.collect();
    }

    /// A write or a reset changes bytes.
    pub(super) fn forget(&mut self, now: Ns, changed: &Piece) {
        self.catch_up(now);
        self.reads.forget(changed);
        self.arriving.retain(|piece| !piece.overlaps(changed));
        if let Some(ahead) = &mut self.ahead
            && ahead.zone == changed.zone
        {
            ahead.limit = ahead.limit.min(changed.bytes.start);
            ahead.written = ahead.written.min(changed.bytes.start);
            if ahead.limit < ahead.from {
                self.ahead = None;
            }
        }
    }

    /// The time until the head can begin with a transfer.
    pub(super) fn way_ns(&self, now: Ns, piece: &Piece, access: Access) -> Ns {
        self.way(now, piece, access).ns()
    }

    fn way(&self, now: Ns, piece: &Piece, access: Access) -> Way {
        if self.reading_on_at(piece, access).is_some() {
            return Way::default();
        }
        let to = self.platters.place(piece.zone, piece.bytes.start);
        self.platters.way(now, self.arm, to, access)
    }

    /// Reading on, if it has come to just this piece.
    fn reading_on_at(&self, piece: &Piece, access: Access) -> Option<Ahead> {
        self.ahead.filter(|ahead| {
            access == Access::Read
                && ahead.zone == piece.zone
                && ahead.from == piece.bytes.start
                && ahead.from < ahead.limit
        })
    }

    /// Performs transfers one after the other, from `now` on; returns when the last one ends.
    pub(super) fn perform(&mut self, now: Ns, transfers: &[Transfer]) -> Ns {
        self.catch_up(now);
        self.free_ns = now;
        for transfer in transfers {
            let Transfer { access, piece, written } = transfer;
            let begin = self.free_ns;
            let way = self.way(begin, piece, *access);
            // Reading on, the head may be inside of the first block already.
            let ahead = self.reading_on_at(piece, *access);
            let moves_from = ahead.map_or(begin + way.ns(), |ahead| ahead.since_ns);
            let Piece { zone, bytes } = piece;
            let moved = self.platters.transfer_ns(*zone, bytes.start, piece.len());
            let share = self.platters.share(self.platters.place(*zone, bytes.start));
            let position = Position { at_ns: begin, share };
            self.account.operate(position, way, moved, piece.len(), *access);
            self.free_ns = begin.max(moves_from + moved);
            self.arm = self.platters.place(*zone, bytes.end - 1);
            self.written = (*access == Access::Write).then_some((*zone, bytes.end));
            self.ahead = (*access == Access::Read).then(|| Ahead {
                zone: *zone,
                from: bytes.end,
                since_ns: self.free_ns,
                limit: (bytes.end + self.read_ahead).min(*written),
                written: *written,
            });
            if *access == Access::Read {
                self.arriving.push(piece.clone());
            }
        }
        self.free_ns
    }

    /// Puts data into the cache that the head has read by `now`.
    fn catch_up(&mut self, now: Ns) {
        if now < self.free_ns {
            return;
        }
        for piece in std::mem::take(&mut self.arriving) {
            self.reads.put(&piece, self.read_ahead.max(piece.len()));
        }
        let Some(ahead) = &mut self.ahead else { return };
        let passed = self.platters.passed_bytes(ahead.zone, now.saturating_sub(ahead.since_ns));
        let most = (ahead.limit - ahead.from).min(passed / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES);
        if most > 0 {
            let read = Piece { zone: ahead.zone, bytes: ahead.from..ahead.from + most };
            ahead.since_ns += self.platters.transfer_ns(ahead.zone, ahead.from, most);
            ahead.from += most;
            self.arm = self.platters.place(read.zone, read.bytes.end - 1);
            self.reads.put(&read, self.read_ahead);
        }
    }
}
