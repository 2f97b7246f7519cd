//! Backup programs on a mounted Furrow on a simulated shingled disk that is 90 % full: how long is
//! the disk busy, how much is written, how long does a request wait?
//!
//! Run it as root with `cargo bench -p zonal-cli --bench backup`; words after `--` choose programs
//! by part of their name. It needs restic, borg, rsync and 8 GiB of memory.
//!
//! The programs are real, and so are the kernel and the mount. The disk is a `sim:hc620` with 96
//! zones of 64 MiB, and keeps the time: only its own work takes any, so the time of a step is the
//! time that the disk was busy, and a program that computes meanwhile needs longer. The disk serves
//! the calls of several threads one after the other, in an order that differs from run to run.
//!
//! A tree of files is backed up each day; between two days a tenth of the files is replaced by
//! others of their size. When the disk is 90 % full, each step runs on a mount of its own, so
//! nothing is in Furrow's memory at its begin. Data is random: no program makes it smaller.

#![expect(clippy::unwrap_used, reason = "a benchmark ends when something fails")]
#![expect(clippy::cast_precision_loss, clippy::print_stdout, reason = "figures for people")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use bench_support::Report;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::mount::UnmountFlags;
use tempfile::TempDir;
use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
use zonal_fs::vfs::FileSystem;
use zonal_fuse::latency::Latencies;
use zonal_fuse::{MountConfig, MountContent, serve};
use zonal_sim::preset::Preset;
use zonal_sim::{Config, SimDisk, Size};

/// Files of the tree: how many of how many bytes.
const TREE: [(usize, usize); 3] = [(6_000, 16 << 10), (220, 4 << 20), (8, 64 << 20)];

/// Percent of the space for files that is in use when the steps begin.
const FULL: u64 = 90;

/// A step that writes fewer bytes to files writes little but metadata.
const METADATA: u64 = 10 << 20;

/// A program, and its commands for the shell. `$SOURCE` is the tree, `$TARGET` the mount, `$DAY`
/// the number of the backup.
struct Program {
    name: &'static str,
    init: &'static str,
    backup: &'static str,
    /// Steps on the full disk.
    steps: &'static [(&'static str, &'static str)],
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "backup-restic",
        init: "restic init",
        backup: "restic backup $SOURCE",
        steps: &[
            ("forget", "restic forget --keep-last 5 --prune --max-repack-size 0"),
            ("prune", "restic prune"),
            ("check", "restic check"),
        ],
    },
    Program {
        name: "backup-borg",
        // Segments of 500 MB would be a tenth of this disk.
        init: "borg init --encryption repokey-blake2; borg config $BORG_REPO max_segment_size 134217728",
        backup: "borg create ::$DAY $SOURCE",
        steps: &[
            ("prune", "borg prune --keep-last 5"),
            ("compact", "borg compact"),
            ("check", "borg check --repository-only"),
        ],
    },
    Program {
        name: "backup-rsync",
        init: "mkdir $TARGET/0",
        backup: "rsync -a --link-dest=$TARGET/$(($DAY - 1)) $SOURCE/ $TARGET/$DAY",
        steps: &[(
            "prune",
            "cd $TARGET; for day in *; do test $day -gt $(($DAY - 5)) || rm -r $day; done",
        )],
    },
];

/// A disk and the directories around it.
struct Rig {
    disk: Arc<SimDisk>,
    folder: TempDir,
    random: ChaCha8Rng,
    day: u32,
}

/// Counts of one step.
struct Step {
    seconds: f64,
    jumps: u64,
    moved: u64,
    /// Bytes of file data, and all bytes that the disk was given.
    written: (u64, u64),
    read: u64,
    /// The request that took longest.
    longest: (String, u64),
    /// Percent of the space that files use at the end.
    used: u64,
}

fn main() {
    let mut arguments = env::args().skip(1).collect();
    let mut report = Report::begin("cargo bench -p zonal-cli --bench backup", &mut arguments);
    for program in &PROGRAMS {
        let wanted = |word: &String| program.name.contains(word.as_str());
        if arguments.is_empty() || arguments.iter().any(wanted) {
            report.subject(program.name, 1);
            measure(program, &mut report);
        }
    }
    report.end();
}

fn measure(program: &Program, report: &mut Report) {
    let mut rig = Rig::new();
    rig.step(program.init);
    let mut day = rig.step_of_day(program.backup);
    day.add("first backup", report);
    while day.used < FULL {
        day = rig.next_day(program.backup);
    }
    day.add("backup of a day", report);
    for (name, command) in program.steps {
        rig.step(command).add(name, report);
    }
    rig.next_day(program.backup).add("backup after it", report);
}

impl Rig {
    fn new() -> Self {
        let preset = Preset::find("hc620").expect("a preset");
        let mut config = Config::parse(preset.text).expect("a right one");
        config.zones.size = Size(64 << 20);
        let shape = config.disk.as_mut().expect("a config of a disk");
        (shape.zones, shape.conventional) = (96, 4);
        let disk = Arc::new(SimDisk::new(&config).expect("a possible disk"));
        mkfs(disk.clone(), &*disk.clock(), &MkfsOptions::default(), &mut |_| ()).unwrap();
        let folder = TempDir::with_prefix("zonal-backup-").unwrap();
        for name in ["source", "target", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut rig = Self { disk, folder, random: ChaCha8Rng::seed_from_u64(7), day: 0 };
        for (kind, (count, bytes)) in TREE.into_iter().enumerate() {
            (0..count).for_each(|number| rig.write_file(kind, number, bytes));
        }
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_file(&mut self, kind: usize, number: usize, bytes: usize) {
        let folder = self.path("source").join(format!("{kind}-{}", number / 100));
        fs::create_dir_all(&folder).unwrap();
        let mut content = vec![0; bytes];
        self.random.fill_bytes(&mut content);
        // Another file, as editors save: links of earlier backups keep the old one.
        let new = folder.join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, folder.join(number.to_string())).unwrap();
    }

    /// Replaces a tenth of the files.
    fn change_tree(&mut self) {
        for (kind, (count, bytes)) in TREE.into_iter().enumerate() {
            for _ in 0..count.div_ceil(10) {
                let number = self.random.random_range(0..count);
                self.write_file(kind, number, bytes);
            }
        }
    }

    fn next_day(&mut self, command: &str) -> Step {
        self.change_tree();
        self.step_of_day(command)
    }

    fn step_of_day(&mut self, command: &str) -> Step {
        self.day += 1;
        self.step(command)
    }

    /// Mounts, runs a command and unmounts.
    fn step(&self, command: &str) -> Step {
        let target = self.path("target");
        let before = self.disk.account();
        let clock = self.disk.clock();
        let fs = Furrow::mount(self.disk.clone(), clock.clone(), MountOptions::default());
        let fs = Arc::new(fs.expect("mounted"));
        let latencies = Arc::new(Latencies::new(clock));
        let content =
            MountContent { fs: fs.clone(), control: None, latencies: Arc::clone(&latencies) };
        let config = MountConfig::new("sim:hc620", &target);
        let (ready, is_ready) = channel();
        let served = thread::spawn(move || serve(content, &config, |_| ready.send(()).unwrap()));
        is_ready.recv().expect("mounted");
        self.run(command, &target);
        let space = fs.statfs().unwrap();
        rustix::mount::unmount(&target, UnmountFlags::empty()).unwrap();
        served.join().unwrap().expect("unmounted");

        let (after, traffic) = (self.disk.account(), fs.live().since_mount);
        let longest = latencies.all().into_iter().max_by_key(|one| one.max_ns);
        Step {
            seconds: (after.virtual_ns - before.virtual_ns) as f64 / 1e9,
            jumps: after.jumps - before.jumps,
            moved: after.moved_bytes - before.moved_bytes,
            written: (traffic.user, after.host_written_bytes - before.host_written_bytes),
            read: after.host_read_bytes - before.host_read_bytes,
            longest: longest.map(|one| (one.operation, one.max_ns)).unwrap_or_default(),
            used: 100 * (space.blocks - space.blocks_free) / space.blocks,
        }
    }

    fn run(&self, command: &str, target: &Path) {
        let home = self.path("home");
        let mut shell = Command::new("sh");
        shell.args(["-euc", command]).env("HOME", &home).env("DAY", self.day.to_string());
        shell.env("SOURCE", self.path("source")).env("TARGET", target);
        shell.env("RESTIC_REPOSITORY", target.join("restic")).env("RESTIC_PASSWORD", "secret");
        shell.env("BORG_REPO", target.join("borg")).env("BORG_PASSPHRASE", "secret");
        let output = shell.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&text));
    }
}

impl Step {
    fn add(&self, step: &str, report: &mut Report) {
        let mut push = |figure: &str, unit: &str, value: f64| {
            report.add_variant((figure, step), unit, &[value]);
        };
        let (user, all) = self.written;
        push("disk is busy", "s", self.seconds);
        push("files write", "MB", user as f64 / 1e6);
        push("disk is read", "MB", self.read as f64 / 1e6);
        if user > METADATA {
            push("amplification", "bytes a byte", all as f64 / user as f64);
        }
        push("between jumps", "KiB", self.moved as f64 / 1024.0 / self.jumps.max(1) as f64);
        push("longest request", "ms", self.longest.1 as f64 / 1e6);
        push("in use", "%", self.used as f64);
        println!("{step}: the longest request is a {}", self.longest.0);
    }
}
