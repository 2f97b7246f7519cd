//! The answer to READDIR and READDIRPLUS.

use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};
use crate::reply::Entry;

/// Every entry begins at a multiple of this.
const ALIGN: usize = 8;

/// Whether an entry found room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It did.
    Yes,
    /// It did not, nor will any after it.
    Full,
}

/// What stands in a directory about an inode.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// Its inode number.
    pub ino: u64,
    /// Where a listing goes on after it.
    pub cookie: u64,
    /// `DT_*`: the kind of its mode, shifted right by twelve bits.
    pub kind: u32,
    /// What it is called.
    pub name: &'a [u8],
}

/// Entries, as many as the request has room for.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    limit: usize,
}

impl Listing {
    /// For a request of so many bytes.
    pub fn new(limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { bytes: Vec::new(), limit }
    }

    /// An entry of READDIR.
    pub fn add(&mut self, name: &Name<'_>) -> Added {
        self.push(&[], name)
    }

    /// An entry of READDIRPLUS: its inode too, of node 0 if the kernel is not to enter it.
    pub fn add_plus(&mut self, entry: &Entry, name: &Name<'_>) -> Added {
        self.push(EntryOut::from(entry).as_bytes(), name)
    }

    /// What has been added.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(&mut self, before: &[u8], name: &Name<'_>) -> Added {
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
    fn entries_are_aligned_and_never_cut_off() {
        let name = Name { ino: 7, cookie: 3, kind: 8, name: b"nine char" };
        let mut listing = Listing::new(100);
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
