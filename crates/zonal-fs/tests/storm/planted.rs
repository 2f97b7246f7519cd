//! Mistakes made on purpose: the rig must notice them, each within some rounds.
//!
//! Each [`PlantedBug`] is a test of its own. It begins with a round that has noticed the mistake;
//! if that one does not any more, others of the profile that brings it out follow. `SEED` says with
//! which round to begin, `COUNT` how many there are.

use zonal::repeat;
use zonal_fs::furrow::PlantedBug;

use crate::choice::Profile;
use crate::round;
use crate::setting::Setting;

/// Rounds of its profile that a mistake gets.
const ROUNDS: usize = 400;

/// The first round that notices a mistake, and its message. A round that fails without the mistake
/// does not count.
fn notice(bug: PlantedBug, profile: Profile, known: u64) -> Option<(u64, String)> {
    let (first, count) = (repeat::seed(known), repeat::count(ROUNDS));
    let suits = |seed: &u64| Setting::of(*seed, None).taste.profile == profile;
    let mut rounds = (first..).filter(suits).take(count);
    rounds.find_map(|seed| {
        let why = round::run(seed, Some(bug)).err()?;
        round::run(seed, None).is_ok().then_some((seed, why))
    })
}

/// Says how a mistake is noticed.
fn is_noticed(bug: PlantedBug, profile: Profile, known: u64) -> String {
    let noticed = notice(bug, profile, known);
    let (seed, why) = noticed.unwrap_or_else(|| panic!("{bug:?} is not noticed"));
    let why: String = why.chars().filter(|letter| *letter != '\n').take(160).collect();
    format!("{bug:?}: round {seed}: {why}")
}

/// Makes a test for each mistake.
macro_rules! noticed {
    ($($test:ident: $bug:ident in $profile:ident from $known:literal;)*) => {
        $(
            #[test]
            #[ignore = "takes minutes where a change moves what meets; run by cargo xtask test --soak"]
            fn $test() {
                println!("{}", is_noticed(PlantedBug::$bug, Profile::$profile, $known));
            }
        )*

        #[test]
        fn planted_races_all_have_test() {
            assert_eq!([$(PlantedBug::$bug),*], PlantedBug::RACES);
        }
    };
}

noticed! {
    share_unwritten_is_noticed: ShareUnwritten in Copies from 687;
    share_untruncated_is_noticed: ShareUntruncated in Cuts from 1667;
    share_at_old_ends_is_noticed: ShareAtOldEnds in Copies from 430;
    publish_on_stale_is_noticed: PublishOnStale in Copies from 103;
    resize_on_stale_is_noticed: ResizeOnStale in Ends from 187;
    zero_on_stale_is_noticed: ZeroOnStale in Ends from 195;
    append_at_old_end_is_noticed: AppendAtOldEnd in Ends from 1;
    pad_over_new_end_is_noticed: PadOverNewEnd in Ends from 1;
    regrow_untruncated_is_noticed: RegrowUntruncated in Cuts from 84;
    write_back_unwanted_is_noticed: WriteBackUnwanted in Copies from 56;
    write_back_forgets_newer_is_noticed: WriteBackForgetsNewer in Ends from 207;
    unpin_before_read_is_noticed: UnpinBeforeRead in Reclaim from 284;
    unpin_before_base_is_noticed: UnpinBeforeBase in Reclaim from 1253;
    unpin_before_move_is_noticed: UnpinBeforeMove in Reclaim from 1089;
    reset_under_readers_is_noticed: ResetUnderReaders in Reclaim from 49;
    durable_too_early_is_noticed: DurableTooEarly in Commits from 81;
    sync_forgets_underway_is_noticed: SyncForgetsUnderway in Commits from 64;
    freeze_without_last_pass_is_noticed: FreezeWithoutLastPass in Commits from 32;
    buffer_while_taking_is_noticed: BufferWhileTaking in Commits from 1023;
    keep_commit_waiting_is_noticed: KeepCommitWaiting in Commits from 10;
    keep_turn_waiting_is_noticed: KeepTurnWaiting in Reclaim from 5;
    keep_idle_waiting_is_noticed: KeepIdleWaiting in Reclaim from 749;
    admit_anything_is_noticed: AdmitAnything in Full from 167;
    fill_anything_is_noticed: FillAnything in Full from 118;
    buffer_unreserved_is_noticed: BufferUnreserved in Ends from 152;
    delete_pinned_is_noticed: DeletePinned in Mixed from 4;
    link_stays_orphan_is_noticed: LinkStaysOrphan in Mixed from 203;
    replace_keeps_link_is_noticed: ReplaceKeepsLink in Mixed from 116;
    overwrite_unreserved_is_noticed: OverwriteUnreserved in Pieces from 2;
    window_loses_last_is_noticed: WindowLosesLast in Pieces from 2;
    copy_keeps_buffered_is_noticed: CopyKeepsBuffered in Copies from 8;
    keep_generation_is_noticed: KeepGeneration in Reclaim from 5;
    evict_discards_is_noticed: EvictDiscards in Refusals from 44;
    evict_changed_extent_is_noticed: EvictChangedExtent in Cuts from 3;
    forget_failed_truncation_is_noticed: ForgetFailedTruncation in Refusals from 30;
    grow_over_failed_is_noticed: GrowOverFailed in Refusals from 450;
    condemn_unread_zone_is_noticed: CondemnUnreadZone in Refusals from 114;
    refused_is_lost_is_noticed: RefusedIsLost in Refusals from 191;
    refused_is_hole_is_noticed: RefusedIsHole in Refusals from 30;
    pad_refused_base_is_noticed: PadRefusedBase in Refusals from 107;
}
