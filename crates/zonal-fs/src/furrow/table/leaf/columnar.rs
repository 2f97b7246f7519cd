//! The form of a leaf in the cache, where lookups matter more than scans.
//!
//! If a table is larger than the cache, most of its leaves have map rows of one file, nearly all of
//! one block, and half of the bytes of their values are equal. The cache stores such a leaf in
//! columns, and a column that is equal in all rows only once: some nine bytes a row instead of 45,
//! and only the places to decode. Rows of other kinds differ more, and a search for a name reads
//! many of them.

use std::mem::size_of;

use super::{
    COLUMNS_MAX, Leaf, TAG_AT_FAR, TAG_DELETED, TAG_KIND, TAG_LENGTH, TAG_OWNER_FAR,
    decode_columns, index_of, take, take_leaf,
};
use crate::furrow::format::take_number;
use crate::furrow::table::key::{Key, RowKind};

/// Most columns of a cached leaf. With more, the shortest value is long, and rows save little.
const CACHED_COLUMNS_MAX: usize = 32;

const _: () = assert!(CACHED_COLUMNS_MAX <= COLUMNS_MAX);

/// A leaf in the cache.
#[derive(Debug, PartialEq, Eq)]
pub enum CachedLeaf {
    /// Map rows of one file, in columns.
    Columnar(ColumnarLeaf),
    /// Any other rows.
    Rows(Leaf),
}

/// Map rows of one file, in columns.
#[derive(Debug, PartialEq, Eq)]
pub struct ColumnarLeaf {
    first: Key,
    rows: usize,
    steps: RowOffsets,
    /// Tombstones, by row. The other rows have values, numbered in their order.
    deleted: Box<[u32]>,
    values: usize,
    columns: Columns,
    /// Values with more bytes than columns, and the end of each one's further bytes in `rests`.
    longer: Box<[(u32, u32)]>,
    rests: Box<[u8]>,
}

/// The first bytes of all values.
#[derive(Debug, PartialEq, Eq)]
struct Columns {
    /// Bytes that are equal in all values, and zeroes where they differ.
    common: Box<[u8]>,
    /// Numbers of the columns that differ.
    differing: Box<[u8]>,
    /// The bytes of these columns, one column after the other.
    bytes: Box<[u8]>,
}

/// Places of the rows as distances from that of the first row.
#[derive(Debug, PartialEq, Eq)]
enum RowOffsets {
    /// Each place follows the one before.
    Next,
    Near(Box<[u16]>),
    Far(Box<[u32]>),
}

/// Decodes one leaf for the cache.
pub fn decode_cached(bytes: &[u8]) -> Result<CachedLeaf, String> {
    let found = take_leaf(bytes, |raw, rows| match ColumnarLeaf::of(raw, rows) {
        Some(leaf) => Ok(CachedLeaf::Columnar(leaf)),
        None => Ok(CachedLeaf::Rows(decode_columns(raw, rows)?)),
    });
    match found? {
        (leaf, []) => Ok(leaf),
        (_, rest) => Err(format!("{} bytes behind a leaf", rest.len())),
    }
}

impl CachedLeaf {
    /// Number of rows, tombstones included.
    pub fn len(&self) -> usize {
        match self {
            Self::Columnar(leaf) => leaf.rows,
            Self::Rows(leaf) => leaf.len(),
        }
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key of a row.
    pub fn key(&self, row: usize) -> Key {
        match self {
            Self::Columnar(leaf) => leaf.key(row),
            Self::Rows(leaf) => leaf.key(row),
        }
    }

    /// Key of the first row.
    pub fn first(&self) -> Option<Key> {
        (!self.is_empty()).then(|| self.key(0))
    }

    /// Key of the last row.
    pub fn last(&self) -> Option<Key> {
        self.len().checked_sub(1).map(|row| self.key(row))
    }

    /// The first row whose key is not below `key`; [`CachedLeaf::len`] if there is none.
    pub fn lower_bound(&self, key: Key) -> usize {
        match self {
            Self::Columnar(leaf) => leaf.lower_bound(key),
            Self::Rows(leaf) => leaf.lower_bound(key),
        }
    }

    /// Assembles the value of a row in `gathered`, for [`CachedLeaf::value`].
    pub fn gather(&self, row: usize, gathered: &mut Vec<u8>) {
        if let Self::Columnar(leaf) = self {
            leaf.gather(row, gathered);
        }
    }

    /// Value of the row that was last [gathered](Self::gather); `None` for a tombstone.
    pub fn value<'a>(&'a self, row: usize, gathered: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Columnar(leaf) => leaf.value_number(row).map(|_| gathered),
            Self::Rows(leaf) => leaf.value(row),
        }
    }

    /// Bytes of memory.
    pub fn weight(&self) -> usize {
        let own = size_of::<Self>();
        match self {
            Self::Columnar(leaf) => own + leaf.weight(),
            Self::Rows(leaf) => own + leaf.weight() - size_of::<Leaf>(),
        }
    }
}

impl ColumnarLeaf {
    /// Decodes the columns of a leaf. `None` if its rows are not map rows of one file, or invalid.
    fn of(raw: &[u8], rows: usize) -> Option<Self> {
        let mut rest = raw;
        let tags = take(&mut rest, rows).ok()?;
        let (&tag, others) = tags.split_first()?;
        let kind = tag & TAG_KIND;
        let unlike = others.iter().fold(0, |all, other| all | other ^ kind);
        if kind != index_of(RowKind::Map) || unlike & (TAG_KIND | TAG_OWNER_FAR) != 0 {
            return None;
        }
        let mut number = |flag| if tag & flag == 0 { Some(0) } else { take_number(&mut rest).ok() };
        let (owner, at) = (number(TAG_OWNER_FAR)?, number(TAG_AT_FAR)?);
        let first = Key::new(RowKind::Map, owner, at);
        let steps = RowOffsets::take(others, &mut rest)?;
        at.checked_add(steps.get(rows - 1))?;
        let Lengths { deleted, values, changes } = Lengths::take(tags, &mut rest)?;
        let width = changes.iter().map(|&(_, length)| length).min()?;
        if values < 2 || !(1..=CACHED_COLUMNS_MAX).contains(&width) {
            return None;
        }
        let flags = take(&mut rest, width.div_ceil(8)).ok()?;
        let stored = take(&mut rest, width * values).ok()?;
        let longer = longer(&changes, values, width, rest.len())?;
        let columns = Columns::of(flags, stored, values);
        let (deleted, rests) = (deleted.into(), rest.into());
        Some(Self { first, rows, steps, deleted, values, columns, longer, rests })
    }

    fn key(&self, row: usize) -> Key {
        Key::new(self.first.kind(), self.first.owner(), self.first.at() + self.steps.get(row))
    }

    fn lower_bound(&self, key: Key) -> usize {
        if key <= self.first {
            return 0;
        }
        if (key.kind(), key.owner()) != (self.first.kind(), self.first.owner()) {
            return self.rows;
        }
        let step = key.at() - self.first.at();
        match &self.steps {
            RowOffsets::Next => usize::try_from(step).map_or(self.rows, |step| step.min(self.rows)),
            RowOffsets::Near(steps) => steps.partition_point(|other| u64::from(*other) < step),
            RowOffsets::Far(steps) => steps.partition_point(|other| u64::from(*other) < step),
        }
    }

    /// Number of a row's value; `None` for a tombstone.
    fn value_number(&self, row: usize) -> Option<usize> {
        if self.deleted.is_empty() {
            return Some(row);
        }
        let before = self.deleted.partition_point(|deleted| (*deleted as usize) < row);
        let is_deleted = self.deleted.get(before).is_some_and(|deleted| *deleted as usize == row);
        (!is_deleted).then(|| row - before)
    }

    fn gather(&self, row: usize, gathered: &mut Vec<u8>) {
        let Some(value) = self.value_number(row) else { return };
        gathered.clear();
        let Columns { common, differing, bytes } = &self.columns;
        gathered.extend_from_slice(common);
        for (&number, column) in differing.iter().zip(bytes.chunks_exact(self.values)) {
            gathered[usize::from(number)] = column[value];
        }
        let at = self.longer.partition_point(|&(longer, _)| (longer as usize) < value);
        if let Some(&(longer, end)) = self.longer.get(at)
            && longer as usize == value
        {
            let start = at.checked_sub(1).map_or(0, |before| self.longer[before].1);
            gathered.extend_from_slice(&self.rests[start as usize..end as usize]);
        }
    }

    /// Bytes of memory in addition to its own.
    fn weight(&self) -> usize {
        let rests = 8 * self.longer.len() + self.rests.len();
        self.steps.weight() + 4 * self.deleted.len() + self.columns.weight() + rests
    }
}

/// Tombstones and lengths of values, decoded from tags and lengths of a leaf.
struct Lengths {
    deleted: Vec<u32>,
    values: usize,
    /// Numbers of values at which the length changes, with the new length.
    changes: Vec<(usize, usize)>,
}

impl Lengths {
    fn take(tags: &[u8], rest: &mut &[u8]) -> Option<Self> {
        let (mut deleted, mut values, mut changes) = (Vec::new(), 0, Vec::new());
        for (row, tag) in (0..).zip(tags) {
            match tag & (TAG_DELETED | TAG_LENGTH) {
                0 => values += 1,
                TAG_LENGTH => {
                    changes.push((values, usize::try_from(take_number(rest).ok()?).ok()?));
                    values += 1;
                }
                TAG_DELETED => deleted.push(row),
                _ => return None,
            }
        }
        // Values before the first length would have none.
        let is_said = changes.first().is_some_and(|&(value, _)| value == 0);
        is_said.then_some(Self { deleted, values, changes })
    }
}

/// The values longer than `width`, and the end of each one's further bytes, which must be `bytes`
/// in all.
fn longer(
    changes: &[(usize, usize)],
    values: usize,
    width: usize,
    bytes: usize,
) -> Option<Box<[(u32, u32)]>> {
    let (mut longer, mut end) = (Vec::new(), 0_usize);
    let ends = changes[1..].iter().map(|&(value, _)| value).chain([values]);
    for (&(start, length), limit) in changes.iter().zip(ends) {
        if length > width {
            for value in start..limit {
                end = end.checked_add(length - width).filter(|end| *end <= bytes)?;
                longer.push((u32::try_from(value).ok()?, u32::try_from(end).ok()?));
            }
        }
    }
    (end == bytes).then(|| longer.into())
}

impl Columns {
    /// Decodes the stored columns of `values` values.
    fn of(flags: &[u8], stored: &[u8], values: usize) -> Self {
        let mut common = vec![0; stored.len() / values];
        let mut differing = Vec::with_capacity(common.len());
        for (number, column) in (0..).zip(stored.chunks_exact(values)) {
            // If a column of differences is the same everywhere, all but the first are zero.
            let same = if is_sum(flags, number) { 0 } else { column[0] };
            if column[1..].iter().fold(0, |all, byte| all | byte ^ same) == 0 {
                common[usize::from(number)] = column[0];
            } else {
                differing.push(number);
            }
        }
        let mut bytes = Vec::with_capacity(differing.len() * values);
        for &number in &differing {
            let column = &stored[usize::from(number) * values..][..values];
            if is_sum(flags, number) {
                bytes.extend(column.iter().scan(0_u8, |sum, byte| {
                    *sum = sum.wrapping_add(*byte);
                    Some(*sum)
                }));
            } else {
                bytes.extend_from_slice(column);
            }
        }
        Self { common: common.into(), differing: differing.into(), bytes: bytes.into() }
    }

    /// Bytes of memory in addition to its own.
    fn weight(&self) -> usize {
        self.common.len() + self.differing.len() + self.bytes.len()
    }
}

/// Whether a column has differences.
fn is_sum(flags: &[u8], number: u8) -> bool {
    flags[usize::from(number / 8)] & 1 << (number % 8) != 0
}

impl RowOffsets {
    /// Decodes the places of the rows behind the first by their tags.
    fn take(tags: &[u8], rest: &mut &[u8]) -> Option<Self> {
        if tags.iter().all(|tag| tag & TAG_AT_FAR == 0) {
            return Some(Self::Next);
        }
        let mut steps = Vec::with_capacity(tags.len() + 1);
        let mut step = 0_u32;
        steps.push(step);
        for tag in tags {
            step = step.checked_add(1)?;
            if tag & TAG_AT_FAR != 0 {
                step = step.checked_add(u32::try_from(take_number(rest).ok()?).ok()?)?;
            }
            steps.push(step);
        }
        let near = u16::try_from(step).is_ok();
        let narrow = |step: &u32| u16::try_from(*step).expect("the last is the largest");
        Some(if near {
            Self::Near(steps.iter().map(narrow).collect())
        } else {
            Self::Far(steps.into())
        })
    }

    fn get(&self, row: usize) -> u64 {
        match self {
            Self::Next => row as u64,
            Self::Near(steps) => steps[row].into(),
            Self::Far(steps) => steps[row].into(),
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Next => 0,
            Self::Near(steps) => 2 * steps.len(),
            Self::Far(steps) => 4 * steps.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::super::tests::sample::{Maps, Rows, any_rows, leaf_of, map_rows};
    use super::super::decode;
    use super::*;

    /// Compares a leaf in the cache with the same leaf decoded in full; both refuse the same bytes.
    fn compare(bytes: &[u8]) -> Option<CachedLeaf> {
        let (leaf, cached) = (decode(bytes), decode_cached(bytes));
        let (leaf, cached) = match (leaf, cached) {
            (Ok(leaf), Ok(cached)) => (leaf, cached),
            (leaf, cached) => {
                assert_eq!(leaf.err(), cached.err());
                return None;
            }
        };
        assert_eq!(
            (cached.len(), cached.first(), cached.last()),
            (leaf.len(), leaf.first(), leaf.last())
        );
        let mut gathered = Vec::new();
        for (row, (key, value)) in leaf.rows().enumerate() {
            cached.gather(row, &mut gathered);
            assert_eq!((cached.key(row), cached.value(row, &gathered)), (key, value), "row {row}");
            for key in [key.predecessor(), key, key.successor()] {
                assert_eq!(cached.lower_bound(key), leaf.lower_bound(key), "{key:?}");
            }
        }
        for key in [Key::MIN, Key::BASE_END, Key::MAX] {
            assert_eq!(cached.lower_bound(key), leaf.lower_bound(key), "{key:?}");
        }
        Some(cached)
    }

    /// Rows of one owner and kind, mostly pieces of a file, most of them with values of one length.
    fn like_rows() -> impl Strategy<Value = Rows> {
        let byte = prop_oneof![3 => Just(7_u8), 1 => any::<u8>()];
        let start = prop_oneof![0_u64..9, Just(u64::MAX - 60), any::<u64>()];
        let step = prop_oneof![4 => Just(1_u64), 2 => 1_u64..400, 1 => 1_u64..1 << 34];
        let rows = (1_usize..36).prop_flat_map(move |length| {
            let length = prop_oneof![6 => Just(length), 1 => length..length + 300];
            let value = length.prop_flat_map({
                let byte = byte.clone();
                move |length| vec(byte.clone(), length)
            });
            vec((step.clone(), proptest::option::weighted(0.9, value)), 1..60)
        });
        let any_kind = proptest::sample::select(&RowKind::ALL[..]);
        let kind = prop_oneof![4 => Just(RowKind::Map), 1 => any_kind];
        (kind, start.clone(), start, rows).prop_map(|(kind, owner, at, rows)| {
            let mut next = Some(at);
            let each = rows.into_iter().map_while(|(step, value)| {
                let at = next?;
                next = at.checked_add(step);
                Some((Key::new(kind, owner, at), value))
            });
            each.filter(|(key, _)| *key < Key::MAX).collect()
        })
    }

    proptest! {
        #[test]
        fn columnar_leaf_equals_plain_leaf(rows in prop_oneof![like_rows(), any_rows(60)]) {
            prop_assume!(!rows.is_empty());
            compare(&leaf_of(&rows)).unwrap();
        }

        #[test]
        fn columnar_leaf_rejects_what_plain_leaf_rejects(
            rows in like_rows(),
            changes in vec((any::<u16>(), any::<u8>()), 1..4),
        ) {
            prop_assume!(!rows.is_empty());
            let mut bytes = leaf_of(&rows);
            for (at, byte) in changes {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            compare(&bytes);
        }
    }

    /// Reclaim joins some neighbours: a row is longer then, and the next is deleted.
    #[test]
    fn columnar_leaf_tolerates_few_odd_rows() {
        let mut rows = map_rows(960, Maps::OneOf16);
        for (number, value) in rows.values_mut().enumerate() {
            match number % 60 {
                0 => value.as_mut().unwrap().extend([number.to_le_bytes()[0]; 4]),
                1 => *value = None,
                _ => {}
            }
        }
        let cached = compare(&leaf_of(&rows)).unwrap();
        assert!(matches!(cached, CachedLeaf::Columnar(_)));
    }

    /// How many rows fit into the cache rests on these.
    #[test]
    fn columnar_leaf_bytes_per_row_stay_small() {
        for (maps, most) in [(Maps::Scattered, 8.5), (Maps::OneOf16, 10.5), (Maps::Sequential, 6.5)]
        {
            let cached = compare(&leaf_of(&map_rows(960, maps))).unwrap();
            assert!(matches!(cached, CachedLeaf::Columnar(_)));
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let bytes = cached.weight() as f64 / 960.0;
            println!("{bytes:.2} bytes");
            assert!(bytes <= most, "{bytes:.2} bytes, at most {most}");
        }
    }
}
