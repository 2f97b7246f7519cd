//! Another user attacks root's mount, by every way that is open to users: namespaces, an exec at
//! the right moment, names taken beforehand, ioctls.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::mounted;
use crate::mounted::Mounted;
use crate::mounted::tools::{self, NOBODY, User};
use rustix::fs::{XattrFlags, setxattr};

const ROOT: User = User { uid: 0, gid: 0, groups: "" };

/// The output of a script that runs in the root of a mount; `None` if this machine cannot run it.
fn says(user: User, dir: &Path, script: &str) -> Option<String> {
    let said = tools::run(&mut tools::python_as(user, dir, script)?);
    if said.contains("SKIP") {
        println!("{said}");
        return None;
    }
    Some(said.trim().to_owned())
}

/// A mount with a file of root's, one of the user's, and a directory for everyone.
fn prepared() -> Option<Mounted> {
    tools::find("python3")?;
    let mounted = mounted::mount()?;
    fs::write(mounted.path("of-root"), [1; 8192]).unwrap();
    fs::write(mounted.path("of-user"), [1; 8192]).unwrap();
    chown(mounted.path("of-user"), Some(NOBODY.uid), Some(NOBODY.gid)).unwrap();
    fs::create_dir(mounted.path("all")).unwrap();
    fs::set_permissions(mounted.path("all"), Permissions::from_mode(0o1777)).unwrap();
    Some(mounted)
}

/// Checks that the mount still works.
fn still_serves(mounted: &Mounted) {
    fs::write(mounted.path("after"), "written").unwrap();
    assert_eq!(fs::read(mounted.path("after")).unwrap(), b"written");
}

const SHUTDOWN: &str = "print(attempt(ioctl, '.', 0x8004587d, bytes(4)))\n";

#[test]
fn shutdown_is_refused_to_users_even_in_namespaces() {
    let Some(mounted) = prepared() else { return };
    assert_eq!(says(NOBODY, &mounted.root(), SHUTDOWN).unwrap(), "EPERM");
    let as_root = format!("enter_namespace()\nassert os.getuid() == 0\n{SHUTDOWN}");
    if let Some(said) = says(NOBODY, &mounted.root(), &as_root) {
        assert_eq!(said, "EPERM");
    }
    still_serves(&mounted);
    assert_eq!(says(ROOT, &mounted.root(), SHUTDOWN).unwrap(), "done");
    assert!(fs::write(mounted.path("after"), "").is_err());
}

#[test]
fn exec_of_root_program_stops_no_mount() {
    let Some(mounted) = prepared() else { return };
    let su = [Path::new("/bin/su"), Path::new("/usr/bin/su")].into_iter().find(|su| su.exists());
    let Some(su) = su else { return println!("SKIP: there is no su") };
    assert!(su.metadata().unwrap().mode() & 0o4000 != 0, "setuid");
    // The first thread of a process asks. Then another thread calls exec and takes over its number,
    // and the process gets the privileges of the program.
    let script = format!(
        "import threading
for attempt in range(40):
    child = os.fork()
    if child == 0:
        os.dup2(os.open('/dev/null', os.O_RDWR), 1)
        fd = os.open('.', os.O_RDONLY)
        program = lambda: os.execv('{}', ['su', '--version'])
        threading.Timer(attempt * 0.0002, program).start()
        while True:
            try:
                fcntl.ioctl(fd, 0x8004587d, bytes(4))
            except PermissionError:
                pass
    os.waitpid(child, 0)
",
        su.display()
    );
    assert_eq!(says(NOBODY, &mounted.root(), &script).unwrap(), "");
    still_serves(&mounted);
}

#[test]
fn lifetimes_and_flags_are_set_by_owner_and_root() {
    let Some(mounted) = prepared() else { return };
    let script = "
SET_LIFETIME, SET_FLAGS = 0x40085a02, 0x40086602
NO_DUMP, IMMUTABLE = 0x40, 0x10
for path in ['of-root', 'of-user']:
    print(path, attempt(ioctl, path, SET_LIFETIME, struct.pack('Q', 2)),
          attempt(ioctl, path, SET_FLAGS, struct.pack('Q', NO_DUMP)),
          attempt(ioctl, path, SET_FLAGS, struct.pack('Q', IMMUTABLE | NO_DUMP)))
";
    let users = "of-root EPERM EPERM EPERM\nof-user done done EPERM";
    assert_eq!(says(NOBODY, &mounted.root(), script).unwrap(), users);
    let as_root = format!("enter_namespace()\n{script}");
    if let Some(said) = says(NOBODY, &mounted.root(), &as_root) {
        assert_eq!(said, users, "as root of a namespace");
    }
    let roots = "of-root done done done\nof-user done done done";
    assert_eq!(says(ROOT, &mounted.root(), script).unwrap(), roots);
}

#[test]
fn namespace_keeps_no_set_id_bit() {
    let Some(mounted) = prepared() else { return };
    let script = "
enter_namespace()
def by(flags, call):
    fd = os.open('tool', os.O_WRONLY | flags)
    call(fd)
    os.close(fd)
page = mmap.mmap(-1, 4096)
changes = {
    'write': lambda: by(0, lambda fd: os.pwrite(fd, b'new', 0)),
    'direct': lambda: by(os.O_DIRECT, lambda fd: os.pwritev(fd, [page], 0)),
    'truncate': lambda: os.truncate('tool', 10),
    'allocate': lambda: by(0, lambda fd: os.posix_fallocate(fd, 0, 100000)),
}
changes[CHANGE]()
";
    for change in ["write", "direct", "truncate", "allocate"] {
        let tool = mounted.path("tool");
        fs::write(&tool, [1; 8192]).unwrap();
        chown(&tool, Some(0), Some(1234)).unwrap();
        fs::set_permissions(&tool, Permissions::from_mode(0o6777)).unwrap();
        let script = format!("CHANGE = '{change}'\n{script}");
        let Some(_) = says(NOBODY, &mounted.root(), &script) else { return };
        assert_eq!(fs::metadata(&tool).unwrap().mode() & 0o7777, 0o777, "{change}");
    }
}

#[test]
fn acl_clears_setgid_for_caller_outside_group() {
    let Some(mounted) = prepared() else { return };
    let file = mounted.path("of-user");
    let acl = "
entries = b''.join(struct.pack('<HHI', tag, 7, 0xffffffff) for tag in (1, 4, 0x20))
os.setxattr('of-user', 'system.posix_acl_access', struct.pack('<I', 2) + entries)
";
    let in_namespace = format!("enter_namespace()\n{acl}");
    let member = User { groups: "7,1234", ..NOBODY };
    for (who, user, script, left) in [
        ("a stranger", NOBODY, acl, 0o777),
        ("root of a namespace", NOBODY, &in_namespace, 0o777),
        ("one with this group among others", member, acl, 0o2777),
        ("root", ROOT, acl, 0o2777),
    ] {
        chown(&file, Some(NOBODY.uid), Some(1234)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o2755)).unwrap();
        if says(user, &mounted.root(), script).is_some() {
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, left, "{who}");
        }
    }
}

#[test]
fn trusted_attributes_are_visible_to_root_only() {
    let Some(mounted) = prepared() else { return };
    for name in ["trusted.overlay.opaque", "user.a"] {
        setxattr(mounted.path("of-user"), name, b"y", XattrFlags::empty()).unwrap();
    }
    let script = "print(sorted(os.listxattr('of-user')))";
    let both = "['trusted.overlay.opaque', 'user.a']";
    assert_eq!(says(ROOT, &mounted.root(), script).unwrap(), both);
    assert_eq!(says(NOBODY, &mounted.root(), script).unwrap(), "['user.a']");
    let as_root = format!("enter_namespace()\n{script}");
    if let Some(said) = says(NOBODY, &mounted.root(), &as_root) {
        assert_eq!(said, "['user.a']", "as root of a namespace");
    }
    if tools::find("cp").is_some() {
        let copy = "os.umask(0)
os.execvp('cp', ['cp', '--preserve=xattr', 'of-user', 'all/copy'])";
        says(NOBODY, &mounted.root(), copy).unwrap();
    }
}

#[test]
fn capability_on_file_is_roots_until_changed() {
    let (Some(setcap), Some(mounted)) = (tools::find("setcap"), prepared()) else { return };
    let tool = mounted.path("tool");
    let secret = mounted.path("secret");
    fs::write(&secret, "for root alone").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let cat = fs::read("/bin/cat").unwrap();
    // As a writer of whole blocks leaves it.
    let mut blocks = cat.clone();
    blocks.resize(cat.len().next_multiple_of(4096), 0);
    fs::write(mounted.path("other-program"), &blocks).unwrap();
    fs::write(&tool, "#!/bin/true").unwrap();
    fs::set_permissions(&tool, Permissions::from_mode(0o777)).unwrap();
    let capability = OsStr::new("cap_dac_read_search+ep");
    tools::run(Command::new(setcap).arg(capability).arg(&tool));
    let script = "
data = open('other-program', 'rb').read()
page = mmap.mmap(-1, len(data))
page.write(data)
fd = os.open('tool', os.O_WRONLY | os.O_DIRECT)
assert os.pwritev(fd, [page], 0) == len(data)
os.close(fd)
os.dup2(1, 2)
os.execv('tool', ['tool', 'secret'])
";
    let mut user = tools::python_as(NOBODY, &mounted.root(), script).unwrap();
    let said = user.output().unwrap();
    assert!(!said.status.success(), "{said:?}");
    assert!(!String::from_utf8_lossy(&said.stdout).contains("for root"), "{said:?}");
}

#[test]
fn namespace_changes_nothing_of_root() {
    let Some(mounted) = prepared() else { return };
    fs::set_permissions(mounted.root(), Permissions::from_mode(0o1777)).unwrap();
    let script = "
enter_namespace()
print(attempt(os.setxattr, '.', 'user.zonal.daemon', b'1'), attempt(os.unlink, 'of-root'),
      attempt(os.setxattr, 'of-root', 'security.capability', bytes(20)),
      attempt(os.setxattr, 'of-user', 'trusted.a', b'1'))
";
    if let Some(said) = says(NOBODY, &mounted.root(), script) {
        assert!(!said.contains("done"), "{said}");
    }
    still_serves(&mounted);
}

/// With FUSE's mark for such mounts, the kernel would name no user in most requests of any mount.
#[test]
fn idmapped_mount_is_refused() {
    let Some(mounted) = prepared() else { return };
    let script = "
import signal
OPEN_TREE, MOUNT_SETATTR = 428, 442
AT_FDCWD, AT_EMPTY_PATH, CLONE, IDMAP = -100, 0x1000, 1, 0x00100000
ready, done = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    libc.unshare(0x10000000)
    os.write(ready[1], b'x')
    os.read(done[0], 1)
    os._exit(0)
os.read(ready[0], 1)
try:
    for kind in ['uid', 'gid']:
        open(f'/proc/{child}/{kind}_map', 'w').write('0 1000 1')
    users = os.open(f'/proc/{child}/ns/user', os.O_RDONLY)
    how = ctypes.create_string_buffer(struct.pack('QQQQ', IDMAP, 0, 0, users))
    def map_users(path):
        tree = checked(libc.syscall(OPEN_TREE, AT_FDCWD, path.encode(), CLONE))
        checked(libc.syscall(MOUNT_SETATTR, tree, b'', AT_EMPTY_PATH, how, len(how) - 1))
        os.close(tree)
    for path in ['/', '.']:
        print(attempt(map_users, path))
finally:
    os.write(done[1], b'x')
    os.waitpid(child, 0)
";
    if !cfg!(target_arch = "x86_64") {
        return println!("SKIP: the system call numbers are of another machine");
    }
    let said = says(ROOT, &mounted.root(), script).unwrap();
    match said.split_once('\n') {
        Some(("done", ours)) => assert_eq!(ours, "EINVAL"),
        _ => println!("SKIP: not even the root of this machine can be mounted so: {said}"),
    }
    assert_eq!(says(NOBODY, &mounted.root(), SHUTDOWN).unwrap(), "EPERM");
}
