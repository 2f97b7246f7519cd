//! Zone reports: header and zone descriptors (ZNS, section 3.4.2.2).

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Lba, LbaCount, Zone, ZoneCond, ZoneId, ZoneKind};

/// Header of a zone report (ZNS, figures 43 and 45).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 8 | zone_count | NZ: zones that match, or that follow |
/// | 8 | 56 | reserved | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ReportHeader {
    pub zone_count: U64,
    pub reserved: [u8; 56],
}
const _: () = assert!(size_of::<ReportHeader>() == 64);

/// Zone descriptor (ZNS, figure 44).
///
/// | at | bytes | field | meaning |
/// | --- | --- | --- | --- |
/// | 0 | 1 | kind | ZT: 2 in the low four bits, sequential write required |
/// | 1 | 1 | cond | ZS: condition in the high four bits |
/// | 2 | 1 | attributes | ZA; bit 7: extension valid, 2: reset recommended, 0: finished by drive |
/// | 3 | 1 | attributes_info | ZAI |
/// | 4 | 4 | reserved | |
/// | 8 | 8 | capacity | ZCAP: writable blocks |
/// | 16 | 8 | start | ZSLBA |
/// | 24 | 8 | wp | WP: write pointer, not valid for Full, ReadOnly and Offline zones |
/// | 32 | 32 | reserved_end | |
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the table above documents the fields")]
pub struct ZoneDescriptor {
    pub kind: u8,
    pub cond: u8,
    pub attributes: u8,
    pub attributes_info: u8,
    pub reserved: [u8; 4],
    pub capacity: U64,
    pub start: U64,
    pub wp: U64,
    pub reserved_end: [u8; 32],
}
const _: () = assert!(size_of::<ZoneDescriptor>() == 64);
const _: () = assert!(offset_of!(ZoneDescriptor, capacity) == 8);
const _: () = assert!(offset_of!(ZoneDescriptor, wp) == 24);

/// ZT: sequential write required. There is no other type.
const SEQUENTIAL_REQUIRED: u8 = 2;
/// ZDEV: the zone has an extension.
const EXTENSION_VALID: u8 = 1 << 7;
/// WP of a zone without a valid one.
const NO_WP: u64 = u64::MAX;

impl ZoneDescriptor {
    /// The descriptor of a sequential zone. The write pointer of a Full zone is the end of its
    /// capacity.
    pub fn encode(zone: &Zone) -> Self {
        Self {
            kind: SEQUENTIAL_REQUIRED,
            cond: zone.cond.code() << 4,
            attributes: 0,
            attributes_info: 0,
            reserved: [0; 4],
            capacity: zone.capacity.get().into(),
            start: zone.start.get().into(),
            wp: zone.wp.map_or(NO_WP, Lba::get).into(),
            reserved_end: [0; 32],
        }
    }

    /// The same descriptor, marked as followed by a valid extension.
    #[must_use]
    pub const fn with_extension(self) -> Self {
        Self { attributes: self.attributes | EXTENSION_VALID, ..self }
    }

    /// The zone `id` of a namespace with zones of `size` blocks; `None` if the descriptor is
    /// invalid.
    pub fn decode(&self, id: ZoneId, size: LbaCount) -> Option<Zone> {
        let cond = ZoneCond::from_code(self.cond >> 4).filter(|&cond| cond != ZoneCond::NotWp)?;
        let (start, capacity) = (Lba::new(self.start.get()), LbaCount::new(self.capacity.get()));
        if self.kind & 0xf != SEQUENTIAL_REQUIRED || capacity > size {
            return None;
        }
        let end = start.checked_add(capacity)?;
        let wp = match cond {
            ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => None,
            ZoneCond::Full => Some(end),
            ZoneCond::Empty => Some(start),
            ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen | ZoneCond::Closed => {
                let wp = Lba::new(self.wp.get());
                Some(wp).filter(|&wp| start <= wp && wp <= end).map(Some)?
            }
        };
        let kind = ZoneKind::SequentialRequired;
        Some(Zone { id, kind, cond, start, size, capacity, wp, non_sequential: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(cond: ZoneCond, wp: Option<u64>) -> Zone {
        let kind = ZoneKind::SequentialRequired;
        let (size, capacity) = (LbaCount::new(24), LbaCount::new(20));
        let (id, start) = (ZoneId::new(2), Lba::new(48));
        let wp = wp.map(Lba::new);
        Zone { id, kind, cond, start, size, capacity, wp, non_sequential: false }
    }

    #[test]
    fn zone_descriptors_round_trip() {
        for zone in [
            zone(ZoneCond::Empty, Some(48)),
            zone(ZoneCond::ImplicitOpen, Some(50)),
            zone(ZoneCond::ExplicitOpen, Some(48)),
            zone(ZoneCond::Closed, Some(67)),
            zone(ZoneCond::Full, Some(68)),
            zone(ZoneCond::ReadOnly, None),
            zone(ZoneCond::Offline, None),
        ] {
            let descriptor = ZoneDescriptor::encode(&zone);
            assert_eq!(descriptor.decode(zone.id, zone.size), Some(zone));
        }
    }

    #[test]
    fn zone_descriptors_impossible_are_refused() {
        let good = ZoneDescriptor::encode(&zone(ZoneCond::Closed, Some(50)));
        let size = LbaCount::new(24);
        for bad in [
            ZoneDescriptor { kind: 1, ..good },
            ZoneDescriptor { cond: 0, ..good },
            ZoneDescriptor { cond: 0x70, ..good },
            ZoneDescriptor { capacity: 25.into(), ..good },
            ZoneDescriptor { wp: 47.into(), ..good },
            ZoneDescriptor { wp: 69.into(), ..good },
            ZoneDescriptor { start: U64::MAX_VALUE, ..good },
        ] {
            assert_eq!(bad.decode(ZoneId::new(2), size), None, "{bad:?}");
        }
    }
}
