//! A figure of a sweep as a picture: over the field with most numbers if there is one, otherwise as
//! bars.

use super::{Point, Sweep};
use crate::error::{Result, SimError};
use crate::report::{Axis, Bars, Chart, Form, Picture, Range, Series};

/// An axis over more than this ratio is logarithmic.
const RATIO_MAX: f64 = 100.0;

impl Sweep {
    /// The picture of a figure, which is a column of the CSV.
    pub fn picture(&self, points: &[Point], figure: &str) -> Result<Picture> {
        if points.iter().all(|point| !point.figures.contains_key(figure)) {
            let first = points.first().map(|point| &point.figures);
            let known: Vec<&str> = first.into_iter().flatten().map(|(name, _)| &**name).collect();
            let what = format!("this sweep measures no {figure}: one of {}", known.join(", "));
            return Err(SimError::Config { what });
        }
        let seeds = match self.seeds {
            1 => String::new(),
            seeds => format!(": median, least and most of {seeds} seeds"),
        };
        let title = match self.names.as_slice() {
            [] => format!("{figure}{seeds}"),
            names => format!("{figure} by {}{seeds}", names.join(", ")),
        };
        let view = View { title, figure, points };
        Ok(match self.numbers_of() {
            Some(name) => view.chart(name, &self.names),
            None => view.bars(&self.names),
        })
    }

    /// The field with most values, if all of them are numbers.
    fn numbers_of(&self) -> Option<&str> {
        let values_of = |at: usize| {
            let mut values: Vec<&String> = self.runs.iter().map(|run| &run.values[at]).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let numbers = self.names.iter().enumerate().filter_map(|(at, name)| {
            let values = values_of(at);
            let is_number = |value: &&String| value.parse::<f64>().is_ok_and(f64::is_finite);
            (values.len() > 1 && values.iter().all(is_number)).then_some((values.len(), name))
        });
        // Of several, the first.
        let most = numbers.rev().max_by_key(|(count, _)| *count);
        most.map(|(_, name)| name.as_str())
    }
}

/// The content of a picture.
struct View<'a> {
    title: String,
    figure: &'a str,
    points: &'a [Point],
}

impl View<'_> {
    fn chart(self, name: &str, names: &[String]) -> Picture {
        let others: Vec<&String> = names.iter().filter(|other| *other != name).collect();
        let mut series: Vec<Series> = Vec::new();
        let mut values = Vec::new();
        for point in self.points {
            let Some(spread) = point.figures.get(self.figure) else { continue };
            let at: f64 = point.values[name].parse().unwrap_or(f64::NAN);
            values.push(at);
            let label = self.label(point, &others);
            let found = series.iter().position(|one| one.name == label).unwrap_or_else(|| {
                series.push(Series::new(&label, Form::Marked, series.len(), Vec::new()));
                series.len() - 1
            });
            series[found].points.push((at, spread.median));
            if point.runs > 1 {
                let range = Range { least: spread.least, most: spread.most };
                series[found].ranges.push((at, range));
            }
        }
        for one in &mut series {
            one.points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let label = if name == "op" { "op, % of the user capacity" } else { name };
        let is_log = least > 0.0 && most / least > RATIO_MAX;
        let x = if is_log { Axis::log(label) } else { Axis::linear(label) };
        Picture::Chart(Chart { title: self.title, x, y: Axis::linear(self.figure), series })
    }

    fn bars(self, names: &[String]) -> Picture {
        let (first, others) = match names.split_first() {
            Some((first, others)) => (vec![first], others.iter().collect()),
            None => (Vec::new(), Vec::new()),
        };
        let mut labels: Vec<String> = Vec::new();
        let mut groups: Vec<(String, Vec<f64>)> = Vec::new();
        let mut ranges: Vec<Vec<Range>> = Vec::new();
        for point in self.points {
            let (group, label) = (self.label(point, &first), self.label(point, &others));
            if !labels.contains(&label) {
                labels.push(label);
            }
            if groups.last().is_none_or(|(last, _)| *last != group) {
                groups.push((group, Vec::new()));
                ranges.push(Vec::new());
            }
            let spread = point.figures.get(self.figure);
            let of = |value: Option<f64>| value.unwrap_or(f64::NAN);
            let (values, ends) = (groups.last_mut(), ranges.last_mut());
            let (values, ends) = values.zip(ends).expect("one was pushed");
            values.1.push(of(spread.map(|spread| spread.median)));
            let (least, most) =
                (of(spread.map(|spread| spread.least)), of(spread.map(|spread| spread.most)));
            ends.push(Range { least, most });
        }
        if self.points.iter().all(|point| point.runs == 1) {
            ranges.clear();
        }
        let y = Axis::linear(self.figure);
        Picture::Bars(Bars { title: self.title, y, names: labels, ranges, groups })
    }

    /// The values of some fields; without any, the figure's name.
    fn label(&self, point: &Point, names: &[&String]) -> String {
        if names.is_empty() {
            return self.figure.to_owned();
        }
        let values: Vec<&str> = names.iter().map(|name| point.values[*name].as_str()).collect();
        values.join(", ")
    }
}
