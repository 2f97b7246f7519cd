//! How a Furrow file system divides the zones of its drive, as text and as JSON.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use zonal_fs::furrow::Division;

use crate::output::{size, table::Table};

/// One use of the drive, and its share.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct Share {
    /// The use.
    what: &'static str,
    /// Bytes of the drive for this use.
    bytes: u64,
    /// The same in percent of the drive.
    percent: f64,
}

/// The shares, which add up to the drive.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct Divided {
    /// The uses of the drive.
    shares: Vec<Share>,
    /// Bytes of the table's share that it uses now.
    table_now_bytes: u64,
    /// Bytes of the files' share that they use now.
    used_bytes: u64,
    /// Bytes of the metadata drive, if there is one.
    metadata_drive_bytes: Option<u64>,
    /// Bytes that the first copies of all metadata need there once files have all of their share.
    metadata_wanted_bytes: Option<u64>,
}

impl From<Division> for Divided {
    fn from(division: Division) -> Self {
        let Division { drive, failed, superblocks, journal, table, spare, .. } = division;
        let Division { reclaim, fragments, files, table_now, used, metadata, .. } = division;
        let of_drive = [
            ("files", files),
            ("superblocks", superblocks),
            ("journal", journal),
            ("table when full", table),
            ("rows of small extents", fragments),
            ("kept for metadata", spare),
            ("kept for reclaim", reclaim),
            ("failed zones", failed),
        ];
        let share = |(what, bytes): (&'static str, u64)| {
            #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
            let percent = bytes as f64 * 100.0 / drive as f64;
            Share { what, bytes, percent: (percent * 10.0).round() / 10.0 }
        };
        let shares = of_drive.into_iter().map(share).collect();
        Self {
            shares,
            table_now_bytes: table_now,
            used_bytes: used,
            metadata_drive_bytes: metadata.map(|metadata| metadata.drive),
            metadata_wanted_bytes: metadata.map(|metadata| metadata.wanted),
        }
    }
}

impl Divided {
    /// A line for each share.
    pub(crate) fn text(&self) -> String {
        let mut lines = Table::new(1, &["use of the drive", "bytes", "percent", "now"]);
        for Share { what, bytes, percent } in &self.shares {
            let now = match *what {
                "files" => size(self.used_bytes),
                "table when full" => size(self.table_now_bytes),
                _ if *bytes == 0 => continue,
                _ => String::new(),
            };
            lines.row(vec![(*what).into(), size(*bytes), format!("{percent:.1}"), now]);
        }
        let mut text = lines.text();
        if let (Some(drive), Some(wanted)) = (self.metadata_drive_bytes, self.metadata_wanted_bytes)
        {
            let rest = if drive < wanted { ", and takes the rest itself" } else { "" };
            let (drive, wanted) = (size(drive), size(wanted));
            let _ = writeln!(
                text,
                "metadata drive: {drive}; full of small files, the drive needs {wanted} there{rest}"
            );
        }
        text
    }
}
