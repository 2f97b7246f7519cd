//! Structures and numbers of the interface. The ones of devices equal libzbd's, byte for byte,
//! under names of our own.

use std::ffi::{c_char, c_int, c_uint, c_void};

use zonal::{Geometry, Zone, ZoneCond, ZoneKind};

/// Bytes of the name of a drive's maker.
pub const ZONAL_VENDOR_ID_LENGTH: usize = 32;

/// Model: every zone but conventional ones takes writes at its write pointer only.
pub const ZONAL_HOST_MANAGED: c_uint = 1;
/// Model: zones like to be written at their write pointer, and take writes anywhere.
pub const ZONAL_HOST_AWARE: c_uint = 2;
/// Model: every zone is conventional.
pub const ZONAL_NOT_ZONED: c_uint = 3;

/// Zone type: no write pointer, written anywhere.
pub const ZONAL_ZONE_TYPE_CNV: c_uint = 1;
/// Zone type: written at the write pointer only.
pub const ZONAL_ZONE_TYPE_SWR: c_uint = 2;
/// Zone type: written at the write pointer by preference, and anywhere.
pub const ZONAL_ZONE_TYPE_SWP: c_uint = 3;

/// Flag of a zone: it was written elsewhere than at its write pointer since the last reset.
pub const ZONAL_ZONE_NON_SEQ_RESOURCES: u32 = 2;

/// Zone condition: no write pointer.
pub const ZONAL_ZONE_COND_NOT_WP: c_uint = 0x0;
/// Zone condition: nothing written.
pub const ZONAL_ZONE_COND_EMPTY: c_uint = 0x1;
/// Zone condition: opened by a write.
pub const ZONAL_ZONE_COND_IMP_OPEN: c_uint = 0x2;
/// Zone condition: opened by an operation.
pub const ZONAL_ZONE_COND_EXP_OPEN: c_uint = 0x3;
/// Zone condition: partly written, active, not open.
pub const ZONAL_ZONE_COND_CLOSED: c_uint = 0x4;
/// Zone condition: failed, readable.
pub const ZONAL_ZONE_COND_READONLY: c_uint = 0xd;
/// Zone condition: written to its end, or finished.
pub const ZONAL_ZONE_COND_FULL: c_uint = 0xe;
/// Zone condition: failed, not readable.
pub const ZONAL_ZONE_COND_OFFLINE: c_uint = 0xf;

/// Report every zone.
pub const ZONAL_RO_ALL: c_uint = 0x00;
/// Report empty zones.
pub const ZONAL_RO_EMPTY: c_uint = 0x01;
/// Report implicitly open zones.
pub const ZONAL_RO_IMP_OPEN: c_uint = 0x02;
/// Report explicitly open zones.
pub const ZONAL_RO_EXP_OPEN: c_uint = 0x03;
/// Report closed zones.
pub const ZONAL_RO_CLOSED: c_uint = 0x04;
/// Report full zones.
pub const ZONAL_RO_FULL: c_uint = 0x05;
/// Report read-only zones.
pub const ZONAL_RO_RDONLY: c_uint = 0x06;
/// Report offline zones.
pub const ZONAL_RO_OFFLINE: c_uint = 0x07;
/// Report zones whose reset is recommended: none, because devices here recommend no resets.
pub const ZONAL_RO_RWP_RECOMMENDED: c_uint = 0x10;
/// Report zones that were written elsewhere than at their write pointer.
pub const ZONAL_RO_NON_SEQ: c_uint = 0x11;
/// Report conventional zones.
pub const ZONAL_RO_NOT_WP: c_uint = 0x3f;

/// Operation: empty zones.
pub const ZONAL_OP_RESET: c_uint = 0x01;
/// Operation: open zones.
pub const ZONAL_OP_OPEN: c_uint = 0x02;
/// Operation: close open zones.
pub const ZONAL_OP_CLOSE: c_uint = 0x03;
/// Operation: make zones full.
pub const ZONAL_OP_FINISH: c_uint = 0x04;

/// Request of a batch: read.
pub const ZONAL_IO_READ: u32 = 1;
/// Request of a batch: write at the write pointer.
pub const ZONAL_IO_WRITE: u32 = 2;
/// Request of a batch: append to a zone.
pub const ZONAL_IO_APPEND: u32 = 3;
/// Request of a batch: flush.
pub const ZONAL_IO_FLUSH: u32 = 4;

/// File system: Furrow, which has everything that POSIX asks for.
pub const ZONAL_FURROW: u32 = 0;
/// File system: zonefs, where every zone is a file.
pub const ZONAL_ZONEFS: u32 = 1;

/// Formatting: destroy the content of the device.
pub const ZONAL_MKFS_FORCE: u32 = 1;
/// Formatting: each run of neighbouring conventional zones is one file of zonefs.
pub const ZONAL_MKFS_AGGREGATE: u32 = 2;

/// Renaming: fail if something stands at the target.
pub const ZONAL_RENAME_NOREPLACE: c_uint = 1;
/// Renaming: swap the two.
pub const ZONAL_RENAME_EXCHANGE: c_uint = 2;
/// Renaming: leave a whiteout in the source's place, as overlay file systems do.
pub const ZONAL_RENAME_WHITEOUT: c_uint = 4;

/// A symbolic link at the end of the path is meant itself.
pub const ZONAL_NOFOLLOW: c_uint = 0x100;
/// Fail if the extended attribute exists.
pub const ZONAL_XATTR_CREATE: c_uint = 1;
/// Fail if the extended attribute does not exist.
pub const ZONAL_XATTR_REPLACE: c_uint = 2;

/// In place of nanoseconds: now, whatever the seconds are. The number is that of `UTIME_NOW`.
pub const ZONAL_UTIME_NOW: u32 = 0x3fff_ffff;
/// In place of nanoseconds: the time stays, whatever the seconds are. The number is that of
/// `UTIME_OMIT`.
pub const ZONAL_UTIME_OMIT: u32 = 0x3fff_fffe;

/// Allocating: the size of the file stays.
pub const ZONAL_FALLOC_KEEP_SIZE: c_int = 0x01;
/// Allocating: make a hole instead.
pub const ZONAL_FALLOC_PUNCH_HOLE: c_int = 0x02;
/// Allocating: make the range read as zeroes.
pub const ZONAL_FALLOC_ZERO_RANGE: c_int = 0x10;

/// How long data will live: nothing is known.
pub const ZONAL_LIFETIME_NONE: c_uint = 0;
/// How long data will live: it is deleted soon, like a write-ahead log.
pub const ZONAL_LIFETIME_SHORT: c_uint = 2;
/// How long data will live: longer than short.
pub const ZONAL_LIFETIME_MEDIUM: c_uint = 3;
/// How long data will live: longer than medium.
pub const ZONAL_LIFETIME_LONG: c_uint = 4;
/// How long data will live: like the lowest level of an LSM tree.
pub const ZONAL_LIFETIME_EXTREME: c_uint = 5;

/// A description of a device: 128 bytes, as libzbd's `zbd_info`.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct ZonalInfo {
    /// The maker's name, ending in a zero byte.
    pub vendor_id: [c_char; ZONAL_VENDOR_ID_LENGTH],
    /// Sectors of 512 bytes.
    pub nr_sectors: u64,
    /// Logical blocks.
    pub nr_lblocks: u64,
    /// Physical blocks.
    pub nr_pblocks: u64,
    /// Bytes from one zone's start to the next.
    pub zone_size: u64,
    /// The same in sectors; the largest number there is if it is more.
    pub zone_sectors: u32,
    /// Bytes of a logical block.
    pub lblock_size: u32,
    /// Bytes of a physical block.
    pub pblock_size: u32,
    /// Zones.
    pub nr_zones: u32,
    /// Zones that can be open at once; 0: no limit.
    pub max_nr_open_zones: u32,
    /// Zones that can be active at once; 0: no limit.
    pub max_nr_active_zones: u32,
    /// One of the models.
    pub model: u32,
    /// Zeroes.
    pub reserved: [u8; 36],
}

/// A zone: 64 bytes, as libzbd's `zbd_zone`. Places and lengths are in bytes.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct ZonalZone {
    /// The start of the zone.
    pub start: u64,
    /// From its start to the next zone's.
    pub len: u64,
    /// Writable bytes of the zone.
    pub capacity: u64,
    /// The write pointer; `start + capacity` of a full zone, `UINT64_MAX` where there is none.
    pub wp: u64,
    /// 0, or `ZONAL_ZONE_NON_SEQ_RESOURCES`.
    pub flags: u32,
    /// One of the types.
    pub r#type: u32,
    /// One of the conditions.
    pub cond: u32,
    /// Zeroes.
    pub reserved: [u8; 20],
}

const _: () = assert!(size_of::<ZonalInfo>() == 128 && size_of::<ZonalZone>() == 64);

impl ZonalInfo {
    pub(crate) fn of(geometry: &Geometry) -> Self {
        let (block, blocks) = (geometry.block_size().bytes(), geometry.block_count());
        let zone_size = geometry.bytes(geometry.zone_size()).get();
        let block_size = u32::try_from(block).expect("512 or 4096");
        let mut vendor_id = [0; ZONAL_VENDOR_ID_LENGTH];
        for (to, from) in vendor_id.iter_mut().zip(b"zonal") {
            *to = from.cast_signed() as c_char;
        }
        Self {
            vendor_id,
            nr_sectors: geometry.bytes(blocks).get() / 512,
            nr_lblocks: blocks.get(),
            nr_pblocks: blocks.get(),
            zone_size,
            zone_sectors: u32::try_from(zone_size / 512).unwrap_or(u32::MAX),
            lblock_size: block_size,
            pblock_size: block_size,
            nr_zones: geometry.zone_count(),
            max_nr_open_zones: geometry.max_open().unwrap_or(0),
            max_nr_active_zones: geometry.max_active().unwrap_or(0),
            model: match geometry.sequential_kind() {
                _ if geometry.sequential_count() == 0 => ZONAL_NOT_ZONED,
                ZoneKind::SequentialPreferred => ZONAL_HOST_AWARE,
                ZoneKind::SequentialRequired | ZoneKind::Conventional => ZONAL_HOST_MANAGED,
            },
            reserved: [0; 36],
        }
    }
}

impl ZonalZone {
    pub(crate) fn of(zone: &Zone, geometry: &Geometry) -> Self {
        let block = geometry.block_size().bytes();
        Self {
            start: zone.start.get() * block,
            len: zone.size.get() * block,
            capacity: zone.capacity.get() * block,
            wp: zone.wp.map_or(u64::MAX, |wp| wp.get() * block),
            flags: if zone.non_sequential { ZONAL_ZONE_NON_SEQ_RESOURCES } else { 0 },
            r#type: match zone.kind {
                ZoneKind::Conventional => ZONAL_ZONE_TYPE_CNV,
                ZoneKind::SequentialRequired => ZONAL_ZONE_TYPE_SWR,
                ZoneKind::SequentialPreferred => ZONAL_ZONE_TYPE_SWP,
            },
            cond: zone.cond.code().into(),
            reserved: [0; 20],
        }
    }
}

/// The condition that a report option stands for; `None` for all.
pub(crate) fn reported(option: c_uint) -> Option<Reported> {
    Some(match option {
        ZONAL_RO_ALL => Reported::All,
        ZONAL_RO_EMPTY => Reported::Cond(ZoneCond::Empty),
        ZONAL_RO_IMP_OPEN => Reported::Cond(ZoneCond::ImplicitOpen),
        ZONAL_RO_EXP_OPEN => Reported::Cond(ZoneCond::ExplicitOpen),
        ZONAL_RO_CLOSED => Reported::Cond(ZoneCond::Closed),
        ZONAL_RO_FULL => Reported::Cond(ZoneCond::Full),
        ZONAL_RO_RDONLY => Reported::Cond(ZoneCond::ReadOnly),
        ZONAL_RO_OFFLINE => Reported::Cond(ZoneCond::Offline),
        ZONAL_RO_NOT_WP => Reported::Cond(ZoneCond::NotWp),
        ZONAL_RO_NON_SEQ => Reported::NonSequential,
        ZONAL_RO_RWP_RECOMMENDED => Reported::Nothing,
        _ => return None,
    })
}

/// Which zones a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    All,
    Cond(ZoneCond),
    NonSequential,
    Nothing,
}

impl Reported {
    pub(crate) fn takes(self, zone: &Zone) -> bool {
        match self {
            Self::All => true,
            Self::Cond(cond) => zone.cond == cond,
            Self::NonSequential => zone.non_sequential,
            Self::Nothing => false,
        }
    }
}

/// A request of a batch. Fields that its `op` does not use are ignored.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalIo {
    /// One of `ZONAL_IO_`.
    pub op: u32,
    /// None are defined: 0.
    pub flags: u32,
    /// Byte of the device: where to read or write, or any byte of the zone to append to.
    pub ofst: u64,
    /// Bytes to read or write: whole blocks.
    pub count: usize,
    /// The buffer for a read.
    pub buf: *mut c_void,
    /// The data of a write or an append.
    pub data: *const c_void,
    /// How it ended, set by `zonal_submit`: the bytes read or written, for an append the byte of
    /// the device where the data went, for a flush 0, or a negative errno.
    pub result: i64,
}

/// How to make a file system. All zeroes mean Furrow with the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalMkfsOptions {
    /// `ZONAL_FURROW` or `ZONAL_ZONEFS`.
    pub fs: u32,
    /// Any of `ZONAL_MKFS_`.
    pub flags: u32,
    /// Its name in UTF-8: at most 64 bytes for Furrow, 63 for zonefs; NULL: none.
    pub label: *const c_char,
    /// Its identity; zeroes: a random one.
    pub uuid: [u8; 16],
    /// Furrow: percent of the data zones kept back for reclaim, at most 50; 0: 7.
    pub reserve_percent: u32,
    /// zonefs: permission bits of the files; 0: 0640.
    pub perm: u32,
    /// Zeroes.
    pub reserved: [u64; 5],
}

/// A point in time.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalTime {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds, `ZONAL_UTIME_NOW` or `ZONAL_UTIME_OMIT`.
    pub nsec: u32,
}

/// The times of a file that can be set.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalTimes {
    /// Last access.
    pub atime: ZonalTime,
    /// Last change of the content.
    pub mtime: ZonalTime,
}

/// Attributes of a file.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalStat {
    /// Its number, which no other file ever gets.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access: seconds since 1970, and nanoseconds.
    pub atime_sec: i64,
    /// Last change of the content.
    pub mtime_sec: i64,
    /// Last change of the inode.
    pub ctime_sec: i64,
    /// Nanoseconds of the last access.
    pub atime_nsec: u32,
    /// Nanoseconds of the last change of the content.
    pub mtime_nsec: u32,
    /// Nanoseconds of the last change of the inode.
    pub ctime_nsec: u32,
    /// Type and permission bits, as `st_mode` has them.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device nodes.
    pub rdev: u32,
}

/// How to open a volume. With all zeroes this is `zonal_volume_open`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalVolumeOptions {
    /// Bytes of memory for cached metadata of Furrow, about; 0: 256 MiB. With less than 64 MiB it
    /// is slow.
    pub memory: u64,
    /// Zeroes.
    pub reserved: [u64; 7],
}

/// Space of a volume.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ZonalStatvfs {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks that files can fill.
    pub blocks: u64,
    /// Blocks not filled.
    pub blocks_free: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub inodes_free: u64,
    /// Bytes of the longest name.
    pub name_max: u64,
}

/// An entry of a directory.
#[repr(C)]
pub struct ZonalEntry {
    /// Its name, valid during the call.
    pub name: *const c_char,
    /// The number of its inode.
    pub ino: u64,
    /// The type of the inode, as `d_type` has it: `DT_REG` and its like.
    pub r#type: c_uint,
}

/// The function that `zonal_list` calls for each entry, with the context that the caller gave.
/// Anything but 0 ends the listing.
pub type ZonalEach =
    Option<unsafe extern "C" fn(context: *mut c_void, entry: *const ZonalEntry) -> c_int>;
