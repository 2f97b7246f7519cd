//! Bytes of memory that collections take, for caches that stay within a bound.
//!
//! The count is the bytes of the content, and a constant for each allocation and each entry of a
//! tree. The constants are measured, and are the same for every allocator: `tests/memory.rs`
//! compares the count with the resident size of a process.

use std::mem::size_of;

/// Overhead of an allocation in bytes: the allocator's header, and rounding. With glibc, between 84
/// and 102 % of the count were resident.
const ALLOCATION_BYTES: usize = 16;

/// Bytes that an allocation of `bytes` bytes takes.
pub(super) const fn allocated(bytes: usize) -> usize {
    bytes + ALLOCATION_BYTES
}

/// Bytes that a list takes, without the allocations of its elements.
pub(super) fn in_list<T>(list: &Vec<T>) -> usize {
    if list.capacity() == 0 { 0 } else { allocated(list.capacity() * size_of::<T>()) }
}

/// Bytes that an entry of `bytes` bytes takes in a tree: nodes have room for eleven, and hold about
/// seven.
pub(super) const fn in_tree(bytes: usize) -> usize {
    bytes * 9 / 5 + 6
}
