//! One round: a drive, a tree, threads, and cuts.

use std::sync::{Arc, Mutex};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder, Recording};
use zonal::{Geometry, ZoneFailure, ZonedDevice};
use zonal_fs::furrow::{Furrow, PlantedBug};
use zonal_fs::vfs::{FileKind, FileSystem, Ino, WriteFlags};

use crate::check::{Checker, Report, Tally};
use crate::choice::Profile;
use crate::drive::Drive;
use crate::ending::Ending;
use crate::history::{Event, Health};
use crate::model::{Op, ROOT, Reply, State};
use crate::node::{BLOCK, mix};
use crate::ops::drives;
use crate::ops::drives::StepClock;
use crate::scheduler::{self, Habits, Work};
use crate::setting::{Setting, index};
use crate::world::{World, below, read_state};

/// How a phase ends before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Nothing,
    Remount,
    Kill,
}

/// Does the round of a seed.
pub(crate) fn run(seed: u64, planted: Option<PlantedBug>) -> Result<Tally, String> {
    let setting = Setting::of(seed, planted);
    let outcome = Round::new(setting.clone())?.run();
    outcome.map_err(|why| format!("{why}\n  {setting:?}"))
}

struct Round {
    setting: Setting,
    world: Arc<World>,
    random: ChaCha8Rng,
    /// Changes of the drive before anything was done.
    start: usize,
    /// Free blocks of the empty file system.
    empty: u64,
}

/// Does something on a thread of its own, which can be seen to end.
fn alone<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let works: Vec<Work<T>> = vec![Box::new(work)];
    scheduler::run(Habits::ALONE, works).map(|mut results| results.remove(0))
}

impl Round {
    fn new(setting: Setting) -> Result<Self, String> {
        let geometry = Geometry::new(setting.spec).map_err(|error| error.to_string())?;
        let clock = Arc::new(StepClock::default());
        let recorder = Arc::new(Recorder::new(Image::empty(&geometry)));
        drives::format(drives::of(recorder.clone()), &*clock);
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        while outage.step() {}
        let drive = Arc::new(Drive::new(outage.everything()));
        let world = World::new(drive, clock, setting.taste);
        let random = ChaCha8Rng::seed_from_u64(mix(setting.seed, 2));
        Ok(Self { world: Arc::new(world), setting, random, start: 0, empty: 0 })
    }

    fn run(mut self) -> Result<Tally, String> {
        let mut fs = self.mount("at first")?;
        self.empty = fs.statfs().map_err(|error| error.to_string())?.blocks_free;
        fs = self.prepare(fs)?;
        if matches!(self.setting.taste.profile, Profile::Pieces | Profile::Refusals) {
            fs = self.make_pieces(fs)?;
        }
        self.start = self.world.drive.recorder.len();
        for phase in 0..self.setting.phases {
            if self.setting.fault.is_some() && phase == 0 {
                *self.world.health.lock().expect("no panic") = Health::Faulty;
                self.world.drive.arm(self.setting.fault);
            }
            self.race(&fs, phase)?;
            if phase == 0 && self.world.is_faulty() {
                fs = self.heal(fs)?;
            }
            let is_full = self.setting.taste.profile == Profile::Full;
            if self.setting.fault.is_none() && (is_full || below(&mut self.random, 3) == 0) {
                fs = self.settle(fs)?;
            }
            let between = [Between::Nothing, Between::Remount, Between::Kill];
            let between = between[index(below(&mut self.random, 3))];
            if phase + 1 < self.setting.phases {
                fs = self.pause(fs, between)?;
            }
        }
        let found = Self::look(&fs)?;
        {
            let mut history = self.world.history();
            history.explain()?;
            history.is_now(&found)?;
        }
        self.check_all(fs)
    }

    fn mount(&self, when: &str) -> Result<Arc<Furrow>, String> {
        let (drive, clock) = (self.world.drive.clone(), self.world.clock.clone());
        let options = self.setting.options;
        let fs = alone(move || Furrow::mount(drives::of(drive), clock, options))?;
        let fs = fs.map_err(|error| format!("mounting {when}: {error}"))?;
        if self.setting.has_worker {
            fs.on_work(Arc::new(|| ()));
        }
        self.world.history().atomic = fs.atomic_write();
        Ok(Arc::new(fs))
    }

    fn look(fs: &Arc<Furrow>) -> Result<State, String> {
        let fs = Arc::clone(fs);
        alone(move || read_state(&*fs))?.map_err(|error| format!("it cannot be read: {error}"))
    }

    /// Makes directories, files, and a file that fills the drive.
    fn prepare(&self, fs: Arc<Furrow>) -> Result<Arc<Furrow>, String> {
        let world = Arc::clone(&self.world);
        let Setting { ballast, seed, .. } = self.setting;
        alone(move || {
            let perform = |op| world.perform(&fs, op);
            for name in 0..2 {
                perform(Op::Create { dir: ROOT, name, kind: FileKind::Directory });
            }
            for name in 2..6 {
                let made = perform(Op::Create { dir: ROOT, name, kind: FileKind::Regular });
                let Reply::Ino(ino) = made else { continue };
                let (tag, flags) = (mix(seed, u64::from(name)), WriteFlags::empty());
                perform(Op::Write { ino, offset: 0, len: 20_000, tag, flags });
            }
            if ballast > 0
                && let Ok(room) = fs.statfs()
                && let Reply::Ino(ino) =
                    perform(Op::Create { dir: ROOT, name: 13, kind: FileKind::Regular })
            {
                let blocks = room.blocks_free * ballast / 100;
                world.note_ballast(ino, blocks);
                for at in (0..blocks).step_by(16) {
                    let len = (blocks - at).min(16) * BLOCK;
                    let flags = WriteFlags::DIRECT;
                    perform(Op::Write { ino, offset: at * BLOCK, len, tag: at + 1, flags });
                }
                // So that there is garbage everywhere.
                for at in (0..blocks).step_by(7) {
                    let flags = WriteFlags::empty();
                    let tag = at + 1000;
                    perform(Op::Write { ino, offset: at * BLOCK, len: BLOCK, tag, flags });
                }
            }
            perform(Op::Sync);
            drop(world);
            fs
        })
    }

    /// Cuts the file that fills the drive into single blocks, and has its map written to the table.
    /// After the mount nothing of that is in memory.
    fn make_pieces(&self, fs: Arc<Furrow>) -> Result<Arc<Furrow>, String> {
        let world = Arc::clone(&self.world);
        let refuses = self.setting.taste.profile == Profile::Refusals;
        let fs = alone(move || {
            let Some(ino) = world.ballast() else { return fs };
            let blocks = world.ballast_blocks();
            for at in (0..blocks).step_by(2).take(300) {
                let (offset, flags) = (at * BLOCK, WriteFlags::empty());
                world.perform(&fs, Op::Write { ino, offset, len: BLOCK, tag: at + 2000, flags });
                if at % 4 == 0 {
                    // Many commits fill the journal, whose rows then become a run.
                    world.perform(&fs, Op::Sync);
                }
            }
            for ino in world.files().into_iter().take(2) {
                for at in (0..24).step_by(2) {
                    let (offset, flags) = (at * BLOCK, WriteFlags::DIRECT);
                    world.perform(&fs, Op::Write { ino, offset, len: BLOCK, tag: at + 1, flags });
                }
            }
            world.perform(&fs, Op::Sync);
            world.pass_time(6_000_000_000);
            world.perform(&fs, Op::Tick);
            drop(world);
            fs
        })?;
        if !refuses {
            return Ok(fs);
        }
        let (fs, world) = (self.pause(fs, Between::Remount)?, Arc::clone(&self.world));
        alone(move || {
            // In use and without a name: the last user deletes them.
            for name in 2..4 {
                if let Reply::Ino(ino) = world.perform(&fs, Op::Lookup { dir: ROOT, name }) {
                    world.perform(&fs, Op::Pin { ino });
                    world.perform(&fs, Op::Unlink { dir: ROOT, name });
                }
            }
            drop(world);
            fs
        })
    }

    /// Threads do operations side by side.
    fn race(&self, fs: &Arc<Furrow>, phase: u64) -> Result<(), String> {
        let Setting { seed, threads, operations, switch_one_in, slow, stays, .. } = self.setting;
        *self.world.races.lock().expect("no panic") = threads > 1 || self.setting.has_worker;
        let running = Arc::new(Mutex::new(threads));
        let mut works: Vec<Work<()>> = Vec::new();
        for thread in 0..threads {
            let (world, fs, running) =
                (Arc::clone(&self.world), Arc::clone(fs), Arc::clone(&running));
            let seed = mix(seed, 100 + phase * 16 + thread as u64);
            works.push(Box::new(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                for _ in 0..operations {
                    let op = world.choose(&mut random);
                    world.pass_time(if matches!(op, Op::Tick) { 3_000_000_000 } else { 1_000 });
                    world.perform(&fs, op);
                }
                *running.lock().expect("no panic") -= 1;
            }));
        }
        if self.setting.has_worker {
            let (world, fs) = (Arc::clone(&self.world), Arc::clone(fs));
            works.push(Box::new(move || {
                let mut ticks = 0;
                while ticks < 2 * operations && *running.lock().expect("no panic") > 0 {
                    ticks += 1;
                    world.pass_time(200_000_000);
                    world.perform(&fs, Op::Tick);
                }
            }));
        }
        let seed = mix(seed, 50 + phase);
        let habits = Habits { seed, switch_one_in, slow, stays, ..Habits::ALONE };
        scheduler::run(habits, works).map(drop)
    }

    /// Faults end. Operations that failed because of them may have to be done again.
    fn heal(&self, fs: Arc<Furrow>) -> Result<Arc<Furrow>, String> {
        self.world.drive.arm(None);
        let world = Arc::clone(&self.world);
        let Setting { seed, fault, .. } = self.setting;
        let is_of_reads = fault.is_some_and(|plan| plan.fault.is_of_reads());
        alone(move || {
            for _ in 0..3 {
                if world.perform(&fs, Op::Sync) == Reply::Done {
                    break;
                }
            }
            *world.health.lock().expect("no panic") = Health::Sound;
            world.perform(&fs, Op::Sync);
            if is_of_reads {
                // At once: all pauses after the faults still go on.
                replace_some(&world, &fs, mix(seed, 4));
            }
            drop(world);
            fs
        })
    }

    /// Checks rules that hold while no operation runs and no call of the drive fails.
    fn settle(&mut self, fs: Arc<Furrow>) -> Result<Arc<Furrow>, String> {
        let world = Arc::clone(&self.world);
        let seed = mix(self.setting.seed, self.world.drive.recorder.len() as u64);
        alone(move || {
            // Buffered blocks count as much as placed ones, or more.
            let sizes = || -> Vec<(u64, u64)> {
                let sizes = world.files().into_iter().map(|ino| (ino, fs.getattr(Ino::new(ino))));
                sizes.filter_map(|(ino, attr)| Some((ino, attr.ok()?.blocks))).collect()
            };
            let before = sizes();
            world.perform(&fs, Op::Sync);
            for ((ino, before), (_, after)) in before.into_iter().zip(sizes()) {
                assert!(
                    after <= before,
                    "inode {ino} has {before} blocks, and {after} after a sync"
                );
            }
            assert_eq!(fs.stats().blocks_moved_wrong, 0, "reclaim reads what was written");
            replace_some(&world, &fs, seed);
            drop(world);
            fs
        })
    }

    fn pause(&self, fs: Arc<Furrow>, between: Between) -> Result<Arc<Furrow>, String> {
        match between {
            Between::Nothing => Ok(fs),
            Between::Remount => {
                let world = Arc::clone(&self.world);
                alone(move || {
                    world.unpin_all(&fs);
                    let outcome = fs.shutdown();
                    let at = world.drive.recorder.len();
                    world.history().events.push((at, Event::Remount));
                    outcome
                })?
                .map_err(|error| format!("unmounting: {error}"))?;
                self.mount("after an unmount")
            }
            Between::Kill => {
                let at = self.world.drive.recorder.len();
                drop(fs);
                self.world.forget_pins();
                let fs = self.mount("after a kill")?;
                let found = Self::look(&fs)?;
                self.world.history().events.push((at, Event::Kill(found)));
                Ok(fs)
            }
        }
    }

    /// Moments of cuts: some by chance, some just when something was promised.
    fn choose_cuts(&mut self, recording: &Recording) -> Vec<usize> {
        let (start, random) = (self.start, &mut self.random);
        let span = (recording.steps.len() - start) as u64 + 1;
        let mut promised = self.world.history().promised_at();
        promised.retain(|at| *at >= start);
        let cut = |_| match below(random, 2) {
            0 if !promised.is_empty() => promised[index(below(random, promised.len() as u64))],
            _ => start + index(below(random, span)),
        };
        let mut cuts: Vec<usize> = (0..self.setting.cuts).map(cut).collect();
        cuts.sort_unstable();
        cuts
    }

    /// Cuts, and the end without one.
    fn check_all(mut self, fs: Arc<Furrow>) -> Result<Tally, String> {
        let recording = self.world.drive.recorder.recording();
        let cuts = self.choose_cuts(&recording);
        let Self { setting, world, random, empty, .. } = self;
        let failed = world.drive.failed();
        let steps = recording.steps.len();
        let (options, clock) = (setting.options, world.clock.clone());
        let tally = {
            let history = world.history();
            let (vague, operations) = (history.is_vague.into(), history.records.len() as u64);
            Tally { rounds: 1, vague, operations, ..Tally::default() }
        };
        let mut checker = Checker { random, clock, options, tally };
        for cut in cuts {
            let mut outage = Outage::at_start(&recording);
            while outage.at() < cut && outage.step() {}
            let mut random = checker.random.clone();
            let mut choose = |limit| below(&mut random, limit);
            let image = match choose(6) {
                0 => Some(outage.everything()),
                _ => outage.sample(&mut choose),
            };
            checker.random = random;
            let Some(mut image) = image else { continue };
            for (zone, _) in failed.iter().filter(|(_, at)| *at <= cut) {
                image.fail_zone(*zone, ZoneFailure::ReadOnly);
            }
            let (world, from) = (Arc::clone(&world), checker);
            checker = alone(move || {
                let mut checker = from;
                let legal = |state: &State| world.history().check(cut, state);
                checker.check_cut(&image, &legal, 2).map(|()| checker)
            })?
            .map_err(|why| format!("power cut after change {cut} of {steps}: {why}"))?;
        }
        let drive: Arc<dyn ZonedDevice> = world.drive.clone();
        let mut outage = Outage::at_start(&recording);
        while outage.step() {}
        let is_healed = setting.fault.is_some() && failed.is_empty();
        let end =
            (failed.is_empty() && setting.seed.is_multiple_of(3)).then(|| outage.everything());
        alone(move || {
            end.map_or(Ok(()), |image| checker.lose_zone(&image))?;
            world.unpin_all(&fs);
            let Some(fs) = Arc::into_inner(fs) else { return Err("it is still used".into()) };
            checker.tally.used += 1;
            if is_healed || setting.taste.profile == Profile::Pieces {
                let ending = Ending { fs: &fs, world: &world, empty };
                ending.check(setting.spec)?;
            }
            checker.end(fs, drive, Report::Clean).map(|()| checker.tally)
        })?
        .map_err(|why| format!("without a cut: {why}"))
    }
}

/// Blocks of the file that fills the drive are replaced, which takes no room (F4).
fn replace_some(world: &World, fs: &Furrow, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let Some(ino) = world.ballast() else { return };
    let Ok(attr) = fs.getattr(Ino::new(ino)) else { return };
    let mut data = vec![0; index(BLOCK)];
    for _ in 0..24 {
        let offset = below(&mut random, attr.size / BLOCK) * BLOCK;
        let is_there = fs.read(Ino::new(ino), offset, &mut data).is_ok();
        if !is_there || data.iter().all(|byte| *byte == 0) {
            continue;
        }
        let tag = mix(seed, offset);
        let write = Op::Write { ino, offset, len: BLOCK, tag, flags: WriteFlags::DIRECT };
        let reply = world.perform(fs, write);
        assert_ne!(reply, Reply::Full, "a block is replaced");
    }
}
