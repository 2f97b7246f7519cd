//! Calls of the drive fail: each successful change is there, once, and after the faults the store
//! is as it would be without them. A flush fails, the process is killed, and the power is cut while
//! the next process opens the store: all synced data is there.
//!
//! `SEED` in the environment chooses the blocks that power cuts drop, and the random work; it is
//! printed. `COUNT` multiplies the number of tries.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

mod volume;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use volume::{Files, count, files, formatted, geometry, mount, seed};
use zonal::image::Image;
use zonal::layer::fault::Fault;
use zonal::layer::record::{Outage, Recorder};
use zonal::{
    DeviceError, Geometry, Lba, LbaCount, ManualClock, Select, Zone, ZoneAction, ZoneId,
    ZonedDevice,
};
use zonal_fs::vfs::{Access, FileSystem};
use zonal_fs::volume::{File, OpenFlags, Upkeep, Volume, VolumeOptions};
use zonal_kv::zones::ZoneStore;
use zonal_kv::zones::owed::Owed;

/// Flushes of the workload below, and more.
const FLUSHES: u64 = 40;

/// A drive on which one flush fails, or one flush and all later ones. A failed flush leaves the
/// written blocks in the cache.
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

/// The work of a process: the states it went through, and the last one that it knows to be durable.
struct Done {
    states: Vec<Files>,
    durable: usize,
}

/// Writes, renames and deletes tables, and grows a log. If flushes fail for good, ends at the first
/// call that fails, and the caller kills the process.
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

/// Runs a process whose flushes fail, and kills it. Then runs another one, and cuts the power after
/// each change that this one makes. Returns the number of states that were checked.
fn check(start: &Image, fails: Fails, random: &mut ChaCha8Rng, tries: u64) -> u64 {
    let recorder = Arc::new(Recorder::new(start.clone()));
    let flaky = Flaky { below: Arc::clone(&recorder), flushes: AtomicU64::new(0), fails };
    let Ok(volume) = mount(Arc::new(flaky)) else { return 0 };
    let done = work(&volume, fails);
    // The process is killed: it writes nothing more.
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

/// A store on a drive that fails according to a plan. The test moves its clock.
struct Rig {
    fault: Arc<Fault<Recorder>>,
    clock: Arc<ManualClock>,
    store: Arc<ZoneStore>,
    volume: Volume,
    /// Blocks that are free at first.
    free: u64,
}

/// A reset, a write and so on of zones with data: zones 1 and 2 have the name map.
const DATA: &str = "zone=3-99";

const SECOND_NS: u64 = 1_000_000_000;

const APPEND: OpenFlags = OpenFlags::WRITE.union(OpenFlags::APPEND).union(OpenFlags::CREATE);

impl Rig {
    fn new(shape: &str, plan: &str) -> Self {
        let recorder = Recorder::new(formatted(&geometry(shape)));
        let fault = Arc::new(Fault::new(recorder, plan.parse().unwrap()));
        let clock = Arc::new(ManualClock::new(1_000));
        let device = Arc::clone(&fault) as Arc<dyn ZonedDevice>;
        let store = ZoneStore::mount(device, Arc::clone(&clock) as _, Access::ReadWrite).unwrap();
        let store = Arc::new(store);
        let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
        let volume = Volume::new(Arc::clone(&store) as Arc<dyn FileSystem>, &options);
        let free = volume.space().unwrap().blocks_free;
        Self { fault, clock, store, volume, free }
    }

    fn open(&self, path: &str) -> File {
        self.volume.open_with(path, APPEND, 0o644).unwrap()
    }

    fn free(&self) -> u64 {
        self.volume.space().unwrap().blocks_free
    }

    fn active(&self) -> usize {
        let zones = self.fault.below().report_all().unwrap();
        zones.iter().filter(|zone| zone.cond.is_active()).count()
    }

    /// Lets `seconds` pass, with a tick in each. Returns the number of errors.
    fn wait(&self, seconds: u64) -> usize {
        let tick = |_: &u64| {
            self.clock.advance_ns(SECOND_NS);
            self.volume.tick().is_err()
        };
        (0..seconds).filter(tick).count()
    }

    /// Kills the process, and returns the files that a mount finds.
    fn killed(self) -> Files {
        self.ended(|outage| outage.everything())
    }

    /// Ends the process, and returns the files that a mount finds on the drive image that `left`
    /// chooses.
    fn ended(self, left: impl FnOnce(&mut Outage<'_>) -> Image) -> Files {
        let recording = self.fault.below().recording();
        std::mem::forget(self.volume);
        let mut outage = Outage::at_start(&recording);
        while outage.step() {}
        let image = left(&mut outage);
        files(&mount(Arc::new(Recorder::new(image))).unwrap())
    }

    /// Ends the faults, and checks that the store does all owed work, and that all space is free
    /// and usable.
    fn check_recovers(&self, what: &str) {
        self.fault.disarm();
        self.wait(130);
        assert_eq!(self.store.owed(), Owed::default(), "{what}");
        for name in files(&self.volume).into_keys() {
            self.volume.remove_file(format!("/{name}")).unwrap();
        }
        self.volume.sync().unwrap();
        assert_eq!(self.free(), self.free, "{what}: space");
        assert!(self.active() <= 2, "{what}: only the map is being written");
        let all = usize::try_from(self.free * 4096).unwrap();
        self.volume.write("/all", &vec![9; all]).unwrap();
        self.volume.sync().unwrap();
        assert_eq!(self.free(), 0, "{what}");
        self.volume.remove_file("/all").unwrap();
        self.volume.sync().unwrap();
    }
}

#[test]
fn zone_whose_reset_fails_is_emptied_later() {
    let rig = Rig::new("zone=256K,zones=10", &format!("reset,{DATA},times=2"));
    rig.volume.write("/table", &vec![1; 100_000]).unwrap();
    rig.volume.sync().unwrap();
    rig.volume.remove_file("/table").unwrap();
    rig.volume.sync().unwrap();
    assert_eq!(rig.store.owed(), Owed { resets: 1, ..Owed::default() });
    assert_eq!(rig.free(), rig.free - 64, "a zone that is not empty is not free");
    assert_eq!(rig.wait(1), 0);
    assert_eq!(rig.fault.fired(), 2);
    // The pause is twice as long now.
    assert_eq!((rig.wait(1), rig.store.owed().resets), (0, 1));
    assert_eq!((rig.wait(1), rig.store.owed().resets), (0, 0));
    assert_eq!(rig.free(), rig.free);
    rig.check_recovers("resets");
}

#[test]
fn write_without_room_empties_owed_zones_at_once() {
    let rig = Rig::new("zone=256K,zones=10", &format!("reset,{DATA},times=7"));
    for number in 0..7 {
        rig.volume.write(format!("/{number}"), &vec![1; 256 << 10]).unwrap();
    }
    rig.volume.sync().unwrap();
    for number in 0..7 {
        rig.volume.remove_file(format!("/{number}")).unwrap();
    }
    rig.volume.sync().unwrap();
    assert_eq!((rig.store.owed().resets, rig.free()), (7, 0));
    rig.volume.write("/again", &vec![2; 256 << 10]).unwrap();
    assert_eq!(rig.store.owed().resets, 6);
}

#[test]
fn zones_of_failed_writes_come_back() {
    // Twice in the zone of the file, once in another one.
    for (before, plan) in
        [(0, "times=3"), (100_000, "from=2,times=3"), (100_000, "from=2,times=3,torn")]
    {
        for owing in ["", ";finish,times=1;reset,zone=3-99,times=1"] {
            let plan = format!("write,{DATA},{plan}{owing}");
            let rig = Rig::new("zone=256K,zones=14,active=4,open=4", &plan);
            let file = rig.open("/table");
            file.append(&vec![1; before]).unwrap();
            rig.volume.sync().unwrap();
            file.append(&vec![2; 300_000]).unwrap();
            rig.volume.sync().unwrap();
            assert!(rig.fault.fired() >= 3, "{plan}");
            rig.wait(3);
            assert_eq!(rig.store.owed(), Owed::default(), "{plan}");
            assert!(rig.active() <= 2, "{plan}: the map and the file");
            let content = rig.volume.read("/table").unwrap();
            assert!(content == [vec![1; before], vec![2; 300_000]].concat(), "{plan}");
            drop(file);
            rig.check_recovers(&plan);
        }
    }
}

#[test]
fn files_grow_beyond_active_zones_while_finishes_fail() {
    for times in [1, 2, 5] {
        let rig =
            Rig::new("zone=64K,zones=240,active=4,open=4", &format!("finish,p=0.5,times={times}"));
        let files: Vec<_> = (0..9).map(|number| rig.open(&format!("/{number}"))).collect();
        for round in 0..20_u8 {
            for file in &files {
                file.append(&[round; 4096]).unwrap();
                file.sync_all().unwrap();
            }
        }
        assert_eq!(rig.fault.fired(), times);
        drop(files);
        let wanted: Vec<u8> = (0..20).flat_map(|round| [round; 4096]).collect();
        for number in 0..9 {
            assert!(rig.volume.read(format!("/{number}")).unwrap() == wanted, "file {number}");
        }
        rig.check_recovers(&format!("{times} finishes"));
    }
}

#[test]
fn append_during_faults_is_there_once_or_not_at_all() {
    for from in 1..7 {
        for times in 1..13 {
            let plan = format!("write,{DATA},from={from},times={times}");
            let rig = Rig::new("zone=256K,zones=10", &plan);
            let file = rig.open("/table");
            let mut wanted = Vec::new();
            // More than the drive takes.
            for number in 0..8 {
                let piece = vec![number; 270_000];
                if file.append(&piece).is_ok() {
                    wanted.extend(piece);
                }
                assert!(rig.volume.read("/table").unwrap() == wanted, "{plan}: append {number}");
            }
            drop(file);
            rig.wait(130);
            assert!(rig.volume.sync().is_ok(), "{plan}");
            assert!(rig.volume.read("/table").unwrap() == wanted, "{plan}: later");
            assert!(wanted.len() > 1_000_000, "{plan}");
            rig.check_recovers(&plan);
        }
    }
}

#[test]
fn file_without_place_keeps_no_other_from_being_durable() {
    let rig = Rig::new("zone=256K,zones=10", &format!("write,{DATA},from=2"));
    rig.volume.write("/old", &vec![1; 100_000]).unwrap();
    rig.volume.sync().unwrap();
    let table = rig.open("/table");
    table.append(&vec![2; 50_000]).unwrap();
    rig.open("/log").append(b"a record").unwrap();
    rig.volume.remove_file("/old").unwrap();
    rig.volume.sync().unwrap_err();
    assert_eq!(rig.free(), rig.free - 64, "only the zone of the table");
    assert_eq!(rig.volume.read("/table").unwrap(), vec![2; 50_000]);
    // A write to a file with much unwritten data in memory is refused, and leaves nothing.
    table.append(&vec![3; 300_000]).unwrap();
    table.append(&vec![4; 300_000]).unwrap_err();
    assert_eq!(rig.volume.metadata("/table").unwrap().size, 350_000);
    rig.volume.sync().unwrap_err();
    drop(table);
    let found = rig.killed();
    assert_eq!(found["log"], b"a record");
    assert!(!found.contains_key("old"));
    // The part of the table that fits in a record.
    assert_eq!(found["table"], [2; 4095]);
}

#[test]
fn synced_end_of_file_stays_while_writes_fail() {
    // A whole block, and the first bytes of another one, which a close fills with zeroes.
    let rig = Rig::new("zone=256K,zones=10", &format!("write,{DATA},from=2"));
    rig.volume.write("/log", &[1; 5000]).unwrap();
    rig.volume.sync().unwrap();
    rig.open("/log").append(&[2; 9000]).unwrap();
    rig.volume.sync().unwrap_err();
    let found = &rig.killed()["log"];
    assert!(found[..5000] == [1; 5000] && found[5000..].iter().all(|byte| *byte == 2));
}

#[test]
fn file_closed_during_faults_is_sealed_later() {
    let rig = Rig::new("zone=256K,zones=10", &format!("write,{DATA},times=4;finish,times=1"));
    let file = rig.open("/table");
    file.append(&[1; 5000]).unwrap();
    drop(file);
    assert_eq!(rig.store.owed(), Owed { seals: 1, ..Owed::default() });
    assert_eq!(rig.wait(1), 0);
    assert_eq!(rig.store.owed(), Owed { finishes: 1, ..Owed::default() });
    assert_eq!(rig.wait(1), 0);
    assert_eq!((rig.store.owed(), rig.active()), (Owed::default(), 1));
    assert_eq!(rig.free(), rig.free - 64);
    assert_eq!(rig.volume.read("/table").unwrap(), [1; 5000]);
    rig.check_recovers("seals");
}

#[test]
fn failed_commit_is_repeated_by_tick() {
    for plan in ["write,zone=1-2,from=2,times=2", "flush,from=3,times=2"] {
        let rig = Rig::new("zone=256K,zones=10", plan);
        rig.open("/log").append(b"a record").unwrap();
        assert_eq!(rig.wait(5), 1, "{plan}");
        assert_eq!(rig.store.owed().commits, 1, "{plan}");
        assert_eq!(rig.wait(10), 1, "{plan}: after pauses of one and two seconds");
        assert_eq!((rig.fault.fired(), rig.store.owed()), (2, Owed::default()), "{plan}");
        assert_eq!(rig.killed()["log"], b"a record", "{plan}");
    }
}

#[test]
fn shutdown_keeps_other_files_of_one_that_fails() {
    for (plan, whole) in [("times=4", true), ("from=1", false)] {
        let rig = Rig::new("zone=256K,zones=10", &format!("write,{DATA},{plan}"));
        let (table, log) = (rig.open("/1"), rig.open("/2"));
        table.append(&[1; 5000]).unwrap();
        log.append(b"a record").unwrap();
        assert_eq!(rig.volume.clone().close().is_ok(), whole, "{plan}");
        drop((table, log));
        let found = rig.killed();
        assert_eq!(found["2"], b"a record", "{plan}");
        assert_eq!(found["1"].len() == 5000, whole, "{plan}");
    }
}

/// Random work on six files, with the effects of the calls that succeeded.
#[derive(Default)]
struct Work {
    wanted: Files,
    /// Names that a sync has left as they are since.
    synced: Files,
    gone: BTreeSet<String>,
}

impl Work {
    fn step(&mut self, rig: &Rig, random: &mut ChaCha8Rng) {
        match random.next_u32() % 8 {
            0 => {
                rig.wait(u64::from(random.next_u32() % 8));
                return;
            }
            1 => {
                if rig.volume.sync().is_ok() {
                    self.synced.clone_from(&self.wanted);
                    self.gone = (0..6).map(|number: u8| number.to_string()).collect();
                    self.gone.retain(|name| !self.wanted.contains_key(name));
                }
                return;
            }
            2.. => {}
        }
        let name = (random.next_u32() % 6).to_string();
        let path = format!("/{name}");
        self.synced.remove(&name);
        self.gone.remove(&name);
        match random.next_u32() % 6 {
            0 => {
                if rig.volume.remove_file(&path).is_ok() {
                    self.wanted.remove(&name);
                }
            }
            1 => {
                let Some(data) = self.wanted.get_mut(&name).filter(|data| !data.is_empty()) else {
                    return;
                };
                let len = random.next_u32() as usize % data.len();
                if rig.open(&path).set_len(len as u64).is_ok() {
                    data.truncate(len);
                }
            }
            2.. => {
                let file = rig.open(&path);
                let data = self.wanted.entry(name).or_default();
                for _ in 0..random.next_u32() % 3 {
                    let len = [3, 700, 9000, 40_000, 300_000][random.next_u32() as usize % 5];
                    let piece = vec![random.next_u32().to_le_bytes()[0]; len];
                    if file.append(&piece).is_ok() {
                        data.extend(piece);
                    }
                }
            }
        }
    }

    fn check(&self, volume: &Volume, what: &str) {
        for (name, data) in &self.wanted {
            let path = format!("/{name}");
            assert_eq!(volume.metadata(&path).unwrap().size, data.len() as u64, "{what}: {path}");
            if let Ok(found) = volume.read(&path) {
                assert!(found == *data, "{what}: {path}");
            }
        }
    }
}

/// Every second round ends with a power cut, the others continue after the faults.
#[test]
fn store_owes_and_loses_nothing_after_random_faults() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let mut fired = 0;
    for round in 0..count(40) {
        // The mount is spared.
        let plan = "write,from=8,p=0.2;reset,from=8,p=0.3;finish,from=8,p=0.3;flush,from=8,p=0.1;\
                    read,from=8,p=0.05";
        let plan = format!("{plan};seed={}", random.next_u32());
        let rig = Rig::new("zone=64K,zones=20,active=4,open=4", &plan);
        let mut work = Work::default();
        for step in 0..120 {
            work.step(&rig, &mut random);
            work.check(&rig.volume, &format!("round {round}, step {step}"));
        }
        fired += rig.fault.fired();
        if round % 2 == 0 {
            let mut below = |end: u64| u64::from(random.next_u32()) % end;
            let found =
                rig.ended(|outage| (0..).find_map(|_: u32| outage.sample(&mut below)).unwrap());
            for (name, data) in &work.synced {
                assert!(found.get(name) == Some(data), "round {round}: /{name} was synced");
            }
            assert!(work.gone.iter().all(|name| !found.contains_key(name)), "round {round}");
            continue;
        }
        rig.fault.disarm();
        rig.wait(130);
        rig.volume.sync().unwrap();
        assert!(files(&rig.volume) == work.wanted, "round {round}");
        rig.check_recovers(&format!("round {round}"));
    }
    println!("{fired} faults");
    assert!(fired > 500, "only {fired}");
}
