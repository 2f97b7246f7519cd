//! A flush of the drive fails, the process is killed, and the power is cut while the next process
//! opens the store: what was synced is there.
//!
//! `SEED` in the environment chooses what the cuts leave; it is printed. `COUNT` multiplies how
//! many are tried.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

mod volume;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use volume::{Files, count, files, formatted, geometry, mount, seed};
use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder};
use zonal::{DeviceError, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneId, ZonedDevice};
use zonal_fs::volume::{OpenFlags, Volume};

/// Flushes of the workload below, and more.
const FLUSHES: u64 = 40;

/// A drive on which one flush fails, or that one and all later ones. What was written stays in its
/// cache.
struct Flaky {
    below: Arc<Recorder>,
    flushes: AtomicU64,
    fails: Fails,
}

#[derive(Clone, Copy, Debug)]
enum Fails {
    Once(u64),
    From(u64),
}

impl ZonedDevice for Flaky {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(
        &self,
        first: ZoneId,
        zones: &mut Vec<Zone>,
        limit: usize,
    ) -> Result<(), DeviceError> {
        self.below.report(first, zones, limit)
    }
    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.below.read(lba, buffer)
    }
    fn write(&self, lba: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.below.write(lba, data)
    }
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba, DeviceError> {
        self.below.append(zone, data)
    }
    fn manage(&self, zones: Select, action: ZoneAction) -> Result<(), DeviceError> {
        self.below.manage(zones, action)
    }
    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<(), DeviceError> {
        self.below.deallocate(lba, blocks)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let number = self.flushes.fetch_add(1, Ordering::Relaxed);
        let is_failing = match self.fails {
            Fails::Once(failing) => number == failing,
            Fails::From(first) => number >= first,
        };
        if is_failing {
            let source = io::Error::other("this flush fails");
            return Err(DeviceError::Io { what: "flushing".into(), source });
        }
        self.below.flush()
    }
}

/// What a process has done: the states it went through, and the last one that it knows to be
/// durable.
struct Done {
    states: Vec<Files>,
    durable: usize,
}

/// Tables are written, renamed and deleted, and a log grows. A process whose flushes go on to fail
/// is killed at the first that does.
fn work(volume: &Volume, fails: Fails) -> Done {
    let mut done = Done { states: vec![files(volume)], durable: 0 };
    for round in 0..8_u8 {
        let old = format!("/table{}", round.wrapping_sub(2));
        let table = format!("/table{round}");
        let operations: [&dyn Fn() -> zonal_fs::volume::Result<()>; 5] = [
            &|| volume.write("/new", &vec![round; 30_000]),
            &|| {
                let flags = OpenFlags::WRITE | OpenFlags::APPEND | OpenFlags::CREATE;
                volume.open_with("/log", flags, 0o644)?.append(&[round; 5000]).map(drop)
            },
            &|| volume.sync(),
            &|| volume.rename("/new", &table),
            &|| if round < 2 { Ok(()) } else { volume.remove_file(&old) },
        ];
        for operation in operations {
            let outcome = operation();
            done.states.push(files(volume));
            if outcome.is_err() && matches!(fails, Fails::From(_)) {
                return done;
            }
        }
        match (volume.sync(), fails) {
            (Ok(()), _) => done.durable = done.states.len() - 1,
            (Err(_), Fails::Once(_)) => {}
            (Err(_), Fails::From(_)) => return done,
        }
    }
    done
}

/// A process whose flushes fail so, then one that is cut off at every change that it makes. Returns
/// how many states were looked at.
fn check(start: &Image, fails: Fails, random: &mut ChaCha8Rng, tries: u64) -> u64 {
    let recorder = Arc::new(Recorder::new(start.clone()));
    let flaky = Flaky { below: Arc::clone(&recorder), flushes: AtomicU64::new(0), fails };
    let Ok(volume) = mount(Arc::new(flaky)) else { return 0 };
    let done = work(&volume, fails);
    // It is killed: nothing more is written.
    std::mem::forget(volume);
    let killed = recorder.len();
    std::mem::forget(mount(Arc::clone(&recorder) as Arc<dyn ZonedDevice>).unwrap());
    let recording = recorder.recording();
    let mut outage = Outage::at_start(&recording);
    let mut tried = 0;
    loop {
        for _ in 0..if outage.at() < killed { 0 } else { tries } {
            let mut below = |end: u64| u64::from(random.next_u32()) % end;
            let Some(image) = outage.sample(&mut below) else { continue };
            tried += 1;
            let what = format!("{fails:?}, change {} after the kill", outage.at() - killed);
            let opened = mount(Arc::new(Recorder::new(image)));
            let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = files(&opened);
            let is_legal = done.states[done.durable..].contains(&found);
            assert!(is_legal, "{what}: found {:?}", found.keys());
        }
        if !outage.step() {
            return tried;
        }
    }
}

#[test]
fn synced_data_survives_failed_flush_kill_and_cut() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let tries = count(4);
    let start = formatted(&geometry("zone=64K,zones=16,block=4096,active=14,open=14"));
    let mut tried = 0;
    for number in 0..FLUSHES {
        for fails in [Fails::Once(number), Fails::From(number)] {
            tried += check(&start, fails, &mut random, tries);
        }
    }
    println!("{tried} states");
    assert!(tried > 500, "only {tried}");
}
