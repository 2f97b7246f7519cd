//! Mistakes made on purpose: the rig must notice them, each within some rounds.
//!
//! Each [`PlantedBug`] is a test of its own. It begins with a round that has noticed the mistake
//! before; if that one does not any more, because something has changed, others follow. `COUNT`
//! says how many.

use zonal_fs::furrow::PlantedBug;

use crate::{number, round};

/// Rounds that a mistake gets: less than a minute.
const ROUNDS: u64 = 200;

/// The first round that notices a mistake, with what it says. A round that fails without it says
/// nothing.
fn notice(bug: PlantedBug, first: u64) -> Option<(u64, String)> {
    let others = 1..=number("COUNT").unwrap_or(ROUNDS);
    std::iter::once(first).chain(others).find_map(|seed| {
        let why = round::run(seed, Some(bug)).err()?;
        round::run(seed, None).is_ok().then_some((seed, why))
    })
}

/// Says how a mistake is noticed.
fn is_noticed(bug: PlantedBug, first: u64) -> String {
    // For people who look for another first round.
    let first = number("SEED").unwrap_or(first);
    let (seed, why) = notice(bug, first).unwrap_or_else(|| panic!("{bug:?} is not noticed"));
    let why: String = why.chars().filter(|letter| *letter != '\n').take(160).collect();
    format!("{bug:?}: round {seed}: {why}")
}

/// Makes a test for each mistake. They run side by side.
macro_rules! noticed {
    ($($test:ident: $bug:ident in $first:literal;)*) => {
        $(
            #[test]
            #[ignore = "takes minutes where a change of Furrow moves what meets; run by cargo xtask test --all"]
            fn $test() {
                println!("{}", is_noticed(PlantedBug::$bug, $first));
            }
        )*

        #[test]
        fn every_planted_race_has_a_test() {
            assert_eq!([$(PlantedBug::$bug),*], PlantedBug::RACES);
        }
    };
}

noticed! {
    share_unwritten_is_noticed: ShareUnwritten in 1;
    share_unreaped_is_noticed: ShareUnreaped in 1;
    share_at_old_ends_is_noticed: ShareAtOldEnds in 1;
    publish_on_stale_is_noticed: PublishOnStale in 1;
    resize_on_stale_is_noticed: ResizeOnStale in 1;
    zero_on_stale_is_noticed: ZeroOnStale in 1;
    append_at_old_end_is_noticed: AppendAtOldEnd in 1;
    pad_over_new_end_is_noticed: PadOverNewEnd in 1;
    regrow_unreaped_is_noticed: RegrowUnreaped in 1;
    write_back_unwanted_is_noticed: WriteBackUnwanted in 1;
    write_back_forgets_newer_is_noticed: WriteBackForgetsNewer in 1;
    unpin_before_read_is_noticed: UnpinBeforeRead in 1;
    unpin_before_base_is_noticed: UnpinBeforeBase in 1;
    unpin_before_move_is_noticed: UnpinBeforeMove in 1;
    reset_under_readers_is_noticed: ResetUnderReaders in 1;
    durable_too_early_is_noticed: DurableTooEarly in 1;
    sync_forgets_underway_is_noticed: SyncForgetsUnderway in 1;
    freeze_without_last_pass_is_noticed: FreezeWithoutLastPass in 1;
    buffer_while_taking_is_noticed: BufferWhileTaking in 1;
    keep_commit_waiting_is_noticed: KeepCommitWaiting in 1;
    keep_turn_waiting_is_noticed: KeepTurnWaiting in 1;
    keep_idle_waiting_is_noticed: KeepIdleWaiting in 1;
    admit_anything_is_noticed: AdmitAnything in 1;
    fill_anything_is_noticed: FillAnything in 1;
    buffer_unreserved_is_noticed: BufferUnreserved in 1;
    delete_pinned_is_noticed: DeletePinned in 1;
    link_stays_orphan_is_noticed: LinkStaysOrphan in 1;
    replace_keeps_link_is_noticed: ReplaceKeepsLink in 1;
}
