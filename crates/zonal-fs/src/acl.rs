//! POSIX access control lists: the value of `system.posix_acl_access` and `…_default`, and the
//! arithmetic between an ACL and permission bits. Pure functions, shared by every file system here.
//!
//! The value is as Linux passes it through `setxattr`: a little-endian `u32` version, 2, then eight
//! bytes an entry: tag (`u16`), permissions (`u16`), id (`u32`, all ones where there is none).
//! Malformed bytes are an error, never a panic. [`rules`](crate::rules) says when to call which
//! function.

use crate::FsError;
use crate::vfs::Result;

/// Name of the attribute that holds an inode's ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// Name of the attribute that holds a directory's default ACL, which new inodes inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// The subject of an entry. Entries must be in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The owner.
    Owner,
    /// A named user.
    User(u32),
    /// The owning group.
    OwningGroup,
    /// A named group.
    Group(u32),
    /// Upper limit for all entries but `Owner` and `Other`.
    Mask,
    /// Everyone else.
    Other,
}

impl Who {
    const fn tag(self) -> u16 {
        match self {
            Self::Owner => 0x01,
            Self::User(_) => 0x02,
            Self::OwningGroup => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    const fn id(self) -> u32 {
        match self {
            Self::User(id) | Self::Group(id) => id,
            Self::Owner | Self::OwningGroup | Self::Mask | Self::Other => NO_ID,
        }
    }

    const fn from_tag(tag: u16, id: u32) -> Option<Self> {
        match tag {
            0x01 => Some(Self::Owner),
            0x02 => Some(Self::User(id)),
            0x04 => Some(Self::OwningGroup),
            0x08 => Some(Self::Group(id)),
            0x10 => Some(Self::Mask),
            0x20 => Some(Self::Other),
            _ => None,
        }
    }

    const fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its subject.
    pub who: Who,
    /// Read 4, write 2, execute 1.
    pub perm: u8,
}

/// A well-formed access control list: exactly one `Owner`, `OwningGroup` and `Other`, at most one
/// `Mask`, a `Mask` where users or groups are named, everything in the order of [`Who`]'s variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Reads the value of an ACL attribute. `None`: an empty list, which means "no ACL".
    pub fn decode(value: &[u8]) -> Result<Option<Self>> {
        let invalid = |what| Err(FsError::Invalid { what });
        let Some((version, body)) = value.split_first_chunk::<HEADER_BYTES>() else {
            return invalid("an ACL shorter than its header");
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(FsError::Unsupported { what: "this version of ACL" });
        }
        let (raw, rest) = body.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return invalid("an ACL that ends inside an entry");
        }
        let mut entries = Vec::with_capacity(raw.len());
        for [tag_low, tag_high, perm, perm_high, id @ ..] in raw {
            let tag = u16::from_le_bytes([*tag_low, *tag_high]);
            let Some(who) = Who::from_tag(tag, u32::from_le_bytes(*id)) else {
                return invalid("an ACL entry of unknown tag");
            };
            if *perm > 7 || *perm_high != 0 {
                return invalid("an ACL entry with unknown permissions");
            }
            if who.is_named() && who.id() == NO_ID {
                return invalid("an ACL entry that names nobody");
            }
            entries.push(Entry { who, perm: *perm });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Self::from_entries(entries).map(Some)
    }

    /// Checks the order and number of entries.
    pub fn from_entries(entries: Vec<Entry>) -> Result<Self> {
        let count = |tag| entries.iter().filter(|entry| entry.who.tag() == tag).count();
        let single = |who: Who| count(who.tag()) == 1;
        let in_order = entries.is_sorted_by_key(|entry| entry.who.tag());
        let named = entries.iter().any(|entry| entry.who.is_named());
        let masks = count(Who::Mask.tag());
        if !in_order || !single(Who::Owner) || !single(Who::OwningGroup) || !single(Who::Other) {
            return Err(FsError::Invalid {
                what: "an ACL without its three basic entries in order",
            });
        }
        if masks > 1 || (named && masks == 0) {
            return Err(FsError::Invalid { what: "an ACL that needs exactly one mask" });
        }
        Ok(Self(entries))
    }

    /// The value of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.0.len());
        value.extend(VERSION.to_le_bytes());
        for entry in &self.0 {
            value.extend(entry.who.tag().to_le_bytes());
            value.extend(u16::from(entry.perm).to_le_bytes());
            value.extend(entry.who.id().to_le_bytes());
        }
        value
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Whether it is equivalent to nine permission bits, so that it need not be stored.
    pub fn is_plain(&self) -> bool {
        !self.0.iter().any(|entry| entry.who.is_named() || entry.who == Who::Mask)
    }

    /// The nine permission bits that go with it. The mask stands in for the group.
    pub fn perm(&self) -> u16 {
        (self.get(Who::Owner) << 6) | (self.get(self.group_class()) << 3) | self.get(Who::Other)
    }

    /// Takes over the nine permission bits of `perm`, as `chmod` does.
    pub fn set_perm(&mut self, perm: u16) {
        self.put(Who::Owner, perm >> 6);
        self.put(self.group_class(), perm >> 3);
        self.put(Who::Other, perm);
    }

    /// The access ACL and the nine permission bits that a new inode inherits from this default ACL.
    /// No bit is set that `perm` does not have; the umask does not apply.
    pub fn inherit(&self, perm: u16) -> (Self, u16) {
        let mut acl = self.clone();
        acl.set_perm(self.perm() & perm);
        let perm = acl.perm();
        (acl, perm)
    }

    const fn group_class(&self) -> Who {
        if self.has_mask() { Who::Mask } else { Who::OwningGroup }
    }

    const fn has_mask(&self) -> bool {
        // The mask, where there is one, is the last but one entry.
        matches!(self.0.as_slice(), [.., Entry { who: Who::Mask, .. }, _])
    }

    fn get(&self, who: Who) -> u16 {
        let entry = self.0.iter().find(|entry| entry.who == who);
        u16::from(entry.expect("a well-formed ACL has it").perm)
    }

    fn put(&mut self, who: Who, perm: u16) {
        let entry = self.0.iter_mut().find(|entry| entry.who == who);
        entry.expect("a well-formed ACL has it").perm = (perm & 7) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(entries: &[(Who, u8)]) -> Acl {
        let entries = entries.iter().map(|&(who, perm)| Entry { who, perm }).collect();
        Acl::from_entries(entries).unwrap()
    }

    fn with_mask() -> Acl {
        acl(&[
            (Who::Owner, 7),
            (Who::User(1000), 7),
            (Who::OwningGroup, 5),
            (Who::Mask, 6),
            (Who::Other, 0),
        ])
    }

    #[test]
    fn acl_mask_stands_in_for_group() {
        let mut acl = with_mask();
        assert_eq!(acl.perm(), 0o760);
        acl.set_perm(0o4641);
        assert_eq!(acl.perm(), 0o641);
        assert_eq!(acl.get(Who::OwningGroup), 5, "chmod leaves the owning group's entry");
        assert!(!acl.is_plain());
    }

    #[test]
    fn acl_inheritance_intersects_permissions() {
        let (inherited, perm) = with_mask().inherit(0o644);
        assert_eq!(perm, 0o640);
        assert_eq!(inherited.get(Who::Mask), 4);
        assert_eq!(inherited.get(Who::User(1000)), 7);
        let plain = acl(&[(Who::Owner, 6), (Who::OwningGroup, 6), (Who::Other, 4)]);
        let (inherited, perm) = plain.inherit(0o755);
        assert_eq!(perm, 0o644);
        assert!(inherited.is_plain());
    }

    #[test]
    fn acl_encoding_matches_linux() {
        let acl = acl(&[(Who::Owner, 6), (Who::OwningGroup, 4), (Who::Other, 0)]);
        let none = [0xff; 4];
        let mut bytes = vec![2, 0, 0, 0];
        for head in [[1, 0, 6, 0], [4, 0, 4, 0], [0x20, 0, 0, 0]] {
            bytes.extend(head);
            bytes.extend(none);
        }
        assert_eq!(acl.encode(), bytes);
        assert_eq!(Acl::decode(&bytes).unwrap(), Some(acl));
        assert_eq!(Acl::decode(&[2, 0, 0, 0]).unwrap(), None);
    }

    #[test]
    fn acl_decode_rejects_invalid() {
        let good = with_mask().encode();
        for len in (0..good.len()).filter(|&len| len != HEADER_BYTES) {
            assert!(Acl::decode(&good[..len]).is_err(), "cut to {len} bytes");
        }
        let entries = with_mask().0;
        for skip in 0..entries.len() {
            let mut fewer = entries.clone();
            let gone = fewer.remove(skip);
            let fine = gone.who == Who::User(1000);
            assert_eq!(Acl::from_entries(fewer).is_ok(), fine, "without {gone:?}");
            let mut twice = entries.clone();
            twice.insert(skip, entries[skip]);
            assert_eq!(Acl::from_entries(twice).is_ok(), fine, "twice {gone:?}");
        }
    }

    proptest! {
        #[test]
        fn acl_decode_handles_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(version) = bytes.first_chunk_mut::<4>() {
                *version = VERSION.to_le_bytes();
            }
            if let Ok(Some(acl)) = Acl::decode(&bytes) {
                prop_assert_eq!(Acl::decode(&acl.encode()).unwrap(), Some(acl.clone()));
                prop_assert_eq!(acl.inherit(0o777).1, acl.perm());
            }
        }
    }
}
