//! Where the parts of a picture are: title, axes, legend, and how large all of it becomes. Each
//! part gets the room that its texts need.

use super::text::{self, NORMAL, SMALL, TITLE};
use super::ticks::Ruler;

/// Least size of a picture, and of the part inside its axes.
const WIDTH_MIN: f64 = 860.0;
const PLOT_WIDTH_MIN: f64 = 540.0;
const PLOT_HEIGHT: f64 = 320.0;

/// Between a text and whatever is beside it.
const GAP: f64 = 8.0;

/// The rotated label of the vertical axis: where its baseline is.
pub(super) const SIDE_LABEL: f64 = 18.0;

/// A mark of the legend, and the room of the widest line beside it.
const KEY: f64 = 32.0;
const KEY_TEXT_MAX: f64 = 240.0;

/// A bold letter beside one that is not.
const BOLD: f64 = 1.16;

/// The parts of a picture that need room.
pub(super) struct Parts<'a> {
    pub(super) title: &'a str,
    pub(super) vertical: (&'a Ruler, &'a str),
    /// Texts of the legend.
    pub(super) names: Vec<&'a str>,
    /// Least width inside the axes.
    pub(super) plot_width: f64,
    /// Room above the axes besides the title's, and below them.
    pub(super) above: f64,
    pub(super) below: f64,
    /// Room that a text at the right end of the horizontal axis takes beyond it.
    pub(super) beyond: f64,
}

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The part inside the axes.
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
    pub(super) title: Vec<String>,
    pub(super) keys: Vec<Key>,
}

/// A text of the legend: the middle of its mark is `x + 13`, `y`.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) lines: Vec<String>,
}

impl Frame {
    pub(super) fn new(parts: &Parts<'_>) -> Self {
        let (ruler, label) = parts.vertical;
        let ticks = text::widest(ruler.ticks.iter().map(|(_, text)| text.as_str()), NORMAL);
        let left = (SIDE_LABEL + NORMAL / 2.0 + ticks + 2.0 * GAP).max(70.0);
        let wrap = |name: &&str| text::wrapped(name, NORMAL, KEY_TEXT_MAX);
        let names: Vec<Vec<String>> = parts.names.iter().map(wrap).collect();
        let names_width = text::widest(names.iter().flatten().map(String::as_str), NORMAL);
        let legend = if names.is_empty() { 0.0 } else { KEY + names_width + GAP };
        let beside = legend + GAP + parts.beyond.max(GAP);
        let right = (left + parts.plot_width.max(PLOT_WIDTH_MIN)).max(WIDTH_MIN - beside).ceil();
        let title_size = TITLE * BOLD;
        let title_width = text::widest(parts.title.split([' ', '\n']), title_size);
        let width = (right + beside).max(left + title_width + GAP).ceil();
        let title = text::wrapped(parts.title, title_size, width - left - GAP);
        let top = (24.0 + text::height(title.len(), TITLE) + parts.above).ceil();
        let bottom = (top + PLOT_HEIGHT.max(text::width(label, NORMAL) + GAP)).ceil();
        let mut down = top + 12.0;
        let keys = names.into_iter().map(|lines| {
            let key = Key { x: right + GAP + parts.beyond.max(GAP), y: down, lines };
            down += text::height(key.lines.len(), NORMAL) + 6.0;
            key
        });
        let keys = keys.collect();
        let height = (bottom + parts.below).max(down + GAP).ceil();
        Self { width, height, left, top, right, bottom, title, keys }
    }

    /// From a share of the horizontal axis to a place.
    pub(super) fn across(&self, share: f64) -> f64 {
        self.left + share * (self.right - self.left)
    }

    /// The same of the vertical axis.
    pub(super) fn up(&self, share: f64) -> f64 {
        self.bottom - share * (self.bottom - self.top)
    }
}

/// How groups of bars lie beside each other.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) group_width: f64,
    pub(super) bar_width: f64,
    /// Whether the numbers above the bars stand upright, because bars are narrower than they are.
    pub(super) upright: bool,
    /// Room of the longest of these numbers.
    pub(super) number: f64,
    /// The lines below each group.
    pub(super) labels: Vec<Vec<String>>,
}

impl Rows {
    /// Bars of `names` beside each other in each group.
    pub(super) fn new(groups: &[&str], numbers: &[String], names: usize) -> Self {
        /// Share of a group that bars take; the widest bar.
        const SHARE: f64 = 0.8;
        const BAR_MAX: f64 = 46.0;
        let number = text::widest(numbers.iter().map(String::as_str), SMALL) + 4.0;
        #[expect(clippy::cast_precision_loss, reason = "few bars")]
        let (count, names) = (groups.len().max(1) as f64, names.max(1) as f64);
        let words = groups.iter().flat_map(|group| group.split([' ', '\n']));
        let word = text::widest(words, NORMAL) + GAP;
        let even = PLOT_WIDTH_MIN / count;
        let upright = number * names / SHARE > even.max(word);
        let least = if upright { text::line_height(SMALL) } else { number };
        let group_width = even.max(word).max(least * names / SHARE);
        let bar_width = (group_width * SHARE / names).min(BAR_MAX.max(least));
        let label = |group: &&str| text::wrapped(group, NORMAL, group_width - GAP);
        let labels = groups.iter().map(label).collect();
        Self { group_width, bar_width, upright, number, labels }
    }
}

/// Which of the labels along an axis are drawn: each that leaves a gap to the one before it.
pub(super) fn spaced(labels: &[(f64, f64)]) -> Vec<bool> {
    let mut end = f64::NEG_INFINITY;
    let mut take = |(middle, room): &(f64, f64)| {
        let fits = middle - room / 2.0 >= end;
        if fits {
            end = middle + room / 2.0 + 2.0;
        }
        fits
    };
    labels.iter().map(&mut take).collect()
}
