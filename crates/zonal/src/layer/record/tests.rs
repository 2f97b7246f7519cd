//! The states that a cut leaves, on a drive of eight small zones, the first of them conventional.
#![expect(clippy::cast_possible_truncation, reason = "random numbers below small limits")]

use super::*;
use crate::{BlockSize, Geometry, GeometrySpec, ZoneCond, ZoneKind, ZoneRuns};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const BLOCK: usize = 512;
const ZONE: ZoneId = ZoneId::new(3);

fn recorder(max_active: Option<u32>) -> Recorder {
    let geometry = Geometry::new(GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(8 * 10),
        zone_size: LbaCount::new(10),
        zone_capacity: LbaCount::new(9),
        conventional_zones: ZoneRuns::leading(1),
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: max_active,
        max_active,
        max_append: LbaCount::new(8),
    });
    Recorder::new(Image::empty(&geometry.unwrap()))
}

fn at_end(recording: &Recording) -> Outage<'_> {
    let mut outage = Outage::at_start(recording);
    while outage.step() {}
    outage
}

fn zone_data(image: &Image, zone: ZoneId) -> (ZoneCond, Vec<u8>) {
    let drive = image.power_on();
    let zone = drive.zone(zone).unwrap();
    let mut data = vec![0; 9 * BLOCK];
    drive.read(zone.start, &mut data).unwrap();
    data.truncate(image.written(zone.id).get() as usize * BLOCK);
    (zone.cond, data)
}

#[test]
fn zones_keep_prefix_of_their_own() {
    let recorder = recorder(None);
    for round in 1..=2 {
        for zone in [2, 3] {
            recorder.append(ZoneId::new(zone), &[round; 2 * BLOCK]).unwrap();
        }
    }
    let recording = recorder.finish();
    let outage = at_end(&recording);
    assert_eq!(outage.choices(&[Tail::Whole]).count(), 25);
    let lengths: Vec<_> = outage
        .states()
        .map(|image| (zone_data(&image, ZoneId::new(2)).1, zone_data(&image, ZONE).1))
        .collect();
    assert_eq!(lengths.len(), 25);
    let whole = [[1; 2 * BLOCK], [2; 2 * BLOCK]].concat();
    for (first, second) in lengths {
        assert!(whole.starts_with(&first) && whole.starts_with(&second));
    }
}

#[test]
fn reset_may_not_have_happened() {
    let recorder = recorder(None);
    recorder.append(ZONE, &[1; 3 * BLOCK]).unwrap();
    recorder.manage(Select::One(ZONE), ZoneAction::Finish).unwrap();
    recorder.flush().unwrap();
    recorder.manage(Select::One(ZONE), ZoneAction::Reset).unwrap();
    recorder.append(ZONE, &[2; BLOCK]).unwrap();
    let recording = recorder.finish();
    let states: Vec<_> = at_end(&recording).states().map(|image| zone_data(&image, ZONE)).collect();
    assert_eq!(states[0], (ZoneCond::Full, vec![1; 3 * BLOCK]));
    assert_eq!(states[1], (ZoneCond::Empty, vec![]));
    assert_eq!(states[2], (ZoneCond::Closed, vec![2; BLOCK]));
    assert_eq!(states.len(), 3);
}

#[test]
fn flush_leaves_no_doubt() {
    let recorder = recorder(None);
    recorder.append(ZONE, &[1; 3 * BLOCK]).unwrap();
    recorder.flush().unwrap();
    let recording = recorder.finish();
    let mut outage = Outage::at_start(&recording);
    assert_eq!(outage.choices(&[Tail::Whole]).count(), 1);
    assert!(outage.step());
    assert_eq!(outage.choices(&[Tail::Whole]).count(), 4);
    assert!(outage.step());
    assert_eq!((outage.choices(&[Tail::Whole]).count(), outage.at()), (1, 2));
    assert!(!outage.step());
    assert_eq!(zone_data(&outage.everything(), ZONE), (ZoneCond::Closed, vec![1; 3 * BLOCK]));
}

#[test]
fn choices_new_are_of_newest_change() {
    let recorder = recorder(None);
    recorder.append(ZONE, &[1; 2 * BLOCK]).unwrap();
    recorder.append(ZoneId::new(2), &[1; BLOCK]).unwrap();
    recorder.append(ZONE, &[2; 3 * BLOCK]).unwrap();
    recorder.flush().unwrap();
    let recording = recorder.finish();
    let mut outage = Outage::at_start(&recording);
    let mut counts = vec![];
    while outage.step() {
        counts.push(outage.new_choices(&[Tail::Whole]).count());
    }
    assert_eq!(counts, [2, 3, 2 * 3, 1], "with the beginning 12, which is 6 * 2");
}

#[test]
fn block_torn_is_neither_old_nor_new() {
    let recorder = recorder(None);
    recorder.append(ZONE, &[1; 2 * BLOCK]).unwrap();
    let recording = recorder.finish();
    let outage = at_end(&recording);
    let cut = Cut { whole: 0, blocks: LbaCount::new(2), tail: Tail::Torn, kept: None };
    let image = outage.state(&BTreeMap::from([(ZONE, cut)])).unwrap();
    let (_, data) = zone_data(&image, ZONE);
    let whole = BLOCK + BLOCK / 32;
    assert_eq!(data[..whole], vec![1; whole]);
    assert_eq!(data[whole..], vec![0xa5; 2 * BLOCK - whole]);
    // And the drive goes on from there.
    let drive = image.power_on();
    drive.append(ZONE, &[9; BLOCK]).unwrap();
    let mut block = [0; BLOCK];
    drive.read(Lba::new(32), &mut block).unwrap();
    assert_eq!(block, [9; BLOCK]);
    assert_eq!(image.written(ZONE), LbaCount::new(2), "the image is not touched");
}

#[test]
fn states_keep_active_limit() {
    let recorder = recorder(Some(1));
    recorder.append(ZoneId::new(2), &[1; BLOCK]).unwrap();
    recorder.manage(Select::One(ZoneId::new(2)), ZoneAction::Finish).unwrap();
    recorder.append(ZONE, &[2; BLOCK]).unwrap();
    let recording = recorder.finish();
    let outage = at_end(&recording);
    assert_eq!(outage.choices(&[Tail::Whole]).count(), 6);
    assert_eq!(outage.states().count(), 5, "all but: zone 2 not finished, zone 3 begun");
}

#[test]
fn conventional_zone_keeps_any_blocks() {
    let recorder = recorder(None);
    recorder.write(Lba::new(2), &[1; 4 * BLOCK]).unwrap();
    recorder.flush().unwrap();
    recorder.write(Lba::new(3), &[2; 4 * BLOCK]).unwrap();
    let recording = recorder.finish();
    let outage = at_end(&recording);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let image = outage.sample(&mut |limit| random.next_u64() % limit).unwrap();
        let mut data = vec![0; 8 * BLOCK];
        image.power_on().read(Lba::ZERO, &mut data).unwrap();
        let blocks: Vec<u8> = data.chunks(BLOCK).map(|block| block[0]).collect();
        assert_eq!(blocks[..3], [0, 0, 1]);
        seen.insert(blocks);
    }
    assert_eq!(seen.len(), 16, "every subset of four blocks");
}

/// Every subset of a few pending blocks is one of the choices.
#[test]
fn conventional_zone_offers_every_subset_of_few_blocks() {
    let recorder = recorder(None);
    recorder.write(Lba::ZERO, &[1; 6 * BLOCK]).unwrap();
    recorder.flush().unwrap();
    recorder.write(Lba::new(1), &[2; 2 * BLOCK]).unwrap();
    recorder.write(Lba::new(2), &[3; 2 * BLOCK]).unwrap();
    let recording = recorder.finish();
    let outage = at_end(&recording);
    let held = |image: Image| {
        let mut data = vec![0; 6 * BLOCK];
        image.power_on().read(Lba::ZERO, &mut data).unwrap();
        data.chunks(BLOCK).map(|block| block[0]).collect::<Vec<u8>>()
    };
    let seen: std::collections::BTreeSet<_> = outage.states().map(held).collect();
    assert_eq!(seen.len(), 2 * 3 * 2, "old or new; of the block in the middle either new one");
    assert!(seen.iter().all(|held| held[0] == 1 && held[4..] == [1, 1]));
    assert_eq!(outage.choices(&[Tail::Whole]).count(), 16);
    assert_eq!(outage.new_choices(&[Tail::Whole]).count(), 12, "a block of the second write");
    assert!(!outage.has_more_subsets());
    let recorder = Recorder::new(recording.start.clone());
    recorder.write(Lba::ZERO, &[1; 6 * BLOCK]).unwrap();
    assert!(at_end(&recorder.finish()).has_more_subsets());
}

#[test]
fn recording_whole_equals_drive() {
    let recorder = recorder(Some(3));
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut below = |limit: u64| random.next_u64() % limit;
    for _ in 0..2000 {
        let zone = ZoneId::new(below(8) as u32);
        let data = vec![below(255) as u8; (below(3) + 1) as usize * BLOCK];
        let _ = match below(8) {
            0 => recorder.manage(Select::One(zone), ZoneAction::Reset),
            1 => recorder.manage(Select::One(zone), ZoneAction::ALL[below(4) as usize]),
            2 => recorder.flush(),
            3 => recorder.write(Lba::new(below(8)), &data),
            4 if below(20) == 0 => recorder.manage(Select::All, ZoneAction::Reset),
            _ => recorder.append(zone, &data).map(drop),
        };
    }
    let mut expected = vec![0; 80 * BLOCK];
    recorder.read(Lba::ZERO, &mut expected).unwrap();
    let zones = recorder.report_all().unwrap();
    let recording = recorder.finish();
    let drive = at_end(&recording).everything().power_on();
    let mut data = vec![1; 80 * BLOCK];
    drive.read(Lba::ZERO, &mut data).unwrap();
    assert_eq!(data, expected);
    for (was, is) in zones.iter().zip(drive.report_all().unwrap()) {
        assert!(!is.cond.is_open());
        assert_eq!((was.wp, was.cond.is_active()), (is.wp, is.cond.is_active()), "{was:?} {is:?}");
    }
}

/// Blocks that were deallocated since the last flush are gone or as before, each on its own.
#[test]
fn deallocation_without_flush_may_be_undone() {
    let recorder = recorder(None);
    recorder.write(Lba::ZERO, &[1; 6 * BLOCK]).unwrap();
    recorder.flush().unwrap();
    recorder.deallocate(Lba::new(1), LbaCount::new(4)).unwrap();
    recorder.write(Lba::new(2), &[2; BLOCK]).unwrap();
    let recording = recorder.finish();
    let outage = at_end(&recording);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let image = outage.sample(&mut |limit| random.next_u64() % limit).unwrap();
        let mut held = vec![9; 6 * BLOCK];
        image.power_on().read(Lba::ZERO, &mut held).unwrap();
        let held: Vec<u8> = held.chunks(BLOCK).map(|block| block[0]).collect();
        assert_eq!((held[0], held[5]), (1, 1), "blocks that were not deallocated");
        assert!(held[1] < 2 && held[2] < 3 && held[3] < 2 && held[4] < 2, "{held:?}");
        seen.insert(held);
    }
    for possible in [[1, 1, 1, 1, 1, 1], [1, 0, 2, 0, 0, 1], [1, 0, 0, 0, 0, 1], [1, 1, 2, 1, 1, 1]]
    {
        assert!(seen.contains(&possible[..]), "{possible:?}");
    }
}

/// Overwritten blocks are whole, and no cut shows data that was not written.
#[test]
fn preferred_zone_is_left_in_states_that_are_possible() {
    use crate::tests::preferred_shadow::{self, Loss, Shadow};
    let first = crate::repeat::seed(0);
    for seed in first..first + 200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut random = |limit: u64| random.next_u64() % limit;
        let recorder = Recorder::new(Image::empty(&preferred_shadow::geometry()));
        let mut shadow = Shadow::new();
        for _ in 0..random(40) {
            shadow.step(&recorder, &mut random).unwrap();
        }
        let recording = recorder.finish();
        let outage = at_end(&recording);
        shadow.check(&outage.everything().power_on(), Loss::Nothing);
        for _ in 0..10 {
            let image = outage.sample(&mut random).expect("there are no limits");
            shadow.check(&image.power_on(), Loss::Unflushed);
        }
    }
}
