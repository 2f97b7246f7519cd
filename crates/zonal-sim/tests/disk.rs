//! The simulated disk as a device: it keeps the contract of every device, every command ends, and
//! its account is complete.
//!
//! `SEED=n COUNT=n` choose the random commands and how many runs there are.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

#[path = "../../zonal/tests/contract/mod.rs"]
mod contract;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use contract::CHECKS;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::workload::Pattern;
use zonal::workload::queued::{self, Beside, Workload};
use zonal::{Clock, Io, LbaCount, Select, VirtualQueue, ZoneAction, ZoneId, ZonedDevice, repeat};
use zonal_sim::disk::account::{Account, HeadShares};
use zonal_sim::disk::load::{Load, Operation};
use zonal_sim::experiment::{Changes, Experiment, Name, Scope, run as run_all};
use zonal_sim::preset::Preset;
use zonal_sim::report::page::Basis;
use zonal_sim::{Config, SimDisk, Size};

/// The check that disks break: by ZBC-2 a zone that is not open may be closed.
const OTHERWISE: &str = "actions follow the state machine";

fn disk(fields: &str) -> SimDisk {
    let text = format!("[zones]\nsize = \"1MiB\"\nmax_open = 3\n[disk]\nheads = 2\n{fields}");
    SimDisk::new(&Config::parse(&text).unwrap()).unwrap()
}

fn hc620() -> SimDisk {
    SimDisk::new(&Config::parse(Preset::find("hc620").unwrap().text).unwrap()).unwrap()
}

#[test]
fn disk_keeps_device_contract_in_every_shape() {
    for fields in [
        "zones = 16\nconventional = 2",
        "zones = 9\nconventional = 0\nconventional_at = 0.5",
        "zones = 12\nconventional = 3\nwrite_cache = 0",
        "zones = 12\nconventional = 1\nwrite_cache = \"16KiB\"\nwrite_pieces = 1\nread_ahead = 0",
    ] {
        for (what, check) in CHECKS.iter().filter(|(what, _)| *what != OTHERWISE) {
            contract::run(&disk(fields), fields, what, *check);
        }
    }
}

#[test]
fn disk_ends_every_command_and_counts_every_byte() {
    let (seed, count) = (repeat::seed(11), repeat::count(40));
    for round in 0..count {
        let mut random = ChaCha8Rng::seed_from_u64(seed + round);
        let cache = random.random_range(0..4) * 64;
        let fields = format!(
            "zones = 12\nconventional = 4\nwrite_cache = \"{cache}KiB\"\nwrite_pieces = {}\n\
             destage = \"{}KiB\"\nqueue = {}\nread_ahead = \"{}KiB\"",
            random.random_range(1..6),
            4 << random.random_range(0..6),
            random.random_range(1..5),
            16 * random.random_range(0..5),
        );
        let first = run(&disk(&fields), seed + round);
        assert_eq!(first, run(&disk(&fields), seed + round), "seed {}: not repeated", seed + round);
    }
}

/// Random commands, some of them in flight together.
fn run(disk: &SimDisk, seed: u64) -> Account {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let geometry = *disk.geometry();
    let (mut now, mut begun, mut last) = (0, BTreeMap::new(), 0);
    let mut at = [0; 3];
    let (mut written, mut overwritten) = (0, false);
    for tag in 0..200 {
        now += random.random_range(0..3_000_000);
        while let Some((ended, end)) = disk.next_end(now) {
            let began = begun.remove(&ended).unwrap_or_else(|| panic!("seed {seed}: {ended}"));
            assert!(end >= began && end >= last && end <= now, "seed {seed}: {began}, {end}");
            last = end;
        }
        let data = vec![1; 4096 * random.random_range(1..=8)];
        let blocks = LbaCount::new(data.len() as u64 / 4096);
        let mut buffer = data.clone();
        let anywhere = geometry.zone_start(ZoneId::new(random.random_range(0..4)))
            + LbaCount::new(random.random_range(0..=256 - blocks.get()));
        let mut io = match random.random_range(0..8) {
            0 => Io::flush(),
            1 | 2 => {
                overwritten = true;
                written += data.len() as u64;
                Io::write(anywhere, &data)
            }
            3..=5 => {
                let stream = random.random_range(0..3_u32);
                let next = &mut at[stream as usize];
                if *next + blocks.get() > 256 {
                    continue;
                }
                let zone = ZoneId::new(4 + stream);
                let lba = geometry.zone_start(zone) + LbaCount::new(*next);
                *next += blocks.get();
                written += data.len() as u64;
                Io::write(lba, &data)
            }
            _ => {
                let zone = ZoneId::new(random.random_range(0..8));
                let offset = LbaCount::new(random.random_range(0..=256 - blocks.get()));
                Io::read(geometry.zone_start(zone) + offset, &mut buffer)
            }
        };
        disk.begin(&mut io, now, tag);
        io.outcome().unwrap();
        begun.insert(tag, now);
    }
    disk.begin(&mut Io::flush(), now, 200);
    begun.insert(200, now);
    while let Some((ended, end)) = disk.next_end(u64::MAX) {
        assert!(end >= last, "seed {seed}");
        last = end;
        begun.remove(&ended).unwrap();
    }
    assert!(begun.is_empty(), "seed {seed}: {begun:?} never end");
    let mut account = disk.account();
    assert_eq!(account.host_written_bytes, written, "seed {seed}");
    assert!(account.destaged_bytes <= written, "seed {seed}: {account:?}");
    assert!(overwritten || account.destaged_bytes == written, "seed {seed}: {account:?}");
    let busy = account.seek_ns + account.turn_ns + account.transfer_ns;
    assert!(busy <= last, "seed {seed}: the arm was busy for {busy} of {last} ns");
    account.virtual_ns = 0;
    account
}

#[test]
fn flush_waits_for_platters_and_write_does_not() {
    let disk = hc620();
    let timed = |call: &dyn Fn()| {
        let begun = disk.clock().monotonic_ns();
        call();
        disk.clock().monotonic_ns() - begun
    };
    let start = disk.geometry().zone_start(ZoneId::new(30_000));
    let write = timed(&|| disk.write(start, &[1; 4096]).unwrap());
    let flush = timed(&|| disk.flush().unwrap());
    let again = timed(&|| disk.flush().unwrap());
    assert!(write < 200_000 && again < 200_000, "{write} {again}");
    assert!((2_000_000..30_000_000).contains(&flush), "{flush}");
}

#[test]
fn reset_drops_writes_that_wait_and_data_that_was_read() {
    let disk = hc620();
    let zone = ZoneId::new(1000);
    disk.append(zone, &vec![1; 1 << 20]).unwrap();
    // The arm is on its way with the first piece at most.
    disk.append(zone, &vec![1; 1 << 20]).unwrap();
    disk.manage(Select::One(zone), ZoneAction::Reset).unwrap();
    disk.flush().unwrap();
    assert!(disk.account().destaged_bytes <= 1 << 20, "{:?}", disk.account());
}

#[test]
fn arm_takes_requests_in_flight_by_the_shortest_way() {
    let load = |depth| Load {
        name: String::new(),
        operation: Operation::RandomRead,
        from: 1000,
        zones: 51_000,
        io: Size(4096),
        depth,
        requests: 2000,
    };
    let iops = |depth| load(depth).run(&hc620(), 3).unwrap().iops;
    let (one, many) = (iops(1), iops(32));
    // A seek of 7 to 8 ms and half a turn; of 32 the nearest is 2 to 3 times as near.
    assert!((60.0..100.0).contains(&one), "{one}");
    assert!((1.5..3.5).contains(&(many / one)), "{many} {one}");
}

#[test]
fn sequential_reader_waits_for_no_turn() {
    let load = |depth| Load {
        name: String::new(),
        operation: Operation::Read,
        from: 600,
        zones: 4,
        io: Size(64 << 10),
        depth,
        requests: 4000,
    };
    for depth in [1, 4] {
        let figures = load(depth).run(&hc620(), 1).unwrap();
        assert!(figures.mb_s > 220.0, "depth {depth}: {figures:?}");
    }
}

#[test]
fn hc620_comes_near_published_figures() {
    let changes = Changes { scope: Scope::Full, ..Changes::default() };
    let one = Experiment::new(Name::Disks, Name::Disks.text(), &changes).unwrap();
    let section = run_all(vec![one], NonZeroUsize::MIN, &|_| {}).unwrap().remove(0);
    for chart in &section.charts {
        for claim in &chart.claims {
            println!("{}: {}, ours {:.1}", claim.what, claim.published, claim.ours);
        }
    }
    let claims = section.charts.iter().flat_map(|chart| &chart.claims);
    for claim in claims.filter(|claim| claim.basis != Basis::Reading) {
        let error = (claim.ours / claim.value - 1.0).abs();
        assert!(error < 0.1, "{}: {}, ours {:.1}", claim.what, claim.published, claim.ours);
    }
}

/// A write of a MiB at the write pointer of a zone, from a time on.
fn begin_write(disk: &SimDisk, (zone, block): (u32, u64), at_ns: u64, tag: u64) {
    let lba = disk.geometry().zone_start(ZoneId::new(zone)) + LbaCount::new(block);
    let data = vec![0; 1 << 20];
    let mut io = Io::write(lba, &data);
    disk.begin(&mut io, at_ns, tag);
    io.outcome().unwrap();
}

#[test]
fn flush_waits_for_no_later_write() {
    let disk = hc620();
    begin_write(&disk, (600, 0), 0, 0);
    disk.begin(&mut Io::flush(), 1000, 1);
    // A writer that never lets the cache become empty, in the same zone.
    let (mut tag, mut flushed) = (2, None);
    begin_write(&disk, (600, 256), 1000, tag);
    while let Some((ended, end)) = disk.next_end(u64::MAX) {
        if ended == 1 {
            flushed = Some(end);
            break;
        }
        if ended == tag && tag < 100 {
            tag += 1;
            begin_write(&disk, (600, 256 * (tag - 1)), end, tag);
        }
    }
    let flushed = flushed.unwrap();
    assert!(flushed < 50_000_000, "{flushed} ns, behind {tag} writes");
}

#[test]
fn read_ends_after_platters_have_its_data() {
    let disk = hc620();
    let zone = ZoneId::new(20_000);
    disk.mark_written(zone).unwrap();
    let lba = disk.geometry().zone_start(zone);
    let (mut first, mut second) = ([0; 4096], [0; 4096]);
    disk.begin(&mut Io::read(lba, &mut first), 0, 0);
    disk.begin(&mut Io::read(lba, &mut second), 1_000_000, 1);
    let (tag, end) = disk.next_end(u64::MAX).unwrap();
    let (_, second) = disk.next_end(u64::MAX).unwrap();
    assert!(tag == 0 && end > 2_000_000 && second >= end, "{tag} {end} {second}");
}

#[test]
fn link_moves_data_of_one_command_at_a_time() {
    let disk = hc620();
    for tag in 0..8 {
        let zone = 1000 + u32::try_from(tag).unwrap();
        begin_write(&disk, (zone, 0), 0, tag);
    }
    let ends: Vec<u64> = std::iter::from_fn(|| disk.next_end(u64::MAX)).map(|end| end.1).collect();
    // 8 MiB at 550 MB/s.
    assert!(ends.len() == 8 && ends[7] > 15_000_000, "{ends:?}");
}

#[test]
fn call_leaves_ends_of_requests_in_flight() {
    let disk = hc620();
    begin_write(&disk, (700, 0), 0, 5);
    disk.flush().unwrap();
    assert_eq!(disk.next_end(u64::MAX).map(|(tag, _)| tag), Some(5));
}

#[test]
fn sequential_write_jumps_at_zones_only() {
    let load = Load {
        name: String::new(),
        operation: Operation::Write,
        from: 600,
        zones: 1,
        io: Size(1 << 20),
        depth: 1,
        requests: 2048,
    };
    let figures = load.run(&hc620(), 1).unwrap();
    // Eight zones, and the first write.
    assert!(figures.account.jumps < 12, "{:?}", figures.account.jumps);
    assert!(figures.account.turn_ns < 30_000_000, "{} ns", figures.account.turn_ns);
}

#[test]
fn long_runs_of_several_zones_leave_cache_in_their_order() {
    let disk = hc620();
    assert!(disk.rotates());
    let (runs, data) = (12, vec![0; 1 << 20]);
    for run in 0..runs {
        for _ in 0..16 {
            disk.append(ZoneId::new(600 + run % 4), &data).unwrap();
        }
    }
    disk.flush().unwrap();
    let jumps = disk.account().jumps;
    assert!(jumps <= u64::from(runs) + 1, "{jumps} jumps for {runs} runs");
}

/// The shares of a measurement in one zone, two seconds long.
fn shares(disk: &SimDisk, pattern: Pattern, blocks: u64) -> HeadShares {
    let (zones, depth, time_ns, seed) = (1, 1, 2_000_000_000, 1);
    let blocks = LbaCount::new(blocks);
    let workload =
        Workload { pattern, blocks, zones, depth, time_ns, seed, beside: Beside::Nothing };
    let outcome = queued::run(disk, &workload).unwrap();
    let work = outcome.head.expect("a disk has a head");
    HeadShares::new(work, outcome.main.time_ns)
}

#[test]
fn shares_of_time_say_what_the_head_does() {
    let stream = shares(&hc620(), Pattern::Read, 256);
    assert!(stream.transfer_percent > 90.0 && stream.seek_percent < 5.0, "{stream:?}");
    let random = shares(&hc620(), Pattern::RandomRead, 1);
    assert!(random.jumps > 100 && random.transfer_percent < 5.0, "{random:?}");
    assert!(random.turn_percent > 30.0, "half a turn each time: {random:?}");
    for HeadShares { seek_percent, turn_percent, transfer_percent, rest_percent, .. } in
        [stream, random]
    {
        let sum = seek_percent + turn_percent + transfer_percent + rest_percent;
        assert!((sum - 100.0).abs() < 1.0, "{sum}");
    }
}

#[test]
fn conventional_disk_takes_writes_in_place_without_limits() {
    let config = Config::parse(Preset::find("cmr14").unwrap().text).unwrap();
    let disk = SimDisk::new(&config).unwrap();
    let spec = disk.geometry().spec();
    assert_eq!(spec.conventional_zones.zone_count(), disk.geometry().zone_count());
    assert_eq!((spec.max_open, spec.max_active), (None, None));
    let load = Load {
        name: "random writes".into(),
        operation: Operation::RandomWrite,
        from: 0,
        zones: 52_156,
        io: Size(4096),
        depth: 1,
        requests: 3000,
    };
    let figures = load.run(&disk, 1).unwrap();
    assert!((80.0..700.0).contains(&figures.iops), "{figures:?}", figures = figures.iops);
    assert_eq!(disk.account().jumps, disk.account().operations);
}

#[test]
fn odd_disks_are_refused_or_work() {
    let parse = |text: &str| Config::parse(text);
    let small = "[zones]\nsize = \"4KiB\"\n[disk]\nzones = 8\nconventional = 1\ninner_mb_s = 1\n\
                 rpm = 20000\nswitch_ms = 0\nheads = 3\nrecording_zones = 1\nqueue = 1";
    let disk = SimDisk::new(&parse(small).unwrap()).unwrap();
    disk.append(ZoneId::new(7), &[1; 4096]).unwrap();
    disk.flush().unwrap();
    let large = "[zones]\nsize = \"1TiB\"\n[disk]\nzones = 16777216";
    assert!(parse(large).unwrap_err().to_string().contains("at most 64 PiB"));
    let load = Load {
        name: "of nothing".into(),
        operation: Operation::RandomRead,
        from: 0,
        zones: 1,
        io: Size(0),
        depth: 1,
        requests: 1,
    };
    assert!(load.run(&hc620(), 1).unwrap_err().to_string().contains("of nothing"));
}
