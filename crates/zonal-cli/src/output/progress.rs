//! Progress bars: on a terminal only, on standard error, gone when the work is done.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The unit of a bar's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Zones,
    Bytes,
    /// Anything; only the share is shown.
    Share,
    Runs,
}

/// A bar for work of `total` units. Invisible where standard error is no terminal.
pub(crate) fn bar(total: u64, unit: Unit, what: &str) -> ProgressBar {
    let template = match unit {
        Unit::Zones => "  {msg:16} [{bar:24}] {pos}/{len} zones, {eta} left",
        Unit::Bytes => "  {msg:16} [{bar:24}] {binary_bytes}/{binary_total_bytes}, {eta} left",
        Unit::Share => "  {msg:16} [{bar:24}] {percent} %, {eta} left",
        Unit::Runs => "  {msg:16} [{bar:24}] {pos}/{len} runs, {eta} left",
    };
    let style = ProgressStyle::with_template(template)
        .expect("the template is well formed")
        .progress_chars("█▉▊▋▌▍▎▏ ");
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(what.to_owned())
}
