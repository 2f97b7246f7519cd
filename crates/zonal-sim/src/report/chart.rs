//! The content of a picture: axes, series, bars.

/// How values become distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences.
    Linear,
    /// Equal ratios.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The quantity on the axis, with its unit.
    pub label: String,
    /// How values become distances.
    pub scale: Scale,
}

impl Axis {
    /// An axis from 0, or the smallest negative value, to the largest value.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear }
    }

    /// An axis over all values, none of which may be 0.
    pub fn log(label: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line through its points.
    Line,
    /// A line through its points, and a mark at each.
    Marked,
    /// A dashed line: theory, or results of real drives.
    Dashed,
    /// Marks in the colour of the text: published values.
    Published,
}

/// What several runs of the same kind came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// Points of the same kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// Error bars, by x.
    pub ranges: Vec<(f64, Range)>,
    /// How it is drawn.
    pub form: Form,
    /// Its colour: series of one colour belong together. An index into the palette.
    pub colour: usize,
}

impl Series {
    /// A series.
    pub fn new(name: &str, form: Form, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, ranges: Vec::new(), form, colour }
    }
}

/// Lines and points over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// One line above the picture.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series in drawing order; later ones cover earlier ones.
    pub series: Vec<Series>,
}

/// Groups of bars, on an axis from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// One line above the picture.
    pub title: String,
    /// The vertical axis.
    pub y: Axis,
    /// What stands beside each other in a group.
    pub names: Vec<String>,
    /// The groups: a word, and a value for each name. A value that is no number has no bar.
    pub groups: Vec<(String, Vec<f64>)>,
    /// An error bar for each value of each group; empty for none.
    pub ranges: Vec<Vec<Range>>,
}

/// Any picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Picture {
    /// Lines and points.
    Chart(Chart),
    /// Bars.
    Bars(Bars),
}

impl Picture {
    /// One line above it.
    pub fn title(&self) -> &str {
        match self {
            Self::Chart(chart) => &chart.title,
            Self::Bars(bars) => &bars.title,
        }
    }
}
