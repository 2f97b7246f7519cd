//! The elevator: long runs, errors that come at the flush, power cuts, and writers side by side.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::layer::elevator::Elevator;
use zonal::layer::fault::{Fault, FaultPlan};
use zonal::layer::slice::{Slice, ZoneRange};
use zonal::{
    BlockSize, ByteCount, DeviceError, GeometrySpec, Lba, LbaCount, MemoryDrive, ZoneId, ZoneKind,
    ZoneRuns, ZonedDevice, repeat,
};

const BLOCK: usize = 4096;

/// Eight zones of 4 MiB, so many of them open at once.
fn drive(max_open: u32) -> MemoryDrive {
    MemoryDrive::new(GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(8 * 1024),
        zone_size: LbaCount::new(1024),
        zone_capacity: LbaCount::new(1024),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(max_open),
        max_active: None,
        max_append: LbaCount::new(256),
    })
    .unwrap()
}

/// Counts writes that do not begin where the one before ended.
struct Jumps {
    below: MemoryDrive,
    at: Mutex<(Lba, u64)>,
}

impl Jumps {
    fn new() -> Self {
        Self { below: drive(8), at: Mutex::default() }
    }

    fn count(&self) -> u64 {
        self.at.lock().unwrap().1
    }

    fn note(&self, lba: Lba, bytes: usize) {
        let mut at = self.at.lock().unwrap();
        at.1 += u64::from(at.0 != lba);
        at.0 = lba + self.below.geometry().blocks(bytes).unwrap();
    }
}

impl ZonedDevice for Jumps {
    zonal::pass_on!(below: geometry, report, read, manage, flush);

    fn write(&self, lba: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.note(lba, data.len());
        self.below.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba, DeviceError> {
        let lba = self.below.append(zone, data)?;
        self.note(lba, data.len());
        Ok(lba)
    }
}

fn buffered<D: ZonedDevice>(below: D, kib: u64) -> Elevator<D> {
    Elevator::new(below, ByteCount::new(kib << 10)).unwrap()
}

/// Writes 2 MiB to each of some zones, 64 KiB by turns.
fn write_by_turns(device: &dyn ZonedDevice, zones: u32) {
    for _ in 0..32 {
        for zone in 0..zones {
            device.append(ZoneId::new(zone), &vec![7; 64 << 10]).unwrap();
        }
    }
}

#[test]
fn writers_of_eight_zones_leave_in_runs() {
    let below = Arc::new(Jumps::new());
    let elevator = buffered(below.clone(), 4 << 10);
    write_by_turns(&elevator, 8);
    elevator.flush().unwrap();
    // The first write of each zone opens it; 16 MiB leave in runs of about 0.9 MiB.
    assert!(below.count() <= 40, "{} jumps", below.count());
    let direct = Jumps::new();
    write_by_turns(&direct, 8);
    assert_eq!(direct.count(), 8 * 32 - 1, "without the layer each write jumps");
}

#[test]
fn front_ends_on_slices_share_runs() {
    let below = Arc::new(Jumps::new());
    let elevator = Arc::new(buffered(below.clone(), 4 << 10));
    let slice = |first, last| {
        let (first, last) = (ZoneId::new(first), Some(ZoneId::new(last)));
        Slice::new(elevator.clone(), ZoneRange { first, last }).unwrap()
    };
    let (one, other) = (slice(0, 1), slice(2, 4));
    for _ in 0..32 {
        for zone in 0..2 {
            one.append(ZoneId::new(zone), &vec![1; 64 << 10]).unwrap();
            other.append(ZoneId::new(zone), &vec![2; 64 << 10]).unwrap();
        }
    }
    one.flush().unwrap();
    other.flush().unwrap();
    assert!(below.count() <= 16, "{} jumps", below.count());
}

/// The blocks that a caller has been told of, of each zone: the number of one is its content.
#[derive(Default, Clone)]
struct Told {
    written: [u64; 5],
    durable: [u64; 5],
}

fn content(zone: usize, from: u64, blocks: u64) -> Vec<u8> {
    (from..from + blocks).flat_map(|at| [(zone as u64 * 50 + at % 50) as u8 + 1; BLOCK]).collect()
}

/// Writes and flushes at random until an error; returns whether a flush failed.
fn run(device: &dyn ZonedDevice, seed: u64, told: &mut Told) -> Option<bool> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..120 {
        if random.random_range(0..12) == 0 {
            if device.flush().is_err() {
                return Some(true);
            }
            told.durable = told.written;
            continue;
        }
        let zone = random.random_range(0..5_usize);
        let (from, blocks) = (told.written[zone], random.random_range(1..9));
        let lba = device.geometry().zone_start(ZoneId::new(zone as u32)) + LbaCount::new(from);
        if device.write(lba, &content(zone, from, blocks)).is_err() {
            return Some(false);
        }
        told.written[zone] += blocks;
    }
    None
}

/// Each zone of `device` holds a prefix of what was written; returns its blocks.
fn prefixes(device: &dyn ZonedDevice) -> [u64; 5] {
    std::array::from_fn(|zone| {
        let found = device.zone(ZoneId::new(zone as u32)).unwrap();
        let blocks = (found.wp.unwrap() - found.start).get();
        let mut data = vec![0; blocks as usize * BLOCK];
        device.read(found.start, &mut data).unwrap();
        assert!(data == content(zone, 0, blocks), "zone {zone} holds a prefix");
        blocks
    })
}

#[test]
fn power_cut_keeps_what_was_flushed() {
    let seed = repeat::seed(31);
    for nth in 1..60 {
        let below = Arc::new(drive(3));
        let plan: FaultPlan = format!("any,nth={nth},power-cut;seed={nth}").parse().unwrap();
        let elevator = buffered(Fault::new(below.clone(), plan), 100);
        let mut told = Told::default();
        run(&elevator, seed + nth, &mut told);
        drop(elevator);
        let found = prefixes(&below);
        for (zone, blocks) in found.into_iter().enumerate() {
            assert!(blocks >= told.durable[zone], "zone {zone} lost flushed blocks, nth={nth}");
        }
    }
}

#[test]
fn refused_write_out_is_reported_at_flush() {
    let seed = repeat::seed(32);
    let mut late = 0;
    for (nth, kind) in (1..40).flat_map(|nth| ["medium", "torn", "late"].map(|kind| (nth, kind))) {
        let below = Arc::new(drive(3));
        let plan: FaultPlan = format!("write,nth={nth},{kind}").parse().unwrap();
        let elevator = buffered(Fault::new(below.clone(), plan), 100);
        let mut told = Told::default();
        let mut ended = run(&elevator, seed + nth, &mut told);
        if ended == Some(false) {
            // The drive refused this write itself, or the zone had lost blocks before.
            told.durable = [0; 5];
        }
        if ended.is_none() && elevator.flush().is_err() {
            ended = Some(true);
        }
        late += u32::from(ended == Some(true));
        let lost = elevator.flush().is_err() || ended.is_some();
        let (shown, found) = (prefixes(&elevator), prefixes(&below));
        assert_eq!(shown, found, "a flush leaves nothing in memory, nth={nth} {kind}");
        let kept = found == told.written;
        assert!(kept || lost, "blocks are lost without an error, nth={nth} {kind}");
        assert!((0..5).all(|zone| found[zone] >= told.durable[zone]), "nth={nth} {kind}");
        // The zone that lost blocks goes on from its true write pointer.
        elevator.append(ZoneId::new(0), &content(0, found[0], 1)).unwrap();
        elevator.flush().unwrap();
        assert_eq!(prefixes(&below)[0], found[0] + 1);
    }
    assert!(late > 10, "{late} errors came at a flush");
}

#[test]
fn writers_side_by_side_find_their_blocks() {
    let seed = repeat::seed(33);
    let below = Arc::new(drive(3));
    let elevator = buffered(below.clone(), 200);
    std::thread::scope(|scope| {
        for zone in 0..5_usize {
            let elevator = &elevator;
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed + zone as u64);
                let start = elevator.geometry().zone_start(ZoneId::new(zone as u32));
                let mut at = 0;
                while at < 1000 {
                    let blocks = random.random_range(1..9).min(1000 - at);
                    let lba = start + LbaCount::new(at);
                    elevator.write(lba, &content(zone, at, blocks)).unwrap();
                    at += blocks;
                    let from = random.random_range(0..at);
                    let mut found = vec![0; (at - from) as usize * BLOCK];
                    elevator.read(start + LbaCount::new(from), &mut found).unwrap();
                    assert!(found == content(zone, from, at - from), "zone {zone} from {from}");
                    assert_eq!(
                        elevator.zone(ZoneId::new(zone as u32)).unwrap().wp,
                        Some(start + LbaCount::new(at))
                    );
                    if random.random_range(0..20) == 0 {
                        elevator.flush().unwrap();
                    }
                }
            });
        }
    });
    drop(elevator);
    assert_eq!(prefixes(&below), [1000; 5], "the end of the layer writes out the buffer");
}
