//! What a mount wrote to its device, as a file that outlives it.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use zonal_fs::furrow::Stats;

/// Bytes that one mount wrote to its device.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// File data, as programs wrote it.
    pub(crate) user: u64,
    /// Journal, table, superblocks.
    pub(crate) metadata: u64,
    /// Data that reclaim moved.
    pub(crate) reclaim: u64,
}

impl Counts {
    /// The counts of a file system that has been closed.
    pub(crate) fn of(stats: &Stats) -> Self {
        Self { user: stats.user_bytes, metadata: stats.meta_bytes, reclaim: stats.reclaim_bytes }
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("turning the counts into JSON")?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// The counts that a mount left in a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} holds no counts", path.display()))
    }

    /// Bytes written below per byte written above.
    #[expect(clippy::cast_precision_loss, reason = "for people, who read three digits")]
    pub(crate) fn write_amplification(&self) -> f64 {
        let below = self.user + self.metadata + self.reclaim;
        if self.user == 0 { 1.0 } else { below as f64 / self.user as f64 }
    }
}
