//! A drive for data and another one for metadata: which part of them is used for what, and which
//! drives are refused.

use std::sync::Arc;

use zonal::{ManualClock, MemoryDrive, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{
    Access, DataCheck, Drives, Furrow, MkfsOptions, MountOptions, PartKind, check, mkfs, part_of,
    plan,
};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

type Pair = [Arc<MemoryDrive>; 2];

fn pair(data_zones: u64, metadata_zones: u64) -> Pair {
    [data_zones, metadata_zones].map(|zones| Arc::new(MemoryDrive::new(shape(zones, 64)).unwrap()))
}

fn both([data, metadata]: &Pair) -> Drives {
    Drives::with_metadata(data.clone(), metadata.clone()).unwrap()
}

fn format(drives: Drives, uuid: u8) {
    let metadata = "/dev/ssd".to_owned();
    let options = MkfsOptions { uuid: [uuid; 16], metadata, ..MkfsOptions::default() };
    mkfs(drives, &ManualClock::new(0), &options, &mut |_| ()).unwrap();
}

fn mount(drives: impl Into<Drives>, access: Access) -> zonal_fs::vfs::Result<Furrow> {
    let options = MountOptions { access, ..MountOptions::default() };
    Furrow::mount(drives, Arc::new(ManualClock::new(0)), options)
}

fn create(fs: &Furrow, name: &str) -> zonal_fs::vfs::Result<Ino> {
    let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
    fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new).map(|node| node.ino)
}

fn written_zones(drive: &MemoryDrive) -> usize {
    let zones = drive.report_all().unwrap();
    zones.iter().filter(|zone| zone.written().is_some_and(|blocks| blocks.get() > 0)).count()
}

#[test]
fn metadata_drive_adds_its_share_to_files() {
    let statfs = |drives: Drives| {
        format(drives.clone(), 1);
        mount(drives, Access::ReadWrite).unwrap().statfs().unwrap().blocks
    };
    let alone = statfs(pair(200, 8)[0].clone().into());
    let [small, large] = [8, 40].map(|zones| statfs(both(&pair(200, zones))));
    assert!(alone < small && small <= large, "{alone}, {small}, {large}");
    // No block of a file goes to the drive for metadata, however large it is.
    assert_eq!(large, statfs(both(&pair(200, 120))));
    let planned = plan(both(&pair(200, 40)), 7).unwrap();
    assert_eq!(planned.files, large * 4096);
    assert_eq!((planned.drive, planned.metadata.unwrap().drive), (200 << 18, 40 << 18));
}

#[test]
fn metadata_goes_on_where_its_drive_is_full() {
    let drives = pair(96, 6);
    format(both(&drives), 1);
    let fs = mount(both(&drives), Access::ReadWrite).unwrap();
    let mut files = 0;
    while files < 12_000 && create(&fs, &format!("a file whose name is long {files}")).is_ok() {
        files += 1;
        if files % 200 == 0 {
            fs.sync().unwrap();
        }
    }
    assert_eq!(files, 12_000);
    let stats = fs.stats();
    let metadata = stats.metadata_drive.unwrap();
    assert!(metadata.zones_free == 0 && metadata.zones == 6, "{metadata:?}");
    fs.shutdown().unwrap();
    drop(fs);
    assert!(written_zones(&drives[0]) > 10, "the rest is on the drive for data");
    let report = check(both(&drives), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn data_drive_fills_up_while_metadata_drive_has_room() {
    let drives = pair(40, 40);
    format(both(&drives), 1);
    let fs = mount(both(&drives), Access::ReadWrite).unwrap();
    let (file, blocks) = (create(&fs, "file").unwrap(), fs.statfs().unwrap().blocks_free);
    for block in 0..blocks {
        fs.write(file, block * 4096, &[7; 4096], WriteFlags::empty()).unwrap();
    }
    let full = fs.write(file, blocks * 4096, &[7; 4096], WriteFlags::empty());
    assert!(matches!(full, Err(FsError::NoSpace)), "{full:?}");
    fs.sync().unwrap();
    // Overwritten and deleted, it goes on.
    for block in (0..blocks).step_by(3) {
        fs.write(file, block * 4096, &[8; 4096], WriteFlags::empty()).unwrap();
    }
    fs.unlink(Ino::ROOT, b"file").unwrap();
    fs.shutdown().unwrap();
    drop(fs);
    let report = check(both(&drives), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn wrong_or_missing_metadata_drive_is_refused() {
    let (drives, others) = (pair(24, 8), pair(24, 8));
    format(both(&drives), 1);
    format(both(&others), 2);
    let refused = |drives: Drives, why: &str| {
        let error = mount(drives, Access::ReadWrite).map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let [data, metadata] = &drives;
    refused(both(&[data.clone(), others[1].clone()]), "another file system");
    refused(data.clone().into(), "it is missing");
    let small = Drives::with_metadata(data.clone(), pair(24, 5)[1].clone()).map(drop);
    assert!(small.unwrap_err().to_string().contains("5 sequential zones; 6 are needed"));
    let empty = pair(24, 8)[1].clone();
    refused(both(&[data.clone(), empty]), "it is empty");
    assert!(Drives::without_metadata(metadata.clone()).is_err());
}

#[test]
fn drive_says_which_part_it_holds() {
    let drives = pair(24, 8);
    assert_eq!(part_of(&*drives[0]), None);
    format(both(&drives), 1);
    let [data, metadata] = drives.each_ref().map(|drive| part_of(&**drive).unwrap());
    let PartKind::Data { metadata: name, metadata_blocks } = &data.kind else { panic!("{data:?}") };
    assert_eq!((name.as_str(), metadata_blocks.get()), ("/dev/ssd", 8 * 64));
    assert_eq!(metadata.kind, PartKind::Metadata);
    assert!(data.belongs_to(&metadata) && !metadata.belongs_to(&data));
    let whole = pair(24, 8)[0].clone();
    format(whole.clone().into(), 1);
    let whole = part_of(&*whole).unwrap();
    assert_eq!(whole.kind, PartKind::Whole);
    assert!(!whole.belongs_to(&metadata));
}
