//! The CSV files of zbdbench: ours for its plots, and those of real drives for our pictures.
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

/// `fio_zone_write.csv`: the rate of writes over the bytes written.
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

/// The rows of a real drive's file, in the units of our pictures.
#[derive(Clone, Debug, PartialEq)]
pub enum Results {
    /// `fio_zone_write.csv`: drive writes, and 10^6 bytes a second.
    Written(Vec<(f64, f64)>),
    /// `fio_zone_mixed.csv`: writes in 10^6 bytes a second, and the mean latency of reads in µs,
    /// where the drive reached the rate.
    Mixed(Vec<(f64, f64)>),
}

/// The drive writes of `fio_zone_write`, as many whatever the drive. Its column of GB cannot tell:
/// of a zoned drive it counts the gaps between zones.
const LOOPS: f64 = 6.0;

/// Reads a file of zbdbench, and tells by its columns which one it is.
pub fn read(text: &str) -> Result<Results, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().map_err(|error| error.to_string())?.clone();
    let column = |name: &str| heads.iter().position(|head| head.trim() == name);
    let mixed = column("write_avg_mbs_target").zip(column("read_lat_avg_us"));
    let written = column("written_gb").zip(column("write_avg_mbs"));
    let Some((x, y)) = mixed.or(written) else {
        let files = "written_gb and write_avg_mbs, or write_avg_mbs_target and read_lat_avg_us";
        return Err(format!("has no columns of zbdbench: {files}"));
    };
    let mut points = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| error.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        let number = |column: usize| match row.get(column).map_or("", str::trim) {
            "" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
                _ => Err(format!("line {line}: {text:?} is no number from 0")),
            },
        };
        points.extend(number(x)?.zip(number(y)?));
    }
    if points.is_empty() {
        return Err("has no results".into());
    }
    let mb = |mib: f64| mib * 1_048_576.0 / 1e6;
    if mixed.is_some() {
        return Ok(Results::Mixed(points.iter().map(|(x, y)| (mb(*x), *y)).collect()));
    }
    let share = LOOPS / to_f64(points.len() as u64);
    let points = (0..).zip(&points).map(|(at, (_, y))| (to_f64(at) * share, mb(*y)));
    Ok(Results::Written(points.collect()))
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
    fn zbdbench_results_of_real_drives_are_read() {
        let six = "written_gb,write_avg_mbs\n0,1000\n6,500\n12,250\n";
        let points = vec![(0.0, 1048.576), (2.0, 524.288), (4.0, 262.144)];
        assert_eq!(read(six), Ok(Results::Written(points)));
        let mixed =
            "write_avg_mbs_target,read_lat_avg_us,write_avg_mbs\n0,80.5,0\n25,90,25\n50,,40\n";
        let points = vec![(0.0, 80.5), (26.2144, 90.0)];
        assert_eq!(read(mixed), Ok(Results::Mixed(points)));
        for (text, said) in [
            ("", "has no columns of zbdbench"),
            ("seconds,mb_s\n1,2\n", "has no columns of zbdbench"),
            ("written_gb,write_avg_mbs\n", "has no results"),
            ("written_gb,write_avg_mbs\n0,1\n1,fast\n", "line 3: \"fast\" is no number"),
            ("written_gb,write_avg_mbs\n0,-1\n", "line 2: \"-1\" is no number"),
            ("written_gb,write_avg_mbs\n0\n", "line"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn zbdbench_results_round_trip() {
        let stretches = [0, 1].map(|at| Stretch { written_bytes: at, bytes_per_s: 1_048_576e3 });
        let points = vec![(0.0, 1048.576), (3.0, 1048.576)];
        assert_eq!(read(&zone_write(&stretches).csv()), Ok(Results::Written(points)));
    }

    #[test]
    fn zbdbench_columns_match() {
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
