//! Power cuts under a random load: RocksDB opens, all synced data is there, and the store shows the
//! state after some operation, so that no deleted key has come back.
//!
//! `SEED` in the environment chooses loads and cuts; it is printed. `COUNT` is the number of cuts.

use std::collections::BTreeMap;

use zonal::repeat;

use crate::place::{Kind, Place};

/// Operations of a load that is not cut off.
const OPERATIONS: u64 = 1500;

/// The same numbers as in stress.cc.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Keys, each with the number of the operation that has put it.
type Keys = BTreeMap<u64, u64>;

/// The state after each operation of a load; the first one is the state before the load.
fn states(seed: u64) -> Vec<Keys> {
    let (mut random, mut keys) = (Random(seed), Keys::new());
    let mut states = vec![keys.clone()];
    for number in 1..=OPERATIONS {
        let key = random.next() % 200;
        let deletes = random.next().is_multiple_of(5);
        // Whether it is synced, and how long it is.
        random.next();
        random.next();
        if deletes {
            keys.remove(&key);
        } else {
            keys.insert(key, number);
        }
        states.push(keys.clone());
    }
    states
}

/// The last operation that has returned, and the last one that was synced.
fn acknowledged(printed: &str) -> (usize, usize) {
    let lines = printed.lines().filter_map(|line| line.split_once(' '));
    lines.fold((0, 0), |(_, synced), (number, is_synced)| {
        let number = number.parse().unwrap();
        (number, if is_synced == "1" { number } else { synced })
    })
}

/// The difference between a store and the state after operation `first`.
fn difference(states: &[Keys], first: usize, found: &Keys) -> String {
    if let Some(number) = states.iter().rposition(|state| state == found) {
        return format!("after {number}");
    }
    let expected = &states[first];
    let keys = expected.keys().chain(found.keys().filter(|key| !expected.contains_key(key)));
    let differing = keys.filter(|&key| expected.get(key) != found.get(key));
    let lines =
        differing.map(|key| format!("{key}: {:?}, not {:?}", found.get(key), expected.get(key)));
    lines.collect::<Vec<_>>().join("; ")
}

/// Cuts the power this number of times on each kind of drive.
fn cut_each(default: u64) {
    for kind in Kind::ALL {
        cut(kind, default);
    }
}

/// Cuts the power this number of times, each time in a load of its own.
fn cut(kind: Kind, default: u64) {
    let Some(place) = Place::new(kind, "zone=1M,zones=64,active=12,open=12") else { return };
    let program = place.compile("tests/db/stress.cc");
    let (seed, count) = (repeat::seed(1), repeat::count(default));
    let mut random = Random(seed);
    let run = |arguments: &[&str]| place.compiled(&program).args(arguments).output().unwrap();
    let (mut loads, mut cut_off, mut kept) = (0, 0, 0);
    while cut_off < count {
        loads += 1;
        assert!(loads <= 4 * count + 10, "only {cut_off} of {loads} loads were cut off");
        place.make_again("zone=1M,zones=64,active=12,open=12");
        let (load, fault) = (random.next() % 1_000_000, random.next() % 1_000_000);
        // Writes are the most; flushes and resets are where promises are kept.
        let (operation, most) =
            [("write", 1200), ("flush", 550), ("manage", 30)][(random.next() % 3) as usize];
        let nth = 1 + random.next() % most;
        let layer = format!("fault({operation},nth={nth},power-cut;seed={fault}):");
        let what = format!("SEED={seed}, number {loads}: load {load}, {layer}");
        // Memory does not survive a power cut.
        let uri = place.uri_through(&layer, "unsynced=off&memory=64M");
        let loaded = run(&["load", &uri, &load.to_string(), &OPERATIONS.to_string()]);
        let (last, synced) = acknowledged(&String::from_utf8_lossy(&loaded.stdout));
        let said = String::from_utf8_lossy(&loaded.stderr).into_owned();
        // A cut while the store is closed is no error to RocksDB, and no orderly end.
        let was_cut = !loaded.status.success() || said.contains("the power is cut");
        let is_known = matches!(loaded.status.code(), Some(0 | 3));
        assert!(is_known, "{what}: ended with {}\n{said}", loaded.status);
        let read = run(&["read", &place.uri()]);
        let error = String::from_utf8_lossy(&read.stderr).into_owned();
        assert!(read.status.success(), "{what}: after operation {last}\n{error}\n{said}");
        // The next open has repaired the drive.
        place.check();
        let found: Keys = String::from_utf8_lossy(&read.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(key, number)| (key.parse().unwrap(), number.parse().unwrap()))
            .collect();
        let states = states(load);
        // The operation that was under way may be there too. An orderly end keeps all.
        let (first, end) = if was_cut { (synced, last + 1) } else { (last, last) };
        let legal = &states[first..=end.min(states.len() - 1)];
        assert!(
            legal.contains(&found),
            "{what}: not what was there after {first} to {end}, but {}\n{said}",
            difference(&states, first, &found)
        );
        cut_off += u64::from(was_cut);
        kept += u64::from(was_cut && synced > 0);
    }
    println!("{cut_off} cuts in {loads} loads, {kept} of them after something was synced");
    assert!(kept * 4 > count, "only {kept} cuts came after something was synced");
}

#[test]
fn power_cut_keeps_synced_and_revives_nothing() {
    cut_each(6);
}

#[test]
#[ignore = "hundreds of power cuts; run by cargo xtask test --all"]
fn power_cut_hundreds_keep_synced_and_revive_nothing() {
    cut_each(150);
}

#[test]
#[ignore = "thousands of power cuts; run by cargo xtask test --soak"]
fn power_cut_thousands_keep_synced_and_revive_nothing() {
    cut_each(3000);
}
