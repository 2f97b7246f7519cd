//! The simulated SSD as a device: it keeps the contract of every device, and its account of the
//! flash is complete.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::collections::{BTreeMap, BTreeSet};

use contract::CHECKS;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use zonal::workload::Pattern;
use zonal::workload::queued::{self, Beside, Outcome, Workload};
use zonal::{
    Clock, DeviceError, Io, LbaCount, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice, repeat,
};
use zonal_sim::flash::Flash;
use zonal_sim::ftl::{PageMapped, Refusal, Translation, ZoneMapped};
use zonal_sim::preset::Preset;
use zonal_sim::ssd::{Account, BlockSsd};
use zonal_sim::timed::{Job, Pacing, Timed, Until};
use zonal_sim::{Config, SimError, SimSsd, Size, load};

/// Four dies of one plane on two channels; programs of 8 KiB; superblocks of 64 KiB.
const FLASH: &str = "[flash]\nchannels = 2\ndies_per_channel = 2\nplanes = 1\npage = 4096\n\
                     pages_per_program = 2\nprograms_per_block = 2\nsuperblocks = 16\n\
                     [drive]\nkind = \"zns\"\n[gc]\nlow_water = 2\n[zones]\n";

fn drive(zones: &str) -> SimSsd {
    SimSsd::new(&Config::parse(&format!("{FLASH}{zones}")).unwrap()).unwrap()
}

#[test]
fn ssd_keeps_device_contract_in_every_shape() {
    for zones in [
        "max_open = 3\nmax_active = 5",
        "max_open = 1\nmax_active = 1",
        "superblocks = 3\nmax_open = 2\nmax_active = 3",
        "superblocks = 3\nsize = \"200KiB\"\nspare = 4\nmax_open = 2\nmax_active = 2",
        "size = \"1MiB\"",
    ] {
        for (what, check) in CHECKS {
            let drive = drive(zones);
            contract::run(&drive, zones, what, *check);
            conserved(&drive.account());
        }
    }
}

#[test]
fn ssd_keeps_device_contract_in_random_shapes() {
    let (seed, count) = (repeat::seed(7), repeat::count(20));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut made = 0;
    for _ in 0..count {
        let mut config = Config::parse(FLASH).unwrap();
        let flash = &mut config.flash;
        flash.channels = random.random_range(1..=2);
        flash.planes = random.random_range(1..=3);
        flash.pages_per_program = random.random_range(1..=3);
        flash.programs_per_block = random.random_range(1..=2);
        flash.superblocks = random.random_range(12..=20);
        config.drive.buffer_programs = random.random_range(1..=3);
        config.drive.reserved = *[0.0, 0.1].choose(&mut random).unwrap();
        let zones = &mut config.zones;
        zones.superblocks = random.random_range(1..=3);
        zones.spare = random.random_range(0..=5);
        zones.max_active = random.random_range(1..=4);
        zones.max_open = random.random_range(1..=zones.max_active);
        for (what, check) in CHECKS {
            let drive = match SimSsd::new(&config) {
                Ok(drive) => drive,
                Err(SimError::Field { .. }) => break,
                Err(error) => panic!("{error}"),
            };
            contract::run(&drive, &config.to_toml(), what, *check);
            drive.account();
            made += 1;
        }
    }
    assert!(made > count * CHECKS.len() / 2, "most are refused: {made}");
}

#[test]
fn ssd_with_controller_keeps_device_contract() {
    for zones in [
        "max_open = 3\nmax_active = 5\n[controller]",
        "superblocks = 3\nmax_open = 2\nmax_active = 3\n[controller]\nsuspends_max = 0",
    ] {
        for (what, check) in CHECKS {
            let drive = drive(zones);
            contract::run(&drive, zones, what, *check);
            let account = drive.account();
            let programmed = account.operations.programs * account.program_bytes;
            assert_eq!(
                programmed + account.buffered_bytes,
                account.host_bytes + account.padded_bytes
            );
        }
    }
}

/// Time that a batch of reads takes, one of each die.
fn batch_ns(drive: &SimSsd) -> u64 {
    let (dies, program_blocks) = (24, drive.account().program_bytes / 4096);
    let start = drive.geometry().zone_start(ZoneId::ZERO);
    for _ in 0..8 {
        drive.append(ZoneId::ZERO, &vec![0; 1 << 20]).unwrap();
    }
    drive.clock().advance_ns(1_000_000_000);
    let mut buffers = vec![[1; 4096]; dies];
    let mut batch: Vec<Io<'_>> = (0..)
        .zip(&mut buffers)
        .map(|(at, buffer)| Io::read(start + LbaCount::new(at * program_blocks), buffer))
        .collect();
    let begin = drive.clock().monotonic_ns();
    drive.submit(&mut batch);
    let passed = drive.clock().monotonic_ns() - begin;
    assert!(batch.into_iter().all(|io| io.outcome().is_ok()));
    passed
}

#[test]
fn ssd_batch_overlaps_on_dies() {
    let one_by_one = batch_ns(&published());
    let side_by_side = batch_ns(&published().side_by_side());
    assert!(one_by_one > 24 * 75_000, "{one_by_one} ns");
    assert!(side_by_side < 3 * 75_000, "{side_by_side} ns");
    let preset = zonal_sim::preset::Preset::find("zn540").unwrap();
    let zn540 = batch_ns(&SimSsd::new(&Config::parse(preset.text).unwrap()).unwrap());
    assert!((75_000..3 * 75_000).contains(&zn540), "{zn540} ns");
}

#[test]
fn ssd_keeps_requests_in_flight_and_leaves_zones_empty() {
    let drive = SimSsd::new(&Config::default()).unwrap();
    let mut iops = Vec::new();
    // More measurements than zones can be active, one after the other.
    for depth in [1, 32].into_iter().cycle().take(16) {
        for pattern in [Pattern::RandomRead, Pattern::Append] {
            let workload = Workload {
                pattern,
                blocks: LbaCount::new(1),
                zones: 2,
                depth,
                time_ns: 2_000_000,
                seed: 1,
                beside: Beside::Nothing,
            };
            let measured = queued::run(&drive, &workload).unwrap().main;
            if pattern == Pattern::RandomRead {
                iops.push(measured.iops());
            }
        }
        assert!(drive.report_all().unwrap().iter().all(|zone| zone.cond == ZoneCond::Empty));
    }
    assert!(iops[1] > 10.0 * iops[0], "{iops:?}");
}

#[test]
fn ssd_zone_marked_as_written_is_full_of_zeroes() {
    for controller in ["", "\n[controller]"] {
        let drive = drive(&format!("superblocks = 3{controller}"));
        let (queue, zone) = (drive.virtual_queue().unwrap(), ZoneId::new(1));
        queue.mark_written(zone).unwrap();
        assert_eq!(drive.zone(zone).unwrap().cond, ZoneCond::Full);
        let account = drive.account();
        assert_eq!((account.host_bytes, account.buffered_bytes), (192 << 10, 0));
        let mut buffer = vec![1; 192 << 10];
        let read_ns = {
            let begun_ns = drive.clock().monotonic_ns();
            drive.read(drive.zone(zone).unwrap().start, &mut buffer).unwrap();
            drive.clock().monotonic_ns() - begun_ns
        };
        assert!(buffer.iter().all(|byte| *byte == 0));
        // From the flash: 24 programs of 2 pages on 4 dies.
        assert!(read_ns > 12 * 60_000, "{read_ns}");
        assert!(queue.mark_written(zone).unwrap_err().to_string().contains("is full"));
        drive.manage(Select::One(zone), ZoneAction::Reset).unwrap();
        assert_eq!(drive.account().erased, 3);
        queue.mark_written(zone).unwrap();
    }
}

#[test]
fn ssd_measured_beside_resets_fills_zones_in_no_time() {
    let config = Config::parse(Preset::find("zn540").unwrap().text).unwrap();
    let drive = SimSsd::new(&config).unwrap();
    let workload = Workload {
        pattern: Pattern::Append,
        blocks: LbaCount::new(1),
        zones: 1,
        depth: 1,
        time_ns: 100_000_000,
        seed: 1,
        beside: Beside::Resets,
    };
    let Outcome { main, beside, .. } = queued::run(&drive, &workload).unwrap();
    // A full zone takes 15 ms to reset; writing it would take 0.9 s.
    assert!((5..=10).contains(&beside.operations), "{} resets", beside.operations);
    assert!(main.operations > 1_000, "{} appends", main.operations);
    // A second of rest before and after it.
    let passed_ns = drive.clock().monotonic_ns();
    assert!(passed_ns < 2_500_000_000, "{passed_ns}");
    assert!(drive.report_all().unwrap().iter().all(|zone| zone.cond == ZoneCond::Empty));
}

#[test]
fn ssd_zones_are_made_of_superblocks() {
    let shape = drive("superblocks = 3\nspare = 4");
    let spec = *shape.geometry().spec();
    assert_eq!((spec.zone_capacity, spec.zone_size), (LbaCount::new(48), LbaCount::new(64)));
    assert_eq!(shape.geometry().zone_count(), 4);
    let odd = Config::parse(&format!("{FLASH}size = \"60KiB\"")).unwrap();
    let error = SimSsd::new(&odd).err().unwrap().to_string();
    assert!(error.contains("zones.size = 60KiB") && error.contains("64KiB"), "{error}");
}

/// Every byte that the host wrote and every byte of padding was programmed or is buffered.
fn conserved(account: &Account) {
    let programmed = account.operations.programs * account.program_bytes;
    let placed = account.host_bytes + account.padded_bytes;
    assert_eq!(programmed + account.buffered_bytes, placed, "{account:?}");
    let done = account.operations;
    assert_eq!(done.erases, account.erased * 4, "{account:?}");
    let flash = Flash::default();
    let busy = done.programs as f64 * flash.program_us
        + done.reads as f64 * flash.read_us
        + done.erases as f64 * flash.erase_us
        + done.suspends as f64 * (flash.suspend_us + flash.resume_us);
    assert!((done.busy_ns as f64 - busy * 1e3).abs() < 1.0, "{account:?}");
}

/// Writes, finishes, resets and reads at random, as the limits allow.
fn random_run(seed: u64, steps: u32) -> (Account, u64) {
    let drive = drive("superblocks = 2\nspare = 2\nmax_open = 3\nmax_active = 4");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut host, mut buffer) = (0, vec![0; 40 * 4096]);
    for _ in 0..steps {
        let zone = drive.zone(ZoneId::new(random.random_range(0..7))).unwrap();
        let one = Select::One(zone.id);
        match random.random_range(0..10) {
            0 if zone.cond == ZoneCond::Full => drive.manage(one, ZoneAction::Reset).unwrap(),
            1 if zone.cond.is_active() => drive.manage(one, ZoneAction::Finish).unwrap(),
            2 => drive.read(zone.start, &mut buffer[..32 * 4096]).unwrap(),
            _ => {
                let blocks = random.random_range(1..=20).min(zone.remaining().get());
                let bytes = usize::try_from(blocks).unwrap() * 4096;
                buffer.fill(random.random());
                match drive.append(zone.id, &buffer[..bytes]) {
                    Ok(_) => host += bytes as u64,
                    Err(DeviceError::TooManyActive { .. } | DeviceError::ZoneFull { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        conserved(&drive.account());
    }
    (drive.account(), host)
}

#[test]
fn ssd_account_is_complete_and_run_repeats() {
    let seed = repeat::seed(7);
    let (account, host) = random_run(seed, 3_000);
    assert_eq!(account.host_bytes, host);
    assert!(account.padded_bytes > 0 && account.erased > 50, "{account:?}");
    // A zone that stays full keeps its superblocks from wearing: of 120 seeds one differed by 11.
    // Where the first free superblock is taken instead of the least worn, they differ by 33 and
    // more.
    assert!(account.erases_max - account.erases_min <= 15, "wear is level: {account:?}");
    let wa = (account.host_bytes + account.padded_bytes) as f64 / account.host_bytes as f64;
    assert!((account.wa - wa).abs() < 1e-12);
    let text = |account: &Account| serde_json::to_string(account).unwrap();
    assert_eq!(text(&random_run(seed, 3_000).0), text(&account));
    assert_ne!(text(&random_run(seed + 1, 3_000).0), text(&account));
}

/// The published drive, with smaller superblocks.
fn published() -> SimSsd {
    let config = Config::default();
    let flash = config.flash.shrunk(8);
    SimSsd::new(&Config { flash, ..config }).unwrap()
}

#[test]
fn ssd_writes_at_speed_of_dies_and_reads_take_time() {
    let drive = published();
    let (chunk, zones) = (vec![1; 1 << 20], 20_u32);
    for zone in 0..zones {
        for _ in 0..24 {
            drive.append(ZoneId::new(zone), &chunk).unwrap();
        }
    }
    let account = drive.account();
    let mb_s = account.host_bytes as f64 * 1e3 / account.virtual_ns as f64;
    // 32 dies × 96 KiB / 2600 µs is 1210 MB/s; buffered blocks are not programmed yet at the end.
    assert!((1100.0..1300.0).contains(&mb_s), "{mb_s} MB/s");

    let clock = drive.clock();
    clock.advance_ns(1_000_000_000);
    let timed = |lba, blocks: usize| {
        let begin = clock.monotonic_ns();
        drive.read(lba, &mut vec![0; blocks * 4096]).unwrap();
        clock.monotonic_ns() - begin
    };
    let start = drive.geometry().zone_start(ZoneId::new(2));
    // An idle die: 6 µs of firmware, 65 of the read, 5 of the channel.
    let idle = timed(start, 1);
    assert!((75_000..78_000).contains(&idle), "{idle} ns");
    // A whole stripe is read by all dies at once: 96 KiB and four dies share a channel.
    let stripe = timed(start, 32 * 24);
    assert!(stripe < 40 * idle, "{stripe} ns");
    // A read of a die that programs suspends it, and waits for a page on the channel.
    drive.append(ZoneId::new(zones), &chunk).unwrap();
    let suspended = timed(start, 1);
    assert!((idle + 250_000..=idle + 250_000 + 20_480).contains(&suspended), "{suspended} ns");
    assert_eq!(drive.account().operations.suspends, 1);
    // Blocks that are not programmed yet come from the write buffer.
    let tail = drive.geometry().zone_start(ZoneId::new(zones)) + LbaCount::new(255);
    let buffered = timed(tail, 1);
    assert!(buffered < 10_000, "{buffered} ns");
}

/// The drive that is sold as 7 %, with small superblocks: MB/s of uniform writes of 64 KiB after
/// three drive writes.
fn steady_mb_s_by_events(config: &Config) -> f64 {
    let layout = config.layout().unwrap();
    let mut ftl = PageMapped::new(config).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    ftl.write(&(0..layout.user_units).collect::<Vec<_>>(), 0);
    for _ in 0..3 * layout.user_units / 2 {
        let unit = random.random_range(0..layout.user_units / 2) * 2;
        ftl.write(&[unit, unit + 1], 0);
    }
    let jobs = vec![Job::new("w", load::build(config, &layout).unwrap(), Pacing::Depth(32))];
    let mut timed = Timed::new(config, ftl, jobs).unwrap();
    timed.run(Until::Written(layout.user_bytes() / 8)).unwrap();
    timed.run(Until::Written(layout.user_bytes() / 4)).unwrap().write_mb_s
}

/// One command at a time, and GC in the foreground: the writes of a drive are about as fast as in
/// timed mode, because the dies are the limit in both. There GC also waits for its reads.
#[test]
fn ssd_writes_in_place_as_fast_as_timed_mode() {
    let mut config = Config::default();
    config.flash = config.flash.shrunk(4);
    (config.drive.op, config.drive.unit) = (0.1453, Size(32 << 10));
    config.workload.io = Size(64 << 10);
    let mut drive = BlockSsd::new(&config).unwrap();
    let (units, mut random) = (drive.units(), ChaCha8Rng::seed_from_u64(1));
    for unit in (0..units / 2).map(|at| at * 2) {
        drive.write(unit, 2, 0);
    }
    let mut write = |drive: &mut BlockSsd, drive_writes: f64| {
        for _ in 0..(drive_writes * f64::from(units) / 2.0) as u64 {
            drive.write(random.random_range(0..units / 2) * 2, 2, 0);
        }
        drive.account()
    };
    let before = write(&mut drive, 3.0);
    let after = write(&mut drive, 0.4);
    let ns = (after.virtual_ns - before.virtual_ns) as f64;
    let ours = (after.host_bytes - before.host_bytes) as f64 * 1e3 / ns;
    let timed = steady_mb_s_by_events(&config);
    println!("{ours:.0} MB/s here, {timed:.0} in timed mode");
    assert!((ours / timed - 1.0).abs() < 0.15, "{ours} MB/s here, {timed} in timed mode");
}

/// A zoned drive in short: for each zone, how much is written and whether it is full.
#[derive(Default)]
struct Model {
    zones: BTreeMap<u32, (u32, bool)>,
    erased: u64,
    padded: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The zone-mapped layer against the model: refusals and their reasons, where units are found,
    /// and that no two of them share a place.
    #[test]
    fn zone_ftl_matches_model(
        parts in 1_u32..=3,
        steps in prop::collection::vec((0_u32..5, 0_u32..60, 0_u32..8), 1..400),
    ) {
        const ACTIVE: usize = 3;
        let text = format!("{FLASH}superblocks = {parts}\nmax_open = 2\nmax_active = {ACTIVE}");
        let mut layer = ZoneMapped::new(&Config::parse(&text).unwrap()).unwrap();
        let (units, block_units, count) = (layer.zone_units(), 16, layer.zone_count());
        let mut model = Model::default();
        for (zone, many, action) in steps {
            let (mut written, mut full) = model.zones.get(&zone).copied().unwrap_or_default();
            match action {
                0 => {
                    layer.reset(zone);
                    model.erased += u64::from(written.div_ceil(block_units));
                    (written, full) = (0, false);
                }
                1 => {
                    let rest = written.next_multiple_of(block_units) - written;
                    let padding = if full || written == 0 { 0 } else { rest };
                    prop_assert_eq!(layer.finish(zone), padding);
                    model.padded += u64::from(padding);
                    full = true;
                }
                2 => {
                    let wrong = zone * units + (written + 1 + many) % units;
                    let expected = if full { Refusal::Full } else { Refusal::NotAtWritePointer };
                    if full || wrong != zone * units + written {
                        prop_assert_eq!(layer.try_place(wrong), Err(expected));
                    }
                }
                _ => {
                    let active = model.zones.values().filter(|zone| zone.0 > 0 && !zone.1).count();
                    let list: Vec<u32> = (written..units).take(many as usize).collect();
                    let list: Vec<u32> = list.into_iter().map(|unit| zone * units + unit).collect();
                    let outcome = layer.write(&list);
                    if full {
                        prop_assert!(list.is_empty() || outcome == Err(Refusal::Full));
                    } else if written == 0 && active == ACTIVE {
                        prop_assert!(list.is_empty() || outcome == Err(Refusal::TooManyActive));
                    } else {
                        prop_assert_eq!(outcome, Ok(()));
                        written += u32::try_from(list.len()).unwrap();
                        full = written == units;
                    }
                }
            }
            model.zones.insert(zone, (written, full));
        }
        let mut places = BTreeSet::new();
        for zone in 0..count {
            let (written, _) = model.zones.get(&zone).copied().unwrap_or_default();
            for unit in 0..units {
                let place = layer.locate(zone * units + unit);
                prop_assert_eq!(place.is_some(), unit < written, "unit {} of zone {}", unit, zone);
                prop_assert!(place.is_none_or(|place| places.insert(place)), "{:?} twice", place);
            }
        }
        let work: u64 = std::iter::from_fn(|| layer.work()).map(|_| 1).sum();
        prop_assert_eq!(layer.counters().erased + work, model.erased);
        prop_assert_eq!(layer.counters().padded, model.padded);
    }
}
