//! Programs of other projects on a mounted Furrow: their processes are killed, the mount's daemon
//! is killed, and the drive loses power.
//!
//! `place` mounts, `server` starts and kills a program with all its processes, `page` runs the
//! commands of the guide.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]
#![allow(clippy::doc_markdown, reason = "the names of programs are words here")]

mod backup;
mod ceph;
mod hdfs;
mod mariadb;
mod numbers;
mod page;
mod place;
mod postgresql;
mod qemu;
mod repository;
mod server;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zonal::wait::wait_until;

/// The path of a program; `None`, after a message, if it is missing. Debian keeps PostgreSQL's in a
/// directory of their own, and `cargo xtask test` unpacks some to `target/tools`.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let mut folders: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.map(|entry| entry.unwrap().path().join("bin")).collect())
        .unwrap_or_default();
    folders.sort();
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    folders.extend([tools, PathBuf::from("/usr/sbin")]);
    let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        println!("SKIP: {name} is not installed");
    }
    found
}

/// The output of a program on both streams; panics with it if the program fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

pub(crate) fn zonal(arguments: &[&str]) -> String {
    run(Command::new(env!("CARGO_BIN_EXE_zonal")).args(arguments))
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Times that a test runs a command to see whether a server has started. The command starts a
/// process, which takes longer on a busy machine, as the server does.
const ASKS_MAX: u32 = 3000;

/// Waits until a command succeeds.
pub(crate) fn await_success(command: &str, arguments: &[&str]) {
    let mut asks = 0;
    wait_until(|| {
        asks += 1;
        assert!(asks <= ASKS_MAX, "{command} does not succeed");
        let script = format!("{command} >/dev/null 2>&1");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).args(arguments).stdin(Stdio::null());
        shell.status().unwrap().success()
    });
}
