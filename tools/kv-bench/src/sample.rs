//! Measured samples, and reports of them: medians, tables, pictures.

use std::fmt::Write;

use bench_support::{Figure, Spread};
use zonal_sim::report::chart::{Axis, Bars, Picture};

/// One benchmark in one place in one round. Figures that were not measured are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// The workload, with its sizes.
    pub(crate) workload: String,
    /// The benchmark of `db_bench`.
    pub(crate) phase: String,
    /// The place.
    pub(crate) place: &'static str,
    /// The round, from 1 on.
    pub(crate) round: u32,
    /// Operations a second.
    pub(crate) ops_s: Option<f64>,
    /// Processor time per operation of program and daemon.
    pub(crate) cpu_us: Option<f64>,
    /// The daemon's part of it.
    pub(crate) daemon_us: Option<f64>,
    /// The median time of an operation.
    pub(crate) p50_us: Option<f64>,
    /// 99 of 100 did.
    pub(crate) p99_us: Option<f64>,
    /// 999 of 1,000 did.
    pub(crate) p999_us: Option<f64>,
    /// Bytes written to the device for each that the program wrote.
    pub(crate) device_wa: Option<f64>,
    /// The same as Furrow counts it: for each byte of file data that came to it.
    pub(crate) furrow_wa: Option<f64>,
    /// Bytes of all files for each byte of distinct keys and values.
    pub(crate) space: Option<f64>,
    /// Share of the drive that the files take.
    pub(crate) fill: Option<f64>,
}

/// A number of a sample.
pub(crate) type Field = fn(&Sample) -> Option<f64>;

/// A column of a table: its head and its number.
pub(crate) type Column = (&'static str, Field);

/// All samples of one run of this program.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// All rounds of a workload's phase in a place.
    fn of(&self, at: (&str, &str), place: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| {
            (sample.workload.as_str(), sample.phase.as_str()) == at && sample.place == place
        })
    }

    /// One number of each round.
    fn values(&self, at: (&str, &str), place: &str, field: Field) -> Vec<f64> {
        self.of(at, place).filter_map(field).collect()
    }

    /// The samples as figures of a results file: a row for each phase and place.
    pub(crate) fn figures(&self, load: &str, columns: &[Column]) -> Vec<Figure> {
        let mut figures = Vec::new();
        for at in self.phases() {
            let workload = at.0.strip_prefix(load).unwrap_or(at.0);
            for place in self.places() {
                let names = [workload, at.1, place].into_iter().filter(|name| !name.is_empty());
                let name = names.collect::<Vec<_>>().join(", ");
                let of = columns.iter().map(|(head, field)| {
                    Figure::new(name.as_str(), *head, self.values(at, place, *field))
                });
                figures.extend(of.filter(|figure| !figure.samples.is_empty()));
            }
        }
        figures
    }

    /// Ratios to the figures of `base` in the same rounds: a row for each workload and place, a
    /// column for each benchmark of a process. Names leave out `load`.
    pub(crate) fn beside(&self, load: &str, base: &str, field: Field) -> Vec<Figure> {
        let mut figures = Vec::new();
        for place in self.places().into_iter().filter(|place| *place != base) {
            for (workload, phase) in self.phases() {
                // LevelDB's phases name the fill first.
                let (fill, benchmark) = match phase.split_once(": ") {
                    Some((fill, benchmark)) => (format!("{fill}, "), benchmark),
                    None if phase.starts_with("fill") => (format!("{phase}, "), "fill"),
                    None => (String::new(), phase),
                };
                let at = (workload, phase);
                let samples = self.ratios(at, (place, base), field);
                let workload = match workload.strip_prefix(load) {
                    Some("") => String::new(),
                    rest => format!("{}, ", rest.unwrap_or(workload)),
                };
                let name = format!("{workload}{fill}{place}");
                figures.push(Figure::new(name, benchmark, samples));
            }
        }
        figures.retain(|figure| !figure.samples.is_empty());
        figures.sort_by(|one, other| one.name.cmp(&other.name));
        figures
    }

    /// Rounds that were measured.
    pub(crate) fn rounds(&self) -> u32 {
        self.0.iter().map(|sample| sample.round).max().unwrap_or(0)
    }

    /// The spread of a figure over the rounds.
    pub(crate) fn spread(&self, at: (&str, &str), place: &str, field: Field) -> Option<Spread> {
        Spread::of(&self.values(at, place, field))
    }

    /// Divides the figure of each round by the figure of `base` in that round; the median of these.
    pub(crate) fn ratio(
        &self,
        at: (&str, &str),
        places: (&str, &str),
        field: Field,
    ) -> Option<Spread> {
        Spread::of(&self.ratios(at, places, field))
    }

    fn ratios(&self, at: (&str, &str), (place, base): (&str, &str), field: Field) -> Vec<f64> {
        let of =
            |place, round| self.of(at, place).find(|sample| sample.round == round).and_then(field);
        (1..=self.rounds()).filter_map(|round| Some(of(place, round)? / of(base, round)?)).collect()
    }

    /// Workloads with their phases, in the order in which they were measured.
    pub(crate) fn phases(&self) -> Vec<(&str, &str)> {
        unique(self.0.iter().map(|sample| (sample.workload.as_str(), sample.phase.as_str())))
    }

    /// Places in the order in which they were measured.
    pub(crate) fn places(&self) -> Vec<&'static str> {
        unique(self.0.iter().map(|sample| sample.place))
    }

    /// A table in Markdown with a row for each phase and place, without columns that have no
    /// number.
    pub(crate) fn table(&self, columns: &[Column]) -> String {
        let used: Vec<&Column> = columns
            .iter()
            .filter(|(_, field)| self.0.iter().any(|sample| field(sample).is_some()))
            .collect();
        let heads: Vec<&str> = used.iter().map(|(head, _)| *head).collect();
        let mut text = format!("| load | place | {} |\n", heads.join(" | "));
        writeln!(text, "| --- | --- |{}", " --- |".repeat(used.len())).expect("a string takes all");
        for at in self.phases() {
            for place in self.places() {
                let cells: Vec<_> =
                    used.iter().map(|(_, field)| self.spread(at, place, *field)).collect();
                if cells.iter().all(Option::is_none) {
                    continue;
                }
                let shown =
                    |cell: &Option<Spread>| cell.map_or_else(String::new, |of| of.to_string());
                let cells: Vec<String> = cells.iter().map(shown).collect();
                writeln!(text, "| {}, {} | {place} | {} |", at.0, at.1, cells.join(" | "))
                    .expect("a string takes all");
            }
        }
        text
    }

    /// Bars of each phase and place, relative to `base`.
    pub(crate) fn picture(&self, title: &str, label: &str, base: &str, field: Field) -> Picture {
        let (names, phases) = (self.places(), self.phases());
        let is_one_workload = phases.iter().all(|(workload, _)| *workload == phases[0].0);
        let group = |at: (&str, &str)| {
            let ratio = |place: &&str| {
                self.ratio(at, (place, base), field).map_or(f64::NAN, |spread| spread.median)
            };
            let values: Vec<f64> = names.iter().map(ratio).collect();
            values.iter().any(|value| value.is_finite()).then(|| {
                let label = if is_one_workload { at.1 } else { sizes_of(at.0) };
                (label.to_owned(), values)
            })
        };
        Picture::Bars(Bars {
            title: title.to_owned(),
            y: Axis::linear(label),
            groups: phases.iter().copied().filter_map(group).collect(),
            names: names.into_iter().map(str::to_owned).collect(),
            ranges: Vec::new(),
        })
    }
}

/// `16 B/4 KiB`: the text behind the name of a workload.
fn sizes_of(workload: &str) -> &str {
    workload.rsplit_once(", ").map_or(workload, |(_, sizes)| sizes)
}

fn unique<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// A figure and its limit.
#[derive(Debug)]
pub(crate) struct Goal {
    /// The compared figure.
    pub(crate) what: String,
    /// The measured value.
    pub(crate) found: f64,
    /// The largest or smallest value that is good.
    pub(crate) wanted: f64,
    /// Whether `wanted` is the largest or the smallest good value.
    pub(crate) bound: Bound,
}

/// How a goal bounds a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    AtMost,
    AtLeast,
}

impl Goal {
    /// One line.
    pub(crate) fn text(&self) -> String {
        let (word, is_met) = match self.bound {
            Bound::AtMost => ("at most", self.found <= self.wanted),
            Bound::AtLeast => ("at least", self.found >= self.wanted),
        };
        let met = if is_met { "met" } else { "missed" };
        format!("{}: {:.3}, the goal is {word} {}: {met}", self.what, self.found, self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Samples {
        let of = |place, round, ops_s| Sample {
            workload: "RocksDB, 16 B/4 KiB".to_owned(),
            phase: "overwrite".to_owned(),
            place,
            round,
            ops_s: Some(ops_s),
            ..Sample::default()
        };
        Samples(vec![
            of("ext4", 1, 10.0),
            of("mount", 1, 5.0),
            of("mount", 2, 40.0),
            of("ext4", 2, 20.0),
            of("mount", 3, 9.0),
        ])
    }

    const AT: (&str, &str) = ("RocksDB, 16 B/4 KiB", "overwrite");

    #[test]
    fn samples_medians_use_all_rounds_ratios_common_ones() {
        let samples = samples();
        let spread = samples.spread(AT, "mount", |sample| sample.ops_s).unwrap();
        assert_eq!(spread, Spread { median: 9.0, least: 5.0, most: 40.0 });
        let ratio = samples.ratio(AT, ("mount", "ext4"), |sample| sample.ops_s).unwrap();
        assert_eq!(ratio, Spread { median: 1.25, least: 0.5, most: 2.0 });
        assert_eq!(samples.spread(AT, "plugin", |sample| sample.ops_s), None);
    }

    #[test]
    fn samples_beside_have_one_row_for_each_load_and_place() {
        let mut samples = samples();
        for sample in &mut samples.0 {
            sample.phase = "fillseq: readseq".to_owned();
        }
        let figures = samples.beside("RocksDB, ", "ext4", |sample| sample.ops_s);
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].name, "16 B/4 KiB, fillseq, mount");
        assert_eq!((&*figures[0].variant, &*figures[0].samples), ("readseq", &[0.5, 2.0][..]));
    }

    #[test]
    fn samples_table_omits_columns_without_numbers() {
        let columns: [Column; 2] =
            [("ops/s", |sample| sample.ops_s), ("µs", |sample| sample.cpu_us)];
        let table = samples().table(&columns);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "| load | place | ops/s |");
        assert_eq!(lines[2], "| RocksDB, 16 B/4 KiB, overwrite | ext4 | 15 (10 to 20) |");
        assert_eq!(lines.len(), 4);
        let figures = samples().figures("RocksDB, ", &columns);
        let of: Vec<_> = figures.iter().map(|of| (of.name.as_str(), of.samples.len())).collect();
        let row = |place| format!("16 B/4 KiB, overwrite, {place}");
        assert_eq!(of, [(row("ext4").as_str(), 2), (row("mount").as_str(), 3)]);
    }

    #[test]
    fn bars_are_ratios_labelled_by_what_differs() {
        let groups = |samples: &Samples| {
            let field: Field = |sample| sample.ops_s;
            let Picture::Bars(bars) = samples.picture("", "", "ext4", field) else {
                panic!("bars")
            };
            bars.groups
        };
        let mut samples = samples();
        assert_eq!(groups(&samples), [("overwrite".to_owned(), vec![1.0, 1.25])]);
        let other = Sample { workload: "RocksDB, 20 B/800 B".to_owned(), ..samples.0[0].clone() };
        samples.0.push(other);
        let labels: Vec<String> = groups(&samples).into_iter().map(|(label, _)| label).collect();
        assert_eq!(labels, ["16 B/4 KiB", "20 B/800 B"]);
    }

    #[test]
    fn goal_text_says_met_or_missed() {
        let goal = |found, bound| Goal { what: "x".to_owned(), found, wanted: 1.0, bound }.text();
        assert_eq!(goal(1.2, Bound::AtMost), "x: 1.200, the goal is at most 1: missed");
        assert_eq!(goal(1.2, Bound::AtLeast), "x: 1.200, the goal is at least 1: met");
    }
}
