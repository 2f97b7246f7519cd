//! Asynchronous events: the reports of a controller that complete an Asynchronous Event Request
//! (Base, section 5.2; ZNS, section 4.1.1).

use zonal::nvme::Nsid;

use super::log::page;

/// OAES, and Asynchronous Event Configuration: zone descriptor changed notices (ZNS, figure 44).
pub const ZONE_NOTICES: u32 = 1 << 27;

/// The same: namespace attribute notices (Base, figure 276).
pub const NAMESPACE_NOTICES: u32 = 1 << 8;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Zone Descriptor Changed: the Changed Zone List of this namespace says which zones.
    ZonesChanged(Nsid),
    /// Namespace Attribute Changed: the Changed Namespace List says of which namespaces.
    NamespacesChanged,
}

impl Event {
    /// Type, information and log page of a changed zone descriptor, in the low half of the result
    /// (ZNS, figure 42); the namespace is in the high half (figure 43).
    const ZONES_CHANGED: u32 = 0x2 | 0xef << 8 | (page::CHANGED_ZONES as u32) << 16;

    /// The same of a changed namespace attribute (Base, figure 152).
    const NAMESPACES_CHANGED: u32 = 0x2 | (page::CHANGED_NAMESPACES as u32) << 16;

    /// As the result of the completed request.
    pub const fn encode(self) -> u64 {
        match self {
            Self::ZonesChanged(nsid) => Self::ZONES_CHANGED as u64 | (nsid.get() as u64) << 32,
            Self::NamespacesChanged => Self::NAMESPACES_CHANGED as u64,
        }
    }

    /// From a result; `None` for any other event.
    #[expect(clippy::cast_possible_truncation, reason = "one half each")]
    pub const fn decode(result: u64) -> Option<Self> {
        match result as u32 & 0xff_ff07 {
            Self::ZONES_CHANGED => Some(Self::ZonesChanged(Nsid::new((result >> 32) as u32))),
            Self::NAMESPACES_CHANGED => Some(Self::NamespacesChanged),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_names_log_page_and_namespace() {
        let event = Event::ZonesChanged(Nsid::new(3));
        assert_eq!(event.encode(), 0x0000_0003_00bf_ef02);
        assert_eq!(Event::decode(event.encode()), Some(event));
        assert_eq!(Event::decode(0x0000_0003_00bf_ee02), None);
        assert_eq!(Event::NamespacesChanged.encode(), 0x0004_0002);
        assert_eq!(Event::decode(0x0004_0002), Some(Event::NamespacesChanged));
    }
}
