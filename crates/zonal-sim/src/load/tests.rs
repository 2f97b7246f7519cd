//! Generators by their statistics. `SEED=n` chooses the seed.

use super::*;
use crate::config::{Drive, Permutation, Workload as Wanted};
use crate::flash::Flash;

/// A drive of 2048 superblocks of 384 KiB.
fn config(workload: Wanted) -> Config {
    let seed = zonal::repeat::seed(1);
    let flash = Flash {
        channels: 2,
        dies_per_channel: 1,
        programs_per_block: 2,
        superblocks: 2048,
        ..Flash::default()
    };
    let drive = Drive { op: 0.28, ..Drive::default() };
    Config { seed, flash, drive, workload, ..Config::default() }
}

fn requests(config: &Config, count: usize) -> Vec<Request> {
    let layout = config.layout().expect("a possible drive");
    let mut workload = build(config, &layout).expect("a possible workload");
    let mut batch = Vec::with_capacity(1000);
    let mut all = Vec::new();
    while all.len() < count {
        workload.fill(&mut batch).expect("generators do not fail");
        assert_eq!(batch.len(), 1000, "generators are endless");
        all.extend_from_slice(&batch);
    }
    let limit = layout.user_bytes();
    for request in &all {
        assert!(request.bytes > 0 && request.offset + u64::from(request.bytes) <= limit);
    }
    all
}

/// How often each place is written.
fn counts(config: &Config, count: usize) -> Vec<u32> {
    let layout = config.layout().expect("a possible drive");
    let io = config.workload.io.0;
    let mut counts = vec![0; usize::try_from(layout.user_bytes() / io).expect("few")];
    for request in requests(config, count) {
        assert_eq!((request.op, request.offset % io), (Op::Write, 0));
        counts[usize::try_from(request.offset / io).expect("few")] += 1;
    }
    counts
}

/// Chi square over its degrees of freedom, less 1, in standard deviations.
fn surprise(counts: &[u32], expected: impl Fn(usize) -> f64) -> f64 {
    let terms = counts.iter().enumerate().map(|(place, count)| {
        let wanted = expected(place);
        (f64::from(*count) - wanted).powi(2) / wanted
    });
    let degrees = f64::from(u32::try_from(counts.len()).expect("few")) - 1.0;
    (terms.sum::<f64>() - degrees) / (2.0 * degrees).sqrt()
}

#[test]
fn uniform_pattern_reaches_every_place_alike() {
    let config = config(Wanted { io: Size(64 << 10), ..Wanted::default() });
    let counts = counts(&config, 1_000_000);
    let mean = 1e6 / f64::from(u32::try_from(counts.len()).expect("few"));
    let surprise = surprise(&counts, |_| mean);
    assert!(surprise.abs() < 5.0, "{surprise}");
}

#[test]
fn sequential_pattern_wraps_around() {
    let kind = Pattern::Sequential;
    let config = config(Wanted { kind, io: Size(64 << 10), ..Wanted::default() });
    let counts = counts(&config, 100_000);
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(least.zip(most).is_some_and(|(least, most)| most - least <= 1));
    let first = requests(&config, 3);
    assert_eq!([first[0].offset, first[1].offset, first[2].offset], [0, 64 << 10, 128 << 10]);
}

#[test]
fn zipf_ranks_have_their_probabilities() {
    let kind = Pattern::Zipf;
    let config = config(Wanted { kind, io: Size(64 << 10), theta: 0.9, ..Wanted::default() });
    let mut counts = counts(&config, 1_000_000);
    let neighbours = counts.windows(2).filter(|pair| pair[0] > 4000 && pair[1] > 4000).count();
    assert!(neighbours <= 2, "the hottest places are spread: {neighbours}");
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let weight = |rank: usize| f64::from(u32::try_from(rank + 1).expect("few")).powf(-0.9);
    let all: f64 = (0..counts.len()).map(weight).sum();
    for (rank, count) in counts.iter().take(100).enumerate() {
        let (wanted, got) = (1e6 * weight(rank) / all, f64::from(*count));
        // Sorting by count moves neighbours that are nearly alike: bounds are wide there.
        assert!((got - wanted).abs() < 6.0 * wanted.sqrt(), "rank {rank}: {got} for {wanted}");
    }
    let tail: f64 = counts[100..].iter().copied().map(f64::from).sum();
    let wanted: f64 = (100..counts.len()).map(weight).sum::<f64>() * 1e6 / all;
    assert!((tail - wanted).abs() < 6.0 * wanted.sqrt(), "{tail} for {wanted}");
}

#[test]
fn hot_cold_pattern_gives_hot_share_and_spreads_it() {
    let kind = Pattern::HotCold;
    let mut config = config(Wanted { kind, io: Size(64 << 10), ..Wanted::default() });
    config.gc.streams = 2;
    let all = requests(&config, 1_000_000);
    let layout = config.layout().expect("a possible drive");
    let places = usize::try_from(layout.user_bytes() >> 16).expect("few");
    let (mut hot, mut counts) = (vec![0_u32; places], vec![0_u32; places]);
    for request in &all {
        let place = usize::try_from(request.offset >> 16).expect("few");
        counts[place] += 1;
        hot[place] += u32::from(request.handle == 0);
    }
    let class = |place: usize| hot[place] > 0;
    assert!((0..places).all(|place| hot[place] == 0 || hot[place] == counts[place]));
    let hot_places = (0..places).filter(|place| class(*place)).count();
    assert_eq!(hot_places, (places * 2 + 5) / 10);
    let count = |many: usize| f64::from(u32::try_from(many).expect("few"));
    let surprise = surprise(&counts, |place| {
        if class(place) { 0.8e6 / count(hot_places) } else { 0.2e6 / count(places - hot_places) }
    });
    assert!(surprise.abs() < 5.0, "{surprise}");
    // In every hundredth of the drive about a fifth is hot.
    for part in (0..places).collect::<Vec<_>>().chunks(places / 100) {
        let hot = part.iter().filter(|place| class(**place)).count();
        assert!((count(hot) / count(part.len()) - 0.2).abs() < 0.03);
    }
}

#[test]
fn mixed_pattern_reads_by_its_share() {
    let kind = Pattern::Mixed;
    let config = config(Wanted { kind, read_share: 0.3, ..Wanted::default() });
    let reads = requests(&config, 1_000_000).iter().filter(|read| read.op == Op::Read).count();
    assert!((298_000..302_000).contains(&reads), "{reads}");
}

/// Follows writes of zones: no zone is open twice, each is written in order and to its end.
/// Returns in which order zones were begun.
fn zones(config: &Config, count: usize) -> Vec<u64> {
    let layout = config.layout().expect("a possible drive");
    let zone_bytes = config.workload.zone.0;
    let (mut begun, mut open) = (Vec::new(), std::collections::BTreeMap::new());
    for request in requests(config, count) {
        let zone = request.offset / zone_bytes;
        if request.op == Op::Reset {
            assert_eq!(request.offset % zone_bytes, 0);
            assert!(open.insert(zone, request.offset).is_none(), "zone {zone} is open");
            begun.push(zone);
            continue;
        }
        let at = open.get_mut(&zone).expect("only open zones are written");
        assert_eq!(request.offset, *at, "in order");
        *at += u64::from(request.bytes);
        if *at == layout.user_bytes().min((zone + 1) * zone_bytes) {
            open.remove(&zone);
        }
        assert!(open.len() <= config.workload.open_zones as usize);
    }
    begun
}

#[test]
fn zones_pattern_is_sequential_and_opens_none_twice() {
    for permutation in [Permutation::Any, Permutation::EachOnce] {
        // A zone is no multiple of a write, and the last one is short.
        let (io, zone) = (Size(64 << 10), Size(1000 << 10));
        let kind = Pattern::Zones;
        let config = config(Wanted { kind, io, zone, permutation, ..Wanted::default() });
        let begun = zones(&config, 200_000);
        let zones = config.layout().expect("a possible drive").user_bytes().div_ceil(zone.0);
        let mut counts = vec![0_u32; usize::try_from(zones).expect("few")];
        for zone in begun {
            counts[usize::try_from(zone).expect("few")] += 1;
        }
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let (least, most) = least.zip(most).expect("there are zones");
        match permutation {
            Permutation::EachOnce => assert!(most - least <= 1, "each pass has each zone once"),
            Permutation::Any => {
                assert!(most - least > 4, "{least} to {most}");
                let mean = f64::from(counts.iter().sum::<u32>())
                    / f64::from(u32::try_from(counts.len()).expect("few"));
                assert!(surprise(&counts, |_| mean).abs() < 5.0);
            }
        }
    }
}

#[test]
fn zones_pattern_writes_to_random_open_zone() {
    let (io, zone, kind) = (Size(64 << 10), Size(6 << 20), Pattern::Zones);
    let mut config = config(Wanted { kind, io, zone, open_zones: 4, ..Wanted::default() });
    config.gc.streams = 4;
    let all = requests(&config, 100_000);
    let writes = all.iter().filter(|request| request.op == Op::Write);
    let mut counts = [0_u32; 4];
    for write in writes {
        counts[usize::from(write.handle)] += 1;
    }
    let mean = f64::from(counts.iter().sum::<u32>()) / 4.0;
    assert!(surprise(&counts, |_| mean).abs() < 5.0, "{counts:?}");
}

#[test]
fn files_pattern_never_overlaps_and_takes_its_share() {
    let mut config = config(Wanted { kind: Pattern::Files, fill: 0.8, ..Wanted::default() });
    config.gc.streams = 4;
    let all = requests(&config, 2_000_000);
    let places = config.layout().expect("a possible drive").user_units as usize;
    // The handle of the last write of each place, and whether it holds data.
    let (mut holds, mut used) = (vec![false; places], 0_usize);
    let (mut written, mut writes, mut trims) = ([0_u32; 4], 0_u32, 0_u64);
    let mut lives = vec![(0_u32, 0_u8); places];
    let mut life = [(0_f64, 0_f64); 4];
    for request in &all {
        let first = usize::try_from(request.offset / 4096).expect("few");
        for place in first..first + request.bytes as usize / 4096 {
            let (born, class) = lives[place];
            if holds[place] {
                let sum = &mut life[usize::from(class)];
                *sum = (sum.0 + f64::from(writes - born), sum.1 + 1.0);
            }
            match request.op {
                Op::Write => {
                    used += usize::from(!std::mem::replace(&mut holds[place], true));
                    lives[place] = (writes, request.handle);
                }
                Op::Trim => {
                    assert!(std::mem::replace(&mut holds[place], false), "only data is trimmed");
                    (used, trims) = (used - 1, trims + 1);
                }
                Op::Read | Op::Reset | Op::OpenArea | Op::Commit | Op::Finish => {
                    panic!("{request:?}")
                }
            }
        }
        if request.op == Op::Write {
            writes += 1;
            written[usize::from(request.handle)] += 1;
        }
        assert!(used * 10 <= places * 8);
    }
    assert!(used * 10 > places * 7, "{used} of {places}");
    assert!(trims > u64::from(writes) / 4, "{trims} of {writes} places die by TRIM");
    for share in written.map(|count| f64::from(count) / f64::from(writes)) {
        assert!((share - 0.25).abs() < 0.05, "classes are written at {written:?}");
    }
    // The longest lives are cut off by the end of the run.
    let mean = life.map(|(sum, count)| sum / count);
    for pair in mean[..3].windows(2) {
        assert!((5.0..9.5).contains(&(pair[1] / pair[0])), "mean lives {mean:?}");
    }
    println!("used {used} of {places}, mean lives {mean:?}, written {written:?}");
}

#[test]
fn patterns_repeat_with_seed() {
    for kind in [
        Pattern::Uniform,
        Pattern::Zipf,
        Pattern::HotCold,
        Pattern::Mixed,
        Pattern::Files,
        Pattern::Zones,
    ] {
        let mut config = config(Wanted { kind, ..Wanted::default() });
        let (one, two) = (requests(&config, 10_000), requests(&config, 10_000));
        assert_eq!(one, two, "{kind:?}");
        config.seed += 1;
        assert_ne!(one, requests(&config, 10_000), "{kind:?}");
    }
}

#[test]
fn workload_impossible_is_refused() {
    let zones = |zone, open_zones| Wanted {
        kind: Pattern::Zones,
        zone: Size(zone),
        open_zones,
        ..Wanted::default()
    };
    for (workload, said) in [
        (Wanted { io: Size(1 << 30), ..Wanted::default() }, "workload.io = 1GiB"),
        (zones(5000, 14), "workload.zone = 5kB"),
        (zones(256 << 20, 4), "workload.open_zones = 4"),
    ] {
        let config = config(workload);
        let layout = config.layout().expect("a possible drive");
        let error = build(&config, &layout).err().expect("refused").to_string();
        assert!(error.starts_with(said), "{error}");
    }
}
