//! A round as a seed sets it up: its drive, mount, threads and faults.

use std::num::NonZeroU32;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use zonal::{BlockSize, ByteCount, GeometrySpec, LbaCount};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{AtimePolicy, Eviction, MountOptions, PlantedBug};

use crate::choice::{Profile, Taste};
use crate::drive::{Fault, Plan};
use crate::node::mix;
use crate::ops::drives::METADATA;
use crate::scheduler::Stays;
use crate::world::below;

/// A source file of Furrow as its locks name it. One that does not exist does not compile.
macro_rules! source_file {
    ($path:literal) => {{
        const _: &str = include_str!(concat!("../../src/furrow/", $path));
        concat!("furrow/", $path)
    }};
}

const COPY: &str = source_file!("ops/copy.rs");
const WRITE: &str = source_file!("ops/write.rs");
const RESIZE: &str = source_file!("ops/resize.rs");

/// A round as a seed sets it up.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) spec: GeometrySpec,
    pub(crate) options: MountOptions,
    pub(crate) taste: Taste,
    pub(crate) threads: usize,
    pub(crate) operations: u64,
    pub(crate) switch_one_in: u64,
    pub(crate) slow: Option<usize>,
    pub(crate) stays: Stays,
    pub(crate) has_worker: bool,
    /// Percent of the drive that a file takes.
    pub(crate) ballast: u64,
    pub(crate) fault: Option<Plan>,
    pub(crate) phases: u64,
    pub(crate) cuts: u64,
}

/// Numbers from a seed.
struct Picker(ChaCha8Rng);

impl Picker {
    fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.0, limit)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[index(self.below(all.len() as u64))]
    }

    fn is_one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn spec(&mut self) -> GeometrySpec {
        let blocks = self.one_of(&[64, 64, 64, 96, 128, 256]);
        let zones = self.one_of(&[24, 24, 28, 32, 40, 150]);
        let active = self.one_of(&[4, 4, 6, 8, 14, 128]);
        let mut spec = GeometrySpec {
            max_open: Some(active),
            max_active: Some(active),
            max_append: LbaCount::new(32),
            ..shape(zones, blocks)
        };
        match self.below(8) {
            0 if blocks > 64 => spec.zone_capacity = LbaCount::new(blocks - 11),
            1 => {
                spec.block_size = BlockSize::B512;
                spec.block_count = LbaCount::new(zones * 512);
                (spec.zone_size, spec.zone_capacity) = (LbaCount::new(512), LbaCount::new(512));
                spec.max_append = LbaCount::new(256);
            }
            2 => {
                let anywhere = self.one_of(&["3", "10", "1,7-9,15-16"]);
                spec.conventional_zones = anywhere.parse().expect("zones");
                let conventional = u64::from(spec.conventional_zones.zone_count());
                spec.block_count = LbaCount::new((zones + conventional) * blocks);
            }
            3 => spec = METADATA.spec,
            _ => {}
        }
        spec
    }

    fn options(&mut self, planted: Option<PlantedBug>) -> MountOptions {
        let memory = self.one_of(&[256 << 20, 64 << 20, 20 << 20, 1 << 20]);
        let eviction = if self.is_one_in(3) { Eviction::AtEveryLock } else { Eviction::ByNeed };
        MountOptions {
            atime: AtimePolicy::Never,
            memory: ByteCount::new(memory),
            eviction,
            max_open_zones: self.is_one_in(6).then_some(NonZeroU32::MIN),
            planted: planted.into(),
            ..MountOptions::default()
        }
    }

    fn stays(&mut self) -> Stays {
        Stays {
            one_in: self.one_of(&[u64::MAX, 6, 12, 30]),
            steps: self.one_of(&[30, 200, 1000, 5000]),
            at_drive: self.is_one_in(3),
            file: None,
        }
    }
}

impl Setting {
    pub(crate) fn of(seed: u64, planted: Option<PlantedBug>) -> Self {
        let mut picker = Picker(ChaCha8Rng::seed_from_u64(mix(seed, 1)));
        let spec = picker.spec();
        let rotational = Some(seed.is_multiple_of(3));
        let options = MountOptions { rotational, ..picker.options(planted) };
        let threads = picker.one_of(&[1, 2, 3, 3, 4]);
        let faults = [Fault::Any, Fault::Flush, Fault::Write, Fault::HostIsFull, Fault::ZoneFails];
        let plan = Plan {
            fault: picker.one_of(&faults),
            first: picker.below(200),
            calls: 1 + picker.below(3) * picker.below(10),
            every: u64::MAX,
        };
        let blocks = picker.one_of(&[4, 12, 40]);
        let mixed = Self {
            seed,
            spec,
            options,
            taste: Taste { profile: Profile::Mixed, files: 4, blocks },
            threads: index(threads),
            operations: 10 + picker.below(if threads == 1 { 120 } else { 35 }),
            switch_one_in: picker.one_of(&[1, 2, 4, 12, 60]),
            slow: picker.is_one_in(3).then(|| index(picker.below(threads))),
            stays: picker.stays(),
            has_worker: picker.is_one_in(2),
            ballast: picker.one_of(&[0, 0, 50, 90, 97, 100]),
            fault: picker.is_one_in(3).then_some(plan),
            phases: 1 + picker.below(3),
            cuts: 8,
        };
        mixed.with_profile(&mut picker).within_reason().with_pieces()
    }

    /// Half of the rounds do one thing more than others.
    fn with_profile(self, picker: &mut Picker) -> Self {
        use Profile::{Commits, Copies, Cuts, Ends, Full, Mixed, Pieces, Reclaim, Refusals};
        let profiles = [
            Mixed, Mixed, Mixed, Copies, Copies, Copies, Ends, Ends, Cuts, Cuts, Reclaim, Reclaim,
            Commits, Full,
        ];
        let profile = picker.one_of(&profiles);
        if profile == Mixed {
            return self;
        }
        let (files, blocks) = match profile {
            Mixed | Full => (4, self.taste.blocks),
            Copies | Commits | Reclaim => (2, 4),
            Ends => (1 + index(picker.below(2)), 4),
            Cuts => (2, 12),
            Pieces | Refusals => unreachable!("these rounds are chosen otherwise"),
        };
        let mut setting = Self {
            taste: Taste { profile, files, blocks },
            threads: index(picker.one_of(&[2, 2, 3, 4])),
            operations: 15 + picker.below(30),
            switch_one_in: picker.one_of(&[4, 12, 60, 400]),
            slow: None,
            ballast: 0,
            fault: self.fault.filter(|_| picker.is_one_in(3)),
            phases: 1 + picker.below(2),
            ..self
        };
        match profile {
            Mixed | Pieces | Refusals => {}
            Copies => {
                setting.stays.steps = picker.one_of(&[100, 300, 1000]);
                setting.stays.file = picker.one_of(&[Some(COPY), None]);
            }
            Ends => {
                setting.stays.at_drive = picker.is_one_in(2);
                setting.stays.file = picker.one_of(&[Some(WRITE), Some(RESIZE), None]);
            }
            Cuts => {
                setting.options.eviction = Eviction::AtEveryLock;
                setting.stays.steps = picker.one_of(&[100, 300, 1000]);
                setting.stays.file = picker.one_of(&[Some(COPY), Some(WRITE), Some(RESIZE), None]);
            }
            Reclaim | Full => {
                // Small, so that each zone is soon written again.
                setting.spec = GeometrySpec {
                    max_open: setting.spec.max_open,
                    max_active: setting.spec.max_active,
                    max_append: LbaCount::new(32),
                    ..shape(24, 64)
                };
                setting.ballast = picker.one_of(&[90, 97, 100]);
                setting.has_worker = !picker.is_one_in(4);
                setting.stays.at_drive = !picker.is_one_in(4);
                setting.stays.steps = picker.one_of(&[1000, 5000, 20_000]);
            }
            Commits => setting.cuts = 16,
        }
        setting
    }

    /// Every seventh round is about files of many pieces on a drive that is soon full; in most of
    /// these the drive refuses reads. They have numbers of their own, and no round in which
    /// `planted` knows that a mistake is noticed is among them: so these stay as they are.
    fn with_pieces(self) -> Self {
        if self.seed % 7 != 2 {
            return self;
        }
        let mut picker = Picker(ChaCha8Rng::seed_from_u64(mix(self.seed, 3)));
        let profile = picker.one_of(&[Profile::Pieces, Profile::Refusals, Profile::Refusals]);
        let refuses = profile == Profile::Refusals;
        let burst = 1 + picker.one_of(&[1, 4, 12, 40]) * picker.below(4);
        let plan = Plan {
            fault: picker.one_of(&[Fault::Read, Fault::Read, Fault::ReadOfZones]),
            first: picker.below(30),
            calls: burst,
            every: picker.one_of(&[u64::MAX, 30 + 2 * burst, 60 + 3 * burst]),
        };
        // No memory for leaves, so that metadata is read from the drive.
        let memory = ByteCount::new(if refuses { 1 << 20 } else { self.options.memory.get() });
        let evicts = picker.below(4) < if refuses { 3 } else { 1 };
        let eviction = if evicts { Eviction::AtEveryLock } else { Eviction::ByNeed };
        Self {
            spec: GeometrySpec {
                max_open: self.spec.max_open,
                max_active: self.spec.max_active,
                max_append: LbaCount::new(32),
                ..shape(24, 64)
            },
            options: MountOptions { memory, eviction, ..self.options },
            taste: Taste { profile, files: 3, blocks: 12 },
            threads: index(picker.one_of(&[1, 2, 2, 3])),
            operations: 20 + picker.below(40),
            switch_one_in: picker.one_of(&[4, 12, 60, 400]),
            slow: None,
            stays: picker.stays(),
            has_worker: picker.is_one_in(2),
            ballast: picker.one_of(&[50, 80, 90, 97]),
            fault: refuses.then_some(plan),
            // Nothing mounts again before the end.
            phases: if refuses { 1 } else { 1 + picker.below(2) },
            ..self
        }
    }

    /// The model has a copy of all that is there.
    fn within_reason(self) -> Self {
        let is_large = self.spec.block_count.get() > 5000;
        Self { ballast: if is_large { 0 } else { self.ballast }, ..self }
    }
}

pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("small")
}
