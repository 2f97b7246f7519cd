//! A drive file on a host that is full.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::io::Errno;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::{ManualClock, OpenMode, Rules, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

use super::gate::Gate;
use super::small_host::SmallHost;
use super::{BLOCK, assert_clean, create, fill, format, mount, shape};

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
    fs.write(file, 10, b"held in the buffer", WriteFlags::empty()).unwrap();
    // Another file takes the rest of the host's space.
    std::fs::write(&other, vec![0; 64 << 20]).unwrap_err();
    let full = Err(Errno::NOSPC.raw_os_error());
    let sealed = fs.stats().zones_sealed;
    for _ in 0..50 {
        let written = fs.write(file, 0, &vec![7; 1 << 20], WriteFlags::DIRECT);
        assert_eq!(written.map(drop).map_err(|error| error.errno()), full);
    }
    let written = fs.write(file, 0, b"another block", WriteFlags::empty());
    assert_eq!(written.map(drop).map_err(|error| error.errno()), full);
    // What was accepted goes to the reserve.
    fs.sync().unwrap();
    assert_eq!((fs.stats().zones_sealed, fs.stats().zones_failed), (sealed, 0));
    std::fs::remove_file(&other).unwrap();
    fs.sync().unwrap();
    fill(&fs, file, 2000);
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(open());
}

/// Blocks of a file of [`fill_host`].
const FILE_BLOCKS: u64 = 100;

/// A mount that fills the host, and the content of its files.
fn fill_host(host: &Arc<SmallHost>, clock: Arc<ManualClock>) -> (Furrow, BTreeMap<String, u8>) {
    drop(format(host.clone()));
    let commit_seconds = MountOptions::COMMIT_SECONDS_OF_MOUNT;
    let options = MountOptions { commit_seconds, ..MountOptions::default() };
    let fs = Furrow::mount(host.clone(), clock, options).unwrap();
    let mut files = BTreeMap::new();
    for number in 0..=u8::MAX {
        let name = number.to_string();
        let ino = create(&fs, &name);
        let data = vec![number; usize::try_from(FILE_BLOCKS * BLOCK).unwrap()];
        match fs.write(ino, 0, &data, WriteFlags::DIRECT) {
            Ok(_) => _ = files.insert(name, number),
            Err(error) => {
                assert!(error.is_host_full(), "{error}");
                fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
                return (fs, files);
            }
        }
    }
    panic!("the host is never full")
}

fn assert_content(fs: &Furrow, files: &BTreeMap<String, u8>) {
    for (name, content) in files {
        let ino = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino;
        let mut data = vec![0; usize::try_from(FILE_BLOCKS * BLOCK).unwrap()];
        assert_eq!(fs.read(ino, 0, &mut data).unwrap(), data.len());
        assert!(data.iter().all(|byte| byte == content), "{name}");
    }
}

/// A host of 4,000 blocks below 64 zones of 256.
fn small_host() -> Arc<SmallHost> {
    SmallHost::new(shape(64, 256), 4000, 512)
}

#[test]
fn full_host_gets_space_of_deleted_files_back() {
    let host = small_host();
    let clock = Arc::new(ManualClock::new(1));
    let (fs, mut files) = fill_host(&host, clock.clone());
    fs.sync().unwrap();
    // Another program takes the rest.
    host.take(host.free());
    let deleted: Vec<String> = files.keys().take(files.len() / 2).cloned().collect();
    for name in &deleted {
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        files.remove(name);
    }
    let before = host.free_or_kept();
    // What a thread of a mount does, in a second.
    for _ in 0..2 {
        clock.advance_ns(500_000_000);
        fs.tick().unwrap();
    }
    let freed = host.free_or_kept().saturating_sub(before);
    let dead = deleted.len() as u64 * FILE_BLOCKS;
    // Zones that other files share stay.
    assert!(freed > dead / 2, "{freed} of {dead} blocks");
    // New data has room again, and the reserve is kept.
    let ino = create(&fs, "new");
    fs.write(ino, 0, &[9; 4096], WriteFlags::DIRECT).unwrap();
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(host.clone());
    assert_content(&mount(host), &files);
}

#[test]
fn buffered_data_is_durable_on_full_host_and_new_data_refused() {
    let host = small_host();
    let fs = format(host.clone());
    let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
    let ino = create(&fs, "file");
    fs.write(ino, 10, b"held in the buffer", WriteFlags::empty()).unwrap();
    // Another program takes the rest.
    let others = host.free();
    host.take(others);
    fs.sync().unwrap();
    for _ in 0..2 {
        let refused = fs.write(ino, 0, b"more", WriteFlags::empty());
        assert!(refused.is_err_and(|error| error.is_host_full()));
        let refused = fs.create(&Caller::ROOT, Ino::ROOT, b"other", &new);
        assert!(refused.is_err_and(|error| error.is_host_full()));
        fs.tick().unwrap();
    }
    let mut held = [0; 18];
    fs.read(ino, 10, &mut held).unwrap();
    assert_eq!(&held, b"held in the buffer");
    host.give(others);
    fs.write(ino, 0, b"more", WriteFlags::empty()).unwrap();
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(host.clone());
    let mut all = [0; 28];
    mount(host).read(ino, 0, &mut all).unwrap();
    assert_eq!(&all, b"more\0\0\0\0\0\0held in the buffer");
}

#[test]
fn mount_on_full_host_refuses_data_and_frees_space() {
    let host = small_host();
    let (fs, mut files) = fill_host(&host, Arc::new(ManualClock::new(1)));
    fs.shutdown().unwrap();
    drop(fs);
    host.take(host.free());
    let fs = mount(host.clone());
    // The mount has reset zones.
    fs.tick().unwrap();
    host.take(host.free());
    let name = files.keys().next().unwrap().clone();
    let ino = fs.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino;
    let refused = fs.write(ino, 0, &vec![1; 1 << 16], WriteFlags::DIRECT);
    assert!(refused.is_err_and(|error| error.is_host_full()));
    while let Some((name, _)) = files.pop_first() {
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
    }
    // A writer that finds the host full frees what it can.
    let ino = create(&fs, "new");
    fs.write(ino, 0, &[1; 4096], WriteFlags::DIRECT).unwrap();
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(host);
}

/// A drive that refuses data writes of every kind.
#[test]
fn write_buffer_has_a_bound_while_drive_refuses() {
    let drive = Gate::new(shape(64, 256));
    let fs = format(drive.clone());
    let ino = create(&fs, "file");
    fs.sync().unwrap();
    drive.break_writes();
    let mut refused = None;
    // Every other block: none is written past the buffer.
    for block in (0..100_000).step_by(2) {
        match fs.write(ino, block * BLOCK, &[7; 4096], WriteFlags::empty()) {
            Ok(_) => {}
            Err(error) => {
                refused = Some((block / 2, error));
                break;
            }
        }
    }
    let (blocks, error) = refused.expect("the buffer has a bound");
    assert!(matches!(error, FsError::Device(_)), "{error}");
    // The blocks of a zone, and the writes that meet the full buffer.
    assert!(blocks <= 2 * 256, "{blocks} blocks");
    drive.mend_writes();
    fs.write(ino, 0, &[7; 4096], WriteFlags::empty()).unwrap();
    fs.shutdown().unwrap();
    drop(fs);
    assert_clean(drive);
}

#[test]
fn flush_follows_last_reset() {
    let host = small_host();
    let fs = format(host.clone());
    let ino = create(&fs, "file");
    let free = host.free();
    fill(&fs, ino, 2000);
    fs.sync().unwrap();
    assert!(host.free() + 1900 < free);
    fs.unlink(Ino::ROOT, b"file").unwrap();
    fs.sync().unwrap();
    // Nothing is left to commit, and nothing else flushes.
    fs.tick().unwrap();
    assert!(host.free() + 600 > free, "{} of {free} blocks", host.free());
}
