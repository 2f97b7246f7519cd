//! A read cache of files, because the kernel's page cache does not help a library.
//!
//! It keeps pieces of 128 KiB, as large as the readahead of Linux, and evicts pieces that no read
//! has used since the last scan (second chance). A sequential read brings in its pieces. A random
//! read does so only if another read has missed the same piece lately: so random reads of a large
//! store read no more from the drive than they need.
//!
//! No read uses a piece of a file that is open for writing. Opening a file for writing drops its
//! pieces, and a read that began before adds none. A table leaves its pieces in the cache as it is
//! [`written`].
//!
//! A piece that a file has [lent](CachedFile::lend) out stays in memory until the file is closed.
//! Lent pieces take half of the memory at most, the other half is for evictable ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use zonal_fs::vfs::Ino;
use zonal_fs::volume::File;

use crate::Result;

mod written;

use self::written::Gathering;

/// Bytes of a piece.
const PIECE: usize = 128 << 10;

/// Bytes of a file from a multiple of [`PIECE`] on: fewer than that only at its end.
type Piece = Arc<[u8]>;

/// A file and the number of a piece in it.
type Key = (Ino, u64);

/// The cache of a store.
pub(crate) struct ReadCache {
    kept: Mutex<Kept>,
    /// Bytes of pieces that files have lent out.
    lent_bytes: AtomicU64,
    /// The most bytes of either kind.
    bytes_max: u64,
}

#[derive(Default)]
struct Kept {
    pieces: BTreeMap<Key, (Piece, Use)>,
    /// The order of the scan.
    scan: VecDeque<Key>,
    bytes: u64,
    /// Pieces that were missed lately, as many as the cache can keep, the oldest first.
    missed: VecDeque<Key>,
    is_missed: BTreeSet<Key>,
    users: BTreeMap<Ino, Weak<Sharing>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Used,
    Unused,
}

/// The state that all open handles of a file share.
#[derive(Default)]
struct Sharing {
    writers: AtomicU64,
    /// How often the file was opened for writing.
    versions: AtomicU64,
}

impl Sharing {
    /// The version of a file that has no writer.
    fn version(&self) -> Option<u64> {
        let version = self.versions.load(Ordering::Acquire);
        (self.writers.load(Ordering::Acquire) == 0).then_some(version)
    }
}

/// The use that a handle makes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Reader,
    Writer,
}

/// What to do about a piece that the cache does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnMiss {
    /// Read it.
    Fill,
    /// Read it if another read has missed it lately.
    FillSecond,
    /// Leave it out of the cache.
    Leave,
}

/// A file below the cache.
pub(crate) trait Source {
    /// Reads into `buffer` from `offset` on and returns the number of bytes: fewer than the buffer
    /// has only at the end of the file.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// The bytes of the file.
    fn size(&self) -> Result<u64>;
}

impl Source for File {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.read_at(buffer, offset)?)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.size)
    }
}

impl ReadCache {
    /// A cache of at most `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { kept: Mutex::default(), lent_bytes: AtomicU64::new(0), bytes_max: bytes / 2 }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the cache can hold a piece.
    const fn has_room(&self) -> bool {
        self.bytes_max >= PIECE as u64
    }

    /// Forgets a file that is removed.
    pub(crate) fn forget(&self, ino: Ino) {
        self.lock().forget(ino);
    }
}

impl Kept {
    fn get(&mut self, key: Key) -> Option<Piece> {
        let (piece, used) = self.pieces.get_mut(&key)?;
        *used = Use::Used;
        Some(Arc::clone(piece))
    }

    fn put(&mut self, key: Key, piece: &Piece, bytes_max: u64) {
        self.bytes += piece.len() as u64;
        match self.pieces.insert(key, (Arc::clone(piece), Use::Unused)) {
            Some((old, _)) => self.bytes -= old.len() as u64,
            None => self.scan.push_back(key),
        }
        while self.bytes > bytes_max {
            let Some(key) = self.scan.pop_front() else { return };
            match self.pieces.get_mut(&key) {
                Some((_, used)) if *used == Use::Used => {
                    *used = Use::Unused;
                    self.scan.push_back(key);
                }
                Some(_) => self.remove(key),
                None => {}
            }
        }
    }

    /// Notes that a random read has missed a piece; returns whether another one has missed it
    /// lately.
    fn miss(&mut self, key: Key, bytes_max: u64) -> bool {
        if self.is_missed.remove(&key) {
            return true;
        }
        self.is_missed.insert(key);
        self.missed.push_back(key);
        while self.missed.len() as u64 > bytes_max / PIECE as u64 {
            let Some(oldest) = self.missed.pop_front() else { break };
            self.is_missed.remove(&oldest);
        }
        false
    }

    fn remove(&mut self, key: Key) {
        if let Some((piece, _)) = self.pieces.remove(&key) {
            self.bytes -= piece.len() as u64;
        }
    }

    fn forget(&mut self, ino: Ino) {
        let pieces = self.pieces.range((ino, 0)..=(ino, u64::MAX));
        let keys: Vec<Key> = pieces.map(|(key, _)| *key).collect();
        for &key in &keys {
            self.remove(key);
        }
        if !keys.is_empty() {
            self.scan.retain(|key| key.0 != ino);
        }
    }
}

/// An open handle of a file, with the pieces that it has lent out.
pub(crate) struct CachedFile {
    cache: Arc<ReadCache>,
    ino: Ino,
    role: Role,
    sharing: Arc<Sharing>,
    /// The end of the last read.
    end: AtomicU64,
    lent: OnceLock<Lent>,
    /// The part of a piece that the handle has written.
    gathering: Mutex<Gathering>,
}

/// Pieces of a version of a file.
struct Lent {
    version: u64,
    pieces: Box<[OnceLock<Piece>]>,
}

impl Lent {
    fn slot(&self, number: u64, version: u64) -> Option<&OnceLock<Piece>> {
        let number = usize::try_from(number).ok()?;
        if self.version == version { self.pieces.get(number) } else { None }
    }
}

impl CachedFile {
    /// Opens a handle of a file. A writer drops all pieces of the file.
    pub(crate) fn open(cache: Arc<ReadCache>, ino: Ino, role: Role) -> Self {
        let mut kept = cache.lock();
        let known = kept.users.get(&ino).and_then(Weak::upgrade);
        let sharing = known.unwrap_or_else(|| {
            let new = Arc::default();
            kept.users.insert(ino, Arc::downgrade(&new));
            new
        });
        if role == Role::Writer {
            sharing.writers.fetch_add(1, Ordering::AcqRel);
            sharing.versions.fetch_add(1, Ordering::AcqRel);
            kept.forget(ino);
        }
        drop(kept);
        Self {
            cache,
            ino,
            role,
            sharing,
            end: AtomicU64::new(0),
            lent: OnceLock::new(),
            gathering: Mutex::default(),
        }
    }

    /// The version of the file, if the cache can have pieces of it.
    fn version(&self) -> Option<u64> {
        if self.cache.has_room() { self.sharing.version() } else { None }
    }

    /// Reads like [`Source::read`].
    pub(crate) fn read(
        &self,
        source: &impl Source,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let Some(version) = self.version() else { return source.read(buffer, offset) };
        let miss = if self.is_next(offset) { OnMiss::Fill } else { OnMiss::FillSecond };
        self.end.store(offset + buffer.len() as u64, Ordering::Relaxed);
        let mut done = 0;
        while done < buffer.len() {
            let (number, inside) = split(offset + done as u64);
            let wanted = (buffer.len() - done).min(PIECE - inside);
            let part = &mut buffer[done..done + wanted];
            let found = match self.lent_piece(number, version) {
                Some(lent) => Some(Arc::clone(lent)),
                None => self.piece(source, number, version, miss)?,
            };
            let read = match found {
                Some(piece) => {
                    let bytes = piece.get(inside..).unwrap_or(&[]);
                    let read = bytes.len().min(wanted);
                    part[..read].copy_from_slice(&bytes[..read]);
                    read
                }
                None => source.read(part, offset + done as u64)?,
            };
            done += read;
            if read < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// Whether a read continues the last one, perhaps after a small gap.
    fn is_next(&self, offset: u64) -> bool {
        let gap = offset.checked_sub(self.end.load(Ordering::Relaxed));
        gap.is_some_and(|gap| gap < PIECE as u64)
    }

    /// `len` bytes from `offset` on, fewer at the end of the file, in memory that does not change
    /// until the file is closed. `None` if they are in two pieces, if the memory for lent pieces is
    /// used up, or if the file has a writer.
    pub(crate) fn lend(
        &self,
        source: &impl Source,
        offset: u64,
        len: usize,
    ) -> Result<Option<&[u8]>> {
        let (number, inside) = split(offset);
        let Some(version) = self.version() else { return Ok(None) };
        if len > PIECE - inside {
            return Ok(None);
        }
        let piece = match self.lent_piece(number, version) {
            Some(lent) => Some(lent),
            None => {
                // The miss is noted by the read that copies the bytes instead.
                let miss = if self.is_next(offset) { OnMiss::Fill } else { OnMiss::Leave };
                self.lend_piece(source, number, version, miss)?
            }
        };
        Ok(piece.map(|piece| {
            self.end.store(offset + len as u64, Ordering::Relaxed);
            let end = piece.len().min(inside + len);
            piece.get(inside..end).unwrap_or(&[])
        }))
    }

    fn lent_piece(&self, number: u64, version: u64) -> Option<&Piece> {
        self.lent.get()?.slot(number, version)?.get()
    }

    fn lend_piece(
        &self,
        source: &impl Source,
        number: u64,
        version: u64,
        miss: OnMiss,
    ) -> Result<Option<&Piece>> {
        let lent_bytes = &self.cache.lent_bytes;
        if lent_bytes.load(Ordering::Relaxed) + PIECE as u64 > self.cache.bytes_max {
            return Ok(None);
        }
        let Some(piece) = self.piece(source, number, version, miss)? else { return Ok(None) };
        let lent = match self.lent.get() {
            Some(lent) => lent,
            None => {
                let pieces = usize::try_from(source.size()?.div_ceil(PIECE as u64)).unwrap_or(0);
                self.lent.get_or_init(|| Lent {
                    version,
                    pieces: (0..pieces).map(|_| OnceLock::new()).collect(),
                })
            }
        };
        let Some(slot) = lent.slot(number, version) else { return Ok(None) };
        let bytes = piece.len() as u64;
        if slot.set(piece).is_ok() {
            lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(slot.get())
    }

    /// A piece of a version of the file. `None` if the cache does not have it and leaves it.
    fn piece(
        &self,
        source: &impl Source,
        number: u64,
        version: u64,
        miss: OnMiss,
    ) -> Result<Option<Piece>> {
        let (key, bytes_max) = ((self.ino, number), self.cache.bytes_max);
        {
            let mut kept = self.cache.lock();
            if let Some(piece) = kept.get(key) {
                return Ok(Some(piece));
            }
            let fills = match miss {
                OnMiss::Fill => true,
                OnMiss::FillSecond => kept.miss(key, bytes_max),
                OnMiss::Leave => false,
            };
            if !fills {
                return Ok(None);
            }
        }
        // Does not ask for the size, which would wait for a change of another file.
        let mut piece = empty_piece();
        let buffer = Arc::get_mut(&mut piece).expect("nobody else has it yet");
        let read = source.read(buffer, number * PIECE as u64)?;
        if read < PIECE {
            piece = Piece::from(&piece[..read]);
        }
        let mut kept = self.cache.lock();
        if self.sharing.version() == Some(version) {
            kept.put(key, &piece, bytes_max);
        }
        Ok(Some(piece))
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        let lent = self.lent.take();
        let pieces = lent.iter().flat_map(|lent| &lent.pieces).filter_map(OnceLock::get);
        let bytes = pieces.map(|piece| piece.len() as u64).sum();
        self.cache.lent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.keep_last_piece();
        let mut kept = self.cache.lock();
        if self.role == Role::Writer {
            self.sharing.writers.fetch_sub(1, Ordering::AcqRel);
        }
        // This handle is the last one: others are opened and dropped under the same lock.
        if Arc::strong_count(&self.sharing) == 1 {
            kept.users.remove(&self.ino);
        }
    }
}

/// A piece to be filled.
fn empty_piece() -> Piece {
    std::iter::repeat_n(0, PIECE).collect()
}

/// The number of a piece, and the position of a byte in it.
fn split(offset: u64) -> (u64, usize) {
    let inside = usize::try_from(offset % PIECE as u64).expect("less than a piece");
    (offset / PIECE as u64, inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of bytes that counts its reads.
    pub(super) struct Bytes {
        pub(super) data: Mutex<Vec<u8>>,
        reads: AtomicU64,
    }

    impl Bytes {
        pub(super) fn new(pieces: usize) -> Self {
            let data = (0..pieces * PIECE).map(|at| (at / 1000 % 251).to_le_bytes()[0]).collect();
            Self { data: Mutex::new(data), reads: AtomicU64::new(0) }
        }

        pub(super) fn reads(&self) -> u64 {
            self.reads.load(Ordering::Relaxed)
        }
    }

    impl Source for Bytes {
        fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let data = self.data.lock().unwrap();
            let from = usize::try_from(offset).unwrap().min(data.len());
            let len = buffer.len().min(data.len() - from);
            buffer[..len].copy_from_slice(&data[from..from + len]);
            Ok(len)
        }

        fn size(&self) -> Result<u64> {
            Ok(self.data.lock().unwrap().len() as u64)
        }
    }

    pub(super) fn cache(pieces: usize) -> Arc<ReadCache> {
        // Half of it for lent pieces.
        Arc::new(ReadCache::new(2 * (pieces * PIECE) as u64))
    }

    pub(super) fn reader(cache: &Arc<ReadCache>, ino: u64) -> CachedFile {
        CachedFile::open(Arc::clone(cache), Ino::new(ino), Role::Reader)
    }

    pub(super) fn read(file: &CachedFile, source: &Bytes, offset: usize, len: usize) -> Vec<u8> {
        let mut buffer = vec![0; len];
        let count = file.read(source, &mut buffer, offset as u64).unwrap();
        buffer.truncate(count);
        buffer
    }

    #[test]
    fn read_across_pieces_equals_file_and_hits_cache_again() {
        let (cache, source) = (cache(4), Bytes::new(3));
        let file = reader(&cache, 7);
        let data = source.data.lock().unwrap().clone();
        for (offset, len) in [(0, 10), (PIECE - 5, 10), (100, 2 * PIECE), (3 * PIECE - 3, 99)] {
            let end = data.len().min(offset + len);
            assert_eq!(read(&file, &source, offset, len), data[offset..end], "{offset} {len}");
        }
        assert_eq!(read(&file, &source, 3 * PIECE, 9), b"");
        read(&file, &source, 0, 3 * PIECE);
        let reads = source.reads();
        read(&file, &source, 0, 3 * PIECE);
        assert_eq!(source.reads(), reads);
    }

    #[test]
    fn cache_beyond_its_memory_evicts_unused_pieces() {
        let (cache, source) = (cache(2), Bytes::new(8));
        let file = reader(&cache, 7);
        for _ in 0..3 {
            read(&file, &source, 0, 8 * PIECE);
            let kept = cache.lock();
            assert!(kept.bytes <= cache.bytes_max);
            assert_eq!(kept.bytes, (kept.pieces.len() * PIECE) as u64);
        }
        cache.forget(Ino::new(7));
        assert_eq!(cache.lock().bytes, 0);
        let file = reader(&cache, 8);
        read(&file, &source, 0, PIECE + 1);
        read(&file, &source, 0, 1);
        read(&reader(&cache, 9), &source, 0, 1);
        let reads = source.reads();
        read(&file, &source, 0, 1);
        assert_eq!(source.reads(), reads, "the used piece has stayed");
    }

    #[test]
    fn random_read_fills_piece_only_at_second_miss() {
        let (cache, source) = (cache(4), Bytes::new(8));
        let file = reader(&cache, 7);
        let places = [5, 1, 6, 3];
        for number in places {
            let wanted = source.data.lock().unwrap()[number * PIECE + 9..][..10].to_vec();
            assert!(file.lend(&source, (number * PIECE + 9) as u64, 10).unwrap().is_none());
            assert_eq!(read(&file, &source, number * PIECE + 9, 10), wanted);
        }
        assert!(cache.lock().pieces.is_empty(), "reads at random");
        for number in places {
            read(&file, &source, number * PIECE, 10);
        }
        assert_eq!(cache.lock().pieces.len(), 4);
        assert!(file.lend(&source, PIECE as u64, 10).unwrap().is_some());
        let mut kept = cache.lock();
        for number in 0..100 {
            assert!(!kept.miss((Ino::new(9), number), cache.bytes_max));
            assert!(kept.missed.len() <= 4 && kept.is_missed.len() <= 4);
        }
    }

    #[test]
    fn file_opened_for_writing_is_read_past_the_cache() {
        let (cache, source) = (cache(4), Bytes::new(1));
        let file = reader(&cache, 7);
        read(&file, &source, 0, 9);
        let lent = file.lend(&source, 0, 9).unwrap().map(<[u8]>::to_vec);
        assert!(lent.is_some());
        let writer = CachedFile::open(Arc::clone(&cache), Ino::new(7), Role::Writer);
        source.data.lock().unwrap().fill(0xee);
        assert_eq!(read(&file, &source, 0, 9), [0xee; 9]);
        assert!(file.lend(&source, 0, 9).unwrap().is_none());
        source.data.lock().unwrap().fill(0xdd);
        drop(writer);
        assert_eq!(read(&file, &source, 0, 9), [0xdd; 9]);
        assert!(file.lend(&source, 0, 9).unwrap().is_none(), "what it lent is of another version");
        assert_eq!(reader(&cache, 7).lend(&source, 0, 9).unwrap(), Some(&[0xdd; 9][..]));
    }

    #[test]
    fn piece_read_before_file_is_opened_for_writing_is_not_kept() {
        /// Opens a writer during a read of the cache.
        struct Racing(Bytes, Arc<ReadCache>);
        impl Source for Racing {
            fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
                let count = self.0.read(buffer, offset);
                drop(CachedFile::open(Arc::clone(&self.1), Ino::new(7), Role::Writer));
                count
            }
            fn size(&self) -> Result<u64> {
                self.0.size()
            }
        }
        let cache = cache(4);
        let file = reader(&cache, 7);
        file.read(&Racing(Bytes::new(1), Arc::clone(&cache)), &mut [0; 9], 0).unwrap();
        assert!(cache.lock().pieces.is_empty());
    }

    #[test]
    fn read_does_not_ask_for_size() {
        /// A file whose size cannot be read now: its file system's lock is taken.
        struct Locked(Bytes);
        impl Source for Locked {
            fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
                self.0.read(buffer, offset)
            }
            fn size(&self) -> Result<u64> {
                panic!("a read has to wait for a change of another file")
            }
        }
        let file = reader(&cache(4), 7);
        let source = Locked(Bytes::new(2));
        let mut buffer = vec![0; PIECE];
        assert_eq!(file.read(&source, &mut buffer, 0).unwrap(), PIECE);
        assert_eq!(file.read(&source, &mut buffer, 2 * PIECE as u64 - 10).unwrap(), 10);
    }

    #[test]
    fn lent_memory_is_bounded_and_returned_at_close() {
        let (cache, source) = (cache(2), Bytes::new(4));
        let file = reader(&cache, 7);
        read(&file, &source, 0, 2 * PIECE);
        for number in 0..2 {
            let lent = file.lend(&source, (number * PIECE) as u64, 100).unwrap().unwrap();
            assert_eq!(lent, &source.data.lock().unwrap()[number * PIECE..number * PIECE + 100]);
        }
        assert!(file.lend(&source, 2 * PIECE as u64, 100).unwrap().is_none());
        assert!(file.lend(&source, PIECE as u64 - 50, 100).unwrap().is_none(), "two pieces");
        let again = file.lend(&source, 50, 100).unwrap();
        assert!(again.is_some(), "a piece that is lent is lent again");
        drop(file);
        assert_eq!(cache.lent_bytes.load(Ordering::Relaxed), 0);
        assert!(cache.lock().users.is_empty());
    }

    #[test]
    fn cache_without_memory_reads_no_more_than_asked() {
        let (cache, source) = (Arc::new(ReadCache::new(0)), Bytes::new(1));
        let file = reader(&cache, 7);
        assert_eq!(read(&file, &source, 1000, 2), [1, 1]);
        assert!(file.lend(&source, 0, 9).unwrap().is_none());
        assert!(cache.lock().pieces.is_empty());
    }

    #[test]
    fn lend_at_end_of_file_gives_fewer_bytes() {
        let (cache, source) = (cache(4), Bytes::new(1));
        source.data.lock().unwrap().truncate(100);
        let file = reader(&cache, 7);
        assert_eq!(file.lend(&source, 90, 50).unwrap().unwrap().len(), 10);
        assert_eq!(file.lend(&source, 200, 50).unwrap(), Some(&[][..]));
    }
}
