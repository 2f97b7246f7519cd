//! Reads of RocksDB, buffered and with direct I/O: sequential, random, and during writes.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::db_bench::benches;
use crate::place::{Hints, Made, Place, Shape};
use crate::rocksdb::{buffered, is_there, program};
use crate::sample::{Bound, Goal, Sample};
use crate::{Bench, step};

const PLACES: [Place; 3] = [Place::Ext4, Place::Zonefs, Place::Plugin(Hints::Followed)];

/// The benchmarks of one process, and the names of the ones that read.
const BENCHMARKS: &str = "fillrandom,readseq,readseq,readrandom,readrandom,readwhilewriting";
const PHASES: [&str; 5] =
    ["readseq", "readseq again", "readrandom", "readrandom again", "readwhilewriting"];

/// A kind of I/O.
struct Load {
    workload: &'static str,
    /// The `db_bench` that uses it in a place.
    command: fn(&Made) -> Command,
}

const LOADS: [Load; 2] = [
    Load { workload: "RocksDB reads, buffered", command: buffered },
    Load { workload: "RocksDB reads, direct I/O", command: program },
];

const SHAPE: Shape = Shape { zone: 16 << 20, zones: 128 };

/// Bytes of a value; a key has 16.
const VALUE: u64 = 4096;

/// Measures reads with both kinds of I/O in every place.
pub(crate) fn measure(bench: &mut Bench) -> Result<()> {
    if !is_there(bench, "reads of RocksDB") {
        return Ok(());
    }
    let places = bench.possible("reads of RocksDB", &PLACES);
    for round in 1..=bench.rounds {
        for Load { workload, command } in LOADS {
            for &place in &places {
                step(round, place, workload);
                let made = Made::new(place, &bench.built, bench.scratch(), SHAPE)?;
                let samples = run(bench, &made, command(&made), workload, round)?;
                bench.samples.0.extend(samples);
            }
        }
    }
    let [ext4, plugins @ ..] = PLACES.map(Place::name);
    for Load { workload, .. } in LOADS {
        for (phase, plugin) in PHASES.iter().flat_map(|phase| plugins.map(|place| (*phase, place)))
        {
            let ratio = bench.samples.ratio((workload, phase), (plugin, ext4), |one| one.ops_s);
            if let Some(found) = ratio {
                let what =
                    format!("{plugin}: {workload}, {phase}: operations a second beside ext4");
                bench.goal(Goal { what, found: found.median, wanted: 1.0, bound: Bound::AtLeast });
            }
        }
    }
    Ok(())
}

fn run(
    bench: &Bench,
    made: &Made,
    mut command: Command,
    workload: &str,
    round: u32,
) -> Result<Vec<Sample>> {
    let pairs = bench.choose(16 << 20, 160 << 20) / VALUE;
    command.arg(format!("--benchmarks={BENCHMARKS}")).arg(format!("--num={pairs}"));
    command.arg(format!("--value_size={VALUE}")).arg(format!("--seed={round}"));
    // A block cache so small that reads go to the files.
    command.args(["--threads=1", "--cache_size=1048576"]);
    command.arg(format!("--write_buffer_size={}", SHAPE.zone));
    command.arg(format!("--target_file_size_base={}", SHAPE.zone / 32 * 31));
    let (ended, _) = made.run(&mut command, bench.scratch())?;
    let found = benches(&ended.stdout);
    ensure!(found.len() == 1 + PHASES.len(), "db_bench printed {:?}", ended.stdout);
    let samples = PHASES.iter().zip(&found[1..]).map(|(phase, found)| Sample {
        workload: workload.to_owned(),
        phase: (*phase).to_owned(),
        place: made.place().name(),
        round,
        ops_s: Some(found.rate()),
        p50_us: found.p50_us,
        p99_us: found.p99_us,
        p999_us: found.p999_us,
        ..Sample::default()
    });
    Ok(samples.collect())
}
