//! How Furrow is mounted, and how mount(8) spells it.

use zonal::{ByteCount, size};

use super::planted::Planted;
use crate::options::Taken;
use crate::vfs::Access;

/// When a read moves the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimePolicy {
    /// If it is not later than the last change, or a day old (Linux `relatime`).
    #[default]
    Relative,
    /// Never (`noatime`).
    Never,
    /// At every read (`strictatime`).
    Always,
}

/// How to mount.
#[derive(Clone, Copy, Debug)]
pub struct MountOptions {
    /// Whether to write. `ReadOnly` writes nothing at all, not even recovery.
    pub access: Access,
    /// When to move access times.
    pub atime: AtimePolicy,
    /// Memory for what is read of the metadata, about. What has changed since the last commit and
    /// what is in use is kept beside it. With less than [`MEMORY_MIN`](Self::MEMORY_MIN) all works as
    /// well, slowly.
    pub memory: ByteCount,
    /// A mistake to make on purpose. For tests of tests only.
    pub planted: Planted,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            atime: AtimePolicy::default(),
            memory: Self::MEMORY,
            planted: Planted::default(),
        }
    }
}

impl MountOptions {
    /// Memory unless another size is asked for.
    pub const MEMORY: ByteCount = ByteCount::new(256 << 20);

    /// The least memory that makes sense.
    pub const MEMORY_MIN: ByteCount = ByteCount::new(64 << 20);

    /// Takes an option if it is one that only Furrow has: `memory=SIZE`.
    ///
    /// ```
    /// use zonal_fs::furrow::MountOptions;
    /// use zonal_fs::options::Taken;
    /// let mut options = MountOptions::default();
    /// assert_eq!(options.take("memory=1GiB"), Taken::Yes);
    /// assert_eq!(options.memory.get(), 1 << 30);
    /// assert_eq!(options.take("memory=1KiB"), Taken::Bad);
    /// assert_eq!(options.take("noatime"), Taken::No);
    /// ```
    pub fn take(&mut self, option: &str) -> Taken {
        let Some(value) = option.strip_prefix("memory") else { return Taken::No };
        match value.strip_prefix('=').map(size::parse) {
            Some(Ok(memory)) if memory >= Self::MEMORY_MIN => {
                self.memory = memory;
                Taken::Yes
            }
            Some(Ok(_) | Err(_)) => Taken::Bad,
            None if value.is_empty() => Taken::Bad,
            None => Taken::No,
        }
    }

    /// Bytes of it for inodes, entries and maps.
    pub(super) fn held_bytes(&self) -> usize {
        usize::try_from(self.memory.get() / 2).unwrap_or(usize::MAX)
    }

    /// Bytes of it for a memtable. There may be two, while one of them is written as a run.
    pub(super) fn memtable_bytes(&self) -> usize {
        usize::try_from(self.memory.get() / 8).unwrap_or(usize::MAX)
    }

    /// Bytes of it for leaves of the table.
    pub(super) fn leaf_bytes(&self) -> usize {
        usize::try_from(self.memory.get() / 4).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_every_command() {
        let mut options = MountOptions::default();
        for (option, mib) in [("memory=64M", 64), ("memory=1.5GiB", 1536)] {
            assert_eq!(options.take(option), Taken::Yes);
            assert_eq!(options.memory.get(), mib << 20);
        }
        for bad in ["memory", "memory=", "memory=lots", "memory=63MiB", "memory=-1"] {
            assert_eq!(options.take(bad), Taken::Bad, "{bad}");
        }
        for other in ["", "ro", "mem=1G", "memory_max=1G"] {
            assert_eq!(options.take(other), Taken::No, "{other}");
        }
        assert_eq!(options.memory.get(), 1536 << 20, "what is refused changes nothing");
    }
}
