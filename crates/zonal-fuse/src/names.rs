//! Names and inode numbers that a mount adds to the ones of its file system.

use zonal_fs::vfs::Ino;

/// Name of the control directory in the root of a mount.
pub const CONTROL_DIR: &str = ".zonal";

/// Inode of the control directory; the inodes of its files follow. No file system uses numbers from
/// 2⁶³ on.
pub(crate) const CONTROL_INO: Ino = Ino::new(1 << 63);

/// Whether an inode is the control directory or a file in it.
pub(crate) const fn is_control(ino: Ino) -> bool {
    ino.get() >= CONTROL_INO.get()
}

/// Extended attribute of the root directory: the process id of the daemon. The daemon answers it;
/// it is neither stored nor listed.
pub const DAEMON_XATTR: &str = "user.zonal.daemon";

/// Extended attribute of the root directory that exists once the shutdown ioctl has stopped the
/// mount: all writes before it are durable, and later ones fail.
pub const STOPPED_XATTR: &str = "user.zonal.stopped";
