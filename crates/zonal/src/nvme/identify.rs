//! The structures that Identify returns, 4096 bytes each (Base, section 5.17.2; NVM, section 4.1.5;
//! ZNS, section 4.1.5).
//!
//! The tables name the fields that are used here; the rest is reserved bytes, zero when written and
//! ignored when read.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of every structure that Identify returns.
pub const BYTES: usize = 4096;

/// CNS: which structure (Base, figure 274).
pub mod cns {
    /// Namespace, of the NVM command set and those based on it.
    pub const NAMESPACE: u8 = 0x00;
    /// Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespaces after a given one.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const DESCRIPTORS: u8 = 0x03;
    /// Namespace, the part of one command set.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// Controller, the part of one command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// Active namespaces of one command set.
    pub const COMMAND_SET_NAMESPACES: u8 = 0x07;
    /// Namespace, the part of no command set.
    pub const COMMON_NAMESPACE: u8 = 0x08;
    /// Which command sets the controller has together.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Controller (Base, figure 276).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 4 | vendor | VID, SSVID: of PCI |
/// | 4 | 20 | serial | SN: serial number, ASCII |
/// | 24 | 40 | model | MN: model number, ASCII |
/// | 64 | 8 | firmware | FR: firmware revision, ASCII |
/// | 76 | 1 | multipath | CMIC; bit 1: the subsystem can have several controllers |
/// | 77 | 1 | transfer_max | MDTS: log₂ of the largest transfer in pages; 0: no limit |
/// | 78 | 2 | controller_id | CNTLID |
/// | 80 | 4 | version | VER |
/// | 92 | 4 | events | OAES: asynchronous events that can be asked for |
/// | 96 | 4 | attributes | CTRATT; bit 0: 128-bit host identifiers; bit 6: commands keep alive |
/// | 111 | 1 | kind | CNTRLTYPE: 1 I/O, 2 discovery |
/// | 256 | 2 | admin_commands | OACS |
/// | 258 | 1 | abort_limit | ACL, 0's based |
/// | 259 | 1 | event_limit | AERL, 0's based |
/// | 260 | 1 | firmware_slots | FRMW |
/// | 261 | 1 | log_pages | LPA; bit 1: effects, bit 2: offsets |
/// | 262 | 1 | error_log | ELPE, 0's based |
/// | 266 | 4 | temperature | WCTEMP, CCTEMP: warning and critical, in kelvin |
/// | 320 | 2 | keep_alive | KAS: granularity of the keep alive timer, in 100 ms |
/// | 512 | 1 | sq_entry | SQES: log₂ of a submission entry's bytes, required low, most high |
/// | 513 | 1 | cq_entry | CQES: the same of a completion entry |
/// | 514 | 2 | command_max | MAXCMD: commands at once on a queue |
/// | 516 | 4 | namespaces | NN: largest namespace identifier |
/// | 520 | 2 | commands | ONCS; bit 2: dataset management, bit 3: write zeroes |
/// | 525 | 1 | write_cache | VWC; bit 0: there is one; bits 1-2: flush of all namespaces |
/// | 526 | 4 | atomicity | AWUN, AWUPF, 0's based |
/// | 536 | 4 | sgl | SGLS: which data pointers |
/// | 540 | 4 | namespaces_max | MNAN: namespaces at once |
/// | 768 | 256 | subsystem | SUBNQN |
/// | 1792 | 4 | command_capsule | IOCCSZ: largest command capsule, in 16 bytes |
/// | 1796 | 4 | response_capsule | IORCSZ: largest response capsule, in 16 bytes |
/// | 1800 | 2 | in_capsule_offset | ICDOFF: where data begins behind the entry, in 16 bytes |
/// | 1803 | 1 | descriptors | MSDBD: SGL descriptors of a command |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IdentifyController {
    pub vendor: [U16; 2],
    pub serial: [u8; 20],
    pub model: [u8; 40],
    pub firmware: [u8; 8],
    pub reserved_72: [u8; 4],
    pub multipath: u8,
    pub transfer_max: u8,
    pub controller_id: U16,
    pub version: U32,
    pub reserved_84: [u8; 8],
    pub events: U32,
    pub attributes: U32,
    pub reserved_100: [u8; 11],
    pub kind: u8,
    pub reserved_112: [u8; 144],
    pub admin_commands: U16,
    pub abort_limit: u8,
    pub event_limit: u8,
    pub firmware_slots: u8,
    pub log_pages: u8,
    pub error_log: u8,
    pub reserved_263: [u8; 3],
    pub temperature: [U16; 2],
    pub reserved_270: [u8; 50],
    pub keep_alive: U16,
    pub reserved_322: [u8; 190],
    pub sq_entry: u8,
    pub cq_entry: u8,
    pub command_max: U16,
    pub namespaces: U32,
    pub commands: U16,
    pub reserved_522: [u8; 3],
    pub write_cache: u8,
    pub atomicity: [U16; 2],
    pub reserved_530: [u8; 6],
    pub sgl: U32,
    pub namespaces_max: U32,
    pub reserved_544: [u8; 224],
    pub subsystem: [u8; 256],
    pub reserved_1024: [u8; 768],
    pub command_capsule: U32,
    pub response_capsule: U32,
    pub in_capsule_offset: U16,
    pub reserved_1802: u8,
    pub descriptors: u8,
    pub reserved_1804: [u8; 2292],
}
const _: () = assert!(size_of::<IdentifyController>() == BYTES);
const _: () = assert!(offset_of!(IdentifyController, multipath) == 76);
const _: () = assert!(offset_of!(IdentifyController, events) == 92);
const _: () = assert!(offset_of!(IdentifyController, kind) == 111);
const _: () = assert!(offset_of!(IdentifyController, admin_commands) == 256);
const _: () = assert!(offset_of!(IdentifyController, temperature) == 266);
const _: () = assert!(offset_of!(IdentifyController, keep_alive) == 320);
const _: () = assert!(offset_of!(IdentifyController, sq_entry) == 512);
const _: () = assert!(offset_of!(IdentifyController, write_cache) == 525);
const _: () = assert!(offset_of!(IdentifyController, sgl) == 536);
const _: () = assert!(offset_of!(IdentifyController, subsystem) == 768);
const _: () = assert!(offset_of!(IdentifyController, command_capsule) == 1792);
const _: () = assert!(offset_of!(IdentifyController, descriptors) == 1803);

/// A format of blocks (NVM, figure 98).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 2 | metadata | MS: bytes of metadata |
/// | 2 | 1 | block_shift | LBADS: log₂ of a block's bytes |
/// | 3 | 1 | performance | RP |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct BlockFormat {
    pub metadata: U16,
    pub block_shift: u8,
    pub performance: u8,
}
const _: () = assert!(size_of::<BlockFormat>() == 4);

/// Namespace (NVM, figure 97).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | size | NSZE: blocks |
/// | 8 | 8 | capacity | NCAP: blocks that can be allocated |
/// | 16 | 8 | used | NUSE: blocks that are |
/// | 24 | 1 | features | NSFEAT; bit 1: atomic sizes are valid, bit 4: preferred sizes are valid |
/// | 25 | 1 | formats | NLBAF, 0's based |
/// | 26 | 1 | format | FLBAS: number of the format in use |
/// | 30 | 1 | sharing | NMIC; bit 0: several controllers may have it |
/// | 33 | 1 | deallocation | DLFEAT; 1: deallocated reads as zeroes, bit 3: zeroes deallocate |
/// | 34 | 2 | atomic | NAWUN: blocks that are written at once as others see it, 0's based |
/// | 36 | 2 | atomic_power | NAWUPF: the same as a power cut leaves it, 0's based |
/// | 38 | 2 | atomic_fused | NACWU: the same of Compare and Write, 0's based |
/// | 42 | 2 | atomic_offset | NABO: first atomic boundary; without boundaries 0 |
/// | 64 | 2 | write_unit | NPWG: preferred blocks of a write, 0's based |
/// | 66 | 2 | write_alignment | NPWA: preferred alignment of a write, 0's based |
/// | 68 | 2 | free_unit | NPDG: preferred blocks of a deallocation, 0's based |
/// | 70 | 2 | free_alignment | NPDA: preferred alignment of a deallocation, 0's based |
/// | 72 | 2 | write_optimal | NOWS: optimal blocks of a write, 0's based |
/// | 99 | 1 | attributes | NSATTR; bit 0: write protected |
/// | 104 | 16 | guid | NGUID |
/// | 120 | 8 | eui | EUI64 |
/// | 128 | 256 | block_formats | LBAF |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IdentifyNamespace {
    pub size: U64,
    pub capacity: U64,
    pub used: U64,
    pub features: u8,
    pub formats: u8,
    pub format: u8,
    pub reserved_27: [u8; 3],
    pub sharing: u8,
    pub reserved_31: [u8; 2],
    pub deallocation: u8,
    pub atomic: U16,
    pub atomic_power: U16,
    pub atomic_fused: U16,
    pub reserved_40: [u8; 2],
    pub atomic_offset: U16,
    pub reserved_44: [u8; 20],
    pub write_unit: U16,
    pub write_alignment: U16,
    pub free_unit: U16,
    pub free_alignment: U16,
    pub write_optimal: U16,
    pub reserved_74: [u8; 25],
    pub attributes: u8,
    pub reserved_100: [u8; 4],
    pub guid: [u8; 16],
    pub eui: [u8; 8],
    pub block_formats: [BlockFormat; 64],
    pub reserved_384: [u8; 3712],
}
const _: () = assert!(size_of::<IdentifyNamespace>() == BYTES);
const _: () = assert!(offset_of!(IdentifyNamespace, sharing) == 30);
const _: () = assert!(offset_of!(IdentifyNamespace, deallocation) == 33);
const _: () = assert!(offset_of!(IdentifyNamespace, atomic_power) == 36);
const _: () = assert!(offset_of!(IdentifyNamespace, atomic_offset) == 42);
const _: () = assert!(offset_of!(IdentifyNamespace, write_unit) == 64);
const _: () = assert!(offset_of!(IdentifyNamespace, write_optimal) == 72);
const _: () = assert!(offset_of!(IdentifyNamespace, attributes) == 99);
const _: () = assert!(offset_of!(IdentifyNamespace, block_formats) == 128);

/// Namespace, the common part of all command sets (Base, figure 280).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 1 | 1 | sharing | NMIC |
/// | 8 | 1 | attributes | NSATTR |
/// | 14 | 1 | status | NSTAT; bit 0: ready |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IdentifyCommon {
    pub features: u8,
    pub sharing: u8,
    pub reserved_2: [u8; 6],
    pub attributes: u8,
    pub reserved_9: [u8; 5],
    pub status: u8,
    pub reserved_15: [u8; 4081],
}
const _: () = assert!(size_of::<IdentifyCommon>() == BYTES);
const _: () = assert!(offset_of!(IdentifyCommon, status) == 14);

/// A format of zones, for the block format of the same number (ZNS, figure 48).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | zone_size | ZSZE: blocks |
/// | 8 | 1 | extension | ZDES: zone descriptor extension, in 64 bytes |
/// | 9 | 7 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ZoneFormat {
    pub zone_size: U64,
    pub extension: u8,
    pub reserved: [u8; 7],
}
const _: () = assert!(size_of::<ZoneFormat>() == 16);

/// Namespace, the part of the zoned command set (ZNS, figure 47).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 2 | zone_operation | ZOC; bit 0: variable capacity; bit 1: zone active excursions |
/// | 2 | 2 | zone_features | OZCS; bit 0: reads may cross zones |
/// | 4 | 4 | active_max | MAR, 0's based; all ones: no limit |
/// | 8 | 4 | open_max | MOR, 0's based; all ones: no limit |
/// | 2816 | 1024 | zone_formats | LBAFE |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IdentifyZonedNamespace {
    pub zone_operation: U16,
    pub zone_features: U16,
    pub active_max: U32,
    pub open_max: U32,
    pub reserved_12: [u8; 2804],
    pub zone_formats: [ZoneFormat; 64],
    pub reserved_3840: [u8; 256],
}
const _: () = assert!(size_of::<IdentifyZonedNamespace>() == BYTES);
const _: () = assert!(offset_of!(IdentifyZonedNamespace, zone_formats) == 2816);

/// A limit as MAR and MOR carry it.
pub fn encode_limit(limit: Option<u32>) -> U32 {
    limit.map_or(u32::MAX, |limit| limit.saturating_sub(1)).into()
}

/// The limit that MAR or MOR carry.
pub fn decode_limit(raw: U32) -> Option<u32> {
    raw.get().checked_add(1)
}

/// Controller, the part of the NVM command set (NVM, figure 102).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 1 | 1 | write_zeroes_max | WZSL: log₂ of the largest Write Zeroes in pages; 0: not reported |
/// | 3 | 1 | ranges_max | DMRL: ranges of a Dataset Management; 0: not reported |
/// | 4 | 4 | range_max | DMRSL: blocks of such a range; 0: not reported |
/// | 8 | 8 | deallocate_max | DMSL: blocks of all its ranges; 0: not reported |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IdentifyNvmController {
    pub verify_max: u8,
    pub write_zeroes_max: u8,
    pub reserved_2: u8,
    pub ranges_max: u8,
    pub range_max: U32,
    pub deallocate_max: U64,
    pub reserved_16: [u8; 4080],
}
const _: () = assert!(size_of::<IdentifyNvmController>() == BYTES);
const _: () = assert!(offset_of!(IdentifyNvmController, range_max) == 4);
const _: () = assert!(offset_of!(IdentifyNvmController, deallocate_max) == 8);

/// Controller, the part of the zoned command set (ZNS, figure 50).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | append_max | ZASL: log₂ of the largest append in pages; 0: as for any transfer |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct IdentifyZonedController {
    pub append_max: u8,
    pub reserved: [u8; 4095],
}
const _: () = assert!(size_of::<IdentifyZonedController>() == BYTES);

/// Namespace identification descriptors (Base, figure 277): type, length, two reserved bytes,
/// value.
pub mod descriptor {
    /// NGUID, 16 bytes.
    pub const GUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command set, 1 byte.
    pub const COMMAND_SET: u8 = 4;

    /// Puts one descriptor at the start of `list` and returns the bytes behind it.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn put<'a>(list: &'a mut [u8], kind: u8, value: &[u8]) -> &'a mut [u8] {
        let (head, rest) = list.split_at_mut(4 + value.len());
        head[0] = kind;
        head[1] = u8::try_from(value.len()).expect("a descriptor is short");
        head[4..].copy_from_slice(value);
        rest
    }

    /// The value of the first descriptor of this type.
    pub fn find(list: &[u8], kind: u8) -> Option<&[u8]> {
        let mut rest = list;
        while let [found, length, _, _, values @ ..] = rest {
            let value = values.get(..usize::from(*length)).filter(|value| !value.is_empty())?;
            if *found == kind {
                return Some(value);
            }
            rest = &values[value.len()..];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_none_is_all_ones() {
        for limit in [None, Some(1), Some(14), Some(u32::MAX)] {
            let raw = encode_limit(limit);
            assert_eq!(decode_limit(raw), limit, "{raw:?}");
        }
        assert_eq!(encode_limit(None).get(), u32::MAX);
        assert_eq!(encode_limit(Some(14)).get(), 13);
    }

    #[test]
    fn descriptors_are_found_and_nonsense_ends() {
        let mut list = [0; 64];
        let rest = descriptor::put(&mut list, descriptor::UUID, &[7; 16]);
        descriptor::put(rest, descriptor::COMMAND_SET, &[2]);
        assert_eq!(descriptor::find(&list, descriptor::COMMAND_SET), Some(&[2_u8][..]));
        assert_eq!(descriptor::find(&list, descriptor::UUID), Some(&[7_u8; 16][..]));
        assert_eq!(descriptor::find(&list, descriptor::GUID), None);
        assert_eq!(descriptor::find(&[9, 200, 0, 0, 1], 9), None);
    }
}
