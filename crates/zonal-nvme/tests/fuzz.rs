//! The fuzz target of commands and structures without a fuzzer: over the stored corpus, and over
//! mutations of it by seed.
//!
//! `SEED=n COUNT=n` choose the mutations and how many there are of each corpus file.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../fuzz/commands.rs"]
mod commands;

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn mutate(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..4) {
            0 => bytes.insert(at, rng.random()),
            1 => bytes.truncate(at),
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            _ if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            _ => bytes.push(rng.random()),
        }
    }
}

#[test]
fn no_bytes_make_decoding_panic() {
    let (seed, count) = (number("SEED", 1), number("COUNT", 300));
    println!("SEED={seed} COUNT={count}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus/nvme");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "the corpus is there");
    for (index, path) in (0_u64..).zip(&files) {
        let bytes = std::fs::read(path).unwrap();
        commands::nvme(&bytes);
        for turn in 0..count {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (index << 40) ^ turn);
            let mut mutant = bytes.clone();
            mutate(&mut rng, &mut mutant);
            let outcome = std::panic::catch_unwind(|| commands::nvme(&mutant));
            let file = path.display();
            assert!(outcome.is_ok(), "{file}: SEED={seed}, mutation {turn}: {mutant:?}");
        }
    }
}
