//! The additions of NVMe over Fabrics: Connect, properties in place of registers, discovery (Base,
//! sections 3.1.3, 5.16.1.23 and 6).

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use zonal::nvme::command::DataPointer;
use zonal::nvme::{Nsid, NvmeStatus, Opcode, SubmissionEntry, status};

/// Type of a Fabrics command, in the first byte of the namespace field (Base, figure 381).
pub mod command_type {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
}

/// The well-known NQN of discovery subsystems.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Most bytes of an NQN.
pub const NQN_BYTES_MAX: usize = 223;
/// CNTLID by which a host requests any controller (dynamic controller model).
pub const DYNAMIC_CONTROLLER: u16 = 0xffff;

/// SQ flow control: whether completions carry SQHD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// Connect (Base, figure 384).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// QID: 0 is the admin queue.
    pub queue: u16,
    /// SQSIZE, 0's based on the wire: entries of the queue.
    pub entries: u32,
    /// CATTR bit 2.
    pub flow_control: FlowControl,
    /// KATO: the keep alive timeout; `None` for no timer.
    pub keep_alive_ms: Option<u32>,
}

impl Connect {
    const FLOW_CONTROL_OFF: u32 = 1 << 2;

    /// Decodes the dwords.
    #[expect(clippy::cast_possible_truncation, reason = "halves of dwords")]
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, NvmeStatus> {
        let (dword10, dword11) = (entry.dword(10), entry.dword(11));
        if dword10 as u16 != 0 {
            return Err(status::CONNECT_FORMAT);
        }
        let off = dword11 >> 16 & Self::FLOW_CONTROL_OFF != 0;
        Ok(Self {
            queue: (dword10 >> 16) as u16,
            entries: (dword11 & 0xffff) + 1,
            flow_control: if off { FlowControl::Off } else { FlowControl::On },
            keep_alive_ms: Some(entry.dword(12)).filter(|&ms| ms != 0),
        })
    }

    /// Encodes the command, with its data in the capsule.
    pub fn encode(&self) -> SubmissionEntry {
        let mut entry = fabrics_command(command_type::CONNECT);
        let length = u32::try_from(size_of::<ConnectData>()).expect("1024");
        entry.data = DataPointer::in_capsule(length);
        entry.set_dword(10, u32::from(self.queue) << 16);
        let off = match self.flow_control {
            FlowControl::On => 0,
            FlowControl::Off => Self::FLOW_CONTROL_OFF << 16,
        };
        entry.set_dword(11, (self.entries.saturating_sub(1) & 0xffff) | off);
        entry.set_dword(12, self.keep_alive_ms.unwrap_or(0));
        entry
    }
}

/// Data of Connect (Base, figure 385).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 16 | host_id | HOSTID |
/// | 16 | 2 | controller_id | CNTLID: FFFFh asks for a new controller |
/// | 18 | 238 | reserved | |
/// | 256 | 256 | subsystem | SUBNQN |
/// | 512 | 256 | host | HOSTNQN |
/// | 768 | 256 | reserved_end | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ConnectData {
    pub host_id: [u8; 16],
    pub controller_id: U16,
    pub reserved: [u8; 238],
    pub subsystem: [u8; 256],
    pub host: [u8; 256],
    pub reserved_end: [u8; 256],
}
const _: () = assert!(size_of::<ConnectData>() == 1024);
const _: () = assert!(offset_of!(ConnectData, subsystem) == 256);
const _: () = assert!(offset_of!(ConnectData, host) == 512);

/// The invalid parameter of Connect, in the result of its completion (Base, figure 386).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// At this byte of the command.
    Command(u16),
    /// At this byte of the data.
    Data(u16),
}

impl ConnectFault {
    /// As result of the completion.
    pub const fn encode(self) -> u64 {
        match self {
            Self::Command(at) => at as u64,
            Self::Data(at) => at as u64 | 1 << 16,
        }
    }
}

/// A controller property, which is a register on other transports (Base, figure 35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// CAP: capabilities.
    Capabilities,
    /// VS: version.
    Version,
    /// CC: configuration.
    Configuration,
    /// CSTS: status.
    Status,
    /// CRTO: controller ready timeouts.
    ReadyTimeouts,
}

impl Property {
    /// Every property.
    pub const ALL: [Self; 5] =
        [Self::Capabilities, Self::Version, Self::Configuration, Self::Status, Self::ReadyTimeouts];

    const fn offset(self) -> u32 {
        match self {
            Self::Capabilities => 0x00,
            Self::Version => 0x08,
            Self::Configuration => 0x14,
            Self::Status => 0x1c,
            Self::ReadyTimeouts => 0x68,
        }
    }

    /// ATTRIB: 0 for four bytes, 1 for eight.
    const fn size_code(self) -> u32 {
        match self {
            Self::Capabilities => 1,
            Self::Version | Self::Configuration | Self::Status | Self::ReadyTimeouts => 0,
        }
    }

    /// Decodes the dwords of Property Get and Property Set.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, NvmeStatus> {
        let asked = (entry.dword(10) & 7, entry.dword(11));
        let found = Self::ALL.into_iter().find(|one| (one.size_code(), one.offset()) == asked);
        found.ok_or(status::INVALID_FIELD)
    }

    /// The value that Property Set carries.
    pub const fn value(entry: &SubmissionEntry) -> u64 {
        entry.quadword(12)
    }

    /// Encodes a Property Get.
    pub fn get(self) -> SubmissionEntry {
        let mut entry = fabrics_command(command_type::PROPERTY_GET);
        entry.set_dword(10, self.size_code());
        entry.set_dword(11, self.offset());
        entry
    }

    /// Encodes a Property Set.
    pub fn set(self, value: u64) -> SubmissionEntry {
        let mut entry = fabrics_command(command_type::PROPERTY_SET);
        entry.set_dword(10, self.size_code());
        entry.set_dword(11, self.offset());
        entry.set_quadword(12, value);
        entry
    }
}

fn fabrics_command(kind: u8) -> SubmissionEntry {
    SubmissionEntry::new(Opcode::FABRICS, Nsid::new(kind.into()))
}

/// Header of the discovery log page (Base, figure 264).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | generation | GENCTR: counts changes |
/// | 8 | 8 | records | NUMREC: entries that follow |
/// | 16 | 2 | format | RECFMT: 0 |
/// | 18 | 1006 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct DiscoveryHeader {
    pub generation: U64,
    pub records: U64,
    pub format: U16,
    pub reserved: [u8; 1006],
}
const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);

/// Entry of the discovery log page (Base, figure 265).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | transport | TRTYPE: 3 is TCP |
/// | 1 | 1 | address_family | ADRFAM: 1 IPv4, 2 IPv6 |
/// | 2 | 1 | subsystem_kind | SUBTYPE: 2 I/O, 3 the discovery subsystem itself |
/// | 3 | 1 | requirements | TREQ; bit 2: submission queue flow control can be off |
/// | 4 | 2 | port | PORTID |
/// | 6 | 2 | controller_id | CNTLID: FFFFh, new controllers |
/// | 8 | 2 | admin_entries | ASQSZ: most entries of the admin queue |
/// | 32 | 32 | service | TRSVCID: TCP port, ASCII |
/// | 256 | 256 | subsystem | SUBNQN |
/// | 512 | 256 | address | TRADDR: ASCII |
/// | 768 | 256 | transport_specific | TSAS; first byte: 0, no TLS |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct DiscoveryEntry {
    pub transport: u8,
    pub address_family: u8,
    pub subsystem_kind: u8,
    pub requirements: u8,
    pub port: U16,
    pub controller_id: U16,
    pub admin_entries: U16,
    pub reserved_10: [u8; 22],
    pub service: [u8; 32],
    pub reserved_64: [u8; 192],
    pub subsystem: [u8; 256],
    pub address: [u8; 256],
    pub transport_specific: [u8; 256],
}
const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);
const _: () = assert!(offset_of!(DiscoveryEntry, service) == 32);
const _: () = assert!(offset_of!(DiscoveryEntry, address) == 512);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_round_trips() {
        let connect = Connect {
            queue: 3,
            entries: 128,
            flow_control: FlowControl::Off,
            keep_alive_ms: Some(5000),
        };
        let entry = connect.encode();
        let dwords = [entry.nsid.get(), entry.dword(10), entry.dword(11), entry.dword(12)];
        assert_eq!(dwords, [1, 3 << 16, 127 | 4 << 16, 5000]);
        assert_eq!(Connect::decode(&entry), Ok(connect));
    }

    #[test]
    fn properties_are_named_by_offset_and_size() {
        for property in Property::ALL {
            assert_eq!(Property::decode(&property.get()), Ok(property));
            let set = property.set(0x1_2345_6789);
            assert_eq!(Property::decode(&set), Ok(property));
            assert_eq!(Property::value(&set), 0x1_2345_6789);
        }
        let mut wrong = Property::Capabilities.get();
        wrong.set_dword(10, 0);
        assert_eq!(Property::decode(&wrong), Err(status::INVALID_FIELD));
    }
}
