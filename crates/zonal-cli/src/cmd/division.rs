//! How a Furrow file system divides the zones of its drive, as text and as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use zonal_fs::furrow::Division;

use crate::output::{size, table::Table};

/// Bytes by their use, and what they are of the drive.
#[derive(Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct Share {
    /// What for.
    what: &'static str,
    /// How much of the drive.
    bytes: u64,
    /// The same as a share of the drive.
    percent: f64,
}

/// The shares, which add up to the drive.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct Divided {
    /// What the drive is used for.
    shares: Vec<Share>,
    /// What the table takes now, of its share.
    table_now_bytes: u64,
    /// What files use, of theirs.
    used_bytes: u64,
}

impl From<Division> for Divided {
    fn from(division: Division) -> Self {
        let Division { drive, failed, superblocks, journal, table, spare, .. } = division;
        let Division { reclaim, fragments, files, table_now, used, .. } = division;
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
        Self { shares, table_now_bytes: table_now, used_bytes: used }
    }
}

impl Divided {
    /// A line for each.
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
        lines.text()
    }
}
