//! zonefs as a library: the answers of its operations, and the effect of failures on its files.

mod errors;
mod model;

use std::sync::{Arc, Mutex};

use zonal::ZoneFailure;
use zonal::layer::fault::{Fault, FaultPlan};
use zonal::{
    ManualClock, MemoryDrive, OpenMode, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice, spec,
};
use zonal_fs::FsError;
use zonal_fs::named::Named;
use zonal_fs::vfs::{
    Access, Caller, DirEntry, FileSystem, Ino, Listing, OpenFor, ReadFlags, SetAttr, WriteFlags,
};
use zonal_fs::zonefs::{
    Aggregate, ErrorPolicy, Group, Health, MkfsOptions, MountOptions, OpenPolicy, ZoneFs, mkfs,
};

const DIRECT: WriteFlags = WriteFlags::DIRECT;
const APPEND: WriteFlags = WriteFlags::DIRECT.union(WriteFlags::APPEND);
const BLOCK: u64 = 4096;
/// Zones of 3 MiB: no power of two.
const ZONE: u64 = 3 << 20;
const BLOCK_LEN: usize = 4096;
const ZONE_LEN: usize = 3 << 20;

fn drive(shape: &str) -> Arc<dyn ZonedDevice> {
    let clock = Arc::new(ManualClock::new(0));
    spec::open(&format!("mem:{shape}"), OpenMode::ReadWrite, clock).expect("a shape that can be")
}

fn format(device: &dyn ZonedDevice, options: &MkfsOptions) {
    mkfs(device, options, &mut |_| ()).expect("formatted");
}

fn mount(device: &Arc<dyn ZonedDevice>, options: MountOptions) -> ZoneFs {
    ZoneFs::mount(Arc::clone(device), Arc::new(ManualClock::new(5)), options).expect("mounted")
}

fn fresh(shape: &str, options: MountOptions) -> (Arc<dyn ZonedDevice>, ZoneFs) {
    let device = drive(shape);
    format(&*device, &MkfsOptions::default());
    let fs = mount(&device, options);
    (device, fs)
}

fn seq(fs: &ZoneFs, number: u32) -> Ino {
    fs.file(Group::Sequential, number).expect("as many files")
}

fn truncate(fs: &ZoneFs, ino: Ino, size: u64) -> Result<u64, i32> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &set).map(|attr| attr.size).map_err(|error| error.errno())
}

fn errno<T>(result: Result<T, FsError>) -> i32 {
    result.err().expect("refused").errno()
}

fn names(fs: &ZoneFs, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry: DirEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).expect("ASCII"));
        Listing::More
    })
    .expect("listed");
    names
}

#[test]
fn tree_mirrors_zones() {
    let (_, fs) = fresh("zone=3M,zones=12,conventional=4", MountOptions::default());
    let root = fs.getattr(fs.root()).unwrap();
    assert_eq!((root.ino.get(), root.perm, root.nlink, root.size), (12, 0o555, 4, 4));
    assert_eq!(names(&fs, fs.root()), [".", "..", "cnv", "seq"]);
    let cnv = fs.lookup(fs.root(), b"cnv").unwrap();
    let sequential = fs.lookup(fs.root(), b"seq").unwrap();
    assert_eq!((cnv.ino.get(), cnv.size, cnv.nlink), (13, 3, 2));
    assert_eq!((sequential.ino.get(), sequential.size), (14, 8));
    let first = fs.lookup(cnv.ino, b"0").unwrap();
    assert_eq!(
        (first.ino.get(), first.size, first.blocks, first.perm),
        (1, ZONE, ZONE / 512, 0o640)
    );
    let last = fs.lookup(sequential.ino, b"7").unwrap();
    assert_eq!((last.ino.get(), last.size, last.blocks), (11, 0, ZONE / 512));
    assert_eq!(errno(fs.lookup(sequential.ino, b"8")), 2);
    assert_eq!(errno(fs.lookup(sequential.ino, b"07")), 2);
    assert_eq!(errno(fs.lookup(sequential.ino, b"12345678901234567")), 36);
    let stat = fs.statfs().unwrap();
    assert_eq!((stat.inodes, stat.blocks, stat.name_max), (13, 11 * ZONE / BLOCK, 16));
    assert_eq!(stat.blocks_free, 8 * ZONE / BLOCK, "conventional files count as used");
}

#[test]
fn conventional_zones_aggregate_to_one_file() {
    let device = drive("zone=3M,zones=12,conventional=4");
    let aggregate = Aggregate::Conventional;
    format(&*device, &MkfsOptions { aggregate, ..MkfsOptions::default() });
    let fs = mount(&device, MountOptions::default());
    let cnv = fs.file(Group::Conventional, 0).unwrap();
    assert_eq!(fs.getattr(cnv).unwrap().size, 3 * ZONE);
    assert_eq!(fs.file(Group::Conventional, 1), None);
    let data: Vec<u8> = (0..20_001_u32).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect();
    let offset = ZONE - 7777;
    let plain = WriteFlags::empty();
    assert_eq!(fs.write(cnv, offset, &data, plain).unwrap().len, 20_001);
    let mut back = vec![0; data.len()];
    assert_eq!(fs.read(cnv, offset, &mut back).unwrap(), data.len());
    assert_eq!(back, data);
    assert_eq!(errno(fs.write(cnv, 0, &data, APPEND)), 22);
    assert_eq!(errno(fs.write(cnv, 100, &data[..4096], DIRECT)), 22);
    assert_eq!(errno(fs.write(cnv, 3 * ZONE, &data, plain)), 27);
    assert_eq!(fs.write(cnv, 3 * ZONE - 10, &data, plain).unwrap().len, 10);
    assert_eq!(truncate(&fs, cnv, 0), Err(1));
}

/// As Linux does: a zone file takes direct writes at its end only, even if the drive would take
/// others.
#[test]
fn preferred_zones_are_sequential_files() {
    let shape = "profile=host-aware,zone=3M,zones=6,conventional=1";
    let (device, fs) = fresh(shape, MountOptions::default());
    let ino = seq(&fs, 1);
    let data = vec![7; 2 * BLOCK_LEN];
    assert_eq!(fs.write(ino, 0, &data, DIRECT).unwrap().len, data.len() as u64);
    assert_eq!(errno(fs.write(ino, 0, &data, DIRECT)), 22);
    assert_eq!(fs.write(ino, 2 * BLOCK, &data, APPEND).unwrap().len, data.len() as u64);
    let mut back = vec![0; 4 * BLOCK_LEN];
    assert_eq!(fs.read(ino, 0, &mut back).unwrap(), back.len());
    assert_eq!(back, data.repeat(2));
    let zone = device.zone(ZoneId::new(2)).unwrap();
    assert_eq!(zone.written(), Some(zonal::LbaCount::new(4)));
    assert!(!zone.non_sequential);
    assert_eq!(truncate(&fs, ino, ZONE), Ok(ZONE));
    assert_eq!(device.zone(ZoneId::new(2)).unwrap().cond, ZoneCond::Full);
    assert_eq!(truncate(&fs, ino, 0), Ok(0));
    assert_eq!(device.zone(ZoneId::new(2)).unwrap().cond, ZoneCond::Empty);
}

/// As Linux does: one file for each run, named in their order, with the number of its first zone.
/// The zone of the super block belongs to none.
#[test]
fn conventional_runs_anywhere_are_files_of_their_own() {
    for (conventional, separate, runs) in [
        ("0,3-5,8,11", &[3, 4, 5, 8, 11][..], &[(3, 3), (8, 1), (11, 1)][..]),
        ("0-2,11-11", &[1, 2, 11], &[(1, 2), (11, 1)]),
        ("5-6", &[5, 6], &[(5, 2)]),
    ] {
        let device = drive(&format!("zone=3M,zones=12,conventional={conventional}"));
        let numbers = |aggregate| {
            let overwrite = zonal_fs::mkfs::Overwrite::Force;
            format(&*device, &MkfsOptions { aggregate, overwrite, ..MkfsOptions::default() });
            let fs = mount(&device, MountOptions::default());
            let files = (0..).map_while(|nth| fs.file(Group::Conventional, nth));
            let files: Vec<_> = files.map(|file| fs.getattr(file).unwrap()).collect();
            let all = fs.statfs().unwrap().inodes;
            (files.iter().map(|stat| (stat.ino.get(), stat.size / ZONE)).collect::<Vec<_>>(), all)
        };
        let one_each: Vec<_> = separate.iter().map(|&zone| (zone, 1)).collect();
        let (files, all) = numbers(Aggregate::Separate);
        assert_eq!(files, one_each, "{conventional}");
        let (aggregated, fewer) = numbers(Aggregate::Conventional);
        assert_eq!(aggregated, runs, "{conventional}");
        assert_eq!(all - fewer, (files.len() - runs.len()) as u64, "{conventional}");
    }
    // Sequential files are named without gaps.
    let device = drive("zone=3M,zones=12,conventional=0,3-5,8,11");
    format(&*device, &MkfsOptions::default());
    let fs = mount(&device, MountOptions::default());
    let file = |nth| fs.file(Group::Sequential, nth).map(Ino::get);
    assert_eq!([0, 1, 2, 3, 4, 5].map(file), [1, 2, 6, 7, 9, 10].map(Some));
    assert_eq!(file(6), None);
    fs.write(fs.file(Group::Conventional, 3).unwrap(), ZONE - 4, b"last", WriteFlags::empty())
        .unwrap();
}

#[test]
fn sequential_file_is_written_at_its_end() {
    let (_, fs) = fresh("zone=3M,zones=6", MountOptions::default());
    let file = seq(&fs, 2);
    let block = [7; BLOCK_LEN];
    assert_eq!(errno(fs.write(file, BLOCK, &block, DIRECT)), 22);
    assert_eq!(errno(fs.write(file, 0, &block, WriteFlags::empty())), 5);
    assert_eq!(errno(fs.write(file, 0, &block[..100], DIRECT)), 22);
    assert_eq!(fs.write(file, 0, &block, DIRECT).unwrap().len, BLOCK);
    assert_eq!(errno(fs.write(file, 0, &block, DIRECT)), 22);
    let appended = fs.write(file, 0, &[8; 3 * BLOCK_LEN], APPEND).unwrap();
    assert_eq!((appended.offset, appended.len), (BLOCK, 3 * BLOCK));
    assert_eq!(fs.getattr(file).unwrap().size, 4 * BLOCK);
    // Short at the end, then too large.
    let rest = vec![9; ZONE_LEN];
    assert_eq!(fs.write(file, 4 * BLOCK, &rest, DIRECT).unwrap().len, ZONE - 4 * BLOCK);
    assert_eq!(errno(fs.write(file, ZONE, &block, DIRECT)), 27);
    assert_eq!(errno(fs.write(file, 0, &block, APPEND)), 27);
    let mut back = vec![0; 2 * BLOCK_LEN];
    assert_eq!(fs.read_with(file, ZONE - BLOCK, &mut back, ReadFlags::DIRECT).unwrap(), BLOCK_LEN);
    assert_eq!(fs.read(file, ZONE, &mut back).unwrap(), 0);
    assert_eq!(errno(fs.read_with(file, 5, &mut back, ReadFlags::DIRECT)), 22);
    assert_eq!(fs.read(file, BLOCK - 1, &mut back[..2]).unwrap(), 2);
    assert_eq!(&back[..2], &[7, 8]);
}

#[test]
fn truncate_resets_or_finishes() {
    let (device, fs) = fresh("zone=3M,zones=6", MountOptions::default());
    let file = seq(&fs, 0);
    let cond = || device.zone(ZoneId::new(1)).unwrap().cond;
    assert_eq!(truncate(&fs, file, 0), Ok(0));
    assert_eq!(truncate(&fs, file, BLOCK), Err(1));
    assert_eq!(truncate(&fs, file, ZONE + BLOCK), Err(27));
    fs.write(file, 0, &[1; BLOCK_LEN], DIRECT).unwrap();
    assert_eq!(truncate(&fs, file, BLOCK), Err(1), "even to what it is");
    assert_eq!(truncate(&fs, file, ZONE), Ok(ZONE));
    assert_eq!(cond(), ZoneCond::Full);
    let mut beyond = [1; 16];
    assert_eq!(fs.read(file, 2 * BLOCK, &mut beyond).unwrap(), 16);
    assert_eq!(beyond, [0; 16]);
    assert_eq!(truncate(&fs, file, 0), Ok(0));
    assert_eq!(cond(), ZoneCond::Empty);
}

#[test]
fn explicit_open_holds_zones_open_up_to_limit() {
    let explicit = MountOptions { open: OpenPolicy::Explicit, ..MountOptions::default() };
    let (device, fs) = fresh("zone=3M,zones=9,open=2,active=3", explicit);
    let (first, second, third) = (seq(&fs, 0), seq(&fs, 1), seq(&fs, 2));
    let cond = |zone| device.zone(ZoneId::new(zone)).unwrap().cond;
    let counts = || (fs.stats().nr_wro_seq_files, fs.stats().nr_active_seq_files);
    fs.open(first, OpenFor::Writing).unwrap();
    fs.open(first, OpenFor::Writing).unwrap();
    fs.open(second, OpenFor::Writing).unwrap();
    assert_eq!(cond(1), ZoneCond::ExplicitOpen);
    assert_eq!(counts(), (2, 2));
    assert_eq!(errno(fs.open(third, OpenFor::Writing)), 16);
    fs.open(third, OpenFor::Reading).unwrap();
    fs.close(third, OpenFor::Reading);
    assert_eq!(counts(), (2, 2));
    fs.write(first, 0, &[1; BLOCK_LEN], DIRECT).unwrap();
    assert_eq!(truncate(&fs, first, 0), Ok(0));
    assert_eq!(cond(1), ZoneCond::ExplicitOpen, "ready to be written again");
    fs.write(first, 0, &[1; BLOCK_LEN], DIRECT).unwrap();
    fs.close(first, OpenFor::Writing);
    assert_eq!(cond(1), ZoneCond::ExplicitOpen);
    fs.close(first, OpenFor::Writing);
    assert_eq!(cond(1), ZoneCond::Closed);
    fs.close(second, OpenFor::Writing);
    assert_eq!(cond(2), ZoneCond::Empty, "without data it does not stay active");
    assert_eq!(counts(), (0, 1));
    // The limit on active zones is the device's own.
    for number in 3..5 {
        fs.open(seq(&fs, number), OpenFor::Writing).unwrap();
        fs.write(seq(&fs, number), 0, &[1; BLOCK_LEN], DIRECT).unwrap();
        fs.close(seq(&fs, number), OpenFor::Writing);
    }
    assert_eq!(errno(fs.open(third, OpenFor::Writing)), 75);
    assert_eq!(fs.access(), Access::ReadWrite);
    assert_eq!(counts(), (0, 3));
    assert_eq!(truncate(&fs, first, ZONE), Ok(ZONE));
    assert_eq!(counts(), (0, 2));
}

/// A device that calls a function once, before it resets a zone.
struct BeforeReset {
    below: Arc<dyn ZonedDevice>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ZonedDevice for BeforeReset {
    zonal::pass_on!(below: geometry, report, read, write, append, flush);

    fn manage(&self, zones: Select, action: ZoneAction) -> zonal::error::Result<()> {
        if action == ZoneAction::Reset
            && let Some(then) = self.then.lock().expect("no holder panicked").take()
        {
            then();
        }
        self.below.manage(zones, action)
    }
}

#[test]
fn file_counts_as_open_until_its_zone_is_closed() {
    let explicit = MountOptions { open: OpenPolicy::Explicit, ..MountOptions::default() };
    let below = drive("zone=3M,zones=9,open=1,active=3");
    format(&*below, &MkfsOptions::default());
    let device = Arc::new(BeforeReset { below, then: Mutex::new(None) });
    let above: Arc<dyn ZonedDevice> = Arc::clone(&device) as _;
    let fs = Arc::new(mount(&above, explicit));
    let (first, second) = (seq(&fs, 0), seq(&fs, 1));
    fs.open(first, OpenFor::Writing).unwrap();
    let (sender, found) = std::sync::mpsc::channel();
    let other = Arc::clone(&fs);
    *device.then.lock().unwrap() = Some(Box::new(move || {
        let refused = errno(other.open(second, OpenFor::Writing));
        sender.send((refused, other.stats().nr_wro_seq_files)).unwrap();
    }));
    fs.close(first, OpenFor::Writing);
    assert_eq!(found.recv().unwrap(), (16, 1), "the limit of files, not an error of the device");
    assert_eq!((fs.stats().nr_wro_seq_files, fs.stats().nr_active_seq_files), (0, 0));
    fs.open(second, OpenFor::Writing).unwrap();
}

#[test]
fn mount_closes_open_zones() {
    let device = drive("zone=3M,zones=6");
    format(&*device, &MkfsOptions::default());
    device.manage(Select::One(ZoneId::new(2)), ZoneAction::Open).unwrap();
    device.append(ZoneId::new(3), &[1; 4096]).unwrap();
    let fs = mount(&device, MountOptions::default());
    assert_eq!(device.zone(ZoneId::new(2)).unwrap().cond, ZoneCond::Empty);
    assert_eq!(device.zone(ZoneId::new(3)).unwrap().cond, ZoneCond::Closed);
    assert_eq!(fs.stats().nr_active_seq_files, 1);
}

#[test]
fn appends_of_many_threads_keep_all_data() {
    const THREADS: u8 = 8;
    const ROUNDS: u64 = 40;
    let (_, fs) = fresh("zone=8M,zones=4", MountOptions::default());
    let file = seq(&fs, 0);
    let mut places: Vec<(u64, u8, u64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    let blocks = u64::from(thread % 3) + 1;
                    let data = vec![thread; usize::try_from(blocks * BLOCK).unwrap()];
                    let append = || fs.write(file, 0, &data, APPEND).unwrap();
                    (0..ROUNDS).map(|_| (append().offset, thread, blocks)).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    places.sort_unstable();
    let mut end = 0;
    for (offset, thread, blocks) in places {
        assert_eq!(offset, end, "no gap and no overlap");
        let mut back = vec![0; usize::try_from(blocks * BLOCK).unwrap()];
        assert_eq!(fs.read(file, offset, &mut back).unwrap(), back.len());
        assert!(back.iter().all(|byte| *byte == thread));
        end = offset + blocks * BLOCK;
    }
    assert_eq!(fs.getattr(file).unwrap().size, end);
}

#[test]
fn error_policy_decides_about_moved_write_pointer() {
    for (errors, size, perm, access, again) in [
        (ErrorPolicy::RemountRo, BLOCK, 0o640, Access::ReadOnly, Err(30)),
        (ErrorPolicy::ZoneRo, BLOCK, 0o440, Access::ReadWrite, Err(1)),
        (ErrorPolicy::ZoneOffline, 0, 0, Access::ReadWrite, Err(1)),
        (ErrorPolicy::Repair, 3 * BLOCK, 0o640, Access::ReadWrite, Ok(3 * BLOCK)),
    ] {
        for flags in [DIRECT, APPEND] {
            let (device, fs) =
                fresh("zone=3M,zones=6", MountOptions { errors, ..MountOptions::default() });
            let file = seq(&fs, 1);
            let block = [7; BLOCK_LEN];
            fs.write(file, 0, &block, DIRECT).unwrap();
            device.append(ZoneId::new(2), &[0; 2 * BLOCK_LEN]).unwrap();
            assert_eq!(errno(fs.write(file, BLOCK, &block, flags)), 5, "{errors:?}");
            let attr = fs.getattr(file).unwrap();
            // An append has gone where the write pointer was.
            let appended = if flags == APPEND && errors == ErrorPolicy::Repair { BLOCK } else { 0 };
            assert_eq!((attr.size, attr.perm), (size + appended, perm), "{errors:?} {flags:?}");
            assert_eq!(fs.access(), access);
            let next = fs.write(file, attr.size, &block, APPEND);
            let next = next.map(|written| written.offset - appended).map_err(|error| error.errno());
            assert_eq!(next, again, "{errors:?}");
            let after = mount(&device, MountOptions::default());
            assert_eq!(after.health(file).unwrap(), Health::Good, "a new mount starts afresh");
        }
    }
}

#[test]
fn error_policy_decides_about_failing_zone() {
    for failure in [ZoneFailure::ReadOnly, ZoneFailure::Offline] {
        for errors in [
            ErrorPolicy::RemountRo,
            ErrorPolicy::ZoneRo,
            ErrorPolicy::ZoneOffline,
            ErrorPolicy::Repair,
        ] {
            let shape = "zone=3M,zones=6".parse::<zonal::profile::Changes>().unwrap();
            let drive = Arc::new(MemoryDrive::new(shape.geometry().unwrap()).unwrap());
            format(&*drive, &MkfsOptions::default());
            let device: Arc<dyn ZonedDevice> = drive.clone();
            let fs = mount(&device, MountOptions { errors, ..MountOptions::default() });
            let file = seq(&fs, 1);
            let block = [7; BLOCK_LEN];
            fs.write(file, 0, &block, DIRECT).unwrap();
            drive.fail_zone(ZoneId::new(2), failure).unwrap();
            assert_eq!(errno(fs.write(file, BLOCK, &block, DIRECT)), 5);
            let attr = fs.getattr(file).unwrap();
            let gone = failure == ZoneFailure::Offline || errors == ErrorPolicy::ZoneOffline;
            let expected = if gone { (0, 0) } else { (BLOCK, 0o440) };
            assert_eq!((attr.size, attr.perm), expected, "{errors:?} {failure:?}");
            let read = fs.read(file, 0, &mut [0; 16]).map_err(|error| error.errno());
            assert_eq!(read, if gone { Err(1) } else { Ok(16) });
            let access = fs.access();
            assert_eq!(access == Access::ReadOnly, errors == ErrorPolicy::RemountRo);
            let denied = if access == Access::ReadOnly { 30 } else { 1 };
            assert_eq!(truncate(&fs, file, 0), Err(denied));
            let after = mount(&device, MountOptions::default()).getattr(file).unwrap();
            assert_eq!((after.size, after.perm), (0, 0), "nothing is known about it");
        }
    }
}

#[test]
fn read_error_on_good_zone_changes_nothing() {
    let device = drive("zone=3M,zones=6");
    format(&*device, &MkfsOptions::default());
    let plan: FaultPlan = "read,nth=3".parse().unwrap();
    let device: Arc<dyn ZonedDevice> = Arc::new(Fault::new(device, plan));
    let fs = mount(&device, MountOptions::default());
    let file = seq(&fs, 1);
    fs.write(file, 0, &[7; BLOCK_LEN], DIRECT).unwrap();
    let mut back = [0; 4096];
    let reads: Vec<_> =
        (0..3).map(|_| fs.read(file, 0, &mut back).map_err(|error| error.errno())).collect();
    assert_eq!(reads.iter().filter(|read| **read == Err(5)).count(), 1, "{reads:?}");
    assert_eq!(fs.access(), Access::ReadWrite);
    assert_eq!(fs.getattr(file).unwrap().size, BLOCK);
}

#[test]
fn message_names_file_by_path() {
    let (_device, fs) = fresh("zones=8,zone=3M,conventional=3", MountOptions::default());
    let path = |ino| FileSystem::path(&fs, ino);
    assert_eq!(path(fs.root()).as_deref(), Some("/"));
    // The super block has the first zone.
    assert_eq!(path(fs.file(Group::Conventional, 1).unwrap()).as_deref(), Some("/cnv/1"));
    assert_eq!(path(seq(&fs, 0)).as_deref(), Some("/seq/0"));
    assert_eq!(path(seq(&fs, 4)).as_deref(), Some("/seq/4"));
    assert_eq!(Named::new(&fs, Ino::new(12_345)).to_string(), "inode 12345");
    assert_eq!(Named::new(&fs, seq(&fs, 0)).to_string(), "/seq/0");
}
