//! Where simulated files can be: on the preset `zn540`, or on a conventional drive of the same
//! flash and controller, both with smaller zones.

use std::sync::Arc;

use anyhow::{Context, Result};
use zonal_fs::furrow::{self, Furrow};
use zonal_fs::vfs::Access;
use zonal_fs::zonefs;
use zonal_kv::zones::ZoneStore;
use zonal_sim::config::Kind;
use zonal_sim::files::{BLOCK_BYTES, Discard, InPlace, Lifetimes};
use zonal_sim::preset::Preset;
use zonal_sim::{Config, SimSsd, Size};

use crate::stores::{Hints, OnBlocks, OnZones, Queued};
use crate::timeline::{Phase, Replay};

/// Program operations of a die that fill an erase block: of the drive, and of the smaller zones
/// here.
pub(crate) const PROGRAMS: u32 = 359;
pub(crate) const PROGRAMS_HERE: u32 = 11;

/// Bytes of a zone here: 24 dies, 128 KiB in a program.
pub(crate) const ZONE: u64 = PROGRAMS_HERE as u64 * 24 * (128 << 10);

/// A way to keep the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetUp {
    Furrow,
    Zonefs,
    InPlace(Discard, Past),
}

/// The history of a conventional drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    New,
    /// Every block was written.
    Used,
}

impl SetUp {
    /// The last one is like the published XFS; the others are compared with it.
    pub(crate) const ALL: [Self; 5] = [
        Self::Furrow,
        Self::Zonefs,
        Self::InPlace(Discard::Online, Past::New),
        Self::InPlace(Discard::Never, Past::New),
        Self::InPlace(Discard::Never, Past::Used),
    ];

    /// The set-up that is like ext4 on a new drive.
    pub(crate) const EXT4: Self = Self::InPlace(Discard::Never, Past::New);

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Furrow => "Furrow, ZNS",
            Self::Zonefs => "plugin on zonefs, ZNS",
            Self::InPlace(Discard::Online, _) => "in place with TRIM, conventional",
            Self::InPlace(Discard::Never, Past::New) => "in place without TRIM, conventional",
            Self::InPlace(Discard::Never, Past::Used) => "in place without TRIM, drive full before",
        }
    }
}

/// Carries jobs out on a new drive with this many superblocks for each of `zn540`.
pub(crate) fn run(replay: &Replay<'_>, set_up: SetUp, superblocks: f64) -> Result<Vec<Phase>> {
    let config = config(set_up, superblocks)?;
    match set_up {
        SetUp::Furrow => {
            let drive = Arc::new(SimSsd::new(&config)?);
            let clock = drive.clock();
            let options = furrow::MkfsOptions::default();
            furrow::mkfs(Arc::clone(&drive), &*clock, &options, &mut |_| ())?;
            let queue = Arc::new(Queued::new(drive));
            let fs = Furrow::mount(queue.clone(), clock, furrow::MountOptions::default())?;
            replay.run(&mut OnZones::new(fs, queue, Hints::Taken))
        }
        SetUp::Zonefs => {
            let drive = Arc::new(SimSsd::new(&config)?);
            let clock = drive.clock();
            zonefs::mkfs(&*drive, &zonefs::MkfsOptions::default(), &mut |_| ())?;
            let queue = Arc::new(Queued::new(drive));
            let fs = ZoneStore::mount(queue.clone(), clock, Access::ReadWrite)?;
            replay.run(&mut OnZones::new(fs, queue, Hints::Unknown))
        }
        SetUp::InPlace(discard, past) => {
            let mut fs = InPlace::new(&config, discard, Lifetimes::Unknown)?;
            if past == Past::Used {
                fs.fill_drive();
            }
            replay.run(&mut OnBlocks::new(fs))
        }
    }
}

/// The drive: `zn540` with smaller zones, resets that take proportionally less time, and fewer
/// zones for a smaller store. The conventional one has the over-provisioning of `conventional-7`.
fn config(set_up: SetUp, superblocks: f64) -> Result<Config> {
    let preset = |name: &str| -> Result<Config> {
        Ok(Config::parse(Preset::find(name).context("a preset")?.text)?)
    };
    let mut config = preset("zn540")?.shrunk(PROGRAMS_HERE);
    config.drive.unit = Size(BLOCK_BYTES);
    config.zones.size = Size(0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
    let superblocks = (f64::from(config.flash.superblocks) * superblocks) as u32;
    config.flash.superblocks = superblocks;
    match set_up {
        SetUp::Furrow => {}
        // A table has a zone of its own and fills it by four fifths in the mean, so there have to
        // be more zones. They are as fast.
        SetUp::Zonefs => config.flash.superblocks += superblocks / 2,
        SetUp::InPlace(..) => {
            config.drive.kind = Kind::Conventional;
            config.drive.op = preset("conventional-7")?.layout()?.op_nominal();
        }
    }
    config.check()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Job, Kind, Recorded};
    use crate::timeline::Program;

    #[test]
    fn drives_of_all_set_ups_have_same_flash() {
        let of = |set_up| config(set_up, 1.0).unwrap();
        let zoned = of(SetUp::Furrow);
        let blocks = of(SetUp::InPlace(Discard::Never, Past::New));
        assert_eq!((&zoned.flash, &zoned.controller), (&blocks.flash, &blocks.controller));
        assert!((blocks.layout().unwrap().op_nominal() - 0.145).abs() < 0.001);
        assert_eq!(u64::from(zoned.layout().unwrap().user_units) * BLOCK_BYTES, 904 * ZONE);
    }

    #[test]
    fn set_ups_carry_out_same_jobs_and_repeat_themselves() {
        // Memtables of 16 MiB. Every three are merged with the tables of the last merge, and
        // replace these.
        let mut recorded = Recorded::default();
        let mut old = Vec::new();
        for number in 0..60 {
            let job = |kind, inputs, outputs, ended| Job { kind, inputs, outputs, level: 1, ended };
            let table = recorded.tables.len();
            let ended = recorded.ends.len();
            let flush = Kind::Flush { puts: 4000, bytes: 16 << 20 };
            recorded.jobs.push(job(flush, Vec::new(), vec![table], ended));
            recorded.ends.push(recorded.jobs.len() - 1);
            recorded.tables.push(16 << 20);
            old.push(table);
            if number % 3 == 2 {
                let inputs = std::mem::take(&mut old);
                old = vec![table + 1, table + 2];
                recorded.jobs.push(job(Kind::Compaction, inputs, old.clone(), ended + 1));
                recorded.ends.push(recorded.jobs.len() - 1);
                recorded.tables.extend([31 << 20, 17 << 20]);
            }
        }
        let program = Program {
            put_ns: 2000.0,
            flush_ns: 1.0,
            merge_ns: 1.0,
            flushes: 1,
            compactions: 4,
            readers: 4,
        };
        let phases = [50, 60];
        let replay = Replay { recorded: &recorded, program, scale: 1.0, phases: &phases, seed: 1 };
        let of = |set_up: SetUp| {
            let phases = run(&replay, set_up, 0.06).unwrap();
            let last = &phases[1];
            assert!(!last.reads_ns.is_empty() && last.reads_ns[0] > 10_000, "{}", set_up.name());
            phases
                .iter()
                .map(|one| (one.ns, one.file_bytes, one.reads_ns.len()))
                .collect::<Vec<_>>()
        };
        for set_up in SetUp::ALL {
            let first = of(set_up);
            // As many puts, but compactions that are under way may have written less.
            let (fill_ns, ..) = first[0];
            assert!(fill_ns >= 50 * 4000 * 2000, "{}: {first:?}", set_up.name());
            assert_eq!(of(set_up), first, "{}", set_up.name());
        }
    }
}
