//! The order in which the one arm of a disk serves commands, and the time that each takes.
//!
//! Commands arrive in the order of time. The head is busy with one operation at a time; when it
//! ends, it takes the command that it reaches first, among the oldest
//! [`queue`](crate::config::Disk::queue) ones. Reads go before the pieces of the write cache, but
//! when a command waits for the write cache (a flush, or a write that finds no room), reads and
//! pieces take turns.
//! Behind a read the disk reads on, until another operation begins.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::account::{Account, Position};
use super::cache::{Piece, ReadCache, Waiting, WriteCache};
use super::platters::{Access, Place, Platters, Way};
use crate::config::{DISK_BLOCK_BYTES, Disk};
use crate::controller::ns;

/// A time or a span, in nanoseconds.
type Ns = u64;

/// The name of a command, by which its end is told.
pub(super) type Tag = u64;

/// A command that needs the head.
struct Command {
    tag: Tag,
    access: Access,
    arrived_ns: Ns,
    pieces: Vec<Piece>,
}

/// A write that waits for room in the write cache.
struct Queued {
    tag: Tag,
    arrived_ns: Ns,
    piece: Piece,
}

/// A flush that waits for all pieces of the write cache that were there when it arrived.
struct Flush {
    tag: Tag,
    arrived_ns: Ns,
}

/// An operation that the head may begin.
enum Next {
    /// The command at this place of those that wait.
    Command(usize),
    /// A piece of the write cache.
    Piece(u64),
}

/// Reading on behind a read.
#[derive(Clone, Copy)]
struct Ahead {
    zone: u32,
    /// The byte below the head at `since_ns`.
    from: u64,
    since_ns: Ns,
    /// Where the disk stops.
    limit: u64,
}

/// The arm of a disk, and the commands that wait for it.
pub(super) struct Schedule {
    disk: Disk,
    pub(super) platters: Platters,
    writes: WriteCache,
    reads: ReadCache,
    waiting: Vec<Command>,
    without_room: VecDeque<Queued>,
    flushes: Vec<Flush>,
    /// Ends of commands that are known.
    ends: BinaryHeap<Reverse<(Ns, Tag)>>,
    arm: Place,
    /// The last operation of the head; `ahead` if it was a read, behind which the disk reads on.
    last: Access,
    /// Where the last write of the head ended.
    written: (u32, u64),
    ahead: Option<Ahead>,
    /// When the last operation of the head ends, and the bytes of the write cache that it writes.
    free_ns: Ns,
    destaged_bytes: u64,
    account: Account,
}

impl Schedule {
    pub(super) fn new(disk: &Disk, zone_bytes: u64) -> Self {
        Self {
            disk: disk.clone(),
            platters: Platters::new(disk, zone_bytes),
            writes: WriteCache::new(disk),
            reads: ReadCache::new(disk),
            waiting: Vec::new(),
            without_room: VecDeque::new(),
            flushes: Vec::new(),
            ends: BinaryHeap::new(),
            arm: Place::START,
            last: Access::Read,
            written: (0, 0),
            ahead: None,
            free_ns: 0,
            destaged_bytes: 0,
            account: Account::default(),
        }
    }

    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    pub(super) const fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    /// A read of written data arrives. `unwritten` bytes of it lie behind write pointers.
    pub(super) fn read(&mut self, tag: Tag, now: Ns, pieces: Vec<Piece>, unwritten: u64) {
        self.run(now);
        self.read_on(now);
        let bytes: u64 = pieces.iter().map(Piece::len).sum();
        let is_cached =
            pieces.iter().all(|piece| self.reads.holds(piece) || self.writes.holds(piece));
        if is_cached {
            self.follow_reader(&pieces);
            self.account.cache_hits += u64::from(bytes > 0);
            let moved = transfer_ns(bytes, self.disk.link_mb_s)
                + transfer_ns(unwritten, self.disk.unwritten_mb_s);
            self.end(tag, now + self.command_ns() + moved);
        } else {
            self.waiting.push(Command { tag, access: Access::Read, arrived_ns: now, pieces });
        }
    }

    /// A write arrives.
    pub(super) fn write(&mut self, tag: Tag, now: Ns, piece: Piece) {
        self.run(now);
        self.reads.forget(&piece);
        if !self.writes.takes(&piece) {
            self.writes.drop_overlapping(&piece);
            let pieces = vec![piece];
            self.waiting.push(Command { tag, access: Access::Write, arrived_ns: now, pieces });
            self.admit(now.max(self.free_ns));
            return;
        }
        let busy = if now < self.free_ns { self.destaged_bytes } else { 0 };
        if self.without_room.is_empty() && self.writes.has_room(&piece, busy) {
            self.accept(tag, now, piece);
        } else {
            self.without_room.push_back(Queued { tag, arrived_ns: now, piece });
            self.admit(self.free_ns);
        }
    }

    /// A flush arrives.
    pub(super) fn flush(&mut self, tag: Tag, now: Ns) {
        self.run(now);
        let writes_last = self.last == Access::Write && self.free_ns > now;
        if self.writes.is_empty() && self.without_room.is_empty() && !writes_last {
            self.end(tag, now + self.command_ns());
        } else if self.writes.is_empty() && self.without_room.is_empty() {
            self.end(tag, self.free_ns + self.command_ns());
        } else {
            self.flushes.push(Flush { tag, arrived_ns: now });
        }
    }

    /// A command arrives that needs no head and takes so long.
    pub(super) fn other(&mut self, tag: Tag, now: Ns, takes: Ns) {
        self.run(now);
        self.end(tag, now + takes);
    }

    /// A zone loses its data.
    pub(super) fn reset(&mut self, now: Ns, zone: u32) {
        self.run(now);
        let all = Piece { zone, bytes: 0..u64::MAX };
        self.writes.drop_overlapping(&all);
        self.reads.forget(&all);
        self.admit(now.max(self.free_ns));
        self.end_flushes(now);
    }

    /// The next command that ends, if it ends at `until` or before, and no command arrives before
    /// that.
    pub(super) fn next_end(&mut self, until: Ns) -> Option<(Tag, Ns)> {
        loop {
            let known = self.ends.peek().map(|Reverse(end)| *end);
            let is_idle =
                self.waiting.is_empty() && self.without_room.is_empty() && self.flushes.is_empty();
            // An operation that begins before the end that is known may end before it.
            let start = self.next_start().filter(|_| !is_idle);
            match (known, start) {
                (Some((end, tag)), start) if start.is_none_or(|start| start >= end) => {
                    if end > until {
                        return None;
                    }
                    self.ends.pop();
                    return Some((tag, end));
                }
                (_, Some(start)) if start <= until => self.operate(start),
                _ => return None,
            }
        }
    }

    fn command_ns(&self) -> Ns {
        ns(self.disk.command_us)
    }

    fn end(&mut self, tag: Tag, at: Ns) {
        self.ends.push(Reverse((at, tag)));
    }

    /// The write cache takes a write.
    fn accept(&mut self, tag: Tag, now: Ns, piece: Piece) {
        let moved = transfer_ns(piece.len(), self.disk.link_mb_s);
        self.writes.put(piece, now);
        self.end(tag, now + self.command_ns() + moved);
    }

    /// Performs the operations of the head that begin at `until` or before.
    fn run(&mut self, until: Ns) {
        while let Some(start) = self.next_start().filter(|start| *start <= until) {
            self.operate(start);
        }
    }

    /// When the head begins its next operation.
    fn next_start(&self) -> Option<Ns> {
        let piece = self.writes.oldest(1).next().map(|(_, waiting)| waiting.since_ns);
        let commands = self.waiting.iter().map(|command| command.arrived_ns);
        let first = commands.chain(piece).min()?;
        Some(first.max(self.free_ns))
    }

    /// Lets the disk read on behind the last read, up to `now`.
    fn read_on(&mut self, now: Ns) {
        let Some(ahead) = &mut self.ahead else { return };
        let passed = self.platters.passed_bytes(ahead.zone, now.saturating_sub(ahead.since_ns));
        let end = (ahead.from + passed / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES).min(ahead.limit);
        if end > ahead.from {
            let read = Piece { zone: ahead.zone, bytes: ahead.from..end };
            (ahead.from, ahead.since_ns) = (end, now);
            self.arm = self.platters.place(read.zone, end - 1);
            self.reads.put(&read, self.disk.read_ahead.0);
        }
    }

    /// Moves the end of reading on away from a reader that got its data from the read cache.
    fn follow_reader(&mut self, pieces: &[Piece]) {
        let (Some(ahead), Some(last)) = (&mut self.ahead, pieces.last()) else { return };
        let is_reader = last.zone == ahead.zone && last.bytes.end <= ahead.from;
        if is_reader {
            let limit = last.bytes.end + self.disk.read_ahead.0;
            ahead.limit = ahead.limit.max(limit.min(self.platters.zone_bytes()));
        }
    }

    /// Performs the next operation of the head, from `now` on.
    fn operate(&mut self, now: Ns) {
        self.read_on(now);
        match self.choose(now) {
            Next::Command(at) => {
                let waiting = self.waiting.swap_remove(at);
                let mut end = now;
                for piece in &waiting.pieces {
                    end = self.move_data(end, piece, waiting.access);
                }
                self.free_ns = end;
                self.destaged_bytes = 0;
                self.end(waiting.tag, end + self.command_ns());
            }
            Next::Piece(number) => {
                let piece = self.writes.take(number, self.disk.destage.0);
                self.free_ns = self.move_data(now, &piece, Access::Write);
                self.destaged_bytes = piece.len();
                self.admit(self.free_ns);
            }
        }
        self.end_flushes(self.free_ns);
    }

    /// Lets writes into the room of the write cache, `from` on: then the operation has ended whose
    /// bytes still take room. So a write waits only while the cache holds pieces.
    fn admit(&mut self, from: Ns) {
        while let Some(first) = self.without_room.front() {
            if !self.writes.has_room(&first.piece, 0) {
                return;
            }
            let Queued { tag, arrived_ns, piece } =
                self.without_room.pop_front().expect("there is one");
            self.accept(tag, from.max(arrived_ns), piece);
        }
    }

    /// Ends flushes if the write cache is empty at `now`.
    fn end_flushes(&mut self, now: Ns) {
        if self.writes.is_empty() && self.without_room.is_empty() {
            for Flush { tag, arrived_ns } in std::mem::take(&mut self.flushes) {
                self.end(tag, now.max(arrived_ns) + self.command_ns());
            }
        }
    }

    /// Chooses the next operation: there is one that may begin at `now`.
    fn choose(&self, now: Ns) -> Next {
        let has_command = self.waiting.iter().any(|command| command.arrived_ns <= now);
        let is_pressed = !self.flushes.is_empty() || !self.without_room.is_empty();
        let takes_turns = is_pressed && self.last != Access::Write;
        if let Some(piece) = self.nearest_piece(now).filter(|_| takes_turns || !has_command) {
            return Next::Piece(piece);
        }
        let patience = ns(self.disk.patience_ms * 1e3);
        let mut oldest: Vec<usize> =
            (0..self.waiting.len()).filter(|at| self.waiting[*at].arrived_ns <= now).collect();
        oldest.sort_by_key(|at| (self.waiting[*at].arrived_ns, self.waiting[*at].tag));
        let first = oldest[0];
        if now - self.waiting[first].arrived_ns > patience {
            return Next::Command(first);
        }
        oldest.truncate(self.disk.queue as usize);
        let way = |at: &usize| {
            let waiting = &self.waiting[*at];
            self.way_ns(now, &waiting.pieces[0], waiting.access)
        };
        Next::Command(oldest.into_iter().min_by_key(way).expect("one at least"))
    }

    /// The piece of the write cache that the head reaches first, of the oldest ones. In a
    /// sequential zone that is the first one of the zone, and the head stays in a zone only for the
    /// oldest piece of all.
    fn nearest_piece(&self, now: Ns) -> Option<u64> {
        let mut zones = BTreeSet::new();
        let pieces = self.writes.oldest(self.disk.queue).filter(|(_, waiting)| {
            let is_conventional = waiting.piece.zone < self.disk.conventional;
            waiting.since_ns <= now && (is_conventional || zones.insert(waiting.piece.zone))
        });
        let oldest = self.writes.oldest(1).next().map(|(number, _)| number);
        let way = |(number, waiting): &(u64, &Waiting)| {
            let piece = &waiting.piece;
            let stays = self.last == Access::Write
                && self.written == (piece.zone, piece.bytes.start)
                && oldest != Some(*number);
            (stays, self.way_ns(now, piece, Access::Write))
        };
        pieces.min_by_key(way).map(|(number, _)| number)
    }

    fn way_ns(&self, now: Ns, piece: &Piece, access: Access) -> Ns {
        if access == Access::Read && self.is_below_head(piece) {
            return 0;
        }
        let to = self.platters.place(piece.zone, piece.bytes.start);
        self.platters.way(now, self.arm, to, access).ns()
    }

    /// Moves the arm to a piece and transfers it; returns when that ends.
    fn move_data(&mut self, now: Ns, piece: &Piece, access: Access) -> Ns {
        let mut piece = piece.clone();
        let is_below_head = access == Access::Read && self.is_below_head(&piece);
        if let Some(ahead) = self.ahead.filter(|_| is_below_head) {
            // The cache has its first part.
            piece.bytes.start = ahead.from.min(piece.bytes.end);
        }
        let to = self.platters.place(piece.zone, piece.bytes.start);
        let way = if is_below_head {
            Way::default()
        } else {
            self.platters.way(now, self.arm, to, access)
        };
        let moved = self.platters.transfer_ns(piece.zone, piece.bytes.start, piece.len());
        let position = Position { at_ns: now, share: self.platters.share(to) };
        self.account.operate(position, way, moved, piece.len(), access);
        let end = now + way.ns() + moved;
        self.arm = self.platters.place(piece.zone, piece.bytes.end.saturating_sub(1));
        self.last = access;
        if access == Access::Write {
            self.written = (piece.zone, piece.bytes.end);
        }
        self.ahead = (access == Access::Read).then(|| {
            let limit = piece.bytes.end + self.disk.read_ahead.0;
            let limit = limit.min(self.platters.zone_bytes());
            Ahead { zone: piece.zone, from: piece.bytes.end, since_ns: end, limit }
        });
        if access == Access::Read {
            self.reads.put(&piece, self.disk.read_ahead.0.max(piece.len()));
        }
        end
    }

    /// Whether the disk is just reading on to a piece: the head is there, at its first byte that is
    /// not in the read cache.
    fn is_below_head(&self, piece: &Piece) -> bool {
        self.ahead.is_some_and(|ahead| {
            let reached = Piece { zone: ahead.zone, bytes: piece.bytes.start..ahead.from };
            ahead.zone == piece.zone
                && ahead.from < ahead.limit
                && piece.bytes.start <= ahead.from
                && (piece.bytes.start == ahead.from || self.reads.holds(&reached))
        })
    }
}

/// The time to transfer bytes at a rate of 10^6 bytes a second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "below 2^53"
)]
fn transfer_ns(bytes: u64, mb_s: f64) -> Ns {
    (bytes as f64 * 1e3 / mb_s) as Ns
}
