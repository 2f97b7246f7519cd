//! How long a block will live, as a number of blocks written to the file system until it is dead.
//!
//! Data that is written together should die together: then a zone empties itself, and reclaim has
//! little to move. So lives are predicted, and divided into [`CLASSES`] classes, each four times as
//! long as the one before. A prediction may be wrong; it costs amplification, never correctness.
//! Pure integers: the same facts give the same class on every machine. [`streams`](super::streams)
//! gives each class a zone.

use super::lifetime::WriteLifetime;

/// Lifetime classes, for data that users write and for data that reclaim moves.
pub const CLASSES: u8 = 4;

/// The facts about data that is about to be written. Lives are measured on the data clock, which
/// counts the blocks that the file system has written, to any place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeFacts {
    /// The program's hint.
    pub hint: WriteLifetime,
    /// How long the data that is now overwritten has lived.
    pub last_life: Option<u64>,
    /// How long data of its kind (the same directory, suffix or user) has lived on average.
    pub learned: Option<u64>,
}

/// The evidence that predictions use, in addition to the life of the overwritten data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Hints of programs.
    pub hints: bool,
    /// How long data of the same [context](super::learned) has lived.
    pub learned: bool,
}

impl Default for Evidence {
    fn default() -> Self {
        Self { hints: true, learned: true }
    }
}

/// The life expected of data: by the hint, else as long as the data that it replaces has lived,
/// else like its kind; `None` if nothing is known.
pub fn predict(facts: LifeFacts, capacity: u64) -> Option<u64> {
    let has_hint = facts.hint != WriteLifetime::None;
    let by_hint = has_hint.then(|| middle_of(facts.hint.class(), capacity));
    by_hint.or(facts.last_life).or(facts.learned)
}

/// The class of written data: 0 dies first. Data about which nothing is known lies there too, since
/// data without a hint [shares](super::sharing) the zone of short-lived data.
pub fn class_of(life: Option<u64>, capacity: u64) -> u8 {
    let Some(life) = life else { return 0 };
    let exceeds = |class: &u8| u128::from(life) > u128::from(first_limit(capacity)) << (2 * class);
    let limits = (0..CLASSES - 1).filter(exceeds).count();
    u8::try_from(limits).expect("fewer than the classes")
}

/// The class of data that reclaim moves. It has lived for `age`, and most data that has lived long
/// lives about as long again (the Lindy effect; exact for a power law of lives).
pub fn class_of_moved(age: u64, capacity: u64) -> u8 {
    class_of(Some(age), capacity)
}

/// Lives up to capacity / `FIRST` belong to the first class. By trial with `model`, zones 0.90
/// full: 4 and 64 cost up to 2 and 8 % more under Zipf and hot/cold writes.
const FIRST: u64 = 16;

/// A life in the middle of a class.
fn middle_of(class: u8, capacity: u64) -> u64 {
    (first_limit(capacity) << (2 * class)) / 2
}

fn first_limit(capacity: u64) -> u64 {
    (capacity / FIRST).max(2)
}

/// When a block of a zone was written, where the first one was at `first` and the last one at
/// `last`: a zone is filled at an even pace, about.
///
/// ```
/// use zonal_placement::life::birth_of;
/// assert_eq!(birth_of(1000, 2000, 25, 100), 1250);
/// ```
pub fn birth_of(first: u64, last: u64, block: u32, blocks: u32) -> u64 {
    let whole = last.saturating_sub(first);
    let passed = u128::from(whole) * u128::from(block) / u128::from(blocks.max(1));
    first.saturating_add(u64::try_from(passed).map_or(whole, |passed| passed.min(whole)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: u64 = 1 << 20;

    fn class(facts: LifeFacts) -> u8 {
        class_of(predict(facts, CAPACITY), CAPACITY)
    }

    #[test]
    fn hints_are_classes_in_order() {
        let classes =
            WriteLifetime::ALL.map(|hint| class(LifeFacts { hint, ..LifeFacts::default() }));
        assert_eq!(classes, [0, 0, 1, 2, 3]);
    }

    #[test]
    fn hint_outweighs_observation() {
        let facts =
            LifeFacts { hint: WriteLifetime::None, last_life: Some(1), learned: Some(u64::MAX) };
        assert_eq!(class(facts), 0);
        assert_eq!(class(LifeFacts { last_life: None, ..facts }), 3);
        assert_eq!(class(LifeFacts { hint: WriteLifetime::Medium, ..facts }), 1);
    }

    proptest! {
        #[test]
        fn class_rises_with_life(
            lives in (any::<u64>(), any::<u64>()), capacity in any::<u64>(),
        ) {
            let (less, more) = (lives.0.min(lives.1), lives.0.max(lives.1));
            let classes = [less, more].map(|life| class_of(Some(life), capacity));
            prop_assert!(classes[0] <= classes[1] && classes[1] < CLASSES);
        }

        #[test]
        fn birth_lies_while_zone_was_filled(
            births in (any::<u64>(), any::<u64>()), block in any::<u32>(), blocks in any::<u32>(),
        ) {
            let (first, last) = (births.0.min(births.1), births.0.max(births.1));
            let birth = birth_of(first, last, block, blocks);
            prop_assert!((first..=last).contains(&birth));
            // The two times come from the drive, which may hold them the wrong way round.
            birth_of(last, first, block, blocks);
        }
    }
}
