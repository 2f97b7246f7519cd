//! A large git repository: cloned, checked out at one commit and another, packed, and then intact.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::place::Place;
use crate::{find, run, text};

const FILES: u32 = 20_000;
const COMMITS: u32 = 200;
const FILES_PER_COMMIT: u32 = 150;

#[test]
#[ignore = "needs root, git and minutes; run by cargo xtask test --all"]
fn git_repository_of_20000_files_stays_whole() {
    if find("git").is_none() {
        return;
    }
    let Some(place) = Place::new(&["--zones", "60", "--zone-size", "24MiB"]) else { return };
    let stream = place.path("stream");
    fs::write(&stream, history()).unwrap();
    let script = "
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=$PWD
git init -q -b main source
git -C source fast-import --quiet < \"$1\"
git clone -q --no-hardlinks source clone
cd clone
for commit in 150 20 199 0; do
    git checkout -q HEAD~0 && git checkout -q main~$commit
    test -z \"$(git status --porcelain)\"
done
git checkout -q main
git gc -q --prune=now
git fsck --strict
git rev-parse HEAD HEAD^{tree}";
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        run(shell.args(["-e", "-c", script, "sh", text(&stream)]).current_dir(place.dir()))
    };
    let told = shell(script);
    place.unmount();
    place.check();
    place.mount("");
    let again = "
export HOME=$PWD; cd clone
git fsck --strict
test -z \"$(git status --porcelain)\"
git ls-files | wc -l
git rev-parse HEAD HEAD^{tree}";
    let again = shell(again);
    let heads = |told: &str| told.lines().rev().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(heads(&told), heads(&again));
    assert!(again.lines().any(|line| line.trim() == FILES.to_string()), "{again}");
    place.unmount();
    place.check();
}

/// The input of `git fast-import`: all files, then commits that each change some.
fn history() -> String {
    let mut stream = String::new();
    for commit in 0..COMMITS {
        let time = 1_700_000_000 + commit;
        let message = format!("commit {commit}");
        write!(stream, "commit refs/heads/main\ncommitter a <a@b> {time} +0000\n").unwrap();
        write!(stream, "data {}\n{message}\n", message.len()).unwrap();
        let changed = if commit == 0 { 0..FILES } else { 0..FILES_PER_COMMIT };
        for number in changed {
            let file = if commit == 0 { number } else { (commit * 7919 + number * 131) % FILES };
            let line = format!("file {file} of commit {commit}\n");
            let content = line.repeat(1 + (file as usize * 37 + commit as usize) % 150);
            let (folder, length) = (file % 211, content.len());
            write!(stream, "M 100644 inline d{folder}/f{file}\ndata {length}\n{content}\n")
                .unwrap();
        }
    }
    stream
}
