//! Costs of mount, unmount and memory, by the number of files and of extents, and of using some of
//! them here and there.
//!
//! Each step is a process of its own: the first makes a drive and writes it to a file, others read
//! and mount it, so that their memory is the mount's. Files lie in the directory for temporary
//! files.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bench_support::{Machine, Report, Took, timed};
use serde_json::{Value, json};
use zonal::ByteCount;
use zonal_fs::furrow::{DataCheck, Furrow, check};
use zonal_fs::vfs::{FileSystem, Ino};

use crate::Args;
use crate::drive::SparseDrive;
use crate::report::Rounds;
use crate::volume::{
    BLOCK, BLOCK_BYTES, Dice, Made, create_directory, create_file, fill, make, mount, overwrite,
};

const MIB: f64 = (1 << 20) as f64;

/// The variable with the task of a child.
const TASK: &str = "ZONAL_BENCH_TASK";

/// Operations between two ticks.
const TICK: u64 = 1000;

/// Operations after a mount, and how many of each.
const USES: [(Used, u64); 4] = [
    (Used::Read, 100_000),
    (Used::Create, 20_000),
    (Used::Overwrite, 20_000),
    (Used::Read, 20_000),
];

/// Memory that mounts may use, in MiB: first the default.
const MEMORY_MIB: [u64; 3] = [256, 64, 512];

/// Does the task of a child, if this process is one.
pub(crate) fn is_child() -> bool {
    let Ok(task) = env::var(TASK) else { return false };
    let words: Vec<&str> = task.split('\n').collect();
    let [what, size, memory, path] = words[..] else { panic!("{task}: not a task") };
    let [size, memory] = [size, memory].map(|word| word.parse().expect("a number"));
    let path = Path::new(path);
    let answer = match what {
        "files" => save(&make_files(size), path),
        "extents" => {
            let (made, overwrites) = make_extents(size);
            let mut answer = save(&made, path);
            answer["overwrite"] = json!(overwrites.processor / size as f64 * 1e6);
            answer
        }
        "check" => check_file(path),
        "mount files" => mount_file(path, memory, &|fs, dice, used| use_file(fs, dice, size, used)),
        "mount extents" => {
            mount_file(path, memory, &|fs, dice, used| use_block(fs, dice, size, used))
        }
        _ => panic!("{what}: not a task"),
    };
    println!("{answer}");
    true
}

fn start(what: &str, size: u64, memory: u64, path: &Path) -> Value {
    let output = Command::new(env::current_exe().expect("a program knows its path"))
        .env(TASK, format!("{what}\n{size}\n{memory}\n{}", path.display()))
        .stderr(Stdio::inherit())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{what} failed");
    serde_json::from_slice(&output.stdout).expect("it answers in JSON")
}

/// A thousand files of a block to each directory.
fn make_files(count: u64) -> Made {
    let made = make((count / 4000).max(256), 64, Arc::new(Machine));
    let fs = &made.fs;
    for directory in 0..count / 1000 {
        put_files(fs, &format!("d{directory}"), 1000);
        fs.tick().expect("work in the background");
    }
    fs.sync().expect("synced");
    // Files that only the journal has when the power fails.
    put_files(fs, "last", 10_000);
    made
}

fn put_files(fs: &Furrow, home: &str, count: u64) {
    let home = create_directory(fs, home);
    for number in 0..count {
        let file = create_file(fs, home, &format!("file-{number:05}"));
        overwrite(fs, file, 0);
    }
}

/// A file whose every block was written alone, in an order that puts no two neighbours together;
/// and the time of these overwrites.
fn make_extents(count: u64) -> (Made, Took) {
    assert!(count.is_power_of_two(), "the generator below goes through powers of two");
    let bytes = count * BLOCK;
    let made = make((bytes / (32 << 20)).max(64), 64, Arc::new(Machine));
    let file = create_file(&made.fs, Ino::ROOT, "file");
    fill(&made.fs, file, bytes);
    // A linear congruential generator of full period takes each block once.
    let mut block = 1_u64;
    let (took, ()) = timed(|| {
        for number in 0..count {
            if number.is_multiple_of(TICK) {
                made.fs.tick().expect("work in the background");
            }
            overwrite(&made.fs, file, block);
            let next = block.wrapping_mul(0x5851_f42d_4c95_7f2d);
            block = next.wrapping_add(0x1405_7b7e_f767_814f) % count;
        }
    });
    (made, took)
}

/// An operation that is done many times.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Read,
    Overwrite,
    Create,
}

/// Reads or overwrites a file somewhere, by its name, or makes another.
fn use_file(fs: &Furrow, dice: &mut Dice, count: u64, used: Used) {
    let (home, name) = (format!("d{}", dice.below(count / 1000)), dice.below(1000));
    let home = fs.lookup(Ino::ROOT, home.as_bytes()).expect("it was made").ino;
    let name = format!("file-{name:05}");
    if used == Used::Create {
        create_file(fs, home, &format!("{name}-{}", dice.below(u64::MAX)));
        return;
    }
    let file = fs.lookup(home, name.as_bytes()).expect("it was made").ino;
    use_at(fs, file, 0, used);
}

/// Reads or overwrites a block somewhere in the file, or makes another file.
fn use_block(fs: &Furrow, dice: &mut Dice, count: u64, used: Used) {
    if used == Used::Create {
        create_file(fs, Ino::ROOT, &format!("another-{}", dice.below(u64::MAX)));
        return;
    }
    let file = fs.lookup(Ino::ROOT, b"file").expect("it was made").ino;
    use_at(fs, file, dice.below(count), used);
}

fn use_at(fs: &Furrow, file: Ino, block: u64, used: Used) {
    match used {
        Used::Read => read_block(fs, file, block),
        Used::Overwrite | Used::Create => overwrite(fs, file, block),
    }
}

fn read_block(fs: &Furrow, file: Ino, block: u64) {
    let mut buffer = [0; BLOCK_BYTES];
    let read = fs.read(file, block * BLOCK, &mut buffer).expect("it can be read");
    assert_eq!(read, BLOCK_BYTES, "all of it");
}

/// The drive as a power cut after a sync leaves it, and as an unmount does.
fn save(made: &Made, path: &Path) -> Value {
    made.fs.sync().expect("synced");
    let memory = status("VmRSS") - made.drive.stored() as f64;
    made.drive.save(&path.with_extension("cut")).expect("room for the drive");
    let before = made.drive.counts();
    let (took, ()) = timed(|| made.fs.shutdown().expect("unmounted"));
    let written = (made.drive.counts() - before).written;
    made.drive.save(&path.with_extension("clean")).expect("room for the drive");
    json!({
        "seconds": took.wall,
        "processor": took.processor,
        "written": written,
        "memory": memory,
    })
}

fn mount_file(path: &Path, memory_mib: u64, use_one: &dyn Fn(&Furrow, &mut Dice, Used)) -> Value {
    let drive = Arc::new(SparseDrive::load(path).expect("it was saved"));
    // From here on the peak is that of the mount.
    std::fs::write("/proc/self/clear_refs", "5").expect("the kernel counts anew");
    let (stored, resident) = (drive.stored(), status("VmRSS"));
    let grown = |line| status(line) - resident - (drive.stored() as f64 - stored as f64);
    let memory = ByteCount::new(memory_mib << 20);
    let (took, fs) = timed(|| mount(drive.clone(), Arc::new(Machine), memory));
    let (peak, kept) = (grown("VmHWM"), grown("VmRSS"));
    let counts = drive.counts();
    let mut dice = Dice(5);
    let uses = USES.map(|(used, times)| {
        let counts = drive.counts();
        let (took, ()) = timed(|| {
            for number in 0..times {
                use_one(&fs, &mut dice, used);
                if number % TICK == TICK - 1 {
                    fs.tick().expect("work in the background");
                }
            }
        });
        let stats = fs.stats();
        json!({
            "use": took.wall / times as f64 * 1e6,
            "processor": took.processor / times as f64 * 1e6,
            "read": (drive.counts() - counts).read as f64 / times as f64,
            "resident": grown("VmRSS"),
            "held": stats.held_bytes,
            "leaves": stats.cache_bytes,
        })
    });
    let peak_of_uses = grown("VmHWM");
    drop(fs);
    json!({
        "uses": uses,
        "peak of uses": peak_of_uses,
        "seconds": took.wall,
        "processor": took.processor,
        "kept": kept,
        "peak": peak,
        "read": counts.read,
        "reads": counts.reads,
    })
}

/// Memory and time of a check, without the memory of the drive.
fn check_file(path: &Path) -> Value {
    let drive = Arc::new(SparseDrive::load(path).expect("it was saved"));
    std::fs::write("/proc/self/clear_refs", "5").expect("the kernel counts anew");
    let resident = status("VmRSS");
    let (took, report) = timed(|| check(drive, DataCheck::Skip, &mut |_| ()).expect("checked"));
    assert!(report.is_clean(), "{report:?}");
    json!({ "peak": status("VmHWM") - resident, "seconds": took.wall })
}

/// A line of this process's status, in bytes.
fn status(line: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    let kib = found.and_then(|found| found.trim().strip_suffix(" kB")).expect("it is in KiB");
    kib.trim().parse::<f64>().expect("a number") * 1024.0
}

struct Subject<'a> {
    task: &'a str,
    size: u64,
    name: String,
    unit: &'static str,
}

fn measure(args: &Args, report: &mut Report, subject: &Subject<'_>) {
    let Subject { task, size, name, unit } = subject;
    let path = env::temp_dir().join(format!("zonal-bench-{}-{task}", std::process::id()));
    let number = |value: &Value| value.as_f64().expect("a number");
    let mut rounds = Rounds::default();
    let unmounted = start(task, *size, MEMORY_MIB[0], &path);
    let column = format!("{name}, {} MiB", MEMORY_MIB[0]);
    let mut push = |row: &str, unit, value| rounds.push(&format!("{row}: {column}"), unit, value);
    push("unmount", "s", number(&unmounted["seconds"]));
    push("written by it", "bytes", number(&unmounted["written"]));
    push("memory after making", "MiB", number(&unmounted["memory"]) / MIB);
    if let Some(overwrite) = unmounted["overwrite"].as_f64() {
        push("an overwrite while making", "µs", overwrite);
    }
    for _ in 0..args.rounds.min(3) {
        for (end, what) in [("clean", "an unmount"), ("cut", "a power cut")] {
            for memory in MEMORY_MIB {
                let file = path.with_extension(end);
                let mounted = start(&format!("mount {task}"), *size, memory, &file);
                if memory == MEMORY_MIB[0] {
                    let mut push = |row: &str, unit, value| {
                        rounds.push(&format!("{row}: {column}"), unit, value);
                    };
                    push(&format!("mount after {what}"), "s", number(&mounted["seconds"]));
                    push(
                        &format!("read by a mount after {what}"),
                        "bytes",
                        number(&mounted["read"]),
                    );
                    let each = |of: &str| number(&mounted[of]) / *size as f64;
                    push("memory after a mount", unit, each("kept"));
                    push("memory while mounting", unit, each("peak"));
                }
                if end == "clean" {
                    push_uses(&mut rounds, &format!("{name}, {memory} MiB"), &mounted);
                }
            }
        }
    }
    for end in ["clean", "cut"] {
        remove(&path.with_extension(end));
    }
    rounds.report(report);
}

/// Reports the cost of each operation, and the most memory of all.
fn push_uses(rounds: &mut Rounds, column: &str, mounted: &Value) {
    let number = |value: &Value| value.as_f64().expect("a number");
    let kinds = ["a read", "a create", "an overwrite", "a read again"];
    for (used, kind) in mounted["uses"].as_array().expect("a list").iter().zip(kinds) {
        let processor = number(&used["processor"]);
        rounds.push(&format!("{kind}, processor time: {column}"), "µs", processor);
        rounds.push(&format!("{kind}, from the drive: {column}"), "bytes", number(&used["read"]));
    }
    let peak = number(&mounted["peak of uses"]) / MIB;
    rounds.push(&format!("resident at most: {column}"), "MiB", peak);
}

fn remove(path: &PathBuf) {
    std::fs::remove_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// A check of many files, and of one in many pieces.
pub(crate) fn checks(args: &Args, report: &mut Report) {
    let large: &[(&str, u64)] = &[("files", 10_000_000), ("extents", 16 << 20)];
    let sizes: &[(&str, u64)] = &[("files", 1_000_000), ("extents", 1 << 20)];
    for (task, size) in sizes.iter().chain(args.is_large.then_some(large).into_iter().flatten()) {
        let name = format!("check of {} M {task}", size / 1_000_000);
        let path = env::temp_dir().join(format!("zonal-bench-{}-{task}", std::process::id()));
        start(task, *size, MEMORY_MIB[0], &path);
        let mut rounds = Rounds::default();
        for end in ["clean", "cut"].map(|end| path.with_extension(end)) {
            let checked = start("check", *size, MEMORY_MIB[0], &end);
            let number = |of: &str| checked[of].as_f64().expect("a number");
            rounds.push(&format!("{name}: memory"), "MiB", number("peak") / f64::from(1 << 20));
            rounds.push(&format!("{name}: time"), "s", number("seconds"));
            remove(&end);
        }
        rounds.report(report);
    }
}

/// Files of a block.
pub(crate) fn files(args: &Args, report: &mut Report) {
    let sizes: &[u64] = if args.is_large { &[1_000_000, 10_000_000] } else { &[1_000_000] };
    for &size in sizes {
        let name = format!("{} M files of 4 KiB", size / 1_000_000);
        measure(args, report, &Subject { task: "files", size, name, unit: "bytes per file" });
    }
}

/// A file in pieces of a block.
pub(crate) fn extents(args: &Args, report: &mut Report) {
    let sizes: &[u64] = if args.is_large { &[1, 64] } else { &[1] };
    for &gib in sizes {
        let name = format!("{gib} GiB overwritten in 4 KiB pieces");
        let size = (gib << 30) / BLOCK;
        measure(args, report, &Subject { task: "extents", size, name, unit: "bytes per extent" });
    }
}
