//! The packages in use: a fresh Debian boots three times in a virtual machine, and
//! `tools/packaging/test/guest` installs, uses and removes them there.
//!
//! The system is made by mmdebstrap of the release that this machine runs, and kept under
//! `target/dist/machine` until `tools/packaging/test/packages` or the release changes.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use xtask::run;
use xtask::tally::Tally;
use xtask::tools;
use xtask::watch::{self, Limits};

use super::boot::Accelerator;
use super::image::remove;

/// Boots a fresh Debian, and counts the results that it reports about `packages`; fails if a part
/// for that is missing.
pub(super) fn test(root: &Path, packages: &[PathBuf], tally: &mut Tally) {
    match Image::prepare(root) {
        Ok(image) => {
            if let Err(error) = image.test(root, packages, tally) {
                tally.fail(format!("packages in a fresh Debian: {error:#}"));
            }
        }
        Err(error) => tally.skip("packages in a fresh Debian", &format!("{error:#}")),
    }
}

/// A Debian that boots and runs the program on its second disk.
struct Image {
    folder: PathBuf,
}

/// How many tests `tools/packaging/test/guest` has.
pub(super) const COUNT: u64 = 23;

const KERNEL_OPTIONS: &str = "root=/dev/vda rw console=ttyS0 mitigations=off panic=-1";

/// Runs the tests at every boot, when all that starts at boot has started.
const UNIT: &str = "[Unit]\nAfter=multi-user.target\n\n[Service]\nType=oneshot\n\
     ExecStart=/bin/sh -c 'mkdir -p /test && mount -o ro /dev/vdb /test && exec /test/guest'\n\
     StandardOutput=file:/dev/ttyS1\nStandardError=file:/dev/ttyS1\n\n\
     [Install]\nWantedBy=default.target\n";

impl Image {
    /// Opens the image of an earlier run, or makes it; an error names the missing part.
    fn prepare(root: &Path) -> Result<Self> {
        ensure!(std::env::consts::ARCH == "x86_64", "the machine is an x86-64 one");
        tools::require(&[("qemu-system-x86_64", "qemu-system-x86")])?;
        let list = fs::read_to_string(root.join("tools/packaging/test/packages"))?;
        let suite = suite()?;
        let (folder, key) = (root.join("target/dist/machine"), format!("{suite}\n{list}{UNIT}"));
        let image = Self { folder };
        if fs::read_to_string(image.at("key")).is_ok_and(|made| made == key) {
            return Ok(image);
        }
        ensure!(fs::metadata("/proc/self")?.uid() == 0, "only root can make a Debian");
        tools::require(&[("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs")])?;
        println!("making a Debian {suite}, two minutes or so");
        image.make(&suite, &list.lines().collect::<Vec<_>>())?;
        fs::write(image.at("key"), key)?;
        Ok(image)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn make(&self, suite: &str, packages: &[&str]) -> Result<()> {
        emptied(&self.folder)?;
        let root = self.at("root");
        run::quietly(
            Command::new("mmdebstrap")
                .args(["--quiet", "--variant=minbase"])
                .arg(format!("--include={}", packages.join(",")))
                .arg(suite)
                .arg(&root),
        )?;
        for name in ["vmlinuz", "initrd.img"] {
            let found = newest(&root.join("boot"), name)?;
            fs::rename(found, self.at(name))?;
        }
        fs::write(root.join("etc/fstab"), "/dev/vda / ext4 defaults 0 1\n")?;
        let units = root.join("etc/systemd/system");
        fs::write(units.join("packages-test.service"), UNIT)?;
        let wanted = units.join("default.target.wants");
        fs::create_dir_all(&wanted)?;
        std::os::unix::fs::symlink(
            "/etc/systemd/system/packages-test.service",
            wanted.join("packages-test.service"),
        )?;
        disk(&root, &self.at("root.img"), "3G")?;
        Ok(fs::remove_dir_all(root)?)
    }

    /// Boots, and counts the results that the guest reports.
    fn test(&self, root: &Path, packages: &[PathBuf], tally: &mut Tally) -> Result<()> {
        let share = self.at("share");
        emptied(&share)?;
        for file in packages.iter().chain([&root.join("tools/packaging/test/guest")]) {
            let name = file.file_name().context("a file has a name")?;
            fs::copy(file, share.join(name))
                .with_context(|| format!("copying {}", name.display()))?;
        }
        compile(root, &share.join("zones"))?;
        disk(&share, &self.at("share.img"), "1G")?;
        let said = self.boot()?;
        let ran = tally.total();
        count(&said, tally).with_context(|| {
            let console = fs::read(self.at("console")).unwrap_or_default();
            let console = String::from_utf8_lossy(&console);
            let lines: Vec<&str> = console.lines().collect();
            lines[lines.len().saturating_sub(30)..].join("\n")
        })?;
        let ran = tally.total() - ran;
        ensure!(ran == COUNT, "the guest ran {ran} tests, and `COUNT` says {COUNT}");
        Ok(())
    }

    /// Runs the machine to its end, and returns the output of its second serial port.
    fn boot(&self) -> Result<String> {
        println!("booting it");
        let mut command = watch::command("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-m", "1024"]);
        command.args(["-machine", "q35", "-device", "virtio-rng-pci"]);
        let accelerator = Accelerator::likely();
        command.args(accelerator.options());
        command.arg("-kernel").arg(self.at("vmlinuz")).arg("-initrd").arg(self.at("initrd.img"));
        command.args(["-append", &format!("{KERNEL_OPTIONS}{}", accelerator.kernel_options())]);
        for name in ["console", "results"] {
            command.arg("-serial").arg(format!("file:{}", self.at(name).display()));
        }
        for (disk, options) in [("root.img", "snapshot=on"), ("share.img", "readonly=on")] {
            let path = self.at(disk).display().to_string();
            command.arg("-drive").arg(format!("if=virtio,format=raw,file={path},{options}"));
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let length = |name| fs::metadata(self.at(name)).map_or(0, |file| file.len());
        let printed = || length("console") + length("results");
        let ended = watch::wait(&mut child, Limits::MACHINE, &printed);
        let watch::Ended { status, stuck, processor } = ended.context("waiting for QEMU")?;
        println!("it used {:.0} s of processor time", processor.as_secs_f64());
        let why = stuck.map_or("", watch::Stuck::why);
        ensure!(status.success(), "QEMU ended with {status} {why}");
        let mut said = Vec::new();
        File::open(self.at("results"))?.read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).replace('\r', ""))
    }
}

/// Counts `ok NAME` and `FAILED NAME`, and demands the guest's last line.
fn count(said: &str, tally: &mut Tally) -> Result<()> {
    println!("{said}");
    for line in said.lines() {
        if line.starts_with("ok ") {
            tally.pass(1);
        } else if let Some(name) = line.strip_prefix("FAILED ") {
            tally.fail(format!("packages: {name}"));
        }
    }
    ensure!(said.lines().next_back() == Some("end"), "the guest did not come to its end");
    Ok(())
}

/// The release of this machine: its C library is no newer than this machine's.
fn suite() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release")?;
    let named = |key| release.lines().find_map(|line: &str| line.strip_prefix(key));
    ensure!(named("ID=") == Some("debian"), "packages are tested where they are made, on Debian");
    named("VERSION_CODENAME=").map(ToOwned::to_owned).context("/etc/os-release names no release")
}

/// The file of the folder that begins with `name`.
fn newest(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(name) {
            found.push(entry.path());
        }
    }
    found.sort();
    match found.pop() {
        Some(path) => Ok(path),
        None => bail!("the Debian has no {name} in /boot"),
    }
}

/// Compiles an example of the C library against the headers and the library of the packages.
fn compile(root: &Path, program: &Path) -> Result<()> {
    let dev = root.join("target/dist/libzonal-dev/usr");
    let runtime = root.join("target/dist/libzonal0/usr/lib/x86_64-linux-gnu");
    let mut cc = Command::new("cc");
    cc.arg(dev.join("share/doc/libzonal-dev/examples/zones.c")).arg("-I").arg(dev.join("include"));
    cc.arg(runtime.join("libzonal.so.0")).arg("-o").arg(program);
    run::quietly(&mut cc).map(drop)
}

/// Empties a folder, or makes it.
fn emptied(folder: &Path) -> Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

/// Makes a disk of that size, with an ext4 file system that holds the content of `folder`.
fn disk(folder: &Path, image: &Path, size: &str) -> Result<()> {
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-d"]).arg(folder).arg(image).arg(size);
    run::quietly(&mut make).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_results_are_counted_and_need_an_end() {
        let mut tally = Tally::default();
        count("ok a\nFAILED b\n    why\nend\n", &mut tally).unwrap();
        assert_eq!(tally.counts(), "1 passed, 1 failed, 0 skipped");
        assert!(count("ok a\n", &mut tally).is_err());
    }
}
