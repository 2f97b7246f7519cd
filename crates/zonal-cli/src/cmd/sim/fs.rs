//! `zonal sim fs`: compares how file systems wear out the flash of simulated drives.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use zonal::output;
use zonal_eval::{Comparison, Verify, compare};
use zonal_sim::report::draw;

use crate::args::Global;
use crate::args::sim::SimFs;
use crate::args::simulated::Simulated;
use crate::output::progress::{self, Unit};
use crate::output::table::Table;
use crate::output::{json, size};

/// The files in the output directory.
const FILES: [&str; 4] = ["fs.csv", "fs.json", "fs.toml", "fs.svg"];

/// Runs every set-up and prints the comparison.
pub(crate) fn run(global: &Global, args: &SimFs) -> Result<()> {
    let SimFs { config, set, seed, .. } = args;
    let simulated = Simulated { config: config.clone(), set: set.clone(), seed: *seed };
    let config = super::load(&simulated)?;
    let inputs = [PathBuf::from(&args.config)];
    if let Some(folder) = &args.out {
        super::check_outputs(folder, &FILES, &inputs)?;
    }
    let verify = if args.no_verify { Verify::Nothing } else { Verify::Everything };
    let mut bar: Option<(String, ProgressBar)> = None;
    let compared = compare(&config, verify, &mut |set_up, at| {
        if bar.as_ref().is_none_or(|(name, _)| name != set_up) {
            let next = progress::bar(at.total, Unit::Bytes, set_up);
            if let Some((_, ended)) = bar.replace((set_up.to_owned(), next)) {
                ended.finish_and_clear();
            }
        }
        if let Some((_, bar)) = &bar {
            bar.set_position(at.done);
        }
    });
    if let Some((_, bar)) = bar {
        bar.finish_and_clear();
    }
    let compared = compared?;
    if let Some(folder) = &args.out {
        write_all(folder, &compared, &inputs)
            .with_context(|| format!("writing to {}", folder.display()))?;
    }
    if global.json {
        return json::document(&compared);
    }
    say!("{}", text(&compared));
    Ok(())
}

fn text(compared: &Comparison) -> String {
    let heads =
        ["set-up", "written", "fs wrote", "fs wa", "drive wa", "product", "erases", "wear", "s"];
    let mut table = Table::new(1, &heads);
    for row in &compared.set_ups {
        table.row(vec![
            row.outcome.name.clone(),
            size(row.outcome.app_bytes),
            size(row.outcome.fs_bytes),
            ratio(row.fs_wa),
            ratio(row.drive_wa),
            ratio(row.total_wa),
            row.outcome.erased.to_string(),
            ratio(row.wear),
            format!("{:.1}", row.virtual_s),
        ]);
    }
    let Comparison { config, op_nominal, op_effective, raw_bytes, user_bytes, .. } = compared;
    format!(
        "{}\nflash {}, user capacity {}: over-provisioning {:.1} % nominal, {:.1} % effective; \
         files take {:.0} %\nwear: flash erased per byte written by programs; s: virtual \
         seconds, one command at a time; seed {}\n{}",
        table.text(),
        size(*raw_bytes),
        size(*user_bytes),
        op_nominal * 100.0,
        op_effective * 100.0,
        config.workload.fill * 100.0,
        config.seed,
        if compared.set_ups.iter().any(|row| row.total_wa.is_nan()) {
            "–: nothing was written while measuring\n"
        } else {
            ""
        },
    )
}

/// A ratio, or a dash if there is none.
fn ratio(number: f64) -> String {
    if number.is_nan() { "–".into() } else { format!("{number:.2}") }
}

/// Writes the table, all numbers, the config that repeats the run, and the picture.
fn write_all(folder: &Path, compared: &Comparison, inputs: &[PathBuf]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let texts = [
        compared.table().csv(),
        serde_json::to_string_pretty(compared)? + "\n",
        compared.config.to_toml(),
        draw::svg(&compared.picture()),
    ];
    for (name, text) in FILES.iter().zip(texts) {
        output::write(&folder.join(name), text, inputs)?;
    }
    Ok(())
}
