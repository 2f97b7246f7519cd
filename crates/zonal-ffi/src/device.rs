//! Devices: libzbd's functions by handle, and reading, writing, appending and flushing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;
use zonal::spec::Openers;
use zonal::{Lba, OpenMode, Select, SystemClock, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

use crate::edge::{self, Failure, Outcome};
use crate::types::{
    Reported, ZONAL_HOST_AWARE, ZONAL_HOST_MANAGED, ZONAL_NOT_ZONED, ZONAL_OP_CLOSE,
    ZONAL_OP_FINISH, ZONAL_OP_OPEN, ZONAL_OP_RESET, ZONAL_ZONE_TYPE_CNV, ZONAL_ZONE_TYPE_SWP,
    ZONAL_ZONE_TYPE_SWR, ZonalInfo, ZonalZone, reported,
};

/// Zones that are reported at once.
const ZONES: usize = 1024;

/// An open device.
pub struct ZonalDevice {
    device: Arc<dyn ZonedDevice>,
    /// Whether a volume, or its formatting, has the device to itself.
    is_taken: Arc<AtomicBool>,
}

/// A device that a volume, or its formatting, has to itself: the handle changes nothing meanwhile.
pub(crate) struct Taken(Arc<AtomicBool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Opens the device of a specification, as the command `zonal` does: in the mode `reading` for
/// `O_RDONLY`.
pub(crate) fn open(spec: &CStr, flags: c_int, reading: OpenMode) -> Outcome<Arc<dyn ZonedDevice>> {
    let mode = mode(flags, reading)?;
    let spec = spec.to_str().map_err(|_| Failure::new(Errno::INVAL, "the device is not UTF-8"))?;
    let openers =
        Openers::builtin().with_schemes(&zonal_linux::SCHEMES).with_paths(zonal_linux::open);
    let stack = openers.open(spec, mode, Arc::new(SystemClock::new()))?;
    Ok(stack.device)
}

/// The mode that `O_RDONLY`, which is `reading`, or `O_RDWR` asks for.
pub(crate) fn mode(flags: c_int, reading: OpenMode) -> Outcome<OpenMode> {
    match OFlags::from_bits_retain(flags.cast_unsigned()) & OFlags::RWMODE {
        OFlags::RDONLY => Ok(reading),
        OFlags::RDWR => Ok(OpenMode::ReadWrite),
        _ => Err(Failure::new(Errno::INVAL, "flags take O_RDONLY or O_RDWR")),
    }
}

/// Opens a device: a drive file, `mem:zone=96M,zones=40`, `/dev/nvme0n1`, `/dev/ng0n1`, or layers
/// in front of one, as the command `zonal` takes them, but for `sim:`: the simulator is not in this
/// library. `flags` is `O_RDONLY` or `O_RDWR`. The handle is written to `device`, and a description
/// of the device to `info`, unless that is NULL.
///
/// Errors: `-EINVAL` for an invalid specification, or other flags; `-EBUSY` where another process
/// has the drive; errors of open(2) for a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_open(
    spec: *const c_char,
    flags: c_int,
    info: *mut ZonalInfo,
    device: *mut *mut ZonalDevice,
) -> c_int {
    edge::status(|| {
        edge::needs(device, "where to put the device")?;
        // SAFETY: the caller's part of the contract.
        let spec = unsafe { edge::text(spec, "the device") }?;
        let opened = open(spec, flags, OpenMode::ReadOnly)?;
        if !info.is_null() {
            // SAFETY: not NULL, and the caller's part of the contract.
            unsafe { edge::put(ZonalInfo::of(opened.geometry()), info, "info") }?;
        }
        // SAFETY: not NULL, and the caller's part of the contract.
        unsafe { edge::give(ZonalDevice::of(opened), device) };
        Ok(())
    })
}

/// Closes a device. Data that was not flushed may not survive a power cut.
///
/// Errors: none but `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_close(device: *mut ZonalDevice) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| unsafe { edge::take(device, "the device") }.map(drop))
}

/// Describes a device.
///
/// Errors: none but `-EFAULT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_get_info(device: *const ZonalDevice, info: *mut ZonalInfo) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(ZonalInfo::of(device.device.geometry()), info, "info") }
    })
}

/// Reports the zones from the one that holds byte `ofst` to the one that holds byte
/// `ofst + len - 1`; with a `len` of 0, to the last. `ro` chooses by condition. `nr_zones` says how
/// many `zones` has room for, and is set to how many were written there; with NULL for `zones`, to
/// how many there are.
///
/// Errors: `-EINVAL` where `ro` is none of `ZONAL_RO_`; `-EIO` and other errors of the drive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_report_zones(
    device: *const ZonalDevice,
    ofst: u64,
    len: u64,
    ro: c_uint,
    zones: *mut ZonalZone,
    nr_zones: *mut c_uint,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let room = *unsafe { edge::borrow(nr_zones, "nr_zones") }?;
        let which = reported(ro)
            .ok_or_else(|| Failure::new(Errno::INVAL, format!("{ro:#x} is no report option")))?;
        let room = if zones.is_null() { c_uint::MAX } else { room };
        let mut count = 0;
        device.each_zone(range(ofst, len), which, |zone| {
            if count == room {
                return false;
            }
            if !zones.is_null() {
                // SAFETY: `count` is less than the room that the caller says there is.
                let place = unsafe { zones.add(count as usize) };
                // SAFETY: the same.
                unsafe { place.write(ZonalZone::of(zone, device.device.geometry())) };
            }
            count += 1;
            true
        })?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(count, nr_zones, "nr_zones") }
    })
}

/// Resets, opens, closes or finishes the zones that a range of bytes touches, one after the other;
/// with a `len` of 0, from `ofst` to the last. Where that is more than one zone, conventional zones
/// are left out. The first failure ends it.
///
/// Errors: `-EINVAL` for an unknown `op` or a range behind the end; `-EBUSY` while a volume is
/// open on this handle; `-EIO` where the condition of a zone allows no such thing; `-EOVERFLOW` and
/// `-ETOOMANYREFS` for more active and open zones than the drive has; `-EROFS` on a handle for
/// reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_zones_operation(
    device: *const ZonalDevice,
    op: c_uint,
    ofst: u64,
    len: u64,
) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        let action = match op {
            ZONAL_OP_RESET => ZoneAction::Reset,
            ZONAL_OP_OPEN => ZoneAction::Open,
            ZONAL_OP_CLOSE => ZoneAction::Close,
            ZONAL_OP_FINISH => ZoneAction::Finish,
            _ => return Err(Failure::new(Errno::INVAL, format!("{op} is no operation"))),
        };
        device.may_change()?;
        let mut touched = Vec::new();
        device.each_zone(range(ofst, len), Reported::All, |zone| {
            touched.push((zone.id, zone.kind));
            true
        })?;
        if touched.is_empty() {
            return Err(Failure::new(Errno::INVAL, "the range is beyond the device's end"));
        }
        let is_one = touched.len() == 1;
        for (zone, kind) in touched {
            if is_one || kind.is_sequential() {
                device.device.manage(Select::One(zone), action)?;
            }
        }
        Ok(())
    })
}

/// Reads whole blocks from byte `ofst` on and returns how many bytes: all of them.
///
/// Errors: `-EINVAL` where `ofst` or `count` is no multiple of the block size, in bytes; `-EIO`
/// behind the end, and where the medium fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_read(
    device: *const ZonalDevice,
    buf: *mut c_void,
    count: usize,
    ofst: u64,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let buffer = unsafe { edge::buffer(buf, count) }?;
        device.device.read(device.block(ofst)?, buffer)?;
        Ok(count as u64)
    })
}

/// Writes whole blocks at byte `ofst`, the write pointer of its zone or anywhere in a conventional
/// zone, and returns how many bytes: all of them.
///
/// Errors: `-EINVAL` where `ofst` or `count` is no multiple of the block size, in bytes; `-EIO`
/// where the write pointer is elsewhere, the zone is full or has failed, or the write would cross
/// its end; `-EOVERFLOW` and `-ETOOMANYREFS` as for operations; `-EBUSY` while a volume is open on
/// this handle; `-EROFS` on a handle for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_write(
    device: *const ZonalDevice,
    buf: *const c_void,
    count: usize,
    ofst: u64,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let data = unsafe { edge::data(buf, count) }?;
        device.may_change()?;
        device.device.write(device.block(ofst)?, data)?;
        Ok(count as u64)
    })
}

/// Writes whole blocks at the write pointer of the zone that holds byte `ofst`, and returns the
/// byte where they went.
///
/// Errors: those of `zonal_write`, but that `ofst` may be any byte of the zone; `-EINVAL` also for
/// more than a drive takes at once; `-EIO` in a conventional zone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_append(
    device: *const ZonalDevice,
    buf: *const c_void,
    count: usize,
    ofst: u64,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let data = unsafe { edge::data(buf, count) }?;
        device.may_change()?;
        let at = device.device.append(device.zone_at(ofst)?, data)?;
        Ok(device.byte(at))
    })
}

/// Makes everything that returned before this call survive a power cut.
///
/// Errors: `-EIO` and other errors of the drive; data that was not flushed may be lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_flush(device: *const ZonalDevice) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        Ok(device.device.flush()?)
    })
}

/// The name of a model, or its abbreviation if `brief` is not 0.
/// For another number it is `unknown`, or `??`; the function never fails.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_device_model_str(model: c_uint, brief: c_int) -> *const c_char {
    let names = match model {
        ZONAL_HOST_MANAGED => (c"host-managed", c"HM"),
        ZONAL_HOST_AWARE => (c"host-aware", c"HA"),
        ZONAL_NOT_ZONED => (c"not-zoned", c"NZ"),
        _ => UNKNOWN,
    };
    one_of(names, brief)
}

/// The name of a zone type, or its abbreviation if `brief` is not 0.
/// For another number it is `unknown`, or `??`; the function never fails.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_zone_type_str(r#type: c_uint, brief: c_int) -> *const c_char {
    let names = match r#type {
        ZONAL_ZONE_TYPE_CNV => (c"conventional", c"cnv"),
        ZONAL_ZONE_TYPE_SWR => (c"sequential-write-required", c"swr"),
        ZONAL_ZONE_TYPE_SWP => (c"sequential-write-preferred", c"swp"),
        _ => UNKNOWN,
    };
    one_of(names, brief)
}

/// The name of a zone condition, or its abbreviation if `brief` is not 0.
/// For another number it is `unknown`, or `??`; the function never fails.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_zone_cond_str(cond: c_uint, brief: c_int) -> *const c_char {
    let names = match u8::try_from(cond).ok().and_then(ZoneCond::from_code) {
        Some(ZoneCond::NotWp) => (c"not-write-pointer", c"nw"),
        Some(ZoneCond::Empty) => (c"empty", c"em"),
        Some(ZoneCond::ImplicitOpen) => (c"implicit-open", c"oi"),
        Some(ZoneCond::ExplicitOpen) => (c"explicit-open", c"oe"),
        Some(ZoneCond::Closed) => (c"closed", c"cl"),
        Some(ZoneCond::Full) => (c"full", c"fu"),
        Some(ZoneCond::ReadOnly) => (c"read-only", c"ro"),
        Some(ZoneCond::Offline) => (c"offline", c"ol"),
        None => UNKNOWN,
    };
    one_of(names, brief)
}

const UNKNOWN: (&CStr, &CStr) = (c"unknown", c"??");

fn one_of((long, short): (&'static CStr, &'static CStr), brief: c_int) -> *const c_char {
    if brief == 0 { long.as_ptr() } else { short.as_ptr() }
}

/// The bytes of a range: first, and the one after the last.
fn range(ofst: u64, len: u64) -> (u64, u64) {
    (ofst, if len == 0 { u64::MAX } else { ofst.saturating_add(len) })
}

impl ZonalDevice {
    fn of(device: Arc<dyn ZonedDevice>) -> Self {
        Self { device, is_taken: Arc::default() }
    }

    /// The device that the handle stands for.
    pub(crate) fn device(&self) -> &Arc<dyn ZonedDevice> {
        &self.device
    }

    /// Takes it for a volume or for formatting, if neither has it.
    pub(crate) fn take(&self) -> Outcome<Taken> {
        if self.is_taken.swap(true, Ordering::AcqRel) {
            return Err(Self::taken());
        }
        Ok(Taken(Arc::clone(&self.is_taken)))
    }

    /// Refuses a change of the device while a volume relies on its content.
    pub(crate) fn may_change(&self) -> Outcome<()> {
        if self.is_taken.load(Ordering::Acquire) { Err(Self::taken()) } else { Ok(()) }
    }

    fn taken() -> Failure {
        Failure::new(Errno::BUSY, "a volume is open on this handle of the device")
    }

    /// The block that begins at byte `ofst`.
    pub(crate) fn block(&self, ofst: u64) -> Outcome<Lba> {
        let block = self.device.geometry().block_size().bytes();
        if !ofst.is_multiple_of(block) {
            let text = format!("byte {ofst} is not a multiple of the block size, {block}");
            return Err(Failure::new(Errno::INVAL, text));
        }
        Ok(Lba::new(ofst / block))
    }

    /// The byte at which a block begins.
    pub(crate) fn byte(&self, block: Lba) -> u64 {
        block.get() * self.device.geometry().block_size().bytes()
    }

    /// The zone that holds byte `ofst`.
    pub(crate) fn zone_at(&self, ofst: u64) -> Outcome<ZoneId> {
        let geometry = self.device.geometry();
        let block = Lba::new(ofst / geometry.block_size().bytes());
        if block.get() >= geometry.block_count().get() {
            return Err(Failure::new(Errno::INVAL, "the zone is beyond the device's end"));
        }
        Ok(geometry.locate(block).0)
    }

    /// Goes through the zones of a range of bytes until `each` says no.
    fn each_zone(
        &self,
        (from, end): (u64, u64),
        which: Reported,
        mut each: impl FnMut(&Zone) -> bool,
    ) -> Outcome<()> {
        let geometry = self.device.geometry();
        let block = geometry.block_size().bytes();
        let first = Lba::new(from / block);
        if first.get() >= geometry.block_count().get() {
            return Ok(());
        }
        let mut next = geometry.locate(first).0;
        let mut zones = Vec::with_capacity(ZONES);
        while next.get() < geometry.zone_count() {
            zones.clear();
            self.device.report(next, &mut zones, ZONES)?;
            let Some(last) = zones.last() else { break };
            next = last.id.next();
            for zone in &zones {
                let is_beyond = zone.start.get() * block >= end;
                if is_beyond || which.takes(zone) && !each(zone) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
