//! The facts of a drive beyond its geometry and its identity, for people who look at it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::Result;
use crate::scsi;
use crate::scsi::facts::{self, Facts};
use crate::sysfs::Attributes;

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
        rotates: attributes.rotates(),
        write_cache: attributes.has_write_cache(),
        queue_depth: queue.depth,
        queue_priority: queue.has_priority,
        ..Facts::default()
    }
}
