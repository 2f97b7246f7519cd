//! Tables of moved blocks: where reclaim has moved blocks of a zone to.
//!
//! A map row goes on naming the place that its blocks were written to, so moving them changes no
//! row of a file. A reader looks up where they are now. The table says it for blocks that came to
//! lie side by side: in their old order, a bit a block; or in the order of files, run by run.

use std::mem::size_of;
use std::ops::Range;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{put_number, take_number};

/// Blocks that reclaim has moved to one place; then which ones, in one of two forms. Key: 4 × the
/// zone's number + its generation, and a number that no other such row has had: later ones are
/// higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RemapRow {
    /// Where they are: 4 × the zone's number + its generation.
    pub zone: U32,
    /// The first block there.
    pub block: U32,
    /// The lowest block that was moved.
    pub first: U32,
    /// Blocks from there to the highest one, with both.
    pub span: U32,
    /// 0: they lie as before, and a bit follows for each block of the span. 1: run by run follow
    /// the difference of its first block to the end of the run before (to `first`), doubled, or of
    /// a negative one doubled and less one, and its blocks, both as numbers of variable length.
    pub form: u8,
}

const _: () = assert!(size_of::<RemapRow>() == 17);

/// Blocks that a table has, at most: more than are moved between two commits, as a rule.
pub const REMAP_BLOCKS_MAX: u32 = 4096;

/// Blocks from a place of a zone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRun {
    /// The first one.
    pub block: u32,
    /// How many, never 0.
    pub blocks: u32,
}

impl RemapRun {
    /// The block behind its last one.
    pub const fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// How the tail of a [`RemapRow`] says which blocks they are.
const BITS: u8 = 0;
const RUNS: u8 = 1;

/// The row of blocks that have come to `to` (zone and generation, first block), in the order in
/// which they lie there.
pub fn encode(to: (u32, u32), runs: &[RemapRun]) -> (RemapRow, Vec<u8>) {
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
        zone: to.0.into(),
        block: to.1.into(),
        first: first.into(),
        span: span.into(),
        form,
    };
    (row, tail)
}

/// For each run the difference of its first block to the end of the run before, and its blocks.
fn run_bytes(first: u32, runs: &[RemapRun]) -> Vec<u8> {
    let (mut tail, mut end) = (Vec::new(), i64::from(first));
    for run in runs {
        let ahead = i64::from(run.block) - end;
        // The sign is the lowest bit.
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

/// The blocks of a row, in the order in which they lie now, or why it makes no sense.
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

/// More than any table that is ever written has.
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

/// How many blocks lie before the first of `blocks` blocks from `block` on, where these lie side by
/// side now; `None` if not all of them are of the row. The row is one that [`decode`] takes.
pub fn rank_of(row: &RemapRow, tail: &[u8], (block, blocks): (u32, u32)) -> Option<u32> {
    let ahead = block.checked_sub(row.first.get())?;
    if ahead.checked_add(blocks)? > row.span.get() {
        return None;
    }
    if row.form == BITS {
        rank_in_bits(tail, ahead, blocks)
    } else {
        rank_in_runs(row, tail, (block, blocks))
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

fn rank_in_runs(row: &RemapRow, mut tail: &[u8], (block, blocks): (u32, u32)) -> Option<u32> {
    let (mut end, mut rank) = (i64::from(row.first.get()), 0);
    while !tail.is_empty() {
        let run = take_run(&mut tail, end).ok()?;
        if run.block <= block && block < run.end() {
            let skip = block - run.block;
            return (skip + blocks <= run.blocks).then_some(rank + skip);
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
        let (row, tail) = encode((77, 40), runs);
        assert_eq!(decode(&row, &tail).unwrap(), runs);
        let mut rank = 0;
        for run in runs {
            for skip in 0..run.blocks {
                let rest = run.blocks - skip;
                let found = |blocks| rank_of(&row, &tail, (run.block + skip, blocks));
                assert_eq!(found(1), Some(rank + skip));
                assert_eq!(found(rest), Some(rank + skip));
                assert_eq!(found(rest + 1), None, "what lies behind a run is not its own");
            }
            rank += run.blocks;
        }
        let has = |block| runs.iter().any(|run| run.block <= block && block < run.end());
        for block in 0..runs.iter().map(RemapRun::end).max().unwrap() + 9 {
            assert_eq!(rank_of(&row, &tail, (block, 1)).is_some(), has(block), "block {block}");
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
                let _ = rank_of(&row, &tail, (block, 3));
            }
        }
    }

    #[test]
    fn remap_takes_one_bit_per_ordered_block() {
        let runs: Vec<RemapRun> =
            (0..500).map(|run| RemapRun { block: run * 4, blocks: 3 }).collect();
        let (_, tail) = encode((1, 2), &runs);
        assert_eq!(tail.len(), 250);
        // Few of many do not.
        let runs = [0, 9_000, 30_000].map(|block| RemapRun { block, blocks: 2 });
        assert!(encode((1, 2), &runs).1.len() < 12);
    }
}
