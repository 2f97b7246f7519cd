//! A thread of a mount panics: its request fails, the mount becomes read-only and goes on, and the
//! next mount has all synced data. By `/dev/fuse` and by `io_uring`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::mounted;
use crate::mounted::content::{O_DIRECT, aligned, open, pattern};
use crate::mounted::held::panics;
use crate::mounted::{Mounted, offer};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use zonal::wait::wait_until;
use zonal_fuse::ServeError;
use zonal_fuse::unmount::detach;

const OLD_BYTES: usize = 1 << 20;

/// Runs a test on a mount that has a file with synced content, `old`: with requests by `/dev/fuse`,
/// and by `io_uring` where the kernel has that. Afterwards the mount must be one from which nothing
/// is written any more.
fn each_way(test: impl Fn(&mut Mounted, &str)) {
    for options in ["nouring", "uring"] {
        let _offer = match options {
            "uring" => match offer::set("Y") {
                Some(offer) => Some(offer),
                None => return,
            },
            _ => None,
        };
        let Some(mut mounted) = mounted::mount_with(options) else { return };
        let old = open(&mounted.path("old"), 0);
        old.write_all_at(&pattern(OLD_BYTES), 0).unwrap();
        old.sync_all().unwrap();
        drop(old);
        test(&mut mounted, options);
        writes_nothing(&mut mounted);
        serves_again(&mut mounted, options);
    }
}

/// The drive panics as long as this lives.
struct Panicking(std::path::PathBuf);

impl Panicking {
    fn new(mounted: &Mounted, what: &str) -> Self {
        let path = panics(mounted.drive(), what);
        fs::write(&path, "").unwrap();
        Self(path)
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    let code = result.err()?.raw_os_error().unwrap();
    Some(Errno::from_raw_os_error(code))
}

/// Reads the file from the drive, past the page cache.
fn read_directly(path: &Path) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().read(true).custom_flags(O_DIRECT).open(path)?;
    let (mut buffer, range) = aligned(OLD_BYTES, 0);
    let len = file.read_at(&mut buffer[range.clone()], 0)?;
    Ok(buffer[range][..len].to_vec())
}

/// The mount answers: reads are served, changes and syncs refused.
fn writes_nothing(mounted: &mut Mounted) {
    assert_eq!(errno(fs::write(mounted.path("more"), "")), Some(Errno::ROFS));
    assert_eq!(errno(fs::create_dir(mounted.path("directory"))), Some(Errno::ROFS));
    assert_eq!(errno(fs::remove_file(mounted.path("old"))), Some(Errno::ROFS));
    let old = File::open(mounted.path("old")).unwrap();
    assert_eq!(errno(old.sync_all()), Some(Errno::IO));
    assert_eq!(read_directly(&mounted.path("old")).unwrap(), pattern(OLD_BYTES));
    let names = fs::read_dir(mounted.root()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().any(|name| name == "old"));
    drop(old);
    // The mount table says so too, once no file is open for writing.
    let point = mounted.root().canonicalize().unwrap();
    let is_read_only = || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        lines.any(|line| Path::new(line[1]) == point && line[3].split(',').any(|word| word == "ro"))
    };
    wait_until(is_read_only);
}

/// The unmount reports the panic, and the next mount has all synced data.
fn serves_again(mounted: &mut Mounted, options: &str) {
    wait_until(|| match detach(&mounted.root(), UnmountFlags::empty()) {
        Ok(()) => true,
        // A process that another test has forked has our files until it runs its own program.
        Err(ServeError::Busy { .. }) => false,
        Err(error) => panic!("{error}"),
    });
    assert!(!mounted.ended_well(), "what was not synced is lost");
    mounted.start(options);
    assert_eq!(fs::read(mounted.path("old")).unwrap(), pattern(OLD_BYTES));
    fs::write(mounted.path("more"), "content").unwrap();
    mounted.unmount();
}

#[test]
fn panic_in_fsync_fails_it_and_later_ones() {
    each_way(|mounted, _| {
        let mut file = open(&mounted.path("new"), 0);
        file.write_all(b"recent").unwrap();
        let panicking = Panicking::new(mounted, "write");
        assert_eq!(errno(file.sync_all()), Some(Errno::IO));
        drop(panicking);
        assert_eq!(errno(file.sync_all()), Some(Errno::IO));
        assert_eq!(errno(file.write_all(b"more")), Some(Errno::ROFS));
        assert_eq!(fs::read(mounted.path("new")).unwrap(), b"recent");
    });
}

#[test]
fn panic_in_write_fails_it_or_commit_before() {
    each_way(|mounted, _| {
        let file = open(&mounted.path("new"), O_DIRECT);
        let panicking = Panicking::new(mounted, "write");
        let (buffer, range) = aligned(1 << 20, 7);
        let mut outcome = Ok(());
        // A part of it is only kept in memory.
        for part in 0..256 {
            outcome = file.write_all_at(&buffer[range.clone()], part << 20);
            if outcome.is_err() {
                break;
            }
        }
        drop(panicking);
        assert!(matches!(errno(outcome), Some(Errno::IO | Errno::ROFS)));
    });
}

#[test]
fn panic_in_background_makes_mount_read_only() {
    each_way(|mounted, _| {
        let panicking = Panicking::new(mounted, "write");
        let mut count = 0;
        // A thread that serves no request commits the new directory after a while.
        wait_until(|| {
            count += 1;
            let made = errno(fs::create_dir(mounted.path(&format!("new-{count}"))));
            assert!(matches!(made, None | Some(Errno::ROFS)), "{made:?}");
            made.is_some()
        });
        drop(panicking);
    });
}

#[test]
fn panic_in_read_fails_it_but_not_next() {
    each_way(|mounted, options| {
        // Nothing of it is in memory then.
        mounted.remount(options);
        let panicking = Panicking::new(mounted, "read");
        assert_eq!(errno(read_directly(&mounted.path("old"))), Some(Errno::IO));
        drop(panicking);
    });
}
