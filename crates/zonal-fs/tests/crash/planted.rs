//! Mistakes made on purpose: a checker that finds nothing must find these.
//!
//! Each [`PlantedBug`] is a test of its own, and says which scenario noticed it. If that one does
//! not any more, all attempts are made, from cheap to dear, until one notices. The test prints the
//! name of the attempt.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use zonal::ZoneId;
use zonal_fs::furrow::{DumpWhat, PlantedBug, dump};
use zonal_fs::vfs::{Allocate, Caller, FileKind, WriteFlags, XattrMode};

use crate::check::{Checker, Effort, Violation};
use crate::ops::Op;
use crate::ops::drives::{CONVENTIONAL, SHAPES, SMALL, Shape};
use crate::run::{Start, end_of};
use crate::steps::{self, Ending, Sequence};
use crate::{random_ops, seed};

const QUICK: Effort =
    Effort { exhaustive: 64, samples: 8, moments_one_in: 1, again_one_in: 4, use_one_in: 200 };

/// A drive with `ballast` blocks in a file, operations before the power cuts, and operations under
/// them.
struct Scenario {
    name: &'static str,
    shape: Shape,
    ballast: u64,
    before: Vec<Op>,
    ops: Vec<Op>,
}

/// Overwrites of single blocks of a file that fills the drive, with a sync after every `sync`th.
fn overwrites(rounds: std::ops::Range<u16>, sync: u16) -> Vec<Op> {
    let blocks = SMALL.ballast_max() + 200;
    let overwrite = rounds.flat_map(|round| {
        let block = u64::from(round) * 0x9e37 % blocks;
        let flags = WriteFlags::DIRECT;
        let write = Op::Write { file: 0, offset: block * 4096, len: 4096, seed: round, flags };
        [Some(write), (round % sync == 0).then_some(Op::Sync)].into_iter().flatten()
    });
    overwrite.collect()
}

/// Sequences of operations for mistakes that short ones cannot show.
fn scenarios() -> Vec<Scenario> {
    let create = |name| {
        let kind = FileKind::Regular;
        Op::Create { dir: 0, name, kind, perm: 0o644, caller: Caller::ROOT }
    };
    let write =
        |file, offset, len, seed| Op::Write { file, offset, len, seed, flags: WriteFlags::empty() };
    let xattr = Op::SetXattr { entry: 1, name: 1, len: 40, seed: 5, mode: XattrMode::Any };
    let remounts =
        vec![create(0), xattr.clone(), Op::Remount, write(0, 0, 9000, 3), Op::Sync, Op::Remount];
    // Small changes of one file after the other: an old one that comes back makes a mixture.
    let turns = (0..60_u16).flat_map(|turn| {
        let chmod = Op::Chmod { entry: 1 + turn % 3, perm: turn, caller: Caller::ROOT };
        [chmod, Op::Sync, Op::Remount]
    });
    let many_remounts: Vec<Op> = (0..3).map(create).chain(turns).collect();
    let thrifty = SHAPES[4];
    let orphan = vec![
        create(0),
        write(0, 0, 9000, 3),
        Op::Hold { file: 0 },
        Op::Sync,
        Op::Unlink { entry: 0 },
        Op::Sync,
        create(1),
        Op::Sync,
    ];
    let truncate = |size| Op::Truncate { file: 0, size };
    let regrow = vec![
        create(0),
        write(0, 0, 9000, 3),
        truncate(5000),
        truncate(9000),
        Op::Sync,
        xattr,
        Op::Sync,
    ];
    // Many syncs wrap the journal and the superblock log around.
    let many = (0..160).flat_map(|round| {
        [write(0, u64::from(round) * 700, 3000, round), create((round % 9) as u8), Op::Sync]
    });
    let many = std::iter::once(create(0)).chain(many).collect();
    let churn = (0..12).flat_map(|seed| [Op::Churn { file: 0, seed }, Op::Sync]);
    let churn = std::iter::once(create(0)).chain(churn).collect();
    let (ballast, full) = (SMALL.ballast_max(), SMALL.ballast_max() + 200);
    // Blocks of zones that have been sealed for long.
    let share = Op::CopyRange { source: 0, from: 0, target: 1, to: 0, len: 40 * 4096 };
    let from_new = [
        ("a file cut, grown and marked", SMALL, 0, regrow),
        ("an orphan", SMALL, 0, orphan),
        ("remounts with four open zones", thrifty, 0, remounts.clone()),
        ("remounts", SMALL, 0, remounts),
        ("overwriting a full drive", SMALL, full, overwrites(0..700, 16)),
        ("many remounts with four open zones", thrifty, 0, many_remounts.clone()),
        ("many remounts", SMALL, 0, many_remounts),
        ("churn on a full drive", SMALL, ballast, churn),
        ("holes in a large file", SMALL, ballast, holes()),
        ("many syncs", SMALL, 0, many),
        ("blocks shared on a full drive", SMALL, ballast, vec![create(0), share, Op::Sync]),
    ];
    let from_new = from_new.map(|(name, shape, ballast, ops)| {
        let before = Vec::new();
        Scenario { name, shape, ballast, before, ops }
    });
    // Reclaim has begun by then.
    let moves = Scenario {
        name: "blocks moved on a full drive",
        shape: SMALL,
        ballast: full,
        before: overwrites(0..200, 16),
        ops: overwrites(200..280, 5),
    };
    let mut scenarios: Vec<_> = from_new.into_iter().chain([discarded(create(0))]).collect();
    scenarios.insert(5, moves);
    scenarios
}

/// A file of single blocks, written from the end on, so that each has a map entry: more entries
/// than a discard removes at once.
fn discarded(create: Op) -> Scenario {
    let single = (0..140_u16).rev().map(|block| {
        let (offset, flags) = (u64::from(block) * 4096, WriteFlags::DIRECT);
        Op::Write { file: 0, offset, len: 4096, seed: block, flags }
    });
    let (how, len) = (Allocate::PunchLater, 140 * 4096);
    Scenario {
        name: "a discarded file",
        shape: SMALL,
        ballast: 0,
        before: [create].into_iter().chain(single).chain([Op::Sync]).collect(),
        ops: vec![Op::Fallocate { file: 0, how, offset: 0, len }, Op::Sync],
    }
}

/// Several records in a batch.
fn of_several_records() -> Scenario {
    Scenario {
        name: "several records in a batch",
        shape: CONVENTIONAL,
        ballast: 0,
        before: Vec::new(),
        ops: long_batches(),
    }
}

/// Superblocks go round in the zones of their log, each of which takes 64, and the last ones lead
/// to other zones than those before.
fn wrap_superblocks() -> Result<(), Violation> {
    let write = |round: u16| {
        let (offset, flags) = (u64::from(round) * 700, WriteFlags::empty());
        [Op::Write { file: 0, offset, len: 3000, seed: round, flags }, Op::Sync]
    };
    let remounts = |count| std::iter::repeat_n(Op::Remount, count);
    let create = long_batches().remove(0);
    let before: Vec<Op> = std::iter::once(create).chain(remounts(60)).collect();
    let ops: Vec<Op> = remounts(75).chain((0..130).flat_map(write)).collect();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let run = Start::new(&CONVENTIONAL, 0, &before).run(&ops, None);
        let legal = run.legal(run.recording.steps.len());
        Checker::new(0, None).check_image(&end_of(&run.recording), legal)
    }));
    outcome.unwrap_or_else(|_| Err("panic".into()))
}

/// Attributes so large that a batch of three is more than one record.
pub(crate) fn long_batches() -> Vec<Op> {
    let create = |name| {
        let kind = FileKind::Regular;
        Op::Create { dir: 0, name, kind, perm: 0o644, caller: Caller::ROOT }
    };
    let round = |round: u16| {
        // The one in the middle comes last: only then the batch is so long that it is committed.
        let set = [(0, 30_000), (2, 30_000), (1, 60_000)].map(|(entry, len)| {
            let (seed, mode) = (3 * round + entry, XattrMode::Any);
            Op::SetXattr { entry, name: 0, len, seed, mode }
        });
        set.into_iter().chain([Op::Sync])
    };
    (0..3).map(create).chain([Op::Sync]).chain((0..5).flat_map(round)).collect()
}

/// Enough rows for several runs, some of which delete rows of older ones.
fn holes() -> Vec<Op> {
    let blocks = SMALL.ballast_max();
    let round = |round: u16| {
        let block = u64::from(round) * 0x9e37 % blocks;
        let flags = WriteFlags::DIRECT;
        let write = Op::Write { file: 0, offset: block * 4096, len: 4096, seed: round, flags };
        let from = u64::from(round) * 7 % blocks;
        let (how, offset, len) = (Allocate::Punch, from * 4096, 20 * 4096);
        let punch = Op::Fallocate { file: 0, how, offset, len };
        let is_punched = round.is_multiple_of(8);
        [Some(write), is_punched.then_some(punch), round.is_multiple_of(4).then_some(Op::Sync)]
    };
    (0..400).flat_map(round).flatten().collect()
}

/// A journal whose copies are of two histories: records that follow in one of them follow nothing
/// in the other. To refuse it is right, to mix the two is not.
fn splice(bug: Option<PlantedBug>) -> Result<(), Violation> {
    let create = |name| {
        let kind = FileKind::Regular;
        Op::Create { dir: 0, name, kind, perm: 0o644, caller: Caller::ROOT }
    };
    let start = Start::new(&SMALL, 0, &[create(0)]);
    let short = start.run(&[create(1), Op::Sync], None);
    let long = end_of(&start.run(&[create(2), Op::Sync, create(3), Op::Sync], None).recording);
    let mut image = end_of(&short.recording);
    image.put_back(journal_zones(&start)[1], &long);
    let legal = short.legal(short.recording.steps.len());
    match Checker::new(0, bug).check_image(&image, legal) {
        Err(why) if why.starts_with("does not mount") => Ok(()),
        outcome => outcome,
    }
}

fn journal_zones(start: &Start) -> Vec<ZoneId> {
    let mut zones = Vec::new();
    dump(Arc::new(start.image.power_on()), DumpWhat::Manifest, &mut |manifest| {
        let both = manifest["journal_zones"].as_array().into_iter().flatten();
        let both = both.flat_map(|both| both.as_array().into_iter().flatten());
        zones.extend(
            both.filter_map(serde_json::Value::as_u64).map(|zone| ZoneId::new(zone as u32)),
        );
    })
    .expect("a healthy drive can be dumped");
    zones
}

/// Goes through a scenario with a mistake.
fn try_scenario(
    checker: &mut Checker,
    Scenario { name: _, shape, ballast, before, ops }: &Scenario,
    bug: PlantedBug,
) -> Result<(), Violation> {
    let start = Start::new(shape, *ballast, before);
    let is_long = ops.len() > 100;
    let (moments_one_in, again_one_in) = if is_long { (16, 8) } else { (1, 1) };
    let effort = Effort { moments_one_in, again_one_in, ..QUICK };
    attempt(checker, &start, ops, bug, effort)
}

/// Which scenario notices a mistake, if any: `first` is tried before all others.
fn notice(bug: PlantedBug, first: &str, seed: u64) -> Option<(String, Violation)> {
    let mut all = scenarios();
    all.insert(3, of_several_records());
    if let Some(first) = all.iter().find(|scenario| scenario.name == first)
        && let Err(violation) = try_scenario(&mut Checker::new(seed, Some(bug)), first, bug)
    {
        return Some((first.name.into(), violation));
    }
    if let Err(violation) = splice(Some(bug)) {
        return Some(("a spliced journal".into(), violation));
    }
    let mut checker = Checker::new(seed, Some(bug));
    for scenario in all.iter().filter(|scenario| scenario.name != first) {
        if let Err(violation) = try_scenario(&mut checker, scenario, bug) {
            return Some((scenario.name.into(), violation));
        }
    }
    let small = steps::start(&SMALL);
    for step in &steps::all() {
        let sequence = Sequence(vec![(step, Ending::Sync)]);
        if let Err(violation) = attempt(&mut checker, &small, &sequence.ops(), bug, QUICK) {
            return Some((sequence.to_string(), violation));
        }
    }
    for round in 0..40 {
        let ballast = if round % 2 == 0 { 0 } else { SMALL.ballast_max() };
        let start = Start::new(&SMALL, ballast, &[]);
        let ops = random_ops(seed + round, 120);
        let effort = Effort { moments_one_in: 3, ..QUICK };
        if let Err(violation) = attempt(&mut checker, &start, &ops, bug, effort) {
            return Some((format!("random operations, seed {}", seed + round), violation));
        }
    }
    None
}

/// A panic is a way to notice, too.
fn attempt(
    checker: &mut Checker,
    start: &Start,
    ops: &[Op],
    bug: PlantedBug,
    effort: Effort,
) -> Result<(), Violation> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let run = start.run(ops, Some(bug));
        checker.check_run(&run, effort)?;
        let end = end_of(&run.recording);
        (0..16).try_for_each(|_| checker.check_bad_bit(&run, &end))?;
        // Short runs use no zone twice.
        if ops.len() > 100 { checker.check_stale_zones(&run, 20) } else { Ok(()) }
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(format!("panic: {}", text.unwrap_or_else(|| "in Furrow".into())))
    })
}

#[test]
fn journal_histories_are_not_mixed() {
    splice(None).unwrap_or_else(|violation| panic!("{violation}"));
    let unchained = splice(Some(PlantedBug::SkipChain));
    assert!(unchained.is_err(), "without a comparison it would be");
}

#[test]
fn superblocks_wrapping_lead_to_synced_data() {
    wrap_superblocks().unwrap_or_else(|violation| panic!("{violation}"));
}

fn is_noticed(bug: PlantedBug, first: &str) {
    let seed = seed();
    let noticed = notice(bug, first, seed);
    let (who, what) = noticed.unwrap_or_else(|| panic!("SEED={seed}: {bug:?} is not noticed"));
    let what: String = what.chars().filter(|letter| *letter != '\n').take(150).collect();
    println!("{bug:?}: {who}: {what}");
}

/// Makes a test for each mistake. They run side by side.
macro_rules! noticed {
    ($($test:ident: $bug:ident by $first:literal;)*) => {
        $(
            #[test]
            fn $test() {
                is_noticed(PlantedBug::$bug, $first);
            }
        )*

        #[test]
        fn planted_bugs_all_have_test() {
            assert_eq!([$(PlantedBug::$bug),*], PlantedBug::ALL);
        }
    };
}

noticed! {
    skip_data_flush_is_noticed: SkipDataFlush by "a file cut, grown and marked";
    skip_record_flush_is_noticed: SkipRecordFlush by "a file cut, grown and marked";
    reset_before_durable_is_noticed: ResetBeforeDurable by "overwriting a full drive";
    skip_data_checksum_is_noticed: SkipDataChecksum by "a file cut, grown and marked";
    skip_record_checksum_is_noticed: SkipRecordChecksum by "a file cut, grown and marked";
    skip_chain_is_noticed: SkipChain by "a spliced journal";
    believe_newest_batch_is_noticed: BelieveNewestBatch by "a file cut, grown and marked";
    forget_orphans_is_noticed: ForgetOrphans by "an orphan";
    superblock_reset_early_is_noticed: SuperblockResetEarly by "remounts with four open zones";
    superblock_before_manifest_is_noticed: SuperblockBeforeManifest by "a file cut, grown and marked";
    stale_superblock_is_noticed: StaleSuperblock by "remounts with four open zones";
    forget_xattr_rows_is_noticed: ForgetXattrRows by "a file cut, grown and marked";
    forget_entry_deletes_is_noticed: ForgetEntryDeletes by "an orphan";
    skip_write_back_is_noticed: SkipWriteBack by "a file cut, grown and marked";
    replay_stops_early_is_noticed: ReplayStopsEarly by "a file cut, grown and marked";
    continue_behind_torn_record_is_noticed: ContinueBehindTornRecord by "an orphan";
    release_meta_early_is_noticed: ReleaseMetaEarly by "a file cut, grown and marked";
    forget_relocation_is_noticed: ForgetRelocation by "overwriting a full drive";
    forget_tail_zeroing_is_noticed: ForgetTailZeroing by "a file cut, grown and marked";
    forget_sweep_is_noticed: ForgetSweep by "several records in a batch";
    drop_tombstones_early_is_noticed: DropTombstonesEarly by "several records in a batch";
    forget_link_count_is_noticed: ForgetLinkCount by "a file cut, grown and marked";
    forget_count_is_noticed: ForgetCount by "a file cut, grown and marked";
    forget_totals_is_noticed: ForgetTotals by "a file cut, grown and marked";
    forget_zone_rows_is_noticed: ForgetZoneRows by "a file cut, grown and marked";
    forget_orphan_rows_is_noticed: ForgetOrphanRows by "an orphan";
    forget_discards_is_noticed: ForgetDiscards by "a discarded file";
    forget_names_is_noticed: ForgetNames by "many syncs";
    forget_extent_owners_is_noticed: ForgetExtentOwners by "blocks shared on a full drive";
    list_open_zones_is_noticed: ListOpenZones by "a file cut, grown and marked";
    forget_moved_is_noticed: ForgetMoved by "overwriting a full drive";
    skip_moved_flush_is_noticed: SkipMovedFlush by "blocks moved on a full drive";
}
