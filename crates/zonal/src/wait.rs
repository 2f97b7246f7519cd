//! How tests wait for another thread or process: as long as it takes. `cargo xtask test` ends a
//! program that makes no progress.

use std::thread;
use std::time::Duration;

/// The first pause between two looks, and the longest: a thread that waits long takes next to no
/// processor time.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Looks until `is_so` holds. A test should fail before it waits in vain, where it can.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let mut pause = PAUSE;
    while !is_so() {
        thread::park_timeout(pause);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_until_looks_until_true() {
        let mut looks = 0;
        wait_until(|| {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }
}
