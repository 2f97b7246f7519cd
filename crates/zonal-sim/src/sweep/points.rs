//! The figures of each combination: the median over its runs, and how far these lie apart.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::{FIGURES, Sweep, store};
use crate::error::{Result, SimError};

/// A combination of values, and the figures of its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// The swept fields by column, and their values.
    pub values: BTreeMap<String, String>,
    /// Its runs, which differ in their seeds.
    pub runs: usize,
    /// Figures that all of its runs measured, by column.
    pub figures: BTreeMap<String, Spread>,
}

/// A figure over some runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The median; of an even number of runs, the mean of the two in the middle.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of some runs; `None` without any.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { least, median, most })
    }
}

impl Sweep {
    /// The points of a CSV that holds all runs, in the order of the combinations.
    pub fn points(&self, csv: &Path) -> Result<Vec<Point>> {
        let rows = store::read(csv)?;
        let Some((head, rows)) = rows.split_first().filter(|(_, rows)| rows.len() == self.len())
        else {
            return Err(SimError::sweep(csv, 0, "runs of the sweep are missing"));
        };
        let figure_columns = FIGURES.iter().map(|name| {
            let at = head.iter().position(|column| column == name);
            (*name, at.expect("the sweep has written it"))
        });
        let columns: Vec<(&str, usize)> = figure_columns.collect();
        let points =
            rows.chunks(self.seeds).zip(self.runs.chunks(self.seeds)).map(|(rows, runs)| {
                let spread = |at: usize| {
                    let number =
                        |row: &Vec<String>| row[at].parse().ok().filter(|n: &f64| n.is_finite());
                    Spread::of(rows.iter().map(number).collect::<Option<_>>()?)
                };
                let figures = columns.iter();
                Point {
                    values: self
                        .names
                        .iter()
                        .cloned()
                        .zip(runs[0].values.iter().cloned())
                        .collect(),
                    runs: rows.len(),
                    figures: figures
                        .filter_map(|(name, at)| Some(((*name).to_owned(), spread(*at)?)))
                        .collect(),
                }
            });
        Ok(points.collect())
    }
}
