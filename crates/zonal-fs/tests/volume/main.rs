//! Volumes: the life of a volume, handles, locks, hints, and zonefs. The model test goes by path
//! too, but cannot see these.

#![allow(clippy::unwrap_used, reason = "this is test code")]

mod paths;
mod stream;

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use zonal::{DeviceError, Lba, ManualClock, OpenMode, ZonedDevice, spec};
use zonal_fs::furrow::{self, DataCheck, MkfsOptions};
use zonal_fs::vfs::{Access, Allocate, Caller, Privilege, Seek, SetAttr, XattrMode};
use zonal_fs::volume::{
    File, LIFETIME_XATTR, Links, OpenFlags, Stats, Upkeep, Volume, VolumeOptions, WriteLifetime,
};
use zonal_fs::{FsError, zonefs};

type Device = Arc<dyn ZonedDevice>;

/// Options under which nothing happens by itself.
const QUIET: VolumeOptions = VolumeOptions {
    access: Access::ReadWrite,
    atime: furrow::AtimePolicy::Never,
    memory: furrow::MountOptions::MEMORY,
    caller: Caller::ROOT,
    upkeep: Upkeep::Caller,
};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(0))
}

fn drive() -> Device {
    spec::open("mem:zone=1M,zones=64", OpenMode::ReadWrite, clock()).unwrap()
}

fn furrow_drive() -> Device {
    let drive = drive();
    furrow::mkfs(drive.clone(), &*clock(), &MkfsOptions::default(), &mut |_| ()).unwrap();
    drive
}

fn mount(drive: &Device) -> Volume {
    Volume::mount(Arc::clone(drive), clock(), &QUIET).unwrap()
}

/// A new Furrow with a volume over it.
fn volume() -> Volume {
    mount(&furrow_drive())
}

fn errno<T>(outcome: zonal_fs::volume::Result<T>) -> i32 {
    outcome.map(drop).expect_err("it must fail").errno()
}

#[test]
fn volume_closed_reopens_clean() {
    let drive = furrow_drive();
    let volume = mount(&drive);
    volume.write("file", b"content").unwrap();
    volume.close().unwrap();
    let report = furrow::check(drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(mount(&drive).read("file").unwrap(), b"content");
}

#[test]
fn volume_closes_with_last_clone() {
    let drive = furrow_drive();
    let volume = mount(&drive);
    volume.write("file", b"content").unwrap();
    let clone = volume.clone();
    drop(volume);
    clone.write("other", b"more").unwrap();
    drop(clone);
    let volume = mount(&drive);
    assert_eq!(volume.read("file").unwrap(), b"content");
    assert_eq!(volume.read("other").unwrap(), b"more");
}

#[test]
fn close_returns_error_of_last_commit() {
    let (device, watched, _) = watched(furrow_drive());
    let volume = mount(&device);
    volume.write("file", b"content").unwrap();
    watched.is_broken.store(true, Ordering::Relaxed);
    assert_eq!(errno(volume.close()), 5);
}

#[test]
fn commit_of_old_changes_is_made_by_volume_thread() {
    let (device, _, flushes) = watched(furrow_drive());
    let clock = clock();
    let volume = Volume::mount(device, clock.clone(), &VolumeOptions::default()).unwrap();
    volume.write("file", b"content").unwrap();
    while flushes.try_recv().is_ok() {}
    clock.advance_ns(10_000_000_000);
    flushes.recv().expect("the commit flushes the device");
    volume.close().unwrap();
}

#[test]
fn handle_outliving_volume_only_reports_it() {
    let drive = furrow_drive();
    let volume = mount(&drive);
    let file = volume.create("file").unwrap();
    file.write_all_at(b"before", 0).unwrap();
    let clone = volume.clone();
    volume.close().unwrap();
    assert_eq!(errno(file.write_at(b"after", 0)), 9);
    assert_eq!(errno(clone.metadata("file")), 9);
    clone.close().expect("there is nothing left to do");
    // The drive is free while the handle is still here.
    assert_eq!(mount(&drive).read("file").unwrap(), b"before");
    drop(file);
}

#[test]
fn file_removed_lives_while_handle_does() {
    let volume = volume();
    let before = volume.space().unwrap();
    let file = volume.open_with("f", OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE, 0o600);
    let file = file.unwrap();
    file.write_all_at(&vec![7; 100_000], 0).unwrap();
    volume.remove_file("f").unwrap();
    assert_eq!(errno(volume.open("f")), 2);
    volume.write("f", b"another").unwrap();
    file.write_all_at(b"end", 100_000).unwrap();
    assert_eq!(file.read_to_end().unwrap().len(), 100_003);
    assert_eq!(file.metadata().unwrap().nlink, 0);
    // By being replaced too.
    let replaced = volume.open("f").unwrap();
    volume.write("g", b"new").unwrap();
    volume.rename("g", "f").unwrap();
    assert_eq!(replaced.read_to_end().unwrap(), b"another");
    assert_eq!(volume.read("f").unwrap(), b"new");
    drop((file, replaced));
    volume.sync().unwrap();
    assert_eq!(volume.space().unwrap().inodes, before.inodes + 1);
}

#[test]
fn handles_allow_what_they_were_opened_for() {
    let volume = volume();
    volume.write("file", b"0123456789").unwrap();
    let reader = volume.open("file").unwrap();
    for error in [
        errno(reader.write_at(b"x", 0)),
        errno(reader.append(b"x")),
        errno(reader.set_len(0)),
        errno(reader.allocate(Allocate::Extend, 0..10)),
    ] {
        assert_eq!(error, 9);
    }
    let writer = volume.open_with("file", OpenFlags::WRITE, 0).unwrap();
    assert_eq!(errno(writer.read_at(&mut [0], 0)), 9);
    let log = volume.open_with("file", OpenFlags::APPEND, 0).unwrap();
    log.write_all_at(b"ab", 0).unwrap();
    assert_eq!(volume.read("file").unwrap(), b"0123456789ab");
    assert_eq!(errno(volume.open_with("file", OpenFlags::WRITE | OpenFlags::CREATE_NEW, 0)), 17);
    let emptied = volume.open_with("file", OpenFlags::WRITE | OpenFlags::TRUNCATE, 0).unwrap();
    assert_eq!(emptied.metadata().unwrap().size, 0);
    assert_eq!(errno(volume.open("/")), 21);
    volume.symlink("file", "link").unwrap();
    assert_eq!(errno(volume.open_with("link", OpenFlags::READ | OpenFlags::NO_FOLLOW, 0)), 40);
}

#[test]
fn vectored_io_is_in_order() {
    let volume = volume();
    let file = volume.create("file").unwrap();
    let parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two"), IoSlice::new(b"3")];
    assert_eq!(file.write_vectored_at(&parts, 2).unwrap(), 7);
    assert_eq!(file.read_to_end().unwrap(), b"\0\0onetwo3");
    let (mut a, mut b, mut c) = ([0; 4], [0; 3], [9; 5]);
    let mut into = [&mut a[..], &mut b, &mut c].map(IoSliceMut::new);
    assert_eq!(file.read_vectored_at(&mut into, 1).unwrap(), 8);
    assert_eq!((&a, &b, &c), (b"\0one", b"two", b"3\x09\x09\x09\x09"));
    assert_eq!(file.read_at(&mut a, 100).unwrap(), 0);
    assert_eq!(errno(file.read_exact_at(&mut a, 7)), 22);
}

#[test]
fn ranges_are_allocated_punched_found_and_copied() {
    let volume = volume();
    let file = volume.create("file").unwrap();
    file.write_all_at(&vec![1; 40_960], 0).unwrap();
    file.allocate(Allocate::Punch, 4096..8192).unwrap();
    assert_eq!(file.seek(Seek::Hole, 0).unwrap(), 4096);
    assert_eq!(file.seek(Seek::Data, 4096).unwrap(), 8192);
    assert_eq!(errno(file.seek(Seek::Data, 40_960)), 6);
    file.allocate(Allocate::Extend, 0..50_000).unwrap();
    assert_eq!(file.metadata().unwrap().size, 50_000);
    let copy = volume.create("copy").unwrap();
    assert_eq!(file.copy_to(0..4096, &copy, 10).unwrap(), 4096);
    assert_eq!(copy.metadata().unwrap().size, 4106);
    let elsewhere = self::volume().create("file").unwrap();
    assert_eq!(errno(file.copy_to(0..4096, &elsewhere, 0)), 22);
}

#[test]
fn lock_is_refused_to_second_handle() {
    let volume = volume();
    volume.write("LOCK", b"").unwrap();
    let first = volume.open("LOCK").unwrap();
    let second = volume.open("./LOCK").unwrap();
    first.try_lock().unwrap();
    first.try_lock().expect("it has the lock");
    assert_eq!(errno(second.try_lock()), 11);
    drop(second);
    let second = volume.open("LOCK").unwrap();
    assert_eq!(errno(second.try_lock()), 11, "a handle without the lock gives nothing back");
    first.unlock();
    second.try_lock().unwrap();
    assert_eq!(errno(first.try_lock()), 11);
    drop(second);
    first.try_lock().expect("the lock went with its handle");
}

#[test]
fn lifetime_of_file_is_kept() {
    let drive = furrow_drive();
    let volume = mount(&drive);
    let file = volume.create("000012.log").unwrap();
    assert_eq!(file.write_lifetime().unwrap(), WriteLifetime::None);
    file.set_write_lifetime(WriteLifetime::None).unwrap();
    for lifetime in WriteLifetime::ALL {
        file.set_write_lifetime(lifetime).unwrap();
        assert_eq!(file.write_lifetime().unwrap(), lifetime);
    }
    drop(file);
    volume.close().unwrap();
    let volume = mount(&drive);
    let file = volume.open("000012.log").unwrap();
    assert_eq!(file.xattr(LIFETIME_XATTR).unwrap(), b"extreme");
    assert_eq!(file.write_lifetime().unwrap(), WriteLifetime::Extreme);
    file.set_write_lifetime(WriteLifetime::None).unwrap();
    assert!(file.xattrs().unwrap().is_empty());
}

#[test]
fn listing_continues_while_entries_change() {
    let volume = volume();
    volume.create_dir("dir").unwrap();
    for number in 0..1000 {
        volume.create(format!("dir/{number}")).unwrap();
    }
    let mut seen = Vec::new();
    for entry in volume.read_dir("dir").unwrap() {
        let name = entry.unwrap().name;
        volume.remove_file(format!("dir/{}", name.display())).unwrap();
        seen.push(name);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 1000);
    assert_eq!(volume.read_dir("dir").unwrap().count(), 0);
    let dir = volume.open_dir("dir").unwrap();
    dir.sync_all().unwrap();
    volume.remove_dir("dir").unwrap();
    assert_eq!(dir.entries().count(), 0, "a directory lives while it is open");
    volume.write("file", b"").unwrap();
    assert_eq!(errno(volume.read_dir("file")), 20);
}

#[test]
fn volume_read_only_refuses_every_change() {
    let drive = furrow_drive();
    let volume = mount(&drive);
    volume.write("file", b"content").unwrap();
    volume.close().unwrap();
    let options = VolumeOptions { access: Access::ReadOnly, ..QUIET };
    let volume = Volume::mount(drive, clock(), &options).unwrap();
    assert_eq!(volume.access().unwrap(), Access::ReadOnly);
    assert_eq!(volume.read("file").unwrap(), b"content");
    for error in [
        errno(volume.open_with("file", OpenFlags::WRITE, 0)),
        errno(volume.create("new")),
        errno(volume.create_dir("new")),
        errno(volume.remove_file("file")),
        errno(volume.rename("file", "new")),
    ] {
        assert_eq!(error, 30);
    }
    volume.close().unwrap();
}

#[test]
fn error_names_action_and_path() {
    let volume = volume();
    let error = volume.open("some/where").err().unwrap();
    assert_eq!(error.to_string(), "opening some/where: no such file or directory");
    assert!(matches!(error.reason(), FsError::NotFound));
    let file = volume.create("file").unwrap();
    let error = file.try_lock().and_then(|()| volume.open("file")?.try_lock()).unwrap_err();
    assert!(error.to_string().starts_with("locking file: "), "{error}");
    let refused = Volume::mount(drive(), clock(), &QUIET).err().unwrap();
    assert!(refused.to_string().contains("no Furrow on the device"), "{refused}");
}

#[test]
fn stats_count_written_bytes() {
    let volume = volume();
    let before = volume.space().unwrap();
    volume.write("file", &vec![1; 1 << 20]).unwrap();
    volume.sync().unwrap();
    let after = volume.space().unwrap();
    let block = u64::from(after.block_size);
    assert!((before.blocks_free - after.blocks_free) * block >= 1 << 20);
    let Some(Stats::Furrow(stats)) = volume.stats().unwrap() else { panic!("it is a Furrow") };
    assert!(stats.user_bytes >= 1 << 20, "{stats:?}");
}

#[test]
fn zonefs_files_are_files_of_volume() {
    let drive = drive();
    zonefs::mkfs(&*drive, &zonefs::MkfsOptions::default(), &mut |_| ()).unwrap();
    let volume = mount(&drive);
    assert_eq!(volume.read_dir("seq").unwrap().count(), 63);
    let zone = volume.open_with("seq/5", OpenFlags::READ | OpenFlags::APPEND, 0).unwrap();
    assert_eq!(zone.append(&[1; 4096]).unwrap().offset, 0);
    assert_eq!(zone.append(&[2; 8192]).unwrap().offset, 4096);
    zone.write_all_at(&[3; 4096], 12_288).unwrap();
    assert_eq!(zone.read_to_end().unwrap().len(), 16_384);
    zone.sync_data().unwrap();
    assert_eq!(errno(volume.create("seq/new")), 2);
    assert_eq!(errno(volume.remove_file("seq/5")), 1);
    assert_eq!(errno(zone.set_write_lifetime(WriteLifetime::Short)), 95);
    zone.set_len(0).unwrap();
    assert_eq!(volume.metadata("seq/5").unwrap().size, 0);
    assert!(matches!(volume.stats().unwrap(), Some(Stats::Zonefs(_))));
    drop(zone);
    volume.close().unwrap();
}

#[test]
fn owner_and_umask_are_of_acting_caller() {
    let volume = volume();
    let user = Caller { uid: 7, gid: 8, umask: 0o027, ..Caller::ROOT };
    let acting = volume.acting_as(user);
    acting.create_dir("dir").unwrap();
    acting.write("dir/file", b"").unwrap();
    let (dir, file) = (volume.metadata("dir").unwrap(), volume.metadata("dir/file").unwrap());
    assert_eq!((dir.uid, dir.gid, dir.perm), (7, 8, 0o750));
    assert_eq!((file.uid, file.gid, file.perm), (7, 8, 0o640));
}

#[test]
fn privileges_go_when_user_changes_file() {
    type Change = fn(&Volume, &File);
    let volume = volume();
    let user = Caller { uid: 7, gid: 8, umask: 0, privilege: Privilege::None };
    let capability = "security.capability";
    volume.write("source", &[5; 8192]).unwrap();
    let changes: [(&str, Change); 5] = [
        ("write", |_, file| file.write_all_at(b"x", 0).unwrap()),
        ("truncate", |_, file| file.set_len(9).unwrap()),
        ("allocate", |_, file| file.allocate(Allocate::Punch, 0..4096).unwrap()),
        ("copy", |volume, file| {
            assert_eq!(volume.open("source").unwrap().copy_to(0..8192, file, 0).unwrap(), 8192);
        }),
        ("copy of a part", |volume, file| {
            assert_eq!(volume.open("source").unwrap().copy_to(0..10, file, 0).unwrap(), 10);
        }),
    ];
    for (what, change) in changes {
        for (acting, perm) in [(&volume, 0o6777), (&volume.acting_as(user), 0o777)] {
            volume.write("file", &[1; 8192]).unwrap();
            let node = volume.node("file", Links::Follow).unwrap();
            let set = SetAttr { perm: Some(0o6777), ..SetAttr::default() };
            node.set_metadata(&set).unwrap();
            node.set_xattr(capability, b"value", XattrMode::Any).unwrap();
            change(acting, &acting.open_with("file", OpenFlags::WRITE, 0).unwrap());
            assert_eq!(node.metadata().unwrap().perm, perm, "{what}");
            assert_eq!(errno(node.xattr(capability)), 61, "{what}");
        }
    }
    let node = volume.node("file", Links::Follow).unwrap();
    node.set_xattr(capability, b"value", XattrMode::Any).unwrap();
    node.set_metadata(&SetAttr { perm: Some(0o755), ..SetAttr::default() }).unwrap();
    assert_eq!(node.xattr(capability).unwrap(), b"value", "chmod");
    node.set_metadata(&SetAttr { uid: Some(9), ..SetAttr::default() }).unwrap();
    assert_eq!(errno(node.xattr(capability)), 61, "chown");
}

#[test]
fn open_and_create_never_fail_during_replace() {
    let volume = volume();
    volume.write("CURRENT", b"0").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..300 {
                volume.write("CURRENT.tmp", number.to_string().as_bytes()).unwrap();
                volume.rename("CURRENT.tmp", "CURRENT").unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..300 {
                    volume.open("CURRENT").unwrap();
                    volume.node("CURRENT", zonal_fs::volume::Links::Follow).unwrap();
                }
            });
        }
    });
    assert_eq!(volume.read("CURRENT").unwrap(), b"299");
}

/// A device whose flushes are told and can be made to fail.
struct Watched {
    below: Device,
    flushed: Mutex<Sender<()>>,
    is_broken: AtomicBool,
}

fn watched(below: Device) -> (Device, Arc<Watched>, Receiver<()>) {
    let (sender, flushes) = channel();
    let is_broken = AtomicBool::new(false);
    let watched = Arc::new(Watched { below, flushed: Mutex::new(sender), is_broken });
    (watched.clone(), watched, flushes)
}

impl ZonedDevice for Watched {
    zonal::pass_on!(below: geometry, report, read, write, append, manage);

    fn flush(&self) -> Result<(), DeviceError> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(DeviceError::Medium { lba: Lba::ZERO });
        }
        // A test that counts no flushes has dropped the receiver.
        let _ = self.flushed.lock().unwrap().send(());
        self.below.flush()
    }
}
