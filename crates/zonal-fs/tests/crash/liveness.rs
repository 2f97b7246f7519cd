//! A drive goes on after any number of power cuts, each in the recovery from the one before,
//! however full it is: it can be mounted, written, emptied and filled again.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder, Recording};
use zonal::{GeometrySpec, LbaCount, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileSystem, Ino, WriteFlags};

use crate::check::{empty, truncate_rest};
use crate::ops::drives::{self, SMALL, Shape, StepClock};
use crate::run::Start;
use crate::zones::PLAIN;
use crate::{count, random_ops, seed};

/// Cuts of one drive, each in the work after the one before.
const CUTS: u64 = 12;

/// Nanoseconds between two mounts.
const PAUSE_NS: u64 = 6_000_000_000;

/// Zones of 1 MiB, few enough of them that metadata has none to waste.
fn shape(active: u32) -> Shape {
    let spec = GeometrySpec {
        block_count: LbaCount::new(40 * 256),
        zone_size: LbaCount::new(256),
        zone_capacity: LbaCount::new(256),
        max_append: LbaCount::new(64),
        max_open: Some(active),
        max_active: Some(active),
        ..SMALL.spec
    };
    Shape { name: "40 zones of 1 MiB", spec }
}

/// The result of a call that a healthy drive must not refuse.
fn must<T>(what: &str, step: &str, outcome: zonal_fs::vfs::Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{what}: {step}: {error}"))
}

/// A drive and the time, cut again and again.
struct Victim {
    image: Image,
    now_ns: u64,
    random: ChaCha8Rng,
    what: String,
}

impl Victim {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }

    fn clock(&mut self) -> Arc<StepClock> {
        self.now_ns += PAUSE_NS;
        let clock = Arc::new(StepClock::default());
        clock.set(self.now_ns);
        clock
    }

    fn mount(&mut self, drive: Arc<dyn ZonedDevice>) -> Furrow {
        let clock = self.clock();
        let mounted = Furrow::mount(drive, clock, MountOptions::default());
        mounted.unwrap_or_else(|error| panic!("{}: mount: {error}", self.what))
    }

    /// The power goes at any moment of a recording.
    fn cut(&mut self, recording: &Recording) {
        let at = self.below(recording.steps.len() as u64 + 1);
        let mut outage = Outage::at_start(recording);
        while (outage.at() as u64) < at && outage.step() {}
        let random = &mut self.random;
        let sampled = outage.sample(&mut |limit| random.next_u64() % limit);
        self.image = sampled.unwrap_or_else(|| outage.everything());
        self.what = format!("{}, {at}/{}", self.what, recording.steps.len());
    }

    /// Mounts it, does a little now and then, and cuts that.
    fn cut_again(&mut self) {
        let recorder = Arc::new(Recorder::new(self.image.clone()));
        let fs = self.mount(recorder.clone());
        for round in 0..self.below(4) {
            let name = format!("small{}", self.below(8));
            let written = fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &PLAIN);
            let written = written.and_then(|attr| {
                let data = vec![round as u8 + 1; 4096 * (1 + self.below(8) as usize)];
                fs.write(attr.ino, 0, &data, WriteFlags::empty())
            });
            let is_refused = matches!(written, Err(FsError::NoSpace | FsError::Exists));
            assert!(written.is_ok() || is_refused, "{}: {written:?}", self.what);
            fs.sync().unwrap_or_else(|error| panic!("{}: sync: {error}", self.what));
        }
        drop(fs);
        self.cut(&recorder.recording());
    }

    /// It works, is emptied, and takes as much as it says that it has room for.
    fn live_on(mut self) {
        let what = self.what.clone();
        let drive = Arc::new(self.image.power_on());
        let fs = self.mount(drive.clone());
        must(&what, "tick", fs.tick());
        must(&what, "emptying", empty(&fs));
        must(&what, "truncating", truncate_rest(&fs));
        must(&what, "sync", fs.sync());
        must(&what, "unmount", fs.shutdown());
        drop(fs);
        let fs = self.mount(drive.clone());
        let free = must(&what, "statfs", fs.statfs()).blocks_free;
        let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"filler", &PLAIN);
        let ino = must(&what, "create", ino).ino;
        for block in (0..free - free % 16).step_by(16) {
            let data = vec![7; 16 * 4096];
            let written = fs.write(ino, block * 4096, &data, WriteFlags::empty());
            // The inode and the map take space too.
            assert!(written.is_ok() || block + 64 > free, "{what}: block {block} of {free}");
        }
        must(&what, "sync of the refill", fs.sync());
        must(&what, "unmount after the refill", fs.shutdown());
        drop(fs);
        assert_eq!(drives::problems(drive), Vec::<String>::new(), "{what}");
    }
}

fn cut_nearly_full(seed: u64, active: u32) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let shape = shape(active);
    let percent = 90 + random.next_u64() % 9;
    let start = Start::new(&shape, shape.ballast_max() * percent / 100, &[]);
    let run = start.run(&random_ops(seed, 150), None);
    let what = format!("SEED={seed}, {active} active, {percent} %, cuts");
    let mut victim = Victim { image: start.image, now_ns: run.now_ns, random, what };
    victim.cut(&run.recording);
    for _ in 0..CUTS {
        victim.cut_again();
    }
    victim.live_on();
}

#[test]
fn nearly_full_drives_survive_cut_recoveries() {
    let seed = seed();
    for seed in seed..seed + count(4) {
        cut_nearly_full(seed, 4);
        cut_nearly_full(seed, 6 + (seed % 9) as u32);
    }
}

/// Their recoveries commit while they remove deleted files. A recovery that opened the pair of the
/// manifest only afterwards had two open pairs: too many active zones, and perhaps a pair that the
/// manifest had released.
#[test]
fn recovery_that_truncates_and_commits_keeps_one_open_pair() {
    cut_nearly_full(5447, 8);
    cut_nearly_full(1_384_561_729, 7);
}

#[test]
#[ignore = "takes many minutes; run by cargo xtask test --soak"]
fn nearly_full_drives_survive_cut_recoveries_soak() {
    let seed = seed();
    for seed in seed..seed + count(250) {
        cut_nearly_full(seed, 4);
    }
}
