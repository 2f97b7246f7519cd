//! Copies that share blocks with their originals, on a drive and in a mount, and copies that
//! cannot.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use serde_json::Value;

use super::{Mounted, Place, is_root};

/// Bytes of the file that is copied: not a multiple of the block size.
const BYTES: usize = 4_000_123;

/// Most space for the rows of shared blocks.
const ROWS: u64 = 200_000;

impl Place {
    /// Writes a file so large that a copy of its blocks would show in the space of a drive.
    fn fill(&self, name: &str) -> Vec<u8> {
        let word = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let content: Vec<u8> = (0..).flat_map(word).take(BYTES).collect();
        fs::write(self.path(name), &content).unwrap();
        content
    }

    fn used(&self, drive: &str) -> u64 {
        let found: Value = serde_json::from_slice(&self.must(["df", "--json", drive])).unwrap();
        found[0]["used_bytes"].as_u64().unwrap()
    }
}

fn used(mount: &Mounted<'_>) -> u64 {
    let found = rustix::fs::statvfs(&mount.dir).unwrap();
    (found.f_blocks - found.f_bfree) * found.f_frsize
}

#[test]
fn cp_on_one_drive_shares_blocks_unless_forbidden() {
    let place = Place::new();
    let content = place.fill("big");
    place.must(["cp", "big", "drive.zns:/big"]);
    for (option, shares) in [
        (Some("--reflink=always"), true),
        (Some("--reflink"), true),
        (Some("--reflink=auto"), true),
        (None, true),
        (Some("--reflink=never"), false),
    ] {
        let before = place.used("drive.zns");
        let operands = ["drive.zns:/big", "drive.zns:/copy"];
        place.must(["cp"].into_iter().chain(option).chain(operands));
        let taken = place.used("drive.zns") - before;
        assert_eq!(taken < ROWS, shares, "{option:?} took {taken} bytes");
        assert!(place.must(["cat", "drive.zns:/copy"]) == content, "{option:?}");
        place.must(["check", "--data", "drive.zns"]);
        place.must(["rm", "drive.zns:/copy"]);
    }
    // A change of one file does not change the other.
    place.must(["cp", "--reflink=always", "drive.zns:/big", "drive.zns:/copy"]);
    fs::write(place.path("words"), "one two").unwrap();
    place.must(["cp", "words", "drive.zns:/big"]);
    assert!(place.must(["cat", "drive.zns:/copy"]) == content);
    place.must(["check", "--data", "drive.zns"]);
}

#[test]
fn cp_reflink_always_fails_cleanly_when_unsupported() {
    let place = Place::new();
    fs::write(place.path("words"), "one two").unwrap();
    place.must(["create", "other.zns", "--zones", "60", "--zone-size", "1MiB"]);
    place.must(["mkfs", "other.zns"]);
    place.must(["create", "zones.zns", "--zones", "20", "--zone-size", "1MiB"]);
    place.must(["mkzonefs", "zones.zns"]);
    place.must(["cp", "words", "drive.zns:/words"]);
    place.must(["cp", "words", "other.zns:/there"]);
    for (source, target) in [
        ("words", "drive.zns:/new"),
        ("drive.zns:/words", "other.zns:/there"),
        ("drive.zns:/words", "new"),
        ("zones.zns:/seq/0", "zones.zns:/seq/1"),
        ("drive.zns:/words", "/dev/null"),
        ("drive.zns:/words", "-"),
        ("-", "drive.zns:/new"),
    ] {
        let said = place.refused(["cp", "--reflink=always", source, target]);
        assert!(said.contains("--reflink=always demands"), "{source} {target}: {said}");
    }
    assert_eq!(place.must(["cat", "other.zns:/there"]), b"one two");
    assert_eq!(place.must(["ls", "drive.zns:/"]), b"words\n");
    assert!(!place.path("new").exists());
    // With `auto`, files that cannot share blocks are copied.
    place.must(["cp", "--reflink=auto", "drive.zns:/words", "new"]);
    place.must(["cp", "--reflink=auto", "drive.zns:/words", "other.zns:/new"]);
    assert_eq!(place.read("new").unwrap(), "one two");
    assert_eq!(place.must(["cat", "other.zns:/new"]), b"one two");
    // Files outside of a mount cannot share blocks.
    for option in ["--reflink=always", "--reflink=auto", "--reflink=never"] {
        let said = place.refused(["cp", option, "words", "elsewhere"]);
        assert!(said.contains("not in one mount of Furrow"), "{option}: {said}");
    }
    assert!(!place.path("elsewhere").exists());
}

#[test]
fn cp_in_mount_shares_blocks_on_request() {
    let place = Place::new();
    let content = place.fill("big");
    let Some(mount) = Mounted::of(&place, "drive.zns") else { return };
    let in_mount = |name: &str| mount.dir.join(name).to_str().unwrap().to_owned();
    let (big, copy) = (in_mount("big"), in_mount("copy"));
    fs::copy(place.path("big"), &big).unwrap();
    for (option, shares) in
        [("--reflink=always", true), ("--reflink", true), ("--reflink=never", false)]
    {
        let before = used(&mount);
        place.must(["cp", option, &big, &copy]);
        rustix::fs::syncfs(fs::File::open(&mount.dir).unwrap()).unwrap();
        fs::File::open(&copy).unwrap().sync_all().unwrap();
        let taken = used(&mount) - before;
        assert_eq!(taken < ROWS, shares, "{option} took {taken} bytes");
        assert!(fs::read(&copy).unwrap() == content, "{option}");
        fs::remove_file(&copy).unwrap();
    }
    // A write to the original does not show in the copy, nor the other way round.
    place.must(["cp", "--reflink", &big, &copy]);
    fs::write(&big, "one two").unwrap();
    assert!(fs::read(&copy).unwrap() == content);
    let said = place.refused(["cp", &big, &copy]);
    assert!(said.contains("is on a drive"), "{said}");
    drop(mount);
    place.must(["check", "--data", "drive.zns"]);
}

#[test]
fn cp_in_mount_stays_inside_and_grants_no_rights() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.must(["create", "other.zns", "--zones", "60", "--zone-size", "1MiB"]);
    place.must(["mkfs", "other.zns"]);
    let Some(mount) = Mounted::of(&place, "drive.zns") else { return };
    let Some(other) = Mounted::of(&place, "other.zns") else { return };
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let secret = mount.dir.join("secret");
    fs::write(&secret, "for root").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    for target in [other.dir.join("copy"), place.path("copy")] {
        let said = place.refused(["cp", "--reflink", &name(&secret), &name(&target)]);
        assert!(said.contains("not in one mount of Furrow") && !target.exists(), "{said}");
    }
    // Other users read and write the files that they may read and write.
    let theirs = mount.dir.join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(65_534), Some(65_534)).unwrap();
    let as_user = |from: &Path, to: &Path| {
        let mut command = place.command(env!("CARGO_BIN_EXE_zonal"));
        command.args(["cp", "--reflink"]).arg(from).arg(to).uid(65_534).gid(65_534);
        command.output().unwrap()
    };
    let taken = as_user(&secret, &theirs.join("taken"));
    assert!(!taken.status.success() && !theirs.join("taken").exists(), "{taken:?}");
    fs::write(theirs.join("own"), "theirs").unwrap();
    let given = as_user(&theirs.join("own"), &secret);
    assert!(!given.status.success(), "{given:?}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "for root");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o604)).unwrap();
    let read = as_user(&secret, &theirs.join("read"));
    assert!(read.status.success(), "{read:?}");
    let copy = fs::metadata(theirs.join("read")).unwrap();
    assert_eq!((copy.uid(), copy.mode() & 0o7777), (65_534, 0o604));
}

#[test]
fn cp_in_mount_refuses_copy_into_or_onto_itself() {
    let place = Place::new();
    let Some(mount) = Mounted::of(&place, "drive.zns") else { return };
    fs::create_dir_all(mount.dir.join("a/b/c")).unwrap();
    fs::write(mount.dir.join("a/words"), "one two").unwrap();
    fs::hard_link(mount.dir.join("a/words"), mount.dir.join("hard")).unwrap();
    symlink("a/b", mount.dir.join("short")).unwrap();
    for target in ["a", "a/b", "a/b/c", "a/new", "short/new", "short/c/../new"] {
        let target = format!("drive.zns.mnt/{target}");
        let said = place.refused(["cp", "-r", "--reflink", "drive.zns.mnt/a", &target]);
        assert!(said.contains("copied into itself") || said.contains("same file"), "{said}");
    }
    let said = place.refused(["cp", "--reflink", "drive.zns.mnt/a/words", "drive.zns.mnt/hard"]);
    assert!(said.contains("are the same file"), "{said}");
    assert_eq!(fs::read_to_string(mount.dir.join("hard")).unwrap(), "one two");
    assert_eq!(fs::read_dir(mount.dir.join("a/b")).unwrap().count(), 1);
}
