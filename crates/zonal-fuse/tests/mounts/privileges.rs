//! The set-id bits and capabilities that a file keeps after a change: the same ones as on ext4.
//!
//! Every case is made on a mount, and on ext4 in a file where this machine can mount one; else a
//! table has the behaviour of Linux.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Stdio;

use crate::mounted;
use crate::mounted::ext4::Ext4;
use crate::mounted::tools::{self, User};
use rustix::fs::{IFlags, XattrFlags, getxattr, ioctl_getflags, ioctl_setflags, setxattr};
use rustix::io::Errno;

/// Owner and group of the files.
const OWNER: u32 = 5555;
const GROUP: u32 = 4321;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

const CAPABILITY: &str = "security.capability";

/// `cap_dac_read_search+ep`, as setcap(8) writes it.
const VALUE: [u8; 20] = [1, 0, 0, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Root, a user in no group of the files, a user with their group, and a user with it as a
/// supplementary group.
const USERS: [User; 4] = [
    User { uid: 0, gid: 0, groups: "" },
    User { uid: 1234, gid: 1234, groups: "" },
    User { uid: 1235, gid: GROUP, groups: "" },
    User { uid: 1236, gid: 1236, groups: "4321" },
];

const MODES: [u32; 7] = [0o777, 0o4777, 0o2777, 0o6777, 0o4666, 0o2666, 0o6666];

/// The privileges that a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// They go with the old content or owner.
    Content,
    Owner,
    /// Setgid alone, if the caller is not in the group, and the permissions become others.
    Permissions,
    Nothing,
}

const CHANGES: [(&str, Takes); 23] = [
    ("write", Takes::Content),
    ("append", Takes::Content),
    ("write-dsync", Takes::Content),
    ("direct", Takes::Content),
    ("toggled", Takes::Content),
    ("truncate", Takes::Content),
    ("lengthen", Takes::Content),
    ("same-length", Takes::Content),
    ("ftruncate", Takes::Content),
    ("open-trunc", Takes::Content),
    ("allocate", Takes::Content),
    ("keep-size", Takes::Content),
    ("punch", Takes::Content),
    ("zero", Takes::Content),
    ("copy", Takes::Content),
    ("copy-part", Takes::Content),
    ("sendfile", Takes::Content),
    ("map", Takes::Nothing),
    ("touch", Takes::Nothing),
    ("chown-nothing", Takes::Owner),
    ("chown-same", Takes::Owner),
    ("chmod-same", Takes::Permissions),
    ("acl", Takes::Permissions),
];

/// Mode of a file, and whether it has a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Privileges {
    mode: u32,
    capability: bool,
}

/// A file that a user changes.
#[derive(Clone, Copy, Debug)]
struct Case {
    change: &'static str,
    takes: Takes,
    user: User,
    before: Privileges,
}

#[test]
fn privileges_are_cleared_as_on_ext4() {
    compare("");
}

#[test]
fn privileges_are_cleared_as_on_ext4_with_writeback() {
    compare("writeback");
}

fn compare(options: &str) {
    if tools::find("python3").is_none() {
        return;
    }
    let Some(mounted) = mounted::mount_with(options) else { return };
    let cases = cases();
    let ext4 = ext4();
    let linux = ext4.as_ref().map(|ext4| outcomes(ext4.root(), &cases));
    let ours = outcomes(&mounted.root(), &cases);
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let table = case.after();
        let linux = linux.as_ref().map_or(table, |linux| linux[number]);
        // Linux before 6.2 left setgid without group execution to everyone.
        if linux != table && linux != (Privileges { mode: table.mode | SETGID, ..table }) {
            failures.push(format!("{case:?}: {linux:?} on ext4, {table:?} in the table"));
        }
        let stricter = Privileges { mode: linux.mode & !SETGID, ..linux };
        let loses_setgid = case.may_lose_setgid() && ours[number] == stricter;
        let kept = Privileges { capability: false, ..case.before };
        let keeps = case.may_keep_setid() && ours[number] == kept;
        if ours[number] != linux && !loses_setgid && !keeps {
            failures.push(format!("{case:?}: {:?}, on Linux {linux:?}", ours[number]));
        }
    }
    println!("{} cases", cases.len());
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

/// An ext4 mount; prints why there is none.
fn ext4() -> Option<Ext4> {
    Ext4::mount()
        .inspect_err(|why| println!("compared with the table alone: no ext4 can be mounted: {why}"))
        .ok()
}

#[test]
fn privileges_of_append_only_file_go_as_on_ext4() {
    if tools::find("python3").is_none() {
        return;
    }
    for options in ["", "writeback"] {
        let Some(mounted) = mounted::mount_with(options) else { return };
        let ext4 = ext4();
        let linux = ext4.as_ref().map(|ext4| ext4.root().to_owned());
        for root in linux.into_iter().chain([mounted.root()]) {
            // ext4 does not let a user other than root take set-id bits from such a file.
            for (user, mode) in [(USERS[0], 0o4777), (USERS[1], 0o777)] {
                let path = root.join(user.uid.to_string());
                fs::write(&path, "content").unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                setxattr(&path, CAPABILITY, &VALUE, XattrFlags::CREATE).unwrap();
                let file = File::open(&path).unwrap();
                let flags = ioctl_getflags(&file).unwrap();
                ioctl_setflags(&file, flags | IFlags::APPEND).unwrap();
                change(user, &root, &format!("append {}\n", user.uid));
                let what = format!("{options}: {user:?} at {}", root.display());
                assert_eq!(fs::read_to_string(&path).unwrap(), "contentnew", "{what}");
                assert!(getxattr(&path, CAPABILITY, &mut [0; 64][..]).is_err(), "{what}");
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{what}");
                let other = setxattr(&path, "user.a", b"", XattrFlags::empty());
                assert_eq!(other, Err(Errno::PERM), "{what}: it is append-only");
                ioctl_setflags(&file, flags).unwrap();
            }
        }
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (change, takes) in CHANGES {
        for user in USERS {
            for mode in MODES {
                for capability in [false, true] {
                    let before = Privileges { mode, capability };
                    cases.push(Case { change, takes, user, before });
                }
            }
        }
    }
    cases
}

impl Case {
    /// The owner of the file: the user that changes owner or permissions.
    fn owner(&self) -> u32 {
        match self.takes {
            Takes::Content | Takes::Nothing => OWNER,
            Takes::Owner | Takes::Permissions => self.user.uid,
        }
    }

    fn is_root(&self) -> bool {
        self.user.uid == 0
    }

    /// Whether setgid means that the file runs as its group.
    fn runs_as_group(&self) -> bool {
        self.before.mode & GROUP_EXECUTE != 0
    }

    /// The privileges that Linux leaves.
    fn after(&self) -> Privileges {
        let Privileges { mut mode, mut capability } = self.before;
        let is_in = self.is_root() || self.user.gid == GROUP || !self.user.groups.is_empty();
        match self.takes {
            Takes::Nothing => {}
            Takes::Content if self.is_root() => capability = false,
            Takes::Content | Takes::Owner => {
                capability = false;
                mode &= !SETUID;
                if self.runs_as_group() || !is_in {
                    mode &= !SETGID;
                }
            }
            Takes::Permissions => {
                if self.change == "acl" {
                    mode |= 0o777;
                }
                if !is_in {
                    mode &= !SETGID;
                }
            }
        }
        Privileges { mode, capability }
    }

    /// Whether setgid may go where Linux leaves it: it does not mean anything without group
    /// execution, and the kernel does not say which other groups a caller has. A file like this
    /// keeps it on Linux before 6.2.
    fn may_lose_setgid(&self) -> bool {
        let takes = matches!(self.takes, Takes::Content | Takes::Owner);
        takes && !self.is_root() && self.user.gid != GROUP && !self.runs_as_group()
    }

    /// Whether set-id bits may stay where Linux takes them: this looks to a server like root's
    /// write, which leaves them.
    fn may_keep_setid(&self) -> bool {
        self.change == "chown-nothing" && self.is_root() && self.before.capability
    }
}

/// Makes the files, lets the users change them, and reads the remaining privileges.
fn outcomes(root: &Path, cases: &[Case]) -> Vec<Privileges> {
    fs::write(root.join("source"), [7; 8192]).unwrap();
    for (number, case) in cases.iter().enumerate() {
        let path = root.join(number.to_string());
        fs::write(&path, [1; 8192]).unwrap();
        chown(&path, Some(case.owner()), Some(GROUP)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(case.before.mode)).unwrap();
        if case.before.capability {
            setxattr(&path, CAPABILITY, &VALUE, XattrFlags::CREATE).unwrap();
        }
    }
    for user in USERS {
        let of_user = |case: &&(usize, &Case)| case.1.user.uid == user.uid;
        let all: Vec<_> = cases.iter().enumerate().collect();
        let lines = all.iter().filter(of_user).map(|(number, case)| {
            let change = case.change;
            format!("{change} {number}\n")
        });
        change(user, root, &lines.collect::<String>());
    }
    let left = |number: usize| {
        let path = root.join(number.to_string());
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        let capability = getxattr(&path, CAPABILITY, &mut [0; 64][..]).is_ok();
        Privileges { mode, capability }
    };
    (0..cases.len()).map(left).collect()
}

fn change(user: User, root: &Path, lines: &str) {
    let mut python = tools::python_as(user, root, include_str!("mounted/changes.py")).unwrap();
    let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{user:?}: {}\n{said}", output.status);
}
