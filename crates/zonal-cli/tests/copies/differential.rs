//! cp(1) of coreutils copies random trees, and `zonal cp` copies them to a drive and from one:
//! kinds, contents, modes, owners, links, times and exit codes are the same. `SEED` and `COUNT` in
//! the environment choose the rounds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::repeat;

use super::{Mounted, Place, is_root};

const OPTIONS: [&[&str]; 7] =
    [&["-r"], &["-a"], &["-r", "-p"], &["-r", "-L"], &["-r", "-P"], &[], &["-p"]];

const SOURCES: [&[&str]; 6] = [
    &["tree"],
    &["tree/."],
    &["tree/file0"],
    &["tree/file0", "tree/file1", "tree/dir0"],
    &["tree/link0"],
    &["tree", "tree/file1", "tree/none"],
];

/// Files are older than this, in seconds since 1970. A copy with a later time has not kept it.
const LONG_AGO: u64 = 1_600_000_000;

const TARGETS: [&str; 3] = ["there", "new", "there/file0"];

/// The purpose of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The source of copies: it has files of all kinds, and all modes.
    Source,
    /// It exists before the copy.
    Target,
}

/// Whether times are to be the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Kept,
    Any,
}

/// Fills a directory with entries that have the same few names each time, so that trees collide.
fn fill(dir: &Path, depth: u32, random: &mut ChaCha8Rng, tree: Use) {
    fs::create_dir_all(dir).unwrap();
    for number in 0..3 {
        let file = dir.join(format!("file{number}"));
        if random.random_bool(0.8) {
            let content = vec![random.random::<u8>(); random.random_range(0..20_000)];
            fs::write(&file, content).unwrap();
            if random.random_bool(0.3) {
                let len = random.random_range(0..3_000_000);
                fs::File::options().write(true).open(&file).unwrap().set_len(len).unwrap();
            }
        }
        if depth > 0 && random.random_bool(0.7) {
            fill(&dir.join(format!("dir{number}")), depth - 1, random, tree);
        }
    }
    if tree == Use::Source {
        if dir.join("file0").exists() && random.random_bool(0.5) {
            fs::hard_link(dir.join("file0"), dir.join("hard")).unwrap();
        }
        for (name, target) in [("link0", "file0"), ("link1", "nowhere"), ("file2", "file0")] {
            let link = dir.join(name);
            if random.random_bool(0.6) && fs::symlink_metadata(&link).is_err() {
                symlink(target, link).unwrap();
            }
        }
        if random.random_bool(0.3) {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                dir.join("pipe"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o604),
                0,
            )
            .unwrap();
        }
    }
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_symlink() {
            continue;
        }
        if kind.is_file() {
            let time =
                Duration::new(random.random_range(0..LONG_AGO), random.random_range(0..1 << 29));
            let file = fs::File::open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + time).unwrap();
        }
        let (uid, gid) = (random.random_range(0..3), random.random_range(0..3));
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
        // cp(1) leaves set-id bits and sticky of an existing file where -p sets a mode by an ACL.
        let most = if tree == Use::Source { 0o10000 } else { 0o1000 };
        let mode = fs::Permissions::from_mode(random.random_range(0..most));
        fs::set_permissions(&path, mode).unwrap();
    }
}

/// All properties that a copy must have of its original.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    content: Vec<u8>,
    /// The first name of the same file.
    same_as: PathBuf,
    modified: Option<(i64, i64)>,
}

/// The entries of a tree, by name.
struct Gathered<'a> {
    root: &'a Path,
    times: Times,
    /// The first name of each inode.
    inodes: BTreeMap<u64, PathBuf>,
    all: BTreeMap<PathBuf, Facts>,
}

impl Gathered<'_> {
    fn add(&mut self, path: &Path) {
        let found = fs::symlink_metadata(path).unwrap();
        let name = path.strip_prefix(self.root).unwrap().to_path_buf();
        let kind = found.file_type();
        let (kind, content) = if kind.is_dir() {
            ("directory", Vec::new())
        } else if kind.is_symlink() {
            ("link", fs::read_link(path).unwrap().into_os_string().into_encoded_bytes())
        } else if kind.is_fifo() {
            ("pipe", Vec::new())
        } else {
            ("file", fs::read(path).unwrap())
        };
        let same_as = self.inodes.entry(found.ino()).or_insert_with(|| name.clone()).clone();
        // cp(1) keeps setuid of a pipe, where it has no meaning.
        let kept = BTreeMap::from([("link", 0), ("pipe", 0o1777)]);
        let mode = found.mode() & kept.get(kind).unwrap_or(&0o7777);
        let (owner, time) = ((found.uid(), found.gid()), (found.mtime(), found.mtime_nsec()));
        // A directory that is written into gets another time.
        let is_old = u64::try_from(time.0).is_ok_and(|secs| secs < LONG_AGO);
        let modified = (self.times == Times::Kept && is_old).then_some(time);
        self.all.insert(name, Facts { kind, mode, owner, content, same_as, modified });
        if kind == "directory" {
            let mut names: Vec<OsString> =
                fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            for name in names {
                self.add(&path.join(name));
            }
        }
    }
}

fn facts(root: &Path, times: Times) -> BTreeMap<PathBuf, Facts> {
    let (inodes, all) = (BTreeMap::new(), BTreeMap::new());
    let mut gathered = Gathered { root, times, inodes, all };
    gathered.add(root);
    // The top directory has times of its own.
    gathered.all.remove(Path::new(""));
    gathered.all
}

#[track_caller]
fn assert_same(real: &BTreeMap<PathBuf, Facts>, ours: &BTreeMap<PathBuf, Facts>, what: &str) {
    for (name, wanted) in real {
        let found = ours.get(name);
        let short = |facts: &Facts| {
            let Facts { kind, mode, owner, content, same_as, modified } = facts;
            format!(
                "{kind} {mode:o} {owner:?} {} bytes {} {modified:?}",
                content.len(),
                same_as.display()
            )
        };
        let (wanted_text, found_text) = (short(wanted), found.map(short));
        assert!(
            found == Some(wanted),
            "{what}: {}: cp makes {wanted_text}, zonal cp {found_text:?}",
            name.display()
        );
    }
    let more: Vec<_> = ours.keys().filter(|name| !real.contains_key(*name)).collect();
    assert!(more.is_empty(), "{what}: only zonal cp makes {more:?}");
}

#[test]
fn cp_differential_random_trees_match_coreutils() {
    if !is_root() {
        return;
    }
    let (seed, count) = (repeat::seed(1), repeat::count(12));
    for seed in seed..seed + count {
        println!("SEED={seed}");
        round(seed);
    }
}

fn round(seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let place = Place::new();
    fill(&place.path("tree"), 2, &mut random, Use::Source);
    fill(&place.path("before"), 2, &mut random, Use::Target);
    let options = OPTIONS.choose(&mut random).unwrap();
    let sources = SOURCES.choose(&mut random).unwrap();
    let target = TARGETS.choose(&mut random).unwrap();
    let umask = ["022", "027", "077", "000"].choose(&mut random).unwrap();
    let keeps = options.contains(&"-a") || options.contains(&"-p");
    let times = if keeps { Times::Kept } else { Times::Any };
    let what = format!("SEED={seed}: umask {umask}; cp {options:?} {sources:?} {target}");
    let run = |program: &str, sources: Vec<String>, target: String| {
        let script = format!("umask {umask}; exec \"$@\"");
        let mut command = place.command("sh");
        command.args(["-c", &script, "sh", program]);
        if program != "cp" {
            command.arg("cp");
        }
        command.args(*options).args(sources).arg(target).output().unwrap()
    };
    let words = |prefix: &str| sources.iter().map(|name| format!("{prefix}{name}")).collect();
    let zonal = env!("CARGO_BIN_EXE_zonal");
    // By cp(1), to a drive, and from a drive.
    place.command("cp").args(["-a", "before", "real-there"]).output().unwrap();
    fs::create_dir(place.path("real")).unwrap();
    fs::rename(place.path("real-there"), place.path("real/there")).unwrap();
    let real = run("cp", words(""), format!("real/{target}"));
    place.must(["mkdir", "drive.zns:/to"]);
    place.must(["cp", "-a", "before", "drive.zns:/to/there"]);
    let ours = run(zonal, words(""), format!("drive.zns:/to/{target}"));
    let said = String::from_utf8_lossy(&ours.stderr).into_owned();
    let real_said = String::from_utf8_lossy(&real.stderr).into_owned();
    assert_eq!(ours.status.success(), real.status.success(), "{what}: {said} / {real_said}");
    place.must(["cp", "-a", "drive.zns:/to", "back"]);
    let wanted = facts(&place.path("real"), times);
    assert_same(&wanted, &facts(&place.path("back"), times), &what);
    place.must(["cp", "-a", "tree", "drive.zns:/tree"]);
    fs::create_dir(place.path("from")).unwrap();
    place.command("cp").args(["-a", "before", "from/there"]).output().unwrap();
    let ours = run(zonal, words("drive.zns:/"), format!("from/{target}"));
    let said = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert_eq!(ours.status.success(), real.status.success(), "{what}, from a drive: {said}");
    let from_drive = format!("{what}, from a drive");
    assert_same(&wanted, &facts(&place.path("from"), times), &from_drive);
    // Within a drive, and within a mount of it, where copies share blocks.
    place.must(["mkdir", "drive.zns:/within"]);
    place.must(["cp", "-a", "before", "drive.zns:/within/there"]);
    let ours = run(zonal, words("drive.zns:/"), format!("drive.zns:/within/{target}"));
    assert_eq!(ours.status.success(), real.status.success(), "{what}, within a drive: {ours:?}");
    place.must(["cp", "-a", "drive.zns:/within", "within-back"]);
    let within = format!("{what}, within a drive");
    assert_same(&wanted, &facts(&place.path("within-back"), times), &within);
    if let Some(mount) = Mounted::of(&place, "drive.zns") {
        fs::create_dir(mount.dir.join("mounted")).unwrap();
        let there = mount.dir.join("mounted/there");
        place.command("cp").args(["-a", "before"]).arg(there).output().unwrap();
        let mut operands: Vec<String> = words("drive.zns.mnt/");
        operands.insert(0, "--reflink=auto".to_owned());
        let ours = run(zonal, operands, format!("drive.zns.mnt/mounted/{target}"));
        assert_eq!(ours.status.success(), real.status.success(), "{what}, in a mount: {ours:?}");
        let mounted = format!("{what}, in a mount");
        assert_same(&wanted, &facts(&mount.dir.join("mounted"), times), &mounted);
    }
    place.must(["check", "--data", "drive.zns"]);
}
