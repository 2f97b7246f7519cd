//! The fuzz target of block traces without a fuzzer: over the stored corpus, plain and compressed,
//! and over mutations of it by seed.
//!
//! `SEED=n COUNT=n` choose the mutations and how many there are of each corpus file.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../fuzz/block_traces.rs"]
mod block_traces;

use std::path::Path;

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use zonal::repeat;

/// A few bytes changed, lines exchanged, digits made many.
fn mutate(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..bytes.len().max(1)).min(bytes.len());
        match rng.random_range(0..6) {
            0 => bytes.insert(at, rng.random()),
            1 => bytes.truncate(at),
            2 => bytes.splice(at..at, *b"99999999999").for_each(drop),
            3 => bytes.insert(at, b"\n, +-.0D"[rng.random_range(0..8)]),
            _ if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            _ => bytes.extend_from_slice(b"\n\n"),
        }
    }
}

#[test]
fn fuzz_traces_never_panic() {
    let (seed, count) = (repeat::seed(1), repeat::count(400));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus/block_trace");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6, "the corpus is there");
    for (index, path) in (0u64..).zip(&files) {
        let plain = std::fs::read(path).unwrap();
        let compressed = zstd::encode_all(&plain[..], 1).unwrap();
        for (kind, bytes) in (0u64..).zip([plain, compressed]) {
            block_traces::block_trace(&bytes);
            for turn in 0..count {
                let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (index << 40) ^ (kind << 32) ^ turn);
                let mut mutant = bytes.clone();
                mutate(&mut rng, &mut mutant);
                let run = || block_traces::block_trace(&mutant);
                let outcome = std::panic::catch_unwind(run);
                let file = path.display();
                assert!(outcome.is_ok(), "{file}: SEED={seed}, mutation {turn}: {mutant:?}");
            }
        }
    }
}
