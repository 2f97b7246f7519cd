//! Sweeps: numbering, the same bytes however they are done, resuming, refusing.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// 64 superblocks of 384 KiB, one drive write.
const SMALL: &str = "seed = 5\n[flash]\nchannels = 2\ndies_per_channel = 1\n\
                     programs_per_block = 2\nsuperblocks = 64\n[gc]\nlow_water = 2\n\
                     [run]\ndrive_writes = 2\nwarm_up = 1\n";

fn sweep(overs: &[&str]) -> Result<Sweep> {
    let overs: Vec<Over> = overs.iter().map(|over| over.parse().expect(over)).collect();
    Sweep::plan(SMALL, &[], &overs, jobs(1))
}

fn standard() -> Sweep {
    sweep(&["op=20..50:10", "victim=greedy,fifo,d-choices:5"]).expect("a sweep")
}

fn jobs(jobs: usize) -> NonZero<usize> {
    NonZero::new(jobs).expect("not zero")
}

fn run(sweep: &Sweep, out: &Path, at_once: usize) -> Result<(usize, usize)> {
    sweep.run(out, jobs(at_once), &mut |_| {})
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it is there")
}

/// A folder, and all of the standard sweep in it.
fn done() -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("all.csv");
    assert_eq!(run(&standard(), &out, 1).expect("runs"), (0, 12));
    let text = read(&out);
    (folder, out, text)
}

#[test]
fn sweep_runs_are_numbered_with_own_seeds() {
    let (_folder, _, text) = done();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..7], ["run", "runs", "sweep", "config", "seed", "op", "victim"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][5], rows[1][6]), ("1", "12", "20", "greedy"));
    assert_eq!((rows[2][0], rows[2][5], rows[2][6]), ("2", "20", "fifo"));
    assert_eq!((rows[12][0], rows[12][5], rows[12][6]), ("12", "50", "d-choices:5"));
    let mut seeds: Vec<&str> = rows[1..].iter().map(|row| row[4]).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 12);
    // More room is less work, for every victim.
    let wa = |row: usize| rows[row][9].parse::<f64>().expect("a number");
    assert_eq!(rows[0][9], "wa");
    for victim in 1..=3 {
        assert!(wa(victim) > wa(victim + 3) && wa(victim + 3) > wa(victim + 9), "{text}");
    }
}

#[test]
fn sweep_jobs_do_not_change_bytes() {
    let (folder, _, text) = done();
    let eight = folder.path().join("eight.csv");
    run(&standard(), &eight, 8).expect("runs");
    assert_eq!(read(&eight), text);
}

#[test]
fn sweep_stopped_is_resumed() {
    let (folder, out, text) = done();
    assert_eq!(run(&standard(), &out, 4).expect("all is there"), (12, 0));
    let at = |line: usize| text.match_indices('\n').nth(line - 1).expect("a line").0 + 1;
    // Nothing, a torn head, the head, four rows, four rows and a torn one.
    for (end, there) in [(0, 0), (9, 0), (at(1), 0), (at(5), 4), (at(5) + 30, 4)] {
        std::fs::write(&out, &text[..end]).expect("written");
        let mut told = Vec::new();
        let tell = &mut |progress: Progress| told.push(progress.done);
        let ran = standard().run(&out, jobs(3), tell).expect("runs");
        assert_eq!(ran, (there, 12 - there), "{end}");
        assert_eq!(told, (there as u64..=12).collect::<Vec<_>>());
        assert_eq!(read(&out), text);
    }
    drop(folder);
}

#[test]
fn sweep_refuses_file_of_other_sweep() {
    let (folder, out, text) = done();
    for (other, said) in [
        (sweep(&["op=20..50:10"]), "columns"),
        (sweep(&["op=20..40:10", "victim=greedy,fifo,d-choices:5"]), "take another file"),
        (sweep(&["op=20..50:10", "victim=greedy,fifo,d-choices:6"]), "take another file"),
    ] {
        let error = run(&other.expect("a sweep"), &out, 1).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
    // As it was before all this.
    assert_eq!(read(&out), text);
    // A file of another program stays as it is too, even if its end looks like a torn row.
    let notes = folder.path().join("notes");
    for content in ["one line", "a line\nand one without its end", "\n\n"] {
        std::fs::write(&notes, content).expect("written");
        run(&standard(), &notes, 1).expect_err("no CSV of a sweep");
        assert_eq!(read(&notes), content);
    }
    let changed =
        Sweep::plan(&SMALL.replace("seed = 5", "seed = 6"), &[], &[], jobs(1)).expect("a sweep");
    let one = folder.path().join("one.csv");
    run(&changed, &one, 1).expect("runs");
    let same = Sweep::plan(SMALL, &[], &[], jobs(1)).expect("a sweep");
    assert!(run(&same, &one, 1).is_err(), "the seed is part of a sweep");
}

#[test]
fn sweep_names_impossible_run_before_starting() {
    for (overs, said) in [
        (&["op=1..40:39", "gc.low_water=2"][..], "run 1 (op=1 gc.low_water=2): drive.op"),
        (&["victim=greedy,best"], "run 2 (victim=best): gc.victim"),
        (&["drive.opp=1"], "unknown field"),
        (&["op=20", "op=30"], "op is swept over twice"),
        (&["op=20", "drive.op=0.3"], "drive.op is swept over twice: as op and as drive.op"),
        (&["policy=fifo", "victim=greedy"], "gc.victim is swept over twice: as policy and as"),
        (&["op=1..999", "seed=1..999", "theta=1..2"], "at most 1000000 runs"),
    ] {
        let error = sweep(overs).err().expect(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn sweep_covers_timed_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = SMALL.replace("[run]", "[drive]\nop = 0.5\n[workload]\nread_depth = 1\n[run]");
    let overs = ["run.mode=counting,timed".parse().expect("a list")];
    let sweep = Sweep::plan(&text, &[], &overs, jobs(1)).expect("a sweep");
    let out = folder.path().join("out.csv");
    run(&sweep, &out, 2).expect("runs");
    let text = read(&out);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|column| *column == name).expect(name);
    let number = |row: usize, name: &str| rows[row][column(name)].parse::<f64>().ok();
    for row in [1, 2] {
        assert!(number(row, "wa").is_some_and(|wa| wa > 1.0 && wa < 3.0), "{text}");
        assert!(number(row, "drive_writes").is_some_and(|done| (done - 1.0).abs() < 0.1), "{text}");
        assert_eq!(
            (number(row, "host_wa"), number(row, "drive_wa")),
            (Some(1.0), number(row, "wa"))
        );
        let erases = ["erases_min", "erases_mean", "erases_max"].map(|name| number(row, name));
        assert!(erases[0] < erases[1] && erases[1] < erases[2], "{text}");
    }
    for name in ["seconds", "write_mb_s", "write_p99_us", "read_mean_us", "read_p9999_us"] {
        assert_eq!(number(1, name), None, "{text}");
        assert!(number(2, name).is_some_and(|figure| figure > 0.0), "{name}: {text}");
    }
}

#[test]
fn sweep_failing_run_keeps_rows_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.csv");
    std::fs::write(&trace, "1,W,0,4096,1\nnonsense\n").expect("written");
    let text = format!("{SMALL}[workload]\ntrace = \"{}\"\n[drive]\nop = 0.5", trace.display());
    let overs = ["workload=uniform,trace".parse().expect("a list")];
    let failing = Sweep::plan(&text, &[], &overs, jobs(1)).expect("a sweep");
    let out = folder.path().join("out.csv");
    let error = run(&failing, &out, 2).expect_err("bad trace").to_string();
    assert!(error.contains("trace.csv, line 2"), "{error}");
    assert_eq!(read(&out).lines().count(), 2);
}

#[test]
fn sweep_columns_are_unique() {
    // The last words of these are the same, and `seed` is a column of every sweep.
    let swept = ["seed=1,2", "flash.superblocks=64,65", "zones.superblocks=1", "gc.streams=1"];
    let sweep = sweep(&swept).expect("a sweep");
    let columns = sweep.columns();
    let mut unique = columns.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), columns.len(), "{columns:?}");
    let fields = ["over.seed", "flash.superblocks", "zones.superblocks", "gc.streams"];
    assert_eq!(sweep.fields(), fields);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.csv");
    run(&sweep, &out, 2).expect("runs");
    let point = &sweep.points(&out).expect("all runs are there")[1];
    assert_eq!(point.values["over.seed"], "1");
    assert_eq!(point.values["flash.superblocks"], "65");
}

/// A sweep of two fields with three seeds, and its points.
fn seeded() -> (Sweep, Vec<Point>) {
    let overs = ["victim=greedy,fifo", "op=20,50"].map(|over| over.parse().expect(over));
    let sweep = Sweep::plan(SMALL, &[], &overs, jobs(3)).expect("a sweep");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.csv");
    assert_eq!(run(&sweep, &out, 2).expect("runs"), (0, 12));
    let text = read(&out);
    let points = sweep.points(&out).expect("all runs are there");
    // Straight from the file: the runs of one combination follow each other.
    for (at, point) in points.iter().enumerate() {
        let rows = text.lines().skip(1 + 3 * at).take(3);
        let mut wa: Vec<f64> =
            rows.map(|row| row.split(',').nth(9).expect("wa").parse().expect("wa")).collect();
        wa.sort_by(f64::total_cmp);
        let Spread { least, median, most } = point.figures["wa"];
        let bits = |figures: &[f64]| figures.iter().map(|one| one.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&[least, median, most]), bits(&wa), "{text}");
        assert!(least < most, "seeds differ: {text}");
    }
    (sweep, points)
}

#[test]
fn sweep_seeds_give_median_least_and_most() {
    let (sweep, points) = seeded();
    assert_eq!((sweep.len(), points.len()), (12, 4));
    let of = |at: usize| (points[at].values["victim"].as_str(), points[at].values["op"].as_str());
    assert_eq!([of(0), of(1), of(2)], [("greedy", "20"), ("greedy", "50"), ("fifo", "20")]);
    assert!(points.iter().all(|point| point.runs == 3 && !point.figures.contains_key("seconds")));
    let json = serde_json::to_value(&points[0]).expect("JSON");
    assert_eq!(json["figures"]["wa"]["median"], points[0].figures["wa"].median);
}

#[test]
fn sweep_picture_is_over_field_with_numbers() {
    use crate::report::Picture;
    let (sweep, points) = seeded();
    let picture = sweep.picture(&points, "wa").expect("a picture");
    let Picture::Chart(chart) = &picture else { panic!("op has numbers: {picture:?}") };
    assert_eq!(chart.title, "wa by victim, op: median, least and most of 3 seeds");
    let names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["greedy", "fifo"]);
    for (series, points) in chart.series.iter().zip(points.chunks(2)) {
        let wa = |at: usize| points[at].figures["wa"];
        assert_eq!(series.points, [(20.0, wa(0).median), (50.0, wa(1).median)]);
        let ranges: Vec<f64> = series.ranges.iter().map(|(_, range)| range.most).collect();
        assert_eq!(ranges, [wa(0).most, wa(1).most]);
    }
    let error = sweep.picture(&points, "seconds").expect_err("not measured").to_string();
    assert!(error.starts_with("this sweep measures no seconds: one of asked_bytes, "), "{error}");
}

#[test]
fn sweep_picture_without_numbers_has_bars() {
    use crate::report::Picture;
    let draw = |overs: &[&str]| {
        let sweep = sweep(overs).expect("a sweep");
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.csv");
        run(&sweep, &out, 2).expect("runs");
        let points = sweep.points(&out).expect("all runs are there");
        match sweep.picture(&points, "wa").expect("a picture") {
            Picture::Bars(bars) => bars,
            Picture::Chart(chart) => panic!("no field has numbers: {chart:?}"),
        }
    };
    let bars = draw(&["victim=greedy,fifo", "frontier=separate,mixed"]);
    let groups: Vec<&str> = bars.groups.iter().map(|(group, _)| group.as_str()).collect();
    assert_eq!(
        (groups, bars.names),
        (vec!["greedy", "fifo"], vec!["separate".into(), "mixed".into()])
    );
    assert!(bars.groups.iter().all(|(_, values)| values.len() == 2 && values[0] > 1.0));
    assert!(bars.ranges.is_empty(), "one seed has no error bars");
    let bars = draw(&[]);
    assert_eq!((bars.names.len(), bars.groups.len()), (1, 1));
}
