//! Recordings of the `trace(FILE):` layer, and drives as large as a trace.

use zonal::layer::trace::{Trace as Layer, TraceContent, TraceHeader, TraceRecord};
use zonal::{
    GeometrySpec, Lba, LbaCount, MemoryDrive, Profile, Select, ZoneAction, ZoneId, ZoneRuns,
    ZonedDevice,
};

use super::*;
use crate::config::Kind;
use crate::counting;

/// A small drive with a conventional zone.
fn shape() -> GeometrySpec {
    GeometrySpec { conventional_zones: ZoneRuns::leading(1), ..Profile::Small.geometry() }
}

/// A recording of a program on a zoned drive.
fn recording(content: TraceContent) -> (Vec<u8>, u64) {
    let geometry = shape();
    let drive = MemoryDrive::new(geometry).expect("a drive");
    let zone = |number: u32| {
        ZoneId::new(drive.geometry().spec().conventional_zones.leading_count() + number)
    };
    let start = |number: u32| drive.geometry().zone_start(zone(number));
    let (first, second) = (start(0), start(1));
    let zone_2 = zone(1);
    let block = drive.geometry().block_size().bytes();
    let data = vec![7; 3 * usize::try_from(block).expect("small")];
    let mut file = Vec::new();
    let traced = Layer::new(drive, &mut file, content).expect("a layer");
    traced.write(first, &data).expect("written");
    traced.write(first, &data).expect_err("not at the write pointer");
    traced.append(zone_2, &data).expect("appended");
    traced.append(zone_2, &data).expect("appended");
    let mut buffer = vec![0; data.len()];
    traced.read(second, &mut buffer).expect("read");
    traced.flush().expect("flushed");
    traced.deallocate(Lba::ZERO, LbaCount::new(1)).expect("deallocated");
    traced.manage(Select::One(zone_2), ZoneAction::Reset).expect("reset");
    traced.append(zone_2, &data).expect("appended");
    traced.manage(Select::One(zone_2), ZoneAction::Finish).expect("finished");
    traced.manage(Select::All, ZoneAction::Reset).expect("reset");
    traced.manage(Select::All, ZoneAction::Reset).expect("reset");
    drop(traced);
    (file, block)
}

fn as_requests(bytes: &[u8]) -> Vec<(Op, u64, u64)> {
    let (found, bad) = records(bytes, &Trace::default()).expect("a recording");
    assert_eq!(bad, 0);
    found.into_iter().map(|record| (record.op, record.offset, record.bytes)).collect()
}

#[test]
fn recording_operations_become_requests() {
    use Op::{Read, Trim, Write};
    for content in [TraceContent::Checksums, TraceContent::Data] {
        let (file, block) = recording(content);
        let geometry = zonal::Geometry::new(shape()).expect("a shape");
        let zone = |number: u32| {
            let zone = ZoneId::new(geometry.spec().conventional_zones.leading_count() + number);
            geometry.zone_start(zone).get() * block
        };
        let (first, second, three) = (zone(0), zone(1), 3 * block);
        let expected = [
            (Write, first, three),
            (Write, second, three),
            (Write, second + three, three),
            (Read, second, three),
            (Trim, 0, block),
            // A reset trims the blocks that were written to the zone.
            (Trim, second, 2 * three),
            (Write, second, three),
            (Trim, first, three),
            (Trim, second, three),
        ];
        assert_eq!(as_requests(&file), expected);
        let zstd = zstd::encode_all(&file[..], 1).expect("in memory");
        assert_eq!(as_requests(&zstd), expected);
        let volume = Trace { volume: "1".to_owned(), ..Trace::default() };
        assert_eq!(records(file, &volume).expect("read").0, []);
    }
}

#[test]
fn recording_damaged_or_cut_is_an_error() {
    let (file, _) = recording(TraceContent::Checksums);
    let whole = as_requests(&file).len();
    let cut = file[..file.len() - 5].to_vec();
    let error = records(cut.clone(), &Trace::default()).expect_err("cut").to_string();
    assert!(error.starts_with("it: the recording was interrupted in operation"), "{error}");
    let skip = Trace { bad_lines: BadLines::Skip, ..Trace::default() };
    let (found, bad) = records(cut, &skip).expect("what is before the cut");
    assert_eq!((found.len(), bad), (whole, 1), "the last reset trims nothing");
    let mut damaged = file;
    let at = size_of::<TraceHeader>() + 3 * size_of::<TraceRecord>() + 20;
    damaged[at] ^= 1;
    let error = records(damaged, &Trace::default()).expect_err("damaged").to_string();
    assert_eq!(error, "it: operation 3 is damaged");
    let text = Trace { format: Some(Format::Zonal), ..Trace::default() };
    let error = records("1,W,0,512,1\n".repeat(10), &text).expect_err("text").to_string();
    assert!(error.contains("it: not a trace"), "{error}");
}

#[test]
fn recording_replays_on_timed_drive_without_its_own_times() {
    let (file, _) = recording(TraceContent::Data);
    let path = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(path.path(), file).expect("written");
    let mut config = Config::parse("[drive]\nop = 1\n").expect("a config");
    config.workload.kind = Pattern::Trace;
    config.workload.trace = path.path().display().to_string();
    config.trace.loops = 1;
    (config.run.drive_writes, config.run.warm_up) = (9.0, 0.0);
    config.flash.programs_per_block = 1;
    let measured = crate::timed::run(&config).expect("runs");
    let seen = measured.outcome.trace.expect("a trace");
    assert_eq!((seen.requests, seen.reads), (9, 1));
    assert!(measured.outcome.writes.mean_us() < 1e4, "requests come one after the other");
    let counted = counting::run(&config, &mut |_| {}).expect("runs");
    assert_eq!(counted.asked_bytes, 4 * 3 * 4096);
}

#[test]
fn drive_sized_to_trace_has_asked_over_provisioning() {
    // 700 regions, the last one of another volume.
    let lines: Vec<String> =
        (0..700).map(|mib| format!("{},W,{},4096,{mib}", mib / 699, mib << 20)).collect();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), lines.join("\n")).expect("written");
    let touched = touched_bytes(file.path(), &Trace::default()).expect("read");
    assert_eq!(touched, 700 << 20);
    for (kind, zone, op) in [
        (Kind::Conventional, 1, 0.07),
        (Kind::Fdp, 1, 0.28),
        (Kind::Zns, 1, 0.07),
        (Kind::Zns, 3, 0.28),
        (Kind::Conventional, 1, 2.0),
    ] {
        let mut config = Config::default();
        config.drive.kind = kind;
        config.zones.superblocks = zone;
        config.zones.spare = 30;
        config.fdp.handles = 2;
        size_drive(&mut config, touched, op).expect("a drive");
        let layout = counting::Drive::new(&config).expect("a drive").layout().to_owned();
        assert_eq!(layout.user_bytes(), touched);
        let superblocks = f64::from(config.flash.superblocks);
        let block = f64::from(zone) / superblocks;
        let found = layout.op_nominal();
        assert!(found >= op && found < (1.0 + op) * (1.0 + 1.1 * block) - 1.0, "{found} {op}");
        assert!(superblocks >= 512.0 && config.flash.erase_us < 100.0, "{:?}", config.flash);
        // It just holds the trace.
        config.workload.kind = Pattern::Trace;
        config.workload.trace = file.path().display().to_string();
        config.trace.loops = 2;
        (config.run.drive_writes, config.run.warm_up) = (1e6, 0.0);
        let report = counting::run(&config, &mut |_| {}).expect("runs");
        let seen = report.trace.expect("a trace");
        assert_eq!((seen.touched_bytes, seen.reached_bytes, seen.shared), (touched, touched, 0));
    }
    let error = size_drive(&mut Config::default(), touched, -0.1).expect_err("below 0").to_string();
    assert!(error.starts_with("--fit = -10 is not possible"), "{error}");
    let error = size_drive(&mut Config::default(), 1 << 20, 0.01).expect_err("none").to_string();
    assert!(error.starts_with("--fit = 1% is not possible: the drive would have 11"), "{error}");
    let error = size_drive(&mut Config::default(), 40 << 20, 0.01).expect_err("none").to_string();
    assert!(error.starts_with("--fit = 1% is not possible: the trace takes 40MiB"), "{error}");
    assert!(error.ends_with("try `--fit 7%`") && !error.contains("drive.user"), "{error}");
}
