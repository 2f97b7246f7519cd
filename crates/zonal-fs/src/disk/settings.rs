//! The settings of a disk, in an extended attribute of its file.

use serde::{Deserialize, Serialize};
use zonal::BlockSize;

/// The extended attribute with the settings, as JSON. A file without it is no disk.
pub const DISK_XATTR: &str = "user.zonal.disk";

/// Whether a disk has space for all of its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskSpace {
    /// From the beginning: a write never fails for want of space.
    #[default]
    Thick,
    /// Blocks take space when they are written, and the drive may be full by then.
    Thin,
}

/// Settings of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSettings {
    /// Bytes of the blocks that requests name.
    #[serde(with = "block_size")]
    pub block_size: BlockSize,
    /// Whether it has space for all blocks.
    pub space: DiskSpace,
    /// Whether it refuses writes, as snapshots do.
    pub is_read_only: bool,
}

/// A thick disk with blocks of 4096 bytes.
impl Default for DiskSettings {
    fn default() -> Self {
        Self { block_size: BlockSize::B4096, space: DiskSpace::Thick, is_read_only: false }
    }
}

mod block_size {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use zonal::BlockSize;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(super) fn serialize<S: Serializer>(
        size: &BlockSize,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(size.bytes())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<BlockSize, D::Error> {
        let bytes = u64::deserialize(from)?;
        let unknown = || de::Error::custom(format!("{bytes} bytes are no size of a block"));
        BlockSize::from_bytes(bytes).ok_or_else(unknown)
    }
}
