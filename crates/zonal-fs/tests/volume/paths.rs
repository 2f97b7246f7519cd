//! Where paths lead: the rules of `zonal_fs::volume::path`, a row each.

use zonal_fs::vfs::FileKind;
use zonal_fs::volume::path::LINKS_MAX;
use zonal_fs::volume::{Links, Volume};

use crate::{errno, volume};

/// `dir/file`, `dir/sub`, and links of every kind.
fn tree() -> Volume {
    let volume = volume();
    volume.create_dir_all("dir/sub").unwrap();
    volume.write("dir/file", b"file").unwrap();
    for (target, link) in [
        ("file", "dir/to-file"),
        ("sub", "dir/to-sub"),
        ("/dir/sub/", "absolute"),
        ("../dir/./file", "dir/round"),
        ("../../../../dir/file", "dir/sub/out"),
        ("nowhere", "dangling"),
        ("file/", "dir/slashed"),
        ("loop-b", "loop-a"),
        ("loop-a", "loop-b"),
    ] {
        volume.symlink(target, link).unwrap();
    }
    volume
}

#[test]
fn paths_resolve_like_linux() {
    let volume = tree();
    let ino = |path: &str| volume.symlink_metadata(path).unwrap().ino;
    for (path, same) in [
        ("/", "."),
        ("/..", "/"),
        ("../../dir", "dir"),
        ("//dir///file", "dir/file"),
        ("./dir/./sub/../file", "dir/file"),
        ("dir/sub/..", "dir"),
        ("dir/sub/.", "dir/sub"),
        ("dir/to-file", "dir/file"),
        ("dir/to-sub/../file", "dir/file"),
        ("dir/to-sub/", "dir/sub"),
        ("absolute", "dir/sub"),
        ("absolute/..", "dir"),
        ("dir/round", "dir/file"),
        ("dir/sub/out", "dir/file"),
    ] {
        assert_eq!(volume.metadata(path).unwrap().ino, ino(same), "{path} is {same}");
    }
    for (path, expected) in [
        ("", 2),
        ("nothing", 2),
        ("nothing/below", 2),
        ("dangling", 2),
        ("dir/file/", 20),
        ("dir/file/.", 20),
        ("dir/file/..", 20),
        ("dir/file/x", 20),
        ("dir/to-file/x", 20),
        ("dir/slashed", 20),
        ("loop-a", 40),
        ("loop-a/x", 40),
        ("a\0b", 22),
    ] {
        assert_eq!(errno(volume.metadata(path)), expected, "{path:?}");
    }
    let long = "n".repeat(256);
    assert_eq!(errno(volume.metadata(&long)), 36);
    assert_eq!(errno(volume.create(&long)), 36);
}

#[test]
fn link_at_end_is_followed_or_kept() {
    let volume = tree();
    assert_eq!(volume.symlink_metadata("loop-a").unwrap().kind, FileKind::Symlink);
    assert_eq!(volume.node("dangling", Links::Keep).unwrap().metadata().unwrap().size, 7);
    assert_eq!(errno(volume.node("dangling", Links::Follow)), 2);
    assert_eq!(volume.read_link("dir/to-sub").unwrap().as_os_str(), "sub");
    assert_eq!(errno(volume.read_link("dir")), 22);
    // A slash follows a link, where only the inode is looked at.
    let sub = volume.metadata("dir/sub").unwrap().ino;
    for path in ["dir/to-sub/", "dir/to-sub//", "dir/to-sub/.", "absolute/"] {
        assert_eq!(volume.symlink_metadata(path).unwrap().ino, sub, "{path}");
        assert_eq!(volume.node(path, Links::Keep).unwrap().ino(), sub, "{path}");
        assert_eq!(errno(volume.read_link(path)), 22, "{path}");
        assert_eq!(errno(volume.hard_link(path, "new")), 1, "{path}");
    }
    assert_eq!(errno(volume.symlink_metadata("dangling/")), 2);
    assert_eq!(errno(volume.symlink_metadata("dir/to-file/")), 20);
    volume.hard_link("dangling", "dir/dangling").unwrap();
    assert_eq!(volume.symlink_metadata("dangling").unwrap().nlink, 2);
    volume.rename("dir/to-sub", "moved").unwrap();
    assert_eq!(volume.read_link("moved").unwrap().as_os_str(), "sub");
    volume.remove_file("dir/to-file").unwrap();
    assert_eq!(volume.read("dir/file").unwrap(), b"file");
    // A file is made where the link leads.
    volume.write("dangling", b"made").unwrap();
    assert_eq!(volume.read("nowhere").unwrap(), b"made");
}

#[test]
fn path_of_no_entry_is_neither_made_nor_removed() {
    let volume = tree();
    for path in ["/", ".", "..", "dir/..", "dir/sub/."] {
        assert_eq!(errno(volume.create_dir(path)), 17, "{path}");
    }
    for path in ["/", "//", ".", "..", "dir/..", "dir/sub/.", "absolute/.", "dir/sub/./"] {
        assert_eq!(errno(volume.remove_dir(path)), 22, "{path}");
        assert_eq!(errno(volume.remove_file(path)), 22, "{path}");
        assert_eq!(errno(volume.rename(path, "x")), 22, "{path}");
        assert_eq!(errno(volume.rename("dir/sub", path)), 22, "{path}");
        assert_eq!(errno(volume.hard_link("dir/file", path)), 17, "{path}");
        assert_eq!(errno(volume.symlink("x", path)), 17, "{path}");
    }
    // An entry is not reached by a slash behind a link.
    for path in ["dir/to-sub/", "dangling/", "dir/file/"] {
        assert_eq!(errno(volume.remove_dir(path)), 20, "{path}");
        assert_eq!(errno(volume.remove_file(path)), 20, "{path}");
        assert_eq!(errno(volume.rename(path, "x")), 20, "{path}");
        assert_eq!(errno(volume.rename("dir/sub", path)), 20, "{path}");
        assert_eq!(errno(volume.create_dir(path)), 17, "{path}");
        assert_eq!(errno(volume.symlink("x", path)), 17, "{path}");
    }
    for path in ["none/.", "none/..", "none/x"] {
        assert_eq!(errno(volume.create_dir(path)), 2, "{path}");
    }
    volume.create_dir("new/").unwrap();
    volume.rename("new/", "dir/new/").unwrap();
    assert_eq!(errno(volume.create("file/")), 2);
    assert_eq!(errno(volume.remove_file("dir/file/")), 20);
    assert_eq!(errno(volume.rename("dir/file", "dir/other/")), 20);
    assert_eq!(errno(volume.rename("dir/file", "dir/new/")), 20);
    assert_eq!(errno(volume.symlink("x", "dir/other/")), 2);
    assert_eq!(errno(volume.rename("dir", "dir/sub/x")), 22);
    volume.create_dir_all("dir/new/a/b/c").unwrap();
    volume.create_dir_all("dir/new/a/b/c").expect("it is there");
    volume.create_dir_all("dir/dots/./x/../y/.").unwrap();
    assert_eq!(volume.read_dir("dir/dots").unwrap().count(), 2);
    volume.create_dir_all("/dir/to-sub/below").unwrap();
    assert_eq!(volume.metadata("dir/sub/below").unwrap().kind, FileKind::Directory);
    assert_eq!(errno(volume.create_dir_all("dir/file")), 17);
    assert_eq!(errno(volume.create_dir_all("dir/file/x")), 20);
}

#[test]
fn links_are_followed_forty_times_at_most() {
    let volume = volume();
    volume.write("end", b"found").unwrap();
    let mut target = "end".to_owned();
    for number in 1..=LINKS_MAX + 1 {
        let link = format!("{number}");
        volume.symlink(&target, &link).unwrap();
        target = link;
    }
    assert_eq!(volume.read(format!("{LINKS_MAX}")).unwrap(), b"found");
    assert_eq!(errno(volume.open(format!("{}", LINKS_MAX + 1))), 40);
}
