//! Power cuts while a file of many extents, or its content, is removed in steps.

use std::sync::Arc;

use zonal::image::{Image, Tail};
use zonal::layer::record::{Outage, Recorder, Recording};
use zonal_fs::furrow::{DataCheck, Furrow, MountOptions, StepProgress, Work, check};
use zonal_fs::vfs::{Allocate, Caller, FileSystem, Ino, Seek, SetAttr, WriteFlags};

use crate::ops::content;
use crate::ops::drives::{self, SMALL, StepClock};
use crate::zones::PLAIN;

/// Map entries of the file: four steps' worth on this drive, whose zones have 64 blocks or fewer.
const ENTRIES: u64 = 260;
const BLOCK: usize = 4096;
/// Every other block is there.
const SIZE: usize = 2 * ENTRIES as usize * BLOCK - BLOCK;
/// The size after a truncation.
const SHORT: usize = 3 * BLOCK - 100;

fn original() -> Vec<u8> {
    let mut all = vec![0; SIZE];
    for at in 0..ENTRIES as usize {
        let block = 2 * at * BLOCK..(2 * at + 1) * BLOCK;
        all[block].copy_from_slice(&content(at as u16, 0, BLOCK));
    }
    all
}

fn mount(device: Arc<dyn zonal::ZonedDevice>) -> Furrow {
    let clock = Arc::new(StepClock::default());
    Furrow::mount(device, clock, MountOptions::default()).expect("it mounts")
}

fn resize(fs: &Furrow, ino: Ino, size: usize) {
    let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
    fs.setattr(&Caller::ROOT, ino, &set).expect("it has another size");
}

/// Makes the file and then removes it, or most of it, a step and a sync at a time. From which
/// change of the drive on it is removed, the free blocks before it and after it.
fn record(remove: impl Fn(&Furrow, Ino)) -> (Recording, usize, [u64; 2]) {
    let recorder = Arc::new(Recorder::new(Image::empty(&SMALL.geometry())));
    drives::format(recorder.clone(), &StepClock::default());
    let fs = mount(recorder.clone());
    let free = || fs.statfs().expect("statfs").blocks_free;
    let before = free();
    let file = fs.create(&Caller::ROOT, Ino::ROOT, b"file", &PLAIN).expect("create").ino;
    for (at, block) in original().chunks(BLOCK).enumerate().step_by(2) {
        fs.write(file, (at * BLOCK) as u64, block, WriteFlags::DIRECT).expect("write");
    }
    fs.sync().expect("sync");
    let begin = recorder.len();
    remove(&fs, file);
    let mut steps = 0;
    while fs.step(Work::Truncate).expect("truncate") == StepProgress::More {
        fs.sync().expect("sync");
        while fs.step(Work::Reset).expect("reset") == StepProgress::More {}
        steps += 1;
    }
    assert!(steps >= 3, "only {steps} steps");
    fs.sync().expect("sync");
    let after = free();
    (recorder.recording(), begin, [before, after])
}

/// Tries every cut, with what may be lost at it.
fn at_every_cut(recording: &Recording, begin: usize, look: impl Fn(&Furrow, usize)) {
    let mut outage = Outage::at_start(recording);
    let mut tried = 0;
    while outage.step() {
        if outage.at() < begin {
            continue;
        }
        for cuts in outage.choices(&[Tail::Whole]).combinations().take(8) {
            let Some(image) = outage.state(&cuts) else { continue };
            let drive = Arc::new(image.power_on());
            let fs = mount(drive.clone());
            look(&fs, outage.at());
            while fs.step(Work::Truncate).expect("truncate") == StepProgress::More {}
            fs.shutdown().expect("it unmounts");
            drop(fs);
            let report = check(drive, DataCheck::Read, &mut |_| ()).expect("check");
            assert!(report.is_clean(), "after change {}: {report:?}", outage.at());
            tried += 1;
        }
    }
    assert!(tried > 20, "only {tried} cuts");
}

#[test]
fn delete_in_steps_cut_anywhere_is_all_or_nothing() {
    let (recording, begin, [before, _]) =
        record(|fs, _| fs.unlink(Ino::ROOT, b"file").expect("unlink"));
    at_every_cut(&recording, begin, |fs, at| match fs.lookup(Ino::ROOT, b"file") {
        Ok(attr) => {
            let mut found = vec![0; SIZE];
            fs.read(attr.ino, 0, &mut found).expect("read");
            assert!(found == original(), "after change {at}: not as it was");
        }
        Err(_) => {
            while fs.step(Work::Truncate).expect("truncate") == StepProgress::More {}
            let free = fs.statfs().expect("statfs").blocks_free;
            assert_eq!(free, before, "after change {at}: space is lost");
        }
    });
}

#[test]
fn truncate_in_steps_cut_anywhere_revives_nothing() {
    let (recording, begin, [_, after]) = record(|fs, file| resize(fs, file, SHORT));
    at_every_cut(&recording, begin, |fs, at| {
        let attr = fs.lookup(Ino::ROOT, b"file").expect("it stays");
        let mut expected = original();
        if attr.size as usize == SHORT {
            expected[SHORT..].fill(0);
            resize(fs, attr.ino, SIZE);
        }
        let mut found = vec![0; SIZE];
        fs.read(attr.ino, 0, &mut found).expect("read");
        assert!(found == expected, "after change {at}: other bytes");
        if attr.size as usize == SHORT {
            let free = fs.statfs().expect("statfs").blocks_free;
            assert_eq!(free, after, "after change {at}: space is lost");
        }
    });
}

#[test]
fn discard_in_steps_cut_anywhere_is_all_or_nothing() {
    for how in [Allocate::PunchLater, Allocate::ZeroLater] {
        let discard = |fs: &Furrow, ino| {
            fs.fallocate(ino, how, 0, SIZE as u64).expect("discard");
            fs.sync().expect("sync");
        };
        let (recording, begin, [before, after]) = record(discard);
        let is_freed = how == Allocate::PunchLater;
        assert_eq!(is_freed, after + 1 >= before, "{after} of {before} blocks are free");
        at_every_cut(&recording, begin, |fs, at| {
            let ino = fs.lookup(Ino::ROOT, b"file").expect("it stays").ino;
            let mut found = vec![1; SIZE];
            fs.read(ino, 0, &mut found).expect("read");
            if found == original() {
                return;
            }
            assert!(found.iter().all(|byte| *byte == 0), "{how:?}, after change {at}: a mixture");
            let data = fs.seek(ino, Seek::Data, 0);
            assert!(data.is_err(), "{how:?}, after change {at}: data at {data:?}");
            // The discard spares blocks that are written after it.
            let (block, data) = (100 * BLOCK, [7; BLOCK]);
            fs.write(ino, block as u64, &data, WriteFlags::empty()).expect("write");
            while fs.step(Work::Truncate).expect("truncate") == StepProgress::More {}
            fs.read(ino, 0, &mut found).expect("read");
            let mut expected = vec![0; SIZE];
            expected[block..block + BLOCK].copy_from_slice(&data);
            assert!(found == expected, "{how:?}, after change {at}: other bytes");
        });
    }
}
