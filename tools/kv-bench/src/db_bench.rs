//! The output of LevelDB's and RocksDB's `db_bench`.

/// One benchmark of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bench {
    /// `fillrandom`.
    pub(crate) name: String,
    /// Microseconds per operation of a thread.
    pub(crate) micros: f64,
    /// Operations a second of all threads. LevelDB does not print it.
    pub(crate) ops_s: Option<f64>,
    /// The median time of an operation, in microseconds.
    pub(crate) p50_us: Option<f64>,
    /// 99 of 100 did.
    pub(crate) p99_us: Option<f64>,
    /// 999 of 1,000 did.
    pub(crate) p999_us: Option<f64>,
}

impl Bench {
    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.ops_s.unwrap_or(1e6 / self.micros)
    }
}

/// The benchmarks of a run, in its order.
pub(crate) fn benches(text: &str) -> Vec<Bench> {
    let mut found: Vec<Bench> = Vec::new();
    for line in text.lines() {
        if let Some(bench) = bench(line) {
            found.push(bench);
        } else if let (Some(rest), Some(last)) =
            (line.strip_prefix("Percentiles: "), found.last_mut())
            && last.p50_us.is_none()
        {
            // Of several histograms the first is that of the benchmark itself.
            last.p50_us = after(rest, "P50:");
            last.p99_us = after(rest, "P99:");
            last.p999_us = after(rest, "P99.9:");
        }
    }
    found
}

/// `fillrandom   :      18.724 micros/op 51144 ops/sec ...`, or without the rate.
fn bench(line: &str) -> Option<Bench> {
    let (name, rest) = line.split_once(" : ").or_else(|| line.split_once(": "))?;
    let mut words = rest.split_whitespace();
    let micros = words.next()?.parse().ok()?;
    if !words.next()?.starts_with("micros/op") {
        return None;
    }
    let rate = words.next().and_then(|word| word.parse().ok());
    let ops_s = rate.filter(|_| words.next() == Some("ops/sec"));
    Some(Bench { name: name.trim().to_owned(), micros, ops_s, ..Bench::default() })
}

/// The number behind a word.
fn after(text: &str, word: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()?.parse().ok()
}

/// Bytes that RocksDB wrote to its files, by its own statistics: log, flushes and compactions.
pub(crate) fn bytes_written(text: &str) -> Option<u64> {
    let count = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    };
    let flushed = count("rocksdb.flush.write.bytes")?;
    Some(count("rocksdb.wal.bytes")? + flushed + count("rocksdb.compact.write.bytes")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RocksDB 7.8.3.
    const ROCKS: &str = "\
DB path: [/tmp/t1]
filluniquerandom :      19.543 micros/op 51144 ops/sec 1.173 seconds 60000 operations;  200.6 MB/s
Microseconds per write:
Count: 60000 Average: 19.5481  StdDev: 297.37
Min: 6  Median: 8.3892  Max: 38707
Percentiles: P50: 8.39 P75: 9.58 P99: 70.76 P99.9: 1663.16 P99.99: 11266.67
overwrite    :      35.410 micros/op 28238 ops/sec 2.125 seconds 60000 operations;  110.7 MB/s
Percentiles: P50: 8.36 P75: 9.54 P99: 879.83 P99.9: 3003.45 P99.99: 15600.00
rocksdb.wal.bytes COUNT : 495360000
rocksdb.compact.write.bytes COUNT : 724823040
rocksdb.flush.write.bytes COUNT : 483492164
rocksdb.compact.write.marked.bytes COUNT : 5
rocksdb.db.write.micros P50 : 8.3 P95 : 15.2 P99 : 80.1 P100 : 38707.0 COUNT : 60000 SUM : 9
";

    /// LevelDB 1.23.
    const LEVEL: &str = "\
WARNING: Snappy compression is not enabled
fillrandom   :      18.724 micros/op;  209.4 MB/s
readseq      :       0.500 micros/op; 3000.1 MB/s
";

    #[test]
    fn db_bench_rocksdb_output_has_rates_and_percentiles() {
        let found = benches(ROCKS);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].rate()), ("filluniquerandom", 51144.0));
        assert_eq!((found[1].p50_us, found[1].p99_us), (Some(8.36), Some(879.83)));
        assert_eq!(found[1].p999_us, Some(3003.45));
        assert_eq!(bytes_written(ROCKS), Some(495_360_000 + 724_823_040 + 483_492_164));
    }

    #[test]
    fn db_bench_leveldb_output_has_times_only() {
        let found = benches(LEVEL);
        let names: Vec<_> = found.iter().map(|bench| bench.name.as_str()).collect();
        assert_eq!(names, ["fillrandom", "readseq"]);
        assert!((found[1].rate() - 2e6).abs() < 1.0, "{found:?}");
        assert_eq!(found[0].p99_us, None);
        assert_eq!(bytes_written(LEVEL), None);
    }
}
