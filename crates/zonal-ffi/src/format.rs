//! Making a file system on an open device.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use rustix::io::Errno;
use zonal::SystemClock;
use zonal_fs::furrow::{self, Owner};
use zonal_fs::mkfs::Overwrite;
use zonal_fs::zonefs::{self, Aggregate};

use crate::device::ZonalDevice;
use crate::edge::{self, Failure, Outcome};
use crate::types::{
    ZONAL_FURROW, ZONAL_MKFS_AGGREGATE, ZONAL_MKFS_FORCE, ZONAL_ZONEFS, ZonalMkfsOptions,
};

/// The options for a caller that gives none.
const DEFAULTS: ZonalMkfsOptions = ZonalMkfsOptions {
    fs: ZONAL_FURROW,
    flags: 0,
    label: std::ptr::null(),
    uuid: [0; 16],
    reserve_percent: 0,
    perm: 0,
    reserved: [0; 5],
};

/// Makes a file system on an open device: resets its zones and writes an empty file system, which
/// is durable when this returns. NULL for `options` means Furrow with the defaults. The root
/// directory of Furrow belongs to the user of this process. Without `ZONAL_MKFS_FORCE` it formats
/// only a device that holds nothing.
///
/// `zonal_volume_open_on` then mounts it.
///
/// Errors: `-EBUSY` where the device holds something, or a volume is open on the handle; `-EINVAL`
/// for invalid options and a drive with too few zones; `-EROFS` on a handle for reading; `-EIO` and
/// other errors of the drive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_mkfs(
    device: *const ZonalDevice,
    options: *const ZonalMkfsOptions,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let given = unsafe { options.as_ref() }.unwrap_or(&DEFAULTS);
        // SAFETY: the caller's part of the contract.
        let label = unsafe { label(given.label) }?;
        let is_known = given.flags & !(ZONAL_MKFS_FORCE | ZONAL_MKFS_AGGREGATE) == 0;
        if given.reserved != [0; 5] || !is_known {
            return Err(Failure::new(Errno::INVAL, "an option that this version does not have"));
        }
        let _taken = device.take()?;
        match given.fs {
            ZONAL_FURROW => make_furrow(device, given, label),
            ZONAL_ZONEFS => make_zonefs(device, given, label),
            fs => Err(Failure::new(Errno::INVAL, format!("{fs} is no file system"))),
        }
    })
}

fn make_furrow(device: &ZonalDevice, given: &ZonalMkfsOptions, label: String) -> Outcome<()> {
    if given.flags & ZONAL_MKFS_AGGREGATE != 0 || given.perm != 0 {
        return Err(Failure::new(Errno::INVAL, "an option of zonefs for Furrow"));
    }
    let mut options = furrow::MkfsOptions {
        label,
        uuid: uuid(given),
        overwrite: overwrite(given),
        owner: Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        ..furrow::MkfsOptions::default()
    };
    if given.reserve_percent > 0 {
        options.reserve_percent = given.reserve_percent;
    }
    let device = Arc::clone(device.device());
    furrow::mkfs(device, &SystemClock::new(), &options, &mut |_| ())?;
    Ok(())
}

fn make_zonefs(device: &ZonalDevice, given: &ZonalMkfsOptions, label: String) -> Outcome<()> {
    if given.reserve_percent != 0 {
        return Err(Failure::new(Errno::INVAL, "an option of Furrow for zonefs"));
    }
    if given.perm > 0o7777 {
        return Err(Failure::new(Errno::INVAL, "permission bits over 07777"));
    }
    let joins = given.flags & ZONAL_MKFS_AGGREGATE != 0;
    let options = zonefs::MkfsOptions {
        label,
        uuid: uuid(given),
        aggregate: if joins { Aggregate::Conventional } else { Aggregate::Separate },
        perm: (given.perm != 0).then_some(given.perm),
        overwrite: overwrite(given),
        ..zonefs::MkfsOptions::default()
    };
    zonefs::mkfs(&**device.device(), &options, &mut |_| ())?;
    Ok(())
}

/// The label; none is an empty one.
///
/// # Safety
///
/// `label` is NULL, or ends in a zero byte and stays unchanged meanwhile.
unsafe fn label(label: *const c_char) -> Outcome<String> {
    if label.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the caller says so.
    let label = unsafe { edge::text(label, "the label") }?;
    let label = label.to_str().map_err(|_| Failure::new(Errno::INVAL, "the label is not UTF-8"))?;
    Ok(label.to_owned())
}

/// The identity that was asked for, or a random one.
fn uuid(given: &ZonalMkfsOptions) -> [u8; 16] {
    if given.uuid == [0; 16] { uuid::Uuid::new_v4().into_bytes() } else { given.uuid }
}

fn overwrite(given: &ZonalMkfsOptions) -> Overwrite {
    if given.flags & ZONAL_MKFS_FORCE == 0 { Overwrite::Refuse } else { Overwrite::Force }
}
