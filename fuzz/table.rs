//! The fuzz targets of the table: a leaf, and a part with right checksums, so that the fuzzer
//! reaches the code behind them. Rows come in order, or there is an error.
//!
//! `cargo fuzz run leaf` and `cargo fuzz run part` run them with libFuzzer;
//! `crates/zonal-fs/tests/fuzz.rs` runs them with the others.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use zerocopy::{FromBytes, IntoBytes};
use zonal::DeviceError;
use zonal::crc32c;
use zonal_fs::furrow::table::key::{Key, RowKind};
use zonal_fs::furrow::table::leaf::{LeafHead, decode, decode_rows, encode_rows};
use zonal_fs::furrow::table::merge::Cursor;
use zonal_fs::furrow::table::part::{
    BuiltPart, IndexEntry, PartBuilder, PartHeader, PartId, PartReader, PartSource, PartSummary,
};

type Rows = BTreeMap<Key, Option<Vec<u8>>>;

const UUID: [u8; 16] = [1; 16];
const HEADER_BYTES: usize = size_of::<PartHeader>();

/// Leaves as they are, and as columns behind a head with counts that fit: the first byte is the
/// number of rows.
pub(crate) fn leaf(data: &[u8]) {
    let mut rows = Rows::new();
    let each = |key, value: Option<&[u8]>| {
        assert!(rows.last_key_value().is_none_or(|(&last, _)| last < key), "rows are in order");
        rows.insert(key, value.map(Vec::from));
        Ok(())
    };
    let outcome = decode_rows(data, each);
    let again = encode_rows(rows.iter().map(|(&key, value)| (key, value.as_deref())));
    let mut others = rows.into_iter();
    decode_rows(&again, |key, value| {
        assert_eq!(
            others.next(),
            Some((key, value.map(Vec::from))),
            "it is read as it was written"
        );
        Ok(())
    })
    .expect("just written");
    if outcome.is_ok() {
        let _ = decode(data);
    }
    let Some((&rows, columns)) = data.split_first() else { return };
    let bytes = u32::try_from(columns.len()).expect("in memory").into();
    let head = LeafHead { rows: u32::from(rows).into(), raw_bytes: bytes, stored_bytes: bytes };
    if let Ok(leaf) = decode(&[head.as_bytes(), columns].concat()) {
        for row in 0..leaf.len() {
            assert_eq!(leaf.lower_bound(leaf.key(row)), row, "rows are in order");
        }
    }
}

/// A part with changed bytes and right checksums. The bytes are groups of four: two for a position
/// counted from the part's end, one for the kind of change, one for its value.
pub(crate) fn part(data: &[u8]) {
    static PART: LazyLock<BuiltPart> = LazyLock::new(small_part);
    let (mut bytes, summary) = (PART.bytes.clone(), PART.summary);
    let end = (summary.index_at + summary.index_bytes) as usize;
    for group in data.chunks_exact(4) {
        let back = usize::from(u16::from_le_bytes([group[0], group[1]])) % end;
        let byte = &mut bytes[end - 1 - back];
        *byte = match group[2] % 4 {
            0 => group[3],
            1 => *byte ^ group[3],
            2 => byte.wrapping_add(group[3]),
            _ => !*byte,
        };
    }
    let summary = seal(&mut bytes, summary);
    let Ok(reader) = PartReader::open(&summary, UUID, OneCopy(&bytes)) else { return };
    reader.verify_copy(0);
    let middle = Key::new(RowKind::Map, 9, 600);
    if let leaf = reader.index().leaf_from(middle)
        && leaf < reader.leaves()
    {
        let _ = reader.leaf(leaf);
    }
    let Ok(mut cursor) = reader.cursor_from(middle) else { return };
    let mut last = None;
    while let Some((key, _)) = cursor.peek() {
        assert!(last.is_none_or(|last| last < key) && key >= middle, "rows are in order");
        last = Some(key);
        if cursor.advance().is_err() {
            break;
        }
    }
}

/// Both copies are the same bytes.
struct OneCopy<'a>(&'a [u8]);

impl PartSource for OneCopy<'_> {
    fn read(&self, _: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let offset = usize::try_from(offset).expect("in memory");
        match self.0.get(offset..).and_then(|rest| rest.get(..buffer.len())) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(DeviceError::PowerCut),
        }
        Ok(())
    }
}

/// Three leaves, of map rows that zstd cannot make smaller.
fn small_part() -> BuiltPart {
    let mut builder = PartBuilder::new(PartId { uuid: UUID, number: 1 }, 1 << 20);
    let mut state = 1u64;
    for at in 0..1200u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let value = [state.to_le_bytes(), state.rotate_left(32).to_le_bytes()].concat();
        let key = Key::new(RowKind::Map, 9, at * 2);
        builder.push(key, (at % 16 != 0).then_some(&value));
    }
    builder.finish()
}

/// Makes the checksums of the leaves and of the index right, as far as they can be found.
fn seal(bytes: &mut [u8], mut summary: PartSummary) -> PartSummary {
    let index = summary.index_at as usize..(summary.index_at + summary.index_bytes) as usize;
    for at in (index.start + HEADER_BYTES..index.end).step_by(size_of::<IndexEntry>()) {
        let (mut entry, _) = IndexEntry::read_from_prefix(&bytes[at..]).expect("in the index");
        let offset = entry.offset.get() as usize;
        let Some(end) = offset.checked_add(entry.bytes.get() as usize) else { continue };
        let Some(leaf) = bytes.get_mut(offset..end) else { continue };
        if leaf.len() > HEADER_BYTES && end <= index.start {
            entry.crc = reseal(leaf).into();
            bytes[at..at + size_of::<IndexEntry>()].copy_from_slice(entry.as_bytes());
        }
    }
    summary.index_crc = reseal(&mut bytes[index]);
    summary
}

fn reseal(section: &mut [u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&UUID), &section[8..]);
    section[4..8].copy_from_slice(&crc.to_le_bytes());
    crc
}
