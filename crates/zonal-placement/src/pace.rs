//! The price that a write pays for reclaim: it moves blocks of victims, enough that reclaim keeps
//! pace with the writers and no write waits until a whole zone is empty.
//!
//! Above a mark of room a write pays nothing. Below it the price rises, within an eighth of the
//! mark, to twice the cost of the write; so room settles where price and cost are equal, a little
//! below the mark, and victims are chosen as late as possible. Prices and costs are in 256ths of a
//! block, since a write of one block may cost less than one.

/// A block, in the unit of prices.
pub const BLOCK: u64 = 256;

/// Blocks that reclaim moves at once: 256 KiB. A smaller debt waits for later writes.
pub const STEP_BLOCKS: u32 = 64;

/// The highest cost of a block that is won: 24 moved blocks, as in a zone of which 96 % live.
const COST_MAX: u64 = 24 * BLOCK;

/// The part of the mark within which the price rises.
const RAMP_SHARE: u64 = 8;

/// Room for writes, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Blocks that can be written now.
    pub now: u64,
    /// The mark below which writes pay.
    pub low: u64,
}

/// Blocks of a drive that data can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usable {
    /// All of them.
    pub blocks: u64,
    /// Blocks without live data, less the share of metadata.
    pub spare: u64,
    /// Blocks of a zone.
    pub zone_blocks: u64,
}

/// The room below which writes pay, where `open` zones are written at once. Room is the part of the
/// spare blocks that is ready to be written; the others are dead blocks in victims, and the fewer
/// of these there are, the more blocks reclaim moves to win one. So the mark is a small part of the
/// spare blocks: at least two zones, without which writes have to wait, but never more than a
/// quarter of the spare blocks.
pub fn low_mark(usable: Usable, open: usize) -> u64 {
    let Usable { blocks, spare, zone_blocks } = usable;
    let (least, most) = (2 * zone_blocks, 32 * zone_blocks);
    if open > 1 {
        (blocks / 128).min(spare / 16).clamp(least, most).min(spare / 4)
    } else {
        // Reclaim that shares the only open zone has to be further ahead.
        (blocks / 50).clamp(least, most)
    }
}

/// The cost of a block that is won, where reclaim moved `moved` blocks to win `freed`. At least
/// one, so that a price can always make room.
pub fn cost(moved: u64, freed: u64) -> u64 {
    (moved.saturating_mul(BLOCK) / freed.max(1)).clamp(BLOCK, COST_MAX)
}

/// The price of a write of `blocks` blocks where a block that is won costs `cost`.
pub fn price(blocks: u64, cost: u64, room: Room) -> u64 {
    let ramp = (room.low / RAMP_SHARE).max(1);
    let missing = room.low.saturating_sub(room.now).min(ramp);
    let full = u128::from(blocks) * u128::from(2 * cost);
    u64::try_from(full * u128::from(missing) / u128::from(ramp)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_is_zero_above_mark_and_double_an_eighth_below() {
        let price = |now| price(10, 3 * BLOCK, Room { now, low: 800 });
        assert_eq!([1000, 800].map(price), [0, 0]);
        assert_eq!(price(750), 30 * BLOCK, "what it costs");
        assert_eq!([700, 400, 0].map(price), [60 * BLOCK; 3]);
        assert_eq!(price(799), 60 * BLOCK / 100);
    }

    #[test]
    fn cost_is_bounded() {
        assert_eq!(cost(30, 10), 3 * BLOCK);
        assert_eq!([cost(0, 0), cost(1, 100)], [BLOCK; 2]);
        assert_eq!([cost(100, 0), cost(u64::MAX, 1)], [24 * BLOCK; 2]);
        assert_eq!(price(u64::MAX, COST_MAX, Room { now: 0, low: 0 }), 0);
        assert_eq!(price(u64::MAX, COST_MAX, Room { now: 0, low: 1 }), u64::MAX);
    }

    #[test]
    fn mark_is_part_of_drive_and_smaller_if_little_is_spare() {
        let mark = |spare| low_mark(Usable { blocks: 1_280_000, spare, zone_blocks: 1000 }, 8);
        assert_eq!([640_000, 160_000].map(mark), [10_000; 2]);
        assert_eq!([80_000, 16_000, 4000, 0].map(mark), [5000, 2000, 1000, 0]);
        assert_eq!(low_mark(Usable { blocks: 1_280_000, spare: 0, zone_blocks: 1000 }, 1), 25_600);
    }

    /// A drive that loses a block of room for each block written and wins `1 / cost` for each block
    /// moved.
    #[test]
    fn room_settles_just_below_mark() {
        for real in [1, 4, 20] {
            let low = 8000_u64;
            let (mut room, mut owed, mut won) = (2 * low, 0, 0);
            for turn in 0..400_000 {
                room = room.checked_sub(1).expect("room never runs out");
                owed += price(1, real * BLOCK, Room { now: room, low });
                while owed >= u64::from(STEP_BLOCKS) * BLOCK {
                    owed -= u64::from(STEP_BLOCKS) * BLOCK;
                    won += u64::from(STEP_BLOCKS);
                    // A victim is a zone of 1,000 blocks that can be written again.
                    while won >= 1000 * real {
                        won -= 1000 * real;
                        room += 1000;
                    }
                }
                let is_settled = turn > 100_000;
                assert!(!is_settled || (5500..8500).contains(&room), "{room} at cost {real}");
            }
        }
    }
}
