//! The fuzz targets without a fuzzer: over the stored corpus, and over mutations of it by seed.
//!
//! `SEED=n COUNT=n` choose the mutations and how many there are of each corpus file.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::path::PathBuf;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use zonal::repeat;

use targets::TARGETS;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus");
    let entries = std::fs::read_dir(folder.join(target)).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn mutate(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..5) {
        let position = rng.random_range(0..=bytes.len());
        match rng.random_range(0..5) {
            0 => bytes.insert(position, rng.random()),
            1 if position < bytes.len() => drop(bytes.remove(position)),
            2 => bytes.truncate(position.max(1)),
            3 if position < bytes.len() => bytes[position] ^= 1 << rng.random_range(0..8),
            _ if position < bytes.len() => {
                bytes[position] = *[0, 1, 0x7f, 0x80, 0xff].get(rng.random_range(0..5)).unwrap();
            }
            _ => bytes.push(rng.random()),
        }
    }
}

#[test]
fn fuzz_targets_survive_any_bytes() {
    let (seed, count) = (repeat::seed(1), repeat::count(300));
    for (name, body) in TARGETS {
        let files = corpus(name);
        assert!(!files.is_empty(), "fixtures/corpus/{name} is empty");
        for (index, (path, bytes)) in (0u64..).zip(&files) {
            body(bytes);
            for turn in 0..count {
                let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (index << 40) ^ turn);
                let mut mutant = bytes.clone();
                mutate(&mut rng, &mut mutant);
                let outcome = std::panic::catch_unwind(|| body(&mutant));
                let file = path.display();
                assert!(
                    outcome.is_ok(),
                    "{name}, {file}: SEED={seed}, mutation {turn}: {mutant:?}"
                );
            }
        }
    }
}

/// Random edits of sound images: the four structures, a few bytes each.
#[test]
fn fuzz_images_with_right_checksums_never_panic_mount() {
    let (seed, count) = (repeat::seed(1), repeat::count(300));
    for turn in 0..count * 2 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1_000_003) ^ turn);
        let edits = 1 + 4 * rng.random_range(1..4);
        let data: Vec<u8> = (0..edits).map(|_| rng.random()).collect();
        let outcome = std::panic::catch_unwind(|| targets::mount_image(&data));
        assert!(outcome.is_ok(), "SEED={seed}, image {turn}: {data:?}");
    }
}
