//! Files that share blocks of which the row is lost, or refused for a while: they can be deleted.

use super::leaves::{all_written, check_lost, leaves, lose};
use super::refused::Mounted;
use super::*;
use zonal_fs::furrow::Eviction;
use zonal_fs::vfs::RenameFlags;

/// Files that have a block of another file each. None of these blocks follows another.
const COPIES: u64 = 2000;

/// A drive with these files, unmounted, and the free blocks before them.
fn many_copies() -> (Image, u64) {
    let recorder = Arc::new(Recorder::new(Image::empty(&Geometry::new(SPEC).unwrap())));
    mkfs(recorder.clone(), &ManualClock::new(1), &MkfsOptions::default(), &mut |_| ()).unwrap();
    let fs = mount(recorder.clone()).unwrap();
    let source = make(&fs, Ino::ROOT, "source", FileKind::Regular);
    for block in (0..COPIES).rev() {
        fs.write(source, block * 4096, &[block as u8 | 1; 4096], WriteFlags::DIRECT).unwrap();
    }
    fs.sync().unwrap();
    let free = fs.statfs().unwrap().blocks_free;
    for number in 0..COPIES {
        let copy = make(&fs, Ino::ROOT, &format!("copy-{number}"), FileKind::Regular);
        fs.copy_range((source, number * 4096), (copy, 0), 4096, WriteFlags::empty()).unwrap();
        if number % 200 == 0 {
            fs.sync().unwrap();
            fs.tick().unwrap();
        }
    }
    fs.shutdown().unwrap();
    drop(fs);
    (all_written(&recorder), free)
}

/// Deletes every `step`th copy and the original.
fn delete(fs: &Furrow, step: usize) {
    for number in (0..COPIES).rev().step_by(step) {
        fs.unlink(Ino::ROOT, format!("copy-{number}").as_bytes()).unwrap();
    }
    fs.unlink(Ino::ROOT, b"source").unwrap();
}

#[test]
fn files_with_lost_shared_extents_can_be_deleted() {
    let (image, free) = many_copies();
    let leaves = leaves(&image);
    let mut tried = 0;
    for leaf in leaves.iter().filter(|leaf| leaf.first.starts_with("Extent")) {
        let mut image = image.clone();
        lose(&mut image, leaf);
        for (eviction, step) in [(Eviction::ByNeed, 1), (Eviction::AtEveryLock, 100)] {
            let what = format!("{eviction:?}, without the leaf from {} on", leaf.first);
            let drive = Arc::new(image.power_on());
            let options = MountOptions { eviction, ..MountOptions::default() };
            let fs = Furrow::mount(drive.clone(), Arc::new(ManualClock::new(1)), options).unwrap();
            // One of them is in use.
            let last = fs.lookup(Ino::ROOT, format!("copy-{}", COPIES - 1).as_bytes()).unwrap();
            fs.pin(last.ino).unwrap();
            delete(&fs, step);
            fs.unpin(last.ino);
            while fs.step(Work::Truncate).unwrap() == StepProgress::More {}
            fs.sync().unwrap();
            assert_eq!(fs.stats().removals_owed, 0, "{what}");
            let (found, deleted) = (fs.statfs().unwrap(), COPIES.div_ceil(step as u64));
            assert_eq!(found.inodes, 1 + COPIES - deleted, "{what}");
            let lost = (free + COPIES).saturating_sub(found.blocks_free);
            assert!(step > 1 || lost < COPIES * 3 / 4, "{what}: {lost} blocks stay in use");
            fs.shutdown().unwrap();
            drop(fs);
            check_lost(drive, &what);
        }
        tried += 1;
    }
    assert!(tried > 1, "{tried} leaves of shared extents");
}

#[test]
fn open_file_with_lost_shared_extent_is_deleted_after_power_cut() {
    let (mut image, _) = many_copies();
    let leaves = leaves(&image);
    lose(&mut image, leaves.iter().find(|leaf| leaf.first.starts_with("Extent")).unwrap());
    let drive = Arc::new(image.power_on());
    let fs = mount(drive.clone()).unwrap();
    for number in 0..COPIES {
        let name = format!("copy-{number}");
        fs.pin(fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino).unwrap();
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    let fs = mount(drive.clone()).unwrap();
    while fs.step(Work::Truncate).unwrap() == StepProgress::More {}
    assert_eq!((fs.stats().removals_owed, fs.statfs().unwrap().inodes), (0, 2));
    fs.shutdown().unwrap();
    drop(fs);
    check_lost(drive, "after a power cut");
}

#[test]
fn unlink_with_refused_shared_extent_is_owed() {
    let (image, _) = many_copies();
    let (mut owed, mut replaced) = (0, 0);
    for from in 1..16 {
        let mounted = Mounted::new(&image);
        let fs = &mounted.fs;
        let before = fs.statfs().unwrap();
        mounted.refuse(from, None);
        let is_renamed =
            fs.rename((Ino::ROOT, b"copy-7"), (Ino::ROOT, b"copy-70"), RenameFlags::empty());
        let is_deleted = fs.unlink(Ino::ROOT, b"copy-700");
        mounted.step();
        let names = u64::from(is_renamed.is_ok()) + u64::from(is_deleted.is_ok());
        owed += fs.stats().removals_owed;
        replaced += u64::from(is_renamed.is_ok() && fs.stats().removals_owed > 0);
        mounted.recover();
        assert_eq!(fs.statfs().unwrap().inodes, before.inodes - names, "from read {from}");
        assert_eq!(fs.lookup(Ino::ROOT, b"copy-700").is_err(), is_deleted.is_ok());
        mounted.end();
    }
    assert!(owed > 0 && replaced > 0, "{owed} deletions were owed, {replaced} after a rename");
}
