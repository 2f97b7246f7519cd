//! The kernel, as the server of a mount sees it: what both have negotiated, and what the kernel
//! knows of inodes.

use std::sync::OnceLock;

use zonal_fs::furrow::AtimePolicy;
use zonal_fs::vfs::{Attr, FileModel};
use zonal_fuse_transport::NodeId;
use zonal_fuse_transport::abi::{self, InitFlags};
use zonal_fuse_transport::init::{InitRequest, UseRings};
use zonal_fuse_transport::notify::Notifier;

use super::convert;
use super::lost_names::LostNames;
use super::nodes::Nodes;
use super::real_time::now;
use super::rights::TakenCapability;
use super::zone_writes::ZoneWrites;
use crate::options::{Access, AsyncDirect, MountConfig, TransportChoice, WriteCache};

/// Largest read or write in bytes: the kernel's limit of 256 pages.
pub(super) const REQUEST_MAX: u32 = 1 << 20;

/// Most background requests (readahead, asynchronous direct I/O) that the kernel sends at once. Its
/// default of 12 is less than a usual queue depth of 32.
pub(super) const BACKGROUND_MAX: u16 = 64;

/// The kernel's side of a mount.
pub(crate) struct Kernel {
    /// Flags and sizes that the server asks the kernel for.
    pub(crate) request: InitRequest,
    /// Notifications to the kernel, and negotiated flags, once there is a session.
    session: OnceLock<(Notifier, InitFlags)>,
    nodes: Nodes,
    /// `st_blksize`.
    pub(super) blksize: u32,
    pub(super) lost_names: LostNames,
    pub(super) zone_writes: ZoneWrites,
    pub(super) taken_capability: TakenCapability,
}

impl Kernel {
    /// The kernel before INIT. `model` is that of most files of the mount.
    pub(super) fn new(config: &MountConfig, model: FileModel, nodes: Nodes, blksize: u32) -> Self {
        Self {
            request: init_request(config, model),
            session: OnceLock::new(),
            nodes,
            blksize,
            lost_names: LostNames::default(),
            zone_writes: ZoneWrites::default(),
            taken_capability: TakenCapability::default(),
        }
    }

    /// The session with the kernel has begun.
    pub(crate) fn connect(&self, notifier: Notifier, negotiated: InitFlags) {
        assert!(self.session.set((notifier, negotiated)).is_ok(), "a mount has one session");
    }

    /// Negotiated INIT flags; none before [`connect`](Self::connect).
    pub(super) fn negotiated(&self) -> InitFlags {
        self.session.get().map_or(InitFlags::empty(), |(_, negotiated)| *negotiated)
    }

    /// Attributes for an answer that is about to be sent.
    pub(super) fn attr(&self, attr: &Attr) -> abi::Attr {
        self.zone_writes.see(attr.ino);
        // Precedes the answer with a notification if the file is losing a name.
        if self.lost_names.is_losing(attr.ino, now) {
            self.forget_attributes(self.nodes.node(attr.ino));
        }
        convert::attr(attr, self.blksize)
    }

    /// Makes the kernel ask for the attributes of an inode again.
    pub(super) fn forget_attributes(&self, node: NodeId) {
        if let Some((notifier, _)) = self.session.get()
            && let Err(error) = notifier.inval_inode(node, -1, 0)
        {
            // The kernel may not know the inode any more.
            tracing::debug!(inode = node.0, %error, "attributes not forgotten");
        }
    }
}

/// Flags and sizes that a mount asks the kernel for.
fn init_request(config: &MountConfig, model: FileModel) -> InitRequest {
    let zones = model == FileModel::Zones;
    let writes_back = config.write_cache == WriteCache::Back;
    // Without these, permissions would be wrong. Zone files have no ACLs.
    let acl = if zones { InitFlags::empty() } else { InitFlags::POSIX_ACL };
    // Not FUSE_ALLOW_IDMAP: with it most requests of any mount carry no user.
    // Not FUSE_ATOMIC_O_TRUNC: we would truncate before the kernel checks whether the file is a
    // running program.
    let mut optional = InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::SETXATTR_EXT;
    // Writes to zones can be short. With ASYNC_DIO the kernel turns a short asynchronous write into
    // EIO (fuse_get_res_by_io); without it, it sends asynchronous reads one after the other, except
    // by a hidden mount, which needs root, and a kernel that collects no writes.
    if !zones || config.access == Access::ReadOnly {
        optional |= InitFlags::ASYNC_DIO;
    } else if config.async_direct == AsyncDirect::Together
        && !writes_back
        && rustix::process::geteuid().is_root()
    {
        optional |= InitFlags::PASSTHROUGH;
    }
    if !zones {
        // A zone file that is open for writing cannot be mapped: pages are not written in order.
        optional |= InitFlags::DIRECT_IO_ALLOW_MMAP;
    }
    if config.atime != AtimePolicy::Always {
        // With `strictatime` every readlink(2) must reach us.
        optional |= InitFlags::CACHE_SYMLINKS;
    }
    if writes_back {
        optional |= InitFlags::WRITEBACK_CACHE;
    }
    InitRequest {
        required: InitFlags::DONT_MASK | acl,
        optional,
        request_max: REQUEST_MAX,
        background_max: BACKGROUND_MAX,
        rings: match config.transport {
            TransportChoice::Device => UseRings::Never,
            TransportChoice::Fastest => UseRings::IfOffered,
            TransportChoice::Rings => UseRings::Required,
        },
    }
}
