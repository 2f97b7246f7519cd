//! Answers to READDIR and READDIRPLUS.

use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};
use crate::answer::Entry;

/// Alignment of entries in bytes.
const ALIGN: usize = 8;

/// Whether an entry fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the listing.
    Yes,
    /// There was no room for it. The listing ends before it.
    Full,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct ListedName<'a> {
    /// Its inode number.
    pub ino: u64,
    /// Offset from which a listing continues after it.
    pub cookie: u64,
    /// `DT_*`: the kind of its mode, shifted right by twelve bits.
    pub kind: u32,
    /// The name.
    pub name: &'a [u8],
}

/// Entries, as many as fit in the answer.
#[derive(Debug)]
pub struct DirListing {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirListing {
    /// A listing of at most `limit` bytes.
    pub fn new(limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { bytes: Vec::new(), limit }
    }

    /// Adds an entry of READDIR.
    pub fn add(&mut self, name: &ListedName<'_>) -> Added {
        self.push(&[], name)
    }

    /// Adds an entry of READDIRPLUS, with its inode. With node 0 the kernel counts no lookup.
    pub fn add_plus(&mut self, entry: &Entry, name: &ListedName<'_>) -> Added {
        self.push(EntryOut::from(entry).as_bytes(), name)
    }

    /// The entries as the kernel reads them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(&mut self, before: &[u8], name: &ListedName<'_>) -> Added {
        let len = before.len() + size_of::<Dirent>() + name.name.len();
        let padded = len.next_multiple_of(ALIGN);
        if self.limit - self.bytes.len() < padded {
            return Added::Full;
        }
        let namelen = u32::try_from(name.name.len()).expect("it has room in an answer");
        let dirent = Dirent { ino: name.ino, off: name.cookie, namelen, kind: name.kind };
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name.name);
        self.bytes.resize(self.bytes.len() + padded - len, 0);
        Added::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_aligns_entries_and_never_cuts_one() {
        let name = ListedName { ino: 7, cookie: 3, kind: 8, name: b"nine char" };
        let mut listing = DirListing::new(100);
        assert_eq!(listing.add(&name), Added::Yes);
        assert_eq!(listing.bytes().len(), 40, "24 and 9, rounded up");
        assert_eq!(&listing.bytes()[..8], &7_u64.to_le_bytes());
        assert_eq!(&listing.bytes()[24..33], b"nine char");
        assert_eq!(listing.bytes()[33..], [0; 7]);
        assert_eq!(listing.add(&name), Added::Yes);
        assert_eq!(listing.add(&name), Added::Full);
        assert_eq!(listing.bytes().len(), 80);
    }
}
