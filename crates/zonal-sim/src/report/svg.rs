//! Pictures as SVG: text, so that no font has to be there when it is drawn, and nothing random.
//!
//! Written here rather than by a plotting crate: those measure text with fonts of the machine, and
//! then the same numbers do not give the same bytes everywhere.

use std::fmt::Write;

use super::chart::{Bars, Chart, Form, Picture, Series};
use super::ticks::Ruler;
use super::{escape, number};

/// The whole picture.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 420.0;
/// The part inside the axes; the legend is at its right.
const LEFT: f64 = 70.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 610.0;
const BOTTOM: f64 = 364.0;
/// Width of a letter, on the average.
const LETTER: f64 = 7.0;

/// Colours that people with any colour vision tell apart (Okabe and Ito, "Color Universal Design",
/// 2008), darkest first.
const PALETTE: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"];

/// Draws a picture.
pub fn draw(picture: &Picture) -> String {
    match picture {
        Picture::Chart(chart) => draw_chart(chart),
        Picture::Bars(bars) => draw_bars(bars),
    }
}

fn draw_chart(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = Ruler::new(&chart.x, points().map(|point| point.0));
    let y = Ruler::new(&chart.y, points().map(|point| point.1));
    let mut svg = Svg::begin(&chart.title);
    svg.vertical_axis(&y, &chart.y.label);
    for (value, text) in &x.ticks {
        if let Some(share) = x.place(*value) {
            let at = across(share);
            svg.line((at, BOTTOM), (at, BOTTOM + 5.0), "#444", "");
            svg.text((at, BOTTOM + 19.0), Anchor::Middle, text);
        }
    }
    svg.text((f64::midpoint(LEFT, RIGHT), BOTTOM + 42.0), Anchor::Middle, &chart.x.label);
    for (index, series) in chart.series.iter().enumerate() {
        let place = |(at, value): &(f64, f64)| Some((across(x.place(*at)?), up(y.place(*value)?)));
        svg.series(series, &series.points.iter().map(place).collect::<Vec<_>>());
        svg.key(index, series);
    }
    svg.end()
}

fn draw_bars(bars: &Bars) -> String {
    let values = bars.groups.iter().flat_map(|(_, values)| values.iter().copied());
    let y = Ruler::new(&bars.y, values.chain([0.0]));
    let mut svg = Svg::begin(&bars.title);
    svg.vertical_axis(&y, &bars.y.label);
    #[expect(clippy::cast_precision_loss, reason = "few bars")]
    let (groups, names) = (bars.groups.len().max(1) as f64, bars.names.len().max(1) as f64);
    let group_width = (RIGHT - LEFT) / groups;
    let bar_width = (group_width * 0.8 / names).min(46.0);
    let mut left = LEFT;
    for (word, values) in &bars.groups {
        let middle = left + group_width / 2.0;
        let mut at = middle - bar_width * names / 2.0;
        for (index, value) in values.iter().enumerate() {
            if let Some(share) = y.place(*value) {
                let colour = PALETTE[index % PALETTE.len()];
                svg.bar((at, up(share)), bar_width, colour);
                svg.small((at + bar_width / 2.0, up(share) - 4.0), &number(*value));
            }
            at += bar_width;
        }
        for (line, part) in wrapped(word, group_width).iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "few lines")]
            svg.text((middle, BOTTOM + 18.0 + 15.0 * line as f64), Anchor::Middle, part);
        }
        left += group_width;
    }
    for (index, name) in bars.names.iter().enumerate() {
        let at = key_place(index);
        svg.dot((at.0 + 13.0, at.1), 0, PALETTE[index % PALETTE.len()]);
        svg.text((at.0 + 32.0, at.1 + 4.0), Anchor::Start, name);
    }
    svg.end()
}

/// The lines of a text, broken at spaces too where it is wider than `width`.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let first = lines.len();
        for word in line.split(' ') {
            #[expect(clippy::cast_precision_loss, reason = "a few letters")]
            let fits = |line: &String| (line.len() + 1 + word.len()) as f64 * LETTER <= width;
            match lines[first..].last_mut().filter(|line| fits(line)) {
                Some(line) => line.extend([" ", word]),
                None => lines.push(word.to_owned()),
            }
        }
    }
    lines
}

fn across(share: f64) -> f64 {
    LEFT + share * (RIGHT - LEFT)
}

fn up(share: f64) -> f64 {
    BOTTOM - share * (BOTTOM - TOP)
}

/// Where the legend has its n-th line.
fn key_place(index: usize) -> (f64, f64) {
    #[expect(clippy::cast_precision_loss, reason = "few series")]
    let down = TOP + 12.0 + 22.0 * index as f64;
    (RIGHT + 18.0, down)
}

/// Which end of a text a position is.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being written.
struct Svg(String);

/// A hundredth of a pixel is enough, and keeps the text short.
fn near(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Svg {
    fn begin(title: &str) -> Self {
        let title = escape(title);
        let mut svg = Self(String::new());
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"13\" fill=\"#222\" role=\"img\">\n<title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" font-weight=\"600\">{title}</text>\n"
        ));
        svg
    }

    fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn put(&mut self, part: std::fmt::Arguments<'_>) {
        self.0.write_fmt(part).expect("a string takes all");
    }

    /// The axis, its grid, and the lower axis' line.
    fn vertical_axis(&mut self, ruler: &Ruler, label: &str) {
        for (value, text) in &ruler.ticks {
            if let Some(share) = ruler.place(*value) {
                let at = up(share);
                self.line((LEFT, at), (RIGHT, at), "#e3e3e3", "");
                self.text((LEFT - 8.0, at + 4.0), Anchor::End, text);
            }
        }
        self.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "#444", "");
        self.line((LEFT, TOP), (LEFT, BOTTOM), "#444", "");
        let middle = f64::midpoint(TOP, BOTTOM);
        let label = escape(label);
        self.put(format_args!(
            "<text x=\"18\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 18 {middle})\">{label}</text>\n"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, more: &str) {
        let (x1, y1, x2, y2) = (near(from.0), near(from.1), near(to.0), near(to.1));
        self.put(format_args!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\"{more}/>\n"
        ));
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (near(at.0), near(at.1), escape(text));
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    fn small(&mut self, at: (f64, f64), text: &str) {
        let (x, y, text) = (near(at.0), near(at.1), escape(text));
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"11\">{text}</text>\n"
        ));
    }

    fn bar(&mut self, top: (f64, f64), width: f64, colour: &str) {
        let (x, y, width, height) = (near(top.0), near(top.1), near(width), near(BOTTOM - top.1));
        self.put(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" \
             stroke=\"#fff\"/>\n"
        ));
    }

    /// A series; a point that is `None` lies outside the axes and parts the line.
    fn series(&mut self, series: &Series, points: &[Option<(f64, f64)>]) {
        let colour = PALETTE[series.colour % PALETTE.len()];
        if series.form == Form::Published {
            points.iter().flatten().for_each(|at| self.published(*at));
            return;
        }
        for part in points.split(Option::is_none) {
            let path = path(series.form, part);
            let dash = dash(series.form);
            if !path.is_empty() {
                self.put(format_args!(
                    "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                     stroke-linejoin=\"round\"{dash}/>\n"
                ));
            }
        }
        if series.form == Form::Marked {
            points.iter().flatten().for_each(|at| self.dot(*at, series.colour, colour));
        }
    }

    /// A filled mark; its shape goes with the colour, for those who do not see the colour.
    fn dot(&mut self, at: (f64, f64), shape: usize, colour: &str) {
        let (x, y) = (near(at.0), near(at.1));
        match shape % 3 {
            0 => self
                .put(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>\n")),
            1 => {
                let (x, y) = (near(at.0 - 3.5), near(at.1 - 3.5));
                self.put(format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>\n"
                ));
            }
            _ => self.put(format_args!(
                "<path d=\"M{x} {} l4.5 8 h-9 z\" fill=\"{colour}\"/>\n",
                near(at.1 - 5.0)
            )),
        }
    }

    fn published(&mut self, at: (f64, f64)) {
        let (x, y) = (near(at.0), near(at.1 - 7.0));
        self.put(format_args!(
            "<path d=\"M{x} {y} l7 7 l-7 7 l-7 -7 z\" fill=\"none\" stroke=\"#000\" \
             stroke-width=\"1.8\"/>\n"
        ));
    }

    /// A line of the legend.
    fn key(&mut self, index: usize, series: &Series) {
        let at = key_place(index);
        let colour = PALETTE[series.colour % PALETTE.len()];
        match series.form {
            Form::Published => self.published((at.0 + 13.0, at.1)),
            form => {
                let more = format!(" stroke-width=\"2\"{}", dash(form));
                self.line(at, (at.0 + 26.0, at.1), colour, &more);
            }
        }
        if series.form == Form::Marked {
            self.dot((at.0 + 13.0, at.1), series.colour, colour);
        }
        self.text((at.0 + 32.0, at.1 + 4.0), Anchor::Start, &series.name);
    }
}

fn dash(form: Form) -> &'static str {
    match form {
        Form::Dashed => " stroke-dasharray=\"6 4\"",
        Form::Line | Form::Marked | Form::Step | Form::Published => "",
    }
}

/// The path through points that all lie inside the axes.
fn path(form: Form, points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    for (x, y) in points.iter().flatten() {
        let (x, y) = (near(*x), near(*y));
        match (path.is_empty(), form) {
            (true, _) => write!(path, "M{x} {y}"),
            (false, Form::Step) => write!(path, " H{x} V{y}"),
            (false, _) => write!(path, " L{x} {y}"),
        }
        .expect("a string takes all");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Axis;

    #[test]
    fn bar_labels_keep_to_bar_width() {
        assert_eq!(
            wrapped("FDP\npersistently isolated", 94.0),
            ["FDP", "persistently", "isolated"]
        );
        assert_eq!(wrapped("host log\n8 streams", 94.0), ["host log", "8 streams"]);
        assert_eq!(wrapped("a verylongword", 20.0), ["a", "verylongword"]);
    }

    fn chart() -> Chart {
        Chart {
            title: "a < b & c".into(),
            x: Axis::linear("x"),
            y: Axis::linear("y").up_to(10.0),
            series: vec![
                Series::new("line", Form::Line, 0, vec![(0.0, 1.0), (1.0, 20.0), (2.0, 5.0)]),
                Series::new("steps", Form::Step, 1, vec![(0.0, 0.0), (2.0, 10.0)]),
                Series::new("theory", Form::Dashed, 1, vec![(0.0, 0.0), (2.0, 10.0)]),
                Series::new("marks", Form::Marked, 2, vec![(1.0, f64::NAN), (2.0, 2.0)]),
                Series::new("paper", Form::Published, 0, vec![(1.0, 5.0)]),
            ],
        }
    }

    #[test]
    fn chart_has_all_its_parts() {
        let svg = draw(&Picture::Chart(chart()));
        assert!(svg.contains("a &lt; b &amp; c</title>"), "{svg}");
        // From corner to corner: the axes end at 2 and 10.
        assert!(svg.contains("M70 364 H610 V44"), "{svg}");
        assert!(svg.contains("M70 364 L610 44\" fill=\"none\" stroke=\"#d55e00\" stroke-width=\"2\" stroke-linejoin=\"round\" stroke-dasharray"), "{svg}");
        // The point above the axis parts the line.
        assert!(svg.contains("\"M70 332\"") && svg.contains("\"M610 204\""), "{svg}");
        // One published point and its key.
        assert_eq!(svg.matches("l7 7 l-7 7").count(), 2);
        for series in chart().series {
            assert!(svg.contains(&format!(">{}</text>", series.name)), "{}", series.name);
        }
    }

    #[test]
    fn bars_stand_on_axis() {
        let bars = Bars {
            title: "t".into(),
            y: Axis::linear("wa"),
            names: vec!["one".into(), "two".into()],
            groups: vec![("a\nb".into(), vec![1.0, 2.0]), ("c".into(), vec![f64::NAN, 4.0])],
        };
        let svg = draw(&Picture::Bars(bars));
        // Three bars of heights 1 : 2 : 4, and none for what is no number.
        for height in ["80", "160", "320"] {
            assert!(svg.contains(&format!("height=\"{height}\" fill")), "{height}: {svg}");
        }
        assert_eq!(svg.matches("stroke=\"#fff\"").count(), 3);
    }

    #[test]
    fn chart_drawing_is_reproducible() {
        let picture = Picture::Chart(chart());
        assert_eq!(draw(&picture), draw(&picture.clone()));
    }
}
