//! Very many files in one directory: it stays fast, and everything is found again.

use crate::mounted;
use std::fs::{self, File};
use std::time::Duration;

use zonal::{Clock, SystemClock};

/// Files to make: `FILES` from the environment; a million takes minutes.
fn count() -> u64 {
    std::env::var("FILES").map_or(100_000, |text| text.parse().expect("FILES is a number"))
}

/// Slices of a tenth of the files, of which the fastest counts.
const SLICES: u64 = 50;

#[test]
#[ignore = "needs root; run by cargo xtask test"]
fn directory_of_many_files_works() {
    directory_of(10_000);
}

#[test]
#[ignore = "needs root and minutes; run by cargo xtask test --all"]
fn directory_of_very_many_files_works() {
    directory_of(count());
}

fn directory_of(count: u64) {
    let Some(mut mounted) = mounted::mount() else { return };
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let tenth = count / 10;
    let clock = SystemClock::new();
    let mut fastest = Vec::new();
    for part in 0..10 {
        let slice = |number: u64| part * tenth + number * tenth / SLICES;
        let took = (0..SLICES).map(|number| {
            let start = clock.monotonic_ns();
            for number in slice(number)..slice(number + 1) {
                File::create_new(dir.join(format!("file-{number}"))).unwrap();
            }
            Duration::from_nanos(clock.monotonic_ns() - start)
        });
        fastest.push(took.min().unwrap());
    }
    println!("create, the fastest {SLICES}th of each tenth of {count}: {fastest:?}");
    // The machine is shared: this is about growth with the number of entries, not about speed. Of
    // many slices one has the processor to itself, however busy it is.
    assert!(fastest[9] < fastest[0] * 10, "the last tenth takes much longer than the first");

    mounted.remount("");
    let start = clock.monotonic_ns();
    let listed = fs::read_dir(&dir).unwrap().count();
    println!("list: {:?}", Duration::from_nanos(clock.monotonic_ns() - start));
    assert_eq!(listed as u64, tenth * 10);
    let start = clock.monotonic_ns();
    for number in (0..tenth * 10).step_by(97) {
        assert!(fs::metadata(dir.join(format!("file-{number}"))).unwrap().is_file());
    }
    println!("stat of every 97th: {:?}", Duration::from_nanos(clock.monotonic_ns() - start));
    let start = clock.monotonic_ns();
    fs::remove_dir_all(&dir).unwrap();
    println!("remove: {:?}", Duration::from_nanos(clock.monotonic_ns() - start));
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
}
