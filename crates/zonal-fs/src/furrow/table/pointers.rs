//! Conversion between [`Levels`] and the pointers of a manifest.
//!
//! A manifest comes from a drive, so decoding checks everything in it.

use zerocopy::byteorder::little_endian::{U32, U64};

use super::key::{Key, RowKind};
use super::levels::{Levels, Part, Run, SweepPosition};
use super::part::PartSummary;
use crate::furrow::format::manifest::{KeyBytes, Manifest, PartPointer, RunPointer};
use crate::furrow::format::{Address, BLOCK_BYTES};

fn key_bytes(key: Key) -> KeyBytes {
    KeyBytes {
        owner: U64::new(key.owner()),
        at: U64::new(key.at()),
        kind: key.kind().code(),
        reserved: [0; 7],
    }
}

fn key_of(bytes: &KeyBytes) -> Result<Key, String> {
    let kind =
        RowKind::from_code(bytes.kind).ok_or_else(|| format!("a key of kind {}", bytes.kind))?;
    Ok(Key::new(kind, bytes.owner.get(), bytes.at.get()))
}

fn part_pointer(part: &Part) -> PartPointer {
    let PartSummary {
        number,
        first,
        last,
        rows,
        tombstones,
        lost,
        bytes,
        index_at,
        index_bytes,
        index_crc,
        moved_below,
    } = part.summary;
    PartPointer {
        number: U64::new(number),
        first: key_bytes(first),
        last: key_bytes(last),
        rows: U32::new(rows),
        tombstones: U32::new(tombstones),
        lost: U32::new(lost),
        bytes: U32::new(bytes),
        index_at: U32::new(index_at),
        index_bytes: U32::new(index_bytes),
        index_crc: U32::new(index_crc),
        moved_below: U64::new(moved_below),
        zone: part.at.map(|at| U32::new(at.zone)),
        block: U32::new(part.at[0].block),
    }
}

fn part_of(pointer: &PartPointer) -> Result<Part, String> {
    let summary = PartSummary {
        number: pointer.number.get(),
        first: key_of(&pointer.first)?,
        last: key_of(&pointer.last)?,
        rows: pointer.rows.get(),
        tombstones: pointer.tombstones.get(),
        lost: pointer.lost.get(),
        bytes: pointer.bytes.get(),
        index_at: pointer.index_at.get(),
        index_bytes: pointer.index_bytes.get(),
        index_crc: pointer.index_crc.get(),
        moved_below: pointer.moved_below.get(),
    };
    let block = pointer.block.get();
    let is_whole = summary.bytes > 0 && (summary.bytes as usize).is_multiple_of(BLOCK_BYTES);
    if summary.first > summary.last || !is_whole {
        return Err(format!("part {} of {} bytes makes no sense", summary.number, summary.bytes));
    }
    Ok(Part { summary, at: pointer.zone.map(|zone| Address { zone: zone.get(), block }) })
}

/// Decodes the parts of a run, which must be in order and must not overlap.
fn parts_of(pointers: &[PartPointer]) -> Result<Vec<Part>, String> {
    let parts: Vec<Part> = pointers.iter().map(part_of).collect::<Result<_, _>>()?;
    for pair in parts.windows(2) {
        if pair[0].summary.last >= pair[1].summary.first {
            let numbers = (pair[0].summary.number, pair[1].summary.number);
            return Err(format!("part {} overlaps part {}", numbers.0, numbers.1));
        }
    }
    Ok(parts)
}

impl Levels {
    /// A manifest with pointers to these levels. All other fields are zero.
    pub(in crate::furrow) fn to_manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.header.sweep_turn = U64::new(self.sweep.turn);
        manifest.header.sweep_key = key_bytes(self.sweep.key);
        let run_pointer = |run: &Run| RunPointer {
            born_turn: U64::new(run.born.turn),
            born_key: key_bytes(run.born.key),
            rows_left: U64::new(run.rows_left),
            parts: U32::new(u32::try_from(run.parts.len()).expect("it fits in memory")),
            tier: U32::new(run.tier),
        };
        manifest.runs = self.upper.iter().map(run_pointer).collect();
        manifest.parts = self.parts().map(part_pointer).collect();
        manifest
    }

    /// The levels that a manifest names.
    pub(in crate::furrow) fn from_manifest(manifest: &Manifest) -> Result<Self, String> {
        let header = &manifest.header;
        let sweep =
            SweepPosition { turn: header.sweep_turn.get(), key: key_of(&header.sweep_key)? };
        let mut rest = &manifest.parts[..];
        let mut upper = Vec::new();
        for run in &manifest.runs {
            let born = SweepPosition { turn: run.born_turn.get(), key: key_of(&run.born_key)? };
            let (parts, later) = rest
                .split_at_checked(run.parts.get() as usize)
                .ok_or_else(|| "a run has more parts than there are".to_owned())?;
            rest = later;
            let parts = parts_of(parts)?;
            let rows: u64 = parts.iter().map(|part| u64::from(part.summary.rows)).sum();
            let rows_left = run.rows_left.get().min(rows);
            upper.push(Run { tier: run.tier.get(), born, rows_left, parts });
        }
        if !upper.is_sorted_by_key(|run| run.tier) || upper.iter().any(|run| run.born > sweep) {
            return Err("runs are not in the order of their age".into());
        }
        let levels = Self { upper, last: parts_of(rest)?, sweep };
        let is_gone =
            |run: &Run| run.parts.is_empty() || levels.spans_since(run.born).next().is_none();
        if levels.upper.iter().any(is_gone) {
            return Err("a run that the sweep has passed is named".into());
        }
        Ok(levels)
    }
}
