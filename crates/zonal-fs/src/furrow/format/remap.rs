//! Remap tables: where reclaim has moved blocks of a zone.
//!
//! When reclaim moves blocks, their map rows keep the place to which they were written, and readers
//! look up the present place in a remap table. Each table has blocks of one zone that now lie side
//! by side: in their old order, with a bit for each block, or in the order of files, run by run.

use std::mem::size_of;
use std::ops::Range;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{ZoneGeneration, put_number, take_number};

/// A remap table: the new place of moved blocks of a zone; then which blocks, in one of two forms.
/// Key: 4 × the zone's number + its generation, and a number of its own: later tables have higher
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RemapRow {
    /// Where the blocks are: 4 × the zone's number + its generation.
    pub zone: U32,
    /// The first block there.
    pub block: U32,
    /// The lowest block that was moved.
    pub first: U32,
    /// Blocks from `first` to the highest moved block, both included.
    pub span: U32,
    /// 0: the blocks lie in their old order, and a bit follows for each block of the span. 1: for
    /// each run follow two numbers of variable length: the distance from the end of the run before
    /// (for the first run, from `first`), zigzag encoded, and the number of its blocks.
    pub form: u8,
}

const _: () = assert!(size_of::<RemapRow>() == 17);

/// Most blocks of a remap table: as a rule more than reclaim moves between two commits.
pub const REMAP_BLOCKS_MAX: u32 = 4096;

/// A run of blocks of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRun {
    /// The first block.
    pub block: u32,
    /// Number of blocks, never 0.
    pub blocks: u32,
}

impl RemapRun {
    /// The block behind the last one.
    pub const fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// Values of [`RemapRow::form`].
const BITS: u8 = 0;
const RUNS: u8 = 1;

/// The remap table of `runs`, which now lie one behind the other from a block of a zone on. Returns
/// the fixed part of the row and its tail.
pub fn encode(zone: ZoneGeneration, block: u32, runs: &[RemapRun]) -> (RemapRow, Vec<u8>) {
    let first = runs.iter().map(|run| run.block).min().expect("a table has blocks");
    let end = runs.iter().map(RemapRun::end).max().expect("a table has blocks");
    let span = end - first;
    let bits_bytes = span.div_ceil(8) as usize;
    let mut tail = run_bytes(first, runs);
    let is_in_order = runs.is_sorted_by(|run, next| run.end() <= next.block);
    let form = if is_in_order && bits_bytes < tail.len() {
        tail = bits_of(first, bits_bytes, runs);
        BITS
    } else {
        RUNS
    };
    let row = RemapRow {
        zone: zone.raw().into(),
        block: block.into(),
        first: first.into(),
        span: span.into(),
        form,
    };
    (row, tail)
}

/// The tail in form 1.
fn run_bytes(first: u32, runs: &[RemapRun]) -> Vec<u8> {
    let (mut tail, mut end) = (Vec::new(), i64::from(first));
    for run in runs {
        let ahead = i64::from(run.block) - end;
        // Zigzag: the sign is the lowest bit.
        put_number(&mut tail, ((ahead << 1) ^ (ahead >> 63)).cast_unsigned());
        put_number(&mut tail, run.blocks.into());
        end = run.end().into();
    }
    tail
}

fn bits_of(first: u32, bytes: usize, runs: &[RemapRun]) -> Vec<u8> {
    let mut tail = vec![0; bytes];
    for block in runs.iter().flat_map(|run| run.block..run.end()) {
        let bit = block - first;
        tail[bit as usize / 8] |= 1 << (bit % 8);
    }
    tail
}

/// The runs of a remap table in the order in which they lie now. The error says why the row is
/// invalid.
pub fn decode(row: &RemapRow, tail: &[u8]) -> Result<Vec<RemapRun>, &'static str> {
    let (first, span) = (row.first.get(), row.span.get());
    let end = first.checked_add(span).filter(|_| span > 0).ok_or("no blocks")?;
    let mut runs = Vec::new();
    match row.form {
        BITS => decode_bits(first..end, tail, &mut runs)?,
        RUNS => decode_runs(first..end, tail, &mut runs)?,
        _ => return Err("a form that there is not"),
    }
    let blocks: u64 = runs.iter().map(|run| u64::from(run.blocks)).sum();
    let is_short = blocks <= u64::from(REMAP_BLOCKS_MAX);
    if runs.is_empty() || !is_short || u64::from(row.block.get()) + blocks > u64::from(u32::MAX) {
        return Err("no blocks, or too many");
    }
    Ok(runs)
}

fn decode_bits(
    span: Range<u32>,
    tail: &[u8],
    runs: &mut Vec<RemapRun>,
) -> Result<(), &'static str> {
    if tail.len() != span.len().div_ceil(8) || tail.len() > TAIL_BYTES_MAX {
        return Err("another number of bits");
    }
    let is_set = |block: &u32| {
        let bit = (block - span.start) as usize;
        tail[bit / 8] >> (bit % 8) & 1 == 1
    };
    for block in span.clone().filter(is_set) {
        match runs.last_mut() {
            Some(run) if run.end() == block => run.blocks += 1,
            Some(_) | None => runs.push(RemapRun { block, blocks: 1 }),
        }
    }
    Ok(())
}

/// Most bytes of a tail that is read: more than any table that is ever written has.
const TAIL_BYTES_MAX: usize = 16 << 10;

fn decode_runs(
    span: Range<u32>,
    mut tail: &[u8],
    runs: &mut Vec<RemapRun>,
) -> Result<(), &'static str> {
    if tail.len() > TAIL_BYTES_MAX {
        return Err("too many runs");
    }
    let mut end = i64::from(span.start);
    while !tail.is_empty() {
        let run = take_run(&mut tail, end)?;
        if run.block < span.start || run.end() > span.end {
            return Err("blocks outside its span");
        }
        end = run.end().into();
        runs.push(run);
    }
    Ok(())
}

fn take_run(tail: &mut &[u8], end: i64) -> Result<RemapRun, &'static str> {
    let ahead = take_number(tail)?;
    let ahead = (ahead >> 1).cast_signed() ^ -(ahead & 1).cast_signed();
    let blocks = u32::try_from(take_number(tail)?).ok().filter(|blocks| *blocks > 0);
    let block = end.checked_add(ahead).and_then(|block| u32::try_from(block).ok());
    match (block, blocks) {
        (Some(block), Some(blocks)) if block.checked_add(blocks).is_some() => {
            Ok(RemapRun { block, blocks })
        }
        _ => Err("a run that no zone has"),
    }
}

/// The distance of a run from the first block of the table's new place. `None` if not all of its
/// blocks are in the table, side by side. [`decode`] must have accepted the row.
pub fn rank_of(row: &RemapRow, tail: &[u8], run: RemapRun) -> Option<u32> {
    let ahead = run.block.checked_sub(row.first.get())?;
    if ahead.checked_add(run.blocks)? > row.span.get() {
        return None;
    }
    if row.form == BITS {
        rank_in_bits(tail, ahead, run.blocks)
    } else {
        rank_in_runs(row, tail, run)
    }
}

fn rank_in_bits(tail: &[u8], ahead: u32, blocks: u32) -> Option<u32> {
    let is_set = |bit: u32| tail[bit as usize / 8] >> (bit % 8) & 1 == 1;
    if !(ahead..ahead + blocks).all(is_set) {
        return None;
    }
    let (whole, rest) = (ahead as usize / 8, ahead % 8);
    let words = tail[..whole].chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word).count_ones()
    });
    let below = tail[whole] & ((1_u8 << rest) - 1);
    Some(words.sum::<u32>() + below.count_ones())
}

fn rank_in_runs(row: &RemapRow, mut tail: &[u8], wanted: RemapRun) -> Option<u32> {
    let (mut end, mut rank) = (i64::from(row.first.get()), 0);
    while !tail.is_empty() {
        let run = take_run(&mut tail, end).ok()?;
        if (run.block..run.end()).contains(&wanted.block) {
            let skip = wanted.block - run.block;
            return (skip + wanted.blocks <= run.blocks).then_some(rank + skip);
        }
        end = run.end().into();
        rank += run.blocks;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Runs apart from each other, in the order of the zone.
    fn any_runs() -> impl Strategy<Value = Vec<RemapRun>> {
        (0_u32..5000, vec((1_u32..20, 1_u32..9), 1..120)).prop_map(|(first, pairs)| {
            let mut end = first;
            pairs
                .into_iter()
                .map(|(gap, blocks)| {
                    let run = RemapRun { block: end + gap, blocks };
                    end = run.end();
                    run
                })
                .collect()
        })
    }

    fn assert_is_found(runs: &[RemapRun]) {
        let (row, tail) = encode(ZoneGeneration::from_raw(77), 40, runs);
        assert_eq!(decode(&row, &tail).unwrap(), runs);
        let mut rank = 0;
        for run in runs {
            for skip in 0..run.blocks {
                let rest = run.blocks - skip;
                let found =
                    |blocks| rank_of(&row, &tail, RemapRun { block: run.block + skip, blocks });
                assert_eq!(found(1), Some(rank + skip));
                assert_eq!(found(rest), Some(rank + skip));
                assert_eq!(found(rest + 1), None, "what lies behind a run is not its own");
            }
            rank += run.blocks;
        }
        let has = |block| runs.iter().any(|run| run.block <= block && block < run.end());
        for block in 0..runs.iter().map(RemapRun::end).max().unwrap() + 9 {
            assert_eq!(
                rank_of(&row, &tail, RemapRun { block, blocks: 1 }).is_some(),
                has(block),
                "block {block}"
            );
        }
    }

    proptest! {
        #[test]
        fn remap_finds_blocks_where_they_lie(runs in any_runs()) {
            assert_is_found(&runs);
        }

        #[test]
        fn remap_finds_blocks_in_any_order(runs in any_runs(), seed in any::<u64>()) {
            let mut runs = runs;
            runs.sort_by_key(|run| u64::from(run.block).wrapping_mul(seed | 1).rotate_left(17));
            assert_is_found(&runs);
        }

        #[test]
        fn remap_decode_handles_any_bytes(
            (first, span, form) in (any::<u32>(), 0_u32..70_000, 0_u8..3),
            tail in vec(any::<u8>(), 0..200),
            block in any::<u32>(),
        ) {
            let row = RemapRow {
                zone: 1.into(), block: 2.into(), first: first.into(), span: span.into(), form,
            };
            if decode(&row, &tail).is_ok() {
                let _ = rank_of(&row, &tail, RemapRun { block, blocks: 3 });
            }
        }
    }

    #[test]
    fn remap_takes_one_bit_per_ordered_block() {
        let runs: Vec<RemapRun> =
            (0..500).map(|run| RemapRun { block: run * 4, blocks: 3 }).collect();
        let (_, tail) = encode(ZoneGeneration::from_raw(1), 2, &runs);
        assert_eq!(tail.len(), 250);
        // Few of many do not.
        let runs = [0, 9_000, 30_000].map(|block| RemapRun { block, blocks: 2 });
        assert!(encode(ZoneGeneration::from_raw(1), 2, &runs).1.len() < 12);
    }
}
