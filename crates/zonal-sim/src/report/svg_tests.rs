//! Pictures: their parts, and that no text is cut or lies over another.

use proptest::prelude::*;

use super::*;
use crate::report::{Axis, Range};

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

fn bars() -> Bars {
    Bars {
        title: "t".into(),
        y: Axis::linear("wa"),
        names: vec!["one".into(), "two".into()],
        ranges: Vec::new(),
        groups: vec![("a\nb".into(), vec![1.0, 2.0]), ("c".into(), vec![f64::NAN, 4.0])],
    }
}

/// Texts of a picture that are cut or overlap.
fn faults(svg: &Svg) -> Vec<String> {
    text::faults(&svg.places, (svg.frame.width, svg.frame.height))
}

#[test]
fn chart_has_all_its_parts() {
    let drawn = draw_chart(&chart());
    let Frame { left, top, right, bottom, width, height, .. } = drawn.frame;
    let svg = drawn.end();
    assert!(svg.contains("a &lt; b &amp; c</title>"), "{svg}");
    // The background covers the page's own, whatever that is.
    let background = format!("<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>");
    assert!(svg.contains(&background), "{svg}");
    // From corner to corner: the axes end at 2 and 10.
    assert!(svg.contains(&format!("M{left} {bottom} H{right} V{top}")), "{svg}");
    assert!(
        svg.contains(&format!(
            "M{left} {bottom} L{right} {top}\" fill=\"none\" stroke=\"#d55e00\" \
             stroke-width=\"2\" stroke-linejoin=\"round\" stroke-dasharray"
        )),
        "{svg}"
    );
    // The point above the axis parts the line.
    let part = |x: f64, share: f64| format!("\"M{x} {}\"", bottom - share * (bottom - top));
    assert!(svg.contains(&part(left, 0.1)) && svg.contains(&part(right, 0.5)), "{svg}");
    // One published point and its key.
    assert_eq!(svg.matches("l7 7 l-7 7").count(), 2);
    for series in chart().series {
        assert!(svg.contains(&format!(">{}</text>", series.name)), "{}", series.name);
    }
}

#[test]
fn bars_stand_on_axis() {
    let svg = draw(&Picture::Bars(bars()));
    // Three bars of heights 1 : 2 : 4, and none for NaN.
    for height in ["80", "160", "320"] {
        assert!(svg.contains(&format!("height=\"{height}\" fill")), "{height}: {svg}");
    }
    assert_eq!(svg.matches("stroke=\"#fff\"").count(), 3);
}

#[test]
fn error_bars_reach_from_least_to_most() {
    let range = |least, most| Range { least, most };
    let mut chart = chart();
    chart.series[0].ranges = vec![(1.0, range(2.0, 4.0)), (1.0, range(2.0, 40.0))];
    let drawn = draw_chart(&chart);
    let middle = drawn.frame.across(0.5);
    let (least, most) = (drawn.frame.up(0.2), drawn.frame.up(0.4));
    let svg = drawn.end();
    assert!(svg.contains(&format!("M{middle} {least} V{most}")), "{svg}");
    assert_eq!(svg.matches("stroke-width=\"1.5\"").count(), 1, "one ends outside the axes");
    let mut bars = bars();
    bars.ranges = vec![vec![range(0.5, 1.5), range(2.0, 8.0)]];
    let drawn = draw_bars(&bars);
    let (most, number) = (drawn.frame.up(1.0), near(drawn.frame.up(1.0) - 4.0));
    let svg = drawn.end();
    assert!(svg.contains(&format!("V{most}")), "the axis reaches the most: {svg}");
    assert!(svg.contains(&format!("y=\"{number}\"")), "the number is above it: {svg}");
}

#[test]
fn chart_drawing_is_reproducible() {
    let picture = Picture::Chart(chart());
    assert_eq!(draw(&picture), draw(&picture.clone()));
}

/// These were once cut: long names in the legend, and numbers above many narrow bars.
#[test]
fn bars_many_and_narrow_keep_texts_apart() {
    let names = ["ext4", "zonefs Env", "plugin", "in place without TRIM, conventional drive"];
    let groups = ["fillrandom", "fillrandom: readseq again", "fillseq", "overwrite", "readseq"];
    let bars = Bars {
        title: "LevelDB, 16 B/4 KiB: operations a second beside ext4, which is the 1".into(),
        y: Axis::linear("bytes written below per byte of a program, and as long as it can be"),
        names: names.map(str::to_owned).into(),
        ranges: Vec::new(),
        groups: groups.map(|name| (name.to_owned(), vec![1.0, 0.232, 0.246, 0.034])).into(),
    };
    let svg = draw_bars(&bars);
    assert_eq!(faults(&svg), [""; 0]);
    assert!(svg.end().contains("rotate(-90"), "numbers stand upright");
}

/// Words and numbers as long as they come.
fn words() -> impl Strategy<Value = String> {
    "[A-Za-z0-9µ%.,]{1,14}( [a-zA-Z0-9()×]{1,12}){0,9}"
}

fn values(count: usize) -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![
        0.0..10.0,
        1e3..1e9,
        Just(f64::NAN),
        (1..9_i32).prop_map(|power| 10_f64.powi(power)),
    ];
    proptest::collection::vec(value, count)
}

proptest! {
    #[test]
    fn bars_of_any_texts_keep_them_apart(
        title in words(),
        names in proptest::collection::vec(words(), 1..9),
        groups in proptest::collection::vec((words(), values(9)), 1..9),
    ) {
        let count = names.len();
        let groups = groups.into_iter().map(|(name, all)| (name, all[..count].to_vec())).collect();
        let y = Axis::linear(&title);
        let bars = Bars { title, y, names, ranges: Vec::new(), groups };
        let svg = draw_bars(&bars);
        prop_assert_eq!(faults(&svg), Vec::<String>::new());
    }

    #[test]
    fn charts_of_any_texts_keep_them_apart(
        title in words(),
        labels in (words(), words()),
        series in proptest::collection::vec((words(), values(6), values(6)), 0..14),
        is_log in (any::<bool>(), any::<bool>()),
    ) {
        let axis = |label: &str, is_log| if is_log { Axis::log(label) } else { Axis::linear(label) };
        let series = series.into_iter().enumerate().map(|(at, (name, x, y))| {
            Series::new(&name, Form::Marked, at, x.into_iter().zip(y).collect())
        });
        let (x, y) = (axis(&labels.0, is_log.0), axis(&labels.1, is_log.1));
        let chart = Chart { title, x, y, series: series.collect() };
        let svg = draw_chart(&chart);
        prop_assert_eq!(faults(&svg), Vec::<String>::new());
    }
}
