//! Keeps unsynced writes in memory that outlives the process.
//!
//! When a program is killed, the kernel still has its writes in the page cache. A file system
//! inside the program has to do that itself: it also notes each write in a file in `/dev/shm`. That
//! memory, like the page cache, outlives the process but not a power cut. The next process that
//! opens the drive writes the noted changes again.
//!
//! The file has two halves that take turns. When a commit begins, new notes go to the other half;
//! when the commit is durable, the first half becomes empty again. A note says which bytes a file
//! has at an offset, or how long the file is. So all notes, replayed in order, give the same files
//! whatever part of them the last commit already contained. Names are never noted: they are
//! committed before a call returns.
//!
//! A note counts once the length of its half covers it, and that length is stored after the note.
//! The process that reads notes never runs at the same time as the process that wrote them.
//!
//! Another program, such as a mount, may have written to the drive in between. Then the notes are
//! old, and the reader discards them. It recognises them by `ctime`, the time of a file's last
//! change: every change of a file sets it, also one that sets an old `mtime`. Each note holds the
//! `ctime` from before its change and the one from after it; if a file has another one now, another
//! program has changed it. Only equality counts, because clocks may have been set back. A change
//! that has begun and has no note yet is *pending*: the `ctime` of its file is unknown.
//!
//! Other users may be able to write to the directory, as to `/dev/shm`. The search for our file
//! passes over their files, links, and files of this user that have another purpose. Our file then
//! gets a random name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// The first bytes of the file: "ZNLNOTE" and the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"ZNLNOTE\x03");

/// The first bytes of the files of all versions.
const MAGIC_OF_ALL_FORMS: &[u8] = b"ZNLNOTE";

/// Bytes before the halves.
const HEAD_BYTES: usize = 4096;

/// Bytes of a half: the most that can be noted between two commits.
const HALF_BYTES: usize = 16 << 20;

/// Bytes of a note before its data.
const NOTE_BYTES: usize = 48;

/// The offset of the times in a note.
const TIMES_AT: usize = 32;

/// Entries in the list of pending changes, more than threads that write at once.
const PENDING_MAX: usize = 256;

const FILE_BYTES: usize = HEAD_BYTES + 2 * HALF_BYTES;

/// Words of the head, by number.
mod word {
    pub(super) const MAGIC: usize = 0;
    /// The UUID of the file system, in two words.
    pub(super) const UUID: usize = 1;
    /// The last batch of the file system that was durable when the notes began.
    pub(super) const BATCH: usize = 3;
    /// The half that takes notes.
    pub(super) const ACTIVE: usize = 4;
    /// Bytes of notes in each half.
    pub(super) const LEN: usize = 5;
    /// When the file system was made, nanoseconds since 1970: another one may have the same UUID.
    pub(super) const CREATED_NS: usize = 7;
    /// The inodes with pending changes; 0 in unused entries.
    pub(super) const PENDING: usize = 8;
}

const _: () = assert!((word::PENDING + PENDING_MAX) * 8 <= HEAD_BYTES);

/// The change that a note describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The file has these bytes from `offset` on.
    Bytes {
        /// The offset in the file.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// The file has this length.
    Size(u64),
    /// The content is as it was: the file got another name or attribute.
    Attributes,
}

/// The `ctime` of a file around a change, nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before the change.
    pub before_ns: i64,
    /// After it.
    pub after_ns: i64,
}

/// A note about one change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// Number of the file's inode, which no other file ever gets.
    pub ino: u64,
    /// The change.
    pub change: Change<'a>,
    /// The `ctime` before and after the change.
    pub times: Times,
}

/// A pending change: its entry in the list of pending inodes, and the bytes reserved for its note.
#[derive(Debug)]
pub struct Pending {
    place: Option<usize>,
    promised: usize,
}

/// The position of a note in the file.
#[derive(Clone, Copy, Debug)]
pub struct NotePlace(usize);

/// The outcome of adding a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The note is kept.
    Kept,
    /// The note is kept, and half of the room is used: a commit should follow soon.
    HalfFull,
    /// There is no room for the note: only a commit can keep the change.
    NoRoom,
}

/// The file of notes, mapped and locked by this process.
#[derive(Debug)]
pub struct Unsynced {
    path: PathBuf,
    map: MmapMut,
    /// Holds the lock.
    _file: OwnedFd,
    active: usize,
    len: [usize; 2],
    /// The `ctime` of files after their last noted change, so that the next change need not ask the
    /// file system for it.
    changed_ns: BTreeMap<u64, i64>,
    /// Bytes reserved for the notes of pending changes.
    promised: usize,
}

/// The most files in `changed_ns`.
const FILES_KNOWN_MAX: usize = 1024;

impl Unsynced {
    /// Opens or makes the notes of the file system `uuid` that was made at `created_ns`, in
    /// `folder`, a directory in memory.
    pub fn open(folder: &Path, uuid: &str, created_ns: i64) -> io::Result<Self> {
        let (path, file) = match find(folder, uuid)? {
            Some(found) => found,
            None => make(folder, uuid)?,
        };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Allocate all of it now: where memory is short, this fails instead of a later write.
        rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, FILE_BYTES as u64)?;
        let shared = File::from(file.try_clone()?);
        // SAFETY: the lock keeps our other processes out, the file's mode other users.
        let map = unsafe { memmap2::MmapOptions::new().len(FILE_BYTES).map_mut(&shared) }?;
        let changed_ns = BTreeMap::new();
        let mut this =
            Self { path, map, _file: file, active: 0, len: [0; 2], changed_ns, promised: 0 };
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

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last batch that was durable when the previous process began its notes; `None` if it left
    /// no notes.
    pub fn left(&self) -> Option<u64> {
        (self.len != [0; 2]).then(|| self.word(word::BATCH))
    }

    /// The notes, oldest first.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        self.halves().flatten().map(|(_, note)| note)
    }

    /// The positions of the notes, oldest first.
    pub fn places(&self) -> Vec<NotePlace> {
        self.halves().flatten().map(|(place, _)| place).collect()
    }

    fn halves(&self) -> impl Iterator<Item = Notes<'_>> {
        [1 - self.active, self.active].map(|half| self.notes_of(half)).into_iter()
    }

    fn notes_of(&self, half: usize) -> Notes<'_> {
        let start = HEAD_BYTES + half * HALF_BYTES;
        Notes { at: start, rest: &self.map[start..start + self.len[half]] }
    }

    /// The note at a position that [`places`](Self::places) returned.
    pub fn note_at(&self, place: NotePlace) -> Note<'_> {
        let mut notes = Notes { at: place.0, rest: &self.map[place.0..] };
        notes.next().expect("it was there").1
    }

    /// Sets the times of a note whose change was written again.
    pub fn set_times(&mut self, place: NotePlace, times: Times) {
        let number = (place.0 + TIMES_AT) / 8;
        self.set_word(number, times.before_ns.cast_unsigned());
        self.set_word(number + 1, times.after_ns.cast_unsigned());
    }

    /// The inodes with pending changes.
    pub fn pending(&self) -> impl Iterator<Item = u64> {
        let words = (0..PENDING_MAX).map(|number| self.word(word::PENDING + number));
        words.filter(|ino| *ino != 0)
    }

    /// Whether a note with `data` bytes fits beside the notes of pending changes. A note larger
    /// than a half always fits: no commit can make room for it.
    pub fn has_room(&self, data: usize) -> bool {
        let bytes = note_bytes(data);
        bytes > HALF_BYTES || self.len[self.active] + self.promised + bytes <= HALF_BYTES
    }

    /// Begins a change of an inode, and reserves room for a note with `data` bytes. If the list of
    /// pending inodes is full, a kill before the change has its note may make all notes look old.
    pub fn begin_change(&mut self, ino: u64, data: usize) -> Pending {
        let place = (0..PENDING_MAX).find(|number| self.word(word::PENDING + number) == 0);
        if let Some(number) = place {
            self.set_word(word::PENDING + number, ino);
        }
        let bytes = note_bytes(data);
        let promised = if bytes > HALF_BYTES { 0 } else { bytes };
        self.promised += promised;
        Pending { place, promised }
    }

    /// Ends a change: it has its note, or needs none.
    pub fn end_change(&mut self, Pending { place, promised }: Pending) {
        if let Some(number) = place {
            self.set_word(word::PENDING + number, 0);
        }
        self.promised -= promised;
    }

    /// Drops all notes; `batch` is the last durable batch now.
    pub fn begin(&mut self, batch: u64) {
        self.clear();
        self.set_word(word::BATCH, batch);
    }

    /// Takes the `ctime` that the last noted change of a file set. A second change that begins
    /// meanwhile finds none here, because the first may set another `ctime`.
    pub fn take_changed_ns(&mut self, ino: u64) -> Option<i64> {
        self.changed_ns.remove(&ino)
    }

    /// Notes a change that the file system has made.
    pub fn note(&mut self, note: Note<'_>) -> Noted {
        if self.changed_ns.len() == FILES_KNOWN_MAX {
            self.changed_ns.clear();
        }
        self.changed_ns.insert(note.ino, note.times.after_ns);
        let (kind, position, data) = match note.change {
            Change::Bytes { offset, data } => (0_u64, offset, data),
            Change::Size(size) => (1, size, &[][..]),
            Change::Attributes => (2, 0, &[][..]),
        };
        let bytes = note_bytes(data.len());
        let len = self.len[self.active];
        if bytes > HALF_BYTES - len {
            return Noted::NoRoom;
        }
        let at = HEAD_BYTES + self.active * HALF_BYTES + len;
        let times = [note.times.before_ns, note.times.after_ns].map(i64::cast_unsigned);
        let head = [note.ino, position, data.len() as u64, kind, times[0], times[1]];
        for (place, value) in self.map[at..at + NOTE_BYTES].chunks_exact_mut(8).zip(head) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        self.map[at + NOTE_BYTES..][..data.len()].copy_from_slice(data);
        self.set_len(self.active, len + bytes);
        let was_half = len >= HALF_BYTES / 2;
        if !was_half && len + bytes >= HALF_BYTES / 2 { Noted::HalfFull } else { Noted::Kept }
    }

    /// Begins a commit. New notes go to the other half if it is empty. If it is not, the commit
    /// before has failed, and this one covers the notes of both halves.
    pub fn begin_commit(&mut self) {
        if self.len[1 - self.active] == 0 {
            self.active = 1 - self.active;
            self.set_word(word::ACTIVE, self.active as u64);
        }
    }

    /// Ends a commit: the notes from before it are durable.
    pub fn end_commit(&mut self) {
        self.set_len(1 - self.active, 0);
    }

    /// Removes the file: all changes are durable, and the process is about to close the drive.
    pub fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlink(&self.path)?)
    }

    fn clear(&mut self) {
        self.set_len(0, 0);
        self.set_len(1, 0);
        self.active = 0;
        self.set_word(word::ACTIVE, 0);
        for number in 0..PENDING_MAX {
            self.set_word(word::PENDING + number, 0);
        }
    }

    fn set_len(&mut self, half: usize, len: usize) {
        self.len[half] = len;
        self.set_word(word::LEN + half, len as u64);
    }

    fn word(&self, number: usize) -> u64 {
        let bytes = &self.map[number * 8..][..8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    /// Stores a word of the head, after all earlier stores.
    fn set_word(&mut self, number: usize, value: u64) {
        let place: *mut u64 = self.map[number * 8..][..8].as_mut_ptr().cast();
        // SAFETY: the map is ours, and the word lies at a multiple of eight bytes in a page.
        let word = unsafe { AtomicU64::from_ptr(place) };
        word.store(value.to_le(), Ordering::Release);
    }
}

/// Bytes of a note with `data` bytes of data.
const fn note_bytes(data: usize) -> usize {
    NOTE_BYTES + data.next_multiple_of(8)
}

/// The file of this user for a file system, if there is one. Passes over files that others may have
/// planted.
fn find(folder: &Path, uuid: &str) -> io::Result<Option<(PathBuf, OwnedFd)>> {
    let begin = format!("zonal-{uuid}.");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let is_named = name
            .to_str()
            .is_some_and(|name| name.starts_with(&begin) && name.ends_with(".unsynced"));
        if is_named {
            names.push(name);
        }
    }
    names.sort();
    for path in names.into_iter().map(|name| folder.join(name)) {
        match open_own(&path) {
            Ok(Found::Own(file)) => return Ok(Some((path, file))),
            Ok(Found::Foreign(why)) => {
                tracing::warn!("{} {why}: it is passed over", path.display());
            }
            // Another process has removed it meanwhile.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The verdict on a file under one of our names.
enum Found {
    /// This user made it for notes.
    Own(OwnedFd),
    /// It may be anything, for this reason.
    Foreign(&'static str),
}

/// Opens a file of notes. Anybody can give another file such a name: a link, a file of their own,
/// and, by a hard link or a rename, also a file of this user that has another purpose.
fn open_own(path: &Path) -> rustix::io::Result<Found> {
    const NO_FILE: Found = Found::Foreign("is no file of this user");
    let user = rustix::process::geteuid().as_raw();
    let is_own = |stat: &rustix::fs::Stat| {
        stat.st_uid == user && FileType::from_raw_mode(stat.st_mode).is_file()
    };
    // Not even opened: the process at the other end of a pipe would notice.
    if !is_own(&rustix::fs::lstat(path)?) {
        return Ok(NO_FILE);
    }
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        // Another file has taken its place since.
        Err(Errno::LOOP | Errno::ACCESS | Errno::ISDIR | Errno::NXIO) => return Ok(NO_FILE),
        Err(error) => return Err(error),
    };
    let stat = rustix::fs::fstat(&file)?;
    if !is_own(&stat) {
        return Ok(NO_FILE);
    }
    if stat.st_mode & 0o077 != 0 {
        return Ok(Found::Foreign("can be opened by other users"));
    }
    let mut magic = [0; 8];
    let len = rustix::io::pread(&file, &mut magic, 0)?;
    // A file that is empty or all zeroes is one whose process was killed while it made it.
    let is_begun = magic[..len].iter().all(|byte| *byte == 0) && stat.st_nlink == 1;
    if !magic.starts_with(MAGIC_OF_ALL_FORMS) && !is_begun {
        return Ok(Found::Foreign("holds something else"));
    }
    Ok(Found::Own(file))
}

/// The name of the file, unless another user has taken it.
pub(crate) fn plain_name(uuid: &str) -> String {
    format!("zonal-{uuid}.unsynced")
}

/// Makes the file, under its plain name or, if that is taken, under a random one.
fn make(folder: &Path, uuid: &str) -> io::Result<(PathBuf, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let other = format!("zonal-{uuid}.{}.unsynced", uuid::Uuid::new_v4().simple());
    let plain = folder.join(plain_name(uuid));
    match rustix::fs::open(&plain, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok((plain, file)),
        Err(Errno::EXIST) => {
            let path = folder.join(other);
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            Ok((path, file))
        }
        Err(error) => Err(error.into()),
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

/// The notes of a half. They end at the first one that is invalid.
struct Notes<'a> {
    /// The position of `rest` in the file.
    at: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Notes<'a> {
    type Item = (NotePlace, Note<'a>);

    fn next(&mut self) -> Option<(NotePlace, Note<'a>)> {
        let (head, rest) = self.rest.split_at_checked(NOTE_BYTES)?;
        let mut words = head
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().expect("six words");
        let (ino, position, len, kind) = (next(), next(), next(), next());
        let times = Times { before_ns: next().cast_signed(), after_ns: next().cast_signed() };
        let len = usize::try_from(len).ok()?;
        let (data, _) = rest.split_at_checked(len)?;
        let change = match kind {
            0 => Change::Bytes { offset: position, data },
            1 => Change::Size(position),
            2 => Change::Attributes,
            _ => return None,
        };
        let place = NotePlace(self.at);
        let len = len.checked_next_multiple_of(8)?;
        self.rest = rest.get(len..)?;
        self.at += NOTE_BYTES + len;
        Some((place, Note { ino, change, times }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

    fn bytes(ino: u64, offset: u64, data: &[u8]) -> Note<'_> {
        of(ino, Change::Bytes { offset, data })
    }

    fn of(ino: u64, change: Change<'_>) -> Note<'_> {
        Note { ino, change, times: Times { before_ns: 1, after_ns: 2 } }
    }

    #[test]
    fn unsynced_notes_pass_to_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Unsynced::open(folder.path(), UUID, 1).unwrap();
        assert_eq!(first.left(), None);
        first.begin(7);
        assert_eq!(first.note(bytes(5, 10, b"abc")), Noted::Kept);
        first.note(of(5, Change::Size(12)));
        first.begin_commit();
        first.note(bytes(6, 0, &[9; 5000]));
        drop(first);
        let second = Unsynced::open(folder.path(), UUID, 1).unwrap();
        assert_eq!(second.left(), Some(7));
        let notes: Vec<_> = second.notes().collect();
        let size = of(5, Change::Size(12));
        assert_eq!(notes, [bytes(5, 10, b"abc"), size, bytes(6, 0, &[9; 5000])]);
    }

    #[test]
    fn unsynced_commit_forgets_notes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(1, 0, b"before"));
        log.begin_commit();
        log.note(bytes(1, 6, b"after"));
        log.end_commit();
        assert_eq!(log.notes().collect::<Vec<_>>(), [bytes(1, 6, b"after")]);
        // A failed commit drops no notes, and the next one covers only the notes from before it
        // began.
        log.begin_commit();
        log.note(bytes(1, 11, b"later"));
        log.begin_commit();
        log.note(bytes(1, 16, b"last"));
        log.end_commit();
        let left: Vec<_> = log.notes().collect();
        assert_eq!(left, [bytes(1, 11, b"later"), bytes(1, 16, b"last")]);
    }

    #[test]
    fn unsynced_full_half_is_reported_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        let data = vec![1; 1 << 20];
        let mut outcomes = Vec::new();
        loop {
            let outcome = log.note(bytes(1, 0, &data));
            outcomes.push(outcome);
            if outcome == Noted::NoRoom {
                break;
            }
        }
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Noted::HalfFull).count(), 1);
        assert_eq!(log.notes().count(), outcomes.len() - 1);
    }

    #[test]
    fn unsynced_file_has_one_process_and_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        let error = Unsynced::open(folder.path(), UUID, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        Unsynced::open(folder.path(), "0011", 1).unwrap();
        log.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Opens the notes twice in a directory with a planted file, and checks that the planted file
    /// is not used.
    fn pass_over(folder: &Path, planted: &Path) {
        let before = std::fs::read_dir(folder).unwrap().count();
        let mut first = Unsynced::open(folder, UUID, 1).unwrap();
        assert_ne!(first.path(), planted);
        first.note(bytes(5, 10, b"abc"));
        drop(first);
        let second = Unsynced::open(folder, UUID, 1).unwrap();
        assert_eq!(second.notes().collect::<Vec<_>>(), [bytes(5, 10, b"abc")]);
        second.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), before);
    }

    #[test]
    fn unsynced_skips_file_made_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let squatted = folder.path().join(plain_name(UUID));
        std::fs::write(&squatted, "squatted").unwrap();
        if let Err(error) = std::os::unix::fs::chown(&squatted, Some(65534), None) {
            println!("SKIP: needs root: {error}");
            return;
        }
        let pipe = folder.path().join(format!("zonal-{UUID}.pipe.unsynced"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o666)).unwrap();
        std::os::unix::fs::chown(&pipe, Some(65534), None).unwrap();
        pass_over(folder.path(), &squatted);
        assert_eq!(std::fs::read(&squatted).unwrap(), b"squatted");
    }

    #[test]
    fn unsynced_follows_no_link() {
        let elsewhere = tempfile::tempdir().unwrap();
        let precious = elsewhere.path().join("precious");
        std::fs::write(&precious, "").unwrap();
        let missing = elsewhere.path().join("missing");
        for target in [&precious, &missing, &elsewhere.path().to_owned()] {
            let folder = tempfile::tempdir().unwrap();
            let link = folder.path().join(plain_name(UUID));
            std::os::unix::fs::symlink(target, &link).unwrap();
            pass_over(folder.path(), &link);
            assert!(!missing.exists());
            assert_eq!(std::fs::read(&precious).unwrap(), b"");
        }
    }

    #[test]
    fn unsynced_skips_user_file_for_other_purpose() {
        use std::os::unix::fs::PermissionsExt;
        for (content, mode) in [("precious", 0o600), ("\0\0\0\0\0\0\0\0", 0o600), ("", 0o666)] {
            let folder = tempfile::tempdir().unwrap();
            let precious = folder.path().join("precious");
            std::fs::write(&precious, content).unwrap();
            std::fs::set_permissions(&precious, PermissionsExt::from_mode(mode)).unwrap();
            let link = folder.path().join(plain_name(UUID));
            std::fs::hard_link(&precious, &link).unwrap();
            pass_over(folder.path(), &link);
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), content);
        }
    }

    #[test]
    fn unsynced_reads_notes_with_hard_link() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Unsynced::open(folder.path(), UUID, 1).unwrap();
        first.note(bytes(5, 10, b"abc"));
        std::fs::hard_link(first.path(), folder.path().join("link")).unwrap();
        drop(first);
        let second = Unsynced::open(folder.path(), UUID, 1).unwrap();
        assert_eq!(second.notes().collect::<Vec<_>>(), [bytes(5, 10, b"abc")]);
    }

    #[test]
    fn unsynced_takes_file_created_but_not_begun() {
        use std::os::unix::fs::PermissionsExt;
        for content in [&[][..], &[0; 5000]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(plain_name(UUID));
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            let log = Unsynced::open(folder.path(), UUID, 1).unwrap();
            assert_eq!((log.path(), log.left()), (&*path, None));
        }
    }

    #[test]
    fn unsynced_keeps_pending_times_and_changes() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(5, 0, b"abc"));
        let (first, _second) = (log.begin_change(7, 0), log.begin_change(8, 0));
        log.end_change(first);
        let times = Times { before_ns: -3, after_ns: 4 };
        log.set_times(log.places()[0], times);
        drop(log);
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        assert_eq!(log.pending().collect::<Vec<_>>(), [8]);
        assert_eq!(log.notes().next().unwrap(), Note { times, ..bytes(5, 0, b"abc") });
        log.begin(2);
        assert_eq!(log.pending().count(), 0);
    }

    #[test]
    fn unsynced_has_no_notes_for_new_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(1, 0, b"before"));
        drop(log);
        assert!(Unsynced::open(folder.path(), UUID, 1).unwrap().left().is_some());
        assert_eq!(Unsynced::open(folder.path(), UUID, 2).unwrap().left(), None);
        assert_eq!(Unsynced::open(folder.path(), UUID, 1).unwrap().left(), None);
    }

    #[test]
    fn unsynced_ignores_invalid_notes() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Unsynced::open(folder.path(), UUID, 1).unwrap();
        log.note(bytes(1, 0, b"right"));
        let at = HEAD_BYTES + log.len[0];
        log.map[at..at + 32].fill(0xff);
        log.set_len(0, log.len[0] + 64);
        assert_eq!(log.notes().collect::<Vec<_>>(), [bytes(1, 0, b"right")]);
    }
}
