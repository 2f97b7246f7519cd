//! Mistakes made on purpose: the rig must notice them, each within some rounds.
//!
//! `BUG` in the environment names the only one to try, `COUNT` says how many rounds each gets.

use zonal_fs::furrow::PlantedBug;

use crate::{number, round};

/// Rounds that a mistake gets.
const ROUNDS: u64 = 150;

/// The first round that notices a mistake, with what it says. A round that fails without it says
/// nothing.
fn notice(bug: PlantedBug, first: u64, rounds: u64) -> Option<(u64, String)> {
    for seed in first..first + rounds {
        if let Err(why) = round::run(seed, Some(bug))
            && round::run(seed, None).is_ok()
        {
            return Some((seed, why));
        }
    }
    None
}

#[test]
#[ignore = "takes many minutes; run by cargo xtask test --soak"]
fn the_rig_notices_planted_mistakes() {
    // Always the same rounds: which of them notices a mistake is a matter of chance.
    let (first, rounds) = (1, number("COUNT").unwrap_or(ROUNDS));
    let only = std::env::var("BUG").ok();
    let tried = |bug: &PlantedBug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    let bugs: Vec<PlantedBug> = PlantedBug::RACES.into_iter().filter(tried).collect();
    let mut missed = Vec::new();
    for &bug in &bugs {
        match notice(bug, first, rounds) {
            Some((seed, why)) => {
                let why: String = why.chars().filter(|letter| *letter != '\n').take(160).collect();
                println!("{bug:?}: round {seed}: {why}");
            }
            None => missed.push(bug),
        }
    }
    println!("planted mistakes: {} of {} noticed", bugs.len() - missed.len(), bugs.len());
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
