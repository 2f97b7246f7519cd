//! Reports of zones, realms and zone domains.
//!
//! ZBC-2, "REPORT ZONES parameter data" and the clauses of the same form for realms and zone
//! domains. ATA has the same layouts with the lowest byte first (ZAC-2, "REPORT ZONES EXT"), so
//! every function takes the order. An [`Lba`] here is an address in logical blocks of the drive.

use zonal::{Lba, LbaCount, ZoneCond};

use super::number::{ByteOrder, padded};

/// Bytes of the header of each report, and of the descriptor of a zone.
pub const ENTRY_BYTES: usize = 64;

/// The header of a report of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportHeader {
    /// ZONE LIST LENGTH: bytes of all descriptors, without the header.
    pub list_bytes: u32,
    /// SAME, four bits: which fields all descriptors have in common; 0 says nothing.
    pub same: u8,
    /// MAXIMUM LBA: the last block of the drive.
    pub last: Lba,
    /// ZONE STARTING LBA GRANULARITY: the distance of zone starts where gap zones fill it up; 0 if
    /// it is not reported.
    pub granularity: LbaCount,
}

impl ReportHeader {
    /// Decodes it; `None` if the report is shorter.
    pub fn decode(order: ByteOrder, report: &[u8]) -> Option<Self> {
        let header = report.get(..ENTRY_BYTES)?;
        Some(Self {
            list_bytes: order.u32(&header[..4]),
            same: header[4] & 0xf,
            last: Lba::new(order.u64(&header[8..16])),
            granularity: LbaCount::new(order.u64(&header[16..24])),
        })
    }

    /// Encodes it.
    pub fn encode(&self, order: ByteOrder) -> [u8; ENTRY_BYTES] {
        let mut header = [0; ENTRY_BYTES];
        order.store(self.list_bytes.into(), &mut header[..4]);
        header[4] = self.same & 0xf;
        order.store(self.last.get(), &mut header[8..16]);
        order.store(self.granularity.get(), &mut header[16..24]);
        header
    }
}

/// The type of a zone (ZBC-2, "ZONE TYPE field").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneType {
    /// Takes writes anywhere.
    Conventional,
    /// Takes writes at its write pointer only.
    SequentialRequired,
    /// Takes writes anywhere, and likes them at its write pointer.
    SequentialPreferred,
    /// Sequential or before required: takes writes at its write pointer and below it.
    SequentialOrBeforeRequired,
    /// No zone to write to: it fills the distance between two zones.
    Gap,
}

impl ZoneType {
    const ALL: [Self; 5] = [
        Self::Conventional,
        Self::SequentialRequired,
        Self::SequentialPreferred,
        Self::SequentialOrBeforeRequired,
        Self::Gap,
    ];

    /// Its number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Conventional => 1,
            Self::SequentialRequired => 2,
            Self::SequentialPreferred => 3,
            Self::SequentialOrBeforeRequired => 4,
            Self::Gap => 5,
        }
    }

    /// The type of a number; `None` for a reserved one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The condition number of a zone that belongs to no active realm.
const INACTIVE: u8 = 0x5;

/// A zone as a drive reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// ZONE TYPE.
    pub kind: ZoneType,
    /// ZONE CONDITION; `None`: Inactive.
    pub cond: Option<ZoneCond>,
    /// `NON_SEQ`: non-sequential write resources are active.
    pub non_sequential: bool,
    /// RESET: the drive recommends a reset.
    pub reset_recommended: bool,
    /// ZONE LENGTH.
    pub blocks: LbaCount,
    /// ZONE START LBA.
    pub start: Lba,
    /// WRITE POINTER LBA, of no meaning where there is none.
    pub wp: Lba,
}

impl Descriptor {
    /// Decodes a descriptor; `None` if it is not complete, or its type or condition is reserved.
    pub fn decode(order: ByteOrder, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..ENTRY_BYTES)?;
        let cond = match bytes[1] >> 4 {
            INACTIVE => None,
            code => Some(ZoneCond::from_code(code)?),
        };
        Some(Self {
            kind: ZoneType::from_code(bytes[0] & 0xf)?,
            cond,
            non_sequential: bytes[1] & 2 != 0,
            reset_recommended: bytes[1] & 1 != 0,
            blocks: LbaCount::new(order.u64(&bytes[8..16])),
            start: Lba::new(order.u64(&bytes[16..24])),
            wp: Lba::new(order.u64(&bytes[24..32])),
        })
    }

    /// Encodes the descriptor.
    pub fn encode(&self, order: ByteOrder) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0] = self.kind.code();
        let flags = u8::from(self.non_sequential) << 1 | u8::from(self.reset_recommended);
        bytes[1] = self.cond.map_or(INACTIVE, ZoneCond::code) << 4 | flags;
        order.store(self.blocks.get(), &mut bytes[8..16]);
        order.store(self.start.get(), &mut bytes[16..24]);
        order.store(self.wp.get(), &mut bytes[24..32]);
        bytes
    }
}

/// The descriptors of a report, as many as it has and its header counts; an item is `None` where
/// [`Descriptor::decode`] is.
pub fn descriptors(
    order: ByteOrder,
    report: &[u8],
) -> impl Iterator<Item = Option<Descriptor>> + use<'_> {
    let bytes = ReportHeader::decode(order, report).map_or(0, |header| header.list_bytes);
    let count = usize::try_from(bytes).unwrap_or(usize::MAX) / ENTRY_BYTES;
    let list = report.chunks_exact(ENTRY_BYTES).skip(1).take(count);
    list.map(move |bytes| Descriptor::decode(order, bytes))
}

/// The header of a report of realms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealmsHeader {
    /// REALM LIST LENGTH, in bytes.
    pub list_bytes: u32,
    /// REALM COUNT.
    pub count: u32,
    /// REALM DESCRIPTOR LENGTH, in bytes.
    pub descriptor_bytes: u32,
    /// NEXT REALM LOCATOR; 0: there are no more.
    pub next: Lba,
}

impl RealmsHeader {
    /// Decodes it; `None` if the report is shorter.
    pub fn decode(order: ByteOrder, report: &[u8]) -> Option<Self> {
        let header = report.get(..ENTRY_BYTES)?;
        Some(Self {
            list_bytes: order.u32(&header[..4]),
            count: order.u32(&header[4..8]),
            descriptor_bytes: order.u32(&header[8..12]),
            next: Lba::new(order.u64(&header[12..20])),
        })
    }

    /// Encodes it.
    pub fn encode(&self, order: ByteOrder) -> [u8; ENTRY_BYTES] {
        let mut header = [0; ENTRY_BYTES];
        order.store(self.list_bytes.into(), &mut header[..4]);
        order.store(self.count.into(), &mut header[4..8]);
        order.store(self.descriptor_bytes.into(), &mut header[8..12]);
        order.store(self.next.get(), &mut header[12..20]);
        header
    }
}

/// A realm: blocks of the medium that belong to one zone domain at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm {
    /// REALM ID.
    pub id: u32,
    /// REALM RESTRICTIONS.
    pub restrictions: u16,
    /// ACTIVE ZONE DOMAIN ID.
    pub active_domain: u8,
    /// The first and the last block of the realm in each zone domain; both 0 where it has none.
    pub ranges: Vec<(Lba, Lba)>,
}

impl Realm {
    /// Bytes in front of the ranges, and of each range.
    const RANGE_BYTES: usize = 16;

    /// Decodes a descriptor, which has as many bytes as the header says; `None` if it is too short.
    pub fn decode(order: ByteOrder, descriptor: &[u8]) -> Option<Self> {
        let (head, ranges) = descriptor.split_at_checked(Self::RANGE_BYTES)?;
        let range = |range: &[u8]| {
            let (first, last) = range.split_at(Self::RANGE_BYTES / 2);
            (Lba::new(order.u64(first)), Lba::new(order.u64(last)))
        };
        Some(Self {
            id: order.u32(&head[..4]),
            restrictions: order.u16(&head[4..6]),
            active_domain: head[7],
            ranges: ranges.chunks_exact(Self::RANGE_BYTES).map(range).collect(),
        })
    }

    /// Encodes a descriptor.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut bytes = vec![0; Self::RANGE_BYTES * (1 + self.ranges.len())];
        order.store(self.id.into(), &mut bytes[..4]);
        order.store(self.restrictions.into(), &mut bytes[4..6]);
        bytes[7] = self.active_domain;
        let places = bytes[Self::RANGE_BYTES..].chunks_exact_mut(Self::RANGE_BYTES);
        for ((first, last), place) in self.ranges.iter().zip(places) {
            order.store(first.get(), &mut place[..8]);
            order.store(last.get(), &mut place[8..]);
        }
        bytes
    }
}

/// A zone domain: all zones of one type that a drive can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDomain {
    /// ZONE DOMAIN ID.
    pub id: u8,
    /// ZONE COUNT.
    pub zones: u64,
    /// Its first block.
    pub first: Lba,
    /// Its last block.
    pub last: Lba,
    /// ZONE DOMAIN ZONE TYPE, as a number.
    pub kind: u8,
    /// Flags; bit 1 says that all zones of the domain have that type.
    pub flags: u8,
}

impl ZoneDomain {
    /// Bytes of a descriptor.
    pub const BYTES: usize = 96;

    /// Decodes a descriptor; missing bytes are zero.
    pub fn decode(order: ByteOrder, descriptor: &[u8]) -> Self {
        let bytes: [u8; Self::BYTES] = padded(descriptor);
        Self {
            id: bytes[0],
            zones: order.u64(&bytes[16..24]),
            first: Lba::new(order.u64(&bytes[24..32])),
            last: Lba::new(order.u64(&bytes[32..40])),
            kind: bytes[40],
            flags: bytes[42],
        }
    }

    /// Encodes a descriptor.
    pub fn encode(&self, order: ByteOrder) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[40], bytes[42]) = (self.id, self.kind, self.flags);
        order.store(self.zones, &mut bytes[16..24]);
        order.store(self.first.get(), &mut bytes[24..32]);
        order.store(self.last.get(), &mut bytes[32..40]);
        bytes
    }
}

/// The zone domains of a report: as many as byte 9 of its header says, and as it has.
pub fn zone_domains(order: ByteOrder, report: &[u8]) -> impl Iterator<Item = ZoneDomain> + use<'_> {
    let count = report.get(9).copied().map_or(0, usize::from);
    let list = report.get(ENTRY_BYTES..).unwrap_or_default();
    let list = list.chunks_exact(ZoneDomain::BYTES).take(count);
    list.map(move |bytes| ZoneDomain::decode(order, bytes))
}

/// The answer to ZONE ACTIVATE and ZONE QUERY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationResult {
    /// ACTIVATED: the zones are active; of a query, always false.
    pub activated: bool,
    /// Why they are not, or would not be: flags, which [`unmet`](Self::unmet) names.
    pub flags: u8,
    /// ZONE ID WITH UNMET PREREQUISITES, if it is valid.
    pub zone: Option<Lba>,
}

impl ActivationResult {
    /// Bytes of the header, which has all of this.
    pub const BYTES: usize = 64;

    /// Bits of byte 9.
    const UNMET: [(u8, &'static str); 7] = [
        (1 << 6, "the drive is locked"),
        (1 << 5, "the zones are of several zone domains"),
        (1 << 4, "the realm does not allow it"),
        (1 << 3, "the zones are of several types"),
        (1 << 2, "the zones are no whole realms"),
        (1 << 1, "a zone is not empty"),
        (1 << 0, "a zone is not inactive"),
    ];

    /// Decodes an answer; missing bytes are zero.
    pub fn decode(answer: &[u8]) -> Self {
        let bytes: [u8; Self::BYTES] = padded(answer);
        let zone = Lba::new(ByteOrder::HighFirst.u64(&bytes[24..32]));
        Self {
            activated: bytes[8] & 1 != 0,
            flags: bytes[9] & 0x7f,
            zone: (bytes[8] & 1 << 6 != 0).then_some(zone),
        }
    }

    /// Encodes an answer.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[8] = u8::from(self.activated) | u8::from(self.zone.is_some()) << 6;
        bytes[9] = self.flags & 0x7f;
        ByteOrder::HighFirst.store(self.zone.map_or(0, Lba::get), &mut bytes[24..32]);
        bytes
    }

    /// The prerequisites that are not met.
    pub fn unmet(self) -> Vec<&'static str> {
        let is_set = |(flag, _): &&(u8, &'static str)| self.flags & flag != 0;
        Self::UNMET.iter().filter(is_set).map(|(_, what)| *what).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ByteOrder::{HighFirst, LowFirst};
    use super::*;

    const HEADER: ReportHeader = ReportHeader {
        list_bytes: 128,
        same: 1,
        last: Lba::new(0x0102_0304),
        granularity: LbaCount::new(0x0008_0000),
    };

    const ZONE: Descriptor = Descriptor {
        kind: ZoneType::SequentialRequired,
        cond: Some(ZoneCond::Closed),
        non_sequential: true,
        reset_recommended: false,
        blocks: LbaCount::new(0x0007_0000),
        start: Lba::new(0x0008_0000),
        wp: Lba::new(0x0008_0010),
    };

    /// A report with the parts in front of others zeroes.
    fn bytes(parts: &[(usize, &[u8])], len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
        }
        bytes
    }

    /// ZBC-2, "REPORT ZONES parameter data" and "Zone descriptor format".
    #[test]
    fn zone_report_has_bytes_of_zbc() {
        let header = bytes(
            &[(0, &[0, 0, 0, 128, 1]), (8, &[0, 0, 0, 0, 1, 2, 3, 4]), (16, &[0, 0, 0, 0, 0, 8])],
            64,
        );
        assert_eq!(HEADER.encode(HighFirst)[..], header);
        assert_eq!(ReportHeader::decode(HighFirst, &header), Some(HEADER));
        let zone = bytes(
            &[
                (0, &[2, 0x42]),
                (8, &[0, 0, 0, 0, 0, 7, 0, 0]),
                (16, &[0, 0, 0, 0, 0, 8, 0, 0]),
                (24, &[0, 0, 0, 0, 0, 8, 0, 0x10]),
            ],
            64,
        );
        assert_eq!(ZONE.encode(HighFirst)[..], zone);
        assert_eq!(Descriptor::decode(HighFirst, &zone), Some(ZONE));
        let mut inactive = zone.clone();
        (inactive[0], inactive[1]) = (1, 0x51);
        let inactive = Descriptor::decode(HighFirst, &inactive).unwrap();
        assert_eq!((inactive.kind, inactive.cond), (ZoneType::Conventional, None));
        assert!(inactive.reset_recommended);
        for (kind, cond) in [(0, 0x10), (6, 0x10), (2, 0x60), (2, 0xc0)] {
            let mut reserved = zone.clone();
            (reserved[0], reserved[1]) = (kind, cond);
            assert_eq!(Descriptor::decode(HighFirst, &reserved), None, "{kind} {cond:x}");
        }
    }

    /// ZAC-2, "REPORT ZONES EXT", "data".
    #[test]
    fn zone_report_of_ata_has_bytes_of_zac() {
        let header = bytes(&[(0, &[128, 0, 0, 0, 1]), (8, &[4, 3, 2, 1]), (16, &[0, 0, 8, 0])], 64);
        assert_eq!(ReportHeader::decode(LowFirst, &header), Some(HEADER));
        assert_eq!(HEADER.encode(LowFirst)[..], header);
        let zone =
            bytes(&[(0, &[2, 0x42]), (8, &[0, 0, 7]), (16, &[0, 0, 8]), (24, &[0x10, 0, 8])], 64);
        assert_eq!(Descriptor::decode(LowFirst, &zone), Some(ZONE));
        assert_eq!(ZONE.encode(LowFirst)[..], zone);
    }

    #[test]
    fn zone_report_ends_with_list_or_bytes() {
        let report = |list_bytes| {
            let header = ReportHeader { list_bytes, ..HEADER }.encode(HighFirst);
            [header, ZONE.encode(HighFirst), ZONE.encode(HighFirst)].concat()
        };
        let count = |report: &[u8]| descriptors(HighFirst, report).flatten().count();
        assert_eq!(count(&report(128)), 2);
        assert_eq!(count(&report(64)), 1);
        assert_eq!(count(&report(u32::MAX)), 2);
        assert_eq!(count(&report(128)[..191]), 1);
        assert_eq!(count(&report(128)[..63]), 0);
    }

    /// ZBC-2, "REPORT REALMS parameter data" and "REPORT ZONE DOMAINS parameter data".
    #[test]
    fn realms_and_domains_have_bytes_of_zbc() {
        let header =
            bytes(&[(0, &[0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0, 9])], 64);
        let realms =
            RealmsHeader { list_bytes: 256, count: 2, descriptor_bytes: 128, next: Lba::new(9) };
        assert_eq!(RealmsHeader::decode(HighFirst, &header), Some(realms));
        assert_eq!(realms.encode(HighFirst)[..], header);
        let realm = bytes(&[(0, &[0, 0, 0, 3, 0, 1, 0, 2]), (23, &[4]), (31, &[5])], 48);
        let decoded = Realm::decode(HighFirst, &realm).unwrap();
        assert_eq!((decoded.id, decoded.restrictions, decoded.active_domain), (3, 1, 2));
        assert_eq!(decoded.ranges, [(Lba::new(4), Lba::new(5)), (Lba::ZERO, Lba::ZERO)]);
        assert_eq!(decoded.encode(HighFirst), realm);
        let domain = bytes(&[(0, &[1]), (23, &[7]), (31, &[8]), (39, &[9, 2, 0, 2])], 96);
        let decoded = ZoneDomain::decode(HighFirst, &domain);
        assert_eq!((decoded.id, decoded.zones, decoded.kind, decoded.flags), (1, 7, 2, 2));
        assert_eq!((decoded.first, decoded.last), (Lba::new(8), Lba::new(9)));
        assert_eq!(decoded.encode(HighFirst)[..], domain);
        let mut report = vec![0; 64];
        report[9] = 2;
        report.extend(&domain);
        assert_eq!(zone_domains(HighFirst, &report).collect::<Vec<_>>(), [decoded]);
    }

    /// ZBC-2, "ZONE ACTIVATE parameter data".
    #[test]
    fn activation_result_has_bytes_of_zbc() {
        let refused = bytes(&[(8, &[0x40, 0x12]), (30, &[1, 2])], 64);
        let found = ActivationResult::decode(&refused);
        let zone = Some(Lba::new(0x0102));
        assert_eq!(found, ActivationResult { activated: false, flags: 0x12, zone });
        assert_eq!(found.unmet(), ["the realm does not allow it", "a zone is not empty"]);
        assert_eq!(found.encode()[..], refused);
        let done = ActivationResult::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(done, ActivationResult { activated: true, flags: 0, zone: None });
    }

    proptest! {
        #[test]
        fn zone_reports_decode_any_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..400), low in any::<bool>(),
        ) {
            let order = if low { LowFirst } else { HighFirst };
            for zone in descriptors(order, &bytes).flatten() {
                prop_assert_eq!(Descriptor::decode(order, &zone.encode(order)), Some(zone));
            }
            for domain in zone_domains(order, &bytes) {
                prop_assert_eq!(ZoneDomain::decode(order, &domain.encode(order)), domain);
            }
            if let Some(header) = RealmsHeader::decode(order, &bytes) {
                prop_assert_eq!(RealmsHeader::decode(order, &header.encode(order)), Some(header));
            }
            if let Some(realm) = Realm::decode(order, &bytes) {
                prop_assert_eq!(Realm::decode(order, &realm.encode(order)), Some(realm));
            }
        }
    }
}
