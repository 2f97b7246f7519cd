//! The facts of a drive beyond its geometry.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zonal::DeviceError;

use super::channel::Channel;
use super::inquiry::WriteCache;
use super::sg::Node;
use super::shape::Answers;
use super::transport::Failure;
use super::zones::{Realm, ZoneDomain};
use super::{discover, failure, not_generic, realms, shape};
use crate::Result;
use crate::sysfs;

/// Facts that a drive reports about itself; `None` and empty without a report.
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

/// The facts of a drive by its SCSI generic node. Questions need no claim: any program may ask.
pub(crate) fn facts(path: &Path) -> Result<Facts> {
    let failed = |source| DeviceError::Io { what: format!("opening {}", path.display()), source };
    let file = File::open(path).map_err(failed)?;
    let number = file.metadata().map_err(failed)?.rdev();
    let node = Node::new(file).map_err(|errno| not_generic(path, errno))?;
    let queue = sysfs::queue_of_generic(number);
    let facts = of(&mut Channel::new(Box::new(node)))
        .map_err(|failure| failure::plain(format!("asking {}", path.display()), failure))?;
    // The kernel may use less than the disk has.
    Ok(Facts {
        queue_depth: queue.depth.or(facts.queue_depth),
        queue_priority: queue.has_priority.or(facts.queue_priority),
        ..facts
    })
}

/// The facts of the drive behind a channel.
pub(super) fn of(channel: &mut Channel) -> std::result::Result<Facts, Failure> {
    let answers = discover::ask_all(channel)?;
    let mut facts = of_answers(&answers);
    if answers.has_zones() && shape::block_size(&answers.capacity).is_ok() {
        channel.block_bytes = answers.capacity.block_bytes;
        let (found, last) = discover::all_zones(channel)?;
        let shape = shape::decode(&answers, &found, last, channel.bytes_max());
        let left_out = shape.map(|shape| shape.left_out).unwrap_or_default();
        facts.left_out = left_out.iter().map(ToString::to_string).collect();
        facts.domains = realms::domains(channel)?;
        facts.realms = realms::realms(channel)?;
    }
    Ok(facts)
}

fn of_answers(answers: &Answers) -> Facts {
    let queue = answers.identification.as_ref().and_then(|disk| disk.queue);
    let rate = answers.rotation_rate();
    Facts {
        rotates: answers.rotates(),
        rotation_rate: rate.filter(|rate| (0x401..=0xfffe).contains(rate)),
        write_cache: answers.cache.map(|cache| cache.write == WriteCache::Volatile),
        read_cache: answers.cache.map(|cache| cache.reads),
        queue_depth: queue.map(|queue| queue.depth.into()),
        queue_priority: queue.map(|queue| queue.has_priority),
        write_protected: answers.is_write_protected,
        ..Facts::default()
    }
}
