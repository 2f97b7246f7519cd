//! The CSV files of zbdbench, for results of real drives to be laid over ours.
//!
//! Columns and units are those of its benchmarks `fio_zone_write` and `fio_zone_mixed`. Its rates
//! are fio's: whole MiB a second where the name says `mbs`, except for reads, which it divides by
//! 1000 after fio divided by 1024.

use super::{Cell, Table};

/// The percentiles of `fio_zone_mixed`, in the order of its columns; the last is the longest.
pub const PERCENTILES: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 99.0, 99.9, 99.99, 99.999,
    99.9999, 99.99999, 100.0,
];

/// The rate of writes over a stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Bytes written before it.
    pub written_bytes: u64,
    /// Bytes a second in it.
    pub bytes_per_s: f64,
}

/// `fio_zone_write.csv`: the rate of writes over what was written.
pub fn zone_write(stretches: &[Stretch]) -> Table {
    let mut table = Table::new("fio_zone_write", &["written_gb", "write_avg_mbs"]);
    for stretch in stretches {
        let gb = Cell::Number(whole(to_f64(stretch.written_bytes) / 1e9));
        table.row(vec![gb, Cell::Number(whole(mib(stretch.bytes_per_s)))]);
    }
    table
}

/// Reads beside writes of one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Rate of writes that was asked for, in MiB a second; 0 for none.
    pub write_target_mib_s: f64,
    /// Rate of writes that was reached, in bytes a second.
    pub write_bytes_per_s: f64,
    /// Rate of reads, in bytes a second.
    pub read_bytes_per_s: f64,
    /// Mean latency of reads.
    pub read_mean_us: f64,
    /// Their latency at each of [`PERCENTILES`].
    pub read_us: [f64; 18],
}

/// `fio_zone_mixed.csv`: latency of random reads over the rate of writes. The mean is there only
/// where the drive reached the rate that was asked for, as zbdbench has it.
pub fn zone_mixed(mixes: &[Mix]) -> Table {
    let mut columns = vec![
        "write_avg_mbs_target".to_owned(),
        "read_lat_avg_us".to_owned(),
        "write_avg_mbs".to_owned(),
        "read_lat_avg_us_measured".to_owned(),
        "read_avg_mbs".to_owned(),
    ];
    let (_, below) = PERCENTILES.split_last().expect("there are percentiles");
    columns.extend(below.iter().map(|percentile| format!("clat_p{percentile}_us")));
    columns.push("clat_max_us".to_owned());
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("fio_zone_mixed", &names);
    for mix in mixes {
        let mean = (mix.read_mean_us * 1000.0).round() / 1000.0;
        let written = whole(mib(mix.write_bytes_per_s));
        let reached = (mix.write_target_mib_s - written).abs() < 0.5;
        let mut row = vec![
            Cell::Number(mix.write_target_mib_s),
            Cell::from(reached.then_some(mean)),
            Cell::Number(written),
            Cell::Number(mean),
            Cell::Number(whole(mix.read_bytes_per_s / 1024.0) / 1000.0),
        ];
        row.extend(mix.read_us.map(Cell::Number));
        table.row(row);
    }
    table
}

fn mib(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

/// zbdbench writes whole numbers. Rounded here, where it cuts off, so that a rate that is reached
/// but for its last bytes counts.
fn whole(number: f64) -> f64 {
    number.round()
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_of_zbdbench() {
        let stretches = [
            Stretch { written_bytes: 0, bytes_per_s: 1086.0 * 1_048_576.0 },
            Stretch { written_bytes: 1_920_000_000_000, bytes_per_s: 236.4 * 1_048_576.0 },
        ];
        let text = zone_write(&stretches).csv();
        assert_eq!(text, "written_gb,write_avg_mbs\n0,1086\n1920,236\n");
        let mix = Mix {
            write_target_mib_s: 50.0,
            write_bytes_per_s: 49.99 * 1_048_576.0,
            read_bytes_per_s: 40_960_000.0,
            read_mean_us: 100.123_456,
            read_us: PERCENTILES,
        };
        let slow = Mix { write_target_mib_s: 100.0, ..mix };
        let text = zone_mixed(&[mix, slow]).csv();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some(
                "write_avg_mbs_target,read_lat_avg_us,write_avg_mbs,read_lat_avg_us_measured,\
                 read_avg_mbs,clat_p1_us,clat_p5_us,clat_p10_us,clat_p20_us,clat_p30_us,\
                 clat_p40_us,clat_p50_us,clat_p60_us,clat_p70_us,clat_p80_us,clat_p90_us,\
                 clat_p99_us,clat_p99.9_us,clat_p99.99_us,clat_p99.999_us,clat_p99.9999_us,\
                 clat_p99.99999_us,clat_max_us"
            )
        );
        assert!(lines.next().is_some_and(|line| line.starts_with("50,100.123,50,100.123,40,1,5,")));
        assert!(lines.next().is_some_and(|line| line.starts_with("100,,50,100.123,40,")));
    }
}
