//! Copies by root and by other users: their owners, and the rights that they give.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};

use super::{Place, is_root};

/// An ordinary user.
const USER: u32 = 65_534;

impl Place {
    /// `zonal cp` by another user.
    fn copy_as_user(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_zonal"));
        command.arg("cp").args(arguments).uid(USER).gid(USER);
        command.output().unwrap()
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn cp_of_foreign_setuid_file_keeps_rights_safe() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("home")).unwrap();
    let tool = place.path("home/tool");
    fs::write(&tool, "program").unwrap();
    chown(&tool, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6755)).unwrap();
    // Without -p the copy is an ordinary file of root, in either direction.
    place.must(["cp", "-r", "home", "drive.zns:/"]);
    place.must(["cp", "-r", "drive.zns:/home", "plain"]);
    let copy = fs::metadata(place.path("plain/tool")).unwrap();
    assert_eq!((copy.uid(), copy.mode() & 0o7777), (0, 0o755));
    // With -p the copy has the owner and the mode.
    place.must(["cp", "-a", "home", "drive.zns:/kept"]);
    place.must(["cp", "-a", "drive.zns:/kept", "kept"]);
    let copy = fs::metadata(place.path("kept/tool")).unwrap();
    assert_eq!((copy.uid(), copy.gid(), copy.mode() & 0o7777), (USER, USER, 0o6755));
    // A user who cannot set the owner gets an error, and a copy without the set-id bits.
    fs::create_dir(place.path("theirs")).unwrap();
    chown(place.path("theirs"), Some(USER), Some(USER)).unwrap();
    chown(place.path("drive.zns"), Some(USER), Some(USER)).unwrap();
    place.must(["cp", "-p", "/bin/true", "drive.zns:/root-tool"]);
    fs::copy("/bin/true", place.path("setuid")).unwrap();
    fs::set_permissions(place.path("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
    place.must(["cp", "-p", "setuid", "drive.zns:/setuid"]);
    let output = place.copy_as_user(&["-p", "drive.zns:/setuid", "theirs/setuid"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("theirs/setuid has not kept its owner"), "{said}");
    let copy = fs::metadata(place.path("theirs/setuid")).unwrap();
    assert_eq!((copy.uid(), copy.mode() & 0o7777), (USER, 0o755));
}

#[test]
fn cp_by_owner_writes_file_only_owner_may_write() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::write(place.path("words"), "one two").unwrap();
    fs::set_permissions(place.path("words"), fs::Permissions::from_mode(0o200)).unwrap();
    place.must(["cp", "-p", "words", "drive.zns:/words"]);
    fs::create_dir(place.path("theirs")).unwrap();
    chown(place.path("theirs"), Some(USER), Some(USER)).unwrap();
    chown(place.path("drive.zns"), Some(USER), Some(USER)).unwrap();
    let output = place.copy_as_user(&["drive.zns:/words", "theirs/words"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        (place.read("theirs/words").unwrap().as_str(), mode(&place.path("theirs/words"))),
        ("one two", 0o200)
    );
}

#[test]
fn cp_archive_keeps_attributes_and_links() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/one"), "content").unwrap();
    fs::hard_link(place.path("tree/one"), place.path("tree/two")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(place.path("tree/one"), "user.note", b"value", flags).is_err() {
        // The file system has no extended attributes.
        return;
    }
    place.must(["cp", "-a", "tree", "drive.zns:/"]);
    place.must(["cp", "-a", "drive.zns:/tree", "back"]);
    let (one, two) = (place.path("back/one"), place.path("back/two"));
    assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
    let mut value = [0; 64];
    let size = rustix::fs::getxattr(&one, "user.note", &mut value).unwrap();
    assert_eq!(&value[..size], b"value");
    // Without -a each copy is a file of its own, without attributes.
    place.must(["cp", "-r", "drive.zns:/tree", "plain"]);
    let (one, two) = (place.path("plain/one"), place.path("plain/two"));
    assert_ne!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
    assert!(rustix::fs::getxattr(&one, "user.note", &mut value).is_err());
}

#[test]
fn cp_accepts_streams_as_sides() {
    let place = Place::new();
    let mut command = place.command(env!("CARGO_BIN_EXE_zonal"));
    command.args(["cp", "-", "drive.zns:/words"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.must(["cp", "drive.zns:/words", "-"]), b"from a pipe");
    // In a stream, holes are zeroes.
    let sparse = fs::File::create(place.path("sparse")).unwrap();
    sparse.set_len(300_000).unwrap();
    place.must(["cp", "sparse", "drive.zns:/sparse"]);
    assert!(place.must(["cat", "drive.zns:/sparse"]) == vec![0; 300_000]);
}
