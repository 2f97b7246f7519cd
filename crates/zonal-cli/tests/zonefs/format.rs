//! 00xx: mkzonefs, mounting, and the number of files of each kind.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::statvfs;

use crate::drive::{
    AGGREGATED, CONVENTIONAL, Drive, PLAIN, SEPARATE, SEQUENTIAL, SHAPES, drop_inodes, text,
};

/// Writes bytes into zone 0, which is conventional.
fn plant(drive: &Drive, bytes: &[u8]) {
    let input = drive.outside("planted");
    fs::write(&input, bytes).unwrap();
    drive.zonal(["write"], &["--lba=0", "--force", "--input", input.to_str().unwrap()]);
}

#[test]
fn t0001_mkzonefs_options() {
    for shape in [&PLAIN, &SEQUENTIAL] {
        let Some(drive) = Drive::new(shape) else { return };
        let clear = || match shape.conventional {
            0 => drive.zonal(["zone", "reset"], &["0", "--force"]),
            _ => plant(&drive, &[0; 4096]),
        };
        let good: [&[&str]; 11] = [
            &[],
            &["-h"],
            &["--help"],
            &["-v"],
            &["-f"],
            &["-o", "aggr_cnv"],
            &["-o", "uid=0"],
            &["-o", "gid=0"],
            &["-o", "perm=777"],
            &["-o", "aggr_cnv,uid=0,gid=0,perm=777"],
            &["-L", "a label"],
        ];
        for options in good {
            clear();
            let output = drive.mkzonefs(options, &drive.device());
            assert!(output.status.success(), "{options:?}: {}", text(&output));
        }
        clear();
        let long = "x".repeat(64);
        let bad: [&[&str]; 7] = [
            &["-bad-option"],
            &["-o"],
            &["-o", "invalid_feature"],
            &["-o", "invalid,,list"],
            &["-o", "aggr_cnv,,uid=0"],
            &["-o", "perm=999"],
            &["-L", &long],
        ];
        for options in bad {
            let output = drive.mkzonefs(options, &drive.device());
            assert_eq!(output.status.code(), Some(1), "{options:?}: {}", text(&output));
        }
    }
}

#[test]
fn t0002_mkzonefs_overwrites_only_by_force() {
    // F2FS: its magic number at byte 1024; ext4: at byte 1080; the name of swap space: at 4086.
    let foreign: [(usize, &[u8], &str); 3] = [
        (1024, &[0x10, 0x20, 0xf5, 0xf2], "f2fs"),
        (1080, &[0x53, 0xef], "ext"),
        (4086, b"SWAPSPACE2", "swap"),
    ];
    let Some(drive) = Drive::new(&PLAIN) else { return };
    for (at, magic, name) in foreign {
        let mut bytes = [0; 8192];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        plant(&drive, &bytes);
        let refused = drive.mkzonefs(&[], &drive.device());
        assert_eq!(refused.status.code(), Some(1), "{name}");
        assert!(text(&refused).to_lowercase().contains(name), "{name}: {}", text(&refused));
        drive.format(SEPARATE);
    }
    // The new file system counts as content too.
    let refused = drive.mkzonefs(&[], &drive.device());
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("zonefs"), "{}", text(&refused));
}

#[test]
fn t0003_mkzonefs_takes_only_zoned_devices() {
    let Some(drive) = Drive::new(&PLAIN) else { return };
    let plain = drive.outside("plain");
    fs::write(&plain, vec![0; 1 << 20]).unwrap();
    for device in [Path::new("/dev/null"), &plain, &drive.outside("absent")] {
        let output = drive.mkzonefs(&["-f"], device);
        assert_eq!(output.status.code(), Some(1), "{}: {}", device.display(), text(&output));
    }
    assert!(fs::read(&plain).unwrap().iter().all(|byte| *byte == 0), "left as it was");
}

#[test]
fn t0004_the_zone_of_the_super_block_is_full() {
    for shape in SHAPES {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        let expected = if shape.conventional == 0 { "full" } else { "not-wp" };
        assert_eq!(drive.zone(0).0, expected, "{shape:?}");
    }
}

#[test]
fn t0020_mount() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        assert!(!drive.is_read_only());
        drive.unmount();
        assert!(!drive.root().join("seq").exists());
        // A file system that was mounted before can be mounted again.
        drive.mount("");
        drive.unmount();
    }
}

#[test]
fn t0021_mount_takes_only_zoned_devices() {
    let Some(drive) = Drive::new(&PLAIN) else { return };
    let plain = drive.outside("plain");
    fs::write(&plain, vec![0; 1 << 20]).unwrap();
    // The last device is zoned and holds no file system.
    for device in [Path::new("/dev/null"), &plain, &drive.outside("absent"), &drive.device()] {
        let output = drive.try_mount("", device);
        assert!(!output.status.success(), "{}: {}", device.display(), text(&output));
        assert!(!drive.root().join("seq").exists());
    }
}

#[test]
fn t0022_directories() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        let mut names: Vec<_> =
            fs::read_dir(drive.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let expected: &[&str] = if shape.cnv_files() == 0 { &["seq"] } else { &["cnv", "seq"] };
        assert_eq!(names, expected, "{shape:?}");
    }
}

#[test]
fn t0023_mount_options() {
    let Some(drive) = Drive::formatted(&PLAIN, SEPARATE) else { return };
    for options in [
        "errors=repair",
        "errors=remount-ro",
        "errors=zone-ro",
        "errors=zone-offline",
        "explicit-open",
        "explicit-open,errors=repair,noatime",
    ] {
        drive.mount(options);
        drive.unmount();
    }
    for (options, named) in [
        ("errors=continue", "continue"),
        ("errors=panic", "panic"),
        ("errors=", "errors="),
        ("foo=bar", "foo=bar"),
        ("bad_option", "bad_option"),
    ] {
        let output = drive.try_mount(options, &drive.device());
        assert!(!output.status.success(), "{options}");
        assert!(text(&output).contains(named), "{options}: {}", text(&output));
        assert!(!drive.root().join("seq").exists());
    }
}

/// How many files a directory lists, and its size, which is the same.
fn count(directory: &Path) -> u64 {
    let mut names: Vec<u64> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    names.sort_unstable();
    let count = names.len() as u64;
    assert!(names.into_iter().eq(0..count), "{}: numbers from 0", directory.display());
    assert_eq!(fs::metadata(directory).unwrap().size(), count, "{}", directory.display());
    count
}

#[test]
fn t0040_number_of_files() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        if shape.cnv_files() > 0 {
            assert_eq!(count(&drive.root().join("cnv")), shape.cnv_files());
        }
        assert_eq!(count(&drive.root().join("seq")), shape.seq_files());
        let directories = 1 + u64::from(shape.cnv_files() > 0);
        let root = fs::metadata(drive.root()).unwrap();
        assert_eq!((root.size(), root.nlink()), (2 + directories, 2 + directories));
    }
}

#[test]
fn t0041_number_of_files_aggregated() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, AGGREGATED) else { return };
        if shape.cnv_files() > 0 {
            assert_eq!(count(&drive.root().join("cnv")), 1);
        }
        assert_eq!(count(&drive.root().join("seq")), shape.seq_files());
    }
}

/// `statfs` counts the directories of files too, and has no free inodes.
fn assert_files(drive: &Drive, cnv: u64) {
    let cnv = if cnv > 0 { cnv + 1 } else { 0 };
    let told = statvfs(drive.root()).unwrap();
    assert_eq!(told.f_files, cnv + drive.shape.seq_files() + 1, "{:?}", drive.shape);
    assert_eq!(told.f_ffree, 0);
    assert_eq!(told.f_namemax, 16);
}

#[test]
fn t0042_number_of_files_in_statfs() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        assert_files(&drive, shape.cnv_files());
    }
}

#[test]
fn t0043_number_of_files_in_statfs_aggregated() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, AGGREGATED) else { return };
        assert_files(&drive, shape.cnv_files().min(1));
    }
}

/// Zone 0 belongs to no file; conventional files are always in use.
fn assert_blocks(drive: &Drive) {
    let told = statvfs(drive.root()).unwrap();
    assert_eq!(told.f_bsize, drive.shape.block);
    assert_eq!(told.f_blocks * told.f_bsize, drive.shape.usable(), "{:?}", drive.shape);
    let sequential = drive.shape.seq_files() * drive.shape.capacity;
    assert_eq!(told.f_bfree * told.f_bsize, sequential);
    assert_eq!(told.f_bavail, told.f_bfree);
}

#[test]
fn t0044_number_of_blocks_in_statfs() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, SEPARATE) else { return };
        assert_blocks(&drive);
    }
}

#[test]
fn t0045_number_of_blocks_in_statfs_aggregated() {
    for shape in SHAPES {
        let Some(drive) = Drive::mounted(shape, AGGREGATED) else { return };
        assert_blocks(&drive);
    }
}

/// Checks mode and owner of every file.
fn assert_files_are(drive: &Drive, aggregated: &[&str], expected: (u32, u32, u32)) {
    for file in drive.files(aggregated) {
        let data = fs::metadata(&file).unwrap();
        let mode = data.mode() & 0o7777;
        assert_eq!((mode, data.uid(), data.gid()), expected, "{}", file.display());
        assert_eq!(data.nlink(), 1);
    }
}

/// Formats with features and looks at every file.
fn check_features(aggregated: &'static [&'static str], features: &[(&str, (u32, u32, u32))]) {
    for shape in CONVENTIONAL {
        let Some(drive) = Drive::new(shape) else { return };
        for (feature, expected) in features {
            // The last option wins, so all are one list.
            let list: Vec<&str> = aggregated
                .iter()
                .skip(1)
                .chain([feature])
                .copied()
                .filter(|one| !one.is_empty())
                .collect();
            let list = list.join(",");
            let options: &[&str] = if list.is_empty() { &[] } else { &["-o", &list] };
            drive.format(options);
            drive.mount("");
            assert_files_are(&drive, aggregated, *expected);
            drive.unmount();
        }
    }
}

const PERMISSIONS_SET: [(&str, (u32, u32, u32)); 3] =
    [("perm=770", (0o770, 0, 0)), ("perm=0", (0, 0, 0)), ("perm=777", (0o777, 0, 0))];

const OWNERS_SET: [(&str, (u32, u32, u32)); 3] = [
    ("uid=1000", (0o640, 1000, 0)),
    ("gid=1000", (0o640, 0, 1000)),
    ("uid=1000,gid=2000", (0o640, 1000, 2000)),
];

#[test]
fn t0060_permissions() {
    check_features(SEPARATE, &[("", (0o640, 0, 0))]);
}

#[test]
fn t0061_permissions_aggregated() {
    check_features(AGGREGATED, &[("", (0o640, 0, 0))]);
}

#[test]
fn t0062_permissions_set_at_format() {
    check_features(SEPARATE, &PERMISSIONS_SET);
}

#[test]
fn t0063_permissions_set_at_format_aggregated() {
    check_features(AGGREGATED, &PERMISSIONS_SET);
}

/// Changes to a file stay while mounted, even if the kernel forgets the inode, and are then lost.
fn check_kept(aggregated: &'static [&'static str], set: impl Fn(&Path), expected: (u32, u32, u32)) {
    let Some(drive) = Drive::mounted(&PLAIN, aggregated) else { return };
    let is = |file: &Path| {
        let data = fs::metadata(file).unwrap();
        (data.mode() & 0o7777, data.uid(), data.gid())
    };
    for file in [drive.cnv(0), drive.seq(0)] {
        assert_eq!(is(&file), (0o640, 0, 0));
        set(&file);
        assert_eq!(is(&file), expected);
    }
    drop_inodes();
    for file in [drive.cnv(0), drive.seq(0)] {
        assert_eq!(is(&file), expected, "after the kernel forgot it");
    }
    assert_eq!(is(&drive.seq(1)), (0o640, 0, 0), "others keep theirs");
    drive.remount("");
    for file in [drive.cnv(0), drive.seq(0)] {
        assert_eq!(is(&file), (0o640, 0, 0), "not stored");
    }
}

fn set_mode(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o770)).unwrap();
}

fn set_owner(file: &Path) {
    std::os::unix::fs::chown(file, Some(1000), Some(1000)).unwrap();
}

#[test]
fn t0064_permissions_set_by_user() {
    check_kept(SEPARATE, set_mode, (0o770, 0, 0));
}

#[test]
fn t0065_permissions_set_by_user_aggregated() {
    check_kept(AGGREGATED, set_mode, (0o770, 0, 0));
}

#[test]
fn t0080_owner() {
    check_features(SEPARATE, &[("", (0o640, 0, 0))]);
}

#[test]
fn t0081_owner_aggregated() {
    check_features(AGGREGATED, &[("", (0o640, 0, 0))]);
}

#[test]
fn t0082_owner_set_at_format() {
    check_features(SEPARATE, &OWNERS_SET);
}

#[test]
fn t0083_owner_set_at_format_aggregated() {
    check_features(AGGREGATED, &OWNERS_SET);
}

#[test]
fn t0084_owner_set_by_user() {
    check_kept(SEPARATE, set_owner, (0o640, 1000, 1000));
}

#[test]
fn t0085_owner_set_by_user_aggregated() {
    check_kept(AGGREGATED, set_owner, (0o640, 1000, 1000));
}
