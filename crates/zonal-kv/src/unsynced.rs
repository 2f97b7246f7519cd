//! What was written and is not committed yet, in memory that outlives the process.
//!
//! A kernel keeps what a program has written when the program is killed. A file system inside the
//! program has to do that itself: each write is also noted in a file in `/dev/shm`, which is memory,
//! as the kernel's cache is: it outlives the process, and not a power cut. When the drive is opened
//! next, what is noted is written again.
//!
//! Two halves take turns. A commit begins with the other half, and when it is durable the half with
//! what it has made durable is empty again. Notes say what bytes a file has where, or how long it is,
//! so that writing all of them again in order gives the same files, whatever the last commit before
//! the end contained. Names are never noted: they are committed before a call returns.
//!
//! A note counts once the length of its half says so, which is stored after it. The process that
//! reads it did not run at the same time as the one that wrote it.
//!
//! Somebody else may have written to the drive in between, a mount for example. Then what is noted is
//! old, and is thrown away: where a file it is about was changed later than the last note.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The first bytes of the file: "ZNLNOTE" and the version of the form.
const MAGIC: u64 = u64::from_le_bytes(*b"ZNLNOTE\x02");

/// Bytes before the halves.
const HEAD_BYTES: usize = 4096;

/// Bytes of a half: what is written between two commits at most.
const HALF_BYTES: usize = 16 << 20;

/// Bytes of a note before its data.
const NOTE_BYTES: usize = 32;

const FILE_BYTES: usize = HEAD_BYTES + 2 * HALF_BYTES;

/// Words of the head, by number.
mod word {
    pub(super) const MAGIC: usize = 0;
    /// The file system it belongs to, in two words.
    pub(super) const UUID: usize = 1;
    /// The last batch of the file system that was durable when this began.
    pub(super) const BATCH: usize = 3;
    /// Time of the last note, nanoseconds since 1970.
    pub(super) const LAST_NS: usize = 4;
    /// The half that takes notes.
    pub(super) const ACTIVE: usize = 5;
    /// Bytes of notes in each half.
    pub(super) const LEN: usize = 6;
    /// When the file system was made, nanoseconds since 1970: another one may have the same UUID.
    pub(super) const CREATED_NS: usize = 8;
}

/// `LAST_NS` while notes are written again: changes in between are our own.
const REPLAYING: u64 = u64::MAX;

/// What a note says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// It has these bytes from `offset` on.
    Bytes {
        /// Where.
        offset: u64,
        /// Which.
        data: &'a [u8],
    },
    /// It is so long.
    Size(u64),
}

/// A note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// Number of the file's inode, which no other file ever gets.
    pub ino: u64,
    /// What is known.
    pub change: Change<'a>,
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is kept.
    Kept,
    /// It is kept, and half of the room is taken: a commit should follow soon.
    HalfFull,
    /// There is no room: only a commit keeps it.
    NoRoom,
}

/// The memory, in use by this process alone.
#[derive(Debug)]
pub struct Unsynced {
    path: PathBuf,
    map: MmapMut,
    /// Keeps the lock.
    _file: OwnedFd,
    active: usize,
    len: [usize; 2],
}

/// What another process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The last batch that was durable when it began.
    pub batch: u64,
    /// When it made its last note, nanoseconds since 1970; `None` if it was writing notes again.
    pub last_ns: Option<i64>,
}

impl Unsynced {
    /// Opens what belongs to the file system `uuid` that was made at `created_ns`, or makes it, in a
    /// directory in memory.
    pub fn open(folder: &Path, uuid: &str, created_ns: i64) -> io::Result<Self> {
        let path = folder.join(format!("zonal-{uuid}.unsynced"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let stat = rustix::fs::fstat(&file)?;
        // The directory is everybody's.
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(Errno::ACCESS.into());
        }
        // All of it at once: where memory is short, this fails and not a write later.
        rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, FILE_BYTES as u64)?;
        let shared = File::from(file.try_clone()?);
        // SAFETY: the lock keeps other processes of ours away, the mode other users.
        let map = unsafe { memmap2::MmapOptions::new().len(FILE_BYTES).map_mut(&shared) }?;
        let mut this = Self { path, map, _file: file, active: 0, len: [0; 2] };
        let uuid_words = words_of(uuid);
        let is_ours = this.word(word::MAGIC) == MAGIC
            && this.word(word::UUID) == uuid_words[0]
            && this.word(word::UUID + 1) == uuid_words[1]
            && this.word(word::CREATED_NS) == created_ns.cast_unsigned();
        if is_ours {
            this.active = usize::from(this.word(word::ACTIVE) == 1);
            for half in 0..2 {
                let len = usize::try_from(this.word(word::LEN + half)).unwrap_or(usize::MAX);
                this.len[half] = if len <= HALF_BYTES { len } else { 0 };
            }
        } else {
            this.set_word(word::MAGIC, 0);
            this.clear();
            this.set_word(word::UUID, uuid_words[0]);
            this.set_word(word::UUID + 1, uuid_words[1]);
            this.set_word(word::CREATED_NS, created_ns.cast_unsigned());
            this.set_word(word::MAGIC, MAGIC);
        }
        Ok(this)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What another process has left, if it has.
    pub fn left(&self) -> Option<Left> {
        if self.len == [0; 2] {
            return None;
        }
        let last = self.word(word::LAST_NS);
        let last_ns = (last != REPLAYING).then(|| last.cast_signed());
        Some(Left { batch: self.word(word::BATCH), last_ns })
    }

    /// The notes, in the order in which they were made.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        [1 - self.active, self.active].into_iter().flat_map(|half| {
            let start = HEAD_BYTES + half * HALF_BYTES;
            Notes { rest: &self.map[start..start + self.len[half]] }
        })
    }

    /// From now on changes are notes being written again.
    pub fn begin_replay(&mut self) {
        self.set_word(word::LAST_NS, REPLAYING);
    }

    /// Forgets all notes; the last durable batch is `batch` now.
    pub fn begin(&mut self, batch: u64) {
        self.clear();
        self.set_word(word::BATCH, batch);
    }

    /// Notes a change that the file system has made, at `now_ns`.
    pub fn note(&mut self, note: Note<'_>, now_ns: i64) -> Noted {
        let (kind, position, data) = match note.change {
            Change::Bytes { offset, data } => (0_u64, offset, data),
            Change::Size(size) => (1, size, &[][..]),
        };
        let bytes = NOTE_BYTES + data.len().next_multiple_of(8);
        let len = self.len[self.active];
        if bytes > HALF_BYTES - len {
            return Noted::NoRoom;
        }
        let at = HEAD_BYTES + self.active * HALF_BYTES + len;
        let head = [note.ino, position, data.len() as u64, kind];
        for (place, value) in self.map[at..at + NOTE_BYTES].chunks_exact_mut(8).zip(head) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        self.map[at + NOTE_BYTES..][..data.len()].copy_from_slice(data);
        // The clock may be set back between a change and its note.
        let last_ns = now_ns.max(self.word(word::LAST_NS).cast_signed());
        self.set_word(word::LAST_NS, last_ns.cast_unsigned());
        self.set_len(self.active, len + bytes);
        let was_half = len >= HALF_BYTES / 2;
        if !was_half && len + bytes >= HALF_BYTES / 2 { Noted::HalfFull } else { Noted::Kept }
    }

    /// A commit begins: notes go to the other half, if that is empty. Otherwise a commit before has
    /// failed, and this one covers the notes of both.
    pub fn begin_commit(&mut self) {
        if self.len[1 - self.active] == 0 {
            self.active = 1 - self.active;
            self.set_word(word::ACTIVE, self.active as u64);
        }
    }

    /// It has made durable what was noted before it began.
    pub fn end_commit(&mut self) {
        self.set_len(1 - self.active, 0);
    }

    /// Takes the file away: all is durable, and the process is about to let go of the drive.
    pub fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlink(&self.path)?)
    }

    fn clear(&mut self) {
        self.set_len(0, 0);
        self.set_len(1, 0);
        self.active = 0;
        self.set_word(word::ACTIVE, 0);
        self.set_word(word::LAST_NS, 0);
    }

    fn set_len(&mut self, half: usize, len: usize) {
        self.len[half] = len;
        self.set_word(word::LEN + half, len as u64);
    }

    fn word(&self, number: usize) -> u64 {
        let bytes = &self.map[number * 8..][..8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Stores a word of the head behind everything that was stored before.
    fn set_word(&mut self, number: usize, value: u64) {
        let place: *mut u64 = self.map[number * 8..][..8].as_mut_ptr().cast();
        // SAFETY: it is ours, and at a multiple of eight bytes of a page.
        let word = unsafe { AtomicU64::from_ptr(place) };
        word.store(value.to_le(), Ordering::Release);
    }
}

/// A UUID as two words.
fn words_of(uuid: &str) -> [u64; 2] {
    let number = uuid.bytes().filter(u8::is_ascii_hexdigit).fold(0_u128, |number, digit| {
        number << 4 | u128::from(char::from(digit).to_digit(16).unwrap_or_default())
    });
    let bytes = number.to_le_bytes();
    let (low, high) = bytes.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("eight bytes")))
}

/// The notes of a half. It ends at the first that makes no sense.
struct Notes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Notes<'a> {
    type Item = Note<'a>;

    fn next(&mut self) -> Option<Note<'a>> {
        let (head, rest) = self.rest.split_at_checked(NOTE_BYTES)?;
        let mut words = head
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().expect("four words");
        let (ino, position, len, kind) = (next(), next(), next(), next());
        let len = usize::try_from(len).ok()?;
        let (data, _) = rest.split_at_checked(len)?;
        let change = match kind {
            0 => Change::Bytes { offset: position, data },
            1 => Change::Size(position),
            _ => return None,
        };
        self.rest = rest.get(len.checked_next_multiple_of(8)?..)?;
        Some(Note { ino, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

    fn bytes(ino: u64, offset: u64, data: &[u8]) -> Note<'_> {
        Note { ino, change: Change::Bytes { offset, data } }
    }

    #[test]
    fn what_one_process_notes_the_next_one_reads() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Unsynced::open(folder.path(), UUID, 1).unwrap();
        assert_eq!(first.left(), None);
        first.begin(7);
        assert_eq!(first.note(bytes(5, 10, b"abc"), 100), Noted::Kept);
        first.note(Note { ino: 5, change: Change::Size(12) }, 101);
        first.begin_commit();
        first.note(bytes(6, 0, &[9; 5000]), 102);
        drop(first);
        let second = Unsynced::open(folder.path(), UUID, 1).unwrap();
        assert_eq!(second.left(), Some(Left { batch: 7, last_ns: Some(102) }));
        let notes: Vec<_> = second.notes().collect();
        let size = Note { ino: 5, change: Change::Size(12) };
        assert_eq!(notes, [bytes(5, 10, b"abc"), size, bytes(6, 0, &[9; 5000])]);
    }

    #[test]
    fn a_commit_forgets_what_was_noted_before_it_began() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(1, 0, b"before"), 1);
        log.begin_commit();
        log.note(bytes(1, 6, b"after"), 2);
        log.end_commit();
        assert_eq!(log.notes().collect::<Vec<_>>(), [bytes(1, 6, b"after")]);
        // One that fails forgets nothing, and the one after it covers only what it has seen.
        log.begin_commit();
        log.note(bytes(1, 11, b"later"), 3);
        log.begin_commit();
        log.note(bytes(1, 16, b"last"), 4);
        log.end_commit();
        let left: Vec<_> = log.notes().collect();
        assert_eq!(left, [bytes(1, 11, b"later"), bytes(1, 16, b"last")]);
    }

    #[test]
    fn a_full_half_says_so_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        let data = vec![1; 1 << 20];
        let mut outcomes = Vec::new();
        loop {
            let outcome = log.note(bytes(1, 0, &data), 1);
            outcomes.push(outcome);
            if outcome == Noted::NoRoom {
                break;
            }
        }
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Noted::HalfFull).count(), 1);
        assert_eq!(log.notes().count(), outcomes.len() - 1);
    }

    #[test]
    fn one_process_has_it_and_another_file_system_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        let error = Unsynced::open(folder.path(), UUID, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        Unsynced::open(folder.path(), "0011", 1).unwrap();
        log.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_system_that_was_made_anew_has_no_notes() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(1, 0, b"before"), 1);
        drop(log);
        assert!(Unsynced::open(folder.path(), UUID, 1).unwrap().left().is_some());
        assert_eq!(Unsynced::open(folder.path(), UUID, 2).unwrap().left(), None);
        assert_eq!(Unsynced::open(folder.path(), UUID, 1).unwrap().left(), None);
    }

    #[test]
    fn nonsense_is_no_note() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(1, 0, b"right"), 1);
        let at = HEAD_BYTES + log.len[0];
        log.map[at..at + 24].fill(0xff);
        log.set_len(0, log.len[0] + 64);
        assert_eq!(log.notes().collect::<Vec<_>>(), [bytes(1, 0, b"right")]);
    }
}
