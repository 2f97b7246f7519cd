//! Data and names, in all places in turn.

use std::path::Path;
use std::time::Instant;

use crate::is_wanted;
use crate::jobs::{JOBS, Job, Laps};
use crate::place::{FURROW, FURROW_BY_RINGS, Place};
use crate::time::{median, ratio, thread_ns};

const ROUNDS: usize = 7;

/// What one turn of a job in a place took.
struct Turn {
    /// The middle operation, in µs; not a number where operations overlap.
    latency: f64,
    /// Operations a second.
    rate: f64,
    /// µs of the program and of the daemon per operation.
    processor: f64,
}

/// Turns of a job, by place.
type Row = Vec<Vec<Turn>>;

/// A table: its title, digits behind the point, and what of a turn it shows.
type Table = (&'static str, usize, fn(&Turn) -> f64);

const TABLES: [Table; 3] = [
    ("median latency, µs", 1, |turn| turn.latency),
    ("operations per second", 0, |turn| turn.rate),
    ("processor time of program and daemon per operation, µs", 1, |turn| turn.processor),
];

/// Measures all rows that are wanted, and prints tables.
pub(crate) fn measure(home: &Path, rows: &[String]) {
    let mut places = vec![Place::ceiling(home)];
    places.extend(Place::all(home));
    measure_in(&places, rows);
}

/// The same in these places; ratios are to the first.
pub(crate) fn measure_in(places: &[Place], rows: &[String]) {
    let jobs: Vec<&Job> = JOBS.iter().filter(|job| is_wanted(job.name, rows)).collect();
    let measured: Vec<Row> = jobs
        .iter()
        .map(|job| {
            eprintln!("{}", job.name);
            row(job, places)
        })
        .collect();
    for table in TABLES {
        print(table, &jobs, places, &measured);
    }
    compare_transports(&jobs, places, &measured);
}

fn row(job: &Job, places: &[Place]) -> Row {
    let mut turns: Row = places.iter().map(|_| Vec::new()).collect();
    for round in 0..=ROUNDS {
        for nth in 0..places.len() {
            let at = (round + nth) % places.len();
            let turn = turn(job, &places[at]);
            // The first round only warms up.
            if round > 0 {
                turns[at].push(turn);
            }
        }
    }
    turns
}

fn turn(job: &Job, place: &Place) -> Turn {
    (job.prepare)(&place.dir, job.operations);
    let mut laps = Laps::default();
    let (daemon, client, start) = (place.processor_ns(), thread_ns(), Instant::now());
    (job.work)(&place.dir, job.operations, &mut laps);
    let (wall, client) = (start.elapsed(), thread_ns() - client);
    let count = job.operations as f64;
    Turn {
        latency: if laps.0.is_empty() { f64::NAN } else { median(laps.0) / 1e3 },
        rate: count / wall.as_secs_f64(),
        processor: (client + place.processor_ns() - daemon) as f64 / count / 1e3,
    }
}

/// Prints how Furrow by `io_uring` relates to Furrow by `/dev/fuse`.
fn compare_transports(jobs: &[&Job], places: &[Place], rows: &[Row]) {
    let at = |name: &str| places.iter().position(|place| place.name == name);
    let (Some(device), Some(rings)) = (at(FURROW), at(FURROW_BY_RINGS)) else { return };
    println!(
        "\nFurrow by io_uring: ratio to /dev/fuse, median of the rounds (least to greatest)\n"
    );
    println!("| operation | latency | rate | processor time |");
    println!("| --- | --- | --- | --- |");
    for (job, row) in jobs.iter().zip(rows) {
        let cells = TABLES.map(|(_, _, value)| {
            let pairs = row[rings].iter().zip(&row[device]);
            let ratios: Vec<f64> = pairs.map(|(one, other)| value(one) / value(other)).collect();
            let (least, greatest) = ratios
                .iter()
                .fold((f64::INFINITY, 0.0_f64), |(low, high), &one| (low.min(one), high.max(one)));
            format!("{:.2} ({least:.2} to {greatest:.2})", median(ratios))
        });
        println!("| {} | {} |", job.name, cells.join(" | "));
    }
}

/// Prints a table in Markdown: medians, with the ratio to the first place, which may be the
/// ceiling.
fn print((title, digits, value): Table, jobs: &[&Job], places: &[Place], rows: &[Row]) {
    println!("\n{title}, median of {ROUNDS} interleaved rounds (ratio to the first)\n");
    let names: Vec<&str> = places.iter().map(|place| place.name).collect();
    println!("| operation | {} |", names.join(" | "));
    println!("| --- |{}", " --- |".repeat(names.len()));
    for (job, row) in jobs.iter().zip(rows) {
        let values: Vec<Vec<f64>> =
            row.iter().map(|turns| turns.iter().map(value).collect()).collect();
        let cell = |of: &Vec<f64>| {
            let middle = median(of.clone());
            if middle.is_nan() {
                return String::new();
            }
            format!("{middle:.digits$} ({:.2})", ratio(of, &values[0]))
        };
        let cells: Vec<String> = values.iter().map(cell).collect();
        println!("| {} | {} |", job.name, cells.join(" | "));
    }
}
