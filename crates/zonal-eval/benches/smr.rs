//! Furrow on a simulated shingled disk: how much does the arm cost? Each load says its rate or its
//! time, the jumps of the arm, and the shares of seek, turn and transfer in virtual time.
//!
//! Run it with `cargo bench -p zonal-eval --bench smr`; words after `--` choose loads by part of
//! their name, and `--disk NAME` names another preset than `hc620`. Each load runs on a default
//! mount, which spares the head, on one with `norotational`, and with metadata on an SSD.
//!
//! | load | limit |
//! | --- | --- |
//! | `writers`: 1 to 32 files at once, 64 KiB of each by turns | the rate of long writes |
//! | `zones`: 1 to 32 zones at once, 64 KiB of each by turns, through the elevator | the same |
//! | `fsync`: 4 KiB and an fsync, again and again | a seek and half a turn |
//! | `random`: 4 KiB anywhere in a file | the rate of long writes |
//! | `tree`: 80,000 small files written, read cold and deleted | the rate of long transfers |
//! | `reclaim`: 4 KiB anywhere in files that fill a small disk to 90 % | the rate of long writes |
//! | `apart`: a file read cold that was written beside seven others | the rate of long reads |
//!
//! One thread makes all calls, and the work in the background is done in it once a virtual second.
//! Data is zeroes, which the simulated disk keeps in no memory.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

use std::env;
use std::sync::Arc;

use bench_support::Report;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::layer::elevator::{BUFFER, Elevator};
use zonal::{
    Clock, GeometrySpec, Lba, LbaCount, ManualClock, MemoryDrive, ZoneId, ZoneRuns, ZonedDevice,
};
use zonal_fs::furrow::{Drives, Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::{
    Caller, FileKind, FileSystem, Ino, Listing, NewInode, SetAttr, SyncKind, WriteFlags,
};
use zonal_sim::disk::account::Account;
use zonal_sim::preset::Preset;
use zonal_sim::{Config, SimDisk, Size};

/// Front ends tick once a second.
const TICK_NS: u64 = 1_000_000_000;

/// Bytes of a write of the writers.
const PIECE: usize = 64 << 10;

/// Bytes that all writers write together.
const WRITTEN: u64 = 4 << 30;

/// Files of the tree, and of one directory of it.
const TREE: (u32, u32) = (80_000, 100);

/// A mounted Furrow on a disk of its own.
struct Rig {
    options: MountOptions,
    disk: Arc<SimDisk>,
    drives: Drives,
    clock: Arc<ManualClock>,
    fs: Furrow,
    ticked_ns: u64,
}

/// Measures a load on a disk of a config.
type Measure = fn(&Setting, &mut Report);

/// A disk, and how it is mounted.
#[derive(Clone)]
struct Setting {
    config: Config,
    options: MountOptions,
    metadata: Metadata,
}

/// Where metadata is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Metadata {
    Disk,
    Ssd,
}

/// An SSD in the time of a disk, as the data sheet of a cheap one has it.
struct Ssd {
    drive: MemoryDrive,
    clock: Arc<ManualClock>,
}

impl Ssd {
    const READ_NS: u64 = 80_000;
    const WRITE_NS: u64 = 25_000;
    /// 2 GB a second.
    const BYTES_PER_NS: u64 = 2;

    /// An SSD of 64 zones, each as large as a zone of `disk`.
    fn beside(disk: &SimDisk) -> Self {
        let spec = *disk.geometry().spec();
        let drive = MemoryDrive::new(GeometrySpec {
            block_count: LbaCount::new(64 * spec.zone_size.get()),
            conventional_zones: ZoneRuns::NONE,
            max_open: None,
            max_active: None,
            ..spec
        });
        Self { drive: drive.expect("a possible drive"), clock: disk.clock() }
    }

    fn take(&self, command_ns: u64, bytes: usize) {
        self.clock.advance_ns(command_ns + bytes as u64 / Self::BYTES_PER_NS);
    }
}

impl ZonedDevice for Ssd {
    zonal::pass_on!(drive: geometry, report, manage);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> zonal::error::Result<()> {
        self.take(Self::READ_NS, buffer.len());
        self.drive.read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> zonal::error::Result<()> {
        self.take(Self::WRITE_NS, data.len());
        self.drive.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> zonal::error::Result<Lba> {
        self.take(Self::WRITE_NS, data.len());
        self.drive.append(zone, data)
    }

    fn flush(&self) -> zonal::error::Result<()> {
        self.take(Self::WRITE_NS, 0);
        self.drive.flush()
    }
}

/// The part of a run that is measured.
struct Span {
    begin: Account,
}

fn main() {
    let mut arguments = env::args().skip(1).collect();
    let mut report = Report::begin("cargo bench -p zonal-eval --bench smr", &mut arguments);
    let at = arguments.iter().position(|argument| argument == "--disk");
    let name = at.map_or_else(
        || "hc620".to_owned(),
        |at| arguments.drain(at..at + 2).nth(1).expect("--disk needs a name"),
    );
    let preset = Preset::find(&name).expect("a preset");
    let config = Config::parse(preset.text).expect("a right one");
    let mounts = [
        ("", None, Metadata::Disk),
        ("-norotational", Some(false), Metadata::Disk),
        ("-ssd", None, Metadata::Ssd),
    ];
    let mounts = mounts.map(|(name, rotational, metadata)| {
        let options = MountOptions { rotational, ..MountOptions::default() };
        (name, Setting { config: config.clone(), options, metadata })
    });
    let loads: [(&str, Measure); 7] = [
        ("smr-writers", writers),
        ("smr-zones", zones),
        ("smr-fsync", fsync),
        ("smr-random", random),
        ("smr-reclaim", reclaim),
        ("smr-tree", tree),
        ("smr-apart", apart),
    ];
    for (load, measure) in loads {
        for (mount, setting) in &mounts {
            let name = format!("{load}{mount}");
            if arguments.is_empty() || arguments.iter().any(|word| name.contains(word.as_str())) {
                report.subject(&name, 1);
                measure(setting, &mut report);
            }
        }
    }
    report.end();
}

impl Rig {
    fn new(Setting { config, options, metadata }: &Setting) -> Self {
        let disk = Arc::new(SimDisk::new(config).expect("a possible disk"));
        let drives = match metadata {
            Metadata::Disk => disk.clone().into(),
            Metadata::Ssd => Drives::with_metadata(disk.clone(), Arc::new(Ssd::beside(&disk)))
                .expect("zones alike"),
        };
        let (options, clock) = (*options, disk.clock());
        mkfs(drives.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).expect("formatted");
        let fs = Furrow::mount(drives.clone(), disk.clock(), options).expect("mounted");
        Self { options, disk, drives, clock, fs, ticked_ns: 0 }
    }

    /// Mounts again, so that nothing is in memory.
    fn cool(&mut self) {
        self.fs.shutdown().expect("unmounted");
        let drives = self.drives.clone();
        self.fs = Furrow::mount(drives, self.clock.clone(), self.options).expect("mounted");
    }

    fn create(&self, parent: Ino, name: &str, kind: FileKind) -> Ino {
        let new = NewInode { kind, perm: 0o755, rdev: 0, target: b"" };
        self.fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).expect("created").ino
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        self.fs.write(ino, offset, data, WriteFlags::empty()).expect("written");
        self.tick();
    }

    fn tick(&mut self) {
        let now = self.clock.monotonic_ns();
        if now - self.ticked_ns >= TICK_NS {
            self.ticked_ns = now;
            self.fs.tick().expect("work in the background");
        }
    }

    fn begin(&self) -> Span {
        Span { begin: self.disk.account() }
    }
}

impl Span {
    /// Reports what happened since the begin; returns the seconds.
    fn end(&self, disk: &SimDisk, name: &str, report: &mut Report) -> f64 {
        let (begin, end) = (&self.begin, disk.account());
        let seconds = (end.virtual_ns - begin.virtual_ns) as f64 / 1e9;
        let mut push = |figure: &str, unit: &str, value: f64| {
            report.add_variant((figure, name), unit, &[value]);
        };
        push("virtual time", "s", seconds);
        let jumps = (end.jumps - begin.jumps) as f64;
        push("jumps of the arm", "jumps", jumps);
        let moved = (end.moved_bytes - begin.moved_bytes) as f64 / 1024.0;
        push("between jumps", "KiB", moved / jumps.max(1.0));
        let percent = |end: u64, begin: u64| (end - begin) as f64 / seconds / 1e7;
        push("seek", "%", percent(end.seek_ns, begin.seek_ns));
        push("turn", "%", percent(end.turn_ns, begin.turn_ns));
        push("transfer", "%", percent(end.transfer_ns, begin.transfer_ns));
        seconds
    }
}

/// Files that grow side by side.
fn writers(setting: &Setting, report: &mut Report) {
    for writers in [1, 2, 8, 32] {
        let mut rig = Rig::new(setting);
        let files: Vec<Ino> = (0..writers)
            .map(|number| rig.create(Ino::ROOT, &format!("file{number}"), FileKind::Regular))
            .collect();
        let data = vec![0; PIECE];
        let span = rig.begin();
        for round in 0..WRITTEN / PIECE as u64 / writers {
            for file in &files {
                rig.write(*file, round * PIECE as u64, &data);
            }
        }
        rig.fs.sync().expect("synced");
        let name = format!("{writers} writers");
        let seconds = span.end(&rig.disk, &name, report);
        report.add_variant(("rate", &name), "MB/s", &[WRITTEN as f64 / seconds / 1e6]);
    }
}

/// Zones that front ends without a file system of ours write side by side.
fn zones(setting: &Setting, report: &mut Report) {
    for writers in [1, 2, 8, 32] {
        let disk = Arc::new(SimDisk::new(&setting.config).expect("a possible disk"));
        let device: Box<dyn ZonedDevice> = match setting.options.rotational {
            Some(false) => Box::new(disk.clone()),
            Some(true) | None => {
                Box::new(Elevator::new(disk.clone(), BUFFER).expect("it reports its zones"))
            }
        };
        let geometry = disk.geometry();
        let zones: Vec<_> =
            geometry.zones().filter(|zone| geometry.kind(*zone).is_sequential()).collect();
        let each = WRITTEN / writers;
        let (data, span) = (vec![0; PIECE], Span { begin: disk.account() });
        for round in 0..each / PIECE as u64 {
            for writer in 0..writers {
                // Each writer fills one zone after the other, far from the next writer's.
                let filled = round * PIECE as u64 / geometry.bytes(geometry.zone_size()).get();
                let zone = zones[(writer * 100 + filled) as usize];
                device.append(zone, &data).expect("written");
            }
        }
        device.flush().expect("durable");
        let name = format!("{writers} writers");
        let seconds = span.end(&disk, &name, report);
        report.add_variant(("rate", &name), "MB/s", &[WRITTEN as f64 / seconds / 1e6]);
    }
}

/// Small writes that are made durable one by one.
fn fsync(setting: &Setting, report: &mut Report) {
    const COUNT: u64 = 500;
    let mut rig = Rig::new(setting);
    let file = rig.create(Ino::ROOT, "file", FileKind::Regular);
    rig.fs.sync().expect("synced");
    let span = rig.begin();
    for number in 0..COUNT {
        // Zeroes would need a flush of their own: the checksum of an unwritten block is theirs.
        rig.write(file, number * 4096, &[1; 4096]);
        rig.fs.fsync(file, SyncKind::Full).expect("synced");
    }
    let flushes = rig.disk.account().flushes - span.begin.flushes;
    let seconds = span.end(&rig.disk, "1 caller", report);
    report.add_variant(("an fsync", "1 caller"), "ms", &[seconds * 1e3 / COUNT as f64]);
    report.add_variant(
        ("flushes of an fsync", "1 caller"),
        "flushes",
        &[flushes as f64 / COUNT as f64],
    );
}

/// Writes anywhere in a file, as many as fit into a minute.
fn random(setting: &Setting, report: &mut Report) {
    const MIB: u64 = 4096;
    let mut rig = Rig::new(setting);
    let files = fill(&mut rig, 1, MIB);
    overwrite(&mut rig, (&files, MIB), (60, 2_000_000), report);
}

/// The same on a disk of 300 zones of 64 MiB that is filled to 90 %, so that reclaim moves blocks.
fn reclaim(setting: &Setting, report: &mut Report) {
    let Setting { mut config, options, metadata } = setting.clone();
    config.zones.size = Size(64 << 20);
    let disk = config.disk.as_mut().expect("a config of a disk");
    (disk.zones, disk.conventional) = (300, 4);
    let mut rig = Rig::new(&Setting { config, options, metadata });
    let space = rig.fs.statfs().expect("there is some");
    let (files, blocks) = (9, space.blocks / 10);
    let files = fill(&mut rig, files, (blocks * 4096) >> 20);
    overwrite(&mut rig, (&files, (blocks * 4096) >> 20), (600, 8_000_000), report);
}

/// Writes files of so many mebibytes.
fn fill(rig: &mut Rig, files: u64, mib: u64) -> Vec<Ino> {
    let data = vec![0; 1 << 20];
    let create = |number: u64| rig.create(Ino::ROOT, &format!("file{number}"), FileKind::Regular);
    let files: Vec<Ino> = (0..files).map(create).collect();
    for &file in &files {
        (0..mib).for_each(|at| rig.write(file, at << 20, &data));
    }
    rig.fs.sync().expect("synced");
    files
}

/// Writes 4 KiB anywhere in files of so many mebibytes, until so many seconds or writes are over.
fn overwrite(
    rig: &mut Rig,
    (files, mib): (&[Ino], u64),
    (seconds, most): (u64, usize),
    report: &mut Report,
) {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let before = rig.fs.stats();
    let span = rig.begin();
    let mut times = Vec::new();
    let start = rig.clock.monotonic_ns();
    while rig.clock.monotonic_ns() - start < seconds * 1_000_000_000 && times.len() < most {
        let begun = rig.clock.monotonic_ns();
        let file = files[random.random_range(0..files.len())];
        rig.write(file, random.random_range(0..mib << 8) * 4096, &[0; 4096]);
        times.push(rig.clock.monotonic_ns() - begun);
    }
    rig.fs.sync().expect("synced");
    let name = "4 KiB";
    let seconds = span.end(&rig.disk, name, report);
    times.sort_unstable();
    report.add_variant(("rate", name), "IOPS", &[times.len() as f64 / seconds]);
    for (share, word) in [(0.99, "p99"), (0.9999, "p99.99"), (1.0, "longest")] {
        let at = (times.len() as f64 * share) as usize;
        report.add_variant((word, name), "ms", &[times[at.min(times.len() - 1)] as f64 / 1e6]);
    }
    let after = rig.fs.stats();
    let user = (after.user_bytes - before.user_bytes) as f64;
    let moved = (after.reclaim_bytes - before.reclaim_bytes) as f64;
    report.add_variant(("moved", name), "bytes a byte", &[moved / user]);
    let misses = (after.cache_misses - before.cache_misses) as f64 / times.len() as f64;
    report.add_variant(("reads of metadata", name), "reads a write", &[misses]);
}

/// A tree of small files, as of source code: written, read cold, deleted.
fn tree(setting: &Setting, report: &mut Report) {
    let mut rig = Rig::new(setting);
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let (files, of_directory) = TREE;
    let span = rig.begin();
    let mut bytes = 0;
    for directory in 0..files / of_directory {
        let parent = rig.create(Ino::ROOT, &format!("dir{directory}"), FileKind::Directory);
        for number in 0..of_directory {
            let file = rig.create(parent, &format!("file{number}.c"), FileKind::Regular);
            // Half of them up to 4 KiB, a mean of about 10 KiB.
            let size = 1 << random.random_range(9..16);
            let size = random.random_range(size / 2..=size);
            rig.write(file, 0, &vec![0; size]);
            bytes += size.next_multiple_of(4096);
            let set = SetAttr { perm: Some(0o644), ..SetAttr::default() };
            rig.fs.setattr(&Caller::ROOT, file, &set).expect("set");
        }
    }
    rig.fs.sync().expect("synced");
    span.end(&rig.disk, "written", report);
    report.add_variant(("blocks", "written"), "MB", &[bytes as f64 / 1e6]);

    rig.cool();
    let span = rig.begin();
    let mut buffer = vec![0; 1 << 20];
    for (_, directory) in entries(&rig.fs, Ino::ROOT) {
        for (_, file) in entries(&rig.fs, directory) {
            rig.fs.getattr(file).expect("there");
            rig.fs.read(file, 0, &mut buffer).expect("read");
        }
    }
    span.end(&rig.disk, "read cold", report);

    rig.cool();
    let span = rig.begin();
    for (name, directory) in entries(&rig.fs, Ino::ROOT) {
        for (file, _) in entries(&rig.fs, directory) {
            rig.fs.unlink(directory, &file).expect("removed");
            rig.tick();
        }
        rig.fs.rmdir(Ino::ROOT, &name).expect("removed");
    }
    rig.fs.sync().expect("synced");
    span.end(&rig.disk, "deleted", report);
}

/// The entries of a directory, without itself and its parent.
fn entries(fs: &Furrow, directory: Ino) -> Vec<(Vec<u8>, Ino)> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let before = all.len();
        let mut last = cookie;
        fs.readdir(directory, cookie, &mut |entry| {
            last = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                all.push((entry.name.to_vec(), entry.ino));
            }
            Listing::More
        })
        .expect("listed");
        if last == cookie || all.len() == before {
            return all;
        }
        cookie = last;
    }
}

/// A file that was written beside seven others, read cold.
fn apart(setting: &Setting, report: &mut Report) {
    const BYTES: u64 = 1 << 30;
    let mut rig = Rig::new(setting);
    let files: Vec<Ino> = (0..8)
        .map(|number| rig.create(Ino::ROOT, &format!("file{number}"), FileKind::Regular))
        .collect();
    let data = vec![0; PIECE];
    for at in (0..BYTES).step_by(PIECE) {
        for file in &files {
            rig.write(*file, at, &data);
        }
    }
    rig.fs.sync().expect("synced");
    rig.cool();
    let span = rig.begin();
    let mut buffer = vec![0; 1 << 20];
    for at in (0..BYTES).step_by(buffer.len()) {
        rig.fs.read(files[3], at, &mut buffer).expect("read");
    }
    let seconds = span.end(&rig.disk, "one of 8", report);
    report.add_variant(("rate", "one of 8"), "MB/s", &[BYTES as f64 / seconds / 1e6]);
}
