//! Files with names on zonefs keep their promises, with the power cut after every change of the
//! drive.
//!
//! `SEED` in the environment chooses the random workloads; it is printed. `COUNT` multiplies the
//! number of states that are tried.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use volume::{Files, count, files, formatted, geometry, mount, seed};
use zonal::image::{Image, Tail};
use zonal::layer::fault::Fault;
use zonal::layer::record::{Outage, Recorder};
use zonal::{ManualClock, ZoneCond, ZoneFailure, ZoneId, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::vfs::{Access, FileSystem, Ino, Listing};
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};
use zonal_kv::zones::ZoneStore;

/// The states after each operation, and the promises that a power cut must keep.
struct Run {
    recorder: Arc<Recorder>,
    volume: Volume,
    states: Vec<Files>,
    /// Steps of the drive at the end of a sync, and the state that it promised.
    promises: Vec<(usize, usize)>,
}

impl Run {
    fn new(image: Image) -> Self {
        let recorder = Arc::new(Recorder::new(image));
        let volume = mount(Arc::clone(&recorder) as Arc<dyn ZonedDevice>).unwrap();
        let states = vec![files(&volume)];
        Self { recorder, volume, states, promises: vec![] }
    }

    fn did(&mut self) {
        self.states.push(files(&self.volume));
    }

    fn sync(&mut self) {
        self.volume.sync().unwrap();
        self.promises.push((self.recorder.len(), self.states.len() - 1));
    }

    /// One random operation of a key-value store, more or less.
    fn step(&mut self, random: &mut ChaCha8Rng) {
        let number = random.next_u32() % 5;
        let path = format!("/{number}");
        let byte = random.next_u32().to_le_bytes()[0];
        match random.next_u32() % 10 {
            0 => drop(self.volume.remove_file(&path)),
            1 => drop(self.volume.rename(&path, format!("/{}", random.next_u32() % 5))),
            2 => drop(self.volume.create(&path).unwrap()),
            3 => {
                if let Ok(size) = self.volume.metadata(&path).map(|attr| attr.size)
                    && size > 0
                {
                    let file = self.volume.open_with(&path, APPEND, 0o644).unwrap();
                    file.set_len(u64::from(random.next_u32()) % size).unwrap();
                }
            }
            4..7 => return self.sync(),
            _ => {
                let file = self.volume.open_with(&path, APPEND, 0o644).unwrap();
                let lens = [3, 100, 512, 700, 3000, 9000, 40_000];
                let len = lens[random.next_u32() as usize % lens.len()];
                if file.append(&vec![byte; len]).is_err() {
                    return;
                }
            }
        }
        self.did();
    }
}

const APPEND: zonal_fs::volume::OpenFlags = zonal_fs::volume::OpenFlags::WRITE
    .union(zonal_fs::volume::OpenFlags::APPEND)
    .union(zonal_fs::volume::OpenFlags::CREATE);

/// Mounts the image of a power cut and compares its files. Then writes to it, so that a used zone
/// taken for a free one would show.
fn check_state(image: &Image, states: &[Files], at_least: usize, what: &str) {
    let recorder = Arc::new(Recorder::new(image.clone()));
    let device = Arc::clone(&recorder) as Arc<dyn ZonedDevice>;
    let volume = mount(device).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = files(&volume);
    let matches = states[at_least..].contains(&found);
    let sizes = |files: &Files| -> BTreeMap<String, usize> {
        files.iter().map(|(name, data)| (name.clone(), data.len())).collect()
    };
    let all: Vec<_> = states[at_least..].iter().map(sizes).collect();
    assert!(matches, "{what}: found {:?}, legal {all:?}", sizes(&found));
    volume.write("/after", &vec![7; 20_000]).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let volume = mount(recorder).unwrap();
    let mut after = files(&volume);
    assert_eq!(after.remove("after").unwrap(), vec![7; 20_000]);
    assert!(after == found, "{what}: what was there has changed");
}

#[test]
fn synced_data_survives_cut_at_every_change() {
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let start = formatted(&geometry("zone=64K,zones=40,block=512,active=14,open=14"));
    let mut tried = 0;
    for _ in 0..count(4) {
        let mut run = Run::new(start.clone());
        let began = run.recorder.len();
        for _ in 0..60 {
            run.step(&mut random);
        }
        let Run { recorder, volume, states, promises } = run;
        drop(volume);
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        while outage.step() {
            if outage.at() < began {
                continue;
            }
            let promised = promises.iter().rev().find(|promise| promise.0 <= outage.at());
            let at_least = promised.map_or(0, |promise| promise.1);
            for _ in 0..2 {
                let mut below = |end: u64| u64::from(random.next_u32()) % end;
                let Some(image) = outage.sample(&mut below) else { continue };
                tried += 1;
                check_state(&image, &states, at_least, &format!("change {}", outage.at()));
            }
        }
    }
    println!("{tried} states");
    assert!(tried > 200, "only {tried}");
}

#[test]
fn power_cut_during_map_creation_leaves_usable_drive() {
    let start = formatted(&geometry("zone=64K,zones=8,block=4096"));
    let recorder = Arc::new(Recorder::new(start));
    drop(mount(Arc::clone(&recorder) as Arc<dyn ZonedDevice>).unwrap());
    let recording = recorder.recording();
    let mut outage = Outage::at_start(&recording);
    while outage.step() {
        for cuts in outage.choices(&[Tail::Whole, Tail::Torn]).combinations() {
            let Some(image) = outage.state(&cuts) else { continue };
            check_state(&image, &[Files::new()], 0, &format!("{cuts:?}"));
        }
    }
}

/// A drive in memory with an empty zonefs.
fn drive(text: &str) -> Arc<dyn ZonedDevice> {
    Arc::new(Recorder::new(formatted(&geometry(text))))
}

#[test]
fn file_larger_than_zone_spans_zones_small_take_none() {
    let drive = drive("zone=1M,capacity=768K,zones=12");
    let volume = mount(Arc::clone(&drive)).unwrap();
    let free = volume.space().unwrap().blocks_free;
    volume.write("/small", &[1; 4000]).unwrap();
    assert_eq!(volume.space().unwrap().blocks_free, free);
    let large: Vec<u8> = (0..2_000_001_u32).map(|n| n.to_le_bytes()[1]).collect();
    let file = volume.create("/large").unwrap();
    for piece in large.chunks(70_000) {
        file.append(piece).unwrap();
    }
    assert!(volume.read("/large").unwrap() == large, "while some of it is in memory");
    drop(file);
    volume.close().unwrap();
    let volume = mount(drive).unwrap();
    assert!(volume.read("/large").unwrap() == large);
    // Three zones of 192 blocks.
    assert_eq!(volume.space().unwrap().blocks_free, free - 3 * 192);
    // It goes on growing where its last block was filled with zeroes.
    volume.open_with("/large", APPEND, 0).unwrap().append(b"more").unwrap();
    assert!(volume.read("/large").unwrap() == [&large[..], b"more"].concat());
}

#[test]
fn extents_lead_to_bytes_of_files() {
    let drive = drive("zone=1M,capacity=768K,zones=12");
    let volume = mount(Arc::clone(&drive)).unwrap();
    let large: Vec<u8> = (0..1_500_001_u32).map(|n| n.to_le_bytes()[1]).collect();
    volume.write("/small", &[1; 4000]).unwrap();
    volume.write("/large", &large).unwrap();
    volume.sync().unwrap();
    let mut found = Vec::new();
    let mut note = |extent| {
        found.push(extent);
        Listing::More
    };
    volume.extents((Ino::new(0), 0), Ino::new(u64::MAX), &mut note).unwrap();
    let ino = volume.metadata("/large").unwrap().ino;
    found.retain(|extent| extent.ino == ino);
    let mut bytes: Vec<u8> = Vec::new();
    for extent in &found {
        assert_eq!(extent.offset, bytes.len() as u64, "{found:?}");
        let from = usize::try_from(extent.zone_offset).unwrap();
        let zone = content(&*drive, extent.zone.get());
        bytes.extend(&zone[from..from + usize::try_from(extent.len).unwrap()]);
    }
    assert!(found.len() >= 2 && bytes.len() >= large.len() - 4096, "{found:?}");
    assert!(bytes == large[..bytes.len()]);
}

#[test]
fn tables_have_zone_each_that_is_reset_on_delete() {
    let drive = drive("zone=256K,zones=20,active=8,open=8");
    let volume = mount(Arc::clone(&drive)).unwrap();
    for table in 0..200_u32 {
        let path = format!("/{table}.ldb");
        let file = volume.create(&path).unwrap();
        file.append(&vec![table.to_le_bytes()[0]; 200_000]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        if let Some(old) = table.checked_sub(10) {
            volume.remove_file(format!("/{old}.ldb")).unwrap();
        }
    }
    volume.sync().unwrap();
    for table in 190..200_u32 {
        let content = volume.read(format!("/{table}.ldb")).unwrap();
        assert_eq!(content, vec![table.to_le_bytes()[0]; 200_000]);
    }
    let zones = drive.report_all().unwrap();
    let active = zones.iter().filter(|zone| zone.cond.is_active()).count();
    assert!(active <= 2, "only the map is being written: {active}");
    let full = zones[3..].iter().filter(|zone| zone.cond == ZoneCond::Full).count();
    assert_eq!(full, 10, "one zone for each table");
}

#[test]
fn file_cut_inside_last_block_takes_no_other_zone() {
    let drive = drive("zone=256K,zones=10");
    let volume = mount(Arc::clone(&drive)).unwrap();
    let free = volume.space().unwrap().blocks_free;
    // As RocksDB writes a table with direct I/O: whole blocks, and then its length.
    let file = volume.create("/table").unwrap();
    file.append(&vec![1; 256 << 10]).unwrap();
    file.set_len((256 << 10) - 1000).unwrap();
    file.sync_all().unwrap();
    drop(file);
    volume.close().unwrap();
    let volume = mount(drive).unwrap();
    assert_eq!(volume.read("/table").unwrap(), vec![1; (256 << 10) - 1000]);
    assert_eq!(volume.space().unwrap().blocks_free, free - 64);
    volume.open_with("/table", APPEND, 0).unwrap().append(b"more").unwrap();
    let content = volume.read("/table").unwrap();
    assert!(content == [vec![1; (256 << 10) - 1000], b"more".to_vec()].concat());
}

#[test]
fn more_files_grow_than_zones_can_be_active() {
    let drive = drive("zone=64K,zones=240,active=4,open=4");
    let volume = mount(Arc::clone(&drive)).unwrap();
    let open = |n: u32| volume.open_with(format!("/{n}"), APPEND, 0o644).unwrap();
    let files: Vec<_> = (0..9).map(open).collect();
    for round in 0..20_u8 {
        for file in &files {
            file.append(&[round; 4096]).unwrap();
            file.sync_all().unwrap();
        }
        let zones = drive.report_all().unwrap();
        assert!(zones.iter().filter(|zone| zone.cond.is_active()).count() <= 4);
    }
    let wanted: Vec<u8> = (0..20).flat_map(|round| [round; 4096]).collect();
    drop(files);
    for number in 0..9 {
        assert!(volume.read(format!("/{number}")).unwrap() == wanted, "file {number}");
    }
}

#[test]
fn traffic_counts_all_that_is_written() {
    let volume_and_store = |drive| {
        let store =
            ZoneStore::mount(drive, Arc::new(ManualClock::new(1_000)), Access::ReadWrite).unwrap();
        let store = Arc::new(store);
        let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
        (Volume::new(Arc::clone(&store) as Arc<dyn FileSystem>, &options), store)
    };
    let drive = drive("zone=256K,zones=10");
    let (volume, store) = volume_and_store(Arc::clone(&drive));
    volume.write("/table", &vec![1; 300_001]).unwrap();
    volume.sync().unwrap();
    let traffic = store.traffic();
    // 74 blocks: the last one is filled with zeroes.
    assert_eq!((traffic.user, traffic.reclaim), (74 * 4096, 0));
    assert!(traffic.meta >= 2 * 4096 && traffic.meta.is_multiple_of(4096), "{traffic:?}");
}

#[test]
fn full_drive_is_reported_and_takes_more_after_delete() {
    let volume = mount(drive("zone=256K,zones=10")).unwrap();
    let mut made = 0;
    let refused = loop {
        let file = volume.create(format!("/{made}")).unwrap();
        if let Err(error) = file.append(&vec![1; 256 << 10]) {
            break error;
        }
        made += 1;
    };
    assert!(matches!(refused.reason(), FsError::NoSpace), "{refused}");
    assert_eq!((made, volume.space().unwrap().blocks_free), (7, 0));
    volume.sync().unwrap();
    volume.remove_file("/3").unwrap();
    volume.write("/again", &vec![2; 256 << 10]).unwrap();
    assert_eq!(volume.read("/again").unwrap(), vec![2; 256 << 10]);
    assert_eq!(volume.read("/6").unwrap(), vec![1; 256 << 10]);
}

#[test]
fn file_deleted_while_open_is_readable_until_close() {
    let volume = mount(drive("zone=256K,zones=10")).unwrap();
    volume.write("/table", &vec![1; 100_000]).unwrap();
    let free = volume.space().unwrap().blocks_free;
    let file = volume.open("/table").unwrap();
    volume.remove_file("/table").unwrap();
    volume.sync().unwrap();
    for number in 0..6 {
        volume.write(format!("/{number}"), &vec![2; 256 << 10]).unwrap();
    }
    let mut content = vec![0; 100_000];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(content, vec![1; 100_000]);
    drop(file);
    assert_eq!(volume.space().unwrap().blocks_free, free + 64 - 6 * 64);
}

#[test]
fn files_grow_only_at_end() {
    let volume = mount(drive("zone=256K,zones=10")).unwrap();
    volume.write("/log", b"0123456789").unwrap();
    let file = volume.open_with("/log", APPEND | zonal_fs::volume::OpenFlags::READ, 0).unwrap();
    file.set_len(4).unwrap();
    file.append(b"abc").unwrap();
    assert_eq!(volume.read("/log").unwrap(), b"0123abc");
    for offset in [0, 8] {
        let file = volume.open_with("/log", zonal_fs::volume::OpenFlags::WRITE, 0).unwrap();
        assert_eq!(file.write_all_at(b"x", offset).unwrap_err().errno(), 95, "EOPNOTSUPP");
    }
}

/// The content of a zone.
fn content(drive: &dyn ZonedDevice, zone: u32) -> Vec<u8> {
    let found = drive.zone(ZoneId::new(zone)).unwrap();
    let bytes = drive.geometry().bytes(found.written().unwrap()).get();
    let mut content = vec![0; usize::try_from(bytes).unwrap()];
    drive.read(found.start, &mut content).unwrap();
    content
}

/// Writes a zone again, with other content.
fn rewrite(drive: &dyn ZonedDevice, zone: u32, content: &[u8]) {
    let id = ZoneId::new(zone);
    drive.manage(zonal::Select::One(id), zonal::ZoneAction::Reset).unwrap();
    if !content.is_empty() {
        drive.write(drive.geometry().zone_start(id), content).unwrap();
    }
}

/// A drive with three files, and the content of its map: a snapshot, and three records of a block
/// each, one for each file.
fn with_three_files(closed: Closed) -> (Arc<dyn ZonedDevice>, Vec<u8>) {
    let drive = drive("zone=256K,zones=10");
    let volume = mount(Arc::clone(&drive)).unwrap();
    for name in ["/a", "/b", "/c"] {
        volume.create(name).unwrap();
        volume.sync().unwrap();
    }
    if let Closed::Yes = closed {
        volume.close().unwrap();
    }
    // The map is in the first zone file, which is zone 1.
    let map = content(&*drive, 1);
    (drive, map)
}

#[derive(Clone, Copy)]
enum Closed {
    Yes,
    No,
}

/// Mounts a drive with this map, and returns the names, or the error.
fn judged(drive: &Arc<dyn ZonedDevice>, map: &[u8]) -> Result<Vec<String>, String> {
    rewrite(&**drive, 1, map);
    // The other zone of the map is from a later mount.
    rewrite(&**drive, 2, &[]);
    let volume = mount(Arc::clone(drive)).map_err(|error| error.to_string())?;
    Ok(files(&volume).into_keys().collect())
}

/// The map with a byte changed.
fn changed(map: &[u8], at: usize) -> Vec<u8> {
    let mut map = map.to_vec();
    map[at] ^= 1;
    map
}

#[test]
fn record_bad_before_others_is_refused() {
    let (drive, map) = with_three_files(Closed::No);
    assert_eq!(map.len(), 4 * 4096);
    let said = judged(&drive, &changed(&map, 2 * 4096 + 100)).unwrap_err();
    assert!(said.contains("record at byte 8192 is bad") && said.contains("mkzonefs"), "{said}");
    // Also if no later one is whole: nothing is written behind a record that is not durable.
    let both = changed(&changed(&map, 2 * 4096 + 100), 3 * 4096 + 100);
    let said = judged(&drive, &both).unwrap_err();
    assert!(said.contains("record at byte 8192 is bad, and something follows at"), "{said}");
    let heads = changed(&changed(&map, 2 * 4096), 3 * 4096);
    let said = judged(&drive, &heads).unwrap_err();
    assert!(said.contains("record at byte 8192 is bad, and its first block"), "{said}");
}

#[test]
fn record_bad_at_end_is_power_cut_unless_map_was_closed() {
    let (drive, map) = with_three_files(Closed::No);
    assert_eq!(judged(&drive, &changed(&map, 3 * 4096 + 100)).unwrap(), ["a", "b"]);
    let (drive, map) = with_three_files(Closed::Yes);
    assert_eq!(map.len(), 5 * 4096);
    let said = judged(&drive, &changed(&map, 3 * 4096 + 100)).unwrap_err();
    assert!(said.contains("record at byte 12288 is bad"), "{said}");
    // The damaged record is the empty one of the close.
    assert_eq!(judged(&drive, &changed(&map, 4 * 4096 + 20)).unwrap(), ["a", "b", "c"]);
    assert_eq!(judged(&drive, &map).unwrap(), ["a", "b", "c"]);
}

#[test]
fn zone_files_of_others_are_left_alone() {
    let drive = drive("zone=256K,zones=10");
    let zone = drive.geometry().zone_start(ZoneId::new(5));
    drive.write(zone, &[9; 4096]).unwrap();
    let refused = mount(Arc::clone(&drive)).err().unwrap();
    assert!(refused.to_string().contains("no name map"), "{refused}");
    assert_eq!(drive.zone(ZoneId::new(5)).unwrap().written().unwrap().get(), 1);
}

#[test]
fn zone_failing_during_write_costs_nothing() {
    let recorder = Arc::new(Recorder::new(formatted(&geometry("zone=1M,zones=12"))));
    let volume = mount(Arc::clone(&recorder) as Arc<dyn ZonedDevice>).unwrap();
    let file = volume.create("/table").unwrap();
    file.append(&vec![1; 300_000]).unwrap();
    file.sync_all().unwrap();
    // Zone 3 is the first one behind the zones of the map.
    recorder.fail_zone(ZoneId::new(3), ZoneFailure::ReadOnly).unwrap();
    file.append(&vec![2; 300_000]).unwrap();
    file.sync_all().unwrap();
    let content = volume.read("/table").unwrap();
    assert!(content == [vec![1; 300_000], vec![2; 300_000]].concat());
}

#[test]
fn sync_after_failed_write_is_error_while_changes_are_left() {
    let recorder = Recorder::new(formatted(&geometry("zone=1M,zones=12")));
    // The first write of data is the one after the record of the mount.
    let plan = "write,nth=2,power-cut".parse().unwrap();
    let volume = mount(Arc::new(Fault::new(recorder, plan))).unwrap();
    let log = volume.create("/log").unwrap();
    log.append(b"a record").unwrap();
    volume.create("/table").unwrap().append(&vec![1; 300_000]).unwrap();
    // The failed write has made the zonefs read-only; the data is only in memory.
    log.sync_all().unwrap_err();
    volume.sync().unwrap_err();
    drop(log);
    volume.close().unwrap_err();
}

#[test]
fn map_moves_between_zones_as_needed() {
    let drive = drive("zone=64K,zones=16,block=4096");
    let volume = mount(Arc::clone(&drive)).unwrap();
    for number in 0..200_u32 {
        let file = volume.open_with("/log", APPEND, 0o644).unwrap();
        file.append(&number.to_le_bytes()).unwrap();
        file.sync_all().unwrap();
    }
    drop(volume);
    let found = mount(drive).unwrap().read("/log").unwrap();
    let wanted: Vec<u8> = (0..200_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(found, wanted);
}

#[test]
fn store_mounted_to_read_shows_files_and_writes_nothing() {
    let mut run = Run::new(formatted(&geometry("zone=256K,zones=10")));
    for name in ["/kept", "/removed"] {
        run.volume.create(name).unwrap().append(&vec![7; 70_000]).unwrap();
    }
    run.volume.sync().unwrap();
    run.volume.remove_file("/removed").unwrap();
    run.volume.sync().unwrap();
    run.did();
    // The program was killed: it closed no file, and the last zone of a file is not full.
    let (device, clock) = (Arc::clone(&run.recorder), Arc::new(ManualClock::new(1_000)));
    let device = device as Arc<dyn ZonedDevice>;
    let before = device.report_all().unwrap();
    assert!(ZoneStore::is_on(&device, &(Arc::clone(&clock) as _)).unwrap());
    let store = ZoneStore::mount(Arc::clone(&device), clock, Access::ReadOnly).unwrap();
    let volume = Volume::new(Arc::new(store), &VolumeOptions::default());
    assert_eq!(&files(&volume), run.states.last().unwrap());
    assert_eq!(volume.access().unwrap(), Access::ReadOnly);
    let refused = [
        volume.create("/new").err().unwrap(),
        volume.create_dir("/other").unwrap_err(),
        volume.remove_file("/kept").unwrap_err(),
        volume.rename("/kept", "/moved").unwrap_err(),
        volume.hard_link("/kept", "/linked").unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error.reason(), FsError::ReadOnly), "{error}");
    }
    volume.sync().unwrap();
    volume.close().unwrap();
    assert_eq!(device.report_all().unwrap(), before);
}

#[test]
fn zonefs_without_name_map_is_no_store() {
    let clock: Arc<dyn zonal::Clock> = Arc::new(ManualClock::new(1_000));
    let empty = formatted(&geometry("zone=256K,zones=10"));
    let device: Arc<dyn ZonedDevice> = Arc::new(Recorder::new(empty));
    assert!(!ZoneStore::is_on(&device, &clock).unwrap());
    let blank = Image::empty(&geometry("zone=256K,zones=10"));
    assert!(!ZoneStore::is_on(&(Arc::new(Recorder::new(blank)) as _), &clock).unwrap());
}

#[test]
fn drive_with_too_few_zones_is_refused() {
    let refused = mount(drive("zone=256K,zones=6")).err().unwrap();
    assert!(refused.to_string().contains("5 sequential zones"), "{refused}");
    let recorder = Recorder::new(formatted(&geometry("zone=256K,zones=8")));
    recorder.fail_zone(ZoneId::new(1), ZoneFailure::ReadOnly).unwrap();
    let refused = mount(Arc::new(recorder)).err().unwrap();
    assert!(refused.to_string().contains("seq/0 has failed"), "{refused}");
}

#[test]
fn listing_continues_where_it_was() {
    let clock = Arc::new(ManualClock::new(1_000));
    let store = ZoneStore::mount(drive("zone=256K,zones=10"), clock, Access::ReadWrite).unwrap();
    let store = Arc::new(store);
    let options = VolumeOptions { upkeep: Upkeep::Caller, ..VolumeOptions::default() };
    let volume = Volume::new(Arc::clone(&store) as Arc<dyn FileSystem>, &options);
    volume.create_dir("/kv").unwrap();
    for number in 0..50 {
        volume.create(format!("/kv/{number}")).unwrap();
    }
    let (mut cookie, mut seen) = (0, 0);
    let kv = volume.metadata("/kv").unwrap().ino;
    loop {
        let mut got = None;
        let mut one = |entry: zonal_fs::vfs::DirEntry<'_>| {
            if got.is_some() {
                return zonal_fs::vfs::Listing::Enough;
            }
            got = Some(entry.cookie);
            zonal_fs::vfs::Listing::More
        };
        store.readdir(kv, cookie, &mut one).unwrap();
        let Some(next) = got else { break };
        (cookie, seen) = (next, seen + 1);
    }
    assert_eq!(seen, 52);
}
