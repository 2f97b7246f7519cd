//! The same system calls of several processes on a mount of ours and on ext4 get the same answers.
//!
//! Four processes of three users have files open, hold locks and change one small tree, a call at a
//! time, in the same order on both sides. The test compares the result of each call, and from time
//! to time all names: kinds, modes, owners, sizes, link counts, which names are one file, which
//! times have moved, contents and extended attributes. `SEED` and `COUNT` choose the runs; each has
//! a directory of its own.

mod actor;
mod call;
mod draw;
mod look;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::mounted;
use crate::mounted::ext4::Ext4;
use actor::Actor;
use draw::Draw;
use look::{Depth, Looks, wait_for_the_next_tick};
use zonal::repeat;

/// Calls of one run.
const CALLS: usize = 150;

/// Users and groups of the processes.
const ACTORS: [(u32, u32); 4] = [(0, 0), (1000, 1000), (1001, 1000), (65534, 65534)];

#[test]
#[ignore = "a process of the other tests"]
fn actor() {
    actor::body();
}

#[test]
#[ignore = "needs /dev/fuse and root: run by cargo xtask test"]
fn calls_of_several_users_match_ext4() {
    compare("", 24);
}

#[test]
#[ignore = "needs /dev/fuse and root: run by cargo xtask test"]
fn calls_of_several_users_match_ext4_with_writeback() {
    compare("writeback", 12);
}

/// Runs `count` seeds, or the seeds in the environment, on one mount with `options`.
fn compare(options: &str, count: u64) {
    let Some(ours) = mounted::mount_with(options) else { return };
    let theirs = match Ext4::mount() {
        Ok(theirs) => theirs,
        Err(why) => return println!("SKIP: no ext4 to compare with: {why}"),
    };
    // The processes give up root's rights, and must still reach the mount.
    fs::set_permissions(ours.outside(""), Permissions::from_mode(0o755)).unwrap();
    let first = repeat::seed(1);
    for seed in first..first + repeat::count(count) {
        run(seed, options, &ours.root(), theirs.root());
    }
}

/// One run: both sides get the same calls, and must show the same.
fn run(seed: u64, options: &str, ours: &Path, theirs: &Path) {
    let name = format!("run-{seed}");
    let roots = [ours, theirs].map(|side| {
        let root = side.join(&name);
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        root
    });
    let mut actors = ACTORS.map(|user| roots.each_ref().map(|root| Actor::start(root, user)));
    let mut draw = Draw::new(seed);
    let mut looks = Looks::new(roots);
    let mut done = Vec::new();
    for _ in 0..CALLS {
        let (who, call) = (draw.below(ACTORS.len()), draw.call());
        wait_for_the_next_tick();
        let [our, their] = actors[who].each_mut().map(|actor| actor.perform(&call));
        done.push(format!("{who} {call:?} -> {our:?}"));
        let difference = (our != their)
            .then(|| format!("the answer is {our:?}, of ext4 {their:?}"))
            .or_else(|| depth(&mut draw).and_then(|depth| looks.difference(depth)));
        if let Some(difference) = difference {
            fail(seed, options, &done, &difference);
        }
    }
    drop(actors);
    if let Some(difference) = looks.difference(Depth::Contents) {
        fail(seed, options, &done, &difference);
    }
}

/// How far to look after a call, if at all.
fn depth(draw: &mut Draw) -> Option<Depth> {
    match draw.below(16) {
        0 => Some(Depth::Contents),
        1..=3 => Some(Depth::Attributes),
        _ => None,
    }
}

fn fail(seed: u64, options: &str, done: &[String], difference: &str) -> ! {
    let calls = done.join("\n");
    panic!("SEED={seed} COUNT=1, options {options:?}: {difference}, after\n{calls}");
}
