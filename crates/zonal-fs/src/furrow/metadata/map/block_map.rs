//! The map of a file: an entry for each piece of it, by its first block.
//!
//! A file that is written block by block has an entry for each block. A tree takes 78 bytes for
//! each. So where such entries are many, a *window* of 256 blocks lists their places: 12 bytes for
//! each block. All other entries are in the tree, also those between the blocks of a window.

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::mem::size_of;
use std::ops::{Deref, Range};

use crate::furrow::memory::{allocated, in_tree};
use crate::furrow::metadata::map::place::{Crcs, MapEntry};
use crate::furrow::metadata::small::{self, SmallMap};
use crate::furrow::planted::{Planted, PlantedBug};

/// Blocks of a window.
const WINDOW_BLOCKS: usize = 256;

/// Entries of single blocks from which on a window takes clearly less memory than the tree.
const DENSE_MIN: usize = 64;

/// Entries below which a window takes more memory than the tree. So few that a window does not come
/// and go.
const WINDOW_MIN: usize = 24;

const WORDS: usize = WINDOW_BLOCKS / 64;

/// Where a single block is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    zone: u32,
    block: u32,
    crc: u32,
}

impl Place {
    /// That of an entry of a single block.
    fn of(entry: &MapEntry) -> Option<Self> {
        let MapEntry::At { zone, block, crcs } = entry else { return None };
        crcs.single().map(|crc| Self { zone: *zone, block: *block, crc })
    }

    fn entry(self) -> MapEntry {
        let Self { zone, block, crc } = self;
        MapEntry::At { zone, block, crcs: Crcs::of_one(crc) }
    }
}

/// Places of the blocks of a window that have an entry of their own.
#[derive(Clone, Debug)]
struct Window {
    /// A bit for each block that has one.
    present: [u64; WORDS],
    count: usize,
    places: [Place; WINDOW_BLOCKS],
}

impl Window {
    fn empty() -> Self {
        let places = [Place::default(); WINDOW_BLOCKS];
        Self { present: [0; WORDS], count: 0, places }
    }

    fn get(&self, at: usize) -> Option<Place> {
        (self.present[at / 64] >> (at % 64) & 1 == 1).then(|| self.places[at])
    }

    fn insert(&mut self, at: usize, place: Place) -> Option<Place> {
        let before = self.get(at);
        self.count += usize::from(before.is_none());
        self.present[at / 64] |= 1 << (at % 64);
        self.places[at] = place;
        before
    }

    fn remove(&mut self, at: usize) -> Option<Place> {
        let before = self.get(at)?;
        self.count -= 1;
        self.present[at / 64] &= !(1 << (at % 64));
        Some(before)
    }

    /// The first entry from a block on.
    fn first_from(&self, at: usize) -> Option<usize> {
        let first = |word: usize, bits: u64| (bits != 0).then(|| word * 64 + low_bit(bits));
        let start = at / 64;
        let begun = self.present.get(start)? & (u64::MAX << (at % 64));
        let rest = (start + 1..WORDS).find_map(|word| first(word, self.present[word]));
        first(start, begun).or(rest)
    }

    /// The last entry up to a block.
    fn last_to(&self, at: usize) -> Option<usize> {
        let last = |word: usize, bits: u64| (bits != 0).then(|| word * 64 + high_bit(bits));
        let end = at / 64;
        let begun = self.present[end] & (u64::MAX >> (63 - at % 64));
        last(end, begun).or_else(|| (0..end).rev().find_map(|word| last(word, self.present[word])))
    }
}

fn low_bit(bits: u64) -> usize {
    bits.trailing_zeros() as usize
}

fn high_bit(bits: u64) -> usize {
    63 - bits.leading_zeros() as usize
}

/// The window of a block, and the block's place in it.
fn split(block: u64) -> (u64, usize) {
    let blocks = WINDOW_BLOCKS as u64;
    (block / blocks, usize::try_from(block % blocks).expect("inside the window"))
}

fn joined(window: u64, at: usize) -> u64 {
    window * WINDOW_BLOCKS as u64 + at as u64
}

/// Whether to count a window's entries when this block gets one: for one block of sixteen, spread
/// evenly, so that counting costs little.
fn is_counted(block: u64) -> bool {
    block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0
}

/// An entry of a map.
#[derive(Debug)]
pub(in crate::furrow) enum EntryRef<'a> {
    InTree(&'a MapEntry),
    InWindow(MapEntry),
}

impl Deref for EntryRef<'_> {
    type Target = MapEntry;

    fn deref(&self) -> &MapEntry {
        match self {
            Self::InTree(entry) => entry,
            Self::InWindow(entry) => entry,
        }
    }
}

/// A map of a file. Its entries do not overlap.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct BlockMap {
    tree: SmallMap<u64, MapEntry>,
    windows: BTreeMap<u64, Box<Window>>,
    /// Entries in windows.
    in_windows: usize,
}

impl BlockMap {
    pub(in crate::furrow) fn len(&self) -> usize {
        self.tree.len() + self.in_windows
    }

    /// Bytes of memory, without the allocations of entries.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        let window = allocated(size_of::<Window>()) + in_tree(size_of::<(u64, Box<Window>)>());
        self.tree.held_bytes() + self.windows.len() * window
    }

    /// Bytes of memory that entries lead to.
    pub(in crate::furrow::metadata) fn entry_bytes(&self) -> usize {
        self.tree.values().map(MapEntry::held_bytes).sum()
    }

    /// The entry that begins with a block.
    pub(in crate::furrow) fn get(&self, block: u64) -> Option<EntryRef<'_>> {
        let (window, at) = split(block);
        let place = self.windows.get(&window).and_then(|window| window.get(at));
        match place {
            Some(place) => Some(EntryRef::InWindow(place.entry())),
            None => self.tree.get(&block).map(EntryRef::InTree),
        }
    }

    /// The entry that begins with a block, or the last one before it.
    pub(in crate::furrow) fn at_or_before(&self, block: u64) -> Option<(u64, EntryRef<'_>)> {
        let in_window = self.in_window_to(block);
        if let Some((start, place)) = in_window
            && start == block
        {
            return Some((start, EntryRef::InWindow(place.entry())));
        }
        later(in_window, self.tree.at_or_before(block))
    }

    /// The last entry.
    pub(in crate::furrow) fn last(&self) -> Option<(u64, EntryRef<'_>)> {
        later(self.in_window_to(u64::MAX), self.tree.iter().next_back())
    }

    /// The last entry of a window up to a block.
    fn in_window_to(&self, block: u64) -> Option<(u64, Place)> {
        let (number, at) = split(block);
        let here = self.windows.get(&number);
        let (number, window, at) =
            match here.and_then(|window| window.last_to(at).zip(Some(window))) {
                Some((at, window)) => (number, window, at),
                None => {
                    let (number, window) = self.windows.range(..number).next_back()?;
                    (*number, window, window.last_to(WINDOW_BLOCKS - 1)?)
                }
            };
        Some((joined(number, at), window.places[at]))
    }

    /// Enters an entry; returns the one that began with the same block.
    pub(in crate::furrow::metadata) fn insert(
        &mut self,
        block: u64,
        entry: MapEntry,
    ) -> Option<MapEntry> {
        let Some(place) = Place::of(&entry) else { return self.tree.insert(block, entry) };
        let (number, at) = split(block);
        if let Some(window) = self.windows.get_mut(&number) {
            let before = window.insert(at, place);
            self.in_windows += usize::from(before.is_none());
            return before.map(Place::entry);
        }
        let before = self.tree.insert(block, entry);
        if is_counted(block) {
            self.make_window(number);
        }
        before
    }

    pub(in crate::furrow::metadata) fn remove(
        &mut self,
        block: u64,
        planted: Planted,
    ) -> Option<MapEntry> {
        let (number, at) = split(block);
        let Some(window) = self.windows.get_mut(&number) else { return self.tree.remove(&block) };
        let Some(place) = window.remove(at) else { return self.tree.remove(&block) };
        self.in_windows -= 1;
        if window.count < WINDOW_MIN {
            self.end_window(number, planted);
        }
        Some(place.entry())
    }

    /// Changes an entry in place, not its length: the map takes as much memory as before.
    pub(in crate::furrow::metadata) fn change(
        &mut self,
        block: u64,
        change: impl FnOnce(&mut MapEntry),
    ) {
        if let Some(entry) = self.tree.get_mut(&block) {
            return change(entry);
        }
        let (number, at) = split(block);
        let Some(window) = self.windows.get_mut(&number) else { return };
        let Some(place) = window.get(at) else { return };
        let mut entry = place.entry();
        change(&mut entry);
        window.places[at] = Place::of(&entry).expect("it stays a single block");
    }

    /// Entries that begin in a range of blocks, in order.
    pub(in crate::furrow) fn range(&self, blocks: Range<u64>) -> Iter<'_> {
        let in_tree = self.tree.range(blocks.start..blocks.end.max(blocks.start));
        Iter { tree: in_tree.peekable(), windows: InWindows::new(&self.windows, blocks).peekable() }
    }

    /// Moves the entries of single blocks of a window out of the tree, if they are many.
    fn make_window(&mut self, number: u64) {
        let blocks = joined(number, 0)..joined(number + 1, 0);
        let places = self.tree.range(blocks);
        let places = places.filter_map(|(block, entry)| Some((*block, Place::of(entry)?)));
        let places: Vec<(u64, Place)> = places.collect();
        if places.len() < DENSE_MIN {
            return;
        }
        let mut window = Box::new(Window::empty());
        for (block, place) in places {
            self.tree.remove(&block);
            window.insert(split(block).1, place);
        }
        self.in_windows += window.count;
        self.windows.insert(number, window);
    }

    /// Moves the entries of a window back to the tree.
    fn end_window(&mut self, number: u64, planted: Planted) {
        let Some(mut window) = self.windows.remove(&number) else { return };
        self.in_windows -= window.count;
        if planted.has(PlantedBug::WindowLosesLast)
            && let Some(last) = window.last_to(WINDOW_BLOCKS - 1)
        {
            window.remove(last);
        }
        let mut next = window.first_from(0);
        while let Some(at) = next {
            self.tree.insert(joined(number, at), window.places[at].entry());
            next = window.first_from(at + 1);
        }
    }
}

/// The entry of the two that begins later.
fn later<'a>(
    in_window: Option<(u64, Place)>,
    in_tree: Option<(&u64, &'a MapEntry)>,
) -> Option<(u64, EntryRef<'a>)> {
    match (in_window, in_tree) {
        (Some((start, place)), in_tree) if in_tree.is_none_or(|(other, _)| *other < start) => {
            Some((start, EntryRef::InWindow(place.entry())))
        }
        (_, in_tree) => in_tree.map(|(start, entry)| (*start, EntryRef::InTree(entry))),
    }
}

/// Entries of windows in a range of blocks.
struct InWindows<'a> {
    /// Windows that follow the present one.
    windows: btree_map::Range<'a, u64, Box<Window>>,
    present: Option<(u64, &'a Window)>,
    /// The first block of the present window to look at, or of the next one if there is none.
    at: usize,
    first: u64,
    end: u64,
}

impl<'a> InWindows<'a> {
    fn new(windows: &'a BTreeMap<u64, Box<Window>>, blocks: Range<u64>) -> Self {
        let (first, at) = split(blocks.start);
        let windows = match blocks.end.checked_sub(1) {
            Some(last) if last >= blocks.start => windows.range(first..=split(last).0),
            Some(_) | None => btree_map::Range::default(),
        };
        Self { windows, present: None, at, first, end: blocks.end }
    }
}

impl Iterator for InWindows<'_> {
    type Item = (u64, Place);

    fn next(&mut self) -> Option<(u64, Place)> {
        loop {
            if let Some((number, window)) = self.present
                && let Some(at) = window.first_from(self.at)
            {
                self.at = at + 1;
                let block = joined(number, at);
                return (block < self.end).then(|| (block, window.places[at]));
            }
            let (&number, window) = self.windows.next()?;
            if self.present.is_some() || number != self.first {
                self.at = 0;
            }
            self.present = Some((number, &**window));
        }
    }
}

/// Entries of a part of a map, in order.
pub(in crate::furrow) struct Iter<'a> {
    tree: Peekable<small::Iter<'a, u64, MapEntry>>,
    windows: Peekable<InWindows<'a>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (u64, EntryRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let in_tree = self.tree.peek().map(|(block, _)| **block);
        match self.windows.next_if(|(block, _)| in_tree.is_none_or(|other| *block < other)) {
            Some((block, place)) => Some((block, EntryRef::InWindow(place.entry()))),
            None => self.tree.next().map(|(block, entry)| (*block, EntryRef::InTree(entry))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Blocks of the maps that the model covers: windows in part, and one in whole.
    const BLOCKS: u64 = 600;

    #[derive(Clone, Debug)]
    enum Change {
        Insert { block: u64, len: u32 },
        Remove { from: u64, count: usize },
        Move(u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        let insert = |len| move |block| Change::Insert { block, len };
        prop_oneof![
            40 => (0..BLOCKS).prop_map(insert(1)),
            // Many of one window.
            40 => (256..512_u64).prop_map(insert(1)),
            4 => (0..BLOCKS).prop_map(insert(3)),
            2 => (0..BLOCKS, 1..80_usize).prop_map(|(from, count)| Change::Remove { from, count }),
            8 => (0..BLOCKS).prop_map(Change::Move),
        ]
    }

    fn entry(number: u32, len: u32) -> MapEntry {
        let crcs: Vec<u32> = (0..len).map(|at| number + at).collect();
        MapEntry::At { zone: number, block: number, crcs: Crcs::from(&crcs[..]) }
    }

    fn move_entry(entry: &mut MapEntry) {
        if let MapEntry::At { zone, .. } = entry {
            *zone += 1000;
        }
    }

    fn owned(found: Option<(u64, EntryRef<'_>)>) -> Option<(u64, MapEntry)> {
        found.map(|(block, entry)| (block, (*entry).clone()))
    }

    fn matches(map: &BlockMap, model: &BTreeMap<u64, MapEntry>, range: Range<u64>) -> bool {
        let found = map.range(range.clone()).map(|(block, entry)| (block, (*entry).clone()));
        let at = range.start;
        let before = model.range(..=at).next_back().map(|(block, entry)| (*block, entry.clone()));
        let last = model.iter().next_back().map(|(block, entry)| (*block, entry.clone()));
        found.eq(model.range(range).map(|(block, entry)| (*block, entry.clone())))
            && owned(map.at_or_before(at)) == before
            && owned(map.last()) == last
            && map.get(at).map(|entry| (*entry).clone()) == model.get(&at).cloned()
            && map.len() == model.len()
    }

    proptest! {
        #[test]
        fn block_map_matches_btree_map(changes in vec((change(), 0..BLOCKS, 0..BLOCKS), 1..1200)) {
            let (mut map, mut model) = (BlockMap::default(), BTreeMap::new());
            for (number, (change, one, other)) in (1..).zip(changes) {
                match change {
                    Change::Insert { block, len } => {
                        let before = block.saturating_sub(2);
                        let starts: Vec<u64> =
                            model.range(before..block + u64::from(len)).map(|(at, _)| *at).collect();
                        for start in starts {
                            prop_assert_eq!(map.remove(start, Planted::default()), model.remove(&start));
                        }
                        let entry = entry(number, len);
                        prop_assert_eq!(map.insert(block, entry.clone()), None);
                        model.insert(block, entry);
                    }
                    Change::Remove { from, count } => {
                        let starts: Vec<u64> = model.range(from..).map(|(at, _)| *at).take(count).collect();
                        for start in starts {
                            prop_assert_eq!(map.remove(start, Planted::default()), model.remove(&start));
                        }
                    }
                    Change::Move(block) => {
                        let held = map.held_bytes();
                        map.change(block, move_entry);
                        prop_assert_eq!(map.held_bytes(), held);
                        model.get_mut(&block).map(move_entry);
                    }
                }
                prop_assert!(matches(&map, &model, one.min(other)..one.max(other)));
            }
            prop_assert!(matches(&map, &model, 0..u64::MAX));
        }
    }

    #[test]
    fn block_map_change_of_smallest_window_keeps_its_size() {
        let mut map = BlockMap::default();
        (0..WINDOW_BLOCKS as u64).for_each(|block| drop(map.insert(block, entry(1, 1))));
        (WINDOW_MIN as u64..WINDOW_BLOCKS as u64)
            .for_each(|block| drop(map.remove(block, Planted::default())));
        let held = map.held_bytes();
        map.change(3, move_entry);
        assert_eq!((map.held_bytes(), map.windows.len()), (held, 1));
        assert_eq!(
            map.get(3).as_deref(),
            Some(&MapEntry::At { zone: 1001, block: 1, crcs: Crcs::of_one(1) })
        );
    }

    #[test]
    fn block_map_of_single_blocks_takes_16_bytes_for_each() {
        const COUNT: usize = 4096;
        let mut map = BlockMap::default();
        for number in 0..COUNT {
            // Not a neighbour of the one before: 1367 and the count have no common factor.
            map.insert((number * 1367 % COUNT) as u64, entry(1, 1));
        }
        assert!(map.held_bytes() <= 16 * COUNT, "{} bytes", map.held_bytes());
        // Without entries it has no window.
        for block in 0..COUNT {
            assert!(map.remove(block as u64, Planted::default()).is_some());
        }
        assert_eq!((map.len(), map.windows.len()), (0, 0));
    }
}
