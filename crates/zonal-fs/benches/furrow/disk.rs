//! Costs of a disk that is a file of Furrow. Everything goes through [`Disk`], as in a server.
//!
//! Rates and times are by the clock or by processor time, as the unit of each says; bytes come out
//! the same each time. A disk of a terabyte does not fit here: one of 16 GiB is mounted with the
//! same share of memory.

use std::sync::Arc;
use std::time::Duration;

use bench_support::{Machine, Report, interleave, thread_ns, timed};
use bench_support::{Took, WarmUp};
use zonal::disk::{Disk, Durability};
use zonal::layer::delay::Delay;
use zonal::{
    ByteCount, Clock, Lba, LbaCount, MemoryDrive, Select, ZoneAction, ZoneId, ZonedDevice,
};
use zonal_fs::disk::{DiskName, DiskSettings, Disks, FurrowDisk};
use zonal_fs::furrow::{AtimePolicy, Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::FileSystem;
use zonal_fs::volume::{Upkeep, Volume, VolumeOptions};

use crate::Args;
use crate::drive::{SparseDrive, shape};
use crate::report::{Latencies, Rounds};
use crate::volume::{BLOCK, BLOCK_BYTES, Dice, new_block};

/// Writes of a round of `disk-rate`.
const WRITES: u64 = 200_000;

/// Writes and flushes of a round of `disk-flush`.
const SYNCS: u64 = 500;

/// Bytes of memory for each block of a disk of a terabyte within 512 MiB.
const MEMORY_PER_BLOCK: f64 = (512_u64 << 20) as f64 / (1e12 / BLOCK as f64);

/// Memory that holds all metadata of these disks.
const ALL_MEMORY: ByteCount = ByteCount::new(1 << 30);

/// Writes between two ticks, where no thread works in the background.
const TICK: u64 = 100;

/// Writes with little memory.
const LITTLE_WRITES: u64 = 20_000;

/// How a file system is mounted.
struct Setup {
    memory: ByteCount,
    upkeep: Upkeep,
}

impl Default for Setup {
    fn default() -> Self {
        let memory = MountOptions::default().memory;
        Self { memory, upkeep: Upkeep::Thread }
    }
}

/// A disk and its file system.
struct Subject {
    fs: Arc<Furrow>,
    disks: Disks,
    disk: Arc<FurrowDisk>,
    blocks: u64,
}

fn name() -> DiskName {
    "disk".parse().expect("a name of a disk")
}

fn mounted(device: Arc<dyn ZonedDevice>, setup: &Setup) -> (Arc<Furrow>, Disks) {
    let Setup { memory, upkeep } = *setup;
    let options = MountOptions { atime: AtimePolicy::Never, memory, ..MountOptions::default() };
    let fs = Arc::new(Furrow::mount(device, Arc::new(Machine), options).expect("mounted"));
    let options = VolumeOptions { upkeep, ..VolumeOptions::default() };
    let volume = Volume::new(Arc::clone(&fs) as Arc<dyn FileSystem>, &options);
    (fs, Disks::new(volume).expect("Furrow has disks"))
}

impl Subject {
    /// Formats a device and makes a thick disk that fills a share of it.
    fn new(device: Arc<dyn ZonedDevice>, percent: u64, setup: &Setup) -> Self {
        let format = MkfsOptions { reserve_percent: 0, ..MkfsOptions::default() };
        mkfs(device.clone(), &Machine, &format, &mut |_| ()).expect("formatted");
        let (fs, disks) = mounted(device, setup);
        let blocks = fs.statfs().expect("it says").blocks_free * percent / 100;
        Self::with_disk(fs, disks, blocks)
    }

    /// Mounts a drive again, with its disk.
    fn opened(drive: &Arc<SparseDrive>, blocks: u64, setup: &Setup) -> Self {
        let (fs, disks) = mounted(drive.clone(), setup);
        let disk = disks.open(&name()).expect("it is there");
        Self { fs, disks, disk, blocks }
    }

    fn with_disk(fs: Arc<Furrow>, disks: Disks, blocks: u64) -> Self {
        let size = ByteCount::new(blocks * BLOCK);
        disks.create(&name(), size, DiskSettings::default()).expect("it fits");
        let disk = disks.open(&name()).expect("it was made");
        Self { fs, disks, disk, blocks }
    }

    fn write(&self, block: u64) {
        self.disk.write(Lba::new(block), &new_block(), Durability::Later).expect("written");
    }

    /// Writes the whole disk in order.
    fn fill(&self) {
        let step = 256;
        let mut data = vec![0; usize::try_from(step).expect("few") * BLOCK_BYTES];
        for first in (0..self.blocks).step_by(256) {
            let blocks = step.min(self.blocks - first);
            let bytes = usize::try_from(blocks).expect("few") * BLOCK_BYTES;
            data[..bytes]
                .chunks_exact_mut(BLOCK_BYTES)
                .for_each(|b| b.copy_from_slice(&new_block()));
            let lba = Lba::new(first);
            self.disk.write(lba, &data[..bytes], Durability::Later).expect("written");
        }
        self.flush();
    }

    fn flush(&self) {
        self.disk.flush().expect("flushed");
    }

    fn close(self) {
        drop(self.disk);
        self.disks.close().expect("closed");
    }
}

/// A drive in memory that stores its data: `mem:`.
fn memory_drive(zones: u64, zone_mib: u64) -> MemoryDrive {
    MemoryDrive::new(shape(zones, zone_mib)).expect("a possible shape")
}

/// Random writes of 4 KiB, half full: each second of a processor, reclaim and commits included.
pub(crate) fn rate(args: &Args, report: &mut Report) {
    let mut rounds = Rounds::default();
    let drives: [(&str, Arc<dyn ZonedDevice>); 2] = [
        ("mem:", Arc::new(memory_drive(256, 8))),
        ("a drive that stores no data", Arc::new(SparseDrive::new(256, 8))),
    ];
    for (drive, device) in drives {
        let subject = Subject::new(device, 50, &Setup::default());
        subject.fill();
        let mut dice = Dice(2);
        // Overwrites until reclaim moves as many blocks as it will go on to.
        (0..subject.blocks).for_each(|_| subject.write(dice.below(subject.blocks)));
        for _ in 0..args.rounds {
            let (took, caller) = timed(|| {
                let before = thread_ns();
                (0..WRITES).for_each(|_| subject.write(dice.below(subject.blocks)));
                let caller = thread_ns() - before;
                subject.flush();
                caller
            });
            let each = |seconds: f64| WRITES as f64 / seconds;
            let name = |what: &str| format!("random 4 KiB writes on {drive}, {what}");
            let mut push = |what: &str, value| rounds.push(&name(what), "per second", value);
            push("one processor does all", each(took.processor));
            push("of the caller's processor", each(caller as f64 / 1e9));
            push("by the clock", each(took.wall));
        }
        subject.close();
    }
    rounds.report(report);
}

/// Write and flush of 4 KiB on a disk and directly on its drive, with drives of several speeds.
pub(crate) fn flush(args: &Args, report: &mut Report) {
    for latency in [0, 100, 1000] {
        let drive = || Delay::new(memory_drive(256, 8), Duration::from_micros(latency));
        let below = drive();
        let subject = Subject::new(Arc::new(drive()), 50, &Setup::default());
        let mut at = (Dice(3), 0);
        let times = interleave(args.rounds, 2, WarmUp::Round, |which| {
            let mut latencies = Latencies::default();
            for _ in 0..SYNCS {
                let block = new_block();
                let start = Machine.monotonic_ns();
                if which == 0 {
                    below.append(ZoneId::new(at.1), &block).expect("appended");
                    below.flush().expect("flushed");
                } else {
                    let lba = Lba::new(at.0.below(subject.blocks));
                    subject.disk.write(lba, &block, Durability::AtOnce).expect("written");
                }
                latencies.push(Machine.monotonic_ns() - start);
            }
            if which == 0 {
                below.manage(Select::One(ZoneId::new(at.1)), ZoneAction::Reset).expect("reset");
                at.1 = (at.1 + 1) % 256;
            }
            Some(latencies.quantile_us(0.5))
        });
        let name = format!("write and flush of 4 KiB, each call {latency} µs more");
        report.add(&format!("{name}: the drive, p50"), "µs", &times[0]);
        report.add(&format!("{name}: the disk, p50"), "µs", &times[1]);
        let ratios: Vec<f64> = times[1].iter().zip(&times[0]).map(|(of, to)| of / to).collect();
        report.add(&format!("{name}: ratio"), "", &ratios);
        subject.close();
    }
}

/// A mount with memory for all metadata.
fn with_all(upkeep: Upkeep) -> Setup {
    Setup { memory: ALL_MEMORY, upkeep }
}

/// A disk of which every block was written alone, within the memory that a terabyte would have.
pub(crate) fn size(args: &Args, report: &mut Report) {
    let blocks: u64 = if args.is_large { 1 << 22 } else { 1 << 20 };
    let zones = blocks * BLOCK / (16 << 20) * 5 / 4;
    let drive = Arc::new(SparseDrive::new(zones, 16));
    let format = MkfsOptions { reserve_percent: 0, ..MkfsOptions::default() };
    mkfs(drive.clone(), &Machine, &format, &mut |_| ()).expect("formatted");
    let (fs, disks) = mounted(drive.clone(), &with_all(Upkeep::Thread));
    let subject = Subject::with_disk(fs, disks, blocks);
    report.count("blocks of the disk", "blocks", blocks as f64);

    // A linear congruential generator of full period takes each block once.
    let mut block = 1_u64;
    let mut each = || {
        let next = block.wrapping_mul(0x5851_f42d_4c95_7f2d);
        block = next.wrapping_add(0x1405_7b7e_f767_814f) % blocks;
        block
    };
    let order = (0..blocks).map(|_| each());
    writes(&subject, report, "each block once, memory for all", Upkeep::Thread, order);
    subject.flush();
    let per_block = |bytes: u64| bytes as f64 / blocks as f64;
    let metadata = subject.fs.live().blocks.metadata * BLOCK;
    report.count("zones of metadata, both copies", "bytes a block", per_block(metadata));
    report.count("metadata in memory, if it has all", "bytes a block", {
        per_block(subject.fs.stats().held_bytes)
    });
    subject.close();

    crashes(&drive, blocks, report);
    let subject = Subject::opened(&drive, blocks, &with_all(Upkeep::Thread));
    discard(&subject, report);
    subject.close();
}

/// Mounts after crashes, and writes with little memory between them.
fn crashes(drive: &Arc<SparseDrive>, blocks: u64, report: &mut Report) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    let little = ByteCount::new((blocks as f64 * MEMORY_PER_BLOCK) as u64);
    let mut dice = Dice(4);
    let mut order = || {
        let order: Vec<u64> = (0..LITTLE_WRITES).map(|_| dice.below(blocks)).collect();
        order.into_iter()
    };
    let subject = Subject::opened(drive, blocks, &with_all(Upkeep::Caller));
    order().for_each(|block| subject.write(block));
    subject.flush();
    let subject = killed_and_mounted(subject, drive, little, report);
    report.count("little memory", "bytes", little.get() as f64);
    writes(&subject, report, "little memory", Upkeep::Caller, order());
    let stats = subject.fs.stats();
    report.count("little memory: in use", "bytes", (stats.held_bytes + stats.cache_bytes) as f64);
    killed_and_mounted(subject, drive, ALL_MEMORY, report).close();
}

/// The disk after its process was killed: uncommitted changes are gone.
fn killed_and_mounted(
    subject: Subject,
    drive: &Arc<SparseDrive>,
    memory: ByteCount,
    report: &mut Report,
) -> Subject {
    let blocks = subject.blocks;
    // Nothing ends it, and nothing works for it any more.
    std::mem::forget(subject);
    let before = drive.counts();
    let setup = Setup { memory, upkeep: Upkeep::Caller };
    let (took, subject) = timed(|| Subject::opened(drive, blocks, &setup));
    let figure = format!("mount after a crash, {} MiB of memory", memory.get() >> 20);
    report.count(&figure, "ms of processor time", took.processor * 1e3);
    let read = (drive.counts() - before).read;
    report.count(&format!("{figure}: read"), "MiB", read as f64 / f64::from(1 << 20));
    subject
}

/// Writes of single blocks, and how long the longest took.
fn writes(
    subject: &Subject,
    report: &mut Report,
    what: &str,
    upkeep: Upkeep,
    order: impl Iterator<Item = u64>,
) {
    let (mut clock, mut count) = (Latencies::default(), 0_u64);
    let before = subject.fs.stats();
    let (took, ()) = timed(|| {
        for block in order {
            let start = Machine.monotonic_ns();
            subject.write(block);
            clock.push(Machine.monotonic_ns() - start);
            count += 1;
            if upkeep == Upkeep::Caller && count.is_multiple_of(TICK) {
                subject.fs.tick().expect("work in the background");
            }
        }
    });
    let after = subject.fs.stats();
    let per_write = |value: f64| value / count as f64;
    let name = |figure: &str| format!("4 KiB writes, {what}: {figure}");
    report.count(&name("processor time"), "µs each", per_write(took.processor * 1e6));
    let missed = (after.cache_misses - before.cache_misses) as f64;
    report.count(&name("leaves read"), "each", per_write(missed));
    for (share, word) in [(0.5, "p50"), (0.999, "p99.9"), (1.0, "longest")] {
        report.count(&name(word), "µs", clock.quantile_us(share));
    }
}

/// A discard of the whole disk, and writes behind it.
fn discard(subject: &Subject, report: &mut Report) {
    let all = LbaCount::new(subject.blocks);
    let call = |disk: &FurrowDisk| disk.discard(Lba::new(0), all).expect("discarded");
    let (first, ()): (Took, ()) = timed(|| call(&subject.disk));
    report.count("discard of the whole disk", "ms", first.wall * 1e3);
    let (took, ()) = timed(|| subject.write(subject.blocks / 2));
    report.count("discard of the whole disk: a write after it", "ms", took.wall * 1e3);
    let (took, ()) = timed(|| subject.flush());
    report.count("discard of the whole disk: a flush after it", "ms", took.wall * 1e3);
    let mut found = [1; BLOCK_BYTES];
    subject.disk.read(Lba::new(subject.blocks / 3), &mut found).expect("read");
    assert!(found == [0; BLOCK_BYTES], "what was discarded reads as zeroes");
    let mut dice = Dice(6);
    let order = (0..LITTLE_WRITES).map(|_| dice.below(subject.blocks));
    writes(subject, report, "while discarded entries are removed", Upkeep::Thread, order);
}
