//! Sense data: why a drive did not perform a command.
//!
//! SPC-5, "Sense data": the fixed format (response codes 70h and 71h) and the descriptor format
//! (72h and 73h); SAT-5, "ATA Status Return sense data descriptor". [`Meaning`] is the one table
//! from sense key, ASC and ASCQ; SPC-5 and ZBC-2 define the numbers.

use super::number::padded;

/// Why a drive did not perform a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// SENSE KEY.
    pub key: u8,
    /// ADDITIONAL SENSE CODE.
    pub asc: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub ascq: u8,
    /// The command that failed.
    pub cause: Cause,
    /// The registers of an ATA disk, of the descriptor format.
    pub ata: Option<AtaRegisters>,
}

/// The command that sense data is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The one that it answers.
    Current,
    /// An earlier one, such as a write from the cache. This one was not performed.
    Earlier,
}

/// Registers after an ATA command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtaRegisters {
    /// ERROR.
    pub error: u8,
    /// STATUS.
    pub status: u8,
}

/// Numbers of sense keys.
pub mod key {
    /// RECOVERED ERROR: the command was performed.
    pub const RECOVERED: u8 = 0x1;
    /// NOT READY.
    pub const NOT_READY: u8 = 0x2;
    /// MEDIUM ERROR.
    pub const MEDIUM: u8 = 0x3;
    /// HARDWARE ERROR.
    pub const HARDWARE: u8 = 0x4;
    /// ILLEGAL REQUEST.
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    /// UNIT ATTENTION: the command was not performed, and can be repeated.
    pub const UNIT_ATTENTION: u8 = 0x6;
    /// DATA PROTECT.
    pub const DATA_PROTECT: u8 = 0x7;
    /// ABORTED COMMAND.
    pub const ABORTED: u8 = 0xb;
}

/// Why a drive did not perform a command, as far as a host acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It did perform the command.
    Performed,
    /// It becomes ready by itself: LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    BecomingReady,
    /// It waits for a command that starts it: LOGICAL UNIT NOT READY, INITIALIZING COMMAND
    /// REQUIRED.
    NeedsStart,
    /// It is not ready.
    NotReady,
    /// The medium failed.
    Medium,
    /// The drive failed.
    Hardware,
    /// INVALID COMMAND OPERATION CODE.
    InvalidOpcode,
    /// INVALID FIELD IN CDB, which is also the answer to a write to a Full zone.
    InvalidField,
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    OutOfRange,
    /// UNALIGNED WRITE COMMAND: not at the write pointer, or no whole physical blocks.
    UnalignedWrite,
    /// WRITE BOUNDARY VIOLATION.
    WriteBoundary,
    /// ATTEMPT TO READ INVALID DATA: at or beyond the write pointer.
    ReadInvalidData,
    /// READ BOUNDARY VIOLATION.
    ReadBoundary,
    /// ATTEMPT TO ACCESS GAP ZONE.
    GapZone,
    /// Another ILLEGAL REQUEST.
    IllegalRequest,
    /// The drive changed, or was reset, before the command.
    UnitAttention,
    /// ZONE IS READ ONLY.
    ZoneReadOnly,
    /// ZONE IS OFFLINE.
    ZoneOffline,
    /// ZONE IS INACTIVE.
    ZoneInactive,
    /// INSUFFICIENT ZONE RESOURCES: too many open zones.
    ZoneResources,
    /// Another DATA PROTECT: the drive takes no writes.
    WriteProtected,
    /// ABORTED COMMAND.
    Aborted,
    /// Anything else.
    Other,
}

/// Descriptor type of the registers of an ATA disk.
const ATA_STATUS_RETURN: u8 = 0x09;

impl Sense {
    /// Bytes that a host makes room for: the longest sense data of a drive (SPC-5).
    pub const BYTES_MAX: usize = 252;

    /// Sense data of the command that it answers.
    pub const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, cause: Cause::Current, ata: None }
    }

    /// Decodes sense data; `None` if there is none, or its format is unknown.
    pub fn decode(data: &[u8]) -> Option<Self> {
        let code = data.first()? & 0x7f;
        let cause = match code {
            0x70 | 0x72 => Cause::Current,
            0x71 | 0x73 => Cause::Earlier,
            _ => return None,
        };
        if code < 0x72 {
            let fixed: [u8; 18] = padded(data);
            let (key, asc, ascq) = (fixed[2] & 0xf, fixed[12], fixed[13]);
            return Some(Self { key, asc, ascq, cause, ata: None });
        }
        let head: [u8; 8] = padded(data);
        let len = usize::from(head[7]);
        let mut rest = data.get(8..).unwrap_or_default();
        rest = &rest[..rest.len().min(len)];
        let mut ata = None;
        // Each turn takes two bytes at least.
        while let [kind, len, ..] = *rest {
            let end = rest.len().min(usize::from(len) + 2);
            let (descriptor, behind) = rest.split_at(end);
            if kind == ATA_STATUS_RETURN {
                let registers: [u8; 14] = padded(descriptor);
                ata = Some(AtaRegisters { error: registers[3], status: registers[13] });
            }
            rest = behind;
        }
        Some(Self { key: head[1] & 0xf, asc: head[2], ascq: head[3], cause, ata })
    }

    /// Encodes sense data in the fixed format, which has no registers of ATA.
    pub fn encode_fixed(self) -> [u8; 18] {
        let mut data = [0; 18];
        data[0] = match self.cause {
            Cause::Current => 0x70,
            Cause::Earlier => 0x71,
        };
        // ADDITIONAL SENSE LENGTH: the bytes behind it.
        (data[2], data[7], data[12], data[13]) = (self.key, 10, self.asc, self.ascq);
        data
    }

    /// Encodes sense data in the descriptor format.
    pub fn encode_descriptors(self) -> Vec<u8> {
        let code = match self.cause {
            Cause::Current => 0x72,
            Cause::Earlier => 0x73,
        };
        let mut data = vec![code, self.key, self.asc, self.ascq, 0, 0, 0, 0];
        if let Some(AtaRegisters { error, status }) = self.ata {
            data[7] = 14;
            data.extend([ATA_STATUS_RETURN, 12, 0, error, 0, 0, 0, 0, 0, 0, 0, 0, 0, status]);
        }
        data
    }

    /// Its meaning.
    pub const fn meaning(self) -> Meaning {
        match (self.key, self.asc, self.ascq) {
            // With CK_COND an ATA command that succeeded answers with its registers.
            (0 | key::RECOVERED, _, _) => Meaning::Performed,
            (key::NOT_READY, 0x04, 0x01) => Meaning::BecomingReady,
            (key::NOT_READY, 0x04, 0x02) => Meaning::NeedsStart,
            (key::NOT_READY, _, _) => Meaning::NotReady,
            (key::MEDIUM, _, _) => Meaning::Medium,
            (key::HARDWARE, _, _) => Meaning::Hardware,
            (key::ILLEGAL_REQUEST, 0x20, 0x00) => Meaning::InvalidOpcode,
            (key::ILLEGAL_REQUEST, 0x24, 0x00) => Meaning::InvalidField,
            (key::ILLEGAL_REQUEST, 0x21, 0x00) => Meaning::OutOfRange,
            (key::ILLEGAL_REQUEST, 0x21, 0x04) => Meaning::UnalignedWrite,
            (key::ILLEGAL_REQUEST, 0x21, 0x05) => Meaning::WriteBoundary,
            (key::ILLEGAL_REQUEST, 0x21, 0x06) => Meaning::ReadInvalidData,
            (key::ILLEGAL_REQUEST, 0x21, 0x07) => Meaning::ReadBoundary,
            (key::ILLEGAL_REQUEST, 0x21, 0x09) => Meaning::GapZone,
            (key::ILLEGAL_REQUEST, _, _) => Meaning::IllegalRequest,
            (key::UNIT_ATTENTION, _, _) => Meaning::UnitAttention,
            (key::DATA_PROTECT, 0x27, 0x08) => Meaning::ZoneReadOnly,
            (key::DATA_PROTECT, 0x2c, 0x0e) => Meaning::ZoneOffline,
            (key::DATA_PROTECT, 0x2c, 0x12) => Meaning::ZoneInactive,
            (key::DATA_PROTECT, 0x55, 0x0e | 0x0f) => Meaning::ZoneResources,
            (key::DATA_PROTECT, _, _) => Meaning::WriteProtected,
            (key::ABORTED, _, _) => Meaning::Aborted,
            _ => Meaning::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SPC-5, "Fixed format sense data".
    #[test]
    fn sense_fixed_has_bytes_of_spc() {
        let data = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0x04, 0, 0, 0, 0];
        let sense = Sense::new(5, 0x21, 0x04);
        assert_eq!(Sense::decode(&data), Some(sense));
        assert_eq!(sense.encode_fixed(), data);
        // With VALID, of an earlier command, and cut off in front of the codes.
        let sense = Sense::decode(&[0xf1, 0, 3, 0]).unwrap();
        assert_eq!((sense.key, sense.asc, sense.cause), (3, 0, Cause::Earlier));
        assert_eq!(Sense::decode(&sense.encode_fixed()), Some(sense));
    }

    /// SPC-5, "Descriptor format sense data"; SAT-5, "ATA Status Return sense data descriptor".
    #[test]
    fn sense_descriptors_have_bytes_of_spc_and_sat() {
        let data = [
            0x72, 0x0b, 0, 0x1d, 0, 0, 0, 14, // header
            9, 12, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x51,
        ];
        let registers = Some(AtaRegisters { error: 0x10, status: 0x51 });
        let sense = Sense { ata: registers, ..Sense::new(0xb, 0, 0x1d) };
        assert_eq!(Sense::decode(&data), Some(sense));
        assert_eq!(sense.encode_descriptors(), data);
        // Behind a descriptor of another type.
        let mut longer = data[..8].to_vec();
        longer[7] = 18;
        longer.extend([3, 2, 0, 0]);
        longer.extend(&data[8..]);
        assert_eq!(Sense::decode(&longer), Some(sense));
        assert_eq!(Sense::decode(&[0x73]).map(|sense| sense.cause), Some(Cause::Earlier));
    }

    /// SPC-5, "ASC and ASCQ assignments", and ZBC-2.
    #[test]
    fn sense_codes_have_meaning() {
        let table = [
            ((0, 0x00, 0x1d), Meaning::Performed),
            ((1, 0x17, 0x00), Meaning::Performed),
            ((2, 0x04, 0x01), Meaning::BecomingReady),
            ((2, 0x04, 0x02), Meaning::NeedsStart),
            ((2, 0x3a, 0x00), Meaning::NotReady),
            ((3, 0x11, 0x00), Meaning::Medium),
            ((3, 0x0c, 0x00), Meaning::Medium),
            ((4, 0x44, 0x00), Meaning::Hardware),
            ((5, 0x20, 0x00), Meaning::InvalidOpcode),
            ((5, 0x24, 0x00), Meaning::InvalidField),
            ((5, 0x21, 0x00), Meaning::OutOfRange),
            ((5, 0x21, 0x04), Meaning::UnalignedWrite),
            ((5, 0x21, 0x05), Meaning::WriteBoundary),
            ((5, 0x21, 0x06), Meaning::ReadInvalidData),
            ((5, 0x21, 0x07), Meaning::ReadBoundary),
            ((5, 0x21, 0x09), Meaning::GapZone),
            ((5, 0x1a, 0x00), Meaning::IllegalRequest),
            ((6, 0x29, 0x00), Meaning::UnitAttention),
            ((7, 0x27, 0x08), Meaning::ZoneReadOnly),
            ((7, 0x2c, 0x0e), Meaning::ZoneOffline),
            ((7, 0x2c, 0x12), Meaning::ZoneInactive),
            ((7, 0x55, 0x0e), Meaning::ZoneResources),
            ((7, 0x55, 0x0f), Meaning::ZoneResources),
            ((7, 0x27, 0x00), Meaning::WriteProtected),
            ((0xb, 0x00, 0x00), Meaning::Aborted),
            ((0xd, 0x00, 0x00), Meaning::Other),
        ];
        for ((key, asc, ascq), meaning) in table {
            assert_eq!(Sense::new(key, asc, ascq).meaning(), meaning, "{key:x}/{asc:x}/{ascq:x}");
        }
    }

    proptest! {
        #[test]
        fn sense_decode_handles_any_bytes(
            code in 0x6f_u8..0x75, mut data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Some(first) = data.first_mut() {
                *first = code;
            }
            if let Some(sense) = Sense::decode(&data) {
                prop_assert_eq!(Sense::decode(&sense.encode_descriptors()), Some(sense));
                let _ = sense.meaning();
            }
        }
    }
}
