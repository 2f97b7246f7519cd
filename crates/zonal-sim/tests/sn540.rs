//! The preset `sn540` beside the drive that it is a model of. Time is simulated, so the figures are
//! the same on every machine.
//!
//! `WRITE_PAGE=1` prints the page anew.

#![allow(clippy::unwrap_used, reason = "a test")]

mod printed;

use zonal_sim::measured::sn540::{Tenth, overwrite_config, page, points, tenths};
use zonal_sim::measured::{Compared, compare, mean_and_worst};
use zonal_sim::preset::Preset;
use zonal_sim::report::page::Basis;
use zonal_sim::{Config, timed};

/// Slightly above the errors that were reached.
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
    let page_text = page(&compared, &tenths);
    println!("{page_text}");
    printed::compare("sn540.md", &page_text);
    assert_eq!(tenths.len(), 20);
    assert_eq!(compared.iter().filter(|row| row.point.basis == Basis::Calibrated).count(), 7);
    assert_eq!(tenths.iter().filter(|tenth| tenth.basis == Basis::Calibrated).count(), 1);
    let (mean, worst) = mean_and_worst(compared.iter().map(Compared::mean_error));
    assert!(mean <= MEAN_MAX && worst <= WORST_MAX, "mean {mean}, worst {worst}");
    let (p99, _) = mean_and_worst(compared.iter().map(Compared::p99_error));
    assert!(p99 <= P99_MEAN_MAX, "99th percentile {p99}");
    let (mean, worst) = mean_and_worst(tenths.iter().map(Tenth::error));
    assert!(mean <= TENTHS_MEAN_MAX && worst <= TENTHS_WORST_MAX, "tenths {mean}, {worst}");
}
