//! What a drive says of itself beyond its geometry and its identity, for people who look at it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::Result;
use crate::scsi::zones::{Realm, ZoneDomain};
use crate::scsi::{self, facts};
use crate::sysfs::Attributes;

/// What a drive says of itself; `None` and empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether its medium turns.
    pub rotates: Option<bool>,
    /// Turns a minute.
    pub rotation_rate: Option<u16>,
    /// Whether it keeps writes in a volatile cache until a flush.
    pub write_cache: Option<bool>,
    /// Whether it answers reads from a cache.
    pub read_cache: Option<bool>,
    /// Commands that may be at the drive at once.
    pub queue_depth: Option<u32>,
    /// Whether a command may have a priority (NCQ).
    pub queue_priority: Option<bool>,
    /// Whether it refuses writes.
    pub write_protected: Option<bool>,
    /// Why Zonal does not use some of its zones: sentences.
    pub left_out: Vec<String>,
    /// Its zone domains.
    pub domains: Vec<ZoneDomain>,
    /// Its zone realms.
    pub realms: Vec<Realm>,
}

/// The facts of the drive that a path names; `None` if it is no device of the kernel.
///
/// # Errors
/// The drive does not answer.
pub fn facts(path: &Path) -> Result<Option<Facts>> {
    let Ok(metadata) = path.metadata() else { return Ok(None) };
    let (kind, number) = (metadata.file_type(), metadata.rdev());
    if kind.is_block_device() {
        return Ok(Some(of_queue(&Attributes::of(number))));
    }
    if !kind.is_char_device() {
        return Ok(None);
    }
    if scsi::is_node(number) {
        return facts::facts(path).map(Some);
    }
    Ok(Attributes::of_namespace(number).map(|attributes| of_queue(&attributes)))
}

fn of_queue(attributes: &Attributes) -> Facts {
    let queue = attributes.queue();
    Facts {
        rotates: attributes.number("rotational").ok().map(|number| number == 1),
        write_cache: attributes.has_write_cache(),
        queue_depth: queue.depth,
        queue_priority: queue.has_priority,
        ..Facts::default()
    }
}
