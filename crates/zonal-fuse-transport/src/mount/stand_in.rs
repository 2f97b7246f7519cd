//! A loop device that stands in for a drive that is no block device.
//!
//! The kernel passes sync(2) on only to mounts of the type `fuseblk`, and each of these mounts
//! needs a block device of its own. So a drive file, a character device or a drive behind layers
//! gets a loop device over 4 KiB of memory, which we never read or write. The kernel frees it with
//! its last user (`AUTOCLEAR`), which is the mount, however that ends.
//!
//! The mount table shows the name by which mount(2) found the block device, and users look there
//! for the source that they know. So a thread with a root and a working directory of its own
//! (`CLONE_FS`) makes the device's node under that name in an empty tree that no other process
//! sees, and mounts from there.

#![expect(unsafe_code, reason = "ioctls, and a thread gets a root directory of its own")]

use std::ffi::{CStr, CString, c_void};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::fs::{
    CWD, FileType, MemfdFlags, Mode, OFlags, fstat, ftruncate, memfd_create, mknodat,
};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen, mount as mount_at,
};
use rustix::process::{chroot, fchdir};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::MountSpec;
use crate::Errno;

/// Size of the device and of its blocks: that of a page, as the mount has it.
const BLOCK: u32 = 4096;

/// How many free loop devices are tried: other programs look for one at the same time.
const TRIES: usize = 64;

/// Longest name of a memory file, for its source.
const NAME_MAX: usize = 249;

/// Mounts `spec` with `data`, as mount(2) does, but `spec.source` need be no block device. Fails
/// without a trace where this process may not do all of it.
pub(crate) fn mount(spec: &MountSpec, data: &CStr) -> io::Result<()> {
    let (spec, data) = (spec.clone(), data.to_owned());
    let apart = thread::Builder::new().name("fuse-stand-in".to_owned());
    let mounted = apart.spawn(move || mount_apart(&spec, &data))?.join();
    mounted.unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
}

fn mount_apart(spec: &MountSpec, data: &CStr) -> io::Result<()> {
    // SAFETY: only the root and the working directory of this thread change, and it ends here.
    unsafe { unshare_unsafe(UnshareFlags::FS) }?;
    // First, so that a caller without the permission to mount leaves loop devices alone.
    let tree = empty_tree()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let point = rustix::fs::open(&spec.point, flags, Mode::empty())?;
    let device = LoopDevice::attach(&spec.source)?;
    fchdir(&tree)?;
    let node = Path::new(spec.source.trim_start_matches('/'));
    if let Some(parent) = node.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    mknodat(CWD, node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, device.number()?)?;
    let target = if spec.source.starts_with('/') {
        // An absolute source begins at the root, so the directory is reached from within.
        chroot(".")?;
        fchdir(&point)?;
        Path::new(".")
    } else {
        &spec.point
    };
    Ok(mount_at(&*spec.source, target, spec.kind.name(), spec.flags, data)?)
}

/// A file system in memory that is attached nowhere.
fn empty_tree() -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A loop device over memory, which the kernel frees with its last user.
struct LoopDevice(File);

impl LoopDevice {
    /// Attaches a free loop device. `losetup --list` shows the source.
    fn attach(source: &str) -> io::Result<Self> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        let memory = memory(source)?;
        let fd = u32::try_from(memory.as_raw_fd()).map_err(io::Error::other)?;
        let mut tries = 0..TRIES;
        loop {
            // SAFETY: as its implementation says.
            let number = unsafe { ioctl(&control, GetFree) }?;
            let outcome = Self::configure(number, fd);
            let is_taken = |error: &io::Error| {
                matches!(Errno::from_io_error(error), Some(Errno::BUSY | Errno::NXIO))
            };
            match outcome {
                Err(error) if is_taken(&error) && tries.next().is_some() => {}
                outcome => return outcome,
            }
        }
    }

    fn configure(number: i32, fd: u32) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open(format!("/dev/loop{number}"))?;
        let config =
            Config { fd, block_size: BLOCK, before: [0; 13], flags: AUTOCLEAR, after: [0; 60] };
        // SAFETY: LOOP_CONFIGURE reads a `loop_config` from where its argument points: `Setter`
        // points to its own copy of one.
        let request = unsafe { Setter::<CONFIGURE, Config>::new(config) };
        // SAFETY: as above; the kernel writes nothing.
        unsafe { ioctl(&device, request) }?;
        Ok(Self(device))
    }

    /// As mknod(2) takes it.
    fn number(&self) -> io::Result<u64> {
        Ok(fstat(&self.0)?.st_rdev)
    }
}

/// The memory below a loop device.
fn memory(source: &str) -> io::Result<OwnedFd> {
    let bytes = format!("zonal:{source}").into_bytes();
    let name = CString::new(&bytes[..bytes.len().min(NAME_MAX)])?;
    let memory = memfd_create(&name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL)?;
    ftruncate(&memory, BLOCK.into())?;
    Ok(memory)
}

/// `LOOP_CONFIGURE`, with a [`Config`]
const CONFIGURE: Opcode = 0x4c0a;

/// `LO_FLAGS_AUTOCLEAR`
const AUTOCLEAR: u32 = 4;

/// `struct loop_config`
#[repr(C)]
struct Config {
    /// The file below.
    fd: u32,
    block_size: u32,
    before: [u32; 13],
    flags: u32,
    after: [u32; 60],
}

/// `LOOP_CTL_GET_FREE`: returns the number of a free loop device, and makes one if none is free.
struct GetFree;

// SAFETY: the kernel takes no argument, and reads and writes no memory.
unsafe impl Ioctl for GetFree {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        0x4c82
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]
mod tests {
    use rustix::mount::MountFlags;

    use super::*;
    use crate::mount::{Audience, BlockDevice, MountType};

    #[test]
    fn loop_config_is_as_large_as_linux_has_it() {
        assert_eq!(size_of::<Config>(), 304);
    }

    #[test]
    fn loop_device_is_free_after_failed_mount() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            println!("SKIP: needs root and loop devices");
            return;
        }
        let spec = MountSpec {
            point: std::env::temp_dir(),
            source: format!("po2:/free-{}/drive", std::process::id()),
            kind: MountType::Fuseblk(BlockDevice::StandIn),
            subtype: "test".to_owned(),
            flags: MountFlags::empty(),
            audience: Audience::Owner,
        };
        let device = LoopDevice::attach(&spec.source).unwrap();
        assert_eq!(attached(&spec.source), 1);
        drop(device);
        wait_until_free(&spec.source);
        let error = mount(&spec, c"fd=none").unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL), "{error}");
        wait_until_free(&spec.source);
    }

    /// udev may have it open for a moment.
    fn wait_until_free(source: &str) {
        while attached(source) > 0 {
            thread::yield_now();
        }
    }

    /// How many loop devices stand in for a source.
    fn attached(source: &str) -> usize {
        let files = fs::read_dir("/sys/block").unwrap();
        let files = files.map(|device| device.unwrap().path().join("loop/backing_file"));
        files.filter(|file| fs::read_to_string(file).is_ok_and(|it| it.contains(source))).count()
    }
}
