//! Promises of single layers beyond the device contract.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use zonal::file::{CreateOptions, Overwrite};
use zonal::layer::concat::Concat;
use zonal::layer::delay::Delay;
use zonal::layer::fault::{Fault, FaultPlan};
use zonal::layer::meter::{Meter, OpKind};
use zonal::layer::po2::PowerOfTwo;
use zonal::layer::slice::{Slice, ZoneRange};
use zonal::layer::trace::{Trace, TraceContent, TraceEnd, TraceError, TraceReader, replay};
use zonal::{
    BlockSize, Clock, DeviceError, FileDrive, GeometrySpec, Io, Lba, LbaCount, MemoryDrive,
    OpenMode, Profile, Rules, Select, ZoneAction, ZoneCond, ZoneFailure, ZoneId, ZoneKind,
    ZoneRuns, ZonedDevice,
};

type Result<T> = std::result::Result<T, DeviceError>;

fn spec(zone_size: u64, capacity: u64, conventional: ZoneRuns, runt: u64) -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(5 * zone_size + runt),
        zone_size: LbaCount::new(zone_size),
        zone_capacity: LbaCount::new(capacity),
        conventional_zones: conventional,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: None,
        max_active: None,
        max_append: LbaCount::new(64),
    }
}

/// Notes which blocks are accessed.
struct Spy {
    below: MemoryDrive,
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Spy {
    fn note(&self, lba: Lba, bytes: usize) {
        self.seen.lock().unwrap().push((lba.get(), bytes as u64 / 512));
    }
}

impl ZonedDevice for Spy {
    zonal::pass_on!(below: geometry, report, append, manage, flush);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        self.note(lba, buffer.len());
        self.below.read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.note(lba, data.len());
        self.below.write(lba, data)
    }
}

/// A block that `po2:` shows: the kind of its zone, and where it is below; in a gap it is nowhere.
#[derive(Clone, Copy)]
struct ShownBlock {
    kind: ZoneKind,
    below: Option<u64>,
}

/// The blocks that `po2:` has to show of a drive. A run of conventional zones shows the real blocks
/// in order, up to the last whole zone or the end of the drive.
fn expected_blocks(drive: &MemoryDrive) -> Vec<ShownBlock> {
    let mut shown = Vec::new();
    let zones = drive.report_all().unwrap();
    let size = drive.geometry().zone_size().get().next_power_of_two();
    let end = drive.geometry().block_count().get();
    for run in zones.chunk_by(|one, next| one.kind == next.kind) {
        let (kind, first) = (run[0].kind, run[0].start.get());
        let blocks: u64 = run.iter().map(|zone| zone.size.get()).sum();
        let block = |below| ShownBlock { kind, below };
        match kind {
            ZoneKind::Conventional => {
                let is_last = first + blocks == end;
                let count = if is_last { blocks } else { blocks / size * size };
                shown.extend((first..first + count).map(|below| block(Some(below))));
            }
            ZoneKind::SequentialRequired | ZoneKind::SequentialPreferred => {
                for zone in run {
                    let (start, blocks) = (zone.start.get(), zone.size.get());
                    shown.extend((start..start + blocks).map(|below| block(Some(below))));
                    let is_whole = zone.size == drive.geometry().zone_size();
                    let gap = if is_whole { size - blocks } else { 0 };
                    shown.extend((0..gap).map(|_| block(None)));
                }
            }
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// P1, and exact translation: the real blocks of the range go below and no others, and reads
    /// give those blocks with zeroes in the gaps.
    #[test]
    fn po2_gap_is_never_accessed_below(
        zone_size in 1_u64..40, part in 1_u64..40, conventional in 0_u32..64, runt in 0_u64..39,
        first in any::<u64>(), blocks in 1_u64..150,
    ) {
        let (capacity, runt) = (part.min(zone_size), runt % zone_size);
        let zones = if runt == 0 { 5 } else { 6 };
        let chosen = (0..zones).filter(|zone| conventional & 1 << zone != 0).map(ZoneId::new);
        let spec = spec(zone_size, capacity, ZoneRuns::of(chosen).unwrap(), runt);
        let below = MemoryDrive::new(spec).unwrap();
        for zone in below.report_all().unwrap() {
            let data: Vec<u8> =
                (0..zone.capacity.get()).flat_map(|at| [(zone.start.get() + at) as u8 | 1; 512]).collect();
            below.write(zone.start, &data).unwrap();
        }
        let expected = expected_blocks(&below);
        let shown = PowerOfTwo::new(Spy { below, seen: Mutex::default() }).unwrap();
        let size = zone_size.next_power_of_two();
        let count = shown.geometry().block_count().get();
        prop_assert_eq!(count, expected.len() as u64);
        let (first, blocks) = (first % count, blocks.min(count - first % count));

        let mut found = vec![0xee; blocks as usize * 512];
        shown.read(Lba::new(first), &mut found).unwrap();
        let mut expected_below = Vec::new();
        for (at, block) in (first..first + blocks).zip(found.chunks(512)) {
            let ShownBlock { kind, below } = expected[at as usize];
            let zone = shown.geometry().locate(Lba::new(at)).0;
            prop_assert_eq!(shown.geometry().kind(zone), kind, "block {}", at);
            let is_written = |below: u64| kind == ZoneKind::Conventional || below % zone_size < capacity;
            let byte = below.filter(|&below| is_written(below)).map_or(0, |below| below as u8 | 1);
            prop_assert!(block.iter().all(|&found| found == byte), "block {}", at);
            expected_below.extend(below);
        }
        let seen = shown.below().seen.lock().unwrap().clone();
        let seen: Vec<u64> = seen.iter().flat_map(|&(lba, blocks)| lba..lba + blocks).collect();
        prop_assert_eq!(seen, expected_below);

        // No write that reaches a gap or another zone gets below; in a conventional zone any other
        // does.
        shown.below().seen.lock().unwrap().clear();
        let is_conventional = expected[first as usize].kind == ZoneKind::Conventional;
        let end = if is_conventional { size } else { zone_size };
        let crosses = first % size + blocks > end;
        let outcome = shown.write(Lba::new(first), &found);
        let passed = !shown.below().seen.lock().unwrap().is_empty();
        prop_assert!(!(crosses && passed), "{:?}", outcome);
        prop_assert!(!(crosses && outcome.is_ok()));
        prop_assert!(!is_conventional || crosses || outcome.is_ok(), "{:?}", outcome);

        // Reports have the zones below, with the numbers and addresses above, also in parts.
        let all = shown.report_all().unwrap();
        for (zone, report) in (0..).zip(&all) {
            prop_assert_eq!((report.id.get(), report.start.get()), (zone, u64::from(zone) * size));
            prop_assert_eq!(report.kind, expected[report.start.get() as usize].kind);
            let mut one = Vec::new();
            shown.report(report.id, &mut one, 1).unwrap();
            prop_assert_eq!(&one, &[*report]);
        }
        prop_assert_eq!(all.len(), shown.geometry().zone_count() as usize);
    }

    /// Any bytes: an error or a replay, never a panic.
    #[test]
    fn trace_damaged_never_panics(at in 0_usize..3_000, bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        let mut file = record(TraceContent::Data);
        let end = (at + bytes.len()).min(file.len());
        if at < end {
            file[at..end].copy_from_slice(&bytes[..end - at]);
        }
        let drive = MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap();
        if let Ok(mut trace) = TraceReader::new(file.as_slice(), Path::new("damaged")) {
            let _ = replay(&mut trace, &drive);
        }
    }
}

/// A trace of a little of everything.
fn record(content: TraceContent) -> Vec<u8> {
    let mut file = Vec::new();
    let drive = Trace::new(
        MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap(),
        &mut file,
        content,
    )
    .unwrap();
    drive.write(Lba::new(5), &[1; 1024]).unwrap();
    drive.append(ZoneId::new(2), &[2; 512 * 3]).unwrap();
    drive.append(ZoneId::new(2), &[3; 512]).unwrap();
    drive.write(Lba::new(30), &[3; 512]).unwrap_err();
    drive.manage(Select::One(ZoneId::new(3)), ZoneAction::Open).unwrap();
    drive.manage(Select::All, ZoneAction::Close).unwrap();
    drive.read(Lba::new(0), &mut vec![0; 512 * 60]).unwrap();
    drive.report_all().unwrap();
    drive.manage(Select::One(ZoneId::new(2)), ZoneAction::Reset).unwrap();
    drive.flush().unwrap();
    drop(drive);
    file
}

fn replay_on(
    file: &[u8],
    drive: &dyn ZonedDevice,
) -> std::result::Result<zonal::layer::trace::Replayed, TraceError> {
    replay(&mut TraceReader::new(file, Path::new("trace")).unwrap(), drive)
}

#[test]
fn trace_replays_with_and_without_data() {
    for content in [TraceContent::Data, TraceContent::Checksums] {
        let file = record(content);
        let done =
            replay_on(&file, &MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap())
                .unwrap();
        assert_eq!((done.operations, done.end), (10, TraceEnd::Whole));
        let cut = &file[..file.len() - 20];
        let done =
            replay_on(cut, &MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap())
                .unwrap();
        assert_eq!((done.operations, done.end), (9, TraceEnd::Cut));
    }
}

#[test]
fn replay_notices_every_difference() {
    let file = record(TraceContent::Data);
    let drive = || MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap();
    let other_shape = MemoryDrive::new(spec(24, 16, ZoneRuns::leading(1), 3)).unwrap();
    let error = replay_on(&file, &other_shape).unwrap_err();
    assert!(matches!(error, TraceError::OtherShape { .. }), "{error}");

    let used = drive();
    used.append(ZoneId::new(2), &[9; 512]).unwrap();
    let error = replay_on(&file, &used).unwrap_err();
    assert!(matches!(error, TraceError::Different { index: 1, .. }), "{error}");

    let other_bytes = drive();
    other_bytes.write(Lba::new(9), &[9; 512]).unwrap();
    let error = replay_on(&file, &other_bytes).unwrap_err();
    assert!(matches!(error, TraceError::Different { index: 6, .. }), "{error}");

    let other_state = drive();
    other_state.append(ZoneId::new(4), &[0; 512]).unwrap();
    let error = replay_on(&file, &other_state).unwrap_err();
    assert!(matches!(error, TraceError::Different { index: 7, .. }), "{error}");
}

/// A clock that goes on by so many nanoseconds with each reading.
struct Steps(std::sync::atomic::AtomicU64, u64);

impl Clock for Steps {
    fn wall_ns(&self) -> i64 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.fetch_add(self.1, std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn meter_counts_successes_failures_bytes_and_time() {
    let drive = MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap();
    let meter = Meter::new(drive, Arc::new(Steps(0.into(), 1_000)));
    meter.append(ZoneId::new(1), &[1; 1024]).unwrap();
    meter.append(ZoneId::new(1), &[1; 512]).unwrap();
    meter.append(ZoneId::new(0), &[1; 512]).unwrap_err();
    meter.read(Lba::new(0), &mut [0; 2048]).unwrap();
    meter.manage(Select::All, ZoneAction::Reset).unwrap();
    let appends = meter.counters().of(OpKind::Append);
    assert_eq!((appends.count, appends.errors, appends.bytes.get()), (2, 1, 1536));
    assert!(appends.latency_ns.len() == 2 && appends.latency_ns.max().abs_diff(1_000) < 10);
    assert_eq!(meter.counters().of(OpKind::Read).bytes.get(), 2048);
    assert_eq!(meter.counters().of(OpKind::Reset).count, 1);
    assert_eq!(meter.counters().of(OpKind::Flush).count, 0);
    meter.counters().clear();
    assert_eq!(meter.counters().of(OpKind::Append).count, 0);
}

#[test]
fn meter_measures_slow_operations() {
    for nanoseconds in [1, 2_047, 2_048, 50_000, 3_000_000, 7_000_000_000] {
        let drive = MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap();
        let meter = Meter::new(drive, Arc::new(Steps(0.into(), nanoseconds)));
        meter.append(ZoneId::new(1), &[1; 512]).unwrap();
        let found = meter.counters().of(OpKind::Append).latency_ns.max();
        assert!(found.abs_diff(nanoseconds) <= nanoseconds / 500, "{found} of {nanoseconds}");
    }
}

/// A batch is one call on the device at the bottom, whatever lies above, and each layer does its
/// work.
#[test]
fn layers_pass_batch_on() {
    let below = Arc::new(Delay::new(
        MemoryDrive::new(spec(24, 17, ZoneRuns::leading(2), 3)).unwrap(),
        Duration::ZERO,
    ));
    let fault = Fault::new(Arc::clone(&below), FaultPlan::default());
    let mut file = Vec::new();
    let trace = Trace::new(fault, &mut file, TraceContent::Data).unwrap();
    let meter = Meter::new(PowerOfTwo::new(trace).unwrap(), Arc::new(Steps(0.into(), 1_000)));
    let data = [1; 1024];
    let (mut first, mut across) = ([0xee; 512], vec![0xee; 512 * 40]);
    let mut batch = [
        Io::write(Lba::new(2), &data),
        Io::append(ZoneId::new(2), &data),
        Io::append(ZoneId::new(2), &data),
        Io::flush(),
        Io::read(Lba::new(64), &mut first),
    ];
    meter.submit(&mut batch);
    let found: Vec<u64> = batch.into_iter().map(|io| io.outcome().unwrap().get()).collect();
    assert_eq!(found, [2, 64, 66, 0, 64], "addresses above the adapter");
    assert_eq!(first, [1; 512]);
    assert_eq!((below.rounds(), below.requests()), (1, 5));
    let appends = meter.counters().of(OpKind::Append);
    assert_eq!((appends.count, appends.bytes.get()), (2, 2048));
    assert_eq!(meter.counters().of(OpKind::Read).count, 1);

    // A read across a gap follows in parts.
    below.clear();
    let mut batch = [Io::read(Lba::new(64), &mut first), Io::read(Lba::new(40), &mut across)];
    meter.submit(&mut batch);
    assert!(batch.into_iter().all(|io| io.outcome().is_ok()));
    assert_eq!((below.rounds(), below.requests()), (3, 3));
    drop(meter);
    let done = replay_on(&file, &MemoryDrive::new(spec(24, 17, ZoneRuns::leading(2), 3)).unwrap())
        .unwrap();
    assert_eq!((done.operations, done.end), (8, TraceEnd::Whole));
}

/// A deallocation arrives at the device at the bottom, in parts of one zone there, and each layer
/// does its work.
#[test]
fn layers_pass_deallocation_on() {
    let below = Arc::new(Delay::new(
        MemoryDrive::new(spec(24, 17, ZoneRuns::leading(2), 3)).unwrap(),
        Duration::ZERO,
    ));
    let fault = Fault::new(Arc::clone(&below), "deallocate,nth=3".parse::<FaultPlan>().unwrap());
    let mut file = Vec::new();
    let trace = Trace::new(fault, &mut file, TraceContent::Data).unwrap();
    let meter = Meter::new(PowerOfTwo::new(trace).unwrap(), Arc::new(Steps(0.into(), 1_000)));
    // Zone 1 begins at block 32 above the adapter, and at block 24 below.
    meter.write(Lba::new(22), &[7; 512 * 4]).unwrap();
    meter.deallocate(Lba::new(23), LbaCount::new(2)).unwrap();
    let mut found = vec![0; 512 * 4];
    below.read(Lba::new(22), &mut found).unwrap();
    let kept: Vec<u8> = found.chunks(512).map(|block| block[0]).collect();
    assert_eq!(kept, [7, 0, 0, 7]);
    let failed = meter.deallocate(Lba::new(25), LbaCount::new(1)).unwrap_err();
    assert!(matches!(failed, DeviceError::Medium { lba } if lba == Lba::new(25)), "{failed}");
    let across = meter.deallocate(Lba::new(30), LbaCount::new(3)).unwrap_err();
    assert!(matches!(across, DeviceError::CrossesZone { .. }), "{across}");
    let counted = meter.counters().of(OpKind::Deallocate);
    assert_eq!((counted.count, counted.errors), (1, 2));
    drop(meter);
    let plan: FaultPlan = "deallocate,nth=3".parse().unwrap();
    let again = Fault::new(MemoryDrive::new(spec(24, 17, ZoneRuns::leading(2), 3)).unwrap(), plan);
    assert_eq!(replay_on(&file, &again).unwrap().operations, 5);
}

/// Conventional zones lie on those below without gaps: there are fewer, and sequential ones have
/// smaller numbers. A failed zone below is a failed zone above.
#[test]
fn po2_conventional_zones_are_whole() {
    let below = Arc::new(MemoryDrive::new(spec(24, 17, ZoneRuns::leading(3), 3)).unwrap());
    let shown = PowerOfTwo::new(Arc::clone(&below)).unwrap();
    let zones = shown.report_all().unwrap();
    let found: Vec<(u64, u64, ZoneCond)> =
        zones.iter().map(|zone| (zone.size.get(), zone.capacity.get(), zone.cond)).collect();
    let conventional = (32, 32, ZoneCond::NotWp);
    let (sequential, runt) = ((32, 17, ZoneCond::Empty), (3, 3, ZoneCond::Empty));
    assert_eq!(found, [conventional, conventional, sequential, sequential, runt]);
    // Blocks 20 to 30 are in two zones below, 30 to 34 in two above.
    shown.write(Lba::new(20), &[5; 512 * 10]).unwrap();
    let across = shown.write(Lba::new(30), &[5; 512 * 4]).unwrap_err();
    assert!(matches!(across, DeviceError::CrossesZone { zone, .. } if zone == ZoneId::ZERO));
    assert_eq!(shown.append(ZoneId::new(2), &[6; 512]).unwrap(), Lba::new(64));
    assert_eq!(below.zone(ZoneId::new(3)).unwrap().written(), Some(LbaCount::new(1)));
    let refused = shown.manage(Select::One(ZoneId::new(1)), ZoneAction::Reset).unwrap_err();
    assert!(
        matches!(refused, DeviceError::Transition { zone, .. } | DeviceError::Conventional { zone }
        if zone == ZoneId::new(1)),
        "{refused}"
    );
    let beyond = shown.append(ZoneId::new(5), &[6; 512]).unwrap_err();
    assert!(matches!(beyond, DeviceError::NoSuchZone { zone } if zone == ZoneId::new(5)));
    below.fail_zone(ZoneId::new(1), ZoneFailure::ReadOnly).unwrap();
    let conds: Vec<ZoneCond> = shown.report_all().unwrap().iter().map(|zone| zone.cond).collect();
    assert_eq!(conds[..3], [ZoneCond::ReadOnly, ZoneCond::ReadOnly, ZoneCond::ImplicitOpen]);
}

#[test]
fn identity_passes_through_layers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    let options = CreateOptions {
        geometry: spec(24, 17, ZoneRuns::leading(2), 3),
        rules: Rules::Zns,
        uuid: [0xab; 16],
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(&path, &options).unwrap();
    let open = || FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    let identity = open().identity();
    assert_eq!(identity.unique.as_deref(), Some("uuid.abababab-abab-abab-abab-abababababab"));
    let fault = Fault::new(open(), FaultPlan::default());
    let trace = Trace::new(Arc::new(fault), std::io::sink(), TraceContent::Checksums).unwrap();
    let delay = Delay::new(PowerOfTwo::new(trace).unwrap(), Duration::ZERO);
    assert_eq!(Meter::new(delay, Arc::new(Steps(0.into(), 1))).identity(), identity);
    assert!(MemoryDrive::new(spec(24, 17, ZoneRuns::leading(2), 3)).unwrap().identity().is_empty());
}

#[test]
fn disk_rotates_under_every_layer() {
    let disk = || Arc::new(MemoryDrive::with_rules(Profile::Small.geometry(), Rules::Zbc).unwrap());
    let part = || ZoneRange { first: ZoneId::new(1), last: Some(ZoneId::new(3)) };
    let fault = Fault::new(disk(), FaultPlan::default());
    let trace = Trace::new(Arc::new(fault), std::io::sink(), TraceContent::Checksums).unwrap();
    let delay = Delay::new(PowerOfTwo::new(trace).unwrap(), Duration::ZERO);
    assert!(Meter::new(delay, Arc::new(Steps(0.into(), 1))).rotates());
    assert!(Slice::new(disk(), part()).unwrap().rotates());
    let flash = || Arc::new(MemoryDrive::new(Profile::Small.geometry()).unwrap());
    assert!(!Slice::new(flash(), part()).unwrap().rotates());
    assert!(Concat::new(vec![flash(), disk()]).unwrap().rotates());
    assert!(!Concat::new(vec![flash(), flash()]).unwrap().rotates());
}

/// A drive on a host whose reserve is kept or not.
struct Reserved(MemoryDrive, AtomicBool);

impl ZonedDevice for Reserved {
    zonal::pass_on!(0: geometry, report, read, write, append, manage, flush);

    fn keep_reserve(&self) -> Result<()> {
        self.1.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn use_reserve(&self) -> Result<()> {
        self.1.store(false, Ordering::Relaxed);
        Err(DeviceError::NoSpace { what: "using it".into() })
    }
}

#[test]
fn reserve_is_kept_and_used_through_layers() {
    let drive = || {
        let drive = MemoryDrive::new(spec(32, 17, ZoneRuns::NONE, 0)).unwrap();
        Arc::new(Reserved(drive, false.into()))
    };
    let drives = [drive(), drive()];
    let below = drives.each_ref().map(Arc::clone).map(|drive| {
        let fault = Fault::new(drive, FaultPlan::default());
        let trace = Trace::new(Arc::new(fault), std::io::sink(), TraceContent::Checksums).unwrap();
        Delay::new(PowerOfTwo::new(trace).unwrap(), Duration::ZERO)
    });
    let both = Concat::new(Vec::from(below)).unwrap();
    let range = ZoneRange { first: ZoneId::ZERO, last: None };
    let slice = Slice::new(both, range).unwrap();
    let all = Meter::new(slice, Arc::new(Steps(0.into(), 1)));
    let kept = || drives.each_ref().map(|drive| drive.1.load(Ordering::Relaxed));
    all.keep_reserve().unwrap();
    assert_eq!(kept(), [true; 2]);
    assert!(matches!(all.use_reserve(), Err(DeviceError::NoSpace { .. })));
    assert_eq!(kept(), [false; 2], "each member, even if one fails");
}

/// Performs the requests of a batch from the last to the first, as a drive may do with appends.
struct Backwards(MemoryDrive);

impl ZonedDevice for Backwards {
    zonal::pass_on!(0: geometry, report, read, write, append, manage, flush);

    fn submit(&self, batch: &mut [Io<'_>]) {
        batch.iter_mut().rev().for_each(|io| io.perform(&self.0));
    }
}

#[test]
fn trace_of_batch_has_appends_in_device_order() {
    let mut file = Vec::new();
    let drive = Backwards(MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap());
    let trace = Trace::new(drive, &mut file, TraceContent::Data).unwrap();
    let (one, two) = ([1; 512], [2; 1024]);
    let mut batch = [
        Io::append(ZoneId::new(2), &one),
        Io::append(ZoneId::new(3), &one),
        Io::append(ZoneId::new(2), &two),
    ];
    trace.submit(&mut batch);
    let found: Vec<u64> = batch.into_iter().map(|io| io.outcome().unwrap().get()).collect();
    assert_eq!(found, [50, 72, 48]);
    drop(trace);
    let done = replay_on(&file, &MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap())
        .unwrap();
    assert_eq!((done.operations, done.end), (3, TraceEnd::Whole));
}

#[test]
fn fault_strikes_one_request_of_batch() {
    let below = MemoryDrive::new(spec(24, 17, ZoneRuns::leading(1), 3)).unwrap();
    let fault = Fault::new(below, "append,nth=2".parse().unwrap());
    let data = [1; 512];
    let mut batch = [2, 3, 4].map(|zone| Io::append(ZoneId::new(zone), &data));
    fault.submit(&mut batch);
    assert_eq!(batch.map(|io| io.outcome().is_ok()), [true, false, true]);
    assert_eq!(fault.zone(ZoneId::new(3)).unwrap().written().unwrap().get(), 0);
}
