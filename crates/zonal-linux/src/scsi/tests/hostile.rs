//! A drive whose answers are wrong in every way, and other ones each time: no call panics, repeats
//! without end, or takes more memory than the drive has zones for.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rustix::io::Errno;
use zonal::{
    Io, Lba, LbaCount, MemoryDrive, OpenMode, Rules, Select, ZoneAction, ZoneId, ZonedDevice,
    repeat,
};

use super::super::ScsiDrive;
use super::super::channel::Channel;
use super::super::sense::Sense;
use super::super::transport::{Reply, Request, Transport, status};
use super::target::{BYTES_MAX, Target};
use super::{BLOCK, SPEC, shapes};
use crate::data::Data;

/// Commands of one call of the device, at most: every repetition has a bound.
const COMMANDS_MAX: u64 = 4000;

/// A drive that answers one command of `one_in` by something else.
struct Hostile {
    target: Arc<Target>,
    random: Mutex<StdRng>,
    one_in: AtomicU64,
    commands: AtomicU64,
}

impl Hostile {
    fn over(target: Arc<Target>, seed: u64) -> Arc<Self> {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        Arc::new(Self { target, random, one_in: AtomicU64::new(0), commands: AtomicU64::new(0) })
    }

    /// Checks that the calls since the last check had a bounded number of commands.
    fn check_bound(&self, what: &str) {
        let commands = self.commands.swap(0, Ordering::AcqRel);
        assert!(commands <= COMMANDS_MAX, "{commands} commands to {what}");
    }
}

/// Sense keys, codes and qualifiers that lead to different branches.
const SENSE: [(u8, u8, u8); 12] = [
    (2, 4, 1),
    (2, 4, 2),
    (3, 0x11, 0),
    (5, 0x20, 0),
    (5, 0x21, 4),
    (5, 0x24, 0),
    (6, 0x29, 0),
    (7, 0x27, 0),
    (7, 0x2c, 0x12),
    (7, 0x55, 0x0e),
    (0xb, 0, 0),
    (0, 0, 0x1d),
];

fn any_sense(random: &mut StdRng) -> Option<Sense> {
    let (key, asc, ascq) = SENSE[random.random_range(0..SENSE.len())];
    let sense = Sense::new(key, asc, ascq);
    let mut bytes =
        if random.random() { sense.encode_descriptors() } else { sense.encode_fixed().to_vec() };
    for _ in 0..random.random_range(0..3) {
        let at = random.random_range(0..bytes.len());
        bytes[at] = random.random();
    }
    bytes.truncate(random.random_range(0..=bytes.len()));
    Sense::decode(&bytes)
}

/// Bytes that are often the limits of something.
fn any_byte(random: &mut StdRng) -> u8 {
    match random.random_range(0..4) {
        0 => 0,
        1 => 0xff,
        2 => 1 << random.random_range(0..8),
        _ => random.random(),
    }
}

impl Transport for Arc<Hostile> {
    fn run(&self, request: &mut Request<'_>) -> io::Result<Reply> {
        self.commands.fetch_add(1, Ordering::AcqRel);
        let one_in = self.one_in.load(Ordering::Acquire);
        let mut random = self.random.lock().unwrap();
        if one_in == 0 || !random.random_range(0..one_in).eq(&0) {
            drop(random);
            return self.target.run(request);
        }
        let (what, len) = (random.random_range(0..7), request.data.len());
        let good = Reply { status: status::GOOD, sense: None, host: 0, residual: 0 };
        match what {
            0 => {
                let sense = any_sense(&mut random);
                return Ok(Reply { status: status::CHECK_CONDITION, sense, ..good });
            }
            1 => return Ok(Reply { status: random.random(), ..good }),
            2 => return Ok(Reply { host: random.random_range(0..0x20), ..good }),
            3 => {
                let errnos = [Errno::NOMEM, Errno::IO, Errno::INVAL, Errno::DOM];
                return Err(errnos[random.random_range(0..errnos.len())].into());
            }
            _ => {}
        }
        drop(random);
        let mut reply = self.target.run(request)?;
        let mut random = self.random.lock().unwrap();
        if let Data::Fill(bytes) = &mut request.data {
            // Lengths, counts and addresses lie in the first entries of an answer.
            let head = bytes.len().min(if what == 4 { 64 } else { 512 });
            match random.random_range(0..4) {
                0 => random.fill_bytes(bytes),
                _ => {
                    for _ in 0..random.random_range(1..9) {
                        let at = random.random_range(0..head.max(1));
                        let byte = any_byte(&mut random);
                        if let Some(place) = bytes.get_mut(at) {
                            *place = byte;
                        }
                    }
                }
            }
        }
        if what == 6 {
            // A short answer, or one of more bytes than there were.
            reply.residual = random.random_range(0..=len * 2);
        }
        Ok(reply)
    }

    fn bytes_max(&self) -> u64 {
        BYTES_MAX
    }
}

fn open(hostile: &Arc<Hostile>) -> Option<ScsiDrive> {
    let mut channel = Channel::new(Box::new(Arc::clone(hostile)));
    channel.pause_ms = 0;
    let drive = ScsiDrive::over(channel, Path::new("sg9"), OpenMode::ReadWrite);
    hostile.check_bound("open");
    drive.ok()
}

/// Calls of every kind, each with blocks anywhere.
fn use_drive(drive: &ScsiDrive, hostile: &Hostile, random: &mut StdRng) {
    let geometry = *drive.geometry();
    let block = usize::try_from(geometry.block_size().bytes()).unwrap();
    for _ in 0..random.random_range(1..20) {
        let zone = ZoneId::new(random.random_range(0..geometry.zone_count()));
        let lba = Lba::new(random.random_range(0..geometry.block_count().get()));
        let left = geometry.block_count().get() - lba.get();
        let blocks = random.random_range(0..40).min(usize::try_from(left).unwrap_or(40));
        let mut data = vec![7; blocks * block];
        let what = random.random_range(0..8);
        match what {
            0 => drop(drive.write(lba, &data)),
            1 => drop(drive.append(zone, &data)),
            2 => drop(drive.read(lba, &mut data)),
            3 => {
                let action = ZoneAction::ALL[random.random_range(0..4)];
                let zones = if random.random() { Select::All } else { Select::One(zone) };
                let _ = drive.manage(zones, action);
            }
            4 => drop(drive.flush()),
            5 => {
                let mut batch =
                    vec![Io::append(zone, &[1; BLOCK][..block]), Io::read(lba, &mut data)];
                drive.submit(&mut batch);
            }
            _ => {
                let mut zones = Vec::new();
                let limit = random.random_range(0..9);
                let reported = drive.report(zone, &mut zones, limit);
                assert!(zones.len() <= limit);
                assert!(
                    reported.is_err()
                        || zones.len() == limit.min((geometry.zone_count() - zone.get()) as usize)
                );
                for zone in zones {
                    // D1.
                    let end = zone.start + zone.capacity;
                    assert!(zone.wp.is_none_or(|wp| zone.start <= wp && wp <= end), "{zone:?}");
                }
            }
        }
        hostile.check_bound(&format!("call {what}"));
    }
}

/// `SEED=n COUNT=n` choose the drives, and how many there are.
#[test]
fn drive_with_any_answers_never_panics_or_loops() {
    let (first, count) = (repeat::seed(1), repeat::count(400_u64));
    let (mut opened, mut refused) = (0, 0);
    for seed in (0..count).map(|turn| first.wrapping_add(turn)) {
        let mut random = StdRng::seed_from_u64(seed);
        let shapes = shapes();
        let (name, spec, shift, adapter) = shapes[random.random_range(0..shapes.len())];
        let memory = Arc::new(MemoryDrive::with_rules(spec, Rules::Zbc).unwrap());
        let hostile = Hostile::over(Target::new(memory, shift, adapter), seed);
        let one_in = |one_in| hostile.one_in.store(one_in, Ordering::Release);
        // Wrong from the start, or only once it is open.
        one_in([0, 2, 5, 20][random.random_range(0..4)]);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let drive = open(&hostile);
            if let Some(drive) = &drive {
                one_in([1, 3, 10][random.random_range(0..3)]);
                use_drive(drive, &hostile, &mut random);
            }
            drive.is_some()
        }));
        match run {
            Ok(true) => opened += 1,
            Ok(false) => refused += 1,
            Err(panic) => panic!("{name}: repeat with SEED={seed} COUNT=1: {panic:?}"),
        }
    }
    println!("{opened} drives used, {refused} refused");
    assert!(count < 400 || opened > 50 && refused > 50, "{opened}, {refused}");
}

/// A drive that was reset again and again while it was read: each report shows one block less.
#[test]
fn read_of_zone_that_shrinks_for_good_ends() {
    let memory = Arc::new(MemoryDrive::with_rules(SPEC, Rules::Zbc).unwrap());
    let target = Target::new(memory.clone(), 0, super::target::Adapter::Scsi);
    let zone = ZoneId::new(2);
    memory.append(zone, &vec![1; 40 * BLOCK]).unwrap();
    let drive = super::open(&target, OpenMode::ReadWrite).unwrap();
    let lower = Arc::clone(&memory);
    let fails = move |command: &super::super::cdb::Command| {
        let is_read = matches!(command, super::super::cdb::Command::Read(_));
        if is_read {
            let written = lower.zone(zone).unwrap().written().unwrap();
            lower.manage(Select::One(zone), ZoneAction::Reset).unwrap();
            let fewer = usize::try_from(written.get()).unwrap() - 1;
            lower.append(zone, &vec![1; fewer * BLOCK]).unwrap();
        }
        is_read
    };
    let sense = super::sense(5, 0x21, 6);
    target.fail_if(fails, u32::MAX, super::target::When::Before, sense);
    let start = drive.geometry().zone_start(zone);
    drive.read(start, &mut vec![0; 40 * BLOCK]).unwrap_err();
    assert!(target.count(super::target::Kind::Read) < 10);
    assert_eq!(drive.zone(zone).unwrap().wp.map(|wp| wp - start), Some(LbaCount::new(31)));
}
