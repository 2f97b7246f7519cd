//! Screens of several sizes, drawn without a terminal.

use std::collections::BTreeMap;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::Color;
use zonal::ZoneCond;
use zonal_fs::furrow::Live;
use zonal_fs::furrow::stats::{Blocks, OpenZone, Reclaimed, Reservations, Traffic, VictimZone};
use zonal_fuse::control::Report;
use zonal_fuse::latency::Latency;

use super::picture::Ink;
use super::screen::{self, Overlay, Pace, View};
use super::snapshot::{Drive, Sign, Snapshot, Spot, What};

const SIZES: [(u16, u16); 3] = [(80, 24), (200, 60), (40, 10)];

fn open(zone: u32, class: &str, written: u32, used: u32) -> OpenZone {
    let (class, life) = class.split_once(' ').unwrap_or((class, ""));
    let (life, hint) = life.split_once('/').unwrap_or((life, ""));
    let [class, life, hint] = [class, life, hint].map(str::to_owned);
    OpenZone { zone, class, life, hint, capacity: 1000, write_pointer: written, written, used }
}

fn latency(operation: &str, count: u64) -> Latency {
    Latency {
        operation: operation.into(),
        count,
        total_ns: count * 1000,
        p50_ns: 12_345,
        p99_ns: 1_234_567,
        p999_ns: 12_345_678,
        max_ns: 1_234_567_890,
    }
}

/// A busy mount of so many zones, `at_s` seconds after it began.
fn mount(zones: usize, at_s: u64) -> Snapshot {
    let spot = |index: usize| {
        let used = u8::try_from(index * 7 % 101).unwrap();
        match index {
            0..4 => Spot { sign: Sign::Superblock, written: 100, used: None },
            4..12 => Spot { sign: Sign::Metadata, written: 100, used: None },
            12..14 => Spot { sign: Sign::Open, written: 40, used: Some(30) },
            14 => Spot { sign: Sign::OpenReclaim, written: 90, used: Some(90) },
            15 => Spot { sign: Sign::Victim, written: 100, used: Some(20) },
            _ if index.is_multiple_of(5) => Spot { sign: Sign::Free, written: 0, used: Some(0) },
            _ => Spot { sign: Sign::Data, written: 100, used: Some(used) },
        }
    };
    let traffic = Traffic {
        ns: at_s * 1_000_000_000,
        user: at_s * (100 << 20),
        reclaim: at_s * (50 << 20),
        meta: at_s * (1 << 20),
    };
    let live = Live {
        block_bytes: 4096,
        blocks: Blocks {
            capacity: 24_576_000,
            used: 15_000_000,
            in_flight: 256,
            reclaimable: 4_000_000,
            free: 5_000_000,
            metadata: 575_744,
            reserved: 2_000_000,
            available: 7_000_000,
        },
        reservations: Reservations { pending: 300, waiting: 2, ..Reservations::default() },
        open_zones: vec![
            open(12, "user medium/medium", 400, 300),
            open(14, "reclaim long", 900, 900),
        ],
        victims: vec![VictimZone { zone: 15, capacity: 1000, used: 200, moved: 600 }],
        used_tenths: [3, 1, 4, 1, 5, 9, 2, 6, 5, 300],
        reclaimed: Reclaimed { victims: 16, moved: 1500, freed: 1000 },
        since_mount: traffic,
        minute: traffic,
    };
    let named = [
        ("access", "read-write".into()),
        ("transport", "/dev/fuse".into()),
        ("waits", 12.into()),
        ("cache_hits", 99.into()),
    ];
    let named: BTreeMap<_, _> =
        named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    // Since mount, some took longer.
    let slow = |latency: Latency| Latency { max_ns: 99_000_000_000, ..latency };
    let report = Report {
        kind: "furrow".into(),
        at_ns: at_s * 1_000_000_000,
        named,
        live: Some(live),
        operations_minute: ["write", "copy_file_range"].map(|name| latency(name, 1000)).into(),
        operations: ["write", "read", "fsync", "copy_file_range", "lookup", "getattr", "open"]
            .map(|name| slow(latency(name, at_s * 1000)))
            .into(),
    };
    Snapshot {
        name: "/mnt".into(),
        at_ns: at_s * 1_000_000_000,
        zones: (0..zones).map(spot).collect(),
        what: What::Mount(Box::new(report)),
    }
}

fn drive(written: u64, at_s: u64) -> Snapshot {
    let cond = |index: u32| match index {
        0..3 => (ZoneCond::ImplicitOpen, written + u64::from(index)),
        3..10 => (ZoneCond::Full, 80),
        10 => (ZoneCond::Offline, 0),
        _ => (ZoneCond::Empty, 0),
    };
    let zone = |index| {
        let (cond, written) = cond(index);
        super::snapshot::tests::zone(index, cond, written)
    };
    let report: Vec<_> = (0..40).map(zone).collect();
    Snapshot {
        name: "/dev/nvme0n2".into(),
        at_ns: at_s * 1_000_000_000,
        zones: report.iter().map(Spot::of_zone).collect(),
        what: What::Drive(Drive {
            block_bytes: 1 << 20,
            report,
            max_open: Some(14),
            max_active: None,
        }),
    }
}

fn view<'a>(now: &'a Snapshot, before: Option<&'a Snapshot>, ink: Ink) -> View<'a> {
    View {
        now,
        before,
        ink,
        pace: Pace::Running,
        overlay: Overlay::Nothing,
        interval_s: 1.0,
        failure: None,
    }
}

fn draw(size: (u16, u16), view: &View<'_>) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| screen::draw(frame, view)).unwrap();
    terminal
}

fn text(size: (u16, u16), view: &View<'_>) -> String {
    let terminal = draw(size, view);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(size.0.into());
    let rows = rows.map(|row| row.iter().map(Cell::symbol).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_mount_shows_zones_space_traffic_and_latencies() {
    let (before, now) = (mount(1000, 100), mount(1000, 102));
    let view = view(&now, Some(&before), Ink::Letters);
    let small = text(SIZES[0], &view);
    assert_has(
        &small,
        &[
            "zonal top  /mnt  furrow, read-write, by /dev/fuse, for 1 min 42 s",
            "1000 zones, a sign for",
            "every 1 s",
            "victim",
            "reclaim",
            "100 MiB/s",
            "1.51",
            "moved/freed 1.50 | 12 waits",
            "2 now",
            "q quit",
            "reclaimable",
            "57.2 GiB",
            "write ",
            "12.3 µs",
            "1.23 s",
            "Latency of the last minute",
        ],
    );
    assert!(!small.contains("99.0 s"), "that was earlier:\n{small}");
    let large = text(SIZES[1], &view);
    assert_has(
        &large,
        &[
            "1000 zones ",
            "Zones by share in use",
            "90-100 %",
            "copy_file_range",
            "p99.9",
            "low mark",
        ],
    );
    let tiny = text(SIZES[2], &view);
    assert_has(&tiny, &["zonal top  /mnt", "q quit", "100 MiB/s"]);
}

#[test]
fn every_size_is_drawn_with_and_without_colour() {
    let (mounts, drives) = ((mount(50_000, 100), mount(50_000, 101)), (drive(10, 5), drive(50, 7)));
    for (before, now) in [&mounts, &drives] {
        for ink in [Ink::Colour, Ink::Letters] {
            for size in
                SIZES.into_iter().chain([(1, 1), (3, 2), (59, 17), (60, 18), (120, 18), (500, 5)])
            {
                for overlay in [Overlay::Nothing, Overlay::Help] {
                    let view = View { overlay, ..view(now, Some(before), ink) };
                    let terminal = draw(size, &view);
                    let colours = terminal.backend().buffer().content().iter();
                    let is_plain = colours
                        .clone()
                        .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset);
                    assert!(ink == Ink::Colour || is_plain, "{size:?} has colour");
                }
            }
        }
    }
}

#[test]
fn fifty_thousand_zones_show_what_is_written_now() {
    let now = mount(50_000, 100);
    let text = text(SIZES[0], &view(&now, None, Ink::Letters));
    assert_has(&text, &["50000 zones, a sign for"]);
    let picture: String = text.lines().skip(2).take(4).collect();
    assert!(picture.contains('v'), "the victim shows: {picture}");
    // Rates need two looks.
    assert_has(&text, &["user               -"]);
}

#[test]
fn a_drive_shows_what_happens_between_two_reports() {
    let (before, now) = (drive(10, 5), drive(50, 7));
    let shown = text(SIZES[0], &view(&now, Some(&before), Ink::Letters));
    assert_has(
        &shown,
        &[
            "/dev/nvme0n2",
            "40 zones ",
            "o o o # # # # # # # x . . . .",
            "60.0 MiB/s",
            "3 open, at most 14 | 3 active, no limit",
            "implicit-open",
            "20.0 MiB/s",
            "offline",
        ],
    );
    assert_has(
        &text(SIZES[2], &view(&now, Some(&before), Ink::Letters)),
        &["60.0 MiB/s", "q quit"],
    );
}

#[test]
fn help_pause_and_failure_show() {
    let now = mount(40, 1);
    let base = view(&now, None, Ink::Colour);
    let help = text(SIZES[0], &View { overlay: Overlay::Help, ..base });
    assert_has(&help, &[" Help ", "q, Esc   quit", "colour or letters"]);
    // No line is cut.
    assert_has(&help, &["may be 66 s. The guide's ", "page watching.md explains all numbers. "]);
    let paused = text(SIZES[0], &View { pace: Pace::Paused, ..base });
    assert_has(&paused, &["PAUSED", "space go on"]);
    let failed = text(SIZES[0], &View { failure: Some("/mnt is gone"), ..base });
    assert_has(&failed, &[" /mnt is gone"]);
}

#[test]
fn a_zonefs_shows_its_counters() {
    let mut now = mount(40, 3);
    if let What::Mount(report) = &mut now.what {
        report.live = None;
        report.kind = "zonefs".into();
    }
    let shown = text(SIZES[0], &view(&now, None, Ink::Letters));
    assert_has(&shown, &["zonefs, read-write", "Counters", "waits", "Latency"]);
}
