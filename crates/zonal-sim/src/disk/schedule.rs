//! The order in which a disk serves commands, and the time at which each ends.
//!
//! Commands arrive in the order of time. The head is busy with one operation at a time; when it
//! ends, it takes the command that it reaches first, among the oldest
//! [`queue`](crate::config::Disk::queue) ones. Reads go before the pieces of the write cache, but
//! when a command waits for the write cache (a flush, or a write that finds no room), or a piece
//! has waited for [`patience_ms`](crate::config::Disk::patience_ms), reads and pieces take turns.

use std::collections::{BTreeSet, VecDeque};

use super::cache::{self, Key, Piece, Waiting, WriteCache};
use super::head::{Head, Transfer};
use super::platters::Access;
use crate::config::Disk;
use crate::controller::{Line, ns};
use crate::ends::{Ends, Tag};

/// A time or a span, in nanoseconds.
type Ns = u64;

/// A command that needs the head.
struct Command {
    tag: Tag,
    arrived_ns: Ns,
    transfers: Vec<Transfer>,
    /// It ends at this time at the earliest: a part of it needs no head.
    least_ns: Ns,
}

/// A write that waits for room in the write cache.
struct Queued {
    tag: Tag,
    arrived_ns: Ns,
    piece: Piece,
}

/// A flush that waits for the pieces of the write cache that were there when it arrived.
struct Flush {
    tag: Tag,
    barrier: u64,
}

/// A read that arrives.
pub(super) struct Read {
    /// Its written parts, each with the first byte of its zone that was never written.
    pub(super) written: Vec<(Piece, u64)>,
    /// Its other bytes.
    pub(super) unwritten: u64,
}

/// An operation that the head may begin.
enum Next {
    /// A waiting command, by its index.
    Command(usize),
    /// A piece of the write cache.
    Piece(Key),
}

/// The commands of a disk, and its head.
pub(super) struct Schedule {
    disk: Disk,
    pub(super) head: Head,
    writes: WriteCache,
    /// In the order of arrival.
    waiting: Vec<Command>,
    without_room: VecDeque<Queued>,
    flushes: Vec<Flush>,
    ends: Ends,
    /// The piece of the write cache that the last operation of the head has written.
    destaged: Option<Piece>,
    link: Line,
    /// The part of the controller that makes up unwritten data.
    unwritten: Line,
}

impl Schedule {
    pub(super) fn new(disk: &Disk, zone_bytes: u64) -> Self {
        Self {
            disk: disk.clone(),
            head: Head::new(disk, zone_bytes),
            writes: WriteCache::new(disk),
            waiting: Vec::new(),
            without_room: VecDeque::new(),
            flushes: Vec::new(),
            ends: Ends::default(),
            destaged: None,
            link: Line::default(),
            unwritten: Line::default(),
        }
    }

    /// A read arrives.
    pub(super) fn read(&mut self, tag: Tag, now: Ns, read: &Read) {
        self.run(now);
        let parts: Vec<Piece> = read.written.iter().map(|(piece, _)| piece.clone()).collect();
        let bytes: u64 = parts.iter().map(Piece::len).sum();
        let parts = self.writes.missing(parts);
        let parts = cache::missing(parts, self.destaged_at(now).into_iter());
        let missing = self.head.missing(now, parts);
        let begun = now + self.command_ns();
        let mut least_ns = begun;
        let cached = bytes - missing.iter().map(Piece::len).sum::<u64>();
        if cached > 0 {
            let moved = transfer_ns(cached, self.disk.link_mb_s);
            least_ns = least_ns.max(self.link.take(now, begun, moved));
        }
        if read.unwritten > 0 {
            let made = transfer_ns(read.unwritten, self.disk.unwritten_mb_s);
            least_ns = least_ns.max(self.unwritten.take(now, begun, made));
        }
        if missing.is_empty() {
            self.head.account.cache_hits += u64::from(bytes > 0);
            self.ends.push(least_ns, tag);
            return;
        }
        let written = |zone| {
            let part = read.written.iter().find(|(piece, _)| piece.zone == zone);
            part.map_or(0, |(_, written)| *written)
        };
        let transfers = missing.into_iter().map(|piece| {
            let written = written(piece.zone);
            Transfer { access: Access::Read, piece, written }
        });
        let transfers = transfers.collect();
        self.waiting.push(Command { tag, arrived_ns: now, transfers, least_ns });
    }

    /// A write arrives.
    pub(super) fn write(&mut self, tag: Tag, now: Ns, piece: Piece) {
        self.run(now);
        self.head.forget(now, &piece);
        if !self.writes.takes(&piece) {
            self.writes.drop_overlapping(&piece);
            let transfers = vec![Transfer { access: Access::Write, piece, written: 0 }];
            let least_ns = now + self.command_ns();
            self.waiting.push(Command { tag, arrived_ns: now, transfers, least_ns });
            self.admit(now, now.max(self.head.free_ns()));
            return;
        }
        let busy = self.destaged_at(now).map_or(0, Piece::len);
        if self.without_room.is_empty() && self.writes.has_room(&piece, busy) {
            self.accept(tag, now, now, piece);
        } else {
            self.without_room.push_back(Queued { tag, arrived_ns: now, piece });
            self.admit(now, self.head.free_ns());
        }
    }

    /// A flush arrives.
    pub(super) fn flush(&mut self, tag: Tag, now: Ns) {
        self.run(now);
        let barrier = self.writes.set_barrier();
        self.flushes.push(Flush { tag, barrier });
        self.end_flushes(now);
    }

    /// A command arrives that needs no head and takes so long.
    pub(super) fn other(&mut self, tag: Tag, now: Ns, takes: Ns) {
        self.run(now);
        self.ends.push(now + takes, tag);
    }

    /// A zone loses its data.
    pub(super) fn reset(&mut self, now: Ns, zone: u32) {
        self.run(now);
        let all = Piece { zone, bytes: 0..u64::MAX };
        self.writes.drop_overlapping(&all);
        self.head.forget(now, &all);
        self.admit(now, now.max(self.head.free_ns()));
        self.end_flushes(now);
    }

    /// The next command that ends, if it ends at `until` or before, and no command arrives before
    /// that.
    pub(super) fn next_end(&mut self, until: Ns) -> Option<(Tag, Ns)> {
        loop {
            let known = self.ends.first_ns();
            let is_idle =
                self.waiting.is_empty() && self.without_room.is_empty() && self.flushes.is_empty();
            // An operation that begins before the end that is known may end before it.
            match self.next_start().filter(|_| !is_idle) {
                Some(start) if known.is_none_or(|known| start < known) && start <= until => {
                    self.operate(start);
                }
                _ => return self.ends.pop(until),
            }
        }
    }

    /// Gives back an end that was taken.
    pub(super) fn put_back(&mut self, tag: Tag, at: Ns) {
        self.ends.push(at, tag);
    }

    fn command_ns(&self) -> Ns {
        ns(self.disk.command_us)
    }

    /// The piece of the write cache that is on its way to the platters.
    fn destaged_at(&self, now: Ns) -> Option<&Piece> {
        self.destaged.as_ref().filter(|_| now < self.head.free_ns())
    }

    /// The write cache takes a write, `from` on.
    fn accept(&mut self, tag: Tag, now: Ns, from: Ns, piece: Piece) {
        let moved = transfer_ns(piece.len(), self.disk.link_mb_s);
        let end = self.link.take(now, from + self.command_ns(), moved);
        self.writes.put(piece, from);
        self.ends.push(end, tag);
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
        let command = self.waiting.first().map(|command| command.arrived_ns);
        let first = command.into_iter().chain(piece).min()?;
        Some(first.max(self.head.free_ns()))
    }

    /// Performs the next operation of the head, from `now` on.
    fn operate(&mut self, now: Ns) {
        self.end_cached(now);
        match self.choose(now) {
            None => return,
            Some(Next::Command(at)) => {
                let command = self.waiting.remove(at);
                let end = self.head.perform(now, &command.transfers);
                self.destaged = None;
                self.ends.push(command.least_ns.max(end + self.command_ns()), command.tag);
            }
            Some(Next::Piece(key)) => {
                let piece = self.writes.take(key, self.disk.destage.0);
                let transfer = Transfer { access: Access::Write, piece, written: 0 };
                self.destaged = Some(transfer.piece.clone());
                let end = self.head.perform(now, &[transfer]);
                self.admit(now, end);
            }
        }
        self.end_flushes(now);
    }

    /// Ends waiting reads whose data another operation, or reading ahead, has brought meanwhile.
    fn end_cached(&mut self, now: Ns) {
        let end = now + self.command_ns();
        self.waiting.retain_mut(|command| {
            if command.arrived_ns <= now {
                self.head.trim(now, &mut command.transfers);
            }
            let waits = !command.transfers.is_empty();
            if !waits {
                self.ends.push(end.max(command.least_ns), command.tag);
            }
            waits
        });
    }

    /// Lets waiting writes into the write cache at `from`, when the head is done with the bytes
    /// that still take room. So a write waits only while the cache holds pieces.
    fn admit(&mut self, now: Ns, from: Ns) {
        while let Some(first) = self.without_room.front() {
            if !self.writes.has_room(&first.piece, 0) {
                return;
            }
            let Queued { tag, arrived_ns, piece } =
                self.without_room.pop_front().expect("there is one");
            self.accept(tag, now, from.max(arrived_ns), piece);
        }
    }

    /// Ends flushes whose pieces the head has begun to write by `now`.
    fn end_flushes(&mut self, now: Ns) {
        let end = self.head.settled_ns(now) + self.command_ns();
        self.flushes.retain(|flush| {
            let waits = self.writes.has_below(flush.barrier);
            if !waits {
                self.ends.push(end, flush.tag);
            }
            waits
        });
    }

    /// Chooses the next operation.
    fn choose(&self, now: Ns) -> Option<Next> {
        let patience = ns(self.disk.patience_ms * 1e3);
        let has_command = self.waiting.first().is_some_and(|command| command.arrived_ns <= now);
        let oldest = self.writes.oldest(1).next().map_or(now, |(_, waiting)| waiting.since_ns);
        let is_pressed = !self.flushes.is_empty()
            || !self.without_room.is_empty()
            || now.saturating_sub(oldest) > patience;
        let takes_turns = is_pressed && self.head.written().is_none();
        if let Some(piece) = self.nearest_piece(now).filter(|_| takes_turns || !has_command) {
            return Some(Next::Piece(piece));
        }
        if has_command && now - self.waiting[0].arrived_ns > patience {
            return Some(Next::Command(0));
        }
        // Writes that need the head stay in the order of their zone.
        let mut written = BTreeSet::new();
        let commands = self.waiting.iter().take(self.disk.queue as usize).enumerate();
        let commands = commands.filter(|(_, command)| {
            let Transfer { access, piece, .. } = &command.transfers[0];
            command.arrived_ns <= now && (*access == Access::Read || written.insert(piece.zone))
        });
        let way = |(_, command): &(usize, &Command)| {
            let Transfer { access, piece, .. } = &command.transfers[0];
            self.head.way_ns(now, piece, *access)
        };
        commands.min_by_key(way).map(|(at, _)| Next::Command(at))
    }

    /// The piece of the write cache that the head reaches first, of the oldest ones, up to the
    /// [`destage_window`](Disk::destage_window). In a sequential zone that is the first one of the
    /// zone, and the head stays in a zone only for the oldest piece of all.
    fn nearest_piece(&self, now: Ns) -> Option<Key> {
        let (mut zones, mut bytes) = (BTreeSet::new(), 0);
        let oldest = self.writes.oldest(self.disk.queue).take_while(|(_, waiting)| {
            let fits = bytes < self.disk.destage_window.0.max(1);
            bytes += waiting.piece.len();
            fits
        });
        let pieces = oldest.filter(|(_, waiting)| {
            let is_conventional = waiting.piece.zone < self.disk.conventional;
            waiting.since_ns <= now && (is_conventional || zones.insert(waiting.piece.zone))
        });
        let oldest = self.writes.oldest(1).next().map(|(key, _)| key);
        let way = |(key, Waiting { piece, .. }): &(Key, &Waiting)| {
            let goes_on = self.head.written() == Some((piece.zone, piece.bytes.start));
            (goes_on && oldest != Some(*key), self.head.way_ns(now, piece, Access::Write))
        };
        pieces.min_by_key(way).map(|(key, _)| key)
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
