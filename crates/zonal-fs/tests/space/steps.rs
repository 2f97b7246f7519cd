//! Work in the background: what is left to it, who hears of it, and who does it in a pinch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::MemoryDrive;
use zonal_fs::furrow::{Furrow, StepProgress, Work};
use zonal_fs::vfs::{Caller, FileSystem, Ino, SetAttr};

use super::gate::Gate;
use super::{create, fill, format, shape};

/// Does all of some work, and returns the number of steps.
pub(crate) fn finish(fs: &Furrow, work: Work) -> u64 {
    let mut steps = 1;
    while fs.step(work).unwrap() == StepProgress::More {
        steps += 1;
    }
    steps
}

fn empty(fs: &Furrow, ino: Ino) {
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &set).unwrap();
}

#[test]
fn a_sync_that_frees_zones_leaves_their_resets_to_the_background() {
    let gate = Gate::new(shape(48, 64));
    let fs = format(gate.clone());
    let woken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&woken);
    fs.on_work(Arc::new(move || {
        count.fetch_add(1, Ordering::AcqRel);
    }));
    let file = create(&fs, "file");
    let before = fs.stats().zones_free;
    fill(&fs, file, 8 * 64);
    fs.sync().unwrap();
    assert_eq!((gate.resets(), woken.load(Ordering::Acquire)), (0, 0), "nothing to be reset");
    empty(&fs, file);
    fs.sync().unwrap();
    assert_eq!(gate.resets(), 0, "the sync has reset nothing");
    assert_eq!(woken.load(Ordering::Acquire), 1, "the worker is told");
    assert_eq!(fs.stats().zones_free, before - 8, "they are not free yet");
    // The last one is full, but no write has asked for the next yet.
    assert_eq!(finish(&fs, Work::Reset), 7, "a zone a step");
    assert_eq!(gate.resets(), 7);
    assert_eq!(fs.stats().zones_free, before - 1, "they are free again");
}

#[test]
fn a_worker_is_woken_once_until_it_comes() {
    let fs = format(Arc::new(MemoryDrive::new(shape(48, 64)).unwrap()));
    let woken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&woken);
    fs.on_work(Arc::new(move || {
        count.fetch_add(1, Ordering::AcqRel);
    }));
    let file = create(&fs, "file");
    for (round, expected) in [1, 1, 2].into_iter().enumerate() {
        fill(&fs, file, 4 * 64);
        empty(&fs, file);
        fs.sync().unwrap();
        assert_eq!(woken.load(Ordering::Acquire), expected, "round {round}");
        if round == 1 {
            fs.tick().unwrap();
        }
    }
}

#[test]
fn a_writer_short_of_room_resets_for_itself() {
    let gate = Gate::new(shape(32, 64));
    let fs = format(gate.clone());
    let file = create(&fs, "file");
    let blocks = fs.statfs().unwrap().blocks_free;
    for round in 0..4 {
        fill(&fs, file, blocks);
        let before = gate.resets();
        empty(&fs, file);
        fs.sync().unwrap();
        assert_eq!(gate.resets(), before, "round {round}: the sync has reset nothing");
    }
}
