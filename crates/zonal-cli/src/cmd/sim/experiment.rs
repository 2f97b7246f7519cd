//! `zonal sim experiment` and `zonal sim reproduce`: experiments, their files, and the page.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use schemars::JsonSchema;
use serde::Serialize;
use zonal_sim::experiment::{self, Changes, Experiment, Overlay, Scope, reproduce as all};
use zonal_sim::report::page::{Program, PublishedChart, Section};
use zonal_sim::report::{Cell, Table as Numbers, number};

use crate::args::Global;
use crate::args::sim::{How, SimExperiment, SimReproduce};
use crate::output::table::Table;
use crate::output::{json, progress};

/// The page that compares published values with ours.
const PAGE: &str = "index.html";

/// Runs one experiment; prints its tables, or writes its files.
pub(crate) fn run(global: &Global, args: &SimExperiment) -> Result<()> {
    let text = match &args.config {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?
        }
        None => args.name.text().to_owned(),
    };
    let changes = Changes { settings: args.set.clone(), ..changes(&args.how)? };
    if let Some(overlay) = changes.overlays.iter().find(|overlay| overlay.of != args.name) {
        let (of, name) = (overlay.of.word(), args.name.word());
        anyhow::bail!("--overlay: results for the experiment {of}, not for {name}");
    }
    let from =
        args.config.as_ref().map_or(args.name.word().into(), |path| path.display().to_string());
    let experiment = Experiment::new(args.name, &text, &changes)
        .with_context(|| format!("the config {from}"))?;
    let inputs: Vec<_> = args.config.iter().chain(overlaid(&args.how)).cloned().collect();
    if let Some(dir) = &args.out {
        super::check_outputs(dir, &experiment::always(args.name.word()), &inputs)?;
    }
    let sections = simulate(vec![experiment], &args.how)?;
    let files = args.out.as_ref().map(|dir| save(&sections, dir, &inputs)).transpose()?;
    for section in &sections {
        if global.json {
            say!("{}", experiment::json(section));
        } else {
            print(section);
        }
    }
    if !global.json {
        files.iter().flatten().for_each(|file| sayln!("{}", file.display()));
    }
    Ok(())
}

/// All experiments.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Written<'a> {
    /// The version of the program and its commit.
    program: &'a Program,
    /// The page that compares published values with ours.
    page: &'a Path,
    /// Published charts beside ours.
    charts: Vec<&'a PublishedChart>,
    /// The files that were written.
    files: Vec<PathBuf>,
}

/// Runs all experiments and writes the page.
pub(crate) fn reproduce(global: &Global, args: &SimReproduce) -> Result<()> {
    let changes = changes(&args.how)?;
    let inputs: Vec<_> = overlaid(&args.how).cloned().collect();
    super::check_outputs(&args.out, &[PAGE], &inputs)?;
    let sections = simulate(all::all(&changes)?, &args.how)?;
    let files = save(&sections, &args.out, &inputs)?;
    let path = args.out.join(PAGE);
    let program = program();
    let page = all::page(sections, &changes, &program);
    zonal::output::write(&path, page.html(), &inputs)
        .with_context(|| format!("writing {}", path.display()))?;
    let charts: Vec<_> = page.sections.iter().flat_map(|section| &section.charts).collect();
    if global.json {
        return json::document(&Written { program: &program, page: &path, charts, files });
    }
    say!("{}", charts_text(&charts));
    sayln!("\n{program}\n{}", path.display());
    Ok(())
}

/// This program. Its commit is known if it was built in a checkout.
fn program() -> Program {
    Program {
        version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("ZONAL_COMMIT").map(Into::into),
    }
}

fn changes(how: &How) -> Result<Changes> {
    let scope = if how.quick { Scope::Quick } else { Scope::Full };
    let overlays = how.overlay.iter().map(|(name, path)| {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Overlay::from_zbdbench(name, &text).map_err(|what| anyhow!("{} {what}", path.display()))
    });
    let overlays = overlays.collect::<Result<_>>()?;
    Ok(Changes { seed: how.seed, scope, settings: Vec::new(), overlays })
}

fn simulate(experiments: Vec<Experiment>, how: &How) -> Result<Vec<Section>> {
    let one_each = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let bar = progress::bar(0, progress::Unit::Share, "simulating");
    let sections = experiment::run(experiments, how.jobs.unwrap_or(one_each), &|progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    })?;
    bar.finish_and_clear();
    Ok(sections)
}

/// The files with results of real drives.
fn overlaid(how: &How) -> impl Iterator<Item = &PathBuf> {
    how.overlay.iter().map(|(_, path)| path)
}

fn save(sections: &[Section], dir: &Path, inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let mut files = Vec::new();
    for section in sections {
        files.extend(experiment::save(section, dir, inputs)?);
    }
    Ok(files)
}

/// Prints the claims and the shorter tables; time series are for files.
fn print(section: &Section) {
    const ROWS: usize = 100;
    sayln!("{}\n", section.title);
    for table in section.tables.iter().filter(|table| table.rows.len() <= ROWS) {
        sayln!("{}", numbers(table));
    }
    if !section.charts.is_empty() {
        sayln!("{}", charts_text(&section.charts.iter().collect::<Vec<_>>()));
    }
}

fn numbers(numbers: &Numbers) -> String {
    let heads: Vec<&str> = numbers.columns.iter().map(String::as_str).collect();
    let mut table = Table::new(1, &heads);
    for row in &numbers.rows {
        let cell = |cell: &Cell| match cell {
            Cell::Number(value) => number(*value),
            Cell::Text(text) => text.clone(),
            Cell::Empty => String::new(),
        };
        table.row(row.iter().map(cell).collect());
    }
    table.text()
}

/// All values of charts, in the short form of the page.
fn charts_text(charts: &[&PublishedChart]) -> String {
    let mut table = Table::new(2, &["what", "published", "ours", "error", "ours is"]);
    for chart in charts {
        let title = std::iter::once(chart.title.clone());
        table.row(title.chain(std::iter::repeat_n(String::new(), 4)).collect());
        for claim in &chart.claims {
            table.row(vec![
                format!("  {}", claim.what),
                claim.published.clone(),
                format!("{} {}", number(claim.ours), claim.unit),
                claim.error.to_string(),
                claim.basis.words().to_owned(),
            ]);
        }
    }
    table.text()
}
