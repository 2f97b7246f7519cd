//! Averages learned from data that died, by context: how long the data lived, and how large its
//! files were.
//!
//! Files of one user that lie in one directory and have the same suffix are of a kind: they mostly
//! live about as long. Such a [`Context`] is one of [`CONTEXTS`] slots, by a hash; two contexts
//! that share a slot share an average. An average is exponentially weighted and of the logarithm,
//! so it follows a change within some files, and one file that lived a thousand times as long as
//! usual does not spoil it. All in integers.

/// Slots for contexts.
pub const CONTEXTS: u16 = 4096;

/// Slots of a [`Row`].
pub const ROW_SLOTS: u16 = 64;

/// Rows for all slots.
pub const ROWS: u16 = CONTEXTS / ROW_SLOTS;

/// A new observation counts an eighth, so about the last eight make an average.
const WEIGHT: i32 = 8;

/// An average that has changed by this much, a factor of two, is worth writing. A lifetime class is
/// two such steps wide.
const STEP: u16 = 1 << FRACTION;

/// Bits of a logarithm behind the point.
const FRACTION: u32 = 8;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context(u16);

impl Context {
    /// The context of a file with this name which a user creates in a directory. The suffix is the
    /// part after the last full stop, without digits.
    ///
    /// ```
    /// use zonal_placement::learned::Context;
    /// let context = |name: &str| Context::of(5, name.as_bytes(), 1000);
    /// assert_eq!(context("000123.sst"), context("000124.sst"));
    /// assert_eq!(context("000123.sst.1"), context("LOG"), "no suffix");
    /// assert_ne!(context("000123.sst"), context("000123.log"));
    /// assert_ne!(context("a.log"), Context::of(6, b"a.log", 1000));
    /// ```
    pub fn of(directory: u64, name: &[u8], uid: u32) -> Self {
        let dot = name.iter().rposition(|byte| *byte == b'.');
        let suffix = dot.map_or(&[][..], |dot| &name[dot + 1..]);
        let letters = suffix.iter().copied().filter(|byte| !byte.is_ascii_digit());
        let bytes = directory.to_le_bytes().into_iter().chain(uid.to_le_bytes()).chain(letters);
        // FNV-1a, with its high bits folded into the low ones.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let folded = (hash ^ (hash >> 32) ^ (hash >> 16)) % u64::from(CONTEXTS);
        Self(u16::try_from(folded).expect("a remainder"))
    }

    /// The context with this slot; `None` if there is none.
    pub fn from_slot(slot: u16) -> Option<Self> {
        (slot < CONTEXTS).then_some(Self(slot))
    }

    /// Its slot.
    pub const fn slot(self) -> u16 {
        self.0
    }
}

/// Averages as they are stored: logarithms to base 2 with 8 bits behind the point, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// How long data lived, in blocks written to the file system.
    pub lives: [u16; ROW_SLOTS as usize],
    /// Blocks that files had when they were deleted.
    pub sizes: [u16; ROW_SLOTS as usize],
}

impl Row {
    /// Nothing is learned.
    pub const EMPTY: Self = Self { lives: [0; ROW_SLOTS as usize], sizes: [0; ROW_SLOTS as usize] };

    /// Whether all of its numbers are possible.
    pub fn is_sane(&self) -> bool {
        let is_sane = |average: &u16| *average == 0 || (STEP..64 * STEP).contains(average);
        self.lives.iter().chain(&self.sizes).all(is_sane)
    }

    fn differs(&self, stored: &Self, slot: usize) -> bool {
        let differs = |now: u16, stored: u16| now.abs_diff(stored) >= STEP;
        differs(self.lives[slot], stored.lives[slot])
            || differs(self.sizes[slot], stored.sizes[slot])
    }
}

/// The averages of all contexts, and a copy of the stored ones: 32 KiB.
#[derive(Clone, Debug)]
pub struct Learned {
    rows: Vec<Row>,
    /// Each row as it was when its number was last returned for writing, or restored.
    stored: Vec<Row>,
    /// The file whose death was noted last, and the time of that death.
    last: Option<(u64, u64)>,
}

impl Default for Learned {
    fn default() -> Self {
        let rows = vec![Row::EMPTY; ROWS.into()];
        Self { stored: rows.clone(), rows, last: None }
    }
}

impl Learned {
    /// How long data of a context lives, in blocks written to the file system.
    pub fn life(&self, context: Context) -> Option<u64> {
        let (row, slot) = place(context);
        exp2(self.rows[row].lives[slot])
    }

    /// How many blocks files of a context have.
    pub fn size(&self, context: Context) -> Option<u64> {
        let (row, slot) = place(context);
        exp2(self.rows[row].sizes[slot])
    }

    /// Notes that data of a file, which lived for `life`, died at the time `at`. More data of the
    /// file that dies at that time counts no further. Returns the number of a row that is worth
    /// writing now.
    pub fn note_life(&mut self, context: Context, file: u64, at: u64, life: u64) -> Option<u16> {
        let death = (file, at);
        if self.last.replace(death) == Some(death) {
            return None;
        }
        let (row, slot) = place(context);
        note(&mut self.rows[row].lives[slot], life);
        self.changed(row, slot)
    }

    /// Notes that a file of `blocks` blocks was deleted. Returns the number of a row that is worth
    /// writing now.
    pub fn note_size(&mut self, context: Context, blocks: u64) -> Option<u16> {
        let (row, slot) = place(context);
        note(&mut self.rows[row].sizes[slot], blocks);
        self.changed(row, slot)
    }

    /// A row, to be stored.
    pub fn row(&self, number: u16) -> &Row {
        &self.rows[usize::from(number)]
    }

    /// Takes a row that was stored. Ignores a number out of range and a row with impossible
    /// averages.
    pub fn restore(&mut self, number: u64, row: &Row) {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if index < self.rows.len() && row.is_sane() {
            (self.rows[index], self.stored[index]) = (*row, *row);
        }
    }

    fn changed(&mut self, row: usize, slot: usize) -> Option<u16> {
        let differs = self.rows[row].differs(&self.stored[row], slot);
        if differs {
            self.stored[row] = self.rows[row];
        }
        differs.then(|| u16::try_from(row).expect("one of few"))
    }
}

/// Row and place in it.
fn place(context: Context) -> (usize, usize) {
    let (row, slot) = (context.slot() / ROW_SLOTS, context.slot() % ROW_SLOTS);
    (row.into(), slot.into())
}

fn note(average: &mut u16, observed: u64) {
    let observed = log2(observed);
    if *average == 0 {
        *average = observed;
        return;
    }
    let (before, observed) = (i32::from(*average), i32::from(observed));
    // Rounded away from zero, so that the average reaches a value that stays the same.
    let change = observed - before;
    let step = (change.abs() + WEIGHT - 1) / WEIGHT * change.signum();
    *average = u16::try_from(before + step).expect("between the two");
}

/// The logarithm to base 2, linear between powers of two; 0 and 1 count as 2.
fn log2(number: u64) -> u16 {
    let number = number.max(2);
    let whole = number.ilog2();
    let behind = (u128::from(number) << FRACTION >> whole) - (1 << FRACTION);
    u16::try_from((u128::from(whole) << FRACTION) + behind).expect("64 times 256 at most")
}

/// The number with this logarithm; `None` for 0.
fn exp2(logarithm: u16) -> Option<u64> {
    let whole = u32::from(logarithm) >> FRACTION;
    let behind = u128::from(logarithm) & ((1 << FRACTION) - 1);
    let number = ((1 << FRACTION) + behind) << whole >> FRACTION;
    (logarithm > 0).then(|| u64::try_from(number).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONTEXT: Context = Context(70);

    #[test]
    fn learned_average_follows_observations() {
        let mut learned = Learned::default();
        assert_eq!(learned.life(CONTEXT), None);
        learned.note_life(CONTEXT, 1, 1, 1000);
        assert!((995..=1000).contains(&learned.life(CONTEXT).unwrap()));
        // A life a thousand times as long moves the average by a factor of about 2.4 at most.
        learned.note_life(CONTEXT, 2, 1, 1_000_000);
        assert!((2000..3000).contains(&learned.life(CONTEXT).unwrap()));
        for file in 0..40 {
            learned.note_life(CONTEXT, file, 2, 50_000);
        }
        assert!((49_000..=50_000).contains(&learned.life(CONTEXT).unwrap()));
        assert_eq!(learned.size(CONTEXT), None, "that is another average");
        assert_eq!(learned.life(Context(71)), None, "and that another context");
    }

    #[test]
    fn learned_life_counts_deleted_file_once() {
        let mut learned = Learned::default();
        learned.note_life(CONTEXT, 1, 5, 1000);
        let once = |learned: &mut Learned| learned.note_life(CONTEXT, 2, 6, 1_000_000);
        once(&mut learned);
        let life = learned.life(CONTEXT);
        once(&mut learned);
        assert_eq!(learned.life(CONTEXT), life);
        learned.note_life(CONTEXT, 2, 7, 1_000_000);
        assert!(learned.life(CONTEXT) > life, "and what dies later again");
    }

    #[test]
    fn learned_row_is_written_after_average_doubles() {
        let mut learned = Learned::default();
        assert_eq!(learned.note_life(CONTEXT, 1, 1, 1000), Some(1), "it was nothing before");
        // Lives that vary as they do in one directory.
        let same = (0..1000).filter_map(|turn| learned.note_life(CONTEXT, turn, 2, 500 + turn));
        assert!(same.count() <= 1);
        let longer = (0..40).filter_map(|file| learned.note_life(CONTEXT, file, 3, 16_000)).count();
        assert!((3..=5).contains(&longer), "{longer} for a factor of 16");
    }

    #[test]
    fn learned_rows_round_trip_unless_impossible() {
        let mut learned = Learned::default();
        learned.note_life(CONTEXT, 1, 4, 1 << 30);
        learned.note_size(CONTEXT, 77);
        let row = *learned.row(1);
        let mut again = Learned::default();
        again.restore(1, &row);
        assert_eq!((again.life(CONTEXT), again.size(CONTEXT)), (Some(1 << 30), Some(77)));
        again.restore(64, &row);
        again.restore(u64::MAX, &row);
        for impossible in [1, 255, 64 << 8, u16::MAX] {
            let mut row = Row::EMPTY;
            row.sizes[6] = impossible;
            assert!(!row.is_sane());
            again.restore(1, &row);
            assert_eq!(again.size(CONTEXT), Some(77));
        }
    }

    #[test]
    fn contexts_spread_over_slots() {
        let of = |directory| Context::of(directory, b"file.dat", 0).slot();
        let slots: std::collections::BTreeSet<u16> = (2..1026).map(of).collect();
        // As many slots as random choices would hit.
        assert!((870..940).contains(&slots.len()), "{} of 1,024", slots.len());
        assert!(slots.iter().all(|&slot| Context::from_slot(slot).is_some()));
        assert_eq!(Context::from_slot(CONTEXTS), None);
    }

    proptest! {
        #[test]
        fn logarithm_inverts(number in 2..u64::MAX, other in any::<u64>()) {
            let back = exp2(log2(number)).unwrap();
            prop_assert!(back <= number && number - back <= number / 256 + 1);
            prop_assert!((log2(number) <= log2(other)) || number >= other);
            let mut row = Row::EMPTY;
            (row.lives[0], row.sizes[63]) = (log2(number), log2(other));
            prop_assert!(row.is_sane());
        }

        #[test]
        fn learned_average_stays_between_observations(
            seen in prop::collection::vec(any::<u64>(), 1..50),
        ) {
            let mut learned = Learned::default();
            for (file, &life) in (0..).zip(&seen) {
                learned.note_life(CONTEXT, file, 1, life);
                prop_assert!(learned.row(1).is_sane());
            }
            let life = learned.life(CONTEXT).unwrap();
            let (min, max) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            prop_assert!(life <= (*max).max(2) && life >= min - min / 128);
        }
    }
}
