//! Real programs through a real mount: git, SQLite and fio, with writers and daemons killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::mounted;
use crate::mounted::{Mounted, tools};

#[test]
#[ignore = "needs root and external tools; run by cargo xtask test"]
fn git_repositories_stay_whole() {
    if tools::find("git").is_none() {
        return;
    }
    let Some(mut mounted) = mounted::mount() else { return };
    let script = "
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=$PWD
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main source && cd source
for commit in $(seq 40); do
    mkdir -p dir$((commit % 7))
    for file in $(seq 15); do seq $commit $((commit * file)) > dir$((commit % 7))/file$file; done
    git add . && git commit -q -m \"commit $commit\"
done
cd .. && git clone -q --no-hardlinks source clone && cd clone
git fsck --strict && git gc -q --aggressive --prune=now && git fsck --strict
git checkout -q HEAD~20 && git checkout -q main && test -z \"$(git status --porcelain)\"
git rev-parse HEAD";
    let head = tools::shell(&mounted.root(), script, &[]);
    mounted.remount("");
    let check = "export HOME=$PWD; cd clone; git -c safe.directory='*' fsck --strict; \
                 git -c safe.directory='*' rev-parse HEAD";
    assert_eq!(
        tools::shell(&mounted.root(), check, &[]).lines().last(),
        head.lines().last(),
        "after unmount and mount"
    );
}

#[test]
#[ignore = "needs root and external tools; run by cargo xtask test"]
fn fio_reads_what_it_wrote() {
    if tools::find("fio").is_none() {
        return;
    }
    let Some(mounted) = mounted::mount() else { return };
    let jobs: [(&str, &[&str]); 6] = [
        ("sequential", &["--rw=write", "--bs=128k"]),
        // Found a corruption in another FUSE file system that fsx and fsstress passed over.
        ("fsync", &["--rw=randwrite", "--bs=4k", "--fsync=64"]),
        ("unaligned", &["--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned"]),
        (
            "direct",
            &["--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=16"],
        ),
        (
            "direct-large",
            &["--rw=randwrite", "--bs=1m", "--direct=1", "--ioengine=libaio", "--iodepth=4"],
        ),
        ("mapped", &["--rw=randwrite", "--bs=4k", "--ioengine=mmap"]),
    ];
    for (name, options) in jobs {
        let text = tools::run(
            Command::new("fio")
                .args(["--size=32m", "--verify=crc32c", "--verify_fatal=1", "--group_reporting"])
                .args(options)
                .arg(format!("--name={name}"))
                .current_dir(mounted.root()),
        );
        assert!(text.contains("err= 0"), "{name}: {text}");
    }
}

/// Adds rows for ever and prints each number once it is committed.
const WRITER: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute('PRAGMA journal_mode=' + sys.argv[2])
base.execute('PRAGMA synchronous=' + sys.argv[3])
base.execute('CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT)')
base.execute('CREATE INDEX IF NOT EXISTS texts ON rows (text)')
last = base.execute('SELECT coalesce(max(id), 0) FROM rows').fetchone()[0]
while True:
    base.execute('BEGIN')
    for number in range(last + 1, last + 6):
        base.execute('INSERT INTO rows VALUES (?, ?)', (number, 'text %d ' % number * 20))
    base.execute('COMMIT')
    last += 5
    print(last, flush=True)
";

/// Rows that `WRITER` adds in one transaction.
const ROWS_PER_COMMIT: u32 = 5;

/// Prints the last row after checking that all before it are there.
const CHECKER: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
assert base.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
last, count = base.execute('SELECT coalesce(max(id), 0), count(*) FROM rows').fetchone()
assert last == count, (last, count)
print(last)
";

#[test]
#[ignore = "needs root and external tools; run by cargo xtask test"]
fn sqlite_survives_killed_writer_and_daemon() {
    kill_writers_and_daemons(2);
}

#[test]
#[ignore = "needs root, external tools and a minute; run by cargo xtask test --all"]
fn sqlite_survives_many_killed_writers_and_daemons() {
    kill_writers_and_daemons(6);
}

fn kill_writers_and_daemons(rounds: u32) {
    if tools::find("python3").is_none() {
        return;
    }
    let Some(mut mounted) = mounted::mount() else { return };
    for (mode, synchronous) in [
        ("delete", "full"),
        ("delete", "extra"),
        ("truncate", "extra"),
        ("persist", "extra"),
        ("wal", "full"),
        ("wal", "extra"),
    ] {
        // Without `extra`, SQLite does not wait until the deletion of its journal is durable.
        let undone = if (mode, synchronous) == ("delete", "full") { ROWS_PER_COMMIT } else { 0 };
        let base = mounted.path(&format!("{mode}-{synchronous}.db"));
        let mut committed = 0;
        for round in 0..rounds {
            let until = committed + 50 + 37 * round;
            let (mut writer, acknowledged) = write_rows(&base, mode, synchronous, until);
            let mut least = acknowledged;
            if round % 2 == 0 {
                writer.kill().unwrap();
                writer.wait().unwrap();
            } else {
                mounted.kill();
                writer.kill().unwrap();
                writer.wait().unwrap();
                mounted.start("");
                least -= undone;
            }
            committed = check_rows(&mounted, &base);
            assert!(committed >= least, "{mode} {synchronous}: {committed} of {acknowledged} rows");
        }
        println!("{mode} {synchronous}: {committed} rows");
    }
}

/// Starts a writer and returns it with the last row it acknowledged, which is at least `until`.
fn write_rows(base: &Path, mode: &str, synchronous: &str, until: u32) -> (Child, u32) {
    let mut writer = Command::new("python3")
        .args(["-c", WRITER])
        .arg(base)
        .args([mode, synchronous])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 runs");
    let lines = BufReader::new(writer.stdout.take().expect("it is piped")).lines();
    let mut last = 0;
    for line in lines {
        last = line.expect("text").parse().expect("a number");
        if last >= until {
            return (writer, last);
        }
    }
    panic!("the writer ended after row {last}: {}", writer.wait().expect("it was started"));
}

fn check_rows(mounted: &Mounted, base: &Path) -> u32 {
    assert!(fs::metadata(mounted.root()).is_ok());
    let text = tools::run(Command::new("python3").args(["-c", CHECKER]).arg(base));
    text.trim().parse().expect("a number")
}
