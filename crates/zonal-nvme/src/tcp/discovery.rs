//! The discovery log page entry of the subsystem, with the address that the host has connected to.

use std::net::SocketAddr;

use crate::wire::fabrics::{DYNAMIC_CONTROLLER, DiscoveryEntry};
use zerocopy::FromZeros;
use zonal::nvme::{ascii, name};

use crate::subsystem::controller::ADMIN_ENTRIES_MAX;

/// The entry of the subsystem `nqn` at `address`.
pub(super) fn entry(nqn: &str, address: SocketAddr) -> DiscoveryEntry {
    // An IPv4 connection to a dual-stack socket is reported as IPv4.
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let mut entry = DiscoveryEntry::new_zeroed();
    entry.transport = 3;
    entry.address_family = if ip.is_ipv4() { 1 } else { 2 };
    entry.subsystem_kind = 2;
    // No secure channel is required; SQ flow control can be disabled.
    entry.requirements = 1 << 2 | 2;
    entry.port = 1.into();
    entry.controller_id = DYNAMIC_CONTROLLER.into();
    entry.admin_entries = ADMIN_ENTRIES_MAX.into();
    entry.service = ascii(&port.to_string());
    entry.subsystem = name(nqn);
    entry.address = ascii(&ip.to_string());
    entry
}
