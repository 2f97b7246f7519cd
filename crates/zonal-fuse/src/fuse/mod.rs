//! FUSE requests turned into calls of a [`FileSystem`](zonal_fs::vfs::FileSystem).
//!
//! [`FuseServer`] is a composition of parts that own their fields: `Backend`, the file system and
//! the one way in which requests call it; `Kernel`, what both sides have agreed on and what the
//! kernel knows of inodes; `Pages`, its pages. No part uses another; the requests use them all.
//!
//! A room may use the rooms that its last column names; `all above` are the rooms of the rows
//! above. `cargo xtask check` compares the paths:
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `route` | how the data of an open file travels | |
//! | `nodes` | inode numbers as node numbers | |
//! | `inbox` | a channel to a thread of the mount | |
//! | `real_time` | the clock | |
//! | `event_count` | counts events, for threads that wait for one | |
//! | `zone_writes` | failed writes of zones | |
//! | `fsync_queue` | syncs that wait for a commit | `inbox` |
//! | `lost_names` | link counts of the kernel | `real_time` |
//! | `page_cache` | pages that direct writes make stale, or fill | `route`, `inbox`, `real_time` |
//! | `lookup_counts` | inodes that the kernel knows | `page_cache` |
//! | `enospc_retry` | waiting for the kernel's FORGET | `event_count`, `lookup_counts` |
//! | `convert` | attributes, times, types and flags of both sides | `route`, `page_cache` |
//! | `rights` | rights of a caller | `route`, `convert` |
//! | `kernel` | the kernel: flags of INIT, notifications, answers with attributes | all above |
//! | `passthrough` | open zone files and their backing files | `route`, `convert` |
//! | `writeback` | data that the kernel collects | `inbox`, `page_cache`, `convert` |
//! | `pages` | all pages of a mount | `page_cache`, `passthrough`, `writeback` |
//! | `backend` | calls of the file system, and its end | `nodes`, `lookup_counts`, `enospc_retry` |
//! | `server` | the composition | all above |
//! | `requests` | one handler per request; `control`: for the control directory | all above |
//!
//! # Tasks of the kernel
//! The kernel checks permissions (`default_permissions`), keeps locks and the page cache. Since
//! only the kernel changes the tree, it may cache names and attributes for a day (`TTL`). It strips
//! setgid in chmod and create, since it knows groups and capabilities of the caller.
//!
//! # Tasks of this server
//! It applies the umask and default ACLs (`FUSE_DONT_MASK`), and clears setuid, setgid and
//! capabilities on write, truncate and chown (`FUSE_HANDLE_KILLPRIV_V2`). The kernel, which knows
//! the size, fills in the offsets of appending writes; this covers `RWF_APPEND` too, for which
//! requests have no flag.

mod backend;
mod convert;
mod enospc_retry;
mod event_count;
mod fsync_queue;
mod inbox;
mod kernel;
mod lookup_counts;
mod lost_names;
mod nodes;
mod page_cache;
mod pages;
mod passthrough;
mod real_time;
mod requests;
mod rights;
mod route;
mod server;
mod writeback;
mod zone_writes;

pub(crate) use requests::make_hidden;
pub(crate) use server::FuseServer;
pub use server::MountContent;

#[cfg(test)]
mod tests;
