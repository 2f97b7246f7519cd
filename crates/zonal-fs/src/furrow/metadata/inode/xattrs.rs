//! The extended attributes of an inode in memory.
//!
//! They are found by name, and by the place of their row. Users may set thousands of them on a
//! file, so no action on one of them looks at all: other threads wait meanwhile.

use std::mem::size_of;
use std::sync::Arc;

use crate::furrow::format::row::xattr_bytes;
use crate::furrow::memory::allocated;
use crate::furrow::metadata::small::SmallMap;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Xattr {
    pub(in crate::furrow::metadata) name: Arc<[u8]>,
    pub(in crate::furrow::metadata) value: Box<[u8]>,
}

impl Xattr {
    /// Bytes of memory, in addition to its places in the maps.
    fn held_bytes(&self) -> usize {
        // A name that is shared has two counts before it.
        allocated(2 * size_of::<usize>() + self.name.len()) + allocated(self.value.len())
    }

    /// Bytes of its row.
    fn row_bytes(&self) -> u64 {
        xattr_bytes(&self.name, &self.value)
    }
}

/// The attributes of an inode that has some.
#[derive(Clone, Debug, Default)]
struct Attributes {
    /// Attributes by the place of their row among the rows of the inode.
    by_slot: SmallMap<u64, Xattr>,
    /// The places by name.
    slots: SmallMap<Arc<[u8]>, u64>,
    /// Bytes of names and values in memory.
    held: usize,
    /// Bytes of all rows.
    row_bytes: u64,
}

impl Attributes {
    fn add(&mut self, slot: u64, xattr: Xattr) {
        self.held += xattr.held_bytes();
        self.row_bytes += xattr.row_bytes();
        self.slots.insert(Arc::clone(&xattr.name), slot);
        self.by_slot.insert(slot, xattr);
    }

    fn take(&mut self, name: &[u8]) -> Option<u64> {
        let slot = self.slots.remove(name)?;
        let xattr = self.by_slot.remove(&slot).expect("each name has a row");
        self.held -= xattr.held_bytes();
        self.row_bytes -= xattr.row_bytes();
        Some(slot)
    }

    /// A place that no row has.
    fn free_slot(&self) -> u64 {
        let last = self.by_slot.iter().next_back();
        let next = last.map_or(Some(0), |(slot, _)| slot.checked_add(1));
        // Only a row that no program of ours has written is at the very last place.
        next.unwrap_or_else(|| {
            let free = (0..).zip(&self.by_slot).find(|(place, (slot, _))| place != *slot);
            free.expect("there are fewer rows than places").0
        })
    }
}

/// All extended attributes of an inode. Most inodes have none.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Xattrs(Option<Box<Attributes>>);

impl Xattrs {
    /// The value of an attribute.
    pub(in crate::furrow) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let attributes = self.0.as_ref()?;
        let slot = attributes.slots.get(name)?;
        attributes.by_slot.get(slot).map(|xattr| &*xattr.value)
    }

    pub(in crate::furrow) fn contains(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|attributes| attributes.slots.contains_key(name))
    }

    /// The attribute with the row at a place.
    pub(super) fn at(&self, slot: u64) -> Option<&Xattr> {
        self.0.as_ref()?.by_slot.get(&slot)
    }

    /// All names, in order.
    pub(in crate::furrow) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let slots = self.0.iter().flat_map(|attributes| &attributes.slots);
        slots.map(|(name, _)| &**name)
    }

    /// The places of all rows, in order.
    pub(in crate::furrow::metadata) fn slots(&self) -> impl Iterator<Item = u64> {
        let by_slot = self.0.iter().flat_map(|attributes| &attributes.by_slot);
        by_slot.map(|(slot, _)| *slot)
    }

    /// Enters an attribute from its row.
    pub(in crate::furrow) fn enter(&mut self, slot: u64, name: &[u8], value: &[u8]) {
        let attributes = self.0.get_or_insert_default();
        // Damaged rows may have a name twice.
        attributes.take(name);
        attributes.add(slot, Xattr { name: name.into(), value: value.into() });
    }

    /// Sets or, with `None`, removes an attribute. Returns the place of its row.
    pub(in crate::furrow) fn set(&mut self, name: &[u8], value: Option<&[u8]>) -> u64 {
        let attributes = self.0.get_or_insert_default();
        let slot = attributes.take(name).unwrap_or_else(|| attributes.free_slot());
        if let Some(value) = value {
            attributes.add(slot, Xattr { name: name.into(), value: value.into() });
        } else if attributes.by_slot.is_empty() {
            self.0 = None;
        }
        slot
    }

    /// The place that the row of an attribute has, or that it would get.
    pub(in crate::furrow::metadata) fn slot_of(&self, name: &[u8]) -> u64 {
        let Some(attributes) = &self.0 else { return 0 };
        attributes.slots.get(name).copied().unwrap_or_else(|| attributes.free_slot())
    }

    /// Bytes of memory.
    pub(in crate::furrow::metadata) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |attributes| {
            let maps = attributes.by_slot.held_bytes() + attributes.slots.held_bytes();
            allocated(size_of::<Attributes>()) + maps + attributes.held
        })
    }

    /// Bytes of all rows.
    pub(in crate::furrow::metadata) fn row_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |attributes| attributes.row_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsError;
    use crate::furrow::metadata::small::WALKED;
    use crate::furrow::sample::formatted;
    use crate::furrow::{DataCheck, Furrow, MountOptions, check};
    use crate::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, XattrMode};

    #[test]
    fn xattrs_action_cost_is_independent_of_count() {
        const COUNT: u64 = 15_000;
        let (drive, clock) = formatted(64, 1024);
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default()).unwrap();
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &new).unwrap().ino;
        let name = |number: u64| format!("user.{}", number * 7919 % COUNT);
        // A few for each of the actions: it looks at the last one, and commits walk over other
        // maps.
        let at_most = |walked: u64, actions: u64| {
            let walked = WALKED.get() - walked;
            assert!(walked <= 8 * actions, "{actions} actions looked at {walked} entries");
        };
        let walked = WALKED.get();
        for number in 0..COUNT {
            let name = name(number);
            fs.setxattr(&Caller::ROOT, ino, name.as_bytes(), b"1", XattrMode::Create).unwrap();
            if number % 1000 == 999 {
                fs.sync().unwrap();
            }
        }
        at_most(walked, COUNT);
        let walked = WALKED.get();
        for number in 0..COUNT {
            let (name, value) = (name(number), number.to_le_bytes());
            fs.setxattr(&Caller::ROOT, ino, name.as_bytes(), &value, XattrMode::Replace).unwrap();
            assert_eq!(fs.getxattr(ino, name.as_bytes()).unwrap(), value);
        }
        fs.sync().unwrap();
        at_most(walked, 2 * COUNT);
        drop(fs);

        let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
        let walked = WALKED.get();
        assert_eq!(fs.listxattr(ino).unwrap().len() as u64, COUNT);
        for number in 0..COUNT - 1 {
            let name = name(number);
            assert_eq!(fs.getxattr(ino, name.as_bytes()).unwrap(), number.to_le_bytes());
            fs.removexattr(ino, name.as_bytes()).unwrap();
            assert!(matches!(fs.getxattr(ino, name.as_bytes()), Err(FsError::NoAttribute)));
        }
        at_most(walked, 4 * COUNT);
        assert_eq!(fs.listxattr(ino).unwrap(), [name(COUNT - 1).into_bytes()]);
        fs.shutdown().unwrap();
        let report = check(drive, DataCheck::Read, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    #[test]
    fn xattrs_totals_and_slots_stay_true() {
        let mut xattrs = Xattrs::default();
        for number in 0..50_u64 {
            let name = format!("user.{}", number * 31 % 20);
            let value = vec![7; usize::try_from(number * 13 % 40).unwrap()];
            let slot = xattrs.slot_of(name.as_bytes());
            let value = (number % 3 != 2).then_some(&value[..]);
            assert_eq!(xattrs.set(name.as_bytes(), value), slot);
            assert_eq!(xattrs.get(name.as_bytes()), value);
            assert_eq!(xattrs.at(slot).map(|xattr| &*xattr.value), value);
            let all = || xattrs.slots().map(|slot| xattrs.at(slot).unwrap());
            assert!(all().all(|xattr| xattrs.get(&xattr.name) == Some(&*xattr.value)));
            assert_eq!(xattrs.names().count(), all().count());
            assert_eq!(xattrs.row_bytes(), all().map(Xattr::row_bytes).sum::<u64>());
            let contents: usize = all().map(Xattr::held_bytes).sum();
            assert!(xattrs.held_bytes() >= contents);
        }
    }

    #[test]
    fn xattrs_find_slot_when_last_is_taken() {
        let mut xattrs = Xattrs::default();
        for slot in [0, 1, u64::MAX] {
            xattrs.enter(slot, format!("user.{slot}").as_bytes(), b"");
        }
        assert_eq!(xattrs.set(b"user.new", Some(b"")), 2);
        // The same name again, as only damage leaves it.
        xattrs.enter(9, b"user.1", b"later");
        assert_eq!((xattrs.get(b"user.1"), xattrs.at(1)), (Some(&b"later"[..]), None));
    }
}
