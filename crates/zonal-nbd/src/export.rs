//! A disk with the name by which clients ask for it, and the list of all exports of a server.

use std::sync::Arc;

use zonal::{Disk, DiskShape};

use crate::wire::{NAME_MAX, STRING_MAX};
use crate::{Error, Result};

/// Whether clients may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Clients may write if the disk takes writes.
    ReadWrite,
    /// Clients may not write, even if the disk takes writes.
    ReadOnly,
}

/// A disk that clients may use.
pub struct Export {
    name: String,
    description: String,
    disk: Arc<dyn Disk>,
    access: Access,
}

impl Export {
    /// A disk under a name; `description` is for people.
    pub fn new(name: &str, description: &str, disk: Arc<dyn Disk>, access: Access) -> Result<Self> {
        let refused = |why| Error::Export { name: name.to_owned(), why };
        if name.len() > NAME_MAX {
            return Err(refused("the name of an export is at most 4096 bytes"));
        }
        if name.chars().any(char::is_control) {
            return Err(refused("the name of an export has no control characters"));
        }
        if description.len() > STRING_MAX {
            return Err(refused("the description of an export is at most 4096 bytes"));
        }
        Ok(Self { name: name.to_owned(), description: description.to_owned(), disk, access })
    }

    /// The name that clients ask for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A description for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The disk.
    pub fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The size of the disk and its promises, as clients get them.
    pub fn shape(&self) -> DiskShape {
        let shape = self.disk.shape();
        DiskShape { is_read_only: shape.is_read_only || self.access == Access::ReadOnly, ..shape }
    }
}

/// The exports of a server: at least one, each with a name of its own.
pub struct Exports(Vec<Arc<Export>>);

impl Exports {
    /// All exports of a server, in the order in which clients list them.
    pub fn new(exports: Vec<Export>) -> Result<Self> {
        for (index, export) in exports.iter().enumerate() {
            if exports[..index].iter().any(|other| other.name == export.name) {
                let name = export.name.clone();
                return Err(Error::Export { name, why: "another export has this name" });
            }
        }
        Ok(Self(exports.into_iter().map(Arc::new).collect()))
    }

    /// The export that a client asks for. No name means the only export, where there is only one.
    pub fn find(&self, name: &str) -> Option<&Arc<Export>> {
        let named = self.0.iter().find(|export| export.name == name);
        named.or_else(|| self.0.first().filter(|_| name.is_empty() && self.0.len() == 1))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.0.iter().map(|export| &**export)
    }
}
