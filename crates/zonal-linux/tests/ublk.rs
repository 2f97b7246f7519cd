//! Devices as ublk block devices of the kernel that runs this, seen through [`BlockDrive`]: the
//! contract of every device, and devices that fail. Runs as root where there is `ublk_drv`;
//! `cargo xtask vm` has one.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use contract::CHECKS;
use zonal::layer::delay::Delay;
use zonal::spec::{self, Stack};
use zonal::wait::wait_until;
use zonal::{
    AlignedBytes, DeviceError, Io, Lba, LbaCount, ManualClock, OpenMode, Select, ZoneAction,
    ZoneCond, ZoneFailure, ZoneId, ZonedDevice,
};
use zonal_linux::BlockDrive;
use zonal_linux::ublk::{Number, Queues, Server, Source};

const QUEUES: Queues = Queues { count: 1, depth: 32, threads: 32 };

/// Shapes of drives, as specifications. They are small: the guest is slow, and some checks do each
/// block by itself.
const SHAPES: [&str; 4] = [
    "mem:block=512,zone=32K,zones=6,conventional=2",
    "mem:block=4096,zone=256K,capacity=128K,zones=10,conventional=2,open=3,active=5",
    "po2:mem:block=4096,zone=96K,zones=12,open=3,active=4,append=16K",
    "po2:mem:block=4096,zone=96K,zones=12,conventional=3,open=3,active=4",
];

/// Where the shape does not matter.
const PLAIN: &str = "mem:block=4096,zone=1M,zones=8";

fn stack(spec: &str) -> Stack {
    let clock = Arc::new(ManualClock::new(0));
    spec::open_stack(spec, OpenMode::ReadWrite, clock).unwrap()
}

fn serve(device: Arc<dyn ZonedDevice>) -> Server {
    Server::start(Source::Device(device), Number::Any, QUEUES).unwrap()
}

fn open(server: &Server) -> BlockDrive {
    BlockDrive::open(&server.node(), OpenMode::ReadWrite).unwrap()
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn served_devices_keep_device_contract() {
    for shape in SHAPES {
        for (what, check) in CHECKS {
            let server = serve(stack(shape).device);
            let drive = open(&server);
            contract::run(&drive, &format!("ublk, {shape}"), what, *check);
            drop(drive);
            server.stop().unwrap();
        }
    }
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn zones_fail_while_served() {
    let Stack { device, failing, .. } = stack(PLAIN);
    let server = serve(device);
    let drive = open(&server);
    let (read_only, offline) = (ZoneId::new(3), ZoneId::new(4));
    let lba = drive.append(read_only, &[7; 4096]).unwrap();
    let failing = failing.unwrap();
    failing.fail_zone(read_only, ZoneFailure::ReadOnly).unwrap();
    failing.fail_zone(offline, ZoneFailure::Offline).unwrap();
    assert_eq!(drive.zone(read_only).unwrap().cond, ZoneCond::ReadOnly);
    assert_eq!(drive.zone(offline).unwrap().cond, ZoneCond::Offline);
    let write = |zone| drive.append(zone, &[1; 4096]).unwrap_err();
    assert!(matches!(write(read_only), DeviceError::ZoneReadOnly { .. }), "{}", write(read_only));
    assert!(matches!(write(offline), DeviceError::ZoneOffline { .. }), "{}", write(offline));
    let mut held = [0; 4096];
    drive.read(lba, &mut held).unwrap();
    assert_eq!(held, [7; 4096]);
    let start = drive.geometry().zone_start(offline);
    let read = drive.read(start, &mut [0; 4096]).unwrap_err();
    assert!(matches!(read, DeviceError::ZoneOffline { .. }), "{read}");
    // The others are as they were.
    drive.append(ZoneId::new(5), &[1; 4096]).unwrap();
    drop(drive);
    server.stop().unwrap();
}

/// How a device treats reads of one block.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fails,
    Panics,
    /// Until the gate opens.
    Waits,
}

/// A drive whose reads of one block meet a fate.
struct Fateful {
    below: Arc<dyn ZonedDevice>,
    block: Lba,
    fate: Fate,
    waits: AtomicBool,
    gate: Mutex<bool>,
    opened: Condvar,
    flushes: AtomicU32,
}

impl Fateful {
    fn new(fate: Fate) -> Arc<Self> {
        let below = stack("mem:block=4096,zone=1M,zones=8,conventional=1").device;
        Arc::new(Self {
            below,
            block: Lba::new(100),
            fate,
            waits: AtomicBool::new(false),
            gate: Mutex::new(false),
            opened: Condvar::new(),
            flushes: AtomicU32::new(0),
        })
    }

    fn open_gate(&self) {
        *self.gate.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl ZonedDevice for Fateful {
    zonal::pass_on!(below: geometry, report, write, append, manage);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = self.geometry().blocks(buffer.len())?;
        if lba <= self.block && self.block < lba + blocks {
            match self.fate {
                Fate::Fails => return Err(DeviceError::Medium { lba: self.block }),
                Fate::Panics => panic!("a bug of a device, made for a test"),
                Fate::Waits => {
                    self.waits.store(true, Ordering::Release);
                    let gate = self.gate.lock().unwrap();
                    drop(self.opened.wait_while(gate, |open| !*open).unwrap());
                }
            }
        }
        self.below.read(lba, buffer)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, Ordering::AcqRel);
        self.below.flush()
    }
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn device_failure_is_error_and_server_continues() {
    for fate in [Fate::Fails, Fate::Panics] {
        let device = Fateful::new(fate);
        let server = serve(device.clone());
        let drive = open(&server);
        for _ in 0..100 {
            let error = drive.read(device.block, &mut [0; 4096]).unwrap_err();
            assert!(matches!(error, DeviceError::Medium { .. }), "{fate:?}: {error}");
            drive.read(Lba::ZERO, &mut [0; 8192]).unwrap();
        }
        drop(drive);
        server.stop().unwrap();
    }
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn request_that_is_slow_delays_no_other() {
    let device = Fateful::new(Fate::Waits);
    let server = serve(device.clone());
    let drive = open(&server);
    thread::scope(|scope| {
        let slow = scope.spawn(|| drive.read(device.block, &mut [0; 4096]));
        wait_until(|| device.waits.load(Ordering::Acquire));
        // Each tag is used more than once.
        for number in 0..200_u64 {
            drive.read(Lba::new(number % 64), &mut [0; 4096]).unwrap();
        }
        assert!(!slow.is_finished());
        device.open_gate();
        slow.join().unwrap().unwrap();
    });
    drop(drive);
    server.stop().unwrap();
}

/// Requests that the kernel has of a disk and that are unanswered.
fn in_flight(server: &Server) -> u32 {
    let path = format!("/sys/block/ublkb{}/inflight", server.id());
    let counts = std::fs::read_to_string(path).unwrap();
    counts.split_whitespace().map(|count| count.parse::<u32>().unwrap()).sum()
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn requests_that_have_arrived_are_one_batch() {
    let fateful = Fateful::new(Fate::Waits);
    let device = Arc::new(Delay::new(Arc::clone(&fateful), Duration::ZERO));
    let blocks: Vec<u8> = (0..62_u8).flat_map(|number| [number; 4096]).collect();
    device.write(Lba::ZERO, &blocks).unwrap();
    let queues = Queues { threads: 1, ..QUEUES };
    let server = Server::start(Source::Device(device.clone()), Number::Any, queues).unwrap();
    let drive = open(&server);
    let mut found = AlignedBytes::zeroed(31 * 4096);
    device.clear();
    thread::scope(|scope| {
        let slow = scope.spawn(|| drive.read(fateful.block, &mut [0; 4096]));
        wait_until(|| fateful.waits.load(Ordering::Acquire));
        let together = scope.spawn(|| {
            // The kernel makes one request of reads of neighbours.
            let reads = found.chunks_mut(4096).zip((0..).step_by(2));
            let mut batch: Vec<_> =
                reads.map(|(place, block)| Io::read(Lba::new(block), place)).collect();
            drive.submit(&mut batch);
            batch.into_iter().try_for_each(|io| io.outcome().map(drop))
        });
        wait_until(|| in_flight(&server) >= 32);
        fateful.open_gate();
        slow.join().unwrap().unwrap();
        together.join().unwrap().unwrap();
    });
    let expected = blocks.chunks(4096).step_by(2);
    assert!(found.chunks(4096).eq(expected));
    assert_eq!((device.requests(), device.rounds(), device.deepest()), (32, 2, 31));
    drop(drive);
    server.stop().unwrap();
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn flush_reaches_device_and_so_does_stop() {
    let device = Fateful::new(Fate::Fails);
    let server = serve(device.clone());
    let drive = open(&server);
    drive.append(ZoneId::new(2), &[1; 4096]).unwrap();
    let before = device.flushes.load(Ordering::Acquire);
    drive.flush().unwrap();
    let after = device.flushes.load(Ordering::Acquire);
    assert!(after > before);
    drop(drive);
    server.stop().unwrap();
    assert!(device.flushes.load(Ordering::Acquire) > after);
}

#[test]
#[ignore = "needs ublk; run by cargo xtask test in a virtual machine"]
fn server_stops_while_in_use() {
    for _ in 0..5 {
        let server = serve(stack(PLAIN).device);
        let drive = Arc::new(open(&server));
        let done = AtomicU32::new(0);
        thread::scope(|scope| {
            let users: Vec<_> = (0..4_u32)
                .map(|user| {
                    let (drive, done) = (Arc::clone(&drive), &done);
                    scope.spawn(move || {
                        let zone = ZoneId::new(user);
                        for round in 0_u64.. {
                            let lba =
                                drive.geometry().zone_start(zone) + LbaCount::new(round % 200);
                            let used = match user % 2 {
                                0 => drive.read(lba, &mut [0; 4096]),
                                _ => drive.append(zone, &[1; 4096]).map(drop),
                            };
                            let again = match used {
                                Err(
                                    DeviceError::CrossesZone { .. } | DeviceError::ZoneFull { .. },
                                ) => drive.manage(Select::One(zone), ZoneAction::Reset),
                                used => used,
                            };
                            if again.is_err() {
                                return;
                            }
                            done.fetch_add(1, Ordering::AcqRel);
                        }
                    })
                })
                .collect();
            wait_until(|| done.load(Ordering::Acquire) >= 200);
            drop(drive);
            // It waits for the programs that still have the device open: errors end them.
            server.stop().unwrap();
            for user in users {
                user.join().unwrap();
            }
        });
    }
}
