//! The NVM subsystem: its namespaces, the hosts that may connect, and their controllers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wire::fabrics::{
    ConnectData, ConnectFault, DISCOVERY_NQN, DYNAMIC_CONTROLLER, DiscoveryEntry, NQN_BYTES_MAX,
};
use zonal::nvme::decode::Durability;
use zonal::nvme::{self, Nsid, NvmeStatus, status};

pub(crate) use self::controller::{Controller, Host, Link, Role};
use self::events::AsyncEvents;
use crate::error::Error;
use crate::namespace::Namespace;

pub(crate) mod controller;
pub(crate) mod events;

/// Most controllers.
const CONTROLLERS_MAX: usize = 512;

/// Which hosts may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    All,
    /// Hosts with one of these NQNs.
    Named(Vec<String>),
}

impl Hosts {
    fn allow(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|one| one == name),
        }
    }
}

/// Whether completed writes may be lost before a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// There is a volatile write cache: a power cut loses its content, and of a disk also a kill of
    /// the server. Hosts flush.
    Volatile,
    /// A write completes when it is durable.
    None,
}

/// A subsystem.
pub struct Subsystem {
    nqn: String,
    namespaces: Vec<Namespace>,
    hosts: Hosts,
    write_cache: WriteCache,
    controllers: Mutex<BTreeMap<u16, Arc<Controller>>>,
}

/// Why Connect failed: the status, and which field of the command or its data is invalid.
pub(crate) type Refused = (NvmeStatus, Option<ConnectFault>);

impl Subsystem {
    /// A subsystem named `nqn`. The namespaces get the identifiers 1, 2, ...
    pub fn new(nqn: &str, namespaces: Vec<Namespace>, hosts: Hosts) -> Result<Self, Error> {
        check_nqn(nqn)?;
        if let Hosts::Named(names) = &hosts {
            names.iter().try_for_each(|name| check_nqn(name))?;
        }
        let (nqn, write_cache) = (nqn.to_owned(), WriteCache::Volatile);
        Ok(Self { nqn, namespaces, hosts, write_cache, controllers: Mutex::default() })
    }

    /// With or without a volatile write cache; with one unless this is called.
    #[must_use]
    pub fn with_write_cache(self, write_cache: WriteCache) -> Self {
        Self { write_cache, ..self }
    }

    pub(crate) const fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    /// The durability of a write for which a host has asked for `asked`.
    pub(crate) const fn durability(&self, asked: Durability) -> Durability {
        match self.write_cache {
            WriteCache::Volatile => asked,
            WriteCache::None => Durability::Durable,
        }
    }

    /// Whether a namespace is an ordinary disk.
    pub(crate) fn has_disks(&self) -> bool {
        self.namespaces.iter().any(|one| one.zoned().is_none())
    }

    /// Its NQN.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Its namespaces and their NSIDs.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (Nsid, &Namespace)> {
        (1..).map(Nsid::new).zip(&self.namespaces)
    }

    /// The namespace of this NSID.
    pub(crate) fn namespace(&self, nsid: Nsid) -> Result<&Namespace, NvmeStatus> {
        let index = (nsid.get() as usize).checked_sub(1);
        index.and_then(|index| self.namespaces.get(index)).ok_or(status::INVALID_NAMESPACE)
    }

    /// How many controllers hosts have.
    pub fn controller_count(&self) -> usize {
        self.controllers().len()
    }

    /// Whether the host of this NQN may connect.
    pub(crate) fn allows(&self, host: &str) -> bool {
        self.hosts.allow(host)
    }

    /// Makes everything durable.
    pub fn flush(&self) -> Result<(), Error> {
        for (nsid, namespace) in self.namespaces() {
            namespace.flush().map_err(|_| Error::Export {
                device: format!("namespace {nsid}"),
                why: "what was written could not be made durable".to_owned(),
            })?;
        }
        Ok(())
    }

    /// Creates a controller for the host that sent `data` on an admin queue. `entry` describes this
    /// subsystem in the discovery log page.
    pub(crate) fn create_controller(
        self: &Arc<Self>,
        data: &ConnectData,
        entry: &DiscoveryEntry,
    ) -> Result<Arc<Controller>, Refused> {
        let (role, host) = self.who(data, entry)?;
        if data.controller_id.get() != DYNAMIC_CONTROLLER {
            return Err((status::CONNECT_PARAMETERS, Some(ConnectFault::Data(16))));
        }
        // Before the lock, because it asks the devices.
        let events = match role {
            Role::Io => AsyncEvents::since_now(self.namespaces()),
            Role::Discovery(_) => AsyncEvents::default(),
        };
        let mut controllers = self.controllers();
        let id = (1..DYNAMIC_CONTROLLER - 16).find(|id| !controllers.contains_key(id));
        let Some(id) = id.filter(|_| controllers.len() < CONTROLLERS_MAX) else {
            return Err((status::CONNECT_BUSY, None));
        };
        let controller = Arc::new(Controller::new(id, role, host, Arc::clone(self), events));
        controllers.insert(id, Arc::clone(&controller));
        Ok(controller)
    }

    /// The controller of the host that sent `data` on an I/O queue.
    pub(crate) fn find_controller(&self, data: &ConnectData) -> Result<Arc<Controller>, Refused> {
        let wrong = |at| (status::CONNECT_PARAMETERS, Some(ConnectFault::Data(at)));
        let host = nvme::text(&data.host).ok_or(wrong(512))?;
        if nvme::text(&data.subsystem) != Some(&self.nqn) {
            return Err(wrong(256));
        }
        let found = self.controllers().get(&data.controller_id.get()).cloned();
        let found = found.filter(|one| one.is_of(host, data.host_id));
        found.ok_or(wrong(16))
    }

    /// Removes a controller whose admin queue has ended.
    pub(crate) fn remove_controller(&self, id: u16) {
        self.controllers().remove(&id);
    }

    fn who(&self, data: &ConnectData, entry: &DiscoveryEntry) -> Result<(Role, Host), Refused> {
        let wrong = |at| (status::CONNECT_PARAMETERS, Some(ConnectFault::Data(at)));
        // SPDK's programs send an empty name unless they are given one.
        let fits = |name: &&str| name.len() <= NQN_BYTES_MAX;
        let host = nvme::text(&data.host).filter(fits).ok_or(wrong(512))?;
        let role = match nvme::text(&data.subsystem) {
            Some(DISCOVERY_NQN) => Role::Discovery(Box::new(*entry)),
            Some(name) if name == self.nqn => Role::Io,
            Some(_) | None => return Err(wrong(256)),
        };
        if matches!(role, Role::Io) && !self.allows(host) {
            tracing::warn!(host, "refused: this host is not allowed");
            return Err((status::CONNECT_HOST, Some(ConnectFault::Data(512))));
        }
        Ok((role, Host { nqn: host.to_owned(), id: data.host_id }))
    }

    fn controllers(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<Controller>>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks an NQN (Base, section 4.5): `nqn.`, at most 223 bytes, no spaces or control characters.
fn check_nqn(name: &str) -> Result<(), Error> {
    let good = name.starts_with("nqn.")
        && name.len() <= NQN_BYTES_MAX
        && name != DISCOVERY_NQN
        && !name.contains(|letter: char| letter.is_control() || letter == ' ');
    if good { Ok(()) } else { Err(Error::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nqn_check_follows_specification() {
        check_nqn("nqn.2026-11.localhost:zonal").unwrap();
        for bad in ["", "zonal", "nqn.x\n", "nqn.x y", DISCOVERY_NQN, &format!("nqn.{:0220}", 0)] {
            assert!(check_nqn(bad).is_err(), "{bad:?}");
        }
    }
}
