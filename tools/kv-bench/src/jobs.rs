//! The jobs of a store's threads, from its `LOG`: which tables each flush and each compaction read
//! and wrote.
//!
//! RocksDB has events in it, LevelDB lines. LevelDB does not say which tables it merges, but which
//! it deletes when they are merged. The write-ahead log is not in it: each memtable that is flushed
//! had a log with as many bytes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// A table, numbered in the order in which they were complete.
pub(crate) type TableId = usize;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Writes memtables with this many puts and bytes as a table.
    Flush { puts: u64, bytes: u64 },
    /// Merges tables.
    Compaction,
}

/// A flush or a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<TableId>,
    pub(crate) outputs: Vec<TableId>,
    /// The level of the outputs.
    pub(crate) level: u64,
    /// Jobs that had ended when it began.
    pub(crate) ended: usize,
}

/// The recorded jobs of a store's threads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// In the order in which they began.
    pub(crate) jobs: Vec<Job>,
    /// Jobs in the order in which they ended.
    pub(crate) ends: Vec<usize>,
    /// Bytes of each table.
    pub(crate) tables: Vec<u64>,
}

impl Recorded {
    /// Reads the `LOG` of a RocksDB.
    pub(crate) fn parse(log: &str) -> Result<Self> {
        let mut reader = Reader::default();
        for line in log.lines() {
            if let Some((_, event)) = line.split_once("EVENT_LOG_v1 ") {
                let event = serde_json::from_str(event).context("an event in RocksDB's LOG")?;
                reader.event(&event).with_context(|| format!("RocksDB's LOG: {line}"))?;
            }
        }
        Ok(reader.recorded)
    }

    /// Reads the `LOG` of a LevelDB with pairs of this size.
    pub(crate) fn parse_level(log: &str, pair: u64) -> Result<Self> {
        let mut reader = Reader::default();
        for line in log.lines() {
            let text = line.split_once(' ').and_then(|(_, rest)| rest.split_once(' '));
            let text = text.map_or("", |(_, text)| text);
            reader.line(text, pair).with_context(|| format!("LevelDB's LOG: {line}"))?;
        }
        Ok(reader.recorded)
    }

    /// The flushes, and the puts of each.
    pub(crate) fn flushes(&self) -> impl Iterator<Item = (usize, u64)> {
        self.jobs.iter().enumerate().filter_map(|(at, job)| match job.kind {
            Kind::Flush { puts, .. } => Some((at, puts)),
            Kind::Compaction => None,
        })
    }
}

/// The number of LevelDB's last compaction.
const COMPACTION: u64 = 0;

#[derive(Default)]
struct Reader {
    recorded: Recorded,
    /// Jobs and tables by the numbers that RocksDB gives them.
    jobs: BTreeMap<u64, usize>,
    tables: BTreeMap<u64, TableId>,
}

impl Reader {
    fn event(&mut self, event: &Value) -> Result<()> {
        let number = |name: &str| event[name].as_u64().with_context(|| format!("no {name}"));
        match event["event"].as_str().unwrap_or_default() {
            "flush_started" => {
                let (puts, bytes) = (number("num_entries")?, number("total_data_size")?);
                self.begin(number("job")?, Kind::Flush { puts, bytes }, Vec::new());
            }
            "compaction_started" => {
                let fields = event.as_object().into_iter().flatten();
                let lists = fields.filter(|(name, _)| name.starts_with("files_L"));
                let names = lists.flat_map(|(_, list)| list.as_array().into_iter().flatten());
                let found = names.filter_map(|name| self.tables.get(&name.as_u64()?).copied());
                let inputs = found.collect();
                self.begin(number("job")?, Kind::Compaction, inputs);
            }
            "table_file_creation" => {
                self.write(number("job")?, number("file_number")?, number("file_size")?);
            }
            "flush_finished" => self.end(number("job")?, 0),
            "compaction_finished" => self.end(number("job")?, number("output_level")?),
            _ => {}
        }
        Ok(())
    }

    /// A line of LevelDB, without time and thread.
    fn line(&mut self, text: &str, pair: u64) -> Result<()> {
        let words: Vec<&str> = text.split([' ', ':', '#', '@', '=']).collect();
        let number = |at: usize| -> Result<u64> {
            words.get(at).and_then(|word| word.parse().ok()).context("no number")
        };
        // Flushes have the numbers of their tables, which are not 0.
        match words[..] {
            ["Level-0", "table", "", _, "", "started"] => {
                let kind = Kind::Flush { puts: 0, bytes: 0 };
                self.begin(number(3)?, kind, Vec::new());
            }
            ["Level-0", "table", "", _, "", _, "bytes", ..] => {
                let (table, bytes) = (number(3)?, number(5)?);
                if bytes > 0 {
                    self.write(table, table, bytes);
                }
                self.end(table, 0);
                if let Some(&job) = self.jobs.get(&table) {
                    self.recorded.jobs[job].kind = Kind::Flush { puts: bytes / pair, bytes };
                }
            }
            ["Compacting", ..] => self.begin(COMPACTION, Kind::Compaction, Vec::new()),
            ["Generated", "table", "", _, _, "", _, "keys,", _, "bytes"] => {
                self.write(COMPACTION, number(3)?, number(8)?);
            }
            ["compacted", "to", ..] => self.end(COMPACTION, 1),
            ["Delete", "type", "2", "", _] => {
                if let Some(table) = self.tables.remove(&number(4)?)
                    && let Some(&job) = self.jobs.get(&COMPACTION)
                {
                    self.recorded.jobs[job].inputs.push(table);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A job has written a table.
    fn write(&mut self, job: u64, number: u64, bytes: u64) {
        if let Some(&job) = self.jobs.get(&job) {
            let table = self.recorded.tables.len();
            self.recorded.tables.push(bytes);
            self.recorded.jobs[job].outputs.push(table);
            self.tables.insert(number, table);
        }
    }

    fn begin(&mut self, job: u64, kind: Kind, inputs: Vec<TableId>) {
        self.jobs.insert(job, self.recorded.jobs.len());
        let ended = self.recorded.ends.len();
        self.recorded.jobs.push(Job { kind, inputs, outputs: Vec::new(), level: 0, ended });
    }

    fn end(&mut self, job: u64, level: u64) {
        if let Some(&job) = self.jobs.get(&job) {
            self.recorded.jobs[job].level = level;
            self.recorded.ends.push(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of RocksDB 7.8.3, shortened.
    pub(crate) const LOG: &str = r#"
2026/01/02-03:04:05.103801 7906 [/flush_job.cc:869] [default] [JOB 2] Flushing memtable
2026/01/02-03:04:05.1 7906 EVENT_LOG_v1 {"job": 2, "event": "flush_started", "num_memtables": 1, "num_entries": 5, "total_data_size": 8000}
2026/01/02-03:04:05.2 7906 EVENT_LOG_v1 {"job": 2, "event": "table_file_creation", "file_number": 9, "file_size": 4100}
2026/01/02-03:04:05.3 7906 EVENT_LOG_v1 {"job": 3, "event": "flush_started", "num_memtables": 1, "num_entries": 6, "total_data_size": 9000}
2026/01/02-03:04:05.4 7906 (Original Log Time 2026/01/02-03:04:05.12) EVENT_LOG_v1 {"job": 2, "event": "flush_finished", "lsm_state": [1, 0]}
2026/01/02-03:04:05.5 7906 EVENT_LOG_v1 {"job": 4, "event": "compaction_started", "files_L0": [9], "files_L1": [1]}
2026/01/02-03:04:05.6 7906 EVENT_LOG_v1 {"job": 4, "event": "table_file_creation", "file_number": 10, "file_size": 4097}
2026/01/02-03:04:05.7 7906 EVENT_LOG_v1 {"job": 4, "event": "compaction_finished", "output_level": 1}
2026/01/02-03:04:05.8 7906 EVENT_LOG_v1 {"job": 4, "event": "table_file_deletion", "file_number": 9}
"#;

    /// Of LevelDB 1.23, shortened.
    const LEVEL_LOG: &str = "\
2026/01/02-03:04:05.1 7906 Level-0 table #5: started
2026/01/02-03:04:05.2 7906 Level-0 table #5: 8200 bytes OK
2026/01/02-03:04:05.3 7906 Delete type=0 #3
2026/01/02-03:04:05.4 7906 Compacting 1@0 + 0@1 files
2026/01/02-03:04:05.5 7906 Level-0 table #7: started
2026/01/02-03:04:05.6 7906 Level-0 table #7: 4100 bytes OK
2026/01/02-03:04:05.7 7906 Generated table #8@0: 2 keys, 8190 bytes
2026/01/02-03:04:05.8 7906 Compacted 1@0 + 0@1 files => 8190 bytes
2026/01/02-03:04:05.8 7906 compacted to: files[ 1 1 0 0 0 0 0 ]
2026/01/02-03:04:05.9 7906 Delete type=2 #5
";

    #[test]
    fn jobs_of_leveldb_merge_what_they_delete() {
        let recorded = Recorded::parse_level(LEVEL_LOG, 4100).unwrap();
        let job = |kind, inputs, outputs, level, ended| Job { kind, inputs, outputs, level, ended };
        let flush = |puts, bytes| Kind::Flush { puts, bytes };
        let jobs = vec![
            job(flush(2, 8200), vec![], vec![0], 0, 0),
            job(Kind::Compaction, vec![0], vec![2], 1, 1),
            job(flush(1, 4100), vec![], vec![1], 0, 1),
        ];
        assert_eq!(
            recorded,
            Recorded { jobs, ends: vec![0, 2, 1], tables: vec![8200, 4100, 8190] }
        );
    }

    #[test]
    fn jobs_name_tables_they_read_and_write() {
        let recorded = Recorded::parse(LOG).unwrap();
        let job = |kind, inputs, outputs, level, ended| Job { kind, inputs, outputs, level, ended };
        let flush = |puts, bytes| Kind::Flush { puts, bytes };
        let jobs = vec![
            job(flush(5, 8000), vec![], vec![0], 0, 0),
            job(flush(6, 9000), vec![], vec![], 0, 0),
            // The table of level 1 is from before the log began.
            job(Kind::Compaction, vec![0], vec![1], 1, 1),
        ];
        assert_eq!(recorded, Recorded { jobs, ends: vec![0, 2], tables: vec![4100, 4097] });
        assert_eq!(recorded.flushes().collect::<Vec<_>>(), [(0, 5), (1, 6)]);
        assert!(Recorded::parse("EVENT_LOG_v1 {\"event\": \"flush_started\"}").is_err());
    }
}
