//! Counting mode against theory: write amplification within 1 % of the formulas, over
//! over-provisioning from 5 to 100 %.
//!
//! The formulas know nothing of free and open superblocks, so over-provisioning is the effective
//! one, and there are many superblocks. Another seed: `SEED=7 cargo test -p zonal-sim --test
//! truth`.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "numbers of units, far below 2^32; the comparison is for people too"
)]

use zonal::repeat;
use zonal_sim::Config;
use zonal_sim::ftl::{PageMapped, Translation};
use zonal_sim::load;
use zonal_sim::theory;

const OPS: [f64; 8] = [0.05, 0.07, 0.10, 0.15, 0.20, 0.28, 0.50, 1.00];

/// Units of a drive. Of its superblocks of 64 units one more or less is half a percent of the
/// spare ones, at 5 %.
const UNITS: u32 = 1 << 18;

/// A drive whose effective over-provisioning is `op`, to a unit.
fn config(seed: u64, op: f64, units: u32, gc: &str, workload: &str) -> Config {
    let text = |user: u64| {
        format!(
            "seed = {seed}\n[flash]\nchannels = 1\ndies_per_channel = 1\nplanes = 1\npage = 4096\n\
             pages_per_program = 1\nprograms_per_block = {units}\nsuperblocks = {}\n\
             [drive]\nuser = {user}\n[gc]\nlow_water = 2\n{gc}\n[workload]\n{workload}",
            UNITS / units
        )
    };
    let parse = |user: u64| Config::parse(&text(user)).expect("the config is right");
    let half = parse(4096 * u64::from(UNITS / 2));
    // The flash in which data can rest, in units.
    let layout = half.layout().expect("checked");
    let rest = (1.0 + layout.op_effective()) * f64::from(layout.user_units);
    let config = parse(4096 * (rest / (1.0 + op)).round() as u64);
    let effective = config.layout().expect("checked").op_effective();
    assert!((effective - op).abs() < 1e-4, "{effective} is {op}");
    config
}

/// The amplification of a drive at its steady state.
fn measure(config: &Config, warm_up: f64, measured: f64) -> f64 {
    let mut drive = PageMapped::new(config).expect("checked");
    let mut workload = load::build(config, drive.layout()).expect("checked");
    let users = drive.layout().user_units;
    let all: Vec<u32> = (0..users).collect();
    drive.write(&all, 0);
    let (mut requests, mut units) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
    let mut run = |drive: &mut PageMapped, drive_writes: f64| {
        let limit = drive.counters().host + (drive_writes * f64::from(users)) as u64;
        while drive.counters().host < limit {
            workload.fill(&mut requests).expect("endless");
            units.clear();
            units.extend(requests.iter().map(|request| (request.offset / 4096) as u32));
            drive.write(&units, 0);
        }
    };
    run(&mut drive, warm_up);
    let before = drive.counters();
    run(&mut drive, measured);
    drive.counters().since(&before).wa()
}

/// Compares every over-provisioning, and reports all deviations at once.
fn hold(what: &str, units: u32, gc: &str, workload: &str, theory: impl Fn(f64, u32) -> f64) {
    let seed = repeat::seed(1);
    let mut wrong = Vec::new();
    for op in OPS {
        let config = config(seed, op, units, gc, workload);
        let users = config.layout().expect("checked").user_units;
        // Units written once in many drive writes take long to spread, the longer the less GC moves
        // them.
        let (found, expected) =
            (measure(&config, 4.0 + 8.0 * op, 6.0 + 24.0 * op), theory(op, users));
        let off = 100.0 * (found / expected - 1.0);
        let line = format!("{what}, op {op}: {found:.3}, theory {expected:.3}, {off:+.2} %");
        println!("{line}");
        if off.abs() > 1.0 {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "more than 1 % off:\n{}", wrong.join("\n"));
}

#[test]
fn greedy_with_64_unit_superblocks_matches_theory() {
    hold("greedy, b = 64", 64, "victim = \"greedy\"", "", |op, _| theory::greedy(op, 64));
}

#[test]
fn greedy_with_256_unit_superblocks_matches_theory() {
    hold("greedy, b = 256", 256, "victim = \"greedy\"", "", |op, _| theory::greedy(op, 256));
}

#[test]
fn d_choices_of_2_5_and_10_match_theory() {
    for d in [2, 5, 10] {
        let gc = format!("victim = \"d-choices:{d}\"");
        hold(&format!("d = {d}"), 64, &gc, "", |op, _| theory::choices(op, 64, d));
    }
}

#[test]
fn victims_at_random_match_theory() {
    hold("random", 64, "victim = \"random\"", "", |op, _| theory::random(op));
}

const LOG: &str = "victim = \"fifo\"\nfrontier = \"mixed\"";

#[test]
fn fifo_under_uniform_matches_theory() {
    hold("FIFO", 64, LOG, "", |op, _| theory::fifo(op));
}

#[test]
fn fifo_under_hot_cold_matches_theory() {
    let workload = "kind = \"hot-cold\"\nhot_part = 0.2\nhot_share = 0.8";
    let classes = theory::hot_cold(0.2, 0.8);
    hold("FIFO, 80/20", 64, LOG, workload, |op, _| theory::fifo_classes(op, &classes));
}

#[test]
fn fifo_under_zipf_matches_theory() {
    let workload = "kind = \"zipf\"\ntheta = 0.99";
    let theory = |op, users| theory::fifo_classes(op, &theory::zipf(users, 0.99));
    hold("FIFO, Zipf", 64, LOG, workload, theory);
}
