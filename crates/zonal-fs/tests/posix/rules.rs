//! Rules of POSIX and Linux about names, the same for a volume and for a mount: the tests of both
//! call these.

#![allow(clippy::unwrap_used, reason = "this is test code")]

/// The result of a call; `Err` has its error number.
pub(crate) type Outcome<T> = Result<T, i32>;

/// The attributes of an inode that these rules look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) ino: u64,
    pub(crate) nlink: u64,
    pub(crate) size: u64,
    pub(crate) perm: u32,
    /// Seconds and nanoseconds.
    pub(crate) ctime: (i64, i64),
}

/// How a rename treats an entry at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rename {
    Replace,
    NoReplace,
    Exchange,
}

/// A tree of files: a volume, or a mounted directory. Paths are relative to its root.
pub(crate) trait Place {
    fn read(&self, path: &str) -> Outcome<Vec<u8>>;
    /// Makes a file, or empties one, and writes to it.
    fn write(&self, path: &str, content: &[u8]) -> Outcome<()>;
    /// Makes a file that must be new.
    fn create_new(&self, path: &str) -> Outcome<()>;
    fn create_dir(&self, path: &str) -> Outcome<()>;
    fn remove_file(&self, path: &str) -> Outcome<()>;
    fn remove_dir(&self, path: &str) -> Outcome<()>;
    fn rename(&self, from: &str, to: &str, how: Rename) -> Outcome<()>;
    fn hard_link(&self, original: &str, link: &str) -> Outcome<()>;
    fn symlink(&self, target: &str, link: &str) -> Outcome<()>;
    fn read_link(&self, path: &str) -> Outcome<Vec<u8>>;
    /// Follows no symbolic link.
    fn stat(&self, path: &str) -> Outcome<Stat>;
    /// Names in a directory, sorted.
    fn names(&self, path: &str) -> Outcome<Vec<String>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &str) -> Outcome<Box<dyn Open + '_>>;
}

/// An open file.
pub(crate) trait Open {
    fn write_at(&self, data: &[u8], offset: u64) -> Outcome<()>;
    fn content(&self) -> Outcome<Vec<u8>>;
    fn nlink(&self) -> Outcome<u64>;
}

/// Makes a test of each rule. `$on` gives the rule a new, empty place.
macro_rules! tests_of_every_rule {
    ($on:path) => {
        tests_of_every_rule! { $on:
            files_come_and_go,
            names_have_255_bytes_of_anything,
            directories_count_their_links,
            hard_links_share_an_inode,
            symbolic_links_keep_their_target,
            renames_replace_refuse_and_exchange,
            deleted_files_live_while_open,
            listings_show_what_has_just_changed,
        }
    };
    ($on:path: $($rule:ident,)*) => {
        $(
            #[test]
            fn $rule() {
                $on(rules::$rule);
            }
        )*
    };
}

pub(crate) fn files_come_and_go(place: &dyn Place) {
    assert_eq!(place.read("file"), Err(2));
    place.write("file", b"content").unwrap();
    assert_eq!(place.create_new("file"), Err(17));
    assert_eq!(place.read("file").unwrap(), b"content");
    place.remove_file("file").unwrap();
    assert_eq!(place.read("file"), Err(2));
    place.write("file", b"again").unwrap();
    assert_eq!(place.stat("file").unwrap().size, 5);
}

pub(crate) fn names_have_255_bytes_of_anything(place: &dyn Place) {
    place.write(&"n".repeat(255), b"x").unwrap();
    assert_eq!(place.write(&"n".repeat(256), b"x"), Err(36));
    assert_eq!(place.create_dir(&"n".repeat(4000)), Err(36));
    place.write("tab\tline\nü", b"x").unwrap();
    assert_eq!(place.names(".").unwrap().len(), 2);
}

pub(crate) fn directories_count_their_links(place: &dyn Place) {
    let nlink = |path| place.stat(path).unwrap().nlink;
    place.create_dir("dir").unwrap();
    assert_eq!(nlink("dir"), 2);
    place.create_dir("dir/sub").unwrap();
    assert_eq!(nlink("dir"), 3);
    assert_eq!(place.remove_dir("dir"), Err(39));
    assert_eq!(place.remove_file("dir"), Err(21));
    place.rename("dir/sub", "moved", Rename::Replace).unwrap();
    assert_eq!(nlink("dir"), 2);
    assert_eq!(place.stat("moved/..").unwrap().ino, place.stat(".").unwrap().ino);
    place.remove_dir("dir").unwrap();
}

pub(crate) fn hard_links_share_an_inode(place: &dyn Place) {
    place.write("one", b"shared").unwrap();
    let before = place.stat("one").unwrap();
    place.hard_link("one", "two").unwrap();
    let after = place.stat("one").unwrap();
    assert_eq!((after.ino, after.nlink), (place.stat("two").unwrap().ino, 2));
    assert!(before.ctime < after.ctime);
    place.remove_file("one").unwrap();
    assert_eq!(place.stat("two").unwrap().nlink, 1);
    assert_eq!(place.read("two").unwrap(), b"shared");
    assert_eq!(place.hard_link(".", "dir"), Err(1));
}

pub(crate) fn symbolic_links_keep_their_target(place: &dyn Place) {
    place.symlink("some where/else", "link").unwrap();
    assert_eq!(place.read_link("link").unwrap(), b"some where/else");
    let stat = place.stat("link").unwrap();
    assert_eq!((stat.size, stat.perm), (15, 0o777));
    assert_eq!(place.read("link"), Err(2));
    place.symlink(&"t".repeat(4095), "longest").unwrap();
    assert_eq!(place.read_link("longest").unwrap().len(), 4095);
    place.symlink("link", "loop").unwrap();
    place.remove_file("link").unwrap();
    place.symlink("loop", "link").unwrap();
    assert_eq!(place.read("link"), Err(40));
}

pub(crate) fn renames_replace_refuse_and_exchange(place: &dyn Place) {
    place.write("a", b"A").unwrap();
    place.write("b", b"B").unwrap();
    assert_eq!(place.rename("a", "b", Rename::NoReplace), Err(17));
    place.rename("a", "b", Rename::Exchange).unwrap();
    assert_eq!((place.read("a").unwrap(), place.read("b").unwrap()), (b"B".into(), b"A".into()));
    place.rename("a", "b", Rename::Replace).unwrap();
    assert_eq!(place.read("b").unwrap(), b"B");
    assert_eq!(place.read("a"), Err(2));
    assert_eq!(place.rename("a", "b", Rename::Exchange), Err(2));
    place.create_dir("dir").unwrap();
    place.create_dir("dir/sub").unwrap();
    assert_eq!(place.rename("dir", "dir/sub/x", Rename::Replace), Err(22));
    place.rename("dir", "b", Rename::Exchange).unwrap();
    assert_eq!(place.names("b").unwrap(), ["sub"]);
}

pub(crate) fn deleted_files_live_while_open(place: &dyn Place) {
    place.create_new("file").unwrap();
    let file = place.open("file").unwrap();
    file.write_at(b"before", 0).unwrap();
    place.remove_file("file").unwrap();
    file.write_at(b" after", 6).unwrap();
    place.write("file", b"another").unwrap();
    assert_eq!(file.nlink().unwrap(), 0);
    assert_eq!(file.content().unwrap(), b"before after");
    // The same by replacing.
    let kept = place.open("file").unwrap();
    place.write("new", b"new").unwrap();
    place.rename("new", "file", Rename::Replace).unwrap();
    assert_eq!(kept.content().unwrap(), b"another");
}

pub(crate) fn listings_show_what_has_just_changed(place: &dyn Place) {
    // Listings may be kept, so each is taken twice.
    let twice = || {
        assert_eq!(place.names("."), place.names("."));
        place.names(".").unwrap().concat()
    };
    place.write("a", b"").unwrap();
    assert_eq!(twice(), "a");
    place.create_dir("b").unwrap();
    assert_eq!(twice(), "ab");
    place.rename("a", "c", Rename::Replace).unwrap();
    assert_eq!(twice(), "bc");
    place.rename("c", "b/c", Rename::Replace).unwrap();
    assert_eq!(twice(), "b");
    place.hard_link("b/c", "d").unwrap();
    assert_eq!(twice(), "bd");
    place.remove_file("d").unwrap();
    assert_eq!(twice(), "b");
    place.symlink("x", "f").unwrap();
    assert_eq!(twice(), "bf");
}
