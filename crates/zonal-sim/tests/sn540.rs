//! The preset `sn540` beside the drive that it is a model of. Time is simulated, so the figures are
//! the same on every machine.
//!
//! `WRITE_PAGE=1` prints the page anew.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use zonal_sim::measured::sn540::{Tenth, overwrite_config, page, points, tenths};
use zonal_sim::measured::{Compared, compare, mean_and_worst};
use zonal_sim::preset::Preset;
use zonal_sim::report::page::Basis;
use zonal_sim::{Config, timed};

/// Slightly above what was reached.
const MEAN_MAX: f64 = 0.06;
const WORST_MAX: f64 = 0.15;
const P99_MEAN_MAX: f64 = 0.25;
const TENTHS_MEAN_MAX: f64 = 0.11;
const TENTHS_WORST_MAX: f64 = 0.30;

#[test]
fn preset_sn540_meets_measured_points() {
    let config = Config::parse(Preset::find("sn540").unwrap().text).unwrap();
    let compared = compare(&config, points().unwrap()).unwrap();
    let run = timed::run(&overwrite_config(&config).unwrap()).unwrap();
    let tenths = tenths(&run).unwrap();
    let printed = page(&compared, &tenths);
    println!("{printed}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance/sn540.md");
    if std::env::var_os("WRITE_PAGE").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    assert_eq!(tenths.len(), 20);
    assert_eq!(compared.iter().filter(|row| row.point.basis == Basis::Calibrated).count(), 7);
    assert_eq!(tenths.iter().filter(|tenth| tenth.basis == Basis::Calibrated).count(), 1);
    let (mean, worst) = mean_and_worst(compared.iter().map(Compared::mean_error));
    assert!(mean <= MEAN_MAX && worst <= WORST_MAX, "mean {mean}, worst {worst}");
    let (p99, _) = mean_and_worst(compared.iter().map(Compared::p99_error));
    assert!(p99 <= P99_MEAN_MAX, "99th percentile {p99}");
    let (mean, worst) = mean_and_worst(tenths.iter().map(Tenth::error));
    assert!(mean <= TENTHS_MEAN_MAX && worst <= TENTHS_WORST_MAX, "tenths {mean}, {worst}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), printed, "WRITE_PAGE=1 prints it anew");
}
