//! A write that the drive refuses because too many zones are active, while another thread is about
//! to fill or finish one.
//!
//! The other thread stops once at each place to which it comes, so that no window between two of
//! its steps is left out. The write must then wait for it, and succeed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zonal::image::Image;
use zonal::{GeometrySpec, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, SetAttr, WriteFlags};

use crate::drive::Drive;
use crate::node::BLOCK;
use crate::ops::drives::{self, SMALL, Shape, StepClock};
use crate::scheduler::{self, Habits, Work};
use crate::setting::index;

/// A mount of a drive with four active zones: two for the journal, one for superblocks, one for
/// data.
struct Mount {
    drive: Arc<Drive>,
    fs: Furrow,
    inos: [Ino; 3],
}

impl Mount {
    /// The first file has this many blocks, in the only open data zone. The journal is active.
    fn new(blocks: u64) -> Self {
        let spec = GeometrySpec { max_open: Some(4), max_active: Some(4), ..SMALL.spec };
        let geometry = Shape { name: "four", spec }.geometry();
        let (drive, clock) = (Arc::new(Drive::new(Image::empty(&geometry))), StepClock::default());
        drives::format(drive.clone(), &clock);
        let options = MountOptions::default();
        let fs = Furrow::mount(drive.clone(), Arc::new(clock), options).expect("a new file system");
        let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
        let inos = [&b"one"[..], b"two", b"three"].map(|name| {
            fs.create(&Caller::ROOT, Ino::ROOT, name, &new).expect("there is space").ino
        });
        let mount = Self { drive, fs, inos };
        mount.write(0, 0, blocks);
        mount.fs.sync().expect("no fault");
        mount
    }

    /// Writes blocks of a file past the buffer.
    fn write(&self, file: usize, first: u64, blocks: u64) {
        let data = vec![1; index(blocks * BLOCK)];
        let written = self.fs.write(self.inos[file], first * BLOCK, &data, WriteFlags::DIRECT);
        assert_eq!(written.expect("the zone that is full soon will do").len, data.len() as u64);
    }

    /// Opens the zone of the next superblock, as if that were being written.
    fn begin_superblock(&self) {
        let zones = [0, 1].map(ZoneId::new).into_iter();
        let is_empty = |zone: &ZoneId| {
            self.drive.zone(*zone).expect("it has this zone").cond == ZoneCond::Empty
        };
        let zone = zones.into_iter().find(is_empty).expect("one of two is empty");
        self.drive.manage(Select::One(zone), ZoneAction::Open).expect("it is the third one");
    }
}

/// Has the first thread stop at each of its places in turn, until the second one has done its work
/// or waits.
fn at_each_place(mount: impl Fn() -> Mount, works: [fn(&Mount); 2]) {
    for place in 1.. {
        let (mount, is_over) = (Arc::new(mount()), Arc::new(AtomicBool::new(false)));
        let [first, second] = works;
        let (its, ended) = (Arc::clone(&mount), Arc::clone(&is_over));
        let first = move || {
            first(&its);
            ended.store(true, Ordering::Relaxed);
            false
        };
        let second = move || {
            let is_late = is_over.load(Ordering::Relaxed);
            second(&mount);
            is_late
        };
        let works: Vec<Work<bool>> = vec![Box::new(first), Box::new(second)];
        let habits = Habits { first_stays_at: Some(place), ..Habits::ALONE };
        match scheduler::run(habits, works) {
            Err(why) => panic!("place {place}: {why}"),
            Ok(are_late) if are_late[1] => return assert!(place > 10, "it has few places"),
            Ok(_) => {}
        }
    }
}

#[test]
fn write_waits_for_writer_of_last_blocks() {
    let mount = || {
        let mount = Mount::new(60);
        mount.begin_superblock();
        mount
    };
    at_each_place(mount, [|mount| mount.write(0, 60, 4), |mount| mount.write(1, 0, 1)]);
}

/// The second file would be cut, so the zone of the first one is sealed with 14 blocks of room.
#[test]
fn write_waits_for_writer_that_finishes_zone() {
    let mount = || {
        let mount = Mount::new(50);
        mount.begin_superblock();
        mount
    };
    at_each_place(mount, [|mount| mount.write(1, 0, 40), |mount| mount.write(2, 0, 1)]);
}

/// The journal ends within 64 commits. The manifest has two active zones then, and the superblock
/// needs one more.
#[test]
fn commit_waits_for_writer_of_last_blocks() {
    let commits = |mount: &Mount| {
        mount.write(1, 0, 1);
        for perm in 0..64 {
            let set = SetAttr { perm: Some(0o400 + perm), ..SetAttr::default() };
            mount.fs.setattr(&Caller::ROOT, mount.inos[1], &set).expect("no fault");
            mount.fs.sync().expect("the superblock waits");
        }
    };
    at_each_place(|| Mount::new(60), [|mount| mount.write(0, 60, 4), commits]);
}
