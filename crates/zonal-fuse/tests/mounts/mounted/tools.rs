//! Programs from outside that the suites run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use zonal::repeat;

/// The path of a program, or `None` after saying that it is missing. Looks on `PATH` and where
/// `cargo xtask test` installs.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain([tools, PathBuf::from("/usr/sbin")])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("SKIP: {name} is not installed");
    }
    found
}

/// Runs a program and returns its output, both streams; panics with the output if it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// A program in Python that begins with asynchronous I/O. `None` where it cannot be run.
pub(crate) fn aio(script: &str) -> Option<Command> {
    if !cfg!(target_arch = "x86_64") {
        println!("SKIP: the system call numbers are of another machine");
        return None;
    }
    let mut python = Command::new(find("python3")?);
    python.arg("-c");
    python.arg(format!("{}{script}", include_str!("aio.py")));
    Some(python)
}

/// Runs a script with `sh -e` in a directory.
pub(crate) fn shell(dir: &Path, script: &str, args: &[&OsStr]) -> String {
    run(Command::new("sh").args(["-e", "-c", script, "sh"]).args(args).current_dir(dir))
}

/// The seed of a random test: `SEED` from the environment, or a new one. Printed either way.
pub(crate) fn seed() -> u64 {
    let parent = rustix::process::getppid().map_or(0, |p| p.as_raw_pid().unsigned_abs());
    repeat::seed(u64::from(std::process::id()) << 16 ^ u64::from(parent))
}

/// A search path on which mount(8) talks to the kernel without helpers: they know no remount.
pub(crate) fn path_with_plain_mount(bin: &Path) -> OsString {
    fs::create_dir(bin).unwrap();
    let wrapper = bin.join("mount");
    // Newer versions of mount change options by the new mount API otherwise, which FUSE refuses.
    let script = "#!/bin/sh\nLIBMOUNT_FORCE_MOUNT2=always exec /bin/mount -i \"$@\"\n";
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let mut path = bin.as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").as_deref().unwrap_or(OsStr::new("/usr/bin:/bin")));
    path
}

/// The user that runs a script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups, with commas between.
    pub(crate) groups: &'static str,
}

/// A user like any other.
pub(crate) const NOBODY: User = User { uid: 65534, gid: 65534, groups: "" };

/// A Python script that runs in a directory as a user, after the content of `user.py`. `None` where
/// it cannot be run.
pub(crate) fn python_as(user: User, dir: &Path, script: &str) -> Option<Command> {
    let mut python = Command::new(find("python3")?);
    python.arg("-c").arg(format!("{}{script}", include_str!("user.py"))).arg(dir);
    python.args([user.uid.to_string(), user.gid.to_string(), user.groups.to_owned()]);
    Some(python)
}
