//! FUSE requests turned into calls of a [`FileSystem`](zonal_fs::vfs::FileSystem).
//!
//! Each module uses only modules below it:
//!
//! - `requests`: one handler per request; `requests::control` answers for the control directory.
//! - `server`: [`FuseServer`], the state of one mount.
//! - `writeback`: data that the kernel collects. `fsync_queue`: syncs that wait for a commit.
//! - `passthrough`: open zone files and their backing files. `rights`: rights of a caller.
//! - `convert`: attributes, times, file types and flags of both sides.
//! - `page_cache`: pages that direct writes make stale, or fill. `lookup_counts`: inodes that the
//!   kernel knows. `lost_names`: link counts of the kernel. `zone_writes`: failed writes of zones.
//! - `enospc_retry`, `closings`: waiting for the kernel's FORGET and RELEASE.
//! - `route`, `nodes`, `inbox`, `real_time`: small parts of the above.
//!
//! # Tasks of the kernel
//! The kernel checks permissions (`default_permissions`), keeps locks and the page cache. Since
//! only the kernel changes the tree, it may cache names and attributes for [`TTL`]. It strips
//! setgid in chmod and create, since it knows groups and capabilities of the caller.
//!
//! # Tasks of this server
//! It applies the umask and default ACLs (`FUSE_DONT_MASK`), and clears setuid, setgid and
//! capabilities on write, truncate and chown (`FUSE_HANDLE_KILLPRIV_V2`). The kernel, which knows
//! the size, fills in the offsets of appending writes; this covers `RWF_APPEND` too, for which
//! requests have no flag.

mod closings;
mod convert;
mod enospc_retry;
mod fsync_queue;
mod inbox;
mod lookup_counts;
mod lost_names;
mod nodes;
mod page_cache;
mod passthrough;
mod real_time;
mod requests;
mod rights;
mod route;
mod server;
mod writeback;
mod zone_writes;

pub(crate) use requests::make_hidden;
pub use server::{FuseServer, MountContent, TTL};

#[cfg(test)]
mod tests;
