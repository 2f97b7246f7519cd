//! What the kernel says about a block device: `Documentation/ABI/stable/sysfs-block`.

use std::fs;
use std::path::{Path, PathBuf};

use zonal::DeviceError;

use crate::Result;

/// Attributes of one device.
pub(crate) struct Attributes {
    dir: PathBuf,
}

impl Attributes {
    /// Of the block device with this number.
    pub(crate) fn of(number: u64) -> Self {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Self { dir: PathBuf::from(format!("/sys/dev/block/{major}:{minor}")) }
    }

    /// Whether it is a part of another device.
    pub(crate) fn is_partition(&self) -> bool {
        self.dir.join("partition").exists()
    }

    /// A word of the queue's attributes; `None` where this kernel has no such attribute.
    pub(crate) fn word(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.dir.join("queue").join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    /// A number of the queue's attributes.
    pub(crate) fn number(&self, name: &str) -> Result<u64> {
        let path = self.dir.join("queue").join(name);
        number(&path)
    }

    /// 512-byte sectors of the device.
    pub(crate) fn sectors(&self) -> Result<u64> {
        number(&self.dir.join("size"))
    }
}

fn number(path: &Path) -> Result<u64> {
    let text = fs::read_to_string(path).map_err(|source| DeviceError::Io {
        what: format!("reading {}", path.display()),
        source,
    })?;
    text.trim().parse().map_err(|_| DeviceError::Malformed {
        path: path.to_owned(),
        what: format!("{:?} is no number", text.trim()),
    })
}
