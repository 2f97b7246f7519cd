//! Which files a RocksDB wrote and deleted, from the events in its `LOG`.
//!
//! Tables are in it with their sizes, at the time when they were complete, and their deletions. The
//! write-ahead log is not: each memtable that is flushed had a log with as many bytes. Such a log
//! is written as a whole when the flush begins, and deleted when the flush has its table; really it
//! grows meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;
use zonal_sim::files::{BLOCK_BYTES, FileOp, Life};

/// What was done to files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// In the order in which it was done.
    pub(crate) ops: Vec<FileOp>,
    /// Bytes that came to the log before each operation.
    pub(crate) logged: Vec<u64>,
}

impl Trace {
    /// Reads a `LOG`.
    pub(crate) fn parse(log: &str) -> Result<Self> {
        let mut reader = Reader::default();
        for line in log.lines() {
            if let Some((_, event)) = line.split_once("EVENT_LOG_v1 ") {
                let event = serde_json::from_str(event).context("an event in RocksDB's LOG")?;
                reader.event(&event).with_context(|| format!("RocksDB's LOG: {line}"))?;
            }
        }
        Ok(reader.trace)
    }

    /// The first operation behind which so many bytes have come to the log.
    pub(crate) fn after(&self, bytes: u64) -> usize {
        self.logged.partition_point(|&logged| logged < bytes)
    }

    /// Bytes of all files: the mean over the operations from `first` on, and the most.
    pub(crate) fn live_bytes(&self, first: usize) -> (u64, u64) {
        let mut sizes = BTreeMap::new();
        let (mut live, mut sum, mut peak) = (0_u64, 0_u64, 0);
        for (at, op) in self.ops.iter().enumerate() {
            match *op {
                FileOp::Create { file, bytes, .. } => {
                    sizes.insert(file, bytes);
                    live += bytes;
                }
                FileOp::Delete { file } => live -= sizes.remove(&file).unwrap_or(0),
                FileOp::Overwrite { .. } | FileOp::Sync => {}
            }
            if at >= first {
                sum += live;
                peak = peak.max(live);
            }
        }
        let count = self.ops.len().saturating_sub(first).max(1);
        (sum / u64::try_from(count).unwrap_or(1), peak)
    }
}

#[derive(Default)]
struct Reader {
    trace: Trace,
    /// Files by the number of their table.
    tables: BTreeMap<u64, u32>,
    /// The log of the memtables that a job flushes.
    logs: BTreeMap<u64, u32>,
    flushes: BTreeSet<u64>,
    files: u32,
    logged: u64,
}

impl Reader {
    fn event(&mut self, event: &Value) -> Result<()> {
        let number = |name: &str| event[name].as_u64().with_context(|| format!("no {name}"));
        match event["event"].as_str().unwrap_or_default() {
            "flush_started" => {
                let (job, bytes) = (number("job")?, number("total_data_size")?);
                let file = self.create(bytes, Life::Short);
                self.logs.insert(job, file);
                self.flushes.insert(job);
                self.logged += bytes;
            }
            "table_file_creation" => {
                let job = number("job")?;
                let is_flush = self.flushes.contains(&job);
                let life = if is_flush { Life::Short } else { Life::Long };
                let file = self.create(number("file_size")?, life);
                self.tables.insert(number("file_number")?, file);
                self.push(FileOp::Sync);
                if let Some(file) = self.logs.remove(&job) {
                    self.push(FileOp::Delete { file });
                }
            }
            "table_file_deletion" => {
                // Those from before the log began are not known.
                if let Some(file) = self.tables.remove(&number("file_number")?) {
                    self.push(FileOp::Delete { file });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn create(&mut self, bytes: u64, life: Life) -> u32 {
        let file = self.files;
        self.files += 1;
        let bytes = bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        self.push(FileOp::Create { file, bytes, life });
        file
    }

    fn push(&mut self, op: FileOp) {
        self.trace.ops.push(op);
        self.trace.logged.push(self.logged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of RocksDB 7.8.3, shortened.
    const LOG: &str = r#"
2026/01/02-03:04:05.103801 7906 [/flush_job.cc:869] [default] [JOB 2] Flushing memtable
2026/01/02-03:04:05.103801 7906 EVENT_LOG_v1 {"time_micros": 1, "job": 2, "event": "flush_started", "num_memtables": 1, "total_data_size": 8000}
2026/01/02-03:04:05.113652 7906 EVENT_LOG_v1 {"time_micros": 2, "cf_name": "default", "job": 2, "event": "table_file_creation", "file_number": 9, "file_size": 8192}
2026/01/02-03:04:05.124742 7906 (Original Log Time 2026/01/02-03:04:05.124650) EVENT_LOG_v1 {"time_micros": 3, "job": 2, "event": "flush_finished", "lsm_state": [1, 0]}
2026/01/02-03:04:05.820163 7906 EVENT_LOG_v1 {"time_micros": 4, "job": 3, "event": "compaction_started", "files_L0": [9]}
2026/01/02-03:04:05.830163 7906 EVENT_LOG_v1 {"time_micros": 5, "cf_name": "default", "job": 3, "event": "table_file_creation", "file_number": 10, "file_size": 4097}
2026/01/02-03:04:05.855807 7906 EVENT_LOG_v1 {"time_micros": 6, "job": 3, "event": "table_file_deletion", "file_number": 9}
2026/01/02-03:04:05.855807 7906 EVENT_LOG_v1 {"time_micros": 6, "job": 3, "event": "table_file_deletion", "file_number": 8}
"#;

    #[test]
    fn event_log_gives_created_and_deleted_files() {
        let trace = Trace::parse(LOG).unwrap();
        let create = |file, bytes, life| FileOp::Create { file, bytes, life };
        let expected = [
            create(0, 8192, Life::Short),
            create(1, 8192, Life::Short),
            FileOp::Sync,
            FileOp::Delete { file: 0 },
            create(2, 8192, Life::Long),
            FileOp::Sync,
            FileOp::Delete { file: 1 },
        ];
        assert_eq!(trace.ops, expected);
        assert_eq!((trace.after(0), trace.after(1), trace.after(8001)), (0, 1, 7));
        assert_eq!(trace.live_bytes(0), ((8 + 16 + 16 + 8 + 16 + 16 + 8) * 1024 / 7, 16384));
        assert!(Trace::parse("EVENT_LOG_v1 {\"event\": \"flush_started\"}").is_err());
    }
}
