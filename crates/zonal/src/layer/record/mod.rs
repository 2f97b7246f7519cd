//! `Recorder`: a drive in memory that remembers every change, and [`Outage`], which makes the
//! states that a power cut at any moment can leave.
//!
//! The states that a cut can leave (D4): everything that returned before the last completed flush
//! is there. Of later changes, each zone keeps a prefix: its writes, resets, finishes, opens and
//! closes in their order up to some point, zones independently of each other. So a reset may be
//! undone, and the zone comes back with its old data and write pointer. A write is cut between
//! blocks; its last block may be torn ([`Tail`]), but not where it may overwrite another, in a
//! sequential write preferred zone. A conventional zone keeps any blocks. No zone stays open, and
//! no state has more active zones than the drive allows.
//!
//! ```
//! use zonal::layer::record::{Outage, Recorder};
//! use zonal::image::Image;
//! # use zonal::{
//! #     BlockSize, Geometry, GeometrySpec, LbaCount, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
//! # };
//! # let geometry = Geometry::new(GeometrySpec {
//! #     block_size: BlockSize::B4096, block_count: LbaCount::new(64),
//! #     zone_size: LbaCount::new(16), zone_capacity: LbaCount::new(16),
//! #     conventional_zones: ZoneRuns::NONE, sequential_kind: ZoneKind::SequentialRequired,
//! #     max_open: None, max_active: None, max_append: LbaCount::new(4) })?;
//! let recorder = Recorder::new(Image::empty(&geometry));
//! recorder.append(ZoneId::new(0), &[1; 4096])?;
//! recorder.flush()?;
//! recorder.append(ZoneId::new(0), &[2; 8192])?;
//! let recording = recorder.finish();
//! let mut outage = Outage::at_start(&recording);
//! while outage.step() {}
//! let written: Vec<u64> =
//!     outage.states().map(|image| image.written(ZoneId::new(0)).get()).collect();
//! assert_eq!(written, [1, 2, 3]);
//! # Ok::<(), zonal::DeviceError>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::emulated::BlockInZone;
use crate::error::Result;
use crate::failure::ZoneFailure;
use crate::image::{Image, ImageDrive, Tail};
use crate::{Lba, LbaCount, Select, ZoneAction, ZoneId, ZoneKind, ZonedDevice};

/// One change, as the drive did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Blocks were stored in a zone. An append is one too: where it went is known.
    Store {
        /// The zone.
        zone: ZoneId,
        /// Blocks from its start.
        offset: LbaCount,
        /// The data.
        data: Arc<[u8]>,
    },
    /// Blocks of a conventional zone were deallocated.
    Deallocate {
        /// The zone.
        zone: ZoneId,
        /// Blocks from its start.
        offset: LbaCount,
        /// How many.
        blocks: LbaCount,
    },
    /// An action on a zone.
    Manage {
        /// The zone.
        zone: ZoneId,
        /// The action.
        action: ZoneAction,
    },
    /// A flush returned: all before it is durable.
    Flush,
}

/// The image a recording began with, and every change since.
#[derive(Clone)]
pub struct Recording {
    /// The beginning.
    pub start: Image,
    /// The changes, in order.
    pub steps: Vec<Step>,
}

/// A drive in memory that remembers every change. Changes are taken one at a time.
pub struct Recorder {
    drive: ImageDrive,
    start: Image,
    steps: Mutex<Vec<Step>>,
}

impl Recorder {
    /// A drive that starts from `image`, all of which is durable.
    pub fn new(image: Image) -> Self {
        Self { drive: image.power_on(), start: image, steps: Mutex::new(Vec::new()) }
    }

    /// Changes so far: the place of a mark between two of them.
    pub fn len(&self) -> usize {
        self.steps().len()
    }

    /// Whether nothing has changed yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The recording so far.
    pub fn recording(&self) -> Recording {
        Recording { start: self.start.clone(), steps: self.steps().clone() }
    }

    /// The recording.
    pub fn finish(self) -> Recording {
        let steps = self.steps.into_inner().unwrap_or_else(PoisonError::into_inner);
        Recording { start: self.start, steps }
    }

    /// Makes a zone fail, as drives do on their own. Recorded images do not show it.
    pub fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        self.drive.fail_zone(zone, failure)
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ZonedDevice for Recorder {
    crate::pass_on!(drive: geometry, report, read, identity, rotates);

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let mut steps = self.steps();
        self.drive.write(lba, data)?;
        if !data.is_empty() {
            let (zone, offset) = self.geometry().locate(lba);
            steps.push(Step::Store { zone, offset, data: data.into() });
        }
        Ok(())
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let mut steps = self.steps();
        let lba = self.drive.append(zone, data)?;
        if !data.is_empty() {
            let offset = lba - self.geometry().zone_start(zone);
            steps.push(Step::Store { zone, offset, data: data.into() });
        }
        Ok(lba)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let mut steps = self.steps();
        match zones {
            Select::One(zone) => {
                self.drive.manage(zones, action)?;
                steps.push(Step::Manage { zone, action });
            }
            Select::All => {
                let before = self.drive.report_all()?;
                self.drive.manage(zones, action)?;
                let taken =
                    before.iter().filter(|zone| crate::state::selected_by_all(action, zone.cond));
                steps.extend(taken.map(|zone| Step::Manage { zone: zone.id, action }));
            }
        }
        Ok(())
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let mut steps = self.steps();
        self.drive.deallocate(lba, blocks)?;
        if blocks > LbaCount::ZERO {
            let (zone, offset) = self.geometry().locate(lba);
            steps.push(Step::Deallocate { zone, offset, blocks });
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut steps = self.steps();
        self.drive.flush()?;
        steps.push(Step::Flush);
        Ok(())
    }
}

/// The states that a power cut at one moment of a recording can leave.
#[derive(Clone)]
pub struct Outage<'a> {
    steps: &'a [Step],
    at: usize,
    durable: Image,
    /// Changes since the last flush, by zone.
    pending: BTreeMap<ZoneId, Vec<&'a Step>>,
}

/// How much of a zone's pending changes a cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Changes done in full.
    pub whole: usize,
    /// Blocks done of the next one, which is a write.
    pub blocks: LbaCount,
    /// How the last block looks.
    pub tail: Tail,
    /// Of a conventional zone with few pending blocks: which of these are done, a bit for each in
    /// their order. The fields above say nothing then.
    pub kept: Option<u32>,
}

/// Pending blocks of a conventional zone of which each subset is a place where a cut can leave it.
const SUBSETS_MAX: u64 = 5;

/// The places where a cut can leave each zone with pending changes. The first place is "nothing",
/// the last "everything". A conventional zone with few pending blocks has every subset of them; one
/// with more has its places by whole blocks in order here, and [`Outage::sample`] leaves out blocks
/// in the middle, too.
#[derive(Clone, Debug)]
pub struct Choices(BTreeMap<ZoneId, Vec<Cut>>);

impl Choices {
    /// How many combinations there are.
    pub fn count(&self) -> u64 {
        self.0.values().fold(1, |product, cuts| product.saturating_mul(cuts.len() as u64))
    }

    /// Every combination.
    pub fn combinations(self) -> impl Iterator<Item = BTreeMap<ZoneId, Cut>> {
        let Self(cuts) = self;
        let mut odometer = Some(vec![0; cuts.len()]);
        std::iter::from_fn(move || {
            let digits = odometer.as_mut()?;
            let chosen = cuts.iter().zip(&*digits).map(|((&zone, cuts), &at)| (zone, cuts[at]));
            let chosen = chosen.collect();
            let mut carry = true;
            for (digit, cuts) in digits.iter_mut().zip(cuts.values()) {
                *digit += 1;
                carry = *digit == cuts.len();
                if !carry {
                    break;
                }
                *digit = 0;
            }
            if carry {
                odometer = None;
            }
            Some(chosen)
        })
    }
}

impl<'a> Outage<'a> {
    /// Before the first change: only the starting image can be left.
    pub fn at_start(recording: &'a Recording) -> Self {
        let durable = recording.start.clone();
        Self { steps: &recording.steps, at: 0, durable, pending: BTreeMap::new() }
    }

    /// Moves on by one change; `false` at the recording's end.
    pub fn step(&mut self) -> bool {
        let Some(step) = self.steps.get(self.at) else { return false };
        self.at += 1;
        match step {
            Step::Store { zone, .. }
            | Step::Deallocate { zone, .. }
            | Step::Manage { zone, .. } => {
                self.pending.entry(*zone).or_default().push(step);
            }
            Step::Flush => {
                for step in std::mem::take(&mut self.pending).into_values().flatten() {
                    apply(&mut self.durable, step);
                }
            }
        }
        true
    }

    /// Changes before this moment.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Every place where a cut can leave each zone that has pending changes.
    pub fn choices(&self, tails: &[Tail]) -> Choices {
        let cuts =
            |zone, steps| self.subsets(zone, steps).unwrap_or_else(|| self.cuts(steps, tails));
        Choices(self.pending.iter().map(|(&zone, steps)| (zone, cuts(zone, steps))).collect())
    }

    /// Whether a conventional zone has so many pending blocks that [`choices`](Self::choices) leave
    /// out subsets.
    pub fn has_more_subsets(&self) -> bool {
        self.pending.iter().any(|(&zone, steps)| {
            self.durable.is_conventional(zone) && self.subsets(zone, steps).is_none()
        })
    }

    /// Every subset of the pending blocks of a conventional zone, if they are few.
    fn subsets(&self, zone: ZoneId, steps: &[&Step]) -> Option<Vec<Cut>> {
        let blocks: u64 = steps.iter().map(|step| self.blocks_of(step)).sum();
        let is_small = self.durable.is_conventional(zone) && blocks <= SUBSETS_MAX;
        let nothing = Cut { whole: 0, blocks: LbaCount::ZERO, tail: Tail::Whole, kept: None };
        is_small.then(|| (0..1 << blocks).map(|kept| Cut { kept: Some(kept), ..nothing }).collect())
    }

    /// Blocks that a step stores or takes away.
    fn blocks_of(&self, step: &Step) -> u64 {
        match step {
            Step::Store { data, .. } => self.blocks(data),
            Step::Deallocate { blocks, .. } => blocks.get(),
            Step::Manage { .. } | Step::Flush => 0,
        }
    }

    /// The same, without the choices that were there before the newest change: all that is new
    /// since the last [`step`](Self::step). After a flush, the one state there is.
    pub fn new_choices(&self, tails: &[Tail]) -> Choices {
        let Choices(mut cuts) = self.choices(tails);
        let newest = self.at.checked_sub(1).map(|at| &self.steps[at]);
        if let Some(
            Step::Store { zone, .. } | Step::Deallocate { zone, .. } | Step::Manage { zone, .. },
        ) = newest
            && let Some(cuts) = cuts.get_mut(zone)
        {
            let pending = &self.pending[zone];
            let count = pending.len();
            let before: u64 = pending[..count - 1].iter().map(|step| self.blocks_of(step)).sum();
            cuts.retain(|cut| match cut.kept {
                Some(kept) => kept >> before > 0,
                None => {
                    cut.whole == count || (cut.whole + 1 == count && cut.blocks > LbaCount::ZERO)
                }
            });
        }
        Choices(cuts)
    }

    fn cuts(&self, steps: &[&Step], tails: &[Tail]) -> Vec<Cut> {
        let tails = match self.durable.geometry().sequential_kind() {
            ZoneKind::SequentialPreferred => &[Tail::Whole],
            ZoneKind::SequentialRequired | ZoneKind::Conventional => tails,
        };
        let nothing = Cut { whole: 0, blocks: LbaCount::ZERO, tail: Tail::Whole, kept: None };
        let mut cuts = vec![nothing];
        for (whole, step) in steps.iter().enumerate() {
            let Step::Store { data, .. } = step else {
                cuts.push(Cut { whole: whole + 1, ..nothing });
                continue;
            };
            let blocks = self.blocks(data);
            for (count, &tail) in (1..=blocks).flat_map(|n| tails.iter().map(move |t| (n, t))) {
                if count == blocks && tail == Tail::Whole {
                    cuts.push(Cut { whole: whole + 1, ..nothing });
                } else {
                    cuts.push(Cut { whole, blocks: LbaCount::new(count), tail, ..nothing });
                }
            }
        }
        cuts
    }

    fn blocks(&self, data: &[u8]) -> u64 {
        self.durable.geometry().blocks(data.len()).expect("whole blocks were stored").get()
    }

    /// The image that these cuts leave; a zone that is not named keeps none of its pending changes.
    /// `None`: no drive can be in that state, it has too many active zones.
    pub fn state(&self, cuts: &BTreeMap<ZoneId, Cut>) -> Option<Image> {
        let mut image = self.durable.clone();
        for (zone, cut) in cuts {
            let steps = &self.pending[zone];
            if let Some(kept) = cut.kept {
                let mut at = 0;
                let mut is_kept = || {
                    at += 1;
                    kept >> (at - 1) & 1 == 1
                };
                for step in steps {
                    apply_some(&mut image, step, &mut is_kept);
                }
                continue;
            }
            for step in &steps[..cut.whole] {
                apply(&mut image, step);
            }
            if cut.blocks > LbaCount::ZERO
                && let Step::Store { zone, offset, data } = steps[cut.whole]
            {
                let at = BlockInZone { zone: *zone, offset: *offset };
                image.store(at, data, cut.blocks, cut.tail);
            }
        }
        settle(image)
    }

    /// The image if everything survives.
    pub fn everything(&self) -> Image {
        let mut image = self.durable.clone();
        for step in self.pending.values().flatten() {
            apply(&mut image, step);
        }
        image.close_all();
        image
    }

    /// Every state, without torn blocks. Look at [`Choices::count`] first.
    pub fn states(&self) -> impl Iterator<Item = Image> {
        self.choices(&[Tail::Whole]).combinations().filter_map(|cuts| self.state(&cuts))
    }

    /// One state, chosen by `random`, which returns a number below its argument. Half of the time
    /// all zones but one keep everything or nothing, because that is where mistakes in ordering
    /// show; every fourth cut write has a torn last block. `None`: see [`state`](Self::state).
    pub fn sample(&self, random: &mut dyn FnMut(u64) -> u64) -> Option<Image> {
        let Choices(all) = self.choices(&[Tail::Whole, Tail::Torn]);
        let lone = (!all.is_empty() && random(2) == 0).then(|| random(all.len() as u64));
        let others_keep_all = random(2) == 0;
        let mut chosen = BTreeMap::new();
        for (index, (zone, cuts)) in (0..).zip(&all) {
            if self.durable.is_conventional(*zone) {
                continue;
            }
            let last = cuts.iter().rposition(|cut| cut.tail == Tail::Whole).unwrap_or(0);
            let at = match lone {
                Some(lone) if lone != index => {
                    if others_keep_all {
                        last
                    } else {
                        0
                    }
                }
                Some(_) | None => pick(cuts.len() as u64, random),
            };
            let mut cut = cuts[at];
            if cut.tail == Tail::Torn && random(2) == 0 {
                cut.tail = Tail::Whole;
            }
            chosen.insert(*zone, cut);
        }
        let mut image = self.durable.clone();
        for (zone, steps) in &self.pending {
            if self.durable.is_conventional(*zone) {
                image = some_blocks(image, steps, random);
            }
        }
        let base = Self { durable: image, ..self.clone() };
        base.state(&chosen)
    }
}

/// Loses the power: closes all zones; `None` if too many stay active.
fn settle(mut image: Image) -> Option<Image> {
    image.close_all();
    let limit = image.geometry().max_active();
    let fits = limit.is_none_or(|limit| image.active_count() <= limit as usize);
    fits.then_some(image)
}

/// Stores, or takes away, some of the pending blocks of a conventional zone.
fn some_blocks(mut image: Image, steps: &[&Step], random: &mut dyn FnMut(u64) -> u64) -> Image {
    for step in steps {
        let keep = random(4);
        apply_some(&mut image, step, &mut || keep > 1 || (keep == 1 && random(2) == 1));
    }
    image
}

/// Performs a step in a conventional zone for some of its blocks: `is_kept` decides for each, in
/// order.
fn apply_some(image: &mut Image, step: &Step, is_kept: &mut dyn FnMut() -> bool) {
    let block_bytes = image.geometry().block_size().bytes();
    let block_bytes = usize::try_from(block_bytes).expect("a block fits in memory");
    let (zone, start, blocks) = match step {
        Step::Store { zone, offset, data } => (*zone, *offset, (data.len() / block_bytes) as u64),
        Step::Deallocate { zone, offset, blocks } => (*zone, *offset, blocks.get()),
        Step::Manage { .. } | Step::Flush => return,
    };
    for (index, block) in (0..blocks).enumerate() {
        if !is_kept() {
            continue;
        }
        let at = BlockInZone { zone, offset: start + LbaCount::new(block) };
        if let Step::Store { data, .. } = step {
            let stored = &data[index * block_bytes..(index + 1) * block_bytes];
            image.store(at, &stored.into(), LbaCount::new(1), Tail::Whole);
        } else {
            image.deallocate(at, LbaCount::new(1));
        }
    }
}

/// An index below `len`: the ends as often as all the rest.
pub(super) fn pick(len: u64, random: &mut dyn FnMut(u64) -> u64) -> usize {
    let at = match random(4) {
        0 => 0,
        1 => len - 1,
        _ => random(len),
    };
    usize::try_from(at).expect("an index fits")
}

fn apply(image: &mut Image, step: &Step) {
    match step {
        Step::Store { zone, offset, data } => {
            let blocks = image.geometry().blocks(data.len()).expect("whole blocks were stored");
            image.store(BlockInZone { zone: *zone, offset: *offset }, data, blocks, Tail::Whole);
        }
        Step::Deallocate { zone, offset, blocks } => {
            image.deallocate(BlockInZone { zone: *zone, offset: *offset }, *blocks);
        }
        Step::Manage { zone, action } => image.manage(*zone, *action),
        Step::Flush => {}
    }
}

#[cfg(test)]
mod tests;
