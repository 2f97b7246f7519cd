//! What the guest boots: a kernel, and an archive with a small Debian in memory.
//!
//! `vm/packages`, `vm/modules` and `vm/init` say what is in it. It is made once and kept under
//! `target/vm`, until one of these three changes.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::cpio::Cpio;
use super::debian::Apt;
use crate::run;
use crate::tools::{self, Program};

/// A kernel and its first root file system.
pub(crate) struct Image {
    /// The kernel.
    pub(crate) kernel: PathBuf,
    /// The archive, uncompressed: unpacking costs the guest more than reading.
    pub(crate) root: PathBuf,
    /// Version of the kernel.
    pub(crate) version: String,
}

/// What the guest does not need of its packages.
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

/// Lists beside the modules that depmod reads.
const LISTS: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

impl Image {
    /// Takes the one of an earlier run, or makes it.
    pub(crate) fn prepare(root: &Path) -> Result<Self> {
        ensure!(std::env::consts::ARCH == "x86_64", "the guest is an x86-64 machine");
        let folder = root.join("target/vm");
        let recipe = Recipe::read(&root.join("vm"))?;
        let key = folder.join("image/key");
        if fs::read_to_string(&key).is_ok_and(|made| made == recipe.key()) {
            return Self::open(&folder.join("image"));
        }
        println!("building the image of the virtual machine");
        tools::require(&[Program { name: "depmod", package: "kmod" }])?;
        for stale in ["image", "kernel", "root", "apt"] {
            remove(&folder.join(stale))?;
        }
        let apt = Apt::new(&folder.join("apt"))?;
        let version = apt.newest_kernel()?;
        apt.unpack_kernel(&version, &folder.join("kernel"))?;
        apt.unpack_packages(&lines(&recipe.packages), &folder.join("root"))?;
        let image = recipe.assemble(&folder, &version)?;
        remove(&folder.join("apt"))?;
        fs::write(key, recipe.key())?;
        Ok(image)
    }

    fn open(folder: &Path) -> Result<Self> {
        let version = fs::read_to_string(folder.join("version"))?;
        Ok(Self { kernel: folder.join("vmlinuz"), root: folder.join("root.cpio"), version })
    }
}

/// The files under `vm/`.
struct Recipe {
    packages: String,
    modules: String,
    init: String,
}

impl Recipe {
    fn read(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        Ok(Self { packages: read("packages")?, modules: read("modules")?, init: read("init")? })
    }

    fn key(&self) -> String {
        [&*self.packages, &self.modules, &self.init].join("\0")
    }

    /// Packs what lies unpacked in `folder` into an image.
    fn assemble(&self, folder: &Path, version: &str) -> Result<Image> {
        let (kernel, root, image) =
            (folder.join("kernel"), folder.join("root"), folder.join("image"));
        for name in LEFT_OUT {
            remove(&root.join(name))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            link_into_usr(&root, name)?;
        }
        link_into_usr(&kernel, "lib")?;
        self.take_modules(&kernel, &root, version)?;
        fs::create_dir_all(&image)?;
        let file = File::create(image.join("root.cpio")).context("writing the guest's root")?;
        let mut cpio = Cpio::new(BufWriter::new(file));
        cpio.tree(&root)?;
        cpio.program("init", self.init.as_bytes())?;
        cpio.directory("vm")?;
        cpio.file("vm/modules", self.modules.as_bytes())?;
        cpio.directory("dev")?;
        // What the first program writes goes to the console, before it has mounted anything.
        cpio.char_device("dev/console", 5, 1)?;
        cpio.finish()?;
        fs::copy(kernel.join(modules_of(version)).join("vmlinuz"), image.join("vmlinuz"))?;
        fs::write(image.join("version"), version)?;
        remove(&kernel)?;
        remove(&root)?;
        Image::open(&image)
    }

    /// Copies the modules of the list, with what they depend on, and makes depmod's index.
    fn take_modules(&self, kernel: &Path, root: &Path, version: &str) -> Result<()> {
        let modules = modules_of(version);
        let depmod = |base: &Path| {
            run::quietly(Command::new("depmod").arg("-b").arg(base).arg(version)).map(|_| ())
        };
        depmod(kernel)?;
        let shown = run::quietly(
            Command::new("modprobe")
                .args(["--show-depends", "--all", "--set-version", version, "--dirname"])
                .arg(kernel)
                .args(lines(&self.modules).iter().filter_map(|line| line.split(' ').next())),
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
        depmod(root)
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn modules_of(version: &str) -> PathBuf {
    Path::new("usr/lib/modules").join(version)
}

/// Debian's packages know only `/usr/lib`; `/lib` is made when a machine is set up.
fn link_into_usr(root: &Path, name: &str) -> Result<()> {
    let link = root.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(Path::new("usr").join(name), &link)?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}
