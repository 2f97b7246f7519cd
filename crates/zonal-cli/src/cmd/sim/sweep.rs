//! `zonal sim sweep`: many runs into one CSV.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use zonal_sim::report::{draw, number};
use zonal_sim::sweep::{Point, Spread, Sweep};

use crate::args::Global;
use crate::args::sweep::SimSweep;
use crate::output::table::Table;
use crate::output::{count, json, progress};

/// Most points that are printed.
const POINTS_MAX: usize = 100;

/// A sweep, of which nothing is left to do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Swept {
    /// Runs of the whole sweep.
    runs: usize,
    /// Runs that were in the file.
    found: usize,
    /// Runs done now.
    done: usize,
    /// Each combination and what its runs came to, once all runs are in the file.
    points: Vec<Point>,
}

/// Does the runs that the CSV does not hold yet.
pub(crate) fn run(global: &Global, args: &SimSweep) -> Result<()> {
    let config = PathBuf::from(&args.simulated.config);
    let outputs: Vec<&PathBuf> = std::iter::once(&args.out).chain(&args.plot).collect();
    super::check_outputs(Path::new(""), &outputs, std::slice::from_ref(&config))?;
    let (text, settings) = super::parts(&args.simulated)?;
    let sweep = Sweep::plan(&text, &settings, &args.over, args.seeds)?;
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = progress::bar(0, progress::Unit::Runs, "sweeping");
    let ran = sweep.run(&args.out, args.jobs.unwrap_or(cores), &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    let (found, done) = ran?;
    let runs = sweep.len();
    let points = sweep.points(&args.out)?;
    if let Some(plot) = &args.plot {
        let picture = draw::file(&sweep.picture(&points, &args.figure)?, plot);
        zonal::output::write(plot, picture, &[config, args.out.clone()])
            .with_context(|| format!("writing {}", plot.display()))?;
    }
    if global.json {
        return json::document(&Swept { runs, found, done, points });
    }
    if !points.is_empty() && points.len() <= POINTS_MAX {
        sayln!("{}", table(&sweep, &points, &args.figure));
    }
    let [runs, found, done] = [runs, found, done].map(|number| count(number as u64));
    sayln!("{done} runs done, {found} were there, of {runs} in all: {}", args.out.display());
    if let Some(plot) = &args.plot {
        sayln!("{}", plot.display());
    }
    Ok(())
}

/// A figure of all points; where there are several seeds, its median and how far they lie apart.
fn table(sweep: &Sweep, points: &[Point], figure: &str) -> String {
    let has_seeds = points.iter().any(|point| point.runs > 1);
    let mut heads: Vec<&str> = sweep.fields().iter().map(String::as_str).collect();
    let words = heads.len();
    heads.push(figure);
    if has_seeds {
        heads.extend(["least", "most"]);
    }
    let mut table = Table::new(words, &heads);
    for point in points {
        let spread = point.figures.get(figure);
        let mut row: Vec<String> =
            sweep.fields().iter().map(|field| point.values[field].clone()).collect();
        let shown = |of: fn(&Spread) -> f64| spread.map_or_else(String::new, |s| number(of(s)));
        row.push(shown(|spread| spread.median));
        if has_seeds {
            row.extend([shown(|spread| spread.least), shown(|spread| spread.most)]);
        }
        table.row(row);
    }
    table.text()
}
