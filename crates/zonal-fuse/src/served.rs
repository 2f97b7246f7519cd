//! How the kernel and the daemon serve a mount, once it is mounted.

use zonal_fuse_transport::Transport;
use zonal_fuse_transport::mount::MountType;

use crate::options::AsyncDirect;

/// How a mount is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// How requests come from the kernel.
    pub transport: Transport,
    /// How asynchronous direct reads come.
    pub async_direct: AsyncDirect,
    /// Type of the mount in the kernel.
    pub mount_type: MountType,
}
