//! Attributes of block devices in sysfs: `Documentation/ABI/stable/sysfs-block`.

use std::fs;
use std::path::{Path, PathBuf};

use zonal::{DeviceError, Identity};

use crate::Result;

/// The queue of a SCSI or SATA drive in the kernel
/// (`Documentation/ABI/testing/sysfs-block-device`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    /// `queue_depth`: commands that the kernel sends at once.
    pub(crate) depth: Option<u32>,
    /// `ncq_prio_supported`.
    pub(crate) has_priority: Option<bool>,
}

/// The queue of the drive whose SCSI generic node has this number.
pub(crate) fn queue_of_generic(number: u64) -> Queue {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    queue_in(Path::new(&format!("/sys/dev/char/{major}:{minor}/device")))
}

fn queue_in(dir: &Path) -> Queue {
    let found = |name| number(&dir.join(name)).ok();
    Queue {
        depth: found("queue_depth").and_then(|depth| u32::try_from(depth).ok()),
        has_priority: found("ncq_prio_supported").map(|number| number == 1),
    }
}

/// Attributes of one device.
pub(crate) struct Attributes {
    dir: PathBuf,
}

impl Attributes {
    /// Attributes of the block device with this number.
    pub(crate) fn of(number: u64) -> Self {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Self { dir: PathBuf::from(format!("/sys/dev/block/{major}:{minor}")) }
    }

    /// Attributes of the block device of an NVMe namespace whose character device has this number:
    /// `nvme0n1` of `ng0n1`. It may be hidden; `None` if the kernel knows no such device.
    pub(crate) fn of_namespace(number: u64) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let place = fs::read_link(format!("/sys/dev/char/{major}:{minor}")).ok()?;
        let numbers = place.file_name()?.to_str()?.strip_prefix("ng")?;
        let dir = Path::new("/sys/block").join(format!("nvme{numbers}"));
        dir.exists().then_some(Self { dir })
    }

    /// Attributes of the block device of the drive whose SCSI generic node has this number: `sda`
    /// of `sg0`. `None` if the kernel has none, as for the zoned drives that it does not support.
    pub(crate) fn of_generic(number: u64) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let blocks = fs::read_dir(format!("/sys/dev/char/{major}:{minor}/device/block")).ok()?;
        let name = blocks.flatten().next()?.file_name();
        Some(Self { dir: Path::new("/sys/block").join(name) })
    }

    /// Bytes that one command of a driver's own may move: the queue's limit, and one page for each
    /// segment but the first, which may begin in the middle of one.
    pub(crate) fn transfer_bytes(&self) -> Option<u64> {
        const PAGE_BYTES: u64 = 4096;
        let kib = self.number("max_hw_sectors_kb").ok()?;
        let segments = self.number("max_segments").ok()?;
        let bytes = kib.checked_mul(1024)?;
        Some(bytes.min(segments.saturating_sub(1).saturating_mul(PAGE_BYTES)))
    }

    /// Its node, for a [`Claim`](zonal::Claim); `None` if it is hidden or has no node, so that no
    /// program can mount it.
    pub(crate) fn node(&self) -> Option<PathBuf> {
        if fs::read_to_string(self.dir.join("hidden")).is_ok_and(|hidden| hidden.trim() == "1") {
            return None;
        }
        let node = Path::new("/dev").join(self.dir.file_name()?);
        node.exists().then_some(node)
    }

    /// The identity that the device reports. The attributes differ from driver to driver; many have
    /// none.
    pub(crate) fn identity(&self) -> Identity {
        let text = |name: &str| {
            let text = fs::read_to_string(self.dir.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        Identity {
            model: text("device/model"),
            serial: text("device/serial"),
            unique: text("wwid").or_else(|| text("device/wwid")),
        }
    }

    /// The queue of the drive.
    pub(crate) fn queue(&self) -> Queue {
        queue_in(&self.dir.join("device"))
    }

    /// Whether its medium turns.
    pub(crate) fn rotates(&self) -> Option<bool> {
        self.number("rotational").ok().map(|number| number == 1)
    }

    /// Whether the kernel flushes a volatile write cache of it.
    pub(crate) fn has_write_cache(&self) -> Option<bool> {
        match fs::read_to_string(self.dir.join("queue/write_cache")).ok()?.trim() {
            "write back" => Some(true),
            "write through" => Some(false),
            _ => None,
        }
    }

    /// Whether it is a part of another device.
    pub(crate) fn is_partition(&self) -> bool {
        self.dir.join("partition").exists()
    }

    /// Whether it, or the device that it is a part of, has zones.
    pub(crate) fn has_zones(&self) -> bool {
        let whole = if self.is_partition() { self.dir.join("..") } else { self.dir.clone() };
        fs::read_to_string(whole.join("queue/zoned")).is_ok_and(|zoned| zoned.trim() != "none")
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
