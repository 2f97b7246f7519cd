//! The cache: leaves and indexes of parts, up to a bound in bytes.
//!
//! A part never changes and its number is never used again, so no entry is ever outdated. An entry
//! that was used since the last scan stays (second chance). Entries of a part that no longer exists
//! are not used any more and are evicted like all others.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::leaf::CachedLeaf;
use super::levels::Part;
use super::part::{PartError, PartIndex, PartReader, Section};
use super::part_store::PartStore;
use crate::furrow::sync::RwLock;

/// Leaves that are read at once, at most.
const AHEAD_MAX: u32 = 32;

/// Leaves just before one from which on it is read as one of many. Of a cache that random reads have half
/// filled, fewer are there by chance every other time.
const AHEAD_MIN: usize = 4;

/// Part and section.
type Place = (u64, Section);

/// Something of a part, decoded.
#[derive(Clone, Debug)]
enum Decoded {
    Index(Arc<PartIndex>),
    Leaf(Arc<CachedLeaf>),
}

impl Decoded {
    /// Bytes of memory, with what it takes to find it.
    fn weight(&self) -> usize {
        let own = match self {
            Self::Index(index) => index.weight(),
            Self::Leaf(leaf) => leaf.weight(),
        };
        own + size_of::<Slot>() + 2 * size_of::<(Place, usize)>()
    }
}

#[derive(Debug)]
struct Slot {
    place: Place,
    decoded: Decoded,
    weight: usize,
    /// Since it had its turn.
    is_used: AtomicBool,
}

/// What is in the cache. The hand goes round the slots, and takes what was not used since it came by.
#[derive(Debug, Default)]
struct Slots {
    by_place: BTreeMap<Place, usize>,
    ring: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

impl Slots {
    fn insert(&mut self, place: Place, decoded: Decoded, bytes_max: usize) {
        // Another reader may have been faster.
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

    /// The turn of one slot: it stays if it was used, else it goes.
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
        // What takes its place is the youngest: its turn is a round later.
        if let Some(moved) = self.ring.get(self.hand) {
            self.by_place.insert(moved.place, self.hand);
            self.hand += 1;
        }
    }
}

/// Notes that no copy gives something of a part, which is to be written again without it.
fn note_lost<S: PartStore>(store: &S, part: &Part, error: &PartError) {
    store.note_lost(error);
    store.note_bad(part);
}

/// How the cache has done since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::furrow) struct CacheCounts {
    pub(in crate::furrow) bytes: u64,
    pub(in crate::furrow) hits: u64,
    pub(in crate::furrow) misses: u64,
}

/// Decoded leaves and indexes.
#[derive(Debug)]
pub(in crate::furrow) struct LeafCache {
    slots: RwLock<Slots>,
    bytes_max: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl LeafCache {
    /// Of so many bytes.
    pub(in crate::furrow) fn new(bytes_max: usize) -> Self {
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { slots: RwLock::default(), bytes_max: AtomicUsize::new(bytes_max), hits, misses }
    }

    /// From the next leaf on it has so many bytes.
    pub(in crate::furrow) fn limit(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Whether a thread has panicked while it changed it.
    pub(in crate::furrow) fn is_poisoned(&self) -> bool {
        self.slots.is_poisoned()
    }

    pub(in crate::furrow) fn counts(&self) -> CacheCounts {
        let bytes = self.slots.read().expect("no holder panicked").bytes as u64;
        let [hits, misses] = [&self.hits, &self.misses].map(|count| count.load(Ordering::Relaxed));
        CacheCounts { bytes, hits, misses }
    }

    /// The index of a part.
    pub(in crate::furrow) fn index<S: PartStore>(
        &self,
        store: &S,
        part: &Part,
    ) -> Result<Arc<PartIndex>, PartError> {
        let place = (part.summary.number, Section::Index);
        if let Some(Decoded::Index(index)) = self.find(place) {
            return Ok(index);
        }
        let reader = PartReader::open(&part.summary, store.uuid(), store.source(part));
        let reader = reader.inspect_err(|error| note_lost(store, part, error))?;
        if !reader.bad_copies().is_empty() {
            store.note_bad(part);
        }
        let index = Arc::clone(reader.index());
        self.insert(place, Decoded::Index(Arc::clone(&index)));
        Ok(index)
    }

    /// A leaf of a part that has this index.
    pub(in crate::furrow) fn leaf<S: PartStore>(
        &self,
        store: &S,
        (part, index): (&Part, &Arc<PartIndex>),
        number: usize,
    ) -> Result<Arc<CachedLeaf>, PartError> {
        let narrow = u32::try_from(number).expect("a part is under 4 GiB");
        let place = (part.summary.number, Section::Leaf(narrow));
        if let Some(Decoded::Leaf(leaf)) = self.find(place) {
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
                self.insert(place, Decoded::Leaf(Arc::clone(leaf)));
            }
            if let Some(leaf) = leaves.into_iter().next() {
                return Ok(leaf);
            }
        }
        let leaf = reader.cached_leaf(number).inspect_err(|error| note_lost(store, part, error))?;
        if !reader.bad_copies().is_empty() {
            store.note_bad(part);
        }
        self.insert(place, Decoded::Leaf(Arc::clone(&leaf)));
        Ok(leaf)
    }

    /// How many leaves to read behind one: as many as lie in the cache just before it, up to one that
    /// is there already. A reader that goes through a part has left many there; other readers have
    /// left fewer than [`AHEAD_MIN`].
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

    fn find(&self, place: Place) -> Option<Decoded> {
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

    fn insert(&self, place: Place, decoded: Decoded) {
        let mut slots = self.slots.write().expect("no holder panicked");
        slots.insert(place, decoded, self.bytes_max.load(Ordering::Relaxed));
    }
}
