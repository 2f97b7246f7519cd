//! The set of disks: how they are made, copied and removed, and which calls fail.

use std::sync::Arc;

use zonal::disk::{Disk, DiskError, Durability};
use zonal::{ByteCount, Lba, LbaCount, ManualClock, MemoryDrive};
use zonal_fs::disk::{DISK_XATTR, DiskSettings, DiskSpace, Disks, Error, ListedDisk};
use zonal_fs::furrow::sample;
use zonal_fs::vfs::XattrMode;
use zonal_fs::volume::{Volume, VolumeOptions};
use zonal_fs::zonefs;

use super::{assert_clean, disks, format, name};

const MIB: u64 = 1 << 20;

const THIN: DiskSettings = DiskSettings {
    block_size: zonal::BlockSize::B4096,
    space: DiskSpace::Thin,
    is_read_only: false,
};

fn drive() -> Arc<MemoryDrive> {
    let drive = Arc::new(MemoryDrive::new(sample::shape(96, 64)).unwrap());
    format(drive.clone());
    drive
}

fn free(volume: &Volume) -> u64 {
    volume.space().unwrap().blocks_free
}

/// Writes all of a disk, a megabyte at a time.
fn fill(disks: &Disks, disk: &str, byte: u8) -> Result<(), DiskError> {
    let disk = disks.open(&name(disk)).unwrap();
    let data = vec![byte; MIB as usize];
    for at in (0..disk.shape().blocks.get()).step_by(256) {
        disk.write(Lba::new(at), &data, Durability::Later)?;
    }
    disk.flush()
}

fn assert_content(disks: &Disks, disk: &str, byte: u8) {
    let disk = disks.open(&name(disk)).unwrap();
    let mut found = vec![0; disk.shape().bytes() as usize];
    disk.read(Lba::ZERO, &mut found).unwrap();
    assert!(found.iter().all(|&found| found == byte));
}

#[test]
fn disks_are_listed_with_size_and_space() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    disks.create(&name("thick"), ByteCount::new(2 * MIB), DiskSettings::default()).unwrap();
    disks.create(&name("thin"), ByteCount::new(1 << 40), THIN).unwrap();
    volume.write("disks/readme", b"no disk").unwrap();
    disks.resize(&name("thick"), ByteCount::new(3 * MIB)).unwrap();
    let list = disks.list().unwrap();
    let info = |disk: &ListedDisk| match disk {
        ListedDisk::Disk(disk) => disk.clone(),
        ListedDisk::Unreadable { name, error } => panic!("{name}: {error:?}"),
    };
    let shown: Vec<_> = list.iter().map(info).collect();
    let shown: Vec<_> = shown
        .iter()
        .map(|disk| (&*disk.name, disk.bytes, disk.allocated_bytes, disk.space))
        .collect();
    let wanted =
        [("thick", 3 * MIB, 3 * MIB, DiskSpace::Thick), ("thin", 1 << 40, 0, DiskSpace::Thin)];
    assert_eq!(shown, wanted);
    let readme = disks.info(&name("readme")).unwrap_err();
    assert_eq!(readme.to_string(), "readme is no disk: it has no settings");
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn disk_that_cannot_be_read_is_listed_with_its_error() {
    let (volume, disks) = disks(drive());
    for disk in ["good", "broken"] {
        disks.create(&name(disk), ByteCount::new(MIB), THIN).unwrap();
    }
    let broken = volume.open("disks/broken").unwrap();
    broken.set_xattr(DISK_XATTR, b"not settings", XattrMode::Any).unwrap();
    let list = disks.list().unwrap();
    let ListedDisk::Unreadable { name, error } = &list[0] else { panic!("{list:?}") };
    assert_eq!(name, "broken");
    assert!(error.message.starts_with("broken is no disk: "), "{error:?}");
    assert!(matches!(&list[1], ListedDisk::Disk(disk) if disk.name == "good"), "{list:?}");
    let shown = serde_json::to_value(&list[0]).unwrap();
    assert_eq!(
        shown,
        serde_json::json!({ "name": "broken", "error": { "message": error.message } })
    );
}

#[test]
fn thick_disk_is_written_on_full_drive_and_thin_one_is_not() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    disks.create(&name("thick"), ByteCount::new(4 * MIB), DiskSettings::default()).unwrap();
    disks.create(&name("thin"), ByteCount::new(1 << 30), THIN).unwrap();
    let refused = fill(&disks, "thin", 1).unwrap_err();
    assert!(matches!(refused, DiskError::NoSpace), "{refused}");
    fill(&disks, "thick", 2).unwrap();
    fill(&disks, "thick", 3).unwrap();
    assert_content(&disks, "thick", 3);
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn discard_frees_space_of_thin_disk_alone() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    for (disk, settings) in [("thick", DiskSettings::default()), ("thin", THIN)] {
        disks.create(&name(disk), ByteCount::new(4 * MIB), settings).unwrap();
        fill(&disks, disk, 5).unwrap();
        let before = free(&volume);
        let open = disks.open(&name(disk)).unwrap();
        open.discard(Lba::ZERO, LbaCount::new(1024)).unwrap();
        open.flush().unwrap();
        drop(open);
        // The space comes back in the background.
        volume.tick().unwrap();
        let freed = free(&volume).saturating_sub(before);
        assert!(if disk == "thin" { freed >= 1024 } else { freed < 32 }, "{disk}: {freed}");
        assert_content(&disks, disk, 0);
    }
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn snapshot_of_thick_disk_keeps_room_for_all_of_it() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    let size = 5 * MIB;
    disks.create(&name("disk"), ByteCount::new(size), DiskSettings::default()).unwrap();
    fill(&disks, "disk", 1).unwrap();
    let before = free(&volume);
    disks.snapshot(&name("disk"), &name("disk@one")).unwrap();
    assert!(before - free(&volume) >= size / 4096);
    disks.create(&name("filler"), ByteCount::new(1 << 30), THIN).unwrap();
    fill(&disks, "filler", 9).unwrap_err();
    // The drive is full, and every block of the disk is shared.
    fill(&disks, "disk", 2).unwrap();
    assert_content(&disks, "disk@one", 1);
    let refused = disks.snapshot(&name("disk"), &name("disk@two")).unwrap_err();
    let Error::NoRoom { needed, .. } = &refused else { panic!("{refused}") };
    assert_eq!(needed.get(), size);
    assert!(refused.to_string().contains("no room for disk disk@two"), "{refused}");
    let list = disks.list().unwrap();
    assert_eq!(
        list.iter().map(ListedDisk::name).collect::<Vec<_>>(),
        ["disk", "disk@one", "filler"]
    );
    fill(&disks, "disk", 3).unwrap();
    disks.remove(&name("filler")).unwrap();
    disks.remove(&name("disk@one")).unwrap();
    assert!(free(&volume) + 64 >= before, "{} of {before}", free(&volume));
    assert_content(&disks, "disk", 3);
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn clone_and_original_are_written_apart() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    disks.create(&name("disk"), ByteCount::new(2 * MIB), DiskSettings::default()).unwrap();
    fill(&disks, "disk", 1).unwrap();
    disks.snapshot(&name("disk"), &name("disk@one")).unwrap();
    disks.clone_disk(&name("disk@one"), &name("thick"), DiskSpace::Thick).unwrap();
    disks.clone_disk(&name("thick"), &name("thin"), DiskSpace::Thin).unwrap();
    fill(&disks, "thick", 2).unwrap();
    fill(&disks, "disk", 3).unwrap();
    for (disk, byte) in [("disk", 3), ("disk@one", 1), ("thick", 2), ("thin", 1)] {
        assert_content(&disks, disk, byte);
    }
    for disk in ["disk@one", "disk", "thin", "thick"] {
        disks.remove(&name(disk)).unwrap();
    }
    volume.close().unwrap();
    assert_clean(drive);
}

#[test]
fn misuse_of_disks_is_refused_with_reason() {
    let drive = drive();
    let (volume, disks) = disks(drive.clone());
    let small = ByteCount::new(MIB);
    disks.create(&name("disk"), small, DiskSettings::default()).unwrap();
    disks.snapshot(&name("disk"), &name("disk@one")).unwrap();
    let create = |disk: &str, bytes| {
        disks.create(&name(disk), ByteCount::new(bytes), DiskSettings::default()).unwrap_err()
    };
    let is_open = disks.open(&name("disk")).unwrap();
    volume.write("disks/odd", b"").unwrap();
    let odd = volume.open("disks/odd").unwrap();
    odd.set_xattr(DISK_XATTR, b"{\"block_size\":1000}", XattrMode::Any).unwrap();
    let table = [
        (create("disk", MIB), "disk exists"),
        (create("other", 0), "a disk of 0 bytes: give a multiple of 4096"),
        (create("other", 5000), "a disk of 5000 bytes: give a multiple of 4096"),
        (create("other", 1 << 40), "no room for disk other: it needs up to 1 TiB"),
        (disks.open(&name("none")).err().unwrap(), "there is no disk none"),
        (disks.open(&name("disk")).err().unwrap(), "disk disk is in use"),
        (disks.remove(&name("disk")).unwrap_err(), "disk disk is in use"),
        (disks.resize(&name("disk"), ByteCount::new(4096)).unwrap_err(), "disk disk is in use"),
        (disks.resize(&name("disk@one"), small).unwrap_err(), "disk disk@one is read-only"),
        (disks.open(&name("odd")).err().unwrap(), "odd is no disk: 1000 bytes are no size"),
    ];
    for (error, text) in table {
        assert!(error.to_string().starts_with(text), "{error}");
    }
    drop(is_open);
    let snapshot = disks.open(&name("disk@one")).unwrap();
    let block = [0; 4096];
    for refused in [
        snapshot.write(Lba::ZERO, &block, Durability::Later),
        snapshot.discard(Lba::ZERO, LbaCount::new(1)),
    ] {
        assert!(matches!(refused, Err(DiskError::ReadOnly)));
    }
    snapshot.flush().unwrap();
}

/// By its name a disk that takes writes would pass for a snapshot, which never changes.
#[test]
fn name_of_snapshot_is_refused_for_other_disks() {
    let drive = drive();
    let (_, disks) = disks(drive.clone());
    let size = ByteCount::new(MIB);
    disks.create(&name("disk"), size, DiskSettings::default()).unwrap();
    disks.create(&name("other"), size, DiskSettings::default()).unwrap();
    let refused = "is the name of a snapshot, which `zonal disk snapshot` makes";
    let table = [
        (disks.create(&name("disk@a"), size, DiskSettings::default()), refused),
        (disks.clone_disk(&name("disk"), &name("other@a"), DiskSpace::Thin), refused),
        (disks.snapshot(&name("disk"), &name("other@a")), "a snapshot of disk has the name"),
        (disks.snapshot(&name("disk"), &name("plain")), "a snapshot of disk has the name"),
    ];
    for (outcome, why) in table {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let list = disks.list().unwrap();
    let names: Vec<&str> = list.iter().map(ListedDisk::name).collect();
    assert_eq!(names, ["disk", "other"]);
    // A snapshot has no snapshots, and a clone of it is an ordinary disk.
    disks.snapshot(&name("disk"), &name("disk@a")).unwrap();
    assert!(name("disk@a").snapshot("b").is_err());
    disks.clone_disk(&name("disk@a"), &name("copy"), DiskSpace::Thin).unwrap();
}

#[test]
fn disk_on_zonefs_is_refused() {
    let drive = Arc::new(MemoryDrive::new(sample::shape(24, 64)).unwrap());
    let clock = Arc::new(ManualClock::new(0));
    zonefs::mkfs(&*drive, &zonefs::MkfsOptions::default(), &mut |_| ()).unwrap();
    let volume = Volume::mount(drive, clock, &VolumeOptions::default()).unwrap();
    assert!(matches!(Disks::new(volume), Err(Error::NotFurrow)));
}
