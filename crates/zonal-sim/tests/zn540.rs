//! The preset `zn540` beside the drive that it is a model of. Time is virtual, so the figures are
//! the same on every machine.
//!
//! `WRITE_PAGE=1` prints the page anew; `CONFIG=FILE` prints the comparison of another config.

#![allow(clippy::unwrap_used, reason = "a test")]

mod printed;

use zonal_sim::Config;
use zonal_sim::measured::{Compared, Managed, compare, managed, mean_and_worst, page, points};
use zonal_sim::preset::Preset;
use zonal_sim::report::page::Basis;

/// Slightly above the errors that were reached.
const MEAN_MAX: f64 = 0.02;
const WORST_MAX: f64 = 0.05;
const P99_MEAN_MAX: f64 = 0.10;
const P99_WORST_MAX: f64 = 0.25;

/// The same for zones: few resets go on beside the reads, so their mean varies with the seed.
const ZONES_MEAN_MAX: f64 = 0.03;
const ZONES_WORST_MAX: f64 = 0.15;

#[test]
fn preset_zn540_meets_measured_points() {
    let asked = std::env::var("CONFIG").ok();
    let text = match &asked {
        Some(path) => std::fs::read_to_string(path).unwrap(),
        None => Preset::find("zn540").unwrap().text.to_owned(),
    };
    let config = Config::parse(&text).unwrap();
    let (compared, managed) =
        (compare(&config, points().unwrap()).unwrap(), managed(&config).unwrap());
    let page_text = page(&compared, &managed);
    println!("{page_text}");
    if asked.is_some() {
        return;
    }
    printed::compare("zn540.md", &page_text);
    assert!(compared.iter().filter(|row| row.point.basis == Basis::Calibrated).count() <= 10);
    let (mean, worst) = mean_and_worst(compared.iter().map(Compared::mean_error));
    assert!(mean <= MEAN_MAX && worst <= WORST_MAX, "mean {mean}, worst {worst}");
    let (p99, worst) = mean_and_worst(compared.iter().map(Compared::p99_error));
    assert!(p99 <= P99_MEAN_MAX && worst <= P99_WORST_MAX, "p99: mean {p99}, worst {worst}");
    let (mean, worst) = mean_and_worst(managed.iter().map(Managed::error));
    let small = mean <= ZONES_MEAN_MAX && worst <= ZONES_WORST_MAX;
    assert!(small, "zones: mean {mean}, worst {worst}");
}
