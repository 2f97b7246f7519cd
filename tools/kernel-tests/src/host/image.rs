//! The image that the guest boots: a kernel, an archive in memory that finds a disk, and a small
//! Debian on it.
//!
//! It is made once and kept under `target/vm`, until one of these changes:
//!
//! - `vm/packages`: programs of Debian, with all their dependencies;
//! - `vm/modules`: parts of the kernel, each with its dependencies and a word that says when it is
//!   loaded: `root` before the disk is there, `load` always, `have` on demand.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cpio::Cpio;
use super::debian::{self, Apt};
use xtask::run;
use xtask::tools;

/// A kernel and its root file systems.
pub(crate) struct Image {
    /// The kernel.
    pub(crate) kernel: PathBuf,
    /// The archive, uncompressed: unpacking costs the guest more than reading.
    pub(crate) archive: PathBuf,
    /// The disk, with an ext4 file system. The guest reads only the parts that it uses.
    pub(crate) root: PathBuf,
    /// The scripts of fio's tests, if they could be had.
    pub(crate) zbd: PathBuf,
    /// Version of the kernel.
    pub(crate) version: String,
}

/// Files of the packages that the guest does not need.
const LEFT_OUT: [&str; 8] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bash-completion",
    "usr/share/perl5",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/ossl-modules",
];

/// Its links are made when a package is set up, which does not happen here.
const ALTERNATIVES: [(&str, &str); 2] = [("usr/bin/awk", "gawk"), ("usr/bin/sh", "bash")];

/// Mount points in addition to the folders of the packages.
const MOUNT_POINTS: [&str; 8] = ["proc", "sys", "dev", "run", "tmp", "root", "share", "mnt"];

/// More than the root needs: the file is sparse.
const ROOT_SIZE: &str = "2G";

/// Lists that depmod reads in addition to the modules.
const LISTS: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

impl Image {
    /// Opens the image of an earlier run, or makes it.
    pub(crate) fn prepare(root: &Path) -> Result<Self> {
        ensure!(std::env::consts::ARCH == "x86_64", "the guest is an x86-64 machine");
        let folder = root.join("target/vm");
        let recipe = Recipe::read(&root.join("tools/kernel-tests/vm"))?;
        let key = folder.join("image/key");
        if fs::read_to_string(&key).is_ok_and(|made| made == recipe.key()) {
            return Self::open(&folder.join("image"));
        }
        println!("building the image of the virtual machine, 5 to 10 minutes at the most:");
        tools::require(&[("depmod", "kmod"), ("mke2fs", "e2fsprogs")])?;
        for stale in ["image", "kernel", "root", "apt"] {
            remove(&folder.join(stale))?;
        }
        println!("- fetching the lists of packages");
        let apt = Apt::new(&folder.join("apt"))?;
        let version = apt.newest_kernel()?;
        println!("- fetching the kernel {version}, about 120 MB");
        apt.unpack_kernel(&version, &folder.join("kernel"))?;
        println!("- fetching the guest's programs, about 70 MB");
        apt.unpack_packages(&lines(&recipe.packages), &folder.join("root"))?;
        println!("- making its disk");
        let image = recipe.assemble(&folder, &version)?;
        println!("- fetching fio's tests, about 10 MB");
        let archive = folder.join("apt/fio.tar");
        let fetched = apt.fetch_source("fio", &archive);
        if let Err(error) = fetched.and_then(|()| unpack_zbd(&archive, &image.zbd)) {
            println!("  {error:#}");
        }
        remove(&folder.join("apt"))?;
        fs::write(key, recipe.key())?;
        Ok(image)
    }

    fn open(folder: &Path) -> Result<Self> {
        let version = fs::read_to_string(folder.join("version"))?;
        let at = |name: &str| folder.join(name);
        Ok(Self {
            kernel: at("vmlinuz"),
            archive: at("boot.cpio"),
            root: at("root.img"),
            zbd: at("zbd"),
            version,
        })
    }
}

/// The files under `vm/` of this crate.
struct Recipe {
    packages: String,
    modules: String,
}

impl Recipe {
    fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        Ok(Self { packages: read("packages")?, modules: read("modules")? })
    }

    fn key(&self) -> String {
        [&*self.packages, &self.modules, &debian::sources()].join("\0")
    }

    /// Packs the unpacked files in `folder` into an image.
    fn assemble(&self, folder: &Path, version: &str) -> Result<Image> {
        let (kernel, root, image) =
            (folder.join("kernel"), folder.join("root"), folder.join("image"));
        link_into_usr(&kernel, "lib")?;
        depmod(&kernel, version)?;
        fs::create_dir_all(&image)?;
        self.write_archive(&kernel, &root, &image, version)?;
        self.write_root(&kernel, &root, &image, version)?;
        fs::copy(kernel.join(modules_of(version)).join("vmlinuz"), image.join("vmlinuz"))?;
        fs::write(image.join("version"), version)?;
        remove(&kernel)?;
        remove(&root)?;
        Image::open(&image)
    }

    /// Writes the archive: the modules and programs that find the disk.
    fn write_archive(&self, kernel: &Path, root: &Path, image: &Path, version: &str) -> Result<()> {
        let folder = image.join("boot");
        take_modules(&self.modules(&["root"]), kernel, &folder, version)?;
        let file = File::create(image.join("boot.cpio")).context("writing the guest's archive")?;
        let mut cpio = Cpio::new(BufWriter::new(file));
        link_into_usr(&folder, "lib")?;
        cpio.tree(&folder)?;
        cpio.directory("usr/bin")?;
        let busybox = fs::read(root.join("usr/bin/busybox")).context("the guest has no busybox")?;
        cpio.program("usr/bin/busybox", &busybox)?;
        cpio.directory("vm")?;
        cpio.file("vm/modules", self.modules.as_bytes())?;
        cpio.directory("run")?;
        cpio.directory("dev")?;
        // The output of the first program goes to the console, before it has mounted anything.
        cpio.char_device("dev/console", 5, 1)?;
        cpio.finish()?;
        remove(&folder)
    }

    /// The disk: all the rest.
    fn write_root(&self, kernel: &Path, root: &Path, image: &Path, version: &str) -> Result<()> {
        for name in LEFT_OUT {
            remove(&root.join(name))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            link_into_usr(root, name)?;
        }
        for (link, target) in ALTERNATIVES {
            link_if_absent(&root.join(link), Path::new(target))?;
        }
        link_if_absent(&root.join("etc/mtab"), Path::new("/proc/self/mounts"))?;
        for name in MOUNT_POINTS {
            fs::create_dir_all(root.join(name))?;
        }
        take_modules(&self.modules(&["load", "have"]), kernel, root, version)?;
        fs::create_dir_all(root.join("vm"))?;
        fs::write(root.join("vm/modules"), &self.modules)?;
        let disk = image.join("root.img");
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d"]);
        run::quietly(make.arg(root).arg(disk).arg(ROOT_SIZE)).map(|_| ())
    }

    /// Names of the modules with one of these words.
    fn modules(&self, when: &[&str]) -> Vec<&str> {
        let words = |line| <str>::split(line, ' ').collect::<Vec<_>>();
        let chosen = lines(&self.modules).into_iter().map(words);
        chosen.filter(|words| when.contains(&words[0])).filter_map(|w| w.get(1).copied()).collect()
    }
}

/// Copies modules with their dependencies, and makes depmod's index.
fn take_modules(names: &[&str], kernel: &Path, root: &Path, version: &str) -> Result<()> {
    let modules = modules_of(version);
    // This machine's own configuration would add its options to the paths.
    let shown = run::quietly(
        Command::new("modprobe")
            .args(["--config=/dev/null", "--show-depends", "--all"])
            .args(["--set-version", version, "--dirname"])
            .arg(kernel)
            .args(names),
    )?;
    let kernel = kernel.canonicalize()?;
    for path in shown.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let path = Path::new(path.trim()).canonicalize()?;
        let inside = path.strip_prefix(&kernel).context("a module outside the kernel")?;
        let target = root.join(inside);
        fs::create_dir_all(target.parent().expect("a module lies in a folder"))?;
        fs::copy(&path, &target)?;
    }
    fs::create_dir_all(root.join(&modules))?;
    for list in LISTS {
        fs::copy(kernel.join(&modules).join(list), root.join(&modules).join(list))?;
    }
    link_into_usr(root, "lib")?;
    depmod(root, version)
}

fn depmod(base: &Path, version: &str) -> Result<()> {
    run::quietly(Command::new("depmod").arg("-b").arg(base).arg(version)).map(|_| ())
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn modules_of(version: &str) -> PathBuf {
    Path::new("usr/lib/modules").join(version)
}

/// Debian's packages know only `/usr/lib`; `/lib` is made when a machine is set up.
fn link_into_usr(root: &Path, name: &str) -> Result<()> {
    link_if_absent(&root.join(name), &Path::new("usr").join(name))
}

fn link_if_absent(link: &Path, target: &Path) -> Result<()> {
    if link.symlink_metadata().is_err() {
        std::os::unix::fs::symlink(target, link)
            .with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}

/// Removes a folder that may not be there.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}

/// Takes the scripts of fio's tests of zoned devices out of its source package.
fn unpack_zbd(archive: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(target);
    run::quietly(tar.args(["--strip-components=3", "--wildcards", "*/t/zbd/*"])).map(drop)
}
