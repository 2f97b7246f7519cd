//! The checker: rules that hold after any power cut, and the loop that goes through the cuts.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zonal::image::{Image, Tail};
use zonal::layer::record::{Choices, Outage, Recorder};
use zonal::{LbaCount, ZoneId, ZonedDevice};
use zonal_fs::furrow::{DataCheck, Furrow, MountOptions, PlantedBug, StepProgress, Work, check};
use zonal_fs::tree::{Snapshot, snapshot};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

use crate::ops::drives::{self, StepClock};
use crate::run::{Boundary, Run, end_of};

/// How far to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Moments with at most this many new states have all of them checked.
    pub(crate) exhaustive: u64,
    /// Samples of new states at other moments.
    pub(crate) samples: u32,
    /// One in this many moments is looked at.
    pub(crate) moments_one_in: u64,
    /// After one in this many recoveries, the recovery itself is cut.
    pub(crate) again_one_in: u64,
    /// After one in this many recoveries, the drive is filled and emptied.
    pub(crate) use_one_in: u64,
}

impl Effort {
    /// For short runs.
    pub(crate) const EVERYTHING: Self =
        Self { exhaustive: 256, samples: 64, moments_one_in: 1, again_one_in: 16, use_one_in: 512 };
}

/// Counts, and the source of chance.
pub(crate) struct Checker {
    pub(crate) states: u64,
    pub(crate) again: u64,
    pub(crate) used: u64,
    random: ChaCha8Rng,
    planted: Option<PlantedBug>,
    clock: Arc<StepClock>,
    /// Of mounts after a cut.
    pub(crate) options: MountOptions,
}

/// Why a state is wrong.
pub(crate) type Violation = String;

/// A cut that tears no block leaves a drive on which a check before the next mount finds no
/// problem.
fn is_clean_as_it_is(image: &Image) -> Result<(), Violation> {
    let drive = drives::of(Arc::new(image.power_on()));
    let report = check(drive, DataCheck::Read, &mut |_| ())
        .map_err(|error| format!("it cannot be checked before it is mounted: {error}"))?;
    if report.problems.is_empty() {
        return Ok(());
    }
    Err(format!("a check before the mount finds {:?}", report.problems))
}

impl Checker {
    pub(crate) fn new(seed: u64, planted: Option<PlantedBug>) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        let clock = Arc::new(StepClock::default());
        let options = MountOptions::default();
        Self { states: 0, again: 0, used: 0, random, planted, clock, options }
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }

    /// Goes through the moments of a run. The first violation ends it.
    pub(crate) fn check_run(&mut self, run: &Run, effort: Effort) -> Result<(), Violation> {
        self.check_run_from(run, 0, effort)
    }

    /// Goes through the moments of a run from its `from`-th change on.
    pub(crate) fn check_run_from(
        &mut self,
        run: &Run,
        from: usize,
        effort: Effort,
    ) -> Result<(), Violation> {
        let promises = run.promises();
        self.clock.set(run.now_ns + 1_000_000);
        let mut outage = Outage::at_start(&run.recording);
        loop {
            let promised = promises.contains_key(&outage.at());
            let is_due = promised || self.below(effort.moments_one_in) == 0;
            if outage.at() >= from && is_due {
                let tails = [Tail::Whole, Tail::Torn];
                // Promised changes must be in every state. Without a promise, only new states are
                // of interest.
                let choices =
                    if promised { outage.choices(&tails) } else { outage.new_choices(&tails) };
                self.check_moment(run, &outage, choices, effort).map_err(|violation| {
                    let log = run.log.join("\n  ");
                    format!(
                        "power cut after change {} of {}: {violation}\n  {log}",
                        outage.at(),
                        run.recording.steps.len()
                    )
                })?;
            }
            if !outage.step() {
                return Ok(());
            }
        }
    }

    fn check_moment(
        &mut self,
        run: &Run,
        outage: &Outage<'_>,
        choices: Choices,
        effort: Effort,
    ) -> Result<(), Violation> {
        let legal = run.legal(outage.at());
        if choices.count() <= effort.exhaustive {
            for cuts in choices.combinations() {
                if let Some(image) = outage.state(&cuts) {
                    let is_torn = cuts.values().any(|cut| cut.tail == Tail::Torn);
                    if !is_torn && self.planted.is_none() && self.below(effort.again_one_in) == 0 {
                        is_clean_as_it_is(&image)?;
                    }
                    self.check_state(&image, legal, effort)
                        .map_err(|violation| format!("{violation}\n  left over: {cuts:?}"))?;
                }
            }
            if !outage.has_more_subsets() {
                return Ok(());
            }
        }
        for _ in 0..effort.samples {
            let mut random = self.random.clone();
            let image = outage.sample(&mut |limit| random.next_u64() % limit);
            self.random = random;
            if let Some(image) = image {
                self.check_state(&image, legal, effort)?;
            }
        }
        Ok(())
    }

    /// One image: recover, compare, check, and now and then go on from there.
    fn check_state(
        &mut self,
        image: &Image,
        legal: &[Boundary],
        effort: Effort,
    ) -> Result<(), Violation> {
        self.states += 1;
        let recorder = Arc::new(Recorder::new(image.clone()));
        let found = self.recover(recorder.clone())?;
        is_one_of(&found, legal)?;
        if self.below(effort.again_one_in) == 0 {
            self.check_recovery(&recorder, &found)?;
        }
        if self.below(effort.use_one_in) == 0 {
            self.used += 1;
            self.use_up(&recorder)?;
        }
        Ok(())
    }

    /// Flips one bit on the drive: all content that can still be read is right.
    pub(crate) fn check_bad_bit(&mut self, run: &Run, image: &Image) -> Result<(), Violation> {
        let zones: Vec<ZoneId> =
            image.geometry().zones().filter(|zone| image.written(*zone) > LbaCount::ZERO).collect();
        let zone = zones[self.below(zones.len() as u64) as usize];
        let block = LbaCount::new(self.below(image.written(zone).get()));
        let bits = image.geometry().block_size().bytes() * 8;
        let lba = image.geometry().zone_start(zone) + block;
        let mut bad = image.clone();
        bad.flip_bit(lba, self.below(bits));
        self.states += 1;
        let Ok(fs) = self.mount(Arc::new(bad.power_on())) else { return Ok(()) };
        let Ok(found) = snapshot(&fs) else { return Ok(()) };
        // A mount may take a bad block that the newest batch brought along for a torn one, and
        // leave the batch out.
        let at = run.brought_along(zone, block).unwrap_or(run.recording.steps.len());
        is_one_of(&found, run.legal(at))
            .map_err(|violation| format!("a bit of zone {zone}, block {block}: {violation}"))
    }

    /// One zone has its content of an earlier moment, pointer and all. No promise survives that,
    /// but nothing is made up: all content that can be read was there at some time.
    pub(crate) fn check_stale_zones(&mut self, run: &Run, moments: u64) -> Result<(), Violation> {
        let end = end_of(&run.recording);
        let steps = run.recording.steps.len() as u64;
        let mut outage = Outage::at_start(&run.recording);
        for moment in 0..moments {
            while (outage.at() as u64) < steps * moment / moments {
                outage.step();
            }
            let earlier = outage.everything();
            for zone in end.geometry().zones() {
                let mut stale = end.clone();
                stale.put_back(zone, &earlier);
                self.states += 1;
                let Ok(fs) = self.mount(Arc::new(stale.power_on())) else { continue };
                let Ok(found) = snapshot(&fs) else { continue };
                is_one_of(&found, &run.boundaries).map_err(|violation| {
                    format!("zone {zone} as it was after change {}: {violation}", outage.at())
                })?;
            }
        }
        Ok(())
    }

    /// An image that recovers to a legal state.
    pub(crate) fn check_image(&self, image: &Image, legal: &[Boundary]) -> Result<(), Violation> {
        is_one_of(&self.recover(Arc::new(image.power_on()))?, legal)
    }

    fn mount(&self, drive: Arc<dyn ZonedDevice>) -> Result<Furrow, Violation> {
        let options = MountOptions { planted: self.planted.into(), ..self.options };
        Furrow::mount(drives::of(drive), self.clock.clone(), options)
            .map_err(|error| format!("does not mount: {error}"))
    }

    /// Mounts, reads everything, loses the power; then the drive is checked.
    fn recover(&self, drive: Arc<dyn ZonedDevice>) -> Result<Snapshot, Violation> {
        let fs = self.mount(drive.clone())?;
        let found = snapshot(&fs).map_err(|error| format!("cannot be read: {error}"))?;
        let inodes = fs.statfs().map_err(|error| format!("statfs: {error}"))?.inodes;
        if inodes != found.inode_count() {
            return Err(format!("{inodes} inodes, of which {} have names", found.inode_count()));
        }
        drop(fs);
        let mut problems = drives::problems(drives::of(drive.clone()));
        if matches!(&problems[..], [orphans] if orphans.ends_with("orphans")) {
            // Deleted files with much in them are removed in steps after the mount.
            let fs = self.mount(drive.clone())?;
            truncate_rest(&fs)
                .and_then(|()| fs.sync())
                .map_err(|error| format!("truncating: {error}"))?;
            problems = drives::problems(drives::of(drive));
        }
        if problems.is_empty() { Ok(found) } else { Err(format!("not clean: {problems:#?}")) }
    }

    /// A cut during the recovery changes nothing: the next recovery shows the same state.
    fn check_recovery(&mut self, recorder: &Recorder, found: &Snapshot) -> Result<(), Violation> {
        let recording = recorder.recording();
        let mut outage = Outage::at_start(&recording);
        while outage.step() {
            for _ in 0..2 {
                let mut random = self.random.clone();
                let image = outage.sample(&mut |limit| random.next_u64() % limit);
                self.random = random;
                let Some(image) = image else { continue };
                self.again += 1;
                let second = self.recover(Arc::new(image.power_on()));
                let second = second.map_err(|violation| {
                    format!("cut after change {} of the recovery: {violation}", outage.at())
                })?;
                if let Some(difference) = found.first_difference(&second) {
                    return Err(format!(
                        "cut after change {} of the recovery: recovered once, then again: \
                         {difference}",
                        outage.at()
                    ));
                }
            }
        }
        Ok(())
    }

    /// The recovered file system still works: it is emptied, filled to the last block and emptied
    /// again, and gives back as much space as the first time.
    fn use_up(&mut self, recorder: &Recorder) -> Result<(), Violation> {
        let drive = Arc::new(end_of(&recorder.recording()).power_on());
        let fs = self.mount(drive.clone())?;
        let failed = |what| move |error| format!("after recovery, {what}: {error}");
        empty(&fs).map_err(failed("emptying"))?;
        truncate_rest(&fs).map_err(failed("truncating"))?;
        fs.sync().map_err(failed("sync"))?;
        let free = fs.statfs().map_err(failed("statfs"))?;
        let file = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        let created = fs.create(&Caller::ROOT, Ino::ROOT, b"filler", &file);
        let ino = created.map_err(failed("creating"))?.ino;
        let data = vec![7; 64 * 1024];
        let mut size = 0;
        while fs.write(ino, size, &data, WriteFlags::empty()).is_ok() {
            size += data.len() as u64;
        }
        let room = free.blocks_free * u64::from(free.block_size);
        if size + (room / 10).max(16 * 64 * 1024) < room {
            return Err(format!("full after {size} bytes of {room}"));
        }
        fs.unlink(Ino::ROOT, b"filler").map_err(failed("unlinking"))?;
        truncate_rest(&fs).map_err(failed("truncating"))?;
        fs.sync().map_err(failed("sync"))?;
        let again = fs.statfs().map_err(failed("statfs"))?;
        if (again.blocks_free, again.inodes) != (free.blocks_free, free.inodes) {
            return Err(format!("space is lost: {free:?}, then {again:?}"));
        }
        fs.shutdown().map_err(failed("unmounting"))?;
        let problems = drives::problems(drives::of(drive));
        if problems.is_empty() {
            Ok(())
        } else {
            Err(format!("not clean after use: {problems:#?}"))
        }
    }
}

/// The found state is one of the legal states, whole.
pub(crate) fn is_one_of(found: &Snapshot, legal: &[Boundary]) -> Result<(), Violation> {
    if legal.iter().any(|boundary| boundary.snapshot == *found) {
        return Ok(());
    }
    let differences: Vec<String> = legal
        .iter()
        .rev()
        .take(4)
        .filter_map(|boundary| found.first_difference(&boundary.snapshot))
        .collect();
    Err(format!(
        "it is none of {} legal states; found, then each from the newest on:\n    {}",
        legal.len(),
        differences.join("\n    ")
    ))
}

/// Removes the rest of deleted files.
pub(crate) fn truncate_rest(fs: &Furrow) -> zonal_fs::vfs::Result<()> {
    while fs.step(Work::Truncate)? == StepProgress::More {}
    Ok(())
}

/// Deletes everything.
pub(crate) fn empty(fs: &dyn FileSystem) -> zonal_fs::vfs::Result<()> {
    fn empty_directory(fs: &dyn FileSystem, dir: Ino) -> zonal_fs::vfs::Result<()> {
        let mut entries = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            zonal_fs::vfs::Listing::More
        })?;
        for (name, ino, kind) in entries {
            if kind == FileKind::Directory {
                empty_directory(fs, ino)?;
                fs.rmdir(dir, &name)?;
            } else {
                fs.unlink(dir, &name)?;
            }
        }
        Ok(())
    }
    empty_directory(fs, Ino::ROOT)
}
