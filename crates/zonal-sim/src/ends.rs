//! Ends of commands that are known before their time comes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number that a caller gives a command: the drive returns it when the command ends.
pub(crate) type Tag = u64;

/// Ends, the first one first.
#[derive(Debug, Default)]
pub(crate) struct Ends(BinaryHeap<Reverse<(u64, Tag)>>);

impl Ends {
    /// A command ends at this time, in nanoseconds.
    pub(crate) fn push(&mut self, at_ns: u64, tag: Tag) {
        self.0.push(Reverse((at_ns, tag)));
    }

    /// The time of the first end.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Takes the first end if it is not after `until_ns`.
    pub(crate) fn pop(&mut self, until_ns: u64) -> Option<(Tag, u64)> {
        self.first_ns().filter(|at_ns| *at_ns <= until_ns)?;
        self.0.pop().map(|Reverse((at_ns, tag))| (tag, at_ns))
    }
}
