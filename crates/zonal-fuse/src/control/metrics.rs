//! The report of a mount as metrics for Prometheus.
//!
//! There are two dialects: the text format 0.0.4 of Prometheus, and `OpenMetrics` 1.0. Names and
//! units follow the rules of Prometheus: base units, and `_total` for counters. Labels have a
//! bounded number of values: zones have no label; `zonal top` shows them.

use std::fmt::{Display, Write};

use zonal_fs::furrow::Live;

use super::report::Report;
use crate::latency::{Coarse, Operation};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `text/plain; version=0.0.4`.
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// Writer of one text.
struct MetricsText {
    written: String,
    dialect: Dialect,
    /// Labels of every sample, which identify the mount.
    mount: Vec<(&'static str, String)>,
}

impl MetricsText {
    /// Begins a metric; `name` of a counter has no `_total`.
    fn begin(&mut self, name: &str, kind: MetricType, help: &str) {
        let (kind, ending) = match (kind, self.dialect) {
            (MetricType::Counter, Dialect::Prometheus) => ("counter", "_total"),
            (MetricType::Counter, Dialect::OpenMetrics) => ("counter", ""),
            (MetricType::Gauge, _) => ("gauge", ""),
            (MetricType::Histogram, _) => ("histogram", ""),
        };
        let text = &mut self.written;
        writeln!(text, "# HELP {name}{ending} {help}\n# TYPE {name}{ending} {kind}")
            .expect(TAKES_ALL);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.written.push_str(name);
        let of_mount = self.mount.iter().map(|(label, value)| (*label, value.as_str()));
        let mut before = '{';
        for (label, value) in labels.iter().copied().chain(of_mount) {
            let value = escaped(value);
            write!(self.written, "{before}{label}=\"{value}\"").expect(TAKES_ALL);
            before = ',';
        }
        let end = if before == '{' { "" } else { "}" };
        writeln!(self.written, "{end} {value}").expect(TAKES_ALL);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, MetricType::Counter, help);
        self.sample(&format!("{name}_total"), &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, MetricType::Gauge, help);
        self.sample(name, &[], value);
    }

    /// A gauge with one sample for each value of a label.
    fn gauges<V: Display>(&mut self, name: &str, help: &str, label: &str, values: &[(&str, V)]) {
        self.begin(name, MetricType::Gauge, help);
        for (value, number) in values {
            self.sample(name, &[(label, value)], number);
        }
    }
}

const TAKES_ALL: &str = "a string takes all";

/// Escapes the value of a label, as both dialects do. Only mount points need it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The metrics of a report.
pub fn text(report: &Report, coarse: &[(Operation, Coarse)], dialect: Dialect) -> String {
    let mount = ["mount", "uuid"].map(|name| (name, report.setting(name).to_owned()));
    let mount = mount.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let mut text = MetricsText { written: String::new(), dialect, mount };
    text.begin(
        "zonal_mount",
        MetricType::Gauge,
        "Type and access of the mount, and how requests come; always 1.",
    );
    let setting = |name| (name, report.setting(name));
    let labels = [("type", &*report.kind), setting("access"), setting("transport")];
    text.sample("zonal_mount", &labels, 1);
    match &report.live {
        Some(live) => {
            space(&mut text, live);
            zones(&mut text, report, live);
            traffic(&mut text, report, live);
            furrow_counters(&mut text, report);
        }
        None => other_counters(&mut text, report),
    }
    operations(&mut text, coarse);
    if dialect == Dialect::OpenMetrics {
        text.written.push_str("# EOF\n");
    }
    text.written
}

fn space(text: &mut MetricsText, live: &Live) {
    let bytes = |blocks: u64| blocks * live.block_bytes;
    let blocks = live.blocks;
    text.gauge(
        "zonal_capacity_bytes",
        "What working zones can hold, without superblocks.",
        bytes(blocks.capacity),
    );
    text.gauges(
        "zonal_space_bytes",
        "The capacity by its use.",
        "use",
        &[
            ("used", bytes(blocks.used)),
            ("in_flight", bytes(blocks.in_flight)),
            ("reclaimable", bytes(blocks.reclaimable)),
            ("free", bytes(blocks.free)),
            ("metadata", bytes(blocks.metadata)),
        ],
    );
    text.gauge(
        "zonal_reserved_bytes",
        "Free and reclaimable space that is kept from files, for metadata and reclaim.",
        bytes(blocks.reserved),
    );
    text.gauge("zonal_available_bytes", "What files may still fill.", bytes(blocks.available));
    let held = live.reservations;
    text.gauge("zonal_room_bytes", "What can be written before reclaim.", bytes(held.room));
    text.gauge("zonal_low_mark_bytes", "Room below which writers pay.", bytes(held.low_mark));
    text.gauges(
        "zonal_reservation_bytes",
        "What writes hold.",
        "for",
        &[
            ("pending", bytes(held.pending)),
            ("growing", bytes(held.growing)),
            ("preallocated", bytes(held.preallocated)),
        ],
    );
}

fn zones(text: &mut MetricsText, report: &Report, live: &Live) {
    let zones = ["zones_free", "open_zones", "zones_sealed", "zones_metadata", "zones_failed"];
    let zones = zones.map(|counter| {
        let name = counter.trim_start_matches("zones_").trim_end_matches("_zones");
        (name, report.counter(counter))
    });
    text.gauges("zonal_zones", "Zones by their use.", "use", &zones);
    let tenths = ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90"];
    let tenths: Vec<(&str, u64)> = tenths.into_iter().zip(live.used_tenths).collect();
    let help = "Zones that hold data and are not written, by the percentage in use, in tens.";
    text.gauges("zonal_zones_used_share", help, "percent", &tenths);
    let mut classes: Vec<(&str, u64)> = Vec::new();
    for zone in &live.open_zones {
        match classes.iter_mut().find(|(class, _)| *class == zone.class) {
            Some((_, count)) => *count += 1,
            None => classes.push((&zone.class, 1)),
        }
    }
    text.gauges("zonal_open_zones", "Zones that data is written to.", "class", &classes);
    let help = "Zones that data is written to at once, at most.";
    text.gauge("zonal_open_zones_max", help, report.counter("open_zones_max"));
    text.gauge("zonal_victims", "Zones that reclaim is emptying.", live.victims.len());
}

fn traffic(text: &mut MetricsText, report: &Report, live: &Live) {
    text.begin("zonal_written_bytes", MetricType::Counter, "Written to the drive since mount.");
    let all = live.since_mount;
    for (what, bytes) in [("user", all.user), ("reclaim", all.reclaim), ("metadata", all.meta)] {
        text.sample("zonal_written_bytes_total", &[("what", what)], bytes);
    }
    let ratios = [("mount", all.amplification()), ("minute", live.minute.amplification())];
    let ratios: Vec<(&str, f64)> =
        ratios.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))).collect();
    let help = "Bytes written to the drive per byte of file data.";
    text.gauges("zonal_write_amplification", help, "since", &ratios);
    text.begin(
        "zonal_reclaim_ratio",
        MetricType::Gauge,
        "Blocks moved per block freed, last victims.",
    );
    if let Some(ratio) = live.reclaimed.ratio() {
        text.sample("zonal_reclaim_ratio", &[], ratio);
    }
    let waits = report.counter("waits");
    text.counter("zonal_waits", "Times that a writer waited for room, or made some.", waits);
    let help = "How long writers waited for room, or made some.";
    text.counter("zonal_wait_seconds", help, seconds(report.counter("wait_ns")));
    let help = "Writers that wait for room now.";
    text.gauge("zonal_writers_waiting", help, live.reservations.waiting);
}

fn furrow_counters(text: &mut MetricsText, report: &Report) {
    for (name, metric, help) in [
        ("read_bytes", "zonal_read_bytes", "Read from the drive since mount."),
        ("flushes", "zonal_flushes", "Flushes of the drive since mount."),
        ("resets", "zonal_resets", "Zones reset since mount."),
        ("jumps", "zonal_jumps", "Transfers that did not go on where the one before had ended."),
        ("batches", "zonal_commits", "Commits over the file system's life."),
        ("cache_hits", "zonal_cache_hits", "Parts of the table that were found in memory."),
        ("cache_misses", "zonal_cache_misses", "Parts of the table that were read."),
        ("blocks_reread", "zonal_blocks_reread", "Blocks right only when read again."),
        ("blocks_moved_wrong", "zonal_blocks_moved_wrong", "Blocks moved that stayed wrong."),
    ] {
        text.counter(metric, help, report.counter(name));
    }
    text.gauge("zonal_leaves_lost", "Leaves of the table lost.", report.counter("leaves_lost"));
    let owed = ["zones_unread", "resets_owed", "removals_owed"];
    let owed = owed.map(|counter| (counter, report.counter(counter)));
    text.gauges("zonal_owed", "Work that the drive has refused, tried again.", "work", &owed);
    text.gauges(
        "zonal_memory_bytes",
        "Memory for metadata.",
        "what",
        &[
            ("limit", report.counter("memory")),
            ("held", report.counter("held_bytes")),
            ("cache", report.counter("cache_bytes")),
        ],
    );
}

fn other_counters(text: &mut MetricsText, report: &Report) {
    for (name, value) in &report.named {
        if let Some(value) = value.as_u64() {
            let help = format!("{name} of the control directory.");
            text.gauge(&format!("zonal_{}_{name}", report.kind), &help, value);
        }
    }
}

fn operations(text: &mut MetricsText, coarse: &[(Operation, Coarse)]) {
    let name = "zonal_operation_duration_seconds";
    text.begin(name, MetricType::Histogram, "How long requests took, from request to answer.");
    let [bucket, sum, count] = ["bucket", "sum", "count"].map(|part| format!("{name}_{part}"));
    for (operation, of) in coarse {
        let operation = ("operation", operation.name());
        for (limit, below) in &of.below {
            let limit = seconds(*limit).to_string();
            text.sample(&bucket, &[operation, ("le", &limit)], below);
        }
        text.sample(&bucket, &[operation, ("le", "+Inf")], of.count);
        text.sample(&sum, &[operation], seconds(of.total_ns));
        text.sample(&count, &[operation], of.count);
    }
}

#[expect(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use zonal::ManualClock;
    use zonal_fs::furrow::stats::{OpenZone, Reclaimed, Traffic};

    use super::*;
    use crate::latency::Latencies;

    /// Everything that a Furrow can show.
    fn full(dialect: Dialect) -> String {
        let traffic = Traffic { ns: 1, user: 10, reclaim: 5, meta: 2 };
        let open = |class: &str| OpenZone { class: class.to_owned(), ..OpenZone::default() };
        let live = Live {
            block_bytes: 4096,
            open_zones: vec![open("user"), open("user"), open("reclaim")],
            reclaimed: Reclaimed { victims: 1, moved: 3, freed: 2 },
            since_mount: traffic,
            minute: traffic,
            ..Live::default()
        };
        let named = [("access", "read-write"), ("transport", "/dev/fuse")];
        let named = named.map(|(name, value)| (name.to_owned(), value.into())).into();
        let report =
            Report { kind: "furrow".to_owned(), named, live: Some(live), ..Report::default() };
        let latencies = Latencies::new(Arc::new(ManualClock::new(0)));
        latencies.record(Operation::Read, 0);
        latencies.record(Operation::Write, 0);
        text(&report, &latencies.coarse(), dialect)
    }

    /// The names of all metrics as queries have them.
    fn names(text: &str) -> BTreeSet<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
    }

    /// The rules of both formats, as far as a text of ours can break them.
    pub(crate) fn check(text: &str, dialect: Dialect) {
        let mut types: BTreeMap<&str, &str> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut current = "";
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                assert!(rest.split_once(' ').is_some_and(|(_, help)| !help.is_empty()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(types.insert(name, kind).is_none(), "{name} twice");
                assert_eq!(
                    kind == "counter" && dialect == Dialect::Prometheus,
                    name.ends_with("_total"),
                    "{line}"
                );
                current = name;
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
                assert!(seen.insert(series), "{series} twice");
                let name = series.split('{').next().unwrap();
                assert!(name.starts_with(current), "{name} below {current}");
                let rest = &name[current.len()..];
                let expected: &[&str] = match (types[current], dialect) {
                    ("histogram", _) => &["_bucket", "_sum", "_count"],
                    ("counter", Dialect::OpenMetrics) => &["_total"],
                    _ => &[""],
                };
                assert!(expected.contains(&rest), "{name} below {current}");
            }
        }
        assert_eq!(text.ends_with("# EOF\n"), dialect == Dialect::OpenMetrics);
    }

    #[test]
    fn metrics_are_well_formed_in_both_dialects() {
        for dialect in [Dialect::Prometheus, Dialect::OpenMetrics] {
            let text = full(dialect);
            check(&text, dialect);
            for line in [
                "zonal_written_bytes_total{what=\"user\"} 10\n",
                "zonal_write_amplification{since=\"mount\"} 1.7\n",
                "zonal_reclaim_ratio 1.5\n",
                "zonal_open_zones{class=\"user\"} 2\n",
                "zonal_operation_duration_seconds_bucket{operation=\"read\",le=\"+Inf\"} 1\n",
                "zonal_mount{type=\"furrow\",access=\"read-write\",transport=\"/dev/fuse\"} 1\n",
            ] {
                assert!(text.contains(line), "{line} is not in\n{text}");
            }
        }
    }

    #[test]
    fn metrics_samples_name_their_mount() {
        let named = [("mount", "/mnt/a \"b\"\\x\nc"), ("uuid", "0123"), ("access", "read-only")];
        let named = named.map(|(name, value)| (name.to_owned(), value.into())).into();
        let live = Some(Live::default());
        let report = Report { kind: "furrow".to_owned(), named, live, ..Report::default() };
        for dialect in [Dialect::Prometheus, Dialect::OpenMetrics] {
            let text = text(&report, &[], dialect);
            check(&text, dialect);
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            let label = r#"mount="/mnt/a \"b\"\\x\nc",uuid="0123"} "#;
            let unlabelled: Vec<&str> = samples.filter(|line| !line.contains(label)).collect();
            assert_eq!(unlabelled, Vec::<&str>::new());
            assert!(text.contains("zonal_victims{mount="), "{text}");
        }
    }

    #[test]
    fn metrics_of_zonefs_have_its_counters() {
        let named =
            [("used_bytes".to_owned(), 4096.into()), ("errors".to_owned(), "repair".into())];
        let report = Report { kind: "zonefs".to_owned(), named: named.into(), ..Report::default() };
        let text = text(&report, &[], Dialect::Prometheus);
        check(&text, Dialect::Prometheus);
        assert!(text.contains("zonal_zonefs_used_bytes 4096\n"), "{text}");
    }

    /// The dashboard of the guide asks for nothing that does not exist.
    #[test]
    fn metrics_of_dashboard_exist() {
        let dashboard = include_str!("../../../../docs/grafana.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let names = names(&full(Dialect::Prometheus));
        let mut asked = 0;
        let panels = dashboard["panels"].as_array().unwrap();
        for target in panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
            let query = target["expr"].as_str().unwrap();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for word in query.split(|c| !is_name(c)).filter(|word| word.starts_with("zonal_")) {
                assert!(names.contains(word), "{word} of {query} is none of {names:?}");
                asked += 1;
            }
        }
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        for variable in variables {
            let query = variable["query"].as_str().unwrap_or_default();
            assert!(
                names.iter().any(|name| query.contains(name.as_str())) || query == "prometheus"
            );
        }
        assert!(asked >= 20, "{asked} metrics are asked for");
    }
}
