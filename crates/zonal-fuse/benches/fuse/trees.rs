//! Programs that work on many small files, in all places in turn. Nothing is synced.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::is_wanted;
use crate::place::Place;
use crate::time::{median, ratio};

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

/// Runs all programs that are wanted, and prints a table.
pub(crate) fn measure(home: &Path, rows: &[String]) {
    let sources = home.join("sources");
    make_sources(&sources);
    let places = Place::all(&fresh(home, "trees"));
    if PROGRAMS.iter().any(|(name, _)| name.contains("200,000") && is_wanted(name, rows)) {
        for place in &places {
            eprintln!("200,000 files in {}", place.name);
            make_listed(&place.dir.join("listed"));
        }
    }
    let names: Vec<&str> = places.iter().map(|place| place.name).collect();
    println!("\nseconds, median of {ROUNDS} interleaved rounds (ratio to the last but one)\n");
    println!("| program | {} |", names.join(" | "));
    println!("| --- |{}", " --- |".repeat(names.len()));
    let mut seconds: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); places.len()]; PROGRAMS.len()];
    for round in 0..ROUNDS {
        for nth in 0..places.len() {
            let at = (round + nth) % places.len();
            for (program, (name, words)) in PROGRAMS.iter().enumerate() {
                if is_wanted(name, rows) {
                    seconds[program][at].push(run(words, &places[at].dir, &sources));
                }
            }
            // Each round begins with what the programs before left.
            let _ = fs::remove_dir_all(places[at].dir.join("tree"));
        }
    }
    for ((name, _), row) in PROGRAMS.iter().zip(&seconds) {
        if !is_wanted(name, rows) {
            continue;
        }
        let base = &row[places.len().saturating_sub(2)];
        let cell = |of: &Vec<f64>| format!("{:.2} ({:.2})", median(of.clone()), ratio(of, base));
        println!("| {name} | {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
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
