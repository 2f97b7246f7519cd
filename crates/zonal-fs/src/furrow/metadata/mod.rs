//! Metadata in memory: inodes, maps, directories, and the rows that have changed since the last
//! commit.
//!
//! It is a cache: everything else is in the table ([`Tree`](crate::furrow::tree::Tree) reads it,
//! [`evict`](state::evict) evicts it). Changes since the last commit are always here.
//!
//! Operations change [`State`] under one lock and mark the rows they changed; a commit writes the
//! current values of the marked rows as one batch. So everything between two commits becomes
//! durable as a whole or not at all. Nothing here does I/O.
//!
//! Each part owns its fields and the layout of its rows; steps that cross parts are methods of
//! [`State`]. The last column names the rooms that a room may use, and `all above` means the rooms
//! of the rows above:
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `small` | maps that take little memory while they have few entries | |
//! | `resident` | which ranges of a map or a directory are in memory | `small` |
//! | `missing` | metadata that an operation needs and memory lacks | |
//! | `residency` | bytes in memory, last uses, loads under way | |
//! | `rows` | changed rows, remap tables, totals, the next numbers | |
//! | `map`, `directory` | places of file blocks; entries and their name index | all above |
//! | `inode` | attributes and content, users, removals | all above |
//! | `state` | steps that cross these parts | all above |
//!
//! `cargo xtask check` compares the last column with the paths in the source.

pub(super) mod directory;
pub(super) mod inode;
pub(super) mod map;
pub(super) mod missing;
pub(super) mod residency;
pub(super) mod resident;
pub(super) mod rows;
pub(super) mod small;
pub(super) mod state;

pub(super) use self::directory::{Directory, Entry};
pub(super) use self::inode::{Body, Inode};
pub(super) use self::map::File;
pub(super) use self::rows::batch::Ending;
pub(super) use self::state::State;
