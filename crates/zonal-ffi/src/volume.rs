//! Volumes: the file system on a device, mounted in this process.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use rustix::io::Errno;
use zonal::{ByteCount, OpenMode, SystemClock, ZonedDevice};
use zonal_fs::vfs::{Access, Caller};
use zonal_fs::volume::{Volume, VolumeOptions};

use crate::device::{self, Taken, ZonalDevice};
use crate::edge::{self, Failure, Outcome};
use crate::types::{ZonalStatvfs, ZonalVolumeOptions};

/// A mounted volume.
pub struct ZonalVolume {
    volume: Volume,
    /// Of a volume on a handle of a device: keeps the program from changing the device by it.
    _taken: Option<Taken>,
}

/// Mounts the file system, Furrow or zonefs, on the device that `spec` names, as `zonal_open` takes
/// it. `flags` is `O_RDONLY` or `O_RDWR`. A thread commits changes that are about five seconds old.
/// New files belong to the user of this process; mode bits are kept and not enforced.
///
/// Errors: those of `zonal_open`; `-EINVAL` where the device holds neither; `-EBUSY` where another
/// process or volume has the drive; `-EIO` where the file system is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_open(
    spec: *const c_char,
    flags: c_int,
    volume: *mut *mut ZonalVolume,
) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| unsafe { open((spec, flags), &DEFAULTS, volume) })
}

/// The same, with options.
///
/// Errors: those of `zonal_volume_open`; `-EINVAL` for options that this version does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_open_with(
    spec: *const c_char,
    flags: c_int,
    options: *const ZonalVolumeOptions,
    volume: *mut *mut ZonalVolume,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let options = unsafe { edge::borrow(options, "the options") }?;
        // SAFETY: the caller's part of the contract.
        unsafe { open((spec, flags), options, volume) }
    })
}

/// Mounts the file system on an open device, such as one in memory that `zonal_mkfs` has formatted:
/// opening `mem:` by `zonal_volume_open` makes a new drive, which is empty. `flags` is `O_RDONLY`
/// or `O_RDWR`; NULL for `options` means the defaults. The volume keeps the device, so the handle
/// may be closed before the volume or after. Until the volume is closed the handle reads and
/// reports, but writes, appends, operations on zones and `zonal_mkfs` give `-EBUSY`. A handle that
/// was opened with `O_RDONLY` keeps no other process from writing to the drive.
///
/// Errors: those of `zonal_volume_open`; `-EBUSY` where a volume is open on the handle; `-EROFS`
/// for `O_RDWR` on a handle for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_open_on(
    device: *const ZonalDevice,
    flags: c_int,
    options: *const ZonalVolumeOptions,
    volume: *mut *mut ZonalVolume,
) -> c_int {
    edge::status(|| {
        edge::needs(volume, "where to put the volume")?;
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let given = unsafe { options.as_ref() }.unwrap_or(&DEFAULTS);
        let options = options_of(flags, given)?;
        let taken = device.take()?;
        let opened = mount(Arc::clone(device.device()), &options)?;
        // SAFETY: not NULL, and the caller's part of the contract.
        unsafe { edge::give(ZonalVolume { volume: opened, _taken: Some(taken) }, volume) };
        Ok(())
    })
}

/// The options for a caller that gives none.
const DEFAULTS: ZonalVolumeOptions = ZonalVolumeOptions { memory: 0, reserved: [0; 7] };

unsafe fn open(
    (spec, flags): (*const c_char, c_int),
    given: &ZonalVolumeOptions,
    volume: *mut *mut ZonalVolume,
) -> Outcome<()> {
    edge::needs(volume, "where to put the volume")?;
    let options = options_of(flags, given)?;
    // SAFETY: the caller's part of the contract.
    let spec = unsafe { edge::text(spec, "the device") }?;
    // With a writer, the reads would not see one state of the file system.
    let device = device::open(spec, flags, OpenMode::ReadLocked)?;
    let opened = mount(device, &options)?;
    // SAFETY: not NULL, and the caller's part of the contract.
    unsafe { edge::give(ZonalVolume { volume: opened, _taken: None }, volume) };
    Ok(())
}

/// The way to mount that the caller asks for.
fn options_of(flags: c_int, given: &ZonalVolumeOptions) -> Outcome<VolumeOptions> {
    if given.reserved != [0; 7] {
        return Err(Failure::new(Errno::INVAL, "an option that this version does not have"));
    }
    let access = match device::mode(flags, OpenMode::ReadLocked)? {
        OpenMode::ReadWrite => Access::ReadWrite,
        OpenMode::ReadOnly | OpenMode::ReadLocked => Access::ReadOnly,
    };
    let mut options = VolumeOptions { access, caller: user(), ..VolumeOptions::default() };
    if given.memory > 0 {
        options.memory = ByteCount::new(given.memory);
    }
    Ok(options)
}

/// The user of this process.
fn user() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Caller::ROOT
    }
}

fn mount(device: Arc<dyn ZonedDevice>, options: &VolumeOptions) -> Outcome<Volume> {
    Ok(Volume::mount(device, Arc::new(SystemClock::new()), options)?)
}

/// Makes everything durable, leaves the drive clean and closes it. The volume is closed even if
/// this fails: the error is that of the last commit. Files that are still open answer `-EBADF` from
/// then on, and have to be closed all the same.
///
/// Errors: `-EIO` and `-ENOSPC` from the last commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_close(volume: *mut ZonalVolume) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { edge::take(volume, "the volume") }?.volume.close()?))
}

/// Makes everything durable.
///
/// Errors: `-EIO`, `-ENOSPC`, `-EROFS`; then data written since the last sync may not be durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_sync(volume: *const ZonalVolume) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| Ok(unsafe { of(volume) }?.sync()?))
}

/// Tells the space of a volume, used and free.
///
/// Errors: none but `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_volume_statvfs(
    volume: *const ZonalVolume,
    stat: *mut ZonalStatvfs,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let space = unsafe { of(volume) }?.space()?;
        let told = ZonalStatvfs {
            block_size: space.block_size.into(),
            blocks: space.blocks,
            blocks_free: space.blocks_free,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            name_max: space.name_max as u64,
        };
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(told, stat, "stat") }
    })
}

/// The volume of a handle.
///
/// # Safety
///
/// `volume` is NULL or a handle.
pub(crate) unsafe fn of<'a>(volume: *const ZonalVolume) -> Outcome<&'a Volume> {
    // SAFETY: the caller says so.
    unsafe { edge::borrow(volume, "the volume") }.map(|volume| &volume.volume)
}
