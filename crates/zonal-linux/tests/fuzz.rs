//! The fuzz target of SCSI commands and answers without a fuzzer: over the stored corpus, and over
//! mutations of it by seed.
//!
//! `SEED=n COUNT=n` choose the mutations and how many there are of each corpus file.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../fuzz/mutants.rs"]
mod mutants;
#[path = "../../../fuzz/scsi.rs"]
mod scsi;

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use zonal::repeat;

use mutants::mutate;

#[test]
fn fuzz_bytes_never_panic_decoder() {
    let (seed, count) = (repeat::seed(1), repeat::count(300));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/corpus/scsi");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 10, "the corpus is there");
    for (index, path) in (0_u64..).zip(&files) {
        let bytes = std::fs::read(path).unwrap();
        scsi::scsi(&bytes);
        for turn in 0..count {
            let mut rng = ChaCha8Rng::seed_from_u64(seed ^ (index << 40) ^ turn);
            let mut mutant = bytes.clone();
            mutate(&mut rng, &mut mutant);
            let outcome = std::panic::catch_unwind(|| scsi::scsi(&mutant));
            let file = path.display();
            assert!(outcome.is_ok(), "{file}: SEED={seed}, mutation {turn}: {mutant:?}");
        }
    }
}
