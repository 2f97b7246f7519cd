//! Mutants of bytes by seed, for tests that run a fuzz target without a fuzzer.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Changes a few bytes.
pub(crate) fn mutate(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
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
