//! Copies that `zonal cp` refuses, and files that it never overwrites.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use super::{Place, is_root};

#[test]
fn cp_refuses_file_onto_itself_by_any_name() {
    let place = Place::new();
    fs::write(place.path("words"), "one two\n").unwrap();
    place.must(["cp", "words", "drive.zns:/words"]);
    place.must(["mkdir", "drive.zns:/dir"]);
    place.must(["ln", "drive.zns:/words", "drive.zns:/hard"]);
    place.must(["ln", "-s", "words", "drive.zns:/soft"]);
    symlink("drive.zns", place.path("other-name.zns")).unwrap();
    fs::hard_link(place.path("drive.zns"), place.path("other-link.zns")).unwrap();
    for (source, target) in [
        ("drive.zns:/words", "drive.zns:/words"),
        ("drive.zns:/words", "drive.zns:/"),
        ("drive.zns:/words", "drive.zns:/dir/../words"),
        ("drive.zns:/words", "drive.zns:/hard"),
        ("drive.zns:/soft", "drive.zns:/words"),
        ("drive.zns:/words", "drive.zns:/soft"),
        ("drive.zns:/words", "other-name.zns:/words"),
        ("other-link.zns:/words", "./drive.zns:/hard"),
    ] {
        let said = place.refused(["cp", source, target]);
        assert!(said.contains("are the same file"), "{source} {target}: {said}");
    }
    assert_eq!(place.must(["cat", "drive.zns:/words"]), b"one two\n");
}

#[test]
fn cp_refuses_directory_into_itself_by_any_name() {
    let place = Place::new();
    place.must(["mkdir", "-p", "drive.zns:/a/b/c"]);
    place.must(["ln", "-s", "a/b", "drive.zns:/short"]);
    for target in ["/a", "/a/b", "/a/b/c", "/a/new", "/short/new", "/short/c/../new", "/a/b/../d"] {
        let said = place.refused(["cp", "-r", "drive.zns:/a", &format!("drive.zns:{target}")]);
        assert!(said.contains("copied into itself") || said.contains("same file"), "{said}");
    }
    assert_eq!(place.must(["ls", "-R", "drive.zns"]), b"a\na/b\na/b/c\nshort\n");
}

#[test]
fn cp_of_link_cycle_fails_and_copies_the_rest() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    fs::write(place.path("tree/file"), "words").unwrap();
    symlink(".", place.path("tree/itself")).unwrap();
    symlink("../../tree", place.path("tree/sub/above")).unwrap();
    symlink("sub", place.path("tree/twice")).unwrap();
    place.must(["cp", "-r", "tree", "drive.zns:/"]);
    let output = place.command("cp").args(["-rL", "tree", "by-cp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    for (from, to) in
        [("tree", "drive.zns:/a"), ("drive.zns:/tree", "b"), ("drive.zns:/tree", "drive.zns:/c")]
    {
        let said = place.refused(["cp", "-rL", from, to]);
        for link in ["itself", "sub/above", "twice/above"] {
            let why = format!("{from}/{link} leads back to a directory that it is in");
            assert!(said.contains(&why), "{from} {to}: {said}");
        }
    }
    // The trees that both commands made, with the contents of files.
    let listed = |dir: &str| {
        let mut command = place.command("sh");
        command.args(["-c", "find . -type f -exec grep -H . {} + -o -print | sort"]);
        command.current_dir(place.path(dir)).output().unwrap().stdout
    };
    let by_cp = listed("by-cp");
    assert_eq!(by_cp.split(|byte| *byte == b'\n').count(), 5, "three directories and a file");
    assert_eq!(listed("b"), by_cp);
    for made in ["a", "c"] {
        place.must(["cp", "-r", &format!("drive.zns:/{made}"), made]);
        assert_eq!(listed(made), by_cp, "{made}");
    }
    // A link that leads to the place of the copy.
    symlink("../out", place.path("tree/out")).unwrap();
    fs::remove_file(place.path("tree/itself")).unwrap();
    fs::create_dir(place.path("out")).unwrap();
    place.must(["cp", "-r", "tree", "drive.zns:/there"]);
    place.must(["mkdir", "drive.zns:/out"]);
    for to in ["out", "drive.zns:/out"] {
        let said = place.refused(["cp", "-rL", "drive.zns:/there", to]);
        assert_eq!(said.contains("drive.zns:/there/out would be copied into itself"), to != "out");
    }
    assert_eq!(place.must(["ls", "drive.zns:/out/there"]), b"file\nsub\ntwice\n");
}

#[test]
fn cp_refuses_drive_as_file() {
    let place = Place::new();
    fs::write(place.path("words"), "one two\n").unwrap();
    let before = fs::read(place.path("drive.zns")).unwrap();
    for arguments in [["words", "drive.zns"], ["drive.zns", "drive.zns:/"], ["drive.zns", "-"]] {
        let said = place.refused(["cp", arguments[0], arguments[1]]);
        assert!(said.contains("is a drive") && said.contains("is drive.zns:/ meant?"), "{said}");
    }
    let said = place.refused(["cp", "words", "copy"]);
    assert!(said.contains("neither words nor copy is on a drive"), "{said}");
    assert!(!place.path("copy").exists());
    assert!(fs::read(place.path("drive.zns")).unwrap() == before, "the drive has changed");
}

#[test]
fn cp_keeps_kind_and_mode_of_existing_target() {
    let place = Place::new();
    fs::write(place.path("words"), "one two\n").unwrap();
    place.must(["cp", "words", "drive.zns:/words"]);
    // A file keeps its mode, a link its target.
    fs::write(place.path("private"), "old and longer than the new one").unwrap();
    fs::set_permissions(place.path("private"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("private", place.path("link")).unwrap();
    place.must(["cp", "drive.zns:/words", "link"]);
    assert_eq!(place.read("private").unwrap(), "one two\n");
    assert_eq!(fs::metadata(place.path("private")).unwrap().mode() & 0o7777, 0o600);
    assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
    // A copy to a device writes to the device.
    let before = fs::metadata("/dev/null").unwrap();
    place.must(["cp", "drive.zns:/words", "/dev/null"]);
    let after = fs::metadata("/dev/null").unwrap();
    assert!(after.file_type().is_char_device());
    assert_eq!((before.mode(), before.ino()), (after.mode(), after.ino()));
    // The same on a drive.
    fs::write(place.path("other"), "three\n").unwrap();
    fs::set_permissions(place.path("other"), fs::Permissions::from_mode(0o777)).unwrap();
    let mode = || {
        let text = place.must(["stat", "--json", "drive.zns:/words"]);
        let files: serde_json::Value = serde_json::from_slice(&text).unwrap();
        files[0]["mode"].as_str().unwrap().to_owned()
    };
    let before = mode();
    place.must(["cp", "other", "drive.zns:/words"]);
    assert_eq!((mode(), place.must(["cat", "drive.zns:/words"])), (before, b"three\n".to_vec()));
    // No file takes the place of a directory, and no directory the place of a file.
    place.must(["mkdir", "drive.zns:/dir"]);
    fs::create_dir_all(place.path("tree/words")).unwrap();
    fs::write(place.path("tree/dir"), "a file").unwrap();
    let said = place.refused(["cp", "-r", "tree/.", "drive.zns:/"]);
    assert!(said.contains("drive.zns:/words is no directory"), "{said}");
    assert!(said.contains("drive.zns:/dir is a directory"), "{said}");
}

#[test]
fn cp_never_writes_outside_target() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    for name in ["tree/file", "tree/sub/inner", "tree/fine"] {
        fs::write(place.path(name), "new").unwrap();
    }
    place.must(["cp", "-r", "tree", "drive.zns:/"]);
    fs::create_dir_all(place.path("outside")).unwrap();
    fs::write(place.path("victim"), "old").unwrap();
    fs::create_dir_all(place.path("to/tree")).unwrap();
    symlink("../../victim", place.path("to/tree/file")).unwrap();
    symlink("../../outside", place.path("to/tree/sub")).unwrap();
    let said = place.refused(["cp", "-r", "drive.zns:/tree", "to"]);
    assert!(said.contains("to/tree/file is a symbolic link"), "{said}");
    assert!(said.contains("to/tree/sub is no directory"), "{said}");
    assert_eq!(place.read("victim").unwrap(), "old");
    assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 0);
    assert_eq!(place.read("to/tree/fine").unwrap(), "new", "the rest is copied");
    // The same on a drive.
    place.must(["mkdir", "-p", "drive.zns:/to/tree", "drive.zns:/outside"]);
    place.must(["ln", "-s", "/outside", "drive.zns:/to/tree/sub"]);
    let said = place.refused(["cp", "-r", "tree", "drive.zns:/to"]);
    assert!(said.contains("to/tree/sub is no directory"), "{said}");
    assert_eq!(place.must(["ls", "drive.zns:/outside"]), b"");
    // Links that lead nowhere make no file elsewhere.
    symlink("nowhere", place.path("dangling")).unwrap();
    let said = place.refused(["cp", "drive.zns:/tree/fine", "dangling"]);
    assert!(said.contains("leads nowhere") && !place.path("nowhere").exists(), "{said}");
}

#[test]
fn cp_names_are_bytes_escaped_for_terminal() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::new();
    let name = OsStr::from_bytes(b"a\xff\x1b[2J");
    fs::write(place.folder.path().join(name), "bytes").unwrap();
    let on_drive = OsStr::from_bytes(b"drive.zns:/a\xff\x1b[2J");
    place.must([OsStr::new("cp"), name, OsStr::new("drive.zns:/")]);
    assert_eq!(place.must([OsStr::new("cat"), on_drive]), b"bytes");
    assert_eq!(place.must(["ls", "drive.zns:/"]), [name.as_bytes(), b"\n"].concat());
    let said = place.refused([OsStr::new("cp"), on_drive, OsStr::new("none/where")]);
    assert!(!said.contains('\x1b'), "{said}");
    let said = place.refused([OsStr::new("mkdir"), on_drive]);
    assert!(said.contains("a\\xff\\u{1b}[2J") && !said.contains('\x1b'), "{said}");
    place.must([OsStr::new("rm"), on_drive]);
    place.must([OsStr::new("rm"), OsStr::new("-f"), on_drive]);
}

#[test]
fn cp_recreates_special_files_without_replacing() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    let fifo = place.path("tree/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let null = place.path("tree/null");
    let device = rustix::fs::makedev(1, 3);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &null, kind, mode, device).unwrap();
    place.must(["cp", "-a", "tree", "drive.zns:/"]);
    place.must(["cp", "-a", "drive.zns:/tree", "back"]);
    let back = fs::metadata(place.path("back/null")).unwrap();
    assert!(back.file_type().is_char_device());
    assert_eq!((back.rdev(), back.mode() & 0o7777), (device, 0o600));
    let back = fs::metadata(place.path("back/fifo")).unwrap();
    assert!(back.file_type().is_fifo());
    assert_eq!(back.mode() & 0o7777, fs::metadata(&fifo).unwrap().mode() & 0o7777);
    let said = place.refused(["cp", "-a", "drive.zns:/tree", "drive.zns:/tree/.", "back"]);
    assert!(said.contains("null is a device, and is not replaced"), "{said}");
}
