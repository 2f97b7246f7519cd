//! The experiments that come with the simulator, in their quick form: they run, their claims are
//! about something, the same seed gives the same page, and the published values come out.

use std::num::NonZeroUsize;
use std::sync::OnceLock;

use zonal_sim::experiment::{self, Changes, Experiment, Name, Overlay, Scope, reproduce};
use zonal_sim::report::Picture;
use zonal_sim::report::page::{Program, Section};

fn changes(seed: u64) -> Changes {
    Changes { seed: Some(seed), scope: Scope::Quick, ..Changes::default() }
}

fn run(experiments: Vec<Experiment>, threads: usize) -> Vec<Section> {
    let threads = NonZeroUsize::new(threads).expect("not 0");
    experiment::run(experiments, threads, &|_| {}).expect("they run")
}

fn all(changes: &Changes) -> Vec<Experiment> {
    reproduce::all(changes).expect("the configs are right")
}

/// All of them once, by two threads: seconds, so the tests share it.
fn page_of_all() -> &'static [Section] {
    static SECTIONS: OnceLock<Vec<Section>> = OnceLock::new();
    SECTIONS.get_or_init(|| run(all(&changes(1)), 2))
}

#[test]
fn experiment_page_is_same_on_any_number_of_threads() {
    let program = Program { version: "1.2.3".into(), commit: Some("abc".into()) };
    let page =
        |sections: &[Section]| reproduce::page(sections.to_vec(), &changes(1), &program).html();
    let two = page(page_of_all());
    assert_eq!(page(&run(all(&changes(1)), 1)), two, "threads change nothing");
    assert!(two.contains("This is a quick run") && two.contains("zonal 1.2.3, commit abc"));
    assert!(two.contains("and 0 were read off a picture"));
}

#[test]
fn experiment_page_depends_on_seed() {
    let ways = |seed| {
        let one = Experiment::new(Name::Ways, Name::Ways.text(), &changes(seed));
        run(vec![one.expect("a config")], 2).remove(0)
    };
    assert_ne!(ways(1).tables, ways(2).tables);
}

#[test]
fn experiment_reproduces_published_results() {
    let sections = page_of_all();
    assert_eq!(sections.len(), Name::ALL.len());
    for section in sections {
        let named = section.text.iter().find(|text| text.contains("Not measured"));
        assert_eq!(named, None, "{}", section.name);
        assert!(!section.tables.is_empty() && !section.pictures.is_empty(), "{}", section.name);
        assert!(section.tables.iter().all(|table| !table.rows.is_empty()), "{}", section.name);
        serde_json::from_str::<serde_json::Value>(&experiment::json(section)).expect("JSON");
    }
    let charts: Vec<_> = sections.iter().flat_map(|section| &section.charts).collect();
    let off = |title: &str, what: &str| {
        let chart = charts.iter().find(|chart| chart.title == title);
        let chart = chart.unwrap_or_else(|| panic!("no chart {title}"));
        assert!(
            !chart.document.is_empty() && chart.claims.iter().all(|claim| !claim.place.is_empty())
        );
        let found = chart.claims.iter().find(|claim| claim.what == what);
        found.unwrap_or_else(|| panic!("no claim {what} in {title}")).error.value.abs()
    };
    // Each of the talk's figures, by the reading under which it comes out; within a tenth, because
    // these drives are smaller than the page's.
    let loss = "loss of write throughput against ZNS in the second drive write";
    let better = "mean read latency: by how much ZNS is better";
    for (title, what) in [
        ("write throughput in the steady state", "ZNS"),
        ("write throughput in the steady state", "conventional, sold as 7 %, uniform"),
        ("ZNS over conventional, 7 %: sustained writes", "sold as 7 %, uniform"),
        (loss, "sold as 28 %, uniform"),
        (loss, "sold as 7 %, uniform"),
        ("write amplification at 7 %", "sold as 7 %, 14 zones"),
        ("write amplification at 28 %", "sold as 28 %, 14 zones"),
        ("write amplification at 28 %", "sold as 28 %, uniform"),
        (better, "uniform, 50 MB/s"),
        (better, "uniform, 100 MB/s"),
        (better, "uniform, 200 MB/s"),
        ("memory of the mapping table", "conventional"),
    ] {
        let off = off(title, what);
        assert!(off < 10.0, "{title}, {what}: {off} off");
    }
    // And one that cannot come out, which the page must not hide.
    assert!(off("write amplification at 7 %", "physical 7 %, uniform") > 100.0);
}

#[test]
fn experiment_repeats_from_saved_config() {
    let run = |text: &str, changes: &Changes| {
        let one = Experiment::new(Name::Ways, text, changes).expect("a config");
        experiment::run(vec![one], NonZeroUsize::MIN, &|_| {}).expect("runs").remove(0)
    };
    let first = run(Name::Ways.text(), &changes(7));
    let again = run(&first.config, &Changes::default());
    assert_eq!(first, again);
    let dir = tempfile::tempdir().expect("a directory");
    let files = experiment::save(&first, dir.path(), &[]).expect("saved");
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    assert_eq!(names, ["ways.json", "ways.toml", "ways.csv", "ways.svg"]);
    let saved = std::fs::read_to_string(dir.path().join("ways.toml")).expect("saved");
    assert_eq!(saved, first.config);
}

#[test]
fn experiment_overlays_results_of_real_drives() {
    let overlay = |text: &str| Overlay::from_zbdbench("mine", text).expect("of zbdbench");
    let reads = "write_avg_mbs_target,read_lat_avg_us\n0,80\n50,99.5\n";
    let overlays = vec![overlay("written_gb,write_avg_mbs\n0,900\n1,800\n"), overlay(reads)];
    assert_eq!((overlays[0].of, overlays[1].of), (Name::Throughput, Name::Latency));
    let settings = vec!["measure.rates_mb_s=[0]".parse().expect("a setting")];
    let changes = Changes { overlays, settings, ..changes(1) };
    let run = |text: &str, changes: &Changes| {
        let one = Experiment::new(Name::Latency, text, changes).expect("a config");
        experiment::run(vec![one], NonZeroUsize::MIN, &|_| {}).expect("runs").remove(0)
    };
    let section = run(Name::Latency.text(), &changes);
    let Picture::Chart(mean) = &section.pictures[0] else { panic!("{:?}", section.pictures[0]) };
    let mine: Vec<_> = mean.series.iter().filter(|series| series.name == "mine").collect();
    assert_eq!(mine.len(), 1, "the other one is of throughput: {mine:?}");
    assert_eq!(mine[0].points, [(0.0, 80.0), (52.4288, 99.5)]);
    // The file is not needed again.
    assert_eq!(run(&section.config, &Changes::default()), section);
}

#[test]
fn experiment_impossible_is_refused() {
    for (text, said) in [
        ("base.drive.kind=zmr", "zmr"),
        ("measure.years=x", "years"),
        ("base.drive.opp=1", "opp"),
        ("base.run.warm_up=1000", "run.warm_up = 1000 is not possible"),
        ("experiment=cost", "is not possible here"),
    ] {
        let settings = vec![text.parse().expect("a setting")];
        let changes = Changes { settings, ..changes(1) };
        let error = Experiment::new(Name::Lifetime, Name::Lifetime.text(), &changes);
        let error = error.err().expect(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}
