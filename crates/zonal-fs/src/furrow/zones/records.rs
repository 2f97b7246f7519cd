//! Operations on owner records: cut, join, sort. [`backrefs`](crate::furrow::metadata::backrefs) says
//! what they are for.

use crate::furrow::format::backref::Backref;
use crate::furrow::metadata::place::Owner;
use crate::vfs::Ino;

impl Backref {
    /// At most `blocks` blocks of it, behind the first `skip`. A shared extent stays whole.
    pub(in crate::furrow) fn part(&self, skip: u32, blocks: u32) -> Self {
        match self.owner {
            Owner::Extent(_) => *self,
            Owner::Entry(ino, first) => Self {
                owner: Owner::Entry(ino, first + u64::from(skip)),
                block: self.block + skip,
                blocks: blocks.min(self.blocks - skip),
            },
        }
    }

    /// Both as one, if `next` says the same or goes on where this ends.
    fn joined(&self, next: &Self) -> Option<Self> {
        let (owners, blocks) = ((self.owner, next.owner), (self.block, next.block));
        let is_same = match owners {
            (Owner::Extent(id), Owner::Extent(next)) => id == next && blocks.0 == blocks.1,
            (Owner::Entry(ino, _), Owner::Entry(next_ino, _)) => {
                ino == next_ino
                    && self.distance() == next.distance()
                    && (self.block..=self.end()).contains(&next.block)
            }
            (Owner::Extent(_), Owner::Entry(..)) | (Owner::Entry(..), Owner::Extent(_)) => false,
        };
        let end = self.end().max(next.end());
        is_same.then(|| Self { blocks: end - self.block, ..*self })
    }

    /// What blocks of one run have in common: how far they lie apart in file and zone.
    fn distance(&self) -> u64 {
        match self.owner {
            Owner::Entry(_, first) => first.wrapping_sub(u64::from(self.block)),
            Owner::Extent(_) => 0,
        }
    }
}

/// Records of a zone that are in memory, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(in crate::furrow) struct Records(Vec<Backref>);

impl Records {
    /// Adds one, or makes the last one longer.
    pub(in crate::furrow) fn push(&mut self, record: Backref) {
        if let Some(last) = self.0.last_mut()
            && let Some(joined) = last.joined(&record)
        {
            *last = joined;
        } else {
            self.0.push(record);
        }
    }

    pub(in crate::furrow) fn as_slice(&self) -> &[Backref] {
        &self.0
    }
}

/// Makes what says the same, or goes on, one record each, and puts all in the order of blocks.
pub(in crate::furrow) fn settle(records: &mut Vec<Backref>) {
    let key = |record: &Backref| match record.owner {
        Owner::Entry(ino, _) => (ino, record.distance(), record.block),
        Owner::Extent(id) => (Ino::default(), id.0, record.block),
    };
    records.sort_unstable_by_key(key);
    records.dedup_by(|next, last| match last.joined(next) {
        Some(joined) => {
            *last = joined;
            true
        }
        None => false,
    });
    records.sort_unstable_by_key(|record| (record.block, record.owner));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::furrow::metadata::place::ExtentId;

    fn of_file(ino: u64, first: u64, block: u32, blocks: u32) -> Backref {
        Backref { owner: Owner::Entry(Ino::new(ino), first), block, blocks }
    }

    fn of_extent(id: u64, block: u32, blocks: u32) -> Backref {
        Backref { owner: Owner::Extent(ExtentId(id)), block, blocks }
    }

    #[test]
    fn backref_of_ordered_writes_is_one_record() {
        let mut records = Records::default();
        (0..100).for_each(|turn| records.push(of_file(7, u64::from(turn) * 4, 10 + turn * 4, 4)));
        assert_eq!(records.as_slice(), [of_file(7, 0, 10, 400)]);
        records.push(of_file(7, 0, 410, 4));
        records.push(of_file(8, 4, 414, 4));
        assert_eq!(records.as_slice().len(), 3, "another place, another file");
    }

    #[test]
    fn backref_merge_joins_equals_only() {
        let mut records = vec![
            of_file(7, 20, 120, 5),
            of_file(9, 0, 3, 1),
            of_extent(7, 100, 8),
            of_file(7, 0, 100, 10),
            of_file(7, 5, 105, 15),
            of_file(7, 2, 50, 3),
            of_extent(7, 100, 8),
            of_extent(8, 100, 8),
            of_file(7, 26, 126, 1),
        ];
        settle(&mut records);
        let expected = [
            of_file(9, 0, 3, 1),
            of_file(7, 2, 50, 3),
            of_file(7, 0, 100, 25),
            of_extent(7, 100, 8),
            of_extent(8, 100, 8),
            of_file(7, 26, 126, 1),
        ];
        assert_eq!(records, expected);
    }

    #[test]
    fn backref_part_is_part_of_file() {
        let record = of_file(7, 10, 100, 8);
        assert_eq!(record.part(3, 2), of_file(7, 13, 103, 2));
        assert_eq!(record.part(3, 50), of_file(7, 13, 103, 5));
        assert_eq!(of_extent(7, 100, 8).part(3, 2), of_extent(7, 100, 8), "stays whole");
    }
}
