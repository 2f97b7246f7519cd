//! Sequential write preferred zones in a file whose host loses power, or whose process is killed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zerocopy::IntoBytes;

use super::{SharedHost, open};
use crate::file::backing::Backing;
use crate::file::format::{Description, Layout, PAGE, encode_header};
use crate::tests::preferred_shadow::{self, Loss, Shadow};
use crate::{FileDrive, Rules, repeat};

fn create(host: &SharedHost) -> FileDrive {
    let geometry = preferred_shadow::geometry();
    let drive = Description { geometry, rules: Rules::Zbc, uuid: [9; 16], journal_len: PAGE };
    host.lock().len = Layout::new(&drive).file_len;
    for copy in [0, 1] {
        let header = encode_header(&drive, copy);
        host.write_durable_at(u64::from(copy) * PAGE, header.as_bytes()).unwrap();
    }
    open(host, 0).unwrap()
}

/// One life of a drive: requests, a kill now and then, and a cut. Returns how many zones lost
/// something.
fn run(seed: u64) -> usize {
    let (host, mut rng) = (SharedHost::default(), ChaCha8Rng::seed_from_u64(seed));
    let mut drive = create(&host);
    let mut shadow = Shadow::new();
    let mut lost = 0;
    for boot in 1..4 {
        for _ in 0..rng.random_range(0..3) {
            for _ in 0..rng.random_range(0..25) {
                shadow.step(&drive, &mut |limit| rng.random_range(0..limit)).unwrap();
            }
            let next = open(&host, boot - 1).unwrap();
            std::mem::forget(std::mem::replace(&mut drive, next));
            shadow.check(&drive, Loss::Nothing);
        }
        host.lock().operations_left = Some(rng.random_range(0..120));
        while shadow.step(&drive, &mut |limit| rng.random_range(0..limit)).is_ok() {}
        host.lock().cut(&mut rng);
        let next = open(&host, boot).unwrap();
        std::mem::forget(std::mem::replace(&mut drive, next));
        shadow.check(&drive, Loss::Unflushed);
        lost += shadow.lost(&drive);
        shadow.rebase(&drive);
    }
    std::mem::forget(drive);
    lost
}

#[test]
fn preferred_zones_survive_cuts_and_kills() {
    let first = repeat::seed(0);
    let mut lossy = 0;
    for seed in first..first + 600 {
        let outcome = std::panic::catch_unwind(|| run(seed));
        lossy += usize::from(outcome.unwrap_or_else(|_| panic!("failed with SEED={seed}")) > 0);
    }
    assert!(lossy > 200, "{lossy} runs lost something");
}
