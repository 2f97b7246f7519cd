//! The report of a mount as text of at most 80 columns.
//!
//! With an earlier report of the same mount, it shows rates between the two as well.

use std::fmt::Write;

use zonal::size::readable as size;
use zonal_fs::furrow::Live;
use zonal_fs::furrow::stats::{Blocks, Traffic};

use super::report::Report;
use crate::latency::Latency;

/// Most open zones and victims in a list; the page shows only the number of further ones.
const ZONES_MAX: usize = 16;

/// Counters with a place of their own on the page.
const SHOWN: [&str; 10] = [
    "user_bytes",
    "reclaim_bytes",
    "meta_bytes",
    "cache_hits",
    "cache_misses",
    "waits",
    "wait_ns",
    "wait_ns_max",
    "open_zones",
    "open_zones_max",
];

/// The setting at the beginning of the page.
const ADVICE: &str = "advice";

/// The page.
pub fn page(report: &Report, before: Option<&Report>) -> String {
    let mut page = heading(report);
    if let Some(message) = Some(report.setting("panicked")).filter(|message| !message.is_empty()) {
        let _ = writeln!(page, "read-only, because it panicked: {message}");
    }
    if let Some(live) = &report.live {
        page += &blocks(live);
        page += &zones(live);
        page += &reclaim(report, live);
        page += &traffic(report, live, before);
    }
    page += &operations(report, before);
    page += &counters(report);
    page
}

fn heading(report: &Report) -> String {
    let mounted = report.live.as_ref().map(|live| live.since_mount.ns);
    let mounted = mounted.map_or(String::new(), |ns| format!(", mounted for {}", age(ns)));
    let is_paused = report.setting("reclaim") == "paused";
    let paused = if is_paused { ", reclaim paused" } else { "" };
    let transport = match report.setting("transport") {
        "" => String::new(),
        transport => format!(", by {transport}"),
    };
    // Only a zonefs can have either setting.
    let reads = match report.setting("async_direct_reads") {
        reads if report.kind == "zonefs" && !reads.is_empty() => {
            format!(", asynchronous direct reads {reads}")
        }
        _ => String::new(),
    };
    let advice = match report.setting(ADVICE) {
        "" => String::new(),
        advice => format!("advice: {advice}\n"),
    };
    let access = report.setting("access");
    format!("{}, {access}{transport}{reads}{mounted}{paused}\n{advice}", report.kind)
}

fn blocks(live: &Live) -> String {
    let Blocks { capacity, used, in_flight, reclaimable, free, metadata, reserved, available } =
        live.blocks;
    let mut rows = vec![row(&["blocks of 4 KiB", "blocks", "bytes", "share"])];
    for (name, blocks) in [
        ("capacity", capacity),
        ("  used", used),
        ("  in flight", in_flight),
        ("  reclaimable", reclaimable),
        ("  free", free),
        ("  metadata", metadata),
        ("of these reserved", reserved),
        ("available to files", available),
        ("room before reclaim", live.reservations.room),
        ("  low mark", live.reservations.low_mark),
        ("pending writes", live.reservations.pending),
        ("preallocated", live.reservations.preallocated),
    ] {
        let bytes = size(blocks * live.block_bytes);
        rows.push(row(&[name, &count(blocks), &bytes, &percent(blocks, capacity)]));
    }
    section(&aligned(&rows, 1))
}

/// A word, or a dash for none.
fn or_dash(word: &str) -> &str {
    if word.is_empty() { "-" } else { word }
}

fn zones(live: &Live) -> String {
    let mut rows =
        vec![row(&["open", "class", "life", "hint", "write pointer", "written", "used", "of"])];
    for zone in live.open_zones.iter().take(ZONES_MAX) {
        let blocks = [zone.write_pointer, zone.written, zone.used, zone.capacity].map(u64::from);
        let [pointer, written, used, capacity] = blocks.map(count);
        let number = zone.zone.to_string();
        let [life, hint] = [&zone.life, &zone.hint].map(|word| or_dash(word));
        rows.push(row(&[&number, &zone.class, life, hint, &pointer, &written, &used, &capacity]));
    }
    rows.extend(more(live.open_zones.len()));
    let mut text = section(&aligned(&rows, 4));
    if !live.victims.is_empty() {
        let mut rows = vec![row(&["victim", "moved", "left", "of"])];
        for zone in live.victims.iter().take(ZONES_MAX) {
            let blocks = [zone.moved, zone.used.into(), zone.capacity.into()].map(count);
            let [moved, left, capacity] = blocks;
            rows.push(row(&[&zone.zone.to_string(), &moved, &left, &capacity]));
        }
        rows.extend(more(live.victims.len()));
        text += &section(&aligned(&rows, 1));
    }
    let mut shares = vec!["% in use".to_owned()];
    shares.extend((0..10).map(|tenth| format!("{}-", 10 * tenth)));
    let mut tenths = vec!["zones".to_owned()];
    tenths.extend(live.used_tenths.iter().map(ToString::to_string));
    text + &section(&aligned(&[shares, tenths], 1))
}

fn more(zones: usize) -> Option<Vec<String>> {
    zones.checked_sub(ZONES_MAX).filter(|more| *more > 0).map(|more| row(&[&format!("+{more}")]))
}

fn reclaim(report: &Report, live: &Live) -> String {
    let mut text = String::new();
    let reclaimed = live.reclaimed;
    let ratio = match reclaimed.ratio() {
        Some(ratio) => {
            format!("{ratio:.2} blocks moved per block freed, last {} victims", reclaimed.victims)
        }
        None => "no victim yet".to_owned(),
    };
    let waits = report.counter("waits");
    let [all, longest] = ["wait_ns", "wait_ns_max"].map(|name| time(report.counter(name)));
    let waits = match waits {
        0 => "none".to_owned(),
        waits => format!("{}, {all} in all, longest {longest}", count(waits)),
    };
    let waiting = live.reservations.waiting;
    let lookups = report.counter("cache_hits") + report.counter("cache_misses");
    let hits = percent(report.counter("cache_hits"), lookups);
    let [open, most] = ["open_zones", "open_zones_max"].map(|name| count(report.counter(name)));
    for (name, value) in [
        ("open zones", format!("{open} of at most {most} for data")),
        ("reclaim ratio", ratio),
        ("waits for room", format!("{waits}; {waiting} waiting now")),
        ("metadata cache", format!("{hits} of {} lookups hit", count(lookups))),
    ] {
        writeln!(text, "{name:<19}  {value}").expect("a string takes all");
    }
    section(&text)
}

fn traffic(report: &Report, live: &Live, before: Option<&Report>) -> String {
    let earlier = before.and_then(|before| before.live.as_ref());
    let seconds = before.and_then(|before| report.seconds_since(before));
    let minute = seconds_of(live.minute.ns);
    let now = earlier.zip(seconds);
    let mut rows = vec![row(&["written", "since mount", "last minute", "per second"])];
    if now.is_some() {
        rows[0].push("now, per second".to_owned());
    }
    for (name, of) in [
        ("user", (|t| t.user) as fn(&Traffic) -> u64),
        ("reclaim", |t| t.reclaim),
        ("metadata", |t| t.meta),
    ] {
        let (all, last) = (of(&live.since_mount), of(&live.minute));
        let mut cells = row(&[name, &size(all), &size(last), &rate(last, minute)]);
        let now = now
            .map(|(earlier, seconds)| rate(all.saturating_sub(of(&earlier.since_mount)), seconds));
        cells.extend(now);
        rows.push(cells);
    }
    let amplification = |traffic: &Traffic| {
        traffic.amplification().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
    };
    rows.push(row(&[
        "amplification",
        &amplification(&live.since_mount),
        &amplification(&live.minute),
    ]));
    section(&aligned(&rows, 1))
}

fn operations(report: &Report, before: Option<&Report>) -> String {
    if report.operations.is_empty() {
        return String::new();
    }
    let heads = |name: &str| row(&[name, "count", "p50", "p99", "p99.9", "max"]);
    let mut rows = vec![heads("since mount")];
    let seconds = before.and_then(|before| report.seconds_since(before));
    if seconds.is_some() {
        rows[0].push("now, /s".to_owned());
    }
    for latency in &report.operations {
        let mut cells = cells_of(latency);
        if let (Some(before), Some(seconds)) = (before, seconds) {
            let earlier =
                before.operations.iter().find(|other| other.operation == latency.operation);
            let new = latency.count.saturating_sub(earlier.map_or(0, |earlier| earlier.count));
            cells.push(per_second(new, seconds));
        }
        rows.push(cells);
    }
    let since_mount = rows.len();
    rows.push(heads("last minute"));
    rows.extend(report.operations_minute.iter().map(cells_of));
    let text = aligned(&rows, 1);
    let lines: Vec<&str> = text.lines().collect();
    let (all, minute) = lines.split_at(since_mount);
    section(&(all.join("\n") + "\n")) + &section(&(minute.join("\n") + "\n"))
}

fn cells_of(latency: &Latency) -> Vec<String> {
    let Latency { operation, p50_ns, p99_ns, p999_ns, max_ns, .. } = latency;
    let [p50, p99, p999, max] = [*p50_ns, *p99_ns, *p999_ns, *max_ns].map(time);
    row(&[operation, &count(latency.count), &p50, &p99, &p999, &max])
}

/// Settings and counters without a place of their own, by name.
fn counters(report: &Report) -> String {
    let mut text = String::new();
    for (name, value) in &report.named {
        let is_shown = [ADVICE, "access"].contains(&name.as_str())
            || report.live.is_some() && SHOWN.contains(&name.as_str());
        if !is_shown {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            writeln!(text, "{name:<19}  {value}").expect("a string takes all");
        }
    }
    section(&text)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn section(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("\n{text}") }
}

/// Columns; the first `left` are left-aligned.
fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            if column < left {
                write!(line, "{gap}{cell:<width$}").expect("a string takes all");
            } else {
                write!(line, "{gap}{cell:>width$}").expect("a string takes all");
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `41 %`; `<1 %` for a smaller part that is not 0.
pub fn percent(part: u64, whole: u64) -> String {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    if percent == 0 && part > 0 { "<1 %".to_owned() } else { format!("{percent} %") }
}

/// `12.3 µs`, to three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn time(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        1_000_000_000.. => (1e9, "s"),
    };
    let value = ns as f64 / unit;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {name}")
}

/// `3 min 20 s`.
pub fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        86_400.. => format!("{days} d {} h", hours % 24),
    }
}

/// `1.5 MiB/s`; `-` where no time passed.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive")]
pub fn rate(bytes: u64, seconds: f64) -> String {
    if seconds > 0.0 {
        format!("{}/s", size((bytes as f64 / seconds) as u64))
    } else {
        "-".to_owned()
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn per_second(count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[expect(clippy::cast_precision_loss, reason = "for rates")]
fn seconds_of(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use zonal_fs::furrow::stats::{OpenZone, Reclaimed, VictimZone};

    use super::*;

    fn report(at_s: u64, user: u64) -> Report {
        let capacity = 1 << 40;
        let open = |zone: u32| OpenZone {
            zone,
            class: "reclaim".to_owned(),
            life: "long".to_owned(),
            hint: String::new(),
            capacity: u32::MAX,
            write_pointer: u32::MAX,
            written: u32::MAX - 7,
            used: 5,
        };
        let traffic = Traffic { ns: at_s * 1_000_000_000, user, reclaim: user / 2, meta: 7 };
        let live = Live {
            block_bytes: 4096,
            blocks: Blocks { capacity, used: 1 << 39, free: 1, ..Blocks::default() },
            open_zones: (0..30).map(open).collect(),
            victims: vec![VictimZone { zone: 3, capacity: 100, used: 10, moved: 90 }],
            used_tenths: [50_000; 10],
            reclaimed: Reclaimed { victims: 4, moved: 300, freed: 100 },
            since_mount: traffic,
            minute: traffic,
            ..Live::default()
        };
        let latency = Latency {
            operation: "copy_file_range".to_owned(),
            count: user >> 20,
            p50_ns: 999,
            p99_ns: 12_345,
            p999_ns: 4_000_000,
            max_ns: 100_000_000_000_000,
            ..Latency::default()
        };
        let named = [
            ("access", "read-write".into()),
            ("flushes", u64::MAX.into()),
            ("open_zones", 30.into()),
            ("open_zones_max", 120.into()),
        ];
        Report {
            kind: "furrow".to_owned(),
            at_ns: at_s * 1_000_000_000,
            named: named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            live: Some(live),
            operations_minute: vec![Latency { p50_ns: 888, ..latency.clone() }],
            operations: vec![latency],
        }
    }

    #[test]
    fn page_fits_terminal_with_any_numbers() {
        let (before, now) = (report(90, 1 << 50), report(92, (1 << 50) + (4 << 20)));
        let page = page(&now, Some(&before));
        for line in page.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        for part in [
            "furrow, read-write, mounted for 1 min 32 s",
            "3.00 blocks moved per block freed, last 4 victims",
            "2 MiB/s",
            "1.50",
            "+14",
            "\nopen zones           30 of at most 120 for data\n",
            "12.3 µs",
            "last minute",
            "888 ns",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert!(!super::page(&now, None).contains("now, per second"));
    }

    #[test]
    fn page_of_zonefs_has_its_counters() {
        let mut report = Report { live: None, operations: Vec::new(), ..report(1, 0) };
        report.named.retain(|name, _| !name.starts_with("open_zones"));
        assert_eq!(
            page(&report, None),
            format!("furrow, read-write\n\nflushes              {}\n", u64::MAX)
        );
        report.named.insert("advice".to_owned(), "do it otherwise".into());
        assert!(page(&report, None).starts_with("furrow, read-write\nadvice: do it otherwise\n\n"));
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        let times = [999, 1_000, 99_940, 99_960, 3_000_000_000].map(time);
        assert_eq!(times, ["999 ns", "1.00 µs", "99.9 µs", "100 µs", "3.00 s"]);
        assert_eq!(
            [0, 61, 7_260, 90_000].map(|s| age(s * 1_000_000_000))[1..],
            ["1 min 1 s", "2 h 1 min", "1 d 1 h"]
        );
        assert_eq!([percent(0, 0), percent(1, 1000), percent(1, 2)], ["0 %", "<1 %", "50 %"]);
        assert_eq!([999, 1_234_567].map(count), ["999", "1,234,567"]);
        assert_eq!(rate(5, 0.0), "-");
    }
}
