//! LevelDB filled on simulated drives, in virtual time: the speed that the drives alone allow, with
//! a program that takes no time. The sequences are the ones of the zonefs talk at VAULT 2020, and
//! `overwrite`.

use anyhow::{Context, Result, ensure};
use bench_support::Figure;

use crate::jobs::Recorded;
use crate::place::{Engine, Made, Place, Shape};
use crate::setups::{self, SetUp, ZONE};
use crate::timeline::{Program, Replay};
use crate::{Bench, child, leveldb, ratio};

/// Bytes of a memtable and of a table, and bytes of the zone that a table has for itself.
const TABLE: u64 = 15 << 20;
const TABLE_ZONE: u64 = 16 << 20;

/// Bytes of a value; a key has 16.
const VALUE: u64 = 4096;

/// LevelDB has one thread for both; here a flush waits for no compaction.
const PROGRAM: Program =
    Program { put_ns: 0.0, flush_ns: 0.0, merge_ns: 0.0, flushes: 1, compactions: 1, readers: 0 };

/// Benchmarks of a process; the last one is measured.
const SEQUENCES: [(&str, usize); 3] =
    [("fillseq", 1), ("fillrandom", 1), ("fillrandom,overwrite", 2)];

/// Records each sequence, and carries it out on every set-up.
pub(crate) fn measure(bench: &mut Bench) -> Result<()> {
    let program = match leveldb::program(&bench.tools) {
        Ok(program) => program,
        Err(error) => {
            bench.skip("LevelDB on simulated drives", &format!("no db_bench: {error:#}"));
            return Ok(());
        }
    };
    let puts = bench.choose(64 << 20, 1 << 30) / (16 + VALUE);
    for (sequence, benchmarks) in SEQUENCES {
        println!("recording LevelDB: {sequence}, {puts} puts");
        let shape = Shape { zone: TABLE_ZONE, zones: 0 };
        let made = Made::new(Place::Directly, &bench.built, bench.scratch(), shape)?;
        let mut command = made.command(Engine::Level, &program);
        command.arg(format!("--benchmarks={sequence}")).arg(format!("--num={puts}"));
        command.arg(format!("--value_size={VALUE}")).arg("--compression_ratio=1");
        command.arg(format!("--write_buffer_size={TABLE}"));
        command.arg(format!("--max_file_size={TABLE}"));
        child::run(&mut command, bench.scratch())?;
        let log = std::fs::read_to_string(made.file("kv/LOG")).context("LevelDB's LOG")?;
        drop(made);
        let recorded = Recorded::parse_level(&log, 16 + VALUE)?;
        let flushes = recorded.flushes().count();
        ensure!(flushes > benchmarks, "LevelDB's LOG has too few lines");
        let all: Vec<usize> = (1..=benchmarks).map(|at| flushes * at / benchmarks).collect();
        let replay = Replay {
            recorded: &recorded,
            program: PROGRAM,
            scale: ratio(ZONE, TABLE_ZONE),
            phases: &all,
            seed: 1,
        };
        carry_out(bench, &replay, sequence)?;
    }
    Ok(())
}

fn carry_out(bench: &mut Bench, replay: &Replay<'_>, sequence: &str) -> Result<()> {
    let mut rates = Vec::new();
    for set_up in SetUp::ALL {
        let phases = setups::run(replay, set_up, 1.0).with_context(|| set_up.name())?;
        child::check_interrupted()?;
        rates.push((set_up, phases.last().context("a phase")?.rate() / 1e3));
    }
    let base = rates.iter().find(|(set_up, _)| *set_up == SetUp::EXT4).context("ext4's rate")?.1;
    for (set_up, rate) in rates {
        let sequence = sequence.split(',').next_back().unwrap_or(sequence);
        let figure = |variant: String, value| Figure::new(set_up.name(), variant, vec![value]);
        bench.ingest.push(figure(format!("{sequence}, thousand puts/s"), rate));
        bench.ingest.push(figure(format!("{sequence}, beside in place"), rate / base));
    }
    Ok(())
}
