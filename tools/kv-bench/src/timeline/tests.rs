//! The order and the times of jobs on files that take a fixed time.

use std::collections::BTreeSet;

use zonal_sim::config::Config;
use zonal_sim::ssd::BlockSsd;

use super::*;

/// Files on a drive that takes a nanosecond for a byte, independent of other requests.
struct Fixed {
    now_ns: u64,
    byte_ns: u64,
    files: BTreeSet<u32>,
    /// Files that were read.
    read: BTreeSet<u32>,
    account: Account,
}

fn fixed(byte_ns: u64) -> Fixed {
    let mut config = Config::default();
    config.flash = config.flash.shrunk(1);
    let account = BlockSsd::new(&config).unwrap().account();
    Fixed { now_ns: 0, byte_ns, files: BTreeSet::new(), read: BTreeSet::new(), account }
}

impl Store for Fixed {
    fn begin_at(&mut self, at_ns: u64) -> u64 {
        self.now_ns = at_ns;
        at_ns
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn create(&mut self, file: u32, _: u64, _: WriteLifetime) -> Result<()> {
        assert!(self.files.insert(file), "file {file} is made once");
        Ok(())
    }

    fn write(&mut self, file: u32, _: u64, bytes: u64) -> Result<()> {
        assert!(self.files.contains(&file), "file {file} is there");
        self.now_ns += bytes * self.byte_ns;
        Ok(())
    }

    fn read(&mut self, file: u32, _: u64, bytes: u64) -> Result<()> {
        self.read.insert(file);
        self.write(file, 0, bytes)
    }

    fn complete(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn delete(&mut self, file: u32) -> Result<()> {
        assert!(self.files.remove(&file), "file {file} is deleted once");
        Ok(())
    }

    fn work(&mut self) -> Result<()> {
        Ok(())
    }

    fn account(&self) -> Account {
        self.account.clone()
    }
}

const MIB: u64 = 1 << 20;

/// Memtables of 1 MiB and 1000 puts, and a compaction of each four of them.
fn recorded(memtables: usize) -> Recorded {
    let mut recorded = Recorded::default();
    for number in 0..memtables {
        let mut add = |kind, inputs: Vec<TableId>, count: usize| {
            let (first, job) = (recorded.tables.len(), recorded.jobs.len());
            recorded.tables.extend(vec![MIB; count]);
            let outputs = (first..first + count).collect();
            let ended = recorded.ends.len();
            recorded.jobs.push(Job { kind, inputs, outputs, level: 0, ended });
            recorded.ends.push(job);
            first
        };
        let table = add(Kind::Flush { puts: 1000, bytes: MIB }, Vec::new(), 1);
        if number % 4 == 3 {
            add(Kind::Compaction, (table - 3..=table).collect(), 4);
        }
    }
    recorded
}

const PROGRAM: Program =
    Program { put_ns: 1e6, flush_ns: 0.0, merge_ns: 0.0, flushes: 1, compactions: 1, readers: 0 };

fn phases(program: Program, store: &mut Fixed) -> Vec<Phase> {
    let recorded = recorded(16);
    let phases = [8, 16];
    let replay = Replay { recorded: &recorded, program, scale: 1.0, phases: &phases, seed: 1 };
    replay.run(store).unwrap()
}

#[test]
fn puts_are_as_fast_as_program_on_fast_drive() {
    let mut store = fixed(0);
    for phase in phases(PROGRAM, &mut store) {
        assert!((phase.rate() - 1000.0).abs() < 1.0, "{}", phase.rate());
    }
    // Tables that were merged are deleted, with the logs of their memtables.
    assert_eq!(store.read, [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19].into());
    assert!(store.read.is_disjoint(&store.files), "{:?}", store.files);
}

#[test]
fn puts_wait_for_flushes_on_slow_drive() {
    // Each memtable is written once as a log and once as a table: they overlap.
    let of = |flush_ns| phases(Program { put_ns: 0.0, flush_ns, ..PROGRAM }, &mut fixed(10));
    let [fast, slow] = [of(0.0), of(90.0)].map(|phases| phases[0].ns);
    let memtable = MIB * 10;
    assert!((8 * memtable..10 * memtable).contains(&fast), "{fast}");
    // One thread flushes, in ten times the time, and two memtables need not wait for it.
    assert!((6 * 10 * memtable..8 * 10 * memtable).contains(&slow), "{slow}");
}

#[test]
fn puts_wait_for_compactions_that_had_ended() {
    let of = |merge_ns| phases(Program { put_ns: 0.0, merge_ns, ..PROGRAM }, &mut fixed(1));
    let [fast, slow] = [of(0.0), of(1000.0)].map(|phases| phases[1].ns);
    // Of four compactions the second phase waits for the first two at least.
    assert!(fast < 20 * MIB && slow > 4 * 1000 * MIB, "{fast} {slow}");
}

#[test]
fn readers_read_tables_in_last_phase() {
    let program = Program { readers: 3, ..PROGRAM };
    let phases = phases(program, &mut fixed(1));
    assert!(phases[0].reads_ns.is_empty(), "they begin later");
    let reads = &phases[1].reads_ns;
    assert!(reads.iter().all(|&ns| ns == BLOCK_BYTES), "each reads a block");
    assert_eq!(phases[1].read_ns(99), Some(BLOCK_BYTES));
    // One after the other, until the last piece of the log is written.
    let most = 3 * phases[1].ns / BLOCK_BYTES;
    let count = reads.len() as u64;
    assert!((most * 24 / 25..=most).contains(&count), "{count} of {most}");
}

#[test]
fn replay_names_memtable_that_never_ends() {
    let mut recorded = recorded(16);
    // A compaction that needs a table of later.
    recorded.jobs[4].inputs = vec![recorded.tables.len() - 1];
    let replay =
        Replay { recorded: &recorded, program: PROGRAM, scale: 1.0, phases: &[16], seed: 1 };
    let error = replay.run(&mut fixed(0)).err().unwrap().to_string();
    assert!(error.starts_with("the log waits for memtable"), "{error}");
}
