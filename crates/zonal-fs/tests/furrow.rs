//! Furrow through its trait on a memory drive: the paths a reader would try first.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use rustix::io::Errno;
use zonal::{GeometrySpec, ManualClock, MemoryDrive, ZonedDevice};
use zonal_fs::furrow::sample::shape;
use zonal_fs::furrow::{DataCheck, Furrow, MkfsOptions, MountOptions, check, mkfs};
use zonal_fs::tree::snapshot;
use zonal_fs::vfs::{
    Attr, Caller, FileKind, FileSystem, Ino, NewInode, RenameFlags, SetAttr, WriteFlags, XattrMode,
};
use zonal_fs::{FsError, acl};

struct Rig {
    drive: Arc<MemoryDrive>,
    clock: Arc<ManualClock>,
}

impl Rig {
    fn new(zones: u64, zone_blocks: u64, active: u32) -> Self {
        let (max_open, max_active) = (Some(active), Some(active));
        let spec = GeometrySpec { max_open, max_active, ..shape(zones, zone_blocks) };
        let rig = Self {
            drive: Arc::new(MemoryDrive::new(spec).unwrap()),
            clock: Arc::new(ManualClock::new(1_000_000)),
        };
        mkfs(rig.drive.clone(), &*rig.clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        rig
    }

    fn mount(&self) -> Furrow {
        let drive: Arc<dyn ZonedDevice> = self.drive.clone();
        Furrow::mount(drive, self.clock.clone(), MountOptions::default()).unwrap()
    }
}

fn create(fs: &dyn FileSystem, parent: Ino, name: &str, kind: FileKind) -> Attr {
    let new = NewInode { kind, perm: 0o644, rdev: 0, target: b"" };
    fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).unwrap()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

fn read(fs: &dyn FileSystem, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; len];
    let count = fs.read(ino, offset, &mut buffer).unwrap();
    buffer.truncate(count);
    buffer
}

#[test]
fn tree_is_same_after_clean_and_unclean_mount() {
    let rig = Rig::new(32, 768, 14);
    let fs = rig.mount();
    let dir = create(&fs, Ino::ROOT, "dir", FileKind::Directory).ino;
    for i in 0..50u64 {
        let file = create(&fs, dir, &format!("f{i}"), FileKind::Regular).ino;
        let len = usize::try_from(i * 977).unwrap();
        fs.write(file, i * 100, &bytes(i, len), WriteFlags::empty()).unwrap();
    }
    let big = create(&fs, Ino::ROOT, "big", FileKind::Regular).ino;
    fs.write(big, 5, &bytes(9, 3 << 20), WriteFlags::empty()).unwrap();
    fs.rename((dir, b"f7"), (Ino::ROOT, b"seven"), RenameFlags::empty()).unwrap();
    fs.setattr(&Caller::ROOT, big, &SetAttr { size: Some(2_000_001), ..SetAttr::default() })
        .unwrap();
    let before = snapshot(&fs).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let fs = rig.mount();
    assert_eq!(snapshot(&fs).unwrap().first_difference(&before), None);
    fs.shutdown().unwrap();
    drop(fs);
    let fs = rig.mount();
    assert_eq!(snapshot(&fs).unwrap().first_difference(&before), None);
    let big = fs.lookup(Ino::ROOT, b"big").unwrap();
    assert_eq!(big.size, 2_000_001);
    assert_eq!(read(&fs, big.ino, 5, 1000), bytes(9, 3 << 20)[..1000]);
}

#[test]
fn unnamed_file_survives_cut_only_once_named() {
    let rig = Rig::new(32, 768, 14);
    let fs = rig.mount();
    let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
    let unnamed = || {
        let attr = fs.create_unnamed(&Caller::ROOT, Ino::ROOT, &new).unwrap();
        assert_eq!((attr.nlink, attr.perm), (0, 0o600));
        fs.write(attr.ino, 0, &bytes(attr.ino.get(), 50_000), WriteFlags::empty()).unwrap();
        attr.ino
    };
    let (left, named) = (unnamed(), unnamed());
    assert_eq!(fs.statfs().unwrap().inodes_unlinked, 2);
    // Both are on the drive as files without a name first.
    fs.sync().unwrap();
    assert_eq!(fs.link(named, Ino::ROOT, b"named").unwrap().nlink, 1);
    assert_eq!(fs.statfs().unwrap().inodes_unlinked, 1);
    fs.sync().unwrap();
    fs.unpin(named);
    assert_eq!(read(&fs, named, 0, 50_000), bytes(named.get(), 50_000));
    drop(fs);
    let report = check(rig.drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let fs = rig.mount();
    assert!(matches!(fs.getattr(left), Err(FsError::NotFound)));
    assert_eq!(fs.lookup(Ino::ROOT, b"named").unwrap().ino, named);
    assert_eq!(read(&fs, named, 0, 50_000), bytes(named.get(), 50_000));
    fs.pin(named).unwrap();
    fs.unlink(Ino::ROOT, b"named").unwrap();
    // A name that is gone does not come back.
    assert!(matches!(fs.link(named, Ino::ROOT, b"again"), Err(FsError::NotFound)));
    fs.unpin(named);
    fs.shutdown().unwrap();
    let report = check(rig.drive.clone(), DataCheck::Read, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

fn churn(rig: &Rig, percent: u64, turns: u64) {
    let fs = rig.mount();
    let stat = fs.statfs().unwrap();
    let fill = stat.blocks_free * percent / 100;
    let file = create(&fs, Ino::ROOT, "churn", FileKind::Regular).ino;
    let mut versions = vec![0u64; usize::try_from(fill).unwrap()];
    let mut state = 12345u64;
    for step in 0..fill * turns {
        let block = if step < fill {
            step
        } else {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % fill
        };
        versions[usize::try_from(block).unwrap()] = step + 1;
        let data = (step + 1).to_le_bytes().repeat(512);
        fs.write(file, block * 4096, &data, WriteFlags::DIRECT)
            .unwrap_or_else(|error| panic!("step {step}, block {block}: {error}"));
    }
    let check = |fs: &Furrow| {
        for (block, version) in versions.iter().enumerate() {
            let data = read(fs, file, block as u64 * 4096, 4096);
            assert_eq!(data, version.to_le_bytes().repeat(512), "block {block}");
        }
    };
    check(&fs);
    assert!(fs.stats().reclaim_bytes > 0, "the churn was meant to need reclaim");
    fs.sync().unwrap();
    drop(fs);
    check(&rig.mount());
}

#[test]
fn overwrite_at_90_percent_never_ends_in_no_space() {
    churn(&Rig::new(40, 96, 14), 90, 10);
}

#[test]
fn overwrite_near_full_works_with_four_active_zones() {
    churn(&Rig::new(40, 96, 4), 97, 5);
}

#[test]
fn xattrs_on_full_drive_are_refused_but_removable() {
    let rig = Rig::new(24, 64, 14);
    let fs = rig.mount();
    let file = create(&fs, Ino::ROOT, "file", FileKind::Regular).ino;
    let set = |name: &[u8], value: &[u8]| {
        fs.setxattr(&Caller::ROOT, file, name, value, XattrMode::Any).map_err(|error| error.errno())
    };
    set(b"user.before", b"value").unwrap();
    let mut end = 0;
    while fs.write(file, end, &bytes(end, 4096), WriteFlags::empty()).is_ok() {
        end += 4096;
    }
    let full = Err(Errno::NOSPC.raw_os_error());
    assert_eq!(set(b"user.empty", b""), full);
    let with_mask = [(1, 6), (2, 7), (4, 4), (0x10, 4), (0x20, 4)].map(|(tag, perm)| {
        let id: u32 = if tag == 2 { 5 } else { u32::MAX };
        [u32::to_le_bytes(tag | perm << 16), id.to_le_bytes()].concat()
    });
    let value = [&2u32.to_le_bytes()[..], &with_mask.concat()].concat();
    assert_eq!(set(acl::ACCESS, &value), full);
    assert_eq!(set(b"user.before", b"other"), Ok(()), "no longer than before");
    fs.removexattr(file, b"user.before").unwrap();
    assert_eq!(fs.getattr(file).unwrap().perm, 0o644, "a refused ACL leaves the mode alone");
}
