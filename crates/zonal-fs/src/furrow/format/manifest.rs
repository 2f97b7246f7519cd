//! The manifest: the parts of the table, and the place from which the journal continues it.
//!
//! Body of a record of kind [`Manifest`](super::record::RecordKind::Manifest): a
//! [`ManifestHeader`], then `runs` × [`RunPointer`], then `parts` × [`PartPointer`], then
//! `journal_pairs` × [`JournalPair`]. The parts of the runs come first, run by run, then those of
//! the last level.

use std::mem::size_of;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A key.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct KeyBytes {
    /// Inode, directory, extent or zone.
    pub owner: U64,
    /// Place within the owner and kind.
    pub at: U64,
    /// Group and kind, a hexadecimal digit each.
    pub kind: u8,
    /// Zero when written, ignored when read.
    pub reserved: [u8; 7],
}

/// Head of the manifest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ManifestHeader {
    /// Number of the next part.
    pub next_part: U64,
    /// Number of the last batch that the table contains; the journal continues with the next.
    pub last_batch: U64,
    /// Turns round all keys that the sweep has completed.
    pub sweep_turn: U64,
    /// The sweep has passed all keys below this one in its present turn.
    pub sweep_key: KeyBytes,
    /// `chain` that the first journal record continues.
    pub chain: U32,
    /// Block at which the journal's first record lies, in both zones of its pair.
    pub journal_block: U32,
    /// Runs above the last level.
    pub runs: U32,
    /// Parts of all levels.
    pub parts: U32,
    /// Pairs of zones of the journal. 0: the journal is empty, and another manifest names a pair
    /// before the next batch.
    pub journal_pairs: U32,
    /// Zero when written, ignored when read.
    pub reserved: U32,
}

const _: () = assert!(size_of::<KeyBytes>() == 24);
const _: () = assert!(size_of::<ManifestHeader>() == 72);

/// A run above the last level. The newest one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RunPointer {
    /// Turns that the sweep had completed when the run was written.
    pub born_turn: U64,
    /// The sweep had passed all keys below this one in its turn then.
    pub born_key: KeyBytes,
    /// Rows that the sweep has not merged into the last level yet.
    pub rows_left: U64,
    /// Its parts.
    pub parts: U32,
    /// Merges that its rows have been through.
    pub tier: U32,
}

const _: () = assert!(size_of::<RunPointer>() == 48);

/// A part of a run, in two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PartPointer {
    /// Its number.
    pub number: U64,
    /// Its first key.
    pub first: KeyBytes,
    /// Its last key.
    pub last: KeyBytes,
    /// Rows, tombstones included.
    pub rows: U32,
    /// Tombstones.
    pub tombstones: U32,
    /// Bytes of a copy, in whole blocks.
    pub bytes: U32,
    /// Where the index of its leaves begins.
    pub index_at: U32,
    /// Bytes of the index.
    pub index_bytes: U32,
    /// CRC-32C of the index.
    pub index_crc: U32,
    /// Zone of each copy.
    pub zone: [U32; 2],
    /// Block in both zones.
    pub block: U32,
    /// Ranges of keys that were lost before the part was written.
    pub lost: U32,
    /// All remap tables with a number below this one are applied in its map rows. 2^64 - 1: it has
    /// none with a place.
    pub moved_below: U64,
}

const _: () = assert!(size_of::<PartPointer>() == 104);

/// Two zones with a copy of the journal each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct JournalPair {
    /// Zone of each copy.
    pub zone: [U32; 2],
    /// Number of the first batch in it. An earlier pair may hold records from this number on, which
    /// were never acknowledged.
    pub first_batch: U64,
}

const _: () = assert!(size_of::<JournalPair>() == 16);

/// A decoded manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Its fixed part.
    pub header: ManifestHeader,
    /// Runs above the last level, newest first.
    pub runs: Vec<RunPointer>,
    /// Parts of all runs, then of the last level.
    pub parts: Vec<PartPointer>,
    /// Pairs of the journal, in order.
    pub journal: Vec<JournalPair>,
}

impl Manifest {
    /// Appends the body's bytes.
    pub fn encode(&self, body: &mut Vec<u8>) {
        let count = |count: usize| U32::new(u32::try_from(count).expect("it fits in memory"));
        let mut header = self.header;
        header.runs = count(self.runs.len());
        header.parts = count(self.parts.len());
        header.journal_pairs = count(self.journal.len());
        body.extend_from_slice(header.as_bytes());
        body.extend_from_slice(self.runs.as_bytes());
        body.extend_from_slice(self.parts.as_bytes());
        body.extend_from_slice(self.journal.as_bytes());
    }

    /// Decodes a body; the error names the fault.
    pub fn decode(body: &[u8]) -> Result<Self, String> {
        let short = || format!("{} bytes, too short for what they announce", body.len());
        let (header, rest) = ManifestHeader::read_from_prefix(body).map_err(|_| short())?;
        let count = header.runs.get() as usize;
        let (runs, rest) =
            <[RunPointer]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?;
        let count = header.parts.get() as usize;
        let (parts, rest) =
            <[PartPointer]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?;
        let count = header.journal_pairs.get() as usize;
        let (journal, _) =
            <[JournalPair]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?;
        let in_runs: u64 = runs.iter().map(|run| u64::from(run.parts.get())).sum();
        if in_runs > parts.len() as u64 {
            return Err(format!("runs have {in_runs} parts, of {}", parts.len()));
        }
        let (runs, parts, journal) = (runs.to_vec(), parts.to_vec(), journal.to_vec());
        Ok(Self { header, runs, parts, journal })
    }
}
