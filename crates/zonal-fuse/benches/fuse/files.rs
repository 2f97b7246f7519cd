//! Data and names, in all places in turn.

use std::path::Path;
use std::time::Instant;

use bench_support::{Report, WarmUp, interleave, median, thread_ns};

use crate::is_wanted;
use crate::jobs::{JOBS, Job, Laps};
use crate::place::{FURROW, FURROW_BY_RINGS, Place};

pub(crate) const ROUNDS: usize = 7;

/// The results of one turn of a job in a place.
struct Turn {
    /// The middle operation, in µs; not a number where operations overlap.
    latency: f64,
    /// Operations a second.
    rate: f64,
    /// µs of the program and of the daemon per operation.
    processor: f64,
}

/// A figure of a turn, and its unit.
type Value = (&'static str, fn(&Turn) -> f64);

const FIGURES: [Value; 3] = [
    ("µs, median latency", |turn| turn.latency),
    ("operations per second", |turn| turn.rate),
    ("µs of processor time of program and daemon", |turn| turn.processor),
];

/// Measures all rows that are wanted. Ratios are to the first place, the ceiling.
pub(crate) fn measure(report: &mut Report, home: &Path, rows: &[String]) {
    let mut places = vec![Place::ceiling(home)];
    places.extend(Place::all(home));
    measure_in(report, &places, rows);
}

/// The same in these places; ratios are to the first.
pub(crate) fn measure_in(report: &mut Report, places: &[Place], rows: &[String]) {
    for job in JOBS.iter().filter(|job| is_wanted(job.name, rows)) {
        eprintln!("{}", job.name);
        let turns =
            interleave(ROUNDS, places.len(), WarmUp::Round, |at| Some(turn(job, &places[at])));
        for (unit, value) in FIGURES {
            let of = |at: usize| -> Vec<f64> { turns[at].iter().map(value).collect() };
            for (at, place) in places.iter().enumerate() {
                report.add_beside((job.name, place.name), unit, &of(at), &of(0));
            }
            compare_transports(report, job, places, unit, &of);
        }
    }
}

fn turn(job: &Job, place: &Place) -> Turn {
    (job.prepare)(&place.dir, job.operations);
    let mut laps = Laps::default();
    let (daemon, client, start) = (place.processor_ns(), thread_ns(), Instant::now());
    (job.work)(&place.dir, job.operations, &mut laps);
    let (wall, client) = (start.elapsed(), thread_ns() - client);
    let count = job.operations as f64;
    Turn {
        latency: median(&laps.0) / 1e3,
        rate: count / wall.as_secs_f64(),
        processor: (client + place.processor_ns() - daemon) as f64 / count / 1e3,
    }
}

/// How Furrow by `io_uring` relates to Furrow by `/dev/fuse` in the same rounds.
fn compare_transports(
    report: &mut Report,
    job: &Job,
    places: &[Place],
    unit: &str,
    of: &dyn Fn(usize) -> Vec<f64>,
) {
    let at = |name: &str| places.iter().position(|place| place.name == name);
    let (Some(device), Some(rings)) = (at(FURROW), at(FURROW_BY_RINGS)) else { return };
    let ratios: Vec<f64> =
        of(rings).iter().zip(of(device)).map(|(rings, device)| rings / device).collect();
    report.add_variant((job.name, unit), "io_uring ÷ /dev/fuse", &ratios);
}
