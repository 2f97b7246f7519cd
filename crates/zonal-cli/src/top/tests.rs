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
    // Since the mount, some operations took longer.
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
fn screen_of_mount_shows_zones_space_traffic_latency() {
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
fn screen_draws_at_every_size_with_and_without_colour() {
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
fn screen_of_fifty_thousand_zones_shows_current_writes() {
    let now = mount(50_000, 100);
    let text = text(SIZES[0], &view(&now, None, Ink::Letters));
    assert_has(&text, &["50000 zones, a sign for"]);
    let picture: String = text.lines().skip(2).take(4).collect();
    assert!(picture.contains('v'), "the victim shows: {picture}");
    // Rates need two looks.
    assert_has(&text, &["user               -"]);
}

#[test]
fn screen_of_drive_shows_changes_between_reports() {
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
fn screen_shows_help_pause_and_failure() {
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
fn screen_of_zonefs_shows_counters() {
    let mut now = mount(40, 3);
    if let What::Mount(report) = &mut now.what {
        report.live = None;
        report.kind = "zonefs".into();
    }
    let shown = text(SIZES[0], &view(&now, None, Ink::Letters));
    assert_has(&shown, &["zonefs, read-write", "Counters", "waits", "Latency"]);
}

/// The largest numbers that a mount can have in a year: of a drive of 30 TB in zones of 256 MiB,
/// whose operations take as long as a dead drive makes them.
fn large_mount(kind: &str, at_s: u64) -> Snapshot {
    const ZONES: usize = 112_000;
    let mut now = mount(ZONES, at_s);
    now.name = "/mnt".into();
    let What::Mount(report) = &mut now.what else { unreachable!("it is a mount") };
    let live = report.live.as_mut().unwrap();
    let blocks = ZONES as u64 * 65_536;
    live.blocks = Blocks {
        capacity: blocks,
        used: blocks,
        in_flight: blocks,
        reclaimable: blocks,
        free: blocks,
        metadata: blocks,
        reserved: blocks,
        available: blocks,
    };
    live.reservations = Reservations { pending: blocks, waiting: 9999, ..Reservations::default() };
    live.open_zones = ["user extreme/extreme", "reclaim extreme", "user"]
        .into_iter()
        .map(|class| open(111_999, class, 1000, 1000))
        .collect();
    live.victims = vec![VictimZone { zone: 111_998, capacity: 1000, used: 1000, moved: 1000 }];
    live.used_tenths = [ZONES as u64; 10];
    live.reclaimed = Reclaimed { victims: 16, moved: 99_999_999, freed: 1 };
    let bytes = (1023 << 30) * at_s;
    let ns = (364 * 24 + 23) * 3600 * 1_000_000_000 + at_s * 1_000_000_000;
    live.since_mount = Traffic { ns, user: bytes, reclaim: bytes, meta: bytes };
    live.minute = Traffic { ns, user: 1, reclaim: 1023 << 40, meta: 1023 << 40 };
    let slow = |name| Latency {
        p50_ns: 998_765_432,
        p99_ns: 99_876_543_210,
        p999_ns: 999_876_543_210,
        max_ns: 9_999_876_543_210,
        ..latency(name, at_s * 9_999_499)
    };
    let names = ["write", "copy_file_range", "getattr"];
    report.operations_minute = names.map(slow).into();
    report.operations = names.map(slow).into();
    for (name, number) in [
        ("waits", 123_456_789),
        ("wait_ns", u64::MAX),
        ("cache_hits", 9_999_999_999),
        ("zones_offline_since_mount", u64::MAX),
    ] {
        report.named.insert(name.into(), number.into());
    }
    if kind == "zonefs" {
        report.live = None;
    }
    report.kind = kind.into();
    now
}

/// The same of a drive without a file system.
fn large_drive(written: u64, at_s: u64) -> Snapshot {
    let mut now = drive(written, at_s);
    let What::Drive(drive) = &mut now.what else { unreachable!("it is a drive") };
    drive.block_bytes = (256 << 20) / 80;
    let conds = ZoneCond::ALL.into_iter().cycle();
    // Only some are written between two looks.
    let zone = |(id, cond)| {
        let written = if id < 100 { written } else { 80 };
        super::snapshot::tests::zone(id, cond, written)
    };
    drive.report = (0..112_000).zip(conds).map(zone).collect();
    (drive.max_open, drive.max_active) = (Some(112_000), Some(112_000));
    now
}

#[test]
fn screen_with_all_panels_cuts_no_number() {
    for (before, now) in [
        (large_mount("furrow", 1), large_mount("furrow", 2)),
        (large_mount("zonefs", 1), large_mount("zonefs", 2)),
        (large_drive(1, 1), large_drive(80, 2)),
    ] {
        let view = view(&now, Some(&before), Ink::Letters);
        for size in [(60, 20), (61, 20), (80, 24), (100, 30), (119, 40), (120, 40), (200, 60)] {
            let columns = screen::columns(&view, size.0);
            // The narrowest column, without its frame.
            let width = usize::from(size.0) / columns.len() - 2;
            for (title, lines) in columns.iter().flatten() {
                for line in lines(width) {
                    assert!(line.width() <= width, "{title}, {size:?}: {line}");
                }
            }
            let text = text(size, &view);
            let lines: Vec<&str> = text.lines().collect();
            let (heading, status) = (lines[0], lines[lines.len() - 2]);
            let is_whole =
                |part: &str, whole: &[&str]| whole.iter().any(|whole| part.contains(whole));
            assert!(heading.ends_with(" every 1 s"), "{size:?}: {heading}");
            let age = !heading.contains(" for ") || heading.contains("for 364 d 23 h ");
            assert!(age, "{size:?}: {heading}");
            for part in status.split(" | ").filter(|part| !part.is_empty()) {
                let whole = [
                    "moved/freed 99999999.00",
                    "123,456,789 waits, 18446744074 s, 9999 now",
                    "cache hits 100 %",
                    "28000 open, at most 112000",
                    "42000 active, at most 112000",
                    " written",
                ];
                assert!(is_whole(part, &whole), "{size:?}: {part:?}");
            }
        }
    }
}

#[test]
fn screen_of_60_columns_shows_essentials() {
    let (before, now) = (mount(1000, 100), mount(1000, 102));
    let shown = text((60, 20), &view(&now, Some(&before), Ink::Letters));
    assert_has(
        &shown,
        &[
            "zonal top  /mnt  furrow, read-write  ",
            "100 MiB/s",
            "57.2 GiB",
            "61 %",
            "12.3 µs",
            "1.23 ms",
            "moved/freed 1.50 | 12 waits",
        ],
    );
    let (before, now) = (drive(10, 5), drive(50, 7));
    let shown = text((60, 20), &view(&now, Some(&before), Ink::Letters));
    assert_has(&shown, &["60.0 MiB/s", "20.0 MiB/s", "implicit-open", "3 open, at most 14"]);
}
