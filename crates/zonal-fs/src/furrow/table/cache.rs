//! The cache of decoded leaves and indexes, up to a limit in bytes.
//!
//! A part never changes and no other part gets its number, so no entry is ever outdated. Eviction
//! is second chance: the hand passes entries that were used since it last came by. Entries of parts
//! that no longer exist get no hits and are evicted like others.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::leaf::CachedLeaf;
use super::levels::Part;
use super::part::{PartError, PartIndex, PartReader, Section};
use super::part_store::PartStore;
use crate::furrow::sync::RwLock;

/// Leaves that one read fetches, at most.
const AHEAD_MAX: u32 = 32;

/// Cached leaves just before a missing one from which on the cache reads ahead. If random reads
/// have half filled the cache, fewer are there by chance every other time.
const AHEAD_MIN: usize = 4;

/// Part and section.
type SectionKey = (u64, Section);

/// A decoded section of a part.
#[derive(Clone, Debug)]
enum CachedSection {
    Index(Arc<PartIndex>),
    Leaf(Arc<CachedLeaf>),
}

impl CachedSection {
    /// Bytes of memory, with its slot and its place in the map.
    fn weight(&self) -> usize {
        let own = match self {
            Self::Index(index) => index.weight(),
            Self::Leaf(leaf) => leaf.weight(),
        };
        own + size_of::<Slot>() + 2 * size_of::<(SectionKey, usize)>()
    }
}

#[derive(Debug)]
struct Slot {
    place: SectionKey,
    decoded: CachedSection,
    weight: usize,
    /// Used since the hand last passed.
    is_used: AtomicBool,
}

/// The content of the cache. The hand goes round the slots and evicts slots that no reader has used
/// since it last passed.
#[derive(Debug, Default)]
struct Slots {
    by_place: BTreeMap<SectionKey, usize>,
    ring: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

impl Slots {
    fn insert(&mut self, place: SectionKey, decoded: CachedSection, bytes_max: usize) {
        // Another reader may have inserted it meanwhile.
        if self.by_place.contains_key(&place) {
            return;
        }
        let weight = decoded.weight();
        while self.bytes + weight > bytes_max && !self.ring.is_empty() {
            self.turn();
        }
        self.bytes += weight;
        self.by_place.insert(place, self.ring.len());
        self.ring.push(Slot { place, decoded, weight, is_used: AtomicBool::new(false) });
    }

    /// Moves the hand past a slot that was used, or evicts a slot that was not.
    fn turn(&mut self) {
        self.hand = if self.hand < self.ring.len() { self.hand } else { 0 };
        let slot = &mut self.ring[self.hand];
        if std::mem::take(slot.is_used.get_mut()) {
            self.hand += 1;
            return;
        }
        let slot = self.ring.swap_remove(self.hand);
        self.bytes -= slot.weight;
        self.by_place.remove(&slot.place);
        // The last slot takes its place. It is the youngest, so the hand passes it until the next
        // round.
        if let Some(moved) = self.ring.get(self.hand) {
            self.by_place.insert(moved.place, self.hand);
            self.hand += 1;
        }
    }
}

/// Notes a section that no copy gives, and its part as one to write again without that section.
fn note_lost<S: PartStore>(store: &S, part: &Part, error: &PartError) {
    store.note_lost(error);
    store.note_bad(part);
}

/// Size of the cache, and its hits and misses since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct CacheCounts {
    pub(in crate::furrow) bytes: u64,
    pub(in crate::furrow) hits: u64,
    pub(in crate::furrow) misses: u64,
}

/// A cache of decoded leaves and indexes.
#[derive(Debug)]
pub(super) struct LeafCache {
    slots: RwLock<Slots>,
    bytes_max: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl LeafCache {
    /// A cache of `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { slots: RwLock::default(), bytes_max: AtomicUsize::new(bytes_max), hits, misses }
    }

    /// Sets the limit, which counts from the next insertion on.
    pub(super) fn limit(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Whether a thread panicked while it changed the cache.
    pub(super) fn is_poisoned(&self) -> bool {
        self.slots.is_poisoned()
    }

    pub(super) fn counts(&self) -> CacheCounts {
        let bytes = self.slots.read().expect("no holder panicked").bytes as u64;
        let [hits, misses] = [&self.hits, &self.misses].map(|count| count.load(Ordering::Relaxed));
        CacheCounts { bytes, hits, misses }
    }

    /// The index of a part.
    pub(super) fn index<S: PartStore>(
        &self,
        store: &S,
        part: &Part,
    ) -> Result<Arc<PartIndex>, PartError> {
        let place = (part.summary.number, Section::Index);
        if let Some(CachedSection::Index(index)) = self.find(place) {
            return Ok(index);
        }
        let reader = PartReader::open(&part.summary, store.uuid(), store.source(part));
        let reader = reader.inspect_err(|error| note_lost(store, part, error))?;
        if !reader.bad_copies().is_empty() {
            store.note_bad(part);
        }
        let index = Arc::clone(reader.index());
        self.insert(place, CachedSection::Index(Arc::clone(&index)));
        Ok(index)
    }

    /// A leaf of a part, whose index the caller has.
    pub(super) fn leaf<S: PartStore>(
        &self,
        store: &S,
        part: &Part,
        index: &Arc<PartIndex>,
        number: usize,
    ) -> Result<Arc<CachedLeaf>, PartError> {
        let narrow = u32::try_from(number).expect("a part is under 4 GiB");
        let place = (part.summary.number, Section::Leaf(narrow));
        if let Some(CachedSection::Leaf(leaf)) = self.find(place) {
            return Ok(leaf);
        }
        let source = store.source(part);
        let index = Arc::clone(index);
        let reader = PartReader::with_index(&part.summary, store.uuid(), source, index);
        let ahead = self.ahead(place.0, narrow);
        if ahead > 0 {
            let leaves = reader.leaves_ahead(number, ahead as usize + 1);
            for (leaf, number) in leaves.iter().zip(narrow..) {
                let place = (place.0, Section::Leaf(number));
                self.insert(place, CachedSection::Leaf(Arc::clone(leaf)));
            }
            if let Some(leaf) = leaves.into_iter().next() {
                return Ok(leaf);
            }
        }
        let leaf = reader.cached_leaf(number).inspect_err(|error| note_lost(store, part, error))?;
        if !reader.bad_copies().is_empty() {
            store.note_bad(part);
        }
        self.insert(place, CachedSection::Leaf(Arc::clone(&leaf)));
        Ok(leaf)
    }

    /// How many leaves to read ahead behind one that is missing: as many as the cache has just
    /// before it, up to the next cached one. A sequential reader has left many there, other readers
    /// fewer than [`AHEAD_MIN`].
    fn ahead(&self, part: u64, number: u32) -> u32 {
        let slots = self.slots.read().expect("no holder panicked");
        let is_there = |leaf: u32| slots.by_place.contains_key(&(part, Section::Leaf(leaf)));
        let before = (1..=AHEAD_MAX.min(number)).take_while(|back| is_there(number - back)).count();
        if before < AHEAD_MIN {
            return 0;
        }
        let after = (1..AHEAD_MAX).take(before).take_while(|ahead| !is_there(number + ahead));
        u32::try_from(after.count()).unwrap_or(0)
    }

    fn find(&self, place: SectionKey) -> Option<CachedSection> {
        let slots = self.slots.read().expect("no holder panicked");
        let Some(&at) = slots.by_place.get(&place) else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        let slot = &slots.ring[at];
        slot.is_used.store(true, Ordering::Relaxed);
        Some(slot.decoded.clone())
    }

    fn insert(&self, place: SectionKey, decoded: CachedSection) {
        let mut slots = self.slots.write().expect("no holder panicked");
        slots.insert(place, decoded, self.bytes_max.load(Ordering::Relaxed));
    }
}
