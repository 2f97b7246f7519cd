//! Real programs on the mounted file system: git, SQLite and Python, where they are installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Every program, and the script for sh(1) that has it work in a directory of its own. The last
/// line of the output is a note on the work.
pub(super) const PROGRAMS: [(&str, &str); 3] = [
    ("git", include_str!("programs/git.sh")),
    ("sqlite3", include_str!("programs/sqlite3.sh")),
    ("python3", include_str!("programs/python3.sh")),
];

/// Runs a script in a new directory of the mount, and returns its note.
pub(super) fn run(name: &str, script: &str, mount: &Path) -> Result<String> {
    let folder = mount.join(name);
    fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let output = Command::new("sh")
        .args(["-e", "-u", "-x", "-c", script])
        .current_dir(&folder)
        .envs([("LC_ALL", "C"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .env("HOME", &folder)
        .output()
        .context("starting sh")?;
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    ensure!(output.status.success(), "{name} on the mount: {}\n{said}\n{errors}", output.status);
    Ok(said.lines().last().unwrap_or_default().to_owned())
}
