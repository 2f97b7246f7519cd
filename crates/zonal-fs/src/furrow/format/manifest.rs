//! The manifest: where the checkpoint's pieces are and where the journal goes on.
//!
//! Body of a record of kind [`Manifest`](super::record::RecordKind::Manifest): a
//! [`ManifestHeader`], then `pieces` × [`PiecePointer`], then `journal_zones` × [`JournalZone`].

use std::mem::size_of;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Head of the manifest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ManifestHeader {
    /// Number of the next inode.
    pub next_ino: U64,
    /// Number of the next extent.
    pub next_extent: U64,
    /// Number of the last batch that the checkpoint contains; the journal goes on with the next.
    pub last_batch: U64,
    /// Rows in the checkpoint.
    pub rows: U64,
    /// Blocks of data written over the file system's life: the clock of reclaim.
    pub data_clock: U64,
    /// `chain` that the first journal record continues.
    pub chain: U32,
    /// Block of its zone at which the journal's first record lies, in each copy.
    pub journal_block: [U32; 2],
    /// Pieces of the checkpoint.
    pub pieces: U32,
    /// Zones of each copy of the journal.
    pub journal_zones: U32,
    /// Zero when written, ignored when read.
    pub reserved: U32,
}

const _: () = assert!(size_of::<ManifestHeader>() == 64);

/// A piece of the checkpoint: one record, in two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PiecePointer {
    /// Zone of each copy.
    pub zone: [U32; 2],
    /// Block in that zone.
    pub block: [U32; 2],
    /// Bytes of the record, header included; the same in both copies.
    pub bytes: U32,
    /// `chain` of the record; the same in both copies.
    pub chain: U32,
}

const _: () = assert!(size_of::<PiecePointer>() == 24);

/// The n-th zone of the journal, in both copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct JournalZone {
    /// Zone of each copy.
    pub zone: [U32; 2],
}

const _: () = assert!(size_of::<JournalZone>() == 8);

/// A decoded manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Its fixed part.
    pub header: ManifestHeader,
    /// Pieces of the checkpoint, in order.
    pub pieces: Vec<PiecePointer>,
    /// Zones of the journal, in order.
    pub journal: Vec<JournalZone>,
}

impl Manifest {
    /// Appends the body's bytes.
    pub fn encode(&self, body: &mut Vec<u8>) {
        let mut header = self.header;
        header.pieces = U32::new(u32::try_from(self.pieces.len()).expect("pieces fit"));
        header.journal_zones = U32::new(u32::try_from(self.journal.len()).expect("zones fit"));
        body.extend_from_slice(header.as_bytes());
        body.extend_from_slice(self.pieces.as_bytes());
        body.extend_from_slice(self.journal.as_bytes());
    }

    /// Reads a body, or says what is wrong with it.
    pub fn decode(body: &[u8]) -> Result<Self, String> {
        let short = || format!("{} bytes, too short for what they announce", body.len());
        let (header, rest) = ManifestHeader::read_from_prefix(body).map_err(|_| short())?;
        let count = header.pieces.get() as usize;
        let (pieces, rest) =
            <[PiecePointer]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?;
        let count = header.journal_zones.get() as usize;
        let (journal, _) =
            <[JournalZone]>::ref_from_prefix_with_elems(rest, count).map_err(|_| short())?;
        if journal.is_empty() {
            return Err("no journal zone".into());
        }
        Ok(Self { header, pieces: pieces.to_vec(), journal: journal.to_vec() })
    }
}
