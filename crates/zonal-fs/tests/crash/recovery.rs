//! Recoveries that a power cut interrupts: no later one counts a batch that the first has refused.
//!
//! A drive with few active zones has zones finished early in a recovery, because the superblock and
//! a new pair of the journal need active zones. A finished zone reads as zeroes behind its data,
//! and these may be all that a torn record or block lacks. The recovery also resets zones without
//! live blocks. As far as it has read, nothing lives there, but the batch that it refused may have
//! data there.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::image::{Image, Tail};
use zonal::layer::record::{Cut, Outage, Recorder, Step};
use zonal::{BlockSize, GeometrySpec, LbaCount, ZoneId, ZonedDevice};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileSystem, Ino, WriteFlags};

use crate::ops::content;
use crate::ops::drives::{self, SMALL, Shape, StepClock};
use crate::run::Start;
use crate::seed;
use crate::zones::PLAIN;

/// Blocks of 512 bytes, so that blocks and records can be torn before their zeroes.
fn shape(active: u32) -> Shape {
    let spec = GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(40 * 512),
        zone_size: LbaCount::new(512),
        zone_capacity: LbaCount::new(512),
        max_append: LbaCount::new(256),
        max_open: Some(active),
        max_active: Some(active),
        ..SMALL.spec
    };
    Shape { name: "few active zones, blocks of 512 bytes", spec }
}

fn mount(drive: Arc<dyn ZonedDevice>) -> Furrow {
    let clock = Arc::new(StepClock::default());
    Furrow::mount(drive, clock, MountOptions::default()).expect("mount")
}

/// A drive whose newest batch has a new file, of `blocks` blocks and a piece.
struct Work {
    recorder: Arc<Recorder>,
    old: Vec<u8>,
    new: Vec<u8>,
    /// Steps before that batch.
    before: usize,
}

impl Work {
    fn new(active: u32, blocks: usize) -> Self {
        let recorder = Arc::new(Recorder::new(Start::new(&shape(active), 40, &[]).image));
        let fs = mount(recorder.clone());
        let old = content(1, 0, 3 * 4096);
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"old", &PLAIN).expect("create").ino;
        fs.write(file, 0, &old, WriteFlags::DIRECT).expect("write");
        fs.sync().expect("sync");
        let before = recorder.len();
        let new = content(2, 0, blocks * 4096 + 100);
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"new", &PLAIN).expect("create").ino;
        fs.write(file, 0, &new, WriteFlags::DIRECT).expect("write");
        fs.sync().expect("sync");
        Self { recorder, old, new, before }
    }

    /// Either all of the newest batch is there, or nothing of it; returns whether it is.
    fn check(&self, drive: Arc<dyn ZonedDevice>, what: &str) -> bool {
        let fs = mount(drive.clone());
        let read = |name: &[u8]| {
            let attr = fs.lookup(Ino::ROOT, name).ok()?;
            let mut data = vec![0; usize::try_from(attr.size).expect("a small file")];
            let read = fs.read(attr.ino, 0, &mut data);
            assert!(read.is_ok(), "{what}: {}: {read:?}", String::from_utf8_lossy(name));
            Some(data)
        };
        assert_eq!(read(b"old").as_ref(), Some(&self.old), "{what}");
        let new = read(b"new");
        assert!(new.as_ref().is_none_or(|new| *new == self.new), "{what}: wrong content");
        assert_eq!(fs.losses(), [], "{what}");
        drop(fs);
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "{what}");
        new.is_some()
    }

    /// The newest batch is there, and its last block of data, which ends in zeroes, in part.
    fn torn(&self) -> Vec<Image> {
        let recording = self.recorder.recording();
        let is_record =
            |step: &Step| matches!(step, Step::Store { data, .. } if data.starts_with(b"FRJB"));
        let stores = recording.steps[self.before..].iter();
        let mut data = stores.filter(|step| !is_record(step)).filter_map(|step| match step {
            Step::Store { zone, .. } => Some(*zone),
            Step::Deallocate { .. } | Step::Manage { .. } | Step::Flush => None,
        });
        let data = data.next_back().expect("there is data");
        let end = recording.steps.iter().rposition(is_record).expect("a batch") + 1;
        let mut outage = Outage::at_start(&recording);
        while outage.at() < end && outage.step() {}
        let all: Vec<_> = outage.choices(&[Tail::Whole]).combinations().collect();
        let whole = all.last().expect("nothing is lost").clone();
        let is_torn = |cuts: &&BTreeMap<ZoneId, Cut>| {
            cuts.iter().all(|(zone, cut)| (*zone == data) != (*cut == whole[zone]))
        };
        let torn: Vec<_> = all.iter().filter(is_torn).collect();
        torn.iter().rev().take(7).filter_map(|cuts| outage.state(cuts)).collect()
    }

    /// Cuts the power at each step of a recovery of this image, and of some recoveries after that:
    /// all come to the same decision.
    fn recover(&self, image: &Image, random: &mut ChaCha8Rng, (depth, what): (u32, &str)) -> u64 {
        let recorder = Arc::new(Recorder::new(image.clone()));
        let is_there = self.check(recorder.clone(), what);
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        let mut count = 0;
        while outage.step() {
            let sampled = outage.sample(&mut |limit| random.next_u64() % limit);
            for image in std::iter::once(outage.everything()).chain(sampled) {
                count += 1;
                let what = format!("{what}, then after {} steps", outage.at());
                if depth > 0 && random.next_u64().is_multiple_of(8) {
                    count += self.recover(&image, random, (depth - 1, &what));
                }
                let found = self.check(Arc::new(image.power_on()), &what);
                assert_eq!(found, is_there, "{what}: another recovery decides otherwise");
            }
        }
        let image = outage.everything();
        assert_eq!(self.check(Arc::new(image.power_on()), what), is_there, "{what}: at its end");
        count
    }
}

#[test]
fn recovery_cut_off_keeps_refused_batch_refused() {
    let seed = seed();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut states = 0;
    for active in [4, 6, 8] {
        // Data that its batch brings along, in one zone and in two; and data that was flushed
        // before.
        for blocks in [0, 40, 270] {
            let work = Work::new(active, blocks);
            let recording = work.recorder.recording();
            let what = |at: &str| format!("SEED={seed}, {active} active, {blocks} blocks, {at}");
            if blocks == 0 {
                let torn = work.torn();
                assert!(torn.len() > 4, "{}", torn.len());
                for image in &torn {
                    states += work.recover(image, &mut random, (1, &what("torn")));
                }
            }
            let mut outage = Outage::at_start(&recording);
            let mut images = Vec::new();
            while outage.step() {
                if outage.at() <= work.before {
                    continue;
                }
                let count = outage.choices(&[Tail::Whole]).count();
                if count > 3000 {
                    continue;
                }
                images.extend(outage.states().map(|image| (outage.at(), image)));
            }
            // All would take hours.
            for _ in 0..6 {
                let at = usize::try_from(random.next_u64()).expect("64 bits") % images.len();
                let (at, image) = &images[at];
                states += work.recover(image, &mut random, (1, &what(&format!("cut at {at}"))));
            }
        }
    }
    println!("{states} states");
    assert!(states > 1000, "{states} states");
}
