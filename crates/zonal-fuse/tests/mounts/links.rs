//! Names that come and go while a process looks at their file: the kernel's count of them stays
//! right.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::mounted;
use crate::mounted::Mounted;

/// How often a name comes and goes.
const ROUNDS: usize = 2_000;

/// Runs `change` so often while two threads look at the file `name`.
fn while_others_look(name: &Path, change: impl Fn(usize) -> io::Result<()>) -> io::Result<()> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    // It is not always there.
                    let _ = File::open(name).and_then(|file| file.metadata());
                }
            });
        }
        let outcome = (0..ROUNDS).try_for_each(change);
        ended.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Checks that a file `name` has this number of names.
fn check(mounted: &Mounted, name: &str, links: u64) {
    assert_eq!(fs::metadata(mounted.path(name)).unwrap().nlink(), links);
    fs::hard_link(mounted.path(name), mounted.path("another")).unwrap();
    assert_eq!(fs::metadata(mounted.path("another")).unwrap().nlink(), links + 1);
    fs::remove_file(mounted.path("another")).unwrap();
    assert_eq!(fs::metadata(mounted.path(name)).unwrap().nlink(), links);
}

#[test]
fn link_works_after_unlink_of_other_name_during_stat() {
    for options in ["", "writeback"] {
        let Some(mut mounted) = mounted::mount_with(options) else { return };
        let (first, second) = (mounted.path("first"), mounted.path("second"));
        fs::write(&first, "content").unwrap();
        while_others_look(&second, |round| {
            fs::hard_link(&first, &second)?;
            if round % 2 == 0 {
                return fs::remove_file(&second);
            }
            // The same in another way: another file takes the place of the name.
            fs::write(mounted.path("other"), "other")?;
            fs::rename(mounted.path("other"), &second)?;
            fs::remove_file(&second)
        })
        .unwrap();
        check(&mounted, "first", 1);
        mounted.unmount();
    }
}
