//! A drive file on a host that is full.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::io::Errno;
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::{Rules, ZonedDevice};
use zonal_fs::vfs::{FileSystem, WriteFlags};

use super::{assert_clean, create, fill, format, shape};

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status().unwrap();
    assert!(status.success(), "{program}: {status}");
}

/// A small tmpfs, for as long as this lives.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount() -> Self {
        let dir = tempfile::TempDir::with_prefix("zonal-host-").unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=32m", "tmpfs"], dir.path());
        Self(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        run("umount", &[], self.0.path());
    }
}

#[test]
#[ignore = "mounts a tmpfs, as root; run by cargo xtask test"]
fn host_full_then_freed_lets_drive_file_continue() {
    let host = Tmpfs::mount();
    let (path, other) = (host.0.path().join("drive"), host.0.path().join("other"));
    let options = CreateOptions {
        geometry: shape(64, 256),
        rules: Rules::Zns,
        uuid: [1; 16],
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(&path, &options).unwrap();
    let open = || -> Arc<dyn ZonedDevice> {
        Arc::new(FileDrive::open(&path, OpenMode::ReadWrite).unwrap())
    };
    let fs = format(open());
    let file = create(&fs, "file");
    fill(&fs, file, 1000);
    fs.sync().unwrap();
    // Another file takes the rest of the host's space.
    std::fs::write(&other, vec![0; 64 << 20]).unwrap_err();
    let full = Err(Errno::NOSPC.raw_os_error());
    let sealed = fs.stats().zones_sealed;
    for _ in 0..50 {
        let written = fs.write(file, 0, &vec![7; 1 << 20], WriteFlags::DIRECT);
        assert_eq!(written.map(drop).map_err(|error| error.errno()), full);
    }
    fs.write(file, 10, b"held in the buffer", WriteFlags::empty()).unwrap();
    assert_eq!(fs.sync().map_err(|error| error.errno()), full);
    assert_eq!((fs.stats().zones_sealed, fs.stats().zones_failed), (sealed, 0));
    std::fs::remove_file(&other).unwrap();
    fs.sync().unwrap();
    fill(&fs, file, 2000);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(open());
}
