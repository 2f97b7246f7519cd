//! Rules after a cut: the tree is legal, the drive is clean, and work goes on.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use zonal::image::Image;
use zonal::layer::record::{Outage, Recorder};
use zonal::{ZoneFailure, ZoneId, ZonedDevice};
use zonal_fs::furrow::sync::pass;
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

use crate::model::{ROOT, State};
use crate::ops::drives::{self, StepClock, problems};
use crate::world::{below, delete_all, read_state, read_state_with};

/// Counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: u64,
    /// Of them, with too many orders of operations to compare the contents.
    pub(crate) vague: u64,
    pub(crate) operations: u64,
    /// States after a cut that were mounted.
    pub(crate) states: u64,
    /// Of them, after a cut in a recovery.
    pub(crate) again: u64,
    /// Drives that were used on until they were empty.
    pub(crate) used: u64,
    /// Of them, with a zone that had gone offline.
    pub(crate) offline: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.vague += other.vague;
        self.operations += other.operations;
        self.states += other.states;
        self.again += other.again;
        self.used += other.used;
        self.offline += other.offline;
    }
}

/// Problems that `check` may report on a drive that was used to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Nothing.
    Clean,
    /// A zone with one of two copies of metadata is lost, and it says so.
    LacksCopy,
}

/// Checks the states that cuts leave.
pub(crate) struct Checker {
    pub(crate) random: ChaCha8Rng,
    pub(crate) clock: Arc<StepClock>,
    pub(crate) options: MountOptions,
    pub(crate) tally: Tally,
}

/// Whether a state may be there.
pub(crate) type Legal<'a> = &'a dyn Fn(&State) -> Result<(), String>;

impl Checker {
    fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.random, limit)
    }

    fn mount(&self, drive: Arc<dyn ZonedDevice>) -> Result<Furrow, String> {
        Furrow::mount(drives::of(drive), self.clock.clone(), self.options)
            .map_err(|error| format!("does not mount: {error}"))
    }

    /// An image that a cut leaves. Some recoveries are cut again, as `depth` allows.
    pub(crate) fn check_cut(
        &mut self,
        image: &Image,
        legal: Legal<'_>,
        depth: u32,
    ) -> Result<(), String> {
        pass();
        self.tally.states += 1;
        let recorder = Arc::new(Recorder::new(image.clone()));
        let fs = self.mount(recorder.clone())?;
        let found = read_state(&fs).map_err(|error| format!("cannot be read: {error}"))?;
        legal(&found)?;
        drop(fs);
        let after_mount = recorder.len();
        let problems = problems(drives::of(recorder.clone()));
        if !problems.is_empty() && !is_orphans(&problems) {
            return Err(format!("not clean: {problems:#?}"));
        }
        if depth > 0 && self.below(2) == 0 {
            self.cut_recovery(&recorder, &found, after_mount, depth)?;
        }
        if self.below(3) == 0 {
            self.use_up(recorder, &found)?;
        }
        Ok(())
    }

    /// A cut in a recovery changes nothing: the next recovery shows the same state.
    fn cut_recovery(
        &mut self,
        recorder: &Recorder,
        found: &State,
        steps: usize,
        depth: u32,
    ) -> Result<(), String> {
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        let cut = usize::try_from(self.below(steps as u64 + 1)).expect("an index");
        while outage.at() < cut && outage.step() {}
        let mut random = self.random.clone();
        let image = outage.sample(&mut |limit| below(&mut random, limit));
        self.random = random;
        let Some(image) = image else { return Ok(()) };
        self.tally.again += 1;
        let same = |state: &State| match state.difference(found) {
            Some(difference) => Err(format!("recovered once, then again: {difference}")),
            None => Ok(()),
        };
        self.check_cut(&image, &same, depth - 1)
            .map_err(|why| format!("cut after change {cut} of {steps} of the recovery: {why}"))
    }

    /// A zone that goes offline costs at most the blocks that files have in it, and nothing if it
    /// holds metadata. Then it goes on.
    pub(crate) fn lose_zone(&mut self, image: &Image) -> Result<(), String> {
        let failed =
            |what| move |error| format!("with a zone that is to go offline, {what}: {error}");
        let recorder = Arc::new(Recorder::new(image.clone()));
        let fs = self.mount(recorder.clone())?;
        fs.shutdown().map_err(failed("unmounting"))?;
        drop(fs);
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        while outage.step() {}
        let mut image = outage.everything();
        let fs = self.mount(Arc::new(image.power_on()))?;
        let before = read_state(&fs).map_err(failed("reading"))?;
        let uses = fs.zone_uses(0, usize::MAX);
        drop(fs);
        let written: Vec<usize> = (0..uses.len()).filter(|zone| uses[*zone].written > 0).collect();
        let chosen = self.below(written.len() as u64);
        let zone = written[usize::try_from(chosen).expect("an index")];
        let role = uses[zone].role;
        let number = u32::try_from(zone).expect("a drive has few");
        image.fail_zone(ZoneId::new(number), ZoneFailure::Offline);
        self.tally.offline += 1;
        let recorder = Arc::new(Recorder::new(image));
        let outcome = self.mount(recorder.clone()).and_then(|fs| {
            let mut lost = 0;
            let mut instead = |ino, block| {
                lost += 1;
                before.file(ino).ok().map(|node| node.bytes(block))
            };
            let after = read_state_with(&fs, &mut instead).map_err(failed("reading"))?;
            if let Some(difference) = after.difference(&before) {
                return Err(difference);
            }
            let has_copy = ["superblock", "metadata"].contains(&role);
            if lost > 0 && has_copy {
                return Err(format!("{lost} blocks cannot be read"));
            }
            self.end(fs, recorder, if has_copy { Report::LacksCopy } else { Report::Clean })
        });
        outcome.map_err(|why| format!("zone {zone}, {role}, is offline: {why}"))
    }

    /// It goes on: work in the background, deletion of everything, sync, unmount, mount.
    pub(crate) fn use_up(
        &mut self,
        drive: Arc<dyn ZonedDevice>,
        found: &State,
    ) -> Result<(), String> {
        self.tally.used += 1;
        let fs = self.mount(drive.clone())?;
        let now = read_state(&fs).map_err(|error| format!("cannot be read again: {error}"))?;
        if let Some(difference) = now.difference(found) {
            return Err(format!("mounted once, then again: {difference}"));
        }
        self.end(fs, drive, Report::Clean)
    }

    /// The same for a mount.
    pub(crate) fn end(
        &self,
        fs: Furrow,
        drive: Arc<dyn ZonedDevice>,
        report: Report,
    ) -> Result<(), String> {
        let failed = |what| move |error| format!("after recovery, {what}: {error}");
        for _ in 0..2 {
            fs.tick().map_err(failed("a tick"))?;
        }
        delete_all(&fs, ROOT).map_err(failed("deleting everything"))?;
        fs.sync().map_err(failed("sync"))?;
        for _ in 0..2 {
            fs.tick().map_err(failed("a tick"))?;
        }
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let file = fs.create(&Caller::ROOT, Ino::ROOT, b"new", &new).map_err(failed("creating"))?;
        let data = vec![7; 40_000];
        fs.write(file.ino, 0, &data, WriteFlags::empty()).map_err(failed("writing"))?;
        fs.shutdown().map_err(failed("unmounting"))?;
        drop(fs);
        let problems = problems(drives::of(drive.clone()));
        if !problems.is_empty() && report == Report::Clean {
            return Err(format!("not clean after use: {problems:#?}"));
        }
        let fs = self.mount(drive)?;
        let mut held = vec![0; 40_000];
        let file = fs.lookup(Ino::ROOT, b"new").map_err(failed("looking up"))?;
        fs.read(file.ino, 0, &mut held).map_err(failed("reading"))?;
        if held == data {
            Ok(())
        } else {
            Err("what was written after recovery is not there".into())
        }
    }
}

/// Deleted files with much in them are removed in steps after the mount.
fn is_orphans(problems: &[String]) -> bool {
    matches!(problems, [orphans] if orphans.ends_with("orphans"))
}
