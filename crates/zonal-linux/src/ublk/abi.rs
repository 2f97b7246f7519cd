//! The interface of the kernel's ublk driver: `include/uapi/linux/ublk_cmd.h` of Linux 7.3.
//!
//! Commands go through `io_uring`; numbers are in the machine's byte order, sectors of 512 bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Log₂ of the bytes of a sector.
pub(super) const SECTOR_SHIFT: u32 = 9;

/// Direction bits of an ioctl number, `include/uapi/asm-generic/ioctl.h`.
const READ: u32 = 2 << 30;
const READ_WRITE: u32 = 3 << 30;

/// `_IOC('u', number)` of a command with a body of `bytes` bytes.
const fn command(direction: u32, number: u32, bytes: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a body of a few bytes")]
    let size = bytes as u32;
    direction | size << 16 | (b'u' as u32) << 8 | number
}

const fn control(direction: u32, number: u32) -> u32 {
    command(direction, number, size_of::<ControlCommand>())
}

const fn io(number: u32) -> u32 {
    command(READ_WRITE, number, size_of::<IoCommand>())
}

/// `UBLK_U_CMD_*`.
pub(super) const GET_DEV_INFO: u32 = control(READ, 0x02);
pub(super) const ADD_DEV: u32 = control(READ_WRITE, 0x04);
pub(super) const DEL_DEV: u32 = control(READ_WRITE, 0x05);
pub(super) const START_DEV: u32 = control(READ_WRITE, 0x06);
pub(super) const STOP_DEV: u32 = control(READ_WRITE, 0x07);
pub(super) const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
pub(super) const GET_PARAMS: u32 = control(READ, 0x09);
pub(super) const START_USER_RECOVERY: u32 = control(READ_WRITE, 0x10);
pub(super) const END_USER_RECOVERY: u32 = control(READ_WRITE, 0x11);
pub(super) const UPDATE_SIZE: u32 = control(READ_WRITE, 0x15);

/// `UBLK_U_IO_*`.
pub(super) const FETCH: u32 = io(0x20);
pub(super) const COMMIT_AND_FETCH: u32 = io(0x21);

/// `UBLK_F_*`: features of a device and of the driver.
pub(super) mod feature {
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    /// The kernel reissues requests that the last server had not completed.
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// The server copies data by reading and writing the character device.
    pub(crate) const USER_COPY: u64 = 1 << 7;
    pub(crate) const ZONED: u64 = 1 << 8;
    /// A device that is served can change its size.
    pub(crate) const UPDATE_SIZE: u64 = 1 << 10;
    /// Each tag may have a thread of its own, not only each queue.
    pub(crate) const PER_IO_DAEMON: u64 = 1 << 13;
}

/// `UBLK_S_DEV_*`: state of a device.
pub(super) mod state {
    pub(crate) const DEAD: u16 = 0;
    pub(crate) const LIVE: u16 = 1;
    pub(crate) const QUIESCED: u16 = 2;
    pub(crate) const FAIL_IO: u16 = 3;
}

/// `UBLK_IO_OP_*`: the low byte of a descriptor's first word.
pub(super) mod op {
    pub(crate) const READ: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const DISCARD: u8 = 3;
    pub(crate) const WRITE_ZEROES: u8 = 5;
    pub(crate) const ZONE_OPEN: u8 = 10;
    pub(crate) const ZONE_CLOSE: u8 = 11;
    pub(crate) const ZONE_FINISH: u8 = 12;
    pub(crate) const ZONE_APPEND: u8 = 13;
    pub(crate) const ZONE_RESET_ALL: u8 = 14;
    pub(crate) const ZONE_RESET: u8 = 15;
    pub(crate) const REPORT_ZONES: u8 = 18;
}

/// `UBLK_IO_F_FUA`: durable when it completes.
pub(super) const FUA: u32 = 1 << 13;

/// `UBLK_IO_F_NOUNMAP`: zeroes that keep their space.
pub(super) const NOUNMAP: u32 = 1 << 15;

/// `UBLK_MAX_QUEUE_DEPTH`.
pub(super) const DEPTH_MAX: u16 = 4096;

/// Where the descriptors of a queue are mapped: at multiples of this, `UBLKSRV_CMD_BUF_OFFSET`
/// being 0.
pub(super) const DESCRIPTORS_STRIDE: u64 =
    (DEPTH_MAX as u64 * size_of::<Descriptor>() as u64).next_multiple_of(4096);

/// Where the data of a request is in the character device: `UBLKSRV_IO_BUF_OFFSET`,
/// `UBLK_TAG_OFF`, `UBLK_QID_OFF`.
pub(super) const fn data_offset(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + ((queue as u64) << 41 | (tag as u64) << 25)
}

/// Largest data of a request: below 2²⁵ bytes by [`data_offset`].
pub(super) const IO_BYTES_MAX: u32 = 1 << 20;

/// `struct ublksrv_ctrl_cmd`: a command to `/dev/ublk-control`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) id: u32,
    /// `0xffff`: for no queue.
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) address: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

const _: () = assert!(size_of::<ControlCommand>() == 32);

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) descriptor_size: u16,
    pub(super) io_bytes_max: u32,
    pub(super) id: u32,
    pub(super) server: i32,
    pub(super) pad: u32,
    pub(super) flags: u64,
    /// The driver keeps them for servers: [`super::shape::mark`] of the drive.
    pub(super) server_flags: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

const _: () = assert!(size_of::<DeviceInfo>() == 64);
const _: () = assert!(std::mem::offset_of!(DeviceInfo, flags) == 24);

/// `UBLK_PARAM_TYPE_BASIC`, `UBLK_PARAM_TYPE_DISCARD`, `UBLK_PARAM_TYPE_ZONED`.
pub(super) const PARAMS_BASIC: u32 = 1;
pub(super) const PARAMS_DISCARD: u32 = 1 << 1;
pub(super) const PARAMS_ZONED: u32 = 1 << 3;

/// `UBLK_ATTR_READ_ONLY`, `UBLK_ATTR_VOLATILE_CACHE`, `UBLK_ATTR_FUA`.
pub(super) const ATTR_READ_ONLY: u32 = 1;
pub(super) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(super) const ATTR_FUA: u32 = 1 << 3;

/// The start of `struct ublk_params`, which is all that disks and zoned devices need.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Params {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) basic: BasicParams,
    pub(super) discard: DiscardParams,
    /// `struct ublk_param_devt`: filled in by the driver.
    pub(super) numbers: [u32; 4],
    pub(super) zoned: ZonedParams,
    pub(super) pad: u32,
}

const _: () = assert!(size_of::<Params>() == 112);
const _: () = assert!(std::mem::offset_of!(Params, zoned) == 76);

/// `struct ublk_param_basic`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct BasicParams {
    pub(super) attributes: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) io_sectors_max: u32,
    pub(super) zone_sectors: u32,
    pub(super) device_sectors: u64,
    pub(super) virt_boundary_mask: u64,
}

const _: () = assert!(size_of::<BasicParams>() == 32);

/// `struct ublk_param_discard`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct DiscardParams {
    pub(super) alignment: u32,
    pub(super) granularity: u32,
    pub(super) sectors_max: u32,
    pub(super) zeroes_sectors_max: u32,
    pub(super) segments_max: u16,
    pub(super) reserved: u16,
}

const _: () = assert!(size_of::<DiscardParams>() == 20);

/// `struct ublk_param_zoned`; limits of 0 are none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct ZonedParams {
    pub(super) max_open: u32,
    pub(super) max_active: u32,
    pub(super) append_sectors_max: u32,
    pub(super) reserved: [u8; 20],
}

const _: () = assert!(size_of::<ZonedParams>() == 32);

/// `struct ublksrv_io_desc`: a request, in the memory that the driver shares.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Operation in the low byte, flags above.
    pub(super) op_flags: u32,
    /// Sectors; for a report zones.
    pub(super) count: u32,
    pub(super) sector: u64,
    pub(super) address: u64,
}

const _: () = assert!(size_of::<Descriptor>() == 24);

impl Descriptor {
    /// One of [`op`], or another.
    pub(super) fn operation(self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "the low byte")]
        let operation = self.op_flags as u8;
        operation
    }
}

/// `struct ublksrv_io_cmd`: completes a request, and fetches the next.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    /// Bytes, or an errno below 0.
    pub(super) result: i32,
    /// Of an append: the sector where it went. Otherwise 0.
    pub(super) append_sector: u64,
}

const _: () = assert!(size_of::<IoCommand>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ublk_command_numbers_match_header() {
        // As a C compiler prints UBLK_U_CMD_* and UBLK_U_IO_*.
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(END_USER_RECOVERY, 0xc020_7511);
        assert_eq!(UPDATE_SIZE, 0xc020_7515);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(DESCRIPTORS_STRIDE, 98_304);
        assert_eq!(data_offset(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
    }
}
