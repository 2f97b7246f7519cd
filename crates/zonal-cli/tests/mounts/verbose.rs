//! `-v` logs the actions of every command and `-vv` each step; only terminals get control
//! sequences.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::{Place, ZONAL, errors, run, text, zonal};

/// One call of each family of commands that needs no mount. `{d}` is a drive with a Furrow, `{n}` a
/// drive without data, `{o}` a directory.
const CALLS: [&str; 30] = [
    "create {o}/new.zns --zones 40 --zone-size 1MiB --force",
    "info {d}",
    "zones {d}",
    "zones {d} --map",
    "zone open {n} 3",
    "zone close {n} 3",
    "zone finish {n} 5",
    "zone reset {n} 3 5",
    "zone reset {n} --all",
    "write {n} --lba 0 -i {o}/data",
    "read {n} --lba 0 -o {o}/read",
    "append {n} --zone 1 -i {o}/data",
    "bench mem:zones=20,zone=1M --op write --block-size 4KiB --seconds 0.01",
    "mkzonefs {n} -f",
    "mkfs {n} -f",
    "mkfs {n} --dry-run",
    "check {d}",
    "dump {d} superblock",
    "mkdir {d}:/dir",
    "cp {o}/data {d}:/dir/data",
    "ls -l {d}:/dir",
    "stat {d}:/dir/data",
    "cat {d}:/dir/data",
    "ln {d}:/dir/data {d}:/dir/link",
    "mv {d}:/dir/link {d}:/dir/moved",
    "df {d}",
    "rm -r {d}:/dir",
    "sim show small",
    "completions bash",
    "man {o}/man",
];

fn zonal_with(line: &str, more: &[&str]) -> Output {
    let arguments = line.split(' ').chain(more.iter().copied());
    let mut command = Command::new(ZONAL);
    // Of the environment, only the variables about terminals matter.
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").env("CLICOLOR", "1");
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn verbose_commands_report_without_colour_in_pipes() {
    let place = Place::new();
    let (drive, plain, folder) = (place.drive(), place.path("plain.zns"), place.path(""));
    zonal(&["create", text(&plain), "--zones", "40", "--zone-size", "1MiB"]);
    fs::write(place.path("data"), vec![7; 8192]).unwrap();
    for call in CALLS {
        let line = call.replace("{d}", text(&drive)).replace("{n}", text(&plain));
        let line = line.replace("{o}", text(&folder).trim_end_matches('/'));
        for (more, says) in [(&[][..], [false; 2]), (&["-v"], [true, false]), (&["-vv"], [true; 2])]
        {
            prepare(call, &plain, &drive);
            let output = zonal_with(&line, more);
            let said = errors(&output);
            assert!(output.status.success(), "{line} {more:?}: {said}");
            let has = [" INFO ", "DEBUG "].map(|level| said.contains(level));
            assert_eq!(has, says, "{line} {more:?}: {said}");
            let is_plain = |bytes: &[u8]| !bytes.contains(&0x1b);
            assert!(is_plain(&output.stdout) && is_plain(&output.stderr), "{line} {more:?}");
        }
    }
}

/// Restores the state that a call finds the first time, since the test makes it three times.
fn prepare(call: &str, plain: &Path, drive: &Path) {
    let quiet = |line: String| drop(zonal_with(&line, &[]));
    if ["zone ", "write ", "append "].iter().any(|start| call.starts_with(start)) {
        quiet(format!("zone reset {} --all", plain.display()));
    }
    if call.starts_with("zone close") {
        quiet(format!("zone open {} 3", plain.display()));
    }
    let dir = format!("{}:/dir", drive.display());
    match call.split(' ').next() {
        Some("mkdir") => quiet(format!("rm -r -f {dir}")),
        Some("ln") => quiet(format!("rm -f {dir}/link {dir}/moved")),
        Some("mv") => {
            quiet(format!("rm -f {dir}/link {dir}/moved"));
            quiet(format!("ln {dir}/data {dir}/link"));
        }
        Some("rm") => quiet(format!("mkdir {dir}")),
        _ => {}
    }
}

#[test]
fn verbose_mount_commands_report_their_actions() {
    let Some(place) = Place::mountable() else { return };
    let (drive, dir) = (place.drive(), place.dir());
    let log = place.path("other-log");
    let mount = format!("mount {} {} --log {}", drive.display(), dir.display(), log.display());
    for (verbose, says) in [("-v", [true, false]), ("-vv", [true; 2])] {
        let output = zonal_with(&mount, &[verbose]);
        assert!(output.status.success(), "{}", errors(&output));
        for command in ["stats", "reclaim", "umount"] {
            let output = run(Path::new(ZONAL), &[command, text(&dir), verbose]);
            let said = errors(&output);
            assert!(output.status.success(), "{command}: {said}");
            let has = [" INFO ", "DEBUG "].map(|level| said.contains(level));
            // The steps of `reclaim` and `stats` are requests to the mount.
            assert_eq!(has, says, "{command} {verbose}: {said}");
        }
        let logged = fs::read_to_string(&log).unwrap();
        assert!(logged.contains(" INFO ") && !logged.contains('\u{1b}'), "{logged}");
        fs::remove_file(&log).unwrap();
    }
}
