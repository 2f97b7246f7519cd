//! Pieces of a table, kept as the table is written: a compaction, at least, reads it soon, and
//! finds it in the cache as in the kernel's page cache.
//!
//! Only a file that one handle writes from start to end leaves pieces, so that they cover all of
//! it. A log comes in small writes and leaves none, because a store does not read it again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::{CachedFile, PIECE, Piece, Source, empty_piece, split};

/// The least size of a table's first write: the shims of the stores gather writes of tables. A
/// store flushes its log after each record.
const LARGE: usize = 32 << 10;

/// Whether a handle keeps the bytes that it writes.
#[derive(Default)]
pub(super) enum Gathering {
    /// The first write decides.
    #[default]
    Undecided,
    /// The handle keeps them.
    On(Gathered),
    /// It does not.
    Off,
}

/// The last piece of a file, which is not full yet.
pub(super) struct Gathered {
    /// The version of the file since its only writer opened it.
    version: u64,
    /// The length of the file so far.
    end: u64,
    piece: Piece,
}

impl Gathered {
    fn new(version: u64) -> Self {
        Self { version, end: 0, piece: empty_piece() }
    }

    /// Adds bytes up to the end of the piece, and returns their number.
    fn add(&mut self, data: &[u8]) -> usize {
        let (_, inside) = split(self.end);
        let len = data.len().min(PIECE - inside);
        let piece = Arc::get_mut(&mut self.piece).expect("nobody else has it yet");
        piece[inside..inside + len].copy_from_slice(&data[..len]);
        self.end += len as u64;
        len
    }
}

impl CachedFile {
    /// Records that the handle has written bytes at `offset`.
    pub(crate) fn wrote(&self, source: &impl Source, offset: u64, data: &[u8]) {
        let mut gathering = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*gathering, Gathering::Undecided) {
            let is_table = offset == 0 && data.len() >= LARGE;
            let version = if is_table { self.version_of_only_writer() } else { None };
            let is_all = || source.size().is_ok_and(|size| size == data.len() as u64);
            *gathering = match version {
                Some(version) if is_all() => Gathering::On(Gathered::new(version)),
                Some(_) | None => Gathering::Off,
            };
        }
        let Gathering::On(gathered) = &mut *gathering else { return };
        if offset != gathered.end {
            return self.stop(&mut gathering);
        }
        let mut rest = data;
        while !rest.is_empty() {
            let (number, _) = split(gathered.end);
            rest = &rest[gathered.add(rest)..];
            if split(gathered.end).0 > number {
                let piece = std::mem::replace(&mut gathered.piece, empty_piece());
                if !self.keep(gathered.version, number, &piece) {
                    return self.stop(&mut gathering);
                }
            }
        }
    }

    /// Records that the handle has cut or lengthened the file.
    pub(crate) fn resized(&self, size: u64) {
        let mut gathering = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathering::On(gathered) = &mut *gathering else { return };
        // With direct I/O the last block is written whole, and then cut.
        let is_in_piece = split(size).0 == split(gathered.end).0 && size <= gathered.end;
        if is_in_piece { gathered.end = size } else { self.stop(&mut gathering) }
    }

    /// Records that a change by the handle has failed, so that the content of the file is unknown.
    pub(crate) fn failed(&self) {
        self.stop(&mut self.gathering.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Keeps the last, partial piece when the handle is closed.
    pub(super) fn keep_last_piece(&self) {
        let gathering = self.gathering.lock().unwrap_or_else(PoisonError::into_inner);
        let Gathering::On(gathered) = &*gathering else { return };
        let (number, inside) = split(gathered.end);
        if inside > 0 {
            self.keep(gathered.version, number, &Piece::from(&gathered.piece[..inside]));
        }
    }

    /// The version of the file, if this handle alone writes it and the cache can have pieces of it.
    fn version_of_only_writer(&self) -> Option<u64> {
        let is_only = self.sharing.writers.load(Ordering::Acquire) == 1;
        (is_only && self.cache.has_room()).then(|| self.sharing.versions.load(Ordering::Acquire))
    }

    /// Puts a piece into the cache, unless another handle was opened for writing meanwhile. That
    /// open takes the same lock, and drops the pieces before it.
    fn keep(&self, version: u64, number: u64, piece: &Piece) -> bool {
        let mut kept = self.cache.lock();
        let is_current = self.version_of_only_writer() == Some(version);
        if is_current {
            kept.put((self.ino, number), piece, self.cache.bytes_max);
        }
        is_current
    }

    fn stop(&self, gathering: &mut Gathering) {
        if matches!(gathering, Gathering::On(_)) {
            self.cache.forget(self.ino);
        }
        *gathering = Gathering::Off;
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};
    use zonal::repeat;
    use zonal_fs::vfs::Ino;

    use super::super::tests::{Bytes, cache, read, reader};
    use super::super::{ReadCache, Role};
    use super::*;

    const INO: u64 = 7;

    fn writer(cache: &Arc<ReadCache>) -> CachedFile {
        CachedFile::open(Arc::clone(cache), Ino::new(INO), Role::Writer)
    }

    fn append(file: &CachedFile, source: &Bytes, data: &[u8]) {
        let offset = {
            let mut bytes = source.data.lock().unwrap();
            bytes.extend_from_slice(data);
            (bytes.len() - data.len()) as u64
        };
        file.wrote(source, offset, data);
    }

    fn cut(file: &CachedFile, source: &Bytes, size: usize) {
        source.data.lock().unwrap().truncate(size);
        file.resized(size as u64);
    }

    #[test]
    fn table_written_by_one_handle_is_read_from_cache() {
        let (cache, source) = (cache(8), Bytes::new(0));
        let file = writer(&cache);
        for fill in 0..10 {
            append(&file, &source, &vec![fill; 20_000 + LARGE]);
        }
        let size = source.data.lock().unwrap().len();
        // As with direct I/O: the last block, and then the end of the file.
        append(&file, &source, &[9; 4096]);
        cut(&file, &source, size + 77);
        drop(file);
        let data = source.data.lock().unwrap().clone();
        assert_eq!(read(&reader(&cache, INO), &source, 0, data.len()), data);
        assert_eq!(source.reads(), 0);
        assert_eq!(cache.lock().bytes, data.len() as u64);
    }

    #[test]
    fn log_of_small_writes_leaves_no_pieces() {
        let (cache, source) = (cache(8), Bytes::new(0));
        let file = writer(&cache);
        append(&file, &source, &[1; 5000]);
        append(&file, &source, &vec![2; 4 * PIECE]);
        drop(file);
        assert!(cache.lock().pieces.is_empty());
    }

    #[test]
    fn table_changed_by_others_or_failed_leaves_no_pieces() {
        type Change = fn(&Arc<ReadCache>, &CachedFile, &Bytes);
        let table = vec![1; PIECE + LARGE];
        let changes: [Change; 4] = [
            |cache, _, source| append(&writer(cache), source, b"another handle"),
            |_, file, source| cut(file, source, 10),
            |_, file, _| file.failed(),
            |_, file, source| {
                source.data.lock().unwrap()[..5].fill(9);
                file.wrote(source, 0, &[9; 5]);
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let (cache, source) = (cache(8), Bytes::new(0));
            let file = writer(&cache);
            append(&file, &source, &table);
            assert_eq!(cache.lock().pieces.len(), 1);
            change(&cache, &file, &source);
            append(&file, &source, &table);
            drop(file);
            assert!(cache.lock().pieces.is_empty(), "{number}");
        }
        let (cache, source) = (cache(8), Bytes::new(1));
        let file = writer(&cache);
        source.data.lock().unwrap()[..LARGE].fill(9);
        file.wrote(&source, 0, &vec![9; LARGE]);
        drop(file);
        assert!(cache.lock().pieces.is_empty(), "a file that had bytes before");
    }

    /// Handles come and go, write, cut and fail; every read equals the file.
    #[test]
    fn reads_equal_file_whatever_handles_write() {
        let seed = repeat::seed(std::process::id().into());
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |limit: usize| random.next_u32() as usize % limit;
        let mut cached = 0;
        for _ in 0..60 {
            let (cache, source) = (cache(1 + below(6)), Bytes::new(0));
            let (mut writers, mut readers) = (Vec::new(), vec![reader(&cache, INO)]);
            for _ in 0..60 {
                match below(12) {
                    0 => writers.push(writer(&cache)),
                    1 | 2 if !writers.is_empty() => drop(writers.swap_remove(below(writers.len()))),
                    3 => readers.push(reader(&cache, INO)),
                    4 if !writers.is_empty() => {
                        let size = source.data.lock().unwrap().len();
                        let back = [10, 5000, PIECE, size][below(4)].min(size);
                        cut(&writers[below(writers.len())], &source, size - back);
                    }
                    5 if !writers.is_empty() && below(4) == 0 => {
                        source.data.lock().unwrap().push(3);
                        writers[below(writers.len())].failed();
                    }
                    6..10 if !writers.is_empty() => {
                        let len = [9, 5000, LARGE, PIECE - 1, PIECE, 2 * PIECE + 5][below(6)];
                        let data = vec![below(256).to_le_bytes()[0]; len];
                        append(&writers[below(writers.len())], &source, &data);
                    }
                    _ => {
                        let data = source.data.lock().unwrap().clone();
                        let at = below(data.len() + 1);
                        let len = [1, 5000, data.len()][below(3)].min(data.len() - at);
                        let (file, before) = (&readers[below(readers.len())], source.reads());
                        assert!(read(file, &source, at, len) == data[at..at + len], "SEED={seed}");
                        cached += u32::from(len > 0 && source.reads() == before);
                    }
                }
            }
        }
        assert!(cached > 20, "the cache had {cached} of the reads");
    }
}
