//! Pictures as SVG: text, so that no font has to be there when it is drawn, and nothing random.
//!
//! Written here rather than by a plotting crate: those measure text with fonts of the machine, and
//! then the same numbers do not give the same bytes everywhere. `text.rs` says how much room a text
//! takes, `frame.rs` gives it to each; a picture that cuts a text, or draws one over another, is
//! our mistake and asserted on in debug builds. The background is part of the picture, so that
//! people can read it on dark pages too.

use std::fmt::Write;

use super::chart::{Bars, Chart, Form, Picture, Series};
use super::frame::{Frame, Parts, Rows, SIDE_LABEL, spaced};
use super::text::{self, NORMAL, Place, SMALL, TITLE};
use super::ticks::Ruler;
use super::{escape, number};

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
    .end()
}

fn draw_chart(chart: &Chart) -> Svg {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let ends = chart.series.iter().flat_map(|series| &series.ranges);
    let ends = ends.flat_map(|(_, range)| [range.least, range.most]);
    let x = Ruler::new(&chart.x, points().map(|point| point.0));
    let y = Ruler::new(&chart.y, points().map(|point| point.1).chain(ends));
    let last = x.ticks.last().map_or(0.0, |(_, text)| text::width(text, NORMAL));
    let frame = Frame::new(&Parts {
        title: &chart.title,
        vertical: (&y, &chart.y.label),
        names: chart.series.iter().map(|series| series.name.as_str()).collect(),
        plot_width: text::width(&chart.x.label, NORMAL),
        above: 0.0,
        below: 56.0,
        beyond: last / 2.0,
    });
    let mut svg = Svg::begin(&chart.title, frame);
    svg.vertical_axis(&y, &chart.y.label);
    svg.horizontal_axis(&x, &chart.x.label);
    for (index, series) in chart.series.iter().enumerate() {
        let frame = &svg.frame;
        let place =
            |(at, value): (f64, f64)| Some((frame.across(x.place(at)?), frame.up(y.place(value)?)));
        let line: Vec<_> = series.points.iter().copied().map(place).collect();
        let ranges = series.ranges.iter();
        let ranges: Vec<_> = ranges
            .filter_map(|(at, range)| Some((place((*at, range.least))?, place((*at, range.most))?)))
            .collect();
        svg.series(series, &line);
        for (least, most) in ranges {
            svg.range(least, most, colour(series.colour));
        }
        svg.key(index, series);
    }
    svg
}

fn draw_bars(bars: &Bars) -> Svg {
    let values = || bars.groups.iter().flat_map(|(_, values)| values.iter().copied());
    let ends = bars.ranges.iter().flatten().flat_map(|range| [range.least, range.most]);
    let y = Ruler::new(&bars.y, values().chain(ends).chain([0.0]));
    let numbers: Vec<String> = values().filter(|value| value.is_finite()).map(number).collect();
    let groups: Vec<&str> = bars.groups.iter().map(|(word, _)| word.as_str()).collect();
    let rows = Rows::new(&groups, &numbers, bars.names.len());
    let lines = rows.labels.iter().map(Vec::len).max().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "few bars")]
    let frame = Frame::new(&Parts {
        title: &bars.title,
        vertical: (&y, &bars.y.label),
        names: bars.names.iter().map(String::as_str).collect(),
        plot_width: rows.group_width * bars.groups.len() as f64,
        above: if rows.upright { rows.number } else { 0.0 },
        below: 8.0 + text::height(lines, NORMAL) + 8.0,
        beyond: 0.0,
    });
    #[expect(clippy::cast_precision_loss, reason = "few bars")]
    let group_width = (frame.right - frame.left) / bars.groups.len().max(1) as f64;
    let rows = Rows { group_width, ..rows };
    let mut svg = Svg::begin(&bars.title, frame);
    svg.vertical_axis(&y, &bars.y.label);
    for index in 0..bars.groups.len() {
        svg.group(bars, index, &rows, &y);
    }
    for index in 0..bars.names.len() {
        let at = svg.key_place(index);
        svg.dot((at.0 + 13.0, at.1), 0, colour(index));
        svg.key_text(index);
    }
    svg
}

fn colour(index: usize) -> &'static str {
    PALETTE[index % PALETTE.len()]
}

/// Which end of a text a position is.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being written.
struct Svg {
    text: String,
    frame: Frame,
    /// Where texts are.
    places: Vec<Place>,
}

/// A hundredth of a pixel is enough, and keeps the text short.
fn near(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl Svg {
    fn begin(title: &str, frame: Frame) -> Self {
        let (width, height, left) = (frame.width, frame.height, near(frame.left));
        let lines = frame.title.clone();
        let mut svg = Self { text: String::new(), frame, places: Vec::new() };
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"{NORMAL}\" fill=\"#222\" role=\"img\">\n<title>{}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            escape(title)
        ));
        let mut down = 24.0;
        for line in &lines {
            svg.note(line, (left, down), Anchor::Start, TITLE);
            svg.put(format_args!(
                "<text x=\"{left}\" y=\"{}\" font-size=\"{TITLE}\" font-weight=\"600\">{}</text>\n",
                near(down),
                escape(line)
            ));
            down += text::line_height(TITLE);
        }
        svg
    }

    fn end(mut self) -> String {
        if cfg!(debug_assertions) {
            let faults = text::faults(&self.places, (self.frame.width, self.frame.height));
            assert!(faults.is_empty(), "{faults:?}");
        }
        self.text.push_str("</svg>\n");
        self.text
    }

    fn put(&mut self, part: std::fmt::Arguments<'_>) {
        self.text.write_fmt(part).expect("a string takes all");
    }

    /// Remembers where a text is.
    fn note(&mut self, text: &str, at: (f64, f64), anchor: Anchor, size: f64) {
        let width = text::width(text, size);
        let left = match anchor {
            Anchor::Start => at.0,
            Anchor::Middle => at.0 - width / 2.0,
            Anchor::End => at.0 - width,
        };
        let (from, to) = ((left, at.1 - 0.8 * size), (left + width, at.1 + 0.2 * size));
        self.places.push(Place { text: text.to_owned(), from, to });
    }

    /// The same of a text that goes upwards from `at`.
    fn note_upright(&mut self, text: &str, at: (f64, f64), size: f64) {
        let length = text::width(text, size);
        let (from, to) = ((at.0 - 0.8 * size, at.1 - length), (at.0 + 0.2 * size, at.1));
        self.places.push(Place { text: text.to_owned(), from, to });
    }

    /// The axis, its grid, and the lower axis' line.
    fn vertical_axis(&mut self, ruler: &Ruler, label: &str) {
        let (left, right, top, bottom) =
            (self.frame.left, self.frame.right, self.frame.top, self.frame.bottom);
        let ticks: Vec<(f64, &str)> = ruler
            .ticks
            .iter()
            .filter_map(|(value, text)| Some((self.frame.up(ruler.place(*value)?), text.as_str())))
            .collect();
        let places: Vec<_> = ticks.iter().map(|(at, _)| (-at, NORMAL)).collect();
        for ((at, text), is_shown) in ticks.into_iter().zip(spaced(&places)) {
            self.line((left, at), (right, at), "#e3e3e3", "");
            if is_shown {
                self.text((left - 8.0, at + 4.0), Anchor::End, text);
            }
        }
        self.line((left, bottom), (right, bottom), "#444", "");
        self.line((left, top), (left, bottom), "#444", "");
        let middle = near(f64::midpoint(top, bottom));
        self.note_upright(label, (SIDE_LABEL, middle + text::width(label, NORMAL) / 2.0), NORMAL);
        let label = escape(label);
        self.put(format_args!(
            "<text x=\"{SIDE_LABEL}\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {SIDE_LABEL} {middle})\">{label}</text>\n"
        ));
    }

    fn horizontal_axis(&mut self, ruler: &Ruler, label: &str) {
        let bottom = self.frame.bottom;
        let ticks: Vec<(f64, &str)> = ruler
            .ticks
            .iter()
            .filter_map(|(value, text)| {
                Some((self.frame.across(ruler.place(*value)?), text.as_str()))
            })
            .collect();
        let places: Vec<_> =
            ticks.iter().map(|(at, text)| (*at, text::width(text, NORMAL) + 4.0)).collect();
        for ((at, text), is_shown) in ticks.into_iter().zip(spaced(&places)) {
            self.line((at, bottom), (at, bottom + 5.0), "#444", "");
            if is_shown {
                self.text((at, bottom + 19.0), Anchor::Middle, text);
            }
        }
        let middle = f64::midpoint(self.frame.left, self.frame.right);
        self.text((middle, bottom + 42.0), Anchor::Middle, label);
    }

    /// A group of bars, with their numbers and its label.
    fn group(&mut self, bars: &Bars, index: usize, rows: &Rows, y: &Ruler) {
        #[expect(clippy::cast_precision_loss, reason = "few bars")]
        let (before, count) = (index as f64, bars.names.len().max(1) as f64);
        let middle = self.frame.left + rows.group_width * (before + 0.5);
        let mut at = middle - rows.bar_width * count / 2.0;
        for (name, value) in bars.groups[index].1.iter().enumerate() {
            let range = bars.ranges.get(index).and_then(|ranges| ranges.get(name));
            if let Some(share) = y.place(*value) {
                let (top, centre) = (self.frame.up(share), at + rows.bar_width / 2.0);
                self.bar((at, top), rows.bar_width, colour(name));
                let ends =
                    range.and_then(|range| Some((y.place(range.least)?, y.place(range.most)?)));
                let mut above = top;
                if let Some((least, most)) = ends {
                    let (least, most) = (self.frame.up(least), self.frame.up(most));
                    self.range((centre, least), (centre, most), "#222");
                    above = most;
                }
                self.number((centre, above - 4.0), rows, &number(*value));
            }
            at += rows.bar_width;
        }
        let mut down = self.frame.bottom + 18.0;
        for line in &rows.labels[index] {
            self.text((middle, down), Anchor::Middle, line);
            down += text::line_height(NORMAL);
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, more: &str) {
        let (x1, y1, x2, y2) = (near(from.0), near(from.1), near(to.0), near(to.1));
        self.put(format_args!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\"{more}/>\n"
        ));
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        self.note(text, at, anchor, NORMAL);
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

    /// A number above a bar, upright where bars are narrow.
    fn number(&mut self, at: (f64, f64), rows: &Rows, text: &str) {
        let (x, y) = (near(at.0), near(at.1));
        if rows.upright {
            let x = near(x + 0.35 * SMALL);
            self.note_upright(text, (x, y), SMALL);
            self.put(format_args!(
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{SMALL}\" \
                 transform=\"rotate(-90 {x} {y})\">{text}</text>\n"
            ));
        } else {
            self.note(text, (x, y), Anchor::Middle, SMALL);
            self.put(format_args!(
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"{SMALL}\">{text}\
                 </text>\n"
            ));
        }
    }

    fn bar(&mut self, top: (f64, f64), width: f64, colour: &str) {
        let height = near(self.frame.bottom - top.1);
        let (x, y, width) = (near(top.0), near(top.1), near(width));
        self.put(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" \
             stroke=\"#fff\"/>\n"
        ));
    }

    /// An error bar.
    fn range(&mut self, least: (f64, f64), most: (f64, f64), colour: &str) {
        let (x, from, to) = (near(least.0), near(least.1), near(most.1));
        let (left, right) = (near(x - 5.0), near(x + 5.0));
        self.put(format_args!(
            "<path d=\"M{left} {from} H{right} M{x} {from} V{to} M{left} {to} H{right}\" \
             fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n"
        ));
    }

    /// A series; a point that is `None` lies outside the axes and parts the line.
    fn series(&mut self, series: &Series, points: &[Option<(f64, f64)>]) {
        let colour = colour(series.colour);
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

    /// Where the legend has its n-th mark.
    fn key_place(&self, index: usize) -> (f64, f64) {
        let key = &self.frame.keys[index];
        (key.x, key.y)
    }

    fn key_text(&mut self, index: usize) {
        let key = self.frame.keys[index].clone();
        let mut down = key.y + 4.0;
        for line in &key.lines {
            self.text((key.x + 32.0, down), Anchor::Start, line);
            down += text::line_height(NORMAL);
        }
    }

    /// A line of the legend.
    fn key(&mut self, index: usize, series: &Series) {
        let at = self.key_place(index);
        let colour = colour(series.colour);
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
        self.key_text(index);
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
#[path = "svg_tests.rs"]
mod tests;
