//! The head of a simulated disk in a table: virtual time, jumps, and the parts of the time.

use zonal_sim::disk::account::HeadShares;

use super::count;

/// Columns of a table.
pub(crate) const COLUMNS: [&str; 6] = ["s", "jumps", "seek %", "turn %", "transfer %", "rest %"];

/// Cells of a row.
#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
pub(crate) fn cells(head: &HeadShares) -> [String; 6] {
    let percent = |share: f64| format!("{share:.1}");
    [
        format!("{:.1}", head.virtual_ns as f64 / 1e9),
        count(head.jumps),
        percent(head.seek_percent),
        percent(head.turn_percent),
        percent(head.transfer_percent),
        percent(head.rest_percent),
    ]
}
