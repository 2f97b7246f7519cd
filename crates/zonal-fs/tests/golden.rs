//! A drive of this version: it opens with its content, and a dump of it equals the reviewed one. A
//! drive of an earlier version is refused.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use zonal::OpenMode;
use zonal::crc32c;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::{
    BlockSize, GeometrySpec, LbaCount, ManualClock, MemoryDrive, Rules, Select, ZoneAction, ZoneId,
    ZoneKind, ZoneRuns, ZonedDevice,
};
use zonal_fs::furrow::{
    Access, DataCheck, DumpWhat, Eviction, Furrow, MkfsOptions, MountOptions, StepProgress, Work,
    check, dump, mkfs,
};
use zonal_fs::signature;
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, WriteFlags, XattrMode,
};

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/furrow-v8.zns")
}

fn create(fs: &Furrow, parent: Ino, name: &str, kind: FileKind) -> Ino {
    let target: &[u8] = if kind == FileKind::Symlink { b"dir/file" } else { b"" };
    let new = NewInode { kind, perm: 0o640, rdev: 0, target };
    fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).unwrap().ino
}

/// One of each kind of row, in the checkpoint and in the journal, and a superblock that was
/// written more than once.
fn fill(fs: &Furrow) {
    let dir = create(fs, Ino::ROOT, "dir", FileKind::Directory);
    let file = create(fs, dir, "file", FileKind::Regular);
    fs.write(file, 0, b"what was written in version 8", WriteFlags::empty()).unwrap();
    let value = (&b"user.origin"[..], &b"furrow 8"[..]);
    fs.setxattr(&Caller::ROOT, file, value.0, value.1, XattrMode::Any).unwrap();
    create(fs, Ino::ROOT, "link", FileKind::Symlink);
    create(fs, Ino::ROOT, "fifo", FileKind::Fifo);
    // The journal has the row that is learned from its end.
    let short = create(fs, dir, "short.tmp", FileKind::Regular);
    fs.write(short, 0, &[5; 9000], WriteFlags::empty()).unwrap();
    // Enough for an index.
    let many = create(fs, Ino::ROOT, "many", FileKind::Directory);
    for number in 0..6 {
        create(fs, many, &format!("socket {number}"), FileKind::Socket);
    }
}

fn fill_more(fs: &Furrow) {
    let dir = fs.lookup(Ino::ROOT, b"dir").unwrap().ino;
    let file = fs.lookup(dir, b"file").unwrap().ino;
    let sparse = create(fs, Ino::ROOT, "sparse", FileKind::Regular);
    fs.write(sparse, 100_000, &vec![9; 70_000], WriteFlags::empty()).unwrap();
    fs.fallocate(sparse, Allocate::Extend, 0, 8192).unwrap();
    fs.copy_range((file, 0), (sparse, 65_536), 4096, WriteFlags::empty()).unwrap();
    fs.link(file, Ino::ROOT, b"second name").unwrap();
    fs.unlink(Ino::ROOT, b"fifo").unwrap();
    fs.unlink(dir, b"short.tmp").unwrap();
    let many = fs.lookup(Ino::ROOT, b"many").unwrap().ino;
    fs.unlink(many, b"socket 3").unwrap();
}

/// A file that was truncated to one block, of which most blocks still wait to be freed.
fn cut(fs: &Furrow) {
    let file = create(fs, Ino::ROOT, "cut", FileKind::Regular);
    for block in (0..12).step_by(2) {
        fs.write(file, block * 4096, &[7; 4096], WriteFlags::DIRECT).unwrap();
    }
    let size = SetAttr { size: Some(4096), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, file, &size).unwrap();
    assert_eq!(fs.step(Work::Truncate).unwrap(), StepProgress::More);
    fs.sync().unwrap();
}

/// Blocks of a file that reclaim moves, of which none follows another.
fn move_blocks(fs: &Furrow) {
    let [stays, goes] =
        ["moved", "gone"].map(|name| create(fs, Ino::ROOT, name, FileKind::Regular));
    for number in 0..48 {
        let block = number * 11 % 48 * 3;
        fs.write(stays, block * 4096, &block_of(block), WriteFlags::DIRECT).unwrap();
        fs.write(goes, block * 4096, &[6; 4096], WriteFlags::DIRECT).unwrap();
    }
    fs.sync().unwrap();
    fs.unlink(Ino::ROOT, b"gone").unwrap();
    fs.sync().unwrap();
    while fs.reclaim_ahead().unwrap() == StepProgress::More {}
}

fn block_of(block: u64) -> [u8; 4096] {
    [block.to_le_bytes()[0]; 4096]
}

#[test]
#[ignore = "makes the fixture; for a new format version only"]
fn fixture_make() {
    let options = CreateOptions {
        geometry: GeometrySpec {
            block_size: BlockSize::B4096,
            block_count: LbaCount::new(22 * 96 - 7),
            zone_size: LbaCount::new(96),
            zone_capacity: LbaCount::new(80),
            conventional_zones: ZoneRuns::leading(1),
            sequential_kind: ZoneKind::SequentialRequired,
            max_open: Some(8),
            max_active: Some(14),
            max_append: LbaCount::new(16),
        },
        rules: Rules::Zns,
        uuid: *b"golden drive 1  ",
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(fixture(), &options).unwrap();
    let open = || -> Arc<dyn ZonedDevice> {
        Arc::new(FileDrive::open(fixture(), OpenMode::ReadWrite).unwrap())
    };
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000_000));
    let label = "golden".to_owned();
    let options = MkfsOptions { label, uuid: *b"golden furrow 8 ", ..MkfsOptions::default() };
    mkfs(open(), &*clock, &options, &mut |_| ()).unwrap();
    let fs = Furrow::mount(open(), clock.clone(), MountOptions::default()).unwrap();
    fill(&fs);
    fs.shutdown().unwrap();
    drop(fs);
    let fs = Furrow::mount(open(), clock.clone(), MountOptions::default()).unwrap();
    fill_more(&fs);
    move_blocks(&fs);
    fs.sync().unwrap();
    drop(fs);
    // Truncation takes steps there.
    let options = MountOptions { eviction: Eviction::AtEveryLock, ..MountOptions::default() };
    let fs = Furrow::mount(open(), clock, options).unwrap();
    cut(&fs);
    drop(fs);
    close_zones(&*open());
}

/// Zones are open only on the host that opened them, until it boots again: elsewhere they are
/// closed. A drive without open zones is the same on every host.
fn close_zones(drive: &dyn ZonedDevice) {
    drive.manage(Select::All, ZoneAction::Close).unwrap();
    drive.flush().unwrap();
}

fn open_zones(drive: &dyn ZonedDevice) -> Vec<ZoneId> {
    let report = drive.report_all().unwrap();
    report.iter().filter(|zone| zone.cond.is_open()).map(|zone| zone.id).collect()
}

fn open() -> Arc<dyn ZonedDevice> {
    Arc::new(FileDrive::open(fixture(), OpenMode::ReadOnly).unwrap())
}

#[test]
fn fixture_is_same_on_every_host() {
    assert_eq!(open_zones(&*open()), []);
}

/// A value with its keys in order. `serde_json` sorts them, or keeps them as they were entered if
/// any crate of a build asks for that.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let by_key: BTreeMap<String, Value> =
                map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            by_key.into_iter().collect()
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        other => other,
    }
}

#[test]
fn version_8_is_clean_and_dump_unchanged() {
    let report = check(open(), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let mut text = String::new();
    for (name, what) in DumpWhat::ALL {
        writeln!(text, "{name}:").unwrap();
        dump(open(), what, &mut |value| writeln!(text, "  {}", sorted(value)).unwrap()).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn version_8_is_read_without_write() {
    let clock = Arc::new(ManualClock::new(0));
    let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    let fs = Furrow::mount(open(), clock, options).unwrap();
    let name = fs.lookup(Ino::ROOT, b"second name").unwrap();
    let mut buffer = [0; 64];
    let len = fs.read(name.ino, 0, &mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"what was written in version 8");
    assert_eq!(fs.getxattr(name.ino, b"user.origin").unwrap(), b"furrow 8");
    assert!(fs.lookup(Ino::ROOT, b"fifo").is_err());
    let sparse = fs.lookup(Ino::ROOT, b"sparse").unwrap();
    assert_eq!(sparse.size, 170_000);
    let mut shared = [0; 29];
    fs.read(sparse.ino, 65_536, &mut shared).unwrap();
    assert_eq!(&shared, b"what was written in version 8");
    let moved = fs.lookup(Ino::ROOT, b"moved").unwrap().ino;
    for block in (0..48).map(|number| number * 3) {
        let mut found = [99; 4096];
        fs.read(moved, block * 4096, &mut found).unwrap();
        assert_eq!(found, block_of(block));
    }
}

/// A drive with superblocks of another version, in other zones than in the fixture.
fn of_another_version(version: u16, conventional: u32, zones: [(u32, u32); 4]) -> MemoryDrive {
    let fixture = open();
    let spec = GeometrySpec {
        block_count: LbaCount::new((21 + u64::from(conventional)) * 96),
        conventional_zones: ZoneRuns::leading(conventional),
        ..*fixture.geometry().spec()
    };
    let drive = MemoryDrive::new(spec).unwrap();
    for (from, to) in zones {
        let [from, to] = [from, to].map(ZoneId::new);
        let written = fixture.zone(from).unwrap().written().unwrap().get();
        for index in (0..written).map(LbaCount::new) {
            let mut bytes = vec![0; 4096];
            fixture.read(fixture.geometry().zone_start(from) + index, &mut bytes).unwrap();
            bytes[12..14].copy_from_slice(&version.to_le_bytes());
            bytes[72..76].copy_from_slice(&to.get().to_le_bytes());
            let crc = crc32c::crc32c(&bytes[12..]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            drive.write(drive.geometry().zone_start(to) + index, &bytes).unwrap();
        }
    }
    drive
}

/// Superblocks are in the same zones in all versions, with the version in bytes 12 and 13.
#[test]
fn version_other_is_named_and_refused() {
    for (version, conventional, zones) in [
        (4, 1, [(1, 1), (2, 2), (11, 11), (12, 12)]),
        (5, 1, [(1, 1), (2, 2), (11, 11), (12, 12)]),
        (6, 1, [(1, 1), (2, 2), (11, 11), (12, 12)]),
        (7, 1, [(1, 1), (2, 2), (11, 11), (12, 12)]),
    ] {
        let drive: Arc<dyn ZonedDevice> =
            Arc::new(of_another_version(version, conventional, zones));
        let clock = Arc::new(ManualClock::new(0));
        let mount = || Furrow::mount(drive.clone(), clock.clone(), MountOptions::default());
        let named = format!("Furrow of version {version}; this program knows 8");
        let why = mount().map(drop).unwrap_err().to_string();
        assert!(why.contains(&named), "{why}");
        let why = check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap_err().to_string();
        assert!(why.contains(&named), "{why}");
        let refused = mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ());
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("golden"), "{why}");
        // Made anew, nothing of it is left.
        let overwrite = zonal_fs::mkfs::Overwrite::Force;
        let options = MkfsOptions { overwrite, label: "anew".into(), ..MkfsOptions::default() };
        mkfs(drive.clone(), &*clock, &options, &mut |_| ()).unwrap();
        mount().map(drop).unwrap();
        let label = || signature::find(&*drive).unwrap().and_then(|found| found.label);
        assert_eq!(label().as_deref(), Some("anew"));
        drive.manage(Select::All, ZoneAction::Reset).unwrap();
        assert_eq!(label(), None, "version {version}, {conventional} conventional zones");
    }
}
