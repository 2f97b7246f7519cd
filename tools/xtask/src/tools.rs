//! Programs that the suites use: found, or installed where this user may.
//!
//! An absent program is no failure: the suite that needs it skips and says so.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::{cargo, run};

/// A program, and the Debian package that has it.
pub type Packaged = (&'static str, &'static str);

/// The headers that the plugins are compiled against: files, not programs.
pub const ROCKSDB_HEADERS: Packaged = ("/usr/include/rocksdb/file_system.h", "librocksdb-dev");
/// See [`ROCKSDB_HEADERS`].
pub const LEVELDB_HEADERS: Packaged = ("/usr/include/leveldb/env.h", "libleveldb-dev");

/// The compiler of the plugins: the program that the `cc` crate starts.
pub const CPP_COMPILER: Packaged = ("c++", "g++");

/// Programs and files that the suites need.
const PACKAGED: [Packaged; 27] = [
    ("fio", "fio"),
    // Clients of NBD.
    ("qemu-img", "qemu-utils"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdsh", "python3-libnbd"),
    ("nbdkit", "nbdkit"),
    ("openssl", "openssl"),
    ("fusermount3", "fuse3"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.xfs", "xfsprogs"),
    ("getfattr", "attr"),
    ("getfacl", "acl"),
    ("python3", "python3"),
    ("db_bench", "rocksdb-tools"),
    CPP_COMPILER,
    ROCKSDB_HEADERS,
    LEVELDB_HEADERS,
    ("/usr/lib/python3/dist-packages/plyvel/__init__.py", "python3-plyvel"),
    // For bindings of RocksDB's headers.
    ("/usr/lib/llvm-14/lib/libclang.so.1", "libclang-dev"),
    ("restic", "restic"),
    ("borg", "borgbackup"),
    ("rsync", "rsync"),
    ("tmux", "tmux"),
    ("groff", "groff-base"),
    // HDFS. Maven fetches Hadoop's jars.
    ("java", "default-jre-headless"),
    ("mvn", "maven"),
];

/// Unpacked to `target/tools/debian` where they are absent, with all that they need: installed,
/// they would start servers on this machine, or change how it boots.
const UNPACKED: [Packaged; 6] = [
    ("initdb", "postgresql"),
    ("mariadbd", "mariadb-plugin-rocksdb"),
    ("ceph", "ceph-common"),
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("nbd-client", "nbd-client"),
];

/// The programs of unpacked packages that the suites start.
const USED: [&str; 17] = [
    "ceph",
    "ceph-authtool",
    "ceph-bluestore-tool",
    "ceph-mon",
    "ceph-osd",
    "initdb",
    "mariadb",
    "mariadb-install-db",
    "mariadbd",
    "nbd-client",
    "pg_amcheck",
    "pg_ctl",
    "pg_isready",
    "pgbench",
    "postgres",
    "psql",
    "rados",
];

/// Programs that the virtual machine needs.
const MACHINE: [Packaged; 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("depmod", "kmod"), ("mke2fs", "e2fsprogs")];

/// Programs from the Rust registry, with the version that the suites are written for.
const BUILT: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Installs the packages that are absent, of the suites and of the virtual machine, in one go: apt
/// runs once at a time.
pub fn install_packages(root: &Path) {
    let wanted = [&PACKAGED[..], &MACHINE].concat();
    let missing: Vec<&str> = absent(&wanted, &search_path(root)).map(|(_, name)| name).collect();
    if !missing.is_empty()
        && let Err(error) = install(&missing)
    {
        println!("could not install {}: {error:#}", missing.join(", "));
    }
}

/// Unpacks the packages that are absent, and puts a script for each program of theirs on the search
/// path.
pub fn unpack(root: &Path) {
    let missing: Vec<&str> =
        absent(&UNPACKED, &search_path(root)).map(|(_, package)| package).collect();
    if !missing.is_empty()
        && let Err(error) = unpack_packages(&root.join("target/tools"), &missing)
    {
        println!("could not unpack {}: {error:#}", missing.join(", "));
    }
}

fn unpack_packages(tools: &Path, packages: &[&str]) -> Result<()> {
    println!("unpacking {}", packages.join(", "));
    let (archives, unpacked) = (tools.join("archives"), tools.join("debian"));
    for folder in [archives.join("partial"), unpacked.clone(), tools.join("bin")] {
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    }
    run::quietly(Command::new("apt-get").args(["-qq", "update"]))?;
    let mut fetch = Command::new("apt-get");
    fetch.args(["-qq", "--yes", "--download-only", "--no-install-recommends"]);
    fetch.arg(format!("-oDir::Cache::Archives={}", archives.display()));
    run::quietly(fetch.arg("install").args(packages))?;
    for archive in files(&archives)? {
        if archive.extension().is_some_and(|ending| ending == "deb") {
            run::quietly(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&unpacked))?;
        }
    }
    let mut folders = ["usr/sbin", "usr/bin", "sbin"].map(|name| unpacked.join(name)).to_vec();
    for version in files(&unpacked.join("usr/lib/postgresql"))? {
        folders.push(version.join("bin"));
    }
    let environment = environment_of(&unpacked)?;
    for (folder, name) in folders.iter().flat_map(|folder| USED.map(|name| (folder, name))) {
        let (program, script) = (folder.join(name), tools.join("bin").join(name));
        if program.is_file() {
            let program = program.display();
            let text = format!("#!/bin/sh\n{environment} exec '{program}' \"$@\"\n");
            fs::write(&script, text)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Where unpacked programs find their libraries, modules of Python, and plugins of Ceph, as
/// assignments of the shell: installed, they would look in /usr.
fn environment_of(unpacked: &Path) -> Result<String> {
    let mut libraries = Vec::new();
    for folder in ["lib", "usr/lib"] {
        for found in files(&unpacked.join(folder))? {
            if found.to_string_lossy().ends_with("-linux-gnu") {
                libraries.extend([found.join("ceph"), found]);
            }
        }
    }
    let plugins = libraries.iter().find(|folder| folder.join("rados-classes").is_dir());
    let ceph = plugins.map_or_else(String::new, |folder| {
        let folder = folder.display();
        let classes = format!("--osd-class-dir={folder}/rados-classes");
        format!(
            "{classes} --erasure-code-dir={folder}/ceph/erasure-code --plugin-dir={folder}/ceph"
        )
    });
    let libraries = std::env::join_paths(&libraries)?;
    let (libraries, unpacked) = (libraries.display(), unpacked.display());
    Ok(format!(
        "LD_LIBRARY_PATH='{libraries}' PYTHONPATH='{unpacked}/usr/lib/python3/dist-packages' \
         CEPH_ARGS='{ceph}'"
    ))
}

/// The files in a folder; nothing if there is none.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => {
            Ok(entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", folder.display())),
    }
}

/// Builds the programs from the registry that are absent.
pub fn build(root: &Path) {
    for (program, version) in absent(&BUILT, &search_path(root)) {
        println!("building {program} {version}");
        let tools = root.join("target/tools");
        let mut command = cargo(root);
        command.args(["install", "--quiet", "--locked", "--version", version, program, "--root"]);
        command.arg(&tools).env("CARGO_TARGET_DIR", tools.join("build"));
        if let Err(error) = run::quietly(&mut command) {
            println!("could not build {program} {version}: {error:#}");
        }
    }
}

/// Counts every program that the suites lack as skipped.
pub fn count_missing(root: &Path, tally: &mut Tally) {
    for (program, _) in absent(&[&PACKAGED[..], &UNPACKED, &BUILT].concat(), &search_path(root)) {
        tally.skip(program, "not installed, and could not be: see above");
    }
}

/// The search path with which the suites run.
pub fn search_path(root: &Path) -> OsString {
    with_front(&root.join("target/tools/bin"))
}

/// Finds all of `programs`, or installs their packages; an error names a missing one.
pub fn require(programs: &[Packaged]) -> Result<()> {
    let path = with_front(Path::new("/usr/bin"));
    let packages: Vec<&str> = absent(programs, &path).map(|(_, package)| package).collect();
    if !packages.is_empty() {
        install(&packages)?;
    }
    let missing = absent(programs, &path).next();
    ensure!(missing.is_none(), "{} is not installed", missing.unwrap_or_default().0);
    Ok(())
}

/// Whether a program is on the search path.
pub(crate) fn has(program: Packaged, root: &Path) -> bool {
    absent(&[program], &search_path(root)).next().is_none()
}

/// Installs packages of Debian.
pub fn install(packages: &[&str]) -> Result<()> {
    let install = [&["install", "-q", "-y", "--no-install-recommends"], packages].concat();
    for arguments in [&["update", "-q"][..], &install] {
        let mut command = Command::new("apt-get");
        run::quietly(command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
            .with_context(|| format!("installing {}", packages.join(", ")))?;
    }
    Ok(())
}

/// The `programs` that are not on `path`.
fn absent<'a>(programs: &'a [Packaged], path: &'a OsStr) -> impl Iterator<Item = Packaged> + 'a {
    programs.iter().copied().filter(|(program, _)| find(program, path).is_none())
}

/// The search path with `folder` in front, and with the places where administration programs lie.
fn with_front(folder: &Path) -> OsString {
    let current = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf())
        .chain(std::env::split_paths(&current))
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        // Debian keeps PostgreSQL's programs in a folder for each of its versions.
        .chain(
            files(Path::new("/usr/lib/postgresql"))
                .unwrap_or_default()
                .into_iter()
                .map(|version| version.join("bin")),
        );
    // A folder with a colon in its name cannot be on any path: then go without ours.
    std::env::join_paths(folders).unwrap_or(current)
}

/// The first file of that name on `path`.
fn find(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_front_is_searched_first() {
        let path = with_front(Path::new("/nonexistent"));
        assert!(std::env::split_paths(&path).next().is_some_and(|f| f.ends_with("nonexistent")));
        assert!(find("sh", &path).is_some());
        assert!(find("a-program-of-no-one", &path).is_none());
    }
}
