//! A set of inode numbers that takes a bit for each where the numbers are dense.

use std::collections::BTreeMap;

/// Words of a chunk of the set, and inode numbers of a chunk.
const WORDS: usize = 64;
const CHUNK: u64 = 64 * WORDS as u64;

/// Most numbers of a chunk that are stored as a list; with more it is a bitmap.
const FEW_MAX: usize = 128;

#[derive(Debug)]
enum InoChunk {
    Few(Vec<u16>),
    Many(Box<[u64; WORDS]>),
}

/// A set of inode numbers.
#[derive(Debug, Default)]
pub(in crate::furrow) struct InoSet(BTreeMap<u64, InoChunk>);

impl InoSet {
    fn place(ino: u64) -> (u64, u16) {
        (ino / CHUNK, u16::try_from(ino % CHUNK).expect("below the chunk's size"))
    }

    /// Adds a number; returns `false` if the set had it.
    pub(in crate::furrow) fn insert(&mut self, ino: u64) -> bool {
        let (chunk, at) = Self::place(ino);
        let chunk = self.0.entry(chunk).or_insert(InoChunk::Few(Vec::new()));
        if let InoChunk::Few(few) = chunk {
            let Err(place) = few.binary_search(&at) else { return false };
            if few.len() < FEW_MAX {
                few.insert(place, at);
                return true;
            }
            let mut many = Box::new([0; WORDS]);
            for &at in few.iter() {
                many[usize::from(at) / 64] |= 1 << (at % 64);
            }
            *chunk = InoChunk::Many(many);
        }
        let InoChunk::Many(many) = chunk else { unreachable!("just made") };
        let (word, bit) = (&mut many[usize::from(at) / 64], 1 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(in crate::furrow) fn contains(&self, ino: u64) -> bool {
        let (chunk, at) = Self::place(ino);
        match self.0.get(&chunk) {
            None => false,
            Some(InoChunk::Few(few)) => few.binary_search(&at).is_ok(),
            Some(InoChunk::Many(many)) => many[usize::from(at) / 64] & (1 << (at % 64)) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn inode_set_holds_inserted_numbers() {
        let (mut set, mut expected) = (InoSet::default(), BTreeSet::new());
        let mut number = 1_u64;
        for turn in 0..20_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Close together, and far from each other.
            let ino = if turn % 2 == 0 { number >> 49 } else { number >> 20 };
            assert_eq!(set.insert(ino), expected.insert(ino), "{ino}");
        }
        assert!(expected.iter().all(|&ino| set.contains(ino)));
        let absent = (0..40_000).filter(|ino| !expected.contains(ino));
        assert_eq!(absent.filter(|&ino| set.contains(ino)).count(), 0);
    }
}
