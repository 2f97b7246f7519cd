//! Real programs on the mounted file system: git, SQLite and Python, where they are installed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A program, and its work.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Does the work in an empty directory; the second path is the tree that was copied.
    work: fn(&Path, &Path) -> Result<String>,
}

/// Every program.
pub(super) const PROGRAMS: [Program; 3] = [
    Program { name: "git", work: git },
    Program { name: "sqlite3", work: sqlite },
    Program { name: "python3", work: python },
];

impl Program {
    /// Whether it can be started here.
    pub(super) fn is_installed(&self) -> bool {
        Command::new(self.name)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Runs it in a directory of its own below `root`, and returns a note on its work.
    pub(super) fn run(&self, root: &Path, tree: &Path) -> Result<String> {
        let folder = root.join(self.name);
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        (self.work)(&folder, tree).with_context(|| format!("{} on the mount", self.name))
    }
}

/// Runs a program in `folder`, its input from `input`; returns its output, or an error with all its
/// messages.
fn run(folder: &Path, program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).with_context(|| format!("talking to {program}"))?;
    }
    let output = child.wait_with_output().with_context(|| format!("waiting for {program}"))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}`: {}\n{said}\n{errors}", arguments.join(" "), output.status);
    }
    Ok(said)
}

/// Files that git gets, and the largest of them.
const GIT_FILES: usize = 1500;
const GIT_FILE_BYTES: u64 = 128 << 10;

fn git(folder: &Path, tree: &Path) -> Result<String> {
    let mut copied = 0;
    copy_small(tree, &folder.join("files"), &mut copied)?;
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=Zonal", "-c", "user.email=zonal@localhost"];
        run(folder, "git", &[&identity[..], arguments].concat(), "")
    };
    git(&["init", "--quiet", "--initial-branch=main"])?;
    git(&["add", "--all"])?;
    git(&["commit", "--quiet", "--message=all files"])?;
    for change in 0..5 {
        fs::write(folder.join("notes.txt"), format!("change {change}\n").repeat(1000))
            .context("changing a file")?;
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message=a change"])?;
    }
    git(&["gc", "--quiet"])?;
    git(&["fsck", "--strict", "--no-progress"])?;
    let left = git(&["status", "--porcelain"])?;
    if !left.is_empty() {
        bail!("git sees changes that nobody made:\n{left}");
    }
    Ok(format!("{copied} files, 6 commits, gc, fsck: clean"))
}

/// Copies small files, as many as git is to get.
fn copy_small(source: &Path, target: &Path, copied: &mut usize) -> Result<()> {
    fs::create_dir(target).with_context(|| format!("creating {}", target.display()))?;
    let entries = fs::read_dir(source).with_context(|| format!("listing {}", source.display()))?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        let (Some(name), Ok(meta)) = (path.file_name(), path.symlink_metadata()) else { continue };
        if *copied >= GIT_FILES {
            return Ok(());
        }
        if meta.is_dir() && name != ".git" {
            copy_small(&path, &target.join(name), copied)?;
        } else if meta.is_file() && meta.len() <= GIT_FILE_BYTES {
            fs::copy(&path, target.join(name))
                .with_context(|| format!("copying {}", path.display()))?;
            *copied += 1;
        }
    }
    Ok(())
}

fn sqlite(folder: &Path, _tree: &Path) -> Result<String> {
    const FILL: &str = "
        PRAGMA page_size = 4096;
        CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor INTEGER, value REAL, note TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
            INSERT INTO reading SELECT i, i % 97, i * 0.5, 'reading number ' || i FROM n;
        CREATE INDEX by_sensor ON reading (sensor, value);
        UPDATE reading SET value = value * 2 WHERE sensor < 40;
        DELETE FROM reading WHERE id % 5 = 0;
        VACUUM;
        PRAGMA integrity_check;
        SELECT count(*) FROM reading;";
    for mode in ["delete", "wal"] {
        let script = format!("PRAGMA journal_mode = {mode};{FILL}");
        let said = run(folder, "sqlite3", &["-batch", &format!("{mode}.db")], &script)?;
        if said != format!("{mode}\nok\n48000") {
            bail!("SQLite with journal_mode = {mode} answered:\n{said}");
        }
    }
    Ok("120,000 rows, rollback journal, WAL: ok".to_owned())
}

fn python(folder: &Path, _tree: &Path) -> Result<String> {
    const SCRIPT: &str = r#"
import hashlib, mmap, os
names = {}
for number in range(1000):
    data = hashlib.sha256(str(number).encode()).digest() * (number % 50 + 1)
    with open("part", "wb") as file:
        file.write(data)
        if number % 50 == 0:
            os.fsync(file.fileno())
    os.rename("part", f"{number:04}")
    names[f"{number:04}"] = data
for name in sorted(names)[::3]:
    os.remove(name)
    del names[name]
with open("mapped", "w+b") as file:
    file.truncate(4 << 20)
    with mmap.mmap(file.fileno(), 0) as view:
        for page in range(0, len(view), 4096):
            view[page:page + 8] = page.to_bytes(8, "little")
        view.flush()
with open("mapped", "rb") as file:
    for page in range(0, 4 << 20, 4096):
        file.seek(page)
        assert file.read(8) == page.to_bytes(8, "little"), page
for name, data in names.items():
    with open(name, "rb") as file:
        assert file.read() == data, name
assert sorted(os.listdir()) == sorted([*names, "mapped"])
"#;
    run(folder, "python3", &["-B", "-"], SCRIPT)?;
    Ok("1,000 files written, renamed, read back; mmap".to_owned())
}
