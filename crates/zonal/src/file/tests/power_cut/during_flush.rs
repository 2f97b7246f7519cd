//! Zones that are reset and written while a flush waits for the host.

use std::sync::mpsc;

use super::*;

/// The changes of the zone before the flush, during it, and after it.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Blocks that an earlier flush made durable.
    durable: u64,
    /// Blocks after these, for the flush that is interrupted.
    flushed: u64,
    /// Blocks after the reset in its middle.
    during: u64,
    /// Whether another flush follows.
    again: bool,
}

fn blocks(stamps: std::ops::Range<u64>) -> Vec<u8> {
    stamps.flat_map(block).collect()
}

/// Runs a case, cuts the power, and checks D4: the zone holds all of its first life, if the reset
/// is lost, or a beginning of the second one.
fn check(case: Case, seed: u64) {
    let (host, zone) = (SharedHost::default(), ZoneId::new(SPREAD));
    let description = description();
    host.lock().len = Layout::new(&description).file_len;
    for copy in [0, 1] {
        let header = encode_header(&description, copy);
        host.write_durable_at(u64::from(copy) * PAGE, header.as_bytes()).unwrap();
    }
    let drive = Arc::new(open(&host, 0).unwrap());
    let append = |stamps: std::ops::Range<u64>| {
        if !stamps.is_empty() {
            drive.append(zone, &blocks(stamps)).unwrap();
        }
    };
    let (first, second) = (1..1 + case.durable + case.flushed, 100..100 + case.during);
    append(1..1 + case.durable);
    drive.flush().unwrap();
    append(1 + case.durable..first.end);
    let (meanwhile, data) = (Arc::clone(&drive), blocks(second.clone()));
    host.lock().during_sync = Some(Box::new(move || {
        let (sender, done) = mpsc::channel();
        std::thread::spawn(move || {
            meanwhile.manage(Select::One(zone), ZoneAction::Reset).unwrap();
            meanwhile.append(zone, &data).unwrap();
            sender.send(()).unwrap();
        });
        // If a write after a reset waits for the flush, nothing ends this.
        done.recv().expect("no panic");
    }));
    drive.flush().unwrap();
    if case.again {
        drive.flush().unwrap();
    }
    host.lock().cut(&mut ChaCha8Rng::seed_from_u64(seed));
    let after = open(&host, 1).unwrap();
    std::mem::forget(drive);
    let mut found = vec![0; CAPACITY * SECTOR];
    let zone = after.zone(zone).unwrap();
    after.read(zone.start, &mut found).unwrap();
    found.truncate(usize::try_from(zone.written().unwrap().get()).unwrap() * SECTOR);
    let second = blocks(second);
    let possible = if case.again {
        found == second
    } else {
        found == blocks(first) || second.starts_with(&found)
    };
    assert!(possible, "{case:?}, SEED={seed}: {} blocks", found.len() / SECTOR);
}

#[test]
fn zone_reset_and_written_during_flush_is_safe() {
    for seed in 0..20 {
        for (durable, flushed) in [(0, 3), (2, 3), (5, 1)] {
            for again in [false, true] {
                check(Case { durable, flushed, during: 1 + seed % 4, again }, seed);
            }
        }
    }
}
