//! Programs that work on many small files, in all places in turn. Nothing is synced.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use bench_support::{Report, WarmUp, interleave};

use crate::is_wanted;
use crate::place::{EXT4, Place};

const ROUNDS: usize = 3;

/// The tree: directories, and files in each.
const DIRECTORIES: u32 = 80;
const FILES: u32 = 100;

/// Files of the directory that is listed.
const LISTED: u32 = 200_000;

/// A program: its name, and words of a shell in which `$S` is where the sources are.
const PROGRAMS: [(&str, &str); 6] = [
    ("cp -r of 8,000 files", "cp -r $S/tree tree"),
    ("ls -lR of them, cold", "echo 2 > /proc/sys/vm/drop_caches; ls -lR tree"),
    ("rm -r of them", "rm -r tree"),
    ("tar x of them", "tar xf $S/tree.tar"),
    ("git clone of them", "rm -rf clone; git clone -q $S/repository clone"),
    ("ls -l of 200,000 files, cold", "echo 2 > /proc/sys/vm/drop_caches; ls -l listed"),
];

/// Runs all programs that are wanted. Ratios are to ext4.
pub(crate) fn measure(report: &mut Report, home: &Path, rows: &[String]) {
    let sources = home.join("sources");
    make_sources(&sources);
    let places = Place::all(&fresh(home, "trees"));
    if PROGRAMS.iter().any(|(name, _)| name.contains("200,000") && is_wanted(name, rows)) {
        for place in &places {
            eprintln!("200,000 files in {}", place.name);
            make_listed(&place.dir.join("listed"));
        }
    }
    let wanted: Vec<_> = PROGRAMS.iter().filter(|(name, _)| is_wanted(name, rows)).collect();
    let turns = interleave(ROUNDS, places.len(), WarmUp::None, |at| {
        let dir = &places[at].dir;
        let seconds: Vec<f64> = wanted.iter().map(|(_, words)| run(words, dir, &sources)).collect();
        // The next round begins without this tree.
        let _ = fs::remove_dir_all(dir.join("tree"));
        Some(seconds)
    });
    report.subject("trees", ROUNDS);
    let base = places.iter().position(|place| place.name == EXT4).unwrap_or_default();
    for (program, (name, _)) in wanted.iter().enumerate() {
        let of = |at: usize| -> Vec<f64> { turns[at].iter().map(|turn| turn[program]).collect() };
        for (at, place) in places.iter().enumerate() {
            report.add_beside((name, place.name), "s", &of(at), &of(base));
        }
    }
}

fn fresh(home: &Path, name: &str) -> std::path::PathBuf {
    let dir = home.join(name);
    fs::create_dir(&dir).expect("a directory");
    dir
}

/// A tree of files of 1 to 16 KiB, as files, as an archive and as a repository.
fn make_sources(sources: &Path) {
    let tree = sources.join("tree");
    for directory in 0..DIRECTORIES {
        let path = tree.join(format!("directory{directory}"));
        fs::create_dir_all(&path).expect("a directory");
        for file in 0..FILES {
            let len = 1024 + (directory * FILES + file) * 7919 % (15 << 10);
            let [kind, ..] = (directory ^ file).to_le_bytes();
            let content: Vec<u8> = (0..len).map(|at| at.to_le_bytes()[0] ^ kind).collect();
            fs::write(path.join(format!("file{file}")), content).expect("written");
        }
    }
    run("tar cf tree.tar tree", sources, sources);
    let commit = "git add -A; git -c user.name=x -c user.email=x@x commit -qm x";
    run(&format!("cp -r tree repository; cd repository; git init -q; {commit}"), sources, sources);
}

fn make_listed(dir: &Path) {
    fs::create_dir(dir).expect("a directory");
    for file in 0..LISTED {
        File::create(dir.join(format!("file{file}"))).expect("created");
    }
}

/// Seconds that a shell takes for these words in `dir`.
fn run(words: &str, dir: &Path, sources: &Path) -> f64 {
    let start = Instant::now();
    let status = Command::new("sh")
        .args(["-c", words])
        .current_dir(dir)
        .env("S", sources)
        .stdout(Stdio::null())
        .status()
        .expect("there is a shell");
    assert!(status.success(), "{words}: {status}");
    start.elapsed().as_secs_f64()
}
