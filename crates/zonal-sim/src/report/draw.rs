//! Draws pictures as SVG and PNG, by the crate kuva.
//!
//! kuva measures texts by a table of `DejaVu` Sans that it brings along, and has that font for PNG.
//! So a picture needs no font of the machine, and has the same bytes on all of them (S1).

use std::path::Path;
use std::sync::Arc;

use kuva::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{BarPlot, LinePlot, LineStyle, ScatterPlot};
use kuva::render::layout::{AxisLabelOverlap, ComputedLayout, Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};
use kuva::render::theme::Theme;
use maud::html;

use super::chart::{Axis, Bars, Chart, Form, Picture, Scale, Series};
use super::number;

/// Colours that people with any colour vision tell apart (Okabe and Ito, "Color Universal Design",
/// 2008), darkest first. Marks differ in shape too, for readers who see no colours.
const PALETTE: [(&str, MarkerShape); 8] = [
    ("#0072b2", MarkerShape::Circle),
    ("#d55e00", MarkerShape::Square),
    ("#009e73", MarkerShape::Triangle),
    ("#cc79a7", MarkerShape::Cross),
    ("#e69f00", MarkerShape::Plus),
    ("#56b4e9", MarkerShape::Circle),
    ("#777777", MarkerShape::Square),
    ("#f0e442", MarkerShape::Triangle),
];

/// Pixels inside the axes: across; down for lines; down for a bar, and between two groups.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 340.0;
const BAR: f64 = 15.0;
const BETWEEN: f64 = 12.0;

/// Pixels of a dash and of a gap.
const DASHES: &str = "8 8";

/// Letters of a line of a title, and of the legend.
const TITLE_LETTERS: usize = 72;
const KEY_LETTERS: usize = 34;

/// A picture on white, as SVG.
pub fn svg(picture: &Picture) -> String {
    markup(picture, theme("white", "black", "#dddddd"))
}

/// The same as PNG, two pixels for each of the SVG's.
pub fn png(picture: &Picture) -> Vec<u8> {
    let scene = scene(picture, theme("white", "black", "#dddddd"));
    PngBackend::new().render_scene(&scene).expect("a picture has a size")
}

/// The content of a file with a picture: PNG where its name ends so, otherwise SVG.
pub fn file(picture: &Picture, path: &Path) -> Vec<u8> {
    let is_png = path.extension().is_some_and(|word| word.eq_ignore_ascii_case("png"));
    if is_png { png(picture) } else { svg(picture).into_bytes() }
}

/// A picture inside a page, in the colours of its text, light or dark.
pub(super) fn inline(picture: &Picture) -> String {
    markup(picture, theme("none", "currentColor", "#88888855"))
}

fn theme(paper: &str, ink: &str, grid: &str) -> Theme {
    Theme {
        background: paper.into(),
        axis_color: ink.into(),
        tick_color: ink.into(),
        text_color: ink.into(),
        grid_color: grid.into(),
        ..Theme::light()
    }
}

fn markup(picture: &Picture, theme: Theme) -> String {
    let scene = scene(picture, theme);
    // kuva gives a size only: with a view box too, a narrow page shrinks the picture.
    let (width, height) = (scene.width.ceil(), scene.height.ceil());
    let title = html! { (clean(picture.title())) }.into_string();
    let head =
        format!("<svg role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\" ");
    SvgBackend::new().with_pretty(true).render_scene(&scene).replacen("<svg ", &head, 1)
}

fn scene(picture: &Picture, theme: Theme) -> Scene {
    match picture {
        Picture::Chart(chart) => lines(chart, theme),
        Picture::Bars(bars) => rows(bars, theme),
    }
}

fn lines(chart: &Chart, theme: Theme) -> Scene {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let ends = chart.series.iter().flat_map(|series| &series.ranges);
    let ends = ends.flat_map(|(_, range)| [range.least, range.most]);
    let x = ends_of(&chart.x, points().map(|point| point.0));
    let y = ends_of(&chart.y, points().map(|point| point.1).chain(ends));
    let keys = chart.series.iter().map(|series| key(series, &theme)).collect();
    let plots = chart.series.iter().flat_map(|series| marks(chart, series, &theme)).collect();
    let mut layout = Layout::new(x, y).with_y_label(plain(&chart.y.label));
    if chart.y.scale == Scale::Log {
        layout = layout.with_log_y().with_y_axis_min(y.0).with_y_axis_max(y.1);
    }
    if chart.x.scale == Scale::Log {
        layout = layout.with_log_x().with_x_axis_min(x.0).with_x_axis_max(x.1);
    }
    let layout = dressed(layout, &chart.title, &chart.x.label, theme);
    drawn(plots, sized(layout.with_legend_entries(keys), HEIGHT))
}

fn drawn(plots: Vec<Plot>, layout: Layout) -> Scene {
    let mut scene = render_multiple(plots, layout);
    // All of it lies inside the axes. kuva cuts off the half of a mark beyond an end of them, and
    // counts these cuts, so that the bytes of a picture would depend on the pictures before it.
    scene.elements.retain(|one| !matches!(one, Primitive::ClipStart { .. } | Primitive::ClipEnd));
    scene.defs.clear();
    scene
}

/// What all pictures have.
fn dressed(layout: Layout, title: &str, x_label: &str, theme: Theme) -> Layout {
    let format = TickFormat::Custom(Arc::new(tick));
    let layout = layout.with_title(plain(title)).with_title_size(16);
    let layout = layout.with_title_wrap(TITLE_LETTERS).with_legend_wrap(KEY_LETTERS);
    let layout = layout.with_x_label(plain(x_label)).with_label_size(13).with_theme(theme);
    let layout = layout.with_x_label_overlap(AxisLabelOverlap::Thin).with_legend_box(false);
    layout.with_tick_format(format).with_ticks(6)
}

/// Gives the inside of the axes its size, whatever the texts around them need.
fn sized(layout: Layout, height: f64) -> Layout {
    let around = ComputedLayout::from_layout(&layout);
    let width = WIDTH + around.margin_left + around.margin_right;
    layout.with_width(width).with_height(height + around.margin_top + around.margin_bottom)
}

/// The ends of an axis: a linear one has 0 on it.
fn ends_of(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let usable = values.filter(|value| can_show(axis, *value));
    let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match axis.scale {
        _ if low > high => (0.1, 1.0),
        Scale::Linear if low.min(0.0) < high.max(0.0) => (low.min(0.0), high.max(0.0)),
        Scale::Linear => (0.0, 1.0),
        // So that no mark lies on an axis.
        Scale::Log => (low / 1.1, high * 1.1),
    }
}

fn can_show(axis: &Axis, value: f64) -> bool {
    value.is_finite() && (axis.scale == Scale::Linear || value > 0.0)
}

/// The colour and the mark of a series.
fn look(series: &Series, theme: &Theme) -> (String, MarkerShape) {
    if series.form == Form::Published {
        return (theme.text_color.clone(), MarkerShape::Diamond);
    }
    let (colour, mark) = PALETTE[series.colour % PALETTE.len()];
    (colour.to_owned(), mark)
}

fn key(series: &Series, theme: &Theme) -> LegendEntry {
    let (colour, mark) = look(series, theme);
    let is_line = matches!(series.form, Form::Line | Form::Dashed);
    let shape = if is_line { LegendShape::Line } else { LegendShape::Marker(mark) };
    let dasharray = (series.form == Form::Dashed).then(|| "5 3".to_owned());
    LegendEntry { dasharray, ..entry(&series.name, &colour, shape) }
}

fn entry(name: &str, colour: &str, shape: LegendShape) -> LegendEntry {
    LegendEntry { label: plain(name), color: colour.into(), shape, dasharray: None }
}

/// The lines and the marks of a series. A value that cannot be shown parts the line.
fn marks(chart: &Chart, series: &Series, theme: &Theme) -> Vec<Plot> {
    let (colour, mark) = look(series, theme);
    let parts = series
        .points
        .split(|(x, y)| !can_show(&chart.x, *x) || !can_show(&chart.y, *y))
        .filter(|part| !part.is_empty());
    let mut plots = Vec::new();
    for part in parts {
        let line = LinePlot::new().with_data(part.iter().copied()).with_color(&*colour);
        let line = line.with_stroke_width(2.0);
        match series.form {
            Form::Line | Form::Marked => plots.push(Plot::Line(line)),
            Form::Dashed => {
                plots.push(Plot::Line(line.with_line_style(LineStyle::Custom(DASHES.into()))));
            }
            Form::Published => {}
        }
        if matches!(series.form, Form::Marked | Form::Published) {
            let dots = ScatterPlot::new().with_data(part.iter().copied()).with_color(&*colour);
            let range = |(x, y): &(f64, f64)| {
                let found = series.ranges.iter().find(|(at, _)| at.total_cmp(x).is_eq());
                found.map_or((0.0, 0.0), |(_, range)| (y - range.least, range.most - y))
            };
            let dots = dots.with_marker(mark).with_size(4.5);
            plots.push(Plot::Scatter(if series.ranges.is_empty() {
                dots
            } else {
                dots.with_y_err_asymmetric(part.iter().map(range))
            }));
        }
    }
    plots
}

/// Bars lie, so that names and numbers of any length have room beside them.
#[expect(clippy::cast_precision_loss, reason = "few bars")]
fn rows(bars: &Bars, theme: Theme) -> Scene {
    let values = bars.groups.iter().flat_map(|(_, values)| values.iter().copied());
    let ends = bars.ranges.iter().flatten().flat_map(|range| [range.least, range.most]);
    let (from, to) = ends_of(&bars.y, values.chain(ends));
    let (groups, names) = (bars.groups.len() as f64, bars.names.len().max(1) as f64);
    let share = names * BAR / (names * BAR + BETWEEN);
    let mut plot = BarPlot::new().with_horizontal(true).with_width(share);
    let (mut errors, mut numbers, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    // From the bottom up, as the axis has them.
    for (index, (group, values)) in bars.groups.iter().enumerate().rev() {
        let mut row = Vec::new();
        for (name, value) in values.iter().enumerate().rev() {
            let range = bars.ranges.get(index).and_then(|ranges| ranges.get(name));
            let range = range.filter(|range| range.least.is_finite() && range.most.is_finite());
            errors.push(range.map_or((0.0, 0.0), |one| (value - one.least, one.most - value)));
            let shown = if value.is_finite() { *value } else { 0.0 };
            row.push((shown, PALETTE[name % PALETTE.len()].0));
            let above = (name as f64 + 0.5) / values.len() as f64 - 0.5;
            let place = labels.len() as f64 + 1.0 - share * above;
            numbers.push((range.map_or(shown, |range| range.most).max(0.0), place, number(*value)));
        }
        plot = plot.with_group(plain(group), row);
        labels.push(plain(group));
    }
    if !bars.ranges.is_empty() {
        plot = plot.with_asymmetric_error(errors).with_error_color(&*theme.text_color);
    }
    // Room for the number behind the longest bar.
    let layout = Layout::new((from, to), (0.5, groups + 0.5)).with_y_categories(labels);
    let layout = layout.with_x_axis_min(from).with_x_axis_max(to + 0.12 * (to - from));
    let mut layout = dressed(layout, &bars.title, &bars.y.label, theme);
    if bars.names.len() > 1 {
        let keys = bars.names.iter().zip(PALETTE.iter().cycle());
        let keys = keys.map(|(name, look)| entry(name, look.0, LegendShape::Rect));
        layout = layout.with_legend_entries(keys.collect());
    }
    let layout = sized(layout, (groups * (names * BAR + BETWEEN)).max(2.0 * names * BAR));
    let places = ComputedLayout::from_layout(&layout);
    let mut scene = drawn(vec![Plot::Bar(plot)], layout);
    scene.elements.extend(numbers.into_iter().map(|(end, place, content)| Primitive::Text {
        x: places.map_x(end) + 6.0,
        y: places.map_y(place) + 4.0,
        content,
        size: 11,
        anchor: TextAnchor::Start,
        rotate: None,
        bold: false,
        color: None,
    }));
    scene
}

/// A text as kuva shows it unchanged: a `$` would begin a formula.
fn plain(text: &str) -> String {
    clean(text).replace('$', "\\$")
}

/// A text in one line, of letters that XML takes.
fn clean(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A number beside an axis, with the prefix of a unit where it would be long.
fn tick(value: f64) -> String {
    let size = value.abs();
    let (power, prefix) = match size {
        _ if size >= 1e12 => (1e12, " T"),
        _ if size >= 1e9 => (1e9, " G"),
        _ if size >= 1e6 => (1e6, " M"),
        _ if size >= 1e4 => (1e3, " k"),
        _ if size >= 1e-2 || size == 0.0 => (1.0, ""),
        _ if size >= 1e-3 => (1e-3, " m"),
        _ => (1e-6, " µ"),
    };
    let digits = format!("{:.3}", value / power);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{}{prefix}", if digits == "-0" { "0" } else { digits })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::Range;

    /// Numbers in the lines of the elements that have `part`, by the names of attributes.
    fn found<const N: usize>(svg: &str, part: &str, names: [&str; N]) -> Vec<[f64; N]> {
        let value = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!(" {name}=\"")).expect("an attribute");
            rest.split('"').next().and_then(|text| text.parse().ok()).expect("a number")
        };
        let lines = svg.lines().filter(|line| line.contains(part));
        lines.map(|line| names.map(|name| value(line, name))).collect()
    }

    /// Where the only such text is.
    fn text(svg: &str, text: &str) -> [f64; 2] {
        let all = found(svg, &format!(">{text}</text>"), ["x", "y"]);
        assert_eq!(all.len(), 1, "{text}: {svg}");
        all[0]
    }

    fn assert_near(one: f64, other: f64) {
        assert!((one - other).abs() < 0.1, "{one} and {other}");
    }

    fn range(least: f64, most: f64) -> Range {
        Range { least, most }
    }

    fn chart() -> Chart {
        let points = vec![(2.0, 20.0), (4.0, 40.0)];
        let mut marked = Series::new("a <b> & $1 or $2", Form::Marked, 0, points);
        marked.ranges = vec![(2.0, range(20.0, 20.0)), (4.0, range(30.0, 60.0))];
        let gap = vec![(0.0, 10.0), (2.0, 10.0), (3.0, f64::NAN), (4.0, 10.0), (6.0, 10.0)];
        Chart {
            title: "\"title\"".into(),
            x: Axis::linear("x, MB/s"),
            y: Axis::linear("y, µs"),
            series: vec![marked, Series::new("theory", Form::Dashed, 1, gap)],
        }
    }

    #[test]
    fn chart_has_marks_where_axes_have_their_values() {
        let svg = svg(&Picture::Chart(chart()));
        let dots = found(&svg, "<circle", ["cx", "cy"]);
        assert_near(dots[0][0], text(&svg, "2")[0]);
        assert_near(dots[1][0], text(&svg, "4")[0]);
        let down = dots[0][1] - text(&svg, "20")[1];
        assert_near(dots[1][1] - text(&svg, "40")[1], down);
        let errors = found(&svg, "stroke=\"#0072b2\" stroke-width=\"1\"", ["x1", "y1", "y2"]);
        let [x, low, high] = errors[3];
        assert_near(x, dots[1][0]);
        assert_near(low - text(&svg, "30")[1], down);
        assert_near(high - text(&svg, "60")[1], down);
        let dashed = svg.lines().filter(|line| line.contains("<path") && line.contains(DASHES));
        assert_eq!(dashed.count(), 2, "the value that is none parts the line: {svg}");
        for part in
            ["a &lt;b&gt; &amp; $1 or $2", "theory", "x, MB/s", "y, µs", "&quot;title&quot;"]
        {
            text(&svg, part);
        }
        assert!(svg.contains("aria-label=\"&quot;title&quot;\""), "{svg}");
    }

    #[test]
    fn axis_log_has_equal_ratios() {
        let points = vec![(1.0, 5.0), (10.0, 5.0), (0.0, 5.0), (100.0, 5.0)];
        let series = vec![Series::new("s", Form::Marked, 0, points)];
        let svg = svg(&Picture::Chart(Chart { x: Axis::log("x"), series, ..chart() }));
        let dots = found(&svg, "<circle", ["cx"]);
        // The last is the key's: 0 has no place.
        assert_eq!(dots.len(), 4, "{svg}");
        assert_near(dots[1][0] - dots[0][0], dots[2][0] - dots[1][0]);
        assert_near(dots[1][0], text(&svg, "10")[0]);
        assert_near(dots[2][0], text(&svg, "100")[0]);
    }

    #[test]
    fn bars_reach_their_values_and_say_them() {
        let mut bars = Bars {
            title: "t".into(),
            y: Axis::linear("wa"),
            names: vec!["one".into(), "two".into()],
            ranges: Vec::new(),
            groups: vec![("a\nb".into(), vec![1.6, 3.2]), ("c".into(), vec![f64::NAN, 6.4])],
        };
        let drawn = svg(&Picture::Bars(bars.clone()));
        let rects = found(&drawn, &format!("height=\"{BAR}\""), ["x", "y", "width"]);
        let of = |value: &str| {
            let [x, y] = text(&drawn, value);
            let near = rects
                .iter()
                .find(|rect| (rect[1] + BAR / 2.0 + 4.0 - y).abs() < 0.1)
                .expect("a bar");
            assert_near(near[0] + near[2] + 6.0, x);
            *near
        };
        let (short, long, longest) = (of("1.6"), of("3.2"), of("6.4"));
        assert_near(2.0 * short[2], long[2]);
        assert_near(2.0 * long[2], longest[2]);
        assert_near(of("–")[2], 0.0);
        // As they are listed, and each group at its name.
        assert!(short[1] < long[1] && long[1] < longest[1], "{drawn}");
        assert!(short[1] < text(&drawn, "a b")[1] && text(&drawn, "a b")[1] < long[1] + BAR);
        assert!(longest[1] - BAR < text(&drawn, "c")[1], "{drawn}");
        bars.ranges = vec![vec![range(1.0, 2.0), range(3.0, 4.0)]];
        let drawn = svg(&Picture::Bars(bars));
        let errors = found(&drawn, "stroke-width=\"1.5\"", ["x1", "x2"]);
        assert!(errors.iter().any(|[_, most]| (most + 6.0 - text(&drawn, "3.2")[0]).abs() < 0.1));
    }

    #[test]
    fn picture_has_same_bytes_each_time_as_svg_and_png() {
        let picture = Picture::Chart(chart());
        assert_eq!(svg(&picture), svg(&picture));
        assert_eq!(file(&picture, Path::new("a.svg")), svg(&picture).into_bytes());
        let png = file(&picture, Path::new("a.PNG"));
        assert!(png.starts_with(b"\x89PNG") && png == file(&picture, Path::new("b.png")));
    }

    #[test]
    fn ticks_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (1200.0, "1200"),
            (25e3, "25 k"),
            (-1.5e9, "-1.5 G"),
            (0.002, "2 m"),
            (5e-5, "50 µ"),
        ] {
            assert_eq!(tick(value), text);
        }
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let value = prop_oneof![-10.0..10.0, 1e3..1e12, Just(f64::NAN), Just(0.0)];
        proptest::collection::vec(value, 6)
    }

    proptest! {
        #[test]
        fn any_texts_and_values_can_be_drawn(
            (title, names) in ("\\PC*|[\0-~]*", proptest::collection::vec("\\PC*", 0..9)),
            (x, y) in (values(), values()),
            is_log in any::<bool>(),
        ) {
            let axis = if is_log { Axis::log(&title) } else { Axis::linear(&title) };
            let points: Vec<_> = x.iter().copied().zip(y.iter().copied()).collect();
            let series = |(at, name): (usize, &String)| {
                Series::new(name, Form::Marked, at, points.clone())
            };
            let series = names.iter().enumerate().map(series).collect();
            let groups = names.iter().map(|name| (name.clone(), y.clone())).collect();
            let (x, y, six) = (axis.clone(), Axis::linear(&title), "one".to_owned());
            let names = vec![six; 6];
            let chart = Chart { title: title.clone(), x, y: axis, series };
            let bars = Bars { title, y, names, groups, ranges: Vec::new() };
            for picture in [Picture::Chart(chart), Picture::Bars(bars)] {
                let svg = svg(&picture);
                prop_assert!(!svg.contains("=\"NaN") && !svg.contains("=\"inf"), "{}", svg);
                prop_assert!(svg.chars().all(|char| char == '\n' || !char.is_control()));
            }
        }
    }
}
