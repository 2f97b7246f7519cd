//! `zonal ls|stat|cat|cp|rm|mv|ln|mkdir|df`: files of a drive that is not mounted.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use zonal::{Clock, FileDrive, OpenMode, SystemClock};
use zonal_fs::vfs::Access;
use zonal_fs::volume::{Volume, VolumeOptions};
use zonal_kv::zones::ZoneStore;

/// A directory in which the commands run.
struct Place {
    folder: TempDir,
}

impl Place {
    /// A directory with a drive that holds Furrow.
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        place.must(&["create", "drive.zns", "--zones", "60", "--zone-size", "1MiB"]);
        place.must(&["mkfs", "drive.zns"]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn zonal(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// The output of a command, which must succeed.
    fn must(&self, arguments: &[&str]) -> String {
        let output = self.zonal(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a command, which must fail.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.zonal(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn files_tree_round_trips_through_drive() {
    let place = Place::new();
    let from = place.path("tree");
    fs::create_dir_all(from.join("deep/er")).unwrap();
    let content: Vec<u8> = (0..3_000_001_u32).map(|number| number.to_le_bytes()[1]).collect();
    fs::write(from.join("large"), &content).unwrap();
    fs::write(from.join("deep/er/small"), b"small").unwrap();
    fs::write(from.join("empty"), b"").unwrap();
    symlink("deep/er/small", from.join("link")).unwrap();
    // A hole between two bytes.
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
    let before = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 500);
    fs::File::open(from.join("large")).unwrap().set_modified(before).unwrap();
    fs::set_permissions(from.join("large"), fs::Permissions::from_mode(0o640)).unwrap();
    place.must(&["cp", "-a", "tree", "drive.zns:/"]);
    let all = place.must(&["ls", "-R", "drive.zns:/tree"]);
    assert_eq!(all, "deep\ndeep/er\ndeep/er/small\nempty\nlarge\nlink\nsparse\n");
    place.must(&["cp", "-a", "drive.zns:/tree", "back"]);
    assert_eq!(fs::read(place.path("back/large")).unwrap(), content);
    assert_eq!(fs::read(place.path("back/deep/er/small")).unwrap(), b"small");
    assert_eq!(fs::read_link(place.path("back/link")).unwrap(), PathBuf::from("deep/er/small"));
    assert_eq!(fs::read(place.path("back/empty")).unwrap(), b"");
    let sparse = fs::metadata(place.path("back/sparse")).unwrap();
    assert_eq!(sparse.len(), 9 << 20);
    assert!(sparse.blocks() * 512 <= 1 << 20, "{} blocks", sparse.blocks());
    let large = fs::metadata(place.path("back/large")).unwrap();
    assert_eq!((large.modified().unwrap(), large.mode() & 0o777), (before, 0o640));
    // Between drives, and within one.
    place.must(&["create", "other.zns", "--zones", "60", "--zone-size", "1MiB"]);
    place.must(&["mkfs", "other.zns"]);
    place.must(&["cp", "drive.zns:/tree/large", "drive.zns:/tree/empty", "other.zns:/"]);
    assert_eq!(place.must(&["ls", "other.zns"]), "empty\nlarge\n");
    place.must(&["cp", "other.zns:/large", "other.zns:/again"]);
    place.must(&["cp", "other.zns:/again", "again"]);
    assert_eq!(fs::read(place.path("again")).unwrap(), content);
    place.must(&["check", "other.zns", "--data"]);
}

#[test]
fn files_are_created_moved_linked_and_removed() {
    let place = Place::new();
    fs::write(place.path("words"), "one two\n").unwrap();
    place.must(&["mkdir", "-p", "drive.zns:/a/b/c"]);
    place.must(&["cp", "words", "drive.zns:/a/words"]);
    place.must(&["mv", "drive.zns:/a/words", "drive.zns:/a/b"]);
    place.must(&["mv", "drive.zns:/a/b/words", "/a/b/text"]);
    place.must(&["ln", "drive.zns:/a/b/text", "drive.zns:/hard"]);
    place.must(&["ln", "-s", "a/b/text", "drive.zns:/soft"]);
    let listed = place.must(&["ls", "--json", "drive.zns:/"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let facts: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            let word = |name: &str| file[name].as_str().unwrap_or("-").to_owned();
            (word("path"), word("file_type"), file["links"].as_u64().unwrap(), word("target"))
        })
        .collect();
    let fact = |path: &str, kind: &str, links, target: &str| {
        (path.to_owned(), kind.to_owned(), links, target.to_owned())
    };
    let wanted = [
        fact("a", "directory", 3, "-"),
        fact("hard", "file", 2, "-"),
        fact("soft", "symlink", 1, "a/b/text"),
    ];
    assert_eq!(facts, wanted);
    assert!(place.must(&["ls", "-l", "drive.zns:/"]).contains("soft -> a/b/text"));
    place.must(&["cp", "drive.zns:/hard", "copy"]);
    assert_eq!(fs::read_to_string(place.path("copy")).unwrap(), "one two\n");
    let said = place.refused(&["rm", "drive.zns:/a"]);
    assert!(said.contains("drive.zns:/a is a directory: --recursive removes it"), "{said}");
    place.must(&["rm", "-r", "drive.zns:/a", "drive.zns:/hard", "drive.zns:/soft"]);
    assert_eq!(place.must(&["ls", "drive.zns"]), "");
    place.must(&["check", "drive.zns"]);
}

#[test]
fn files_of_store_on_zonefs_are_listed_copied_and_removed() {
    let place = Place::new();
    place.must(&["mkzonefs", "--force", "drive.zns"]);
    // Without names it shows its zone files.
    assert!(place.must(&["ls", "drive.zns:/seq"]).starts_with("0\n1\n"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let device =
        || Arc::new(FileDrive::open(place.path("drive.zns"), OpenMode::ReadWrite).unwrap());
    let store = ZoneStore::mount(device(), clock, Access::ReadWrite).unwrap();
    let volume = Volume::new(Arc::new(store), &VolumeOptions::default());
    volume.create_dir("/kv").unwrap();
    let content: Vec<u8> = (0..1_500_001_u32).map(|number| number.to_le_bytes()[1]).collect();
    for name in ["/kv/000004.sst", "/kv/000007.sst"] {
        volume.create(name).unwrap().append(&content).unwrap();
    }
    volume.create("/kv/CURRENT").unwrap().append(b"MANIFEST-000003\n").unwrap();
    volume.close().unwrap();
    let before = fs::metadata(place.path("drive.zns")).unwrap().modified().unwrap();
    let all = "kv\nkv/000004.sst\nkv/000007.sst\nkv/CURRENT\n";
    assert_eq!(place.must(&["ls", "-R", "drive.zns:/"]), all);
    assert!(place.must(&["ls", "-l", "drive.zns:/kv"]).contains(" 1500001 "));
    assert_eq!(place.must(&["cat", "drive.zns:/kv/CURRENT"]), "MANIFEST-000003\n");
    place.must(&["cp", "-a", "drive.zns:/kv", "backup"]);
    assert_eq!(fs::read(place.path("backup/000007.sst")).unwrap(), content);
    let after = fs::metadata(place.path("drive.zns")).unwrap().modified().unwrap();
    assert_eq!(before, after, "commands that look write nothing");
    let used = |place: &Place| -> u64 {
        let json: serde_json::Value =
            serde_json::from_str(&place.must(&["df", "--json", "drive.zns"])).unwrap();
        json[0]["used_bytes"].as_u64().unwrap()
    };
    let full = used(&place);
    place.must(&["rm", "drive.zns:/kv/000004.sst"]);
    assert!(used(&place) < full, "its zones are free");
    place.must(&["rm", "-r", "drive.zns:/kv"]);
    assert_eq!(place.must(&["ls", "drive.zns:/"]), "");
    // A copy of the backup to the drive restores whole files.
    place.must(&["cp", "-r", "backup", "drive.zns:/kv"]);
    place.must(&["cp", "-r", "drive.zns:/kv", "again"]);
    assert_eq!(fs::read(place.path("again/000004.sst")).unwrap(), content);
    let refused = place.refused(&["cat", "drive.zns:/kv/none"]);
    assert!(refused.contains("/kv/none"), "{refused}");
    names_of_store_change(&place);
}

/// `stat`, `mkdir`, `mv` and `ln` on a store at `/kv`; each later command sees the changes.
fn names_of_store_change(place: &Place) {
    let table = "drive.zns:/kv/000004.sst";
    assert!(place.must(&["stat", table]).contains("1500001"));
    place.must(&["mkdir", "-p", "drive.zns:/old/kv"]);
    place.must(&["mv", table, "drive.zns:/old/kv/000005.sst"]);
    place.must(&["ln", "drive.zns:/kv/CURRENT", "drive.zns:/old/CURRENT"]);
    let all = "kv\nkv/000007.sst\nkv/CURRENT\nold\nold/CURRENT\nold/kv\nold/kv/000005.sst\n";
    assert_eq!(place.must(&["ls", "-R", "drive.zns:/"]), all);
    let json: serde_json::Value =
        serde_json::from_str(&place.must(&["stat", "--json", "drive.zns:/old/CURRENT"])).unwrap();
    assert_eq!(json[0]["links"], 2, "{json}");
    // The file loses one name and keeps the other; `mv` replaces a file of the target's name.
    place.must(&["rm", "drive.zns:/kv/CURRENT"]);
    assert_eq!(place.must(&["cat", "drive.zns:/old/CURRENT"]), "MANIFEST-000003\n");
    place.must(&["mv", "drive.zns:/old/kv/000005.sst", "drive.zns:/kv/000007.sst"]);
    place.must(&["mv", "drive.zns:/kv", "drive.zns:/old/kv/store"]);
    assert_eq!(
        place.must(&["ls", "-R", "drive.zns:/old"]),
        "CURRENT\nkv\nkv/store\nkv/store/000007.sst\n"
    );
    let refused = place.refused(&["ln", "-s", "CURRENT", "drive.zns:/old/soft"]);
    assert!(refused.contains("files on zonefs of this kind"), "{refused}");
    let refused = place.refused(&["mv", "drive.zns:/old", "drive.zns:/old/kv/old"]);
    assert!(refused.contains("into itself"), "{refused}");
}

#[test]
fn df_space_matches_what_files_take() {
    let place = Place::new();
    let free = || {
        let text = place.must(&["df", "--json", "drive.zns"]);
        let reports: serde_json::Value = serde_json::from_str(&text).unwrap();
        let report = &reports[0];
        let number = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(number("size_bytes"), number("used_bytes") + number("available_bytes"));
        assert_eq!(number("inodes_max"), number("inodes") + number("inodes_free"));
        number("available_bytes")
    };
    let before = free();
    fs::write(place.path("large"), vec![1; 4 << 20]).unwrap();
    place.must(&["cp", "large", "drive.zns:/"]);
    let after = free();
    assert!((4 << 20..5 << 20).contains(&(before - after)), "{before} {after}");
    assert!(place.must(&["df", "drive.zns"]).starts_with("device"));
    // The file is larger than the space: the other files stay, and the error names the file.
    fs::write(place.path("huge"), vec![1; usize::try_from(after).unwrap() + (8 << 20)]).unwrap();
    let said = place.refused(&["cp", "huge", "drive.zns:/huge"]);
    assert!(said.contains("drive.zns:/huge") && said.contains("no space left"), "{said}");
    place.must(&["rm", "drive.zns:/huge"]);
    assert_eq!(place.must(&["ls", "drive.zns"]), "large\n");
}

#[test]
fn files_commands_refuse_with_reason() {
    let place = Place::new();
    place.must(&["create", "blank.zns", "--zones", "40", "--zone-size", "1MiB"]);
    for (arguments, why) in [
        (&["ls", "drive.zns:/none"][..], "/none: no such file or directory"),
        (&["cp", "drive.zns:/none", "here"], "drive.zns:/none: no such file or directory"),
        (&["cp", "none", "drive.zns:/"], "none: no such file or directory"),
        (&["cp", "drive.zns:/", "here"], "--recursive copies it"),
        (&["cp", "-r", "drive.zns:/", "drive.zns:/in"], "copied into itself"),
        (&["rm", "drive.zns"], "no place on a drive"),
        (&["mv", "drive.zns:/a", "blank.zns:/a"], "one drive at a time"),
        (&["ls", "blank.zns:/"], "`zonal mkfs DEVICE` makes one"),
        (&["ls", "none.zns:/"], "opening none.zns"),
    ] {
        let said = place.refused(arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    fs::write(place.path("words"), "one two").unwrap();
    let user = FileDrive::open(place.path("drive.zns"), OpenMode::ReadWrite).unwrap();
    for arguments in [
        &["ls", "drive.zns:/"][..],
        &["df", "drive.zns"],
        &["cp", "words", "drive.zns:/"],
        &["cat", "drive.zns:/words"],
        &["rm", "drive.zns:/a"],
        &["mkdir", "drive.zns:/a"],
    ] {
        let said = place.refused(arguments);
        assert!(said.contains("in use by another process"), "{arguments:?}: {said}");
    }
    drop(user);
    place.must(&["ls", "drive.zns:/"]);
}

/// Also through another name of the same file, and as a file of its own directory.
#[test]
fn mv_of_file_to_itself_is_refused_and_loses_nothing() {
    let place = Place::new();
    fs::write(place.path("words"), "one two three").unwrap();
    place.must(&["mkdir", "drive.zns:/a"]);
    place.must(&["cp", "words", "drive.zns:/a/words"]);
    place.must(&["ln", "drive.zns:/a/words", "drive.zns:/a/same"]);
    for target in ["/a/words", "/a", "/a/../a/words", "/a/same"] {
        let said = place.refused(&["mv", "drive.zns:/a/words", target]);
        assert!(said.contains("are the same file"), "{target}: {said}");
    }
    assert_eq!(place.must(&["cat", "drive.zns:/a/words"]), "one two three");
    assert_eq!(place.must(&["cat", "drive.zns:/a/same"]), "one two three");
    place.must(&["mv", "drive.zns:/a/words", "/a/other"]);
    assert_eq!(place.must(&["cat", "drive.zns:/a/other"]), "one two three");
}

#[test]
fn rm_refuses_root_and_paths_that_end_in_dots() {
    let place = Place::new();
    fs::create_dir_all(place.path("h/a/b")).unwrap();
    fs::write(place.path("h/a/f"), "one").unwrap();
    place.must(&["cp", "-r", "h/a", "drive.zns:/"]);
    place.must(&["ln", "-s", "a", "drive.zns:/link"]);
    let all = "a\na/b\na/f\nlink\n";
    for path in
        ["/", "//", "/.", "/..", "/a/.", "/a/..", "/a/./", "/a/b/../..", "/link/.", "/a//..//"]
    {
        let said = place.refused(&["rm", "-r", &format!("drive.zns:{path}")]);
        assert!(said.contains("stays: rm takes no root, `.` or `..`"), "{path}: {said}");
        assert_eq!(place.must(&["ls", "-R", "drive.zns:/"]), all, "{path}");
        let said = place.refused(&["mv", &format!("drive.zns:{path}"), "/moved"]);
        assert!(said.contains("are not entries to remove or rename"), "{path}: {said}");
        place.refused(&["mv", &format!("drive.zns:{path}"), "/a"]);
        place.refused(&["mkdir", &format!("drive.zns:{path}")]);
        assert_eq!(place.must(&["ls", "-R", "drive.zns:/"]), all, "{path}");
    }
    // With a slash behind a link or a file, `rm` removes neither it nor entries of a directory.
    for path in ["/link/", "/a/f/"] {
        let said = place.refused(&["rm", "-r", &format!("drive.zns:{path}")]);
        assert!(said.contains("not a directory"), "{path}: {said}");
    }
    // A directory as target, under any of its names, gets an entry with the name of the source.
    fs::write(place.path("words"), "two").unwrap();
    place.must(&["cp", "words", "drive.zns:/a/."]);
    place.must(&["mv", "drive.zns:/a/words", "drive.zns:/a/.."]);
    place.must(&["ln", "drive.zns:/words", "drive.zns:/a/b/."]);
    place.refused(&["cp", "words", "drive.zns:/none/."]);
    place.refused(&["cp", "-r", "h", "drive.zns:/none/."]);
    place.refused(&["ln", "-s", "..", "drive.zns:/a"]);
    assert_eq!(place.must(&["ls", "-R", "drive.zns:/"]), "a\na/b\na/b/words\na/f\nlink\nwords\n");
    // The command performs its other operands even if one fails.
    let said = place.refused(&["rm", "drive.zns:/none", "drive.zns:/words", "drive.zns:/a"]);
    assert!(said.contains("/none: no such file") && said.contains("/a is a directory"), "{said}");
    place.refused(&["mkdir", "drive.zns:/a", "drive.zns:/new"]);
    assert_eq!(place.must(&["ls", "drive.zns:/"]), "a\nlink\nnew\n");
    place.must(&["rm", "-r", "drive.zns:/a/"]);
    assert_eq!(place.must(&["ls", "drive.zns:/"]), "link\nnew\n");
}

#[test]
fn slash_behind_link_is_its_directory() {
    let place = Place::new();
    fs::create_dir_all(place.path("h/dir")).unwrap();
    fs::write(place.path("h/dir/f"), "one\n").unwrap();
    symlink("dir", place.path("h/link")).unwrap();
    symlink("none", place.path("h/dangling")).unwrap();
    place.must(&["cp", "-r", "h", "drive.zns:/"]);
    for path in ["h/link/", "h/link", "h/dir", "h/link/."] {
        assert_eq!(place.must(&["ls", &format!("drive.zns:/{path}")]), "f\n", "{path}");
    }
    assert_eq!(place.must(&["ls", "-R", "drive.zns:/h/"]), "dangling\ndir\ndir/f\nlink\n");
    assert_eq!(place.must(&["ls", "drive.zns:/h/dangling"]), "dangling\n");
    assert!(place.must(&["ls", "-l", "drive.zns:/h/link"]).contains("link -> dir"));
    assert!(place.must(&["ls", "-l", "drive.zns:/h/link/"]).ends_with("  f\n"));
    assert!(place.must(&["stat", "drive.zns:/h/link/"]).contains("directory"));
    assert!(place.must(&["stat", "drive.zns:/h/link"]).contains("symlink"));
    assert_eq!(place.must(&["cat", "drive.zns:/h/link/f"]), "one\n");
    // A link as either side of a copy.
    place.must(&["cp", "-r", "drive.zns:/h/link/", "out"]);
    place.must(&["cp", "-a", "h/link/", "drive.zns:/in"]);
    assert_eq!(fs::read_to_string(place.path("out/f")).unwrap(), "one\n");
    assert_eq!(place.must(&["cat", "drive.zns:/in/f"]), "one\n");
    place.must(&["cp", "out/f", "drive.zns:/h/link/g"]);
    place.must(&["mv", "drive.zns:/h/link/g", "drive.zns:/h/link/i"]);
    assert_eq!(place.must(&["ls", "drive.zns:/h/dir"]), "f\ni\n");
    for path in ["drive.zns:/h/dangling/", "drive.zns:/h/dir/f/"] {
        place.refused(&["ls", path]);
        place.refused(&["stat", path]);
        place.refused(&["cat", path]);
    }
    place.refused(&["cp", "drive.zns:/h/dir/f", "new/"]);
    assert!(!place.path("new").exists());
}

#[test]
fn interrupted_cp_keeps_what_it_has_copied() {
    let place = Place::new();
    fs::write(place.path("first"), "one\n").unwrap();
    let fifo = place.path("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    for (number, signal) in [(2, Signal::INT), (15, Signal::TERM), (1, Signal::HUP)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.args(["cp", "-v", "first", "fifo", "first", "drive.zns:/"]);
        command.current_dir(place.folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // The process has copied the first file when it opens the second, which never ends.
        let writer = fs::File::options().write(true).open(&fifo).unwrap();
        rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        drop(writer);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.signal(), Some(number), "{said}");
        assert!(said.contains("interrupted; changes that were made before stay"), "{said}");
        assert_eq!(place.must(&["cat", "drive.zns:/first"]), "one\n");
        place.must(&["rm", "drive.zns:/first", "drive.zns:/fifo"]);
        place.must(&["check", "drive.zns"]);
    }
}
