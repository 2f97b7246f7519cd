//! Bytes of memory that collections take, for whoever keeps a cache within a bound.
//!
//! What counts is what the allocator takes, not what a collection asks for: glibc's has a word
//! before each piece and rounds up to 16 bytes.

use std::mem::size_of;

/// Bytes that the allocator takes for a piece of so many.
pub(super) const fn allocated(bytes: usize) -> usize {
    let taken = (bytes + 8).next_multiple_of(16);
    if taken < 32 { 32 } else { taken }
}

/// Bytes that a list takes, without what its elements lead to.
pub(super) fn in_list<T>(list: &Vec<T>) -> usize {
    if list.capacity() == 0 { 0 } else { allocated(list.capacity() * size_of::<T>()) }
}

/// Bytes of an entry of so many in a tree: nodes have room for eleven, and about seven in them.
pub(super) const fn in_tree(bytes: usize) -> usize {
    bytes * 9 / 5 + 6
}
