//! Packages of Debian, unpacked into a folder of ours by a private apt that ignores the packages
//! installed on this machine, and changes nothing on it.
//!
//! The mirror is the one that the machine's own apt is configured with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use xtask::run;

/// The release that the guest's programs come from: one that makes an XFS with zones, which takes
/// xfsprogs 6.15. No other release is mixed in, because its C library is newer than theirs.
const SUITE: &str = "forky";

/// Where the kernel comes from: newer than any release's.
const BACKPORTS: &str = "trixie-backports";

/// The flavour with all file systems; the one for clouds has no F2FS.
const KERNEL_FLAVOUR: &str = "amd64";

/// The first series whose zonefs is the one we follow.
const KERNEL_OLDEST: [u32; 1] = [7];

/// Every Debian has the keys of its archive here.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// apt with its state in one folder.
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Sets it up below `folder` and fetches the lists of packages.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let mirror = mirror()?;
        let sources: String = [("deb", SUITE), ("deb-src", SUITE), ("deb", BACKPORTS)]
            .map(|(kind, suite)| format!("{kind} [signed-by={KEYRING}] {mirror} {suite} main\n"))
            .concat();
        fs::write(folder.join("sources.list"), sources)?;
        // No package is installed: apt resolves everything.
        fs::write(folder.join("status"), "")?;
        let apt = Self { folder: folder.to_path_buf() };
        run::quietly(apt.command("apt-get").args(["-qq", "update"]))
            .context("fetching the lists of packages")?;
        Ok(apt)
    }

    /// The newest kernel of the flavour, as `7.3.4+deb13-amd64`.
    pub(crate) fn newest_kernel(&self) -> Result<String> {
        let names = run::quietly(self.command("apt-cache").args(["pkgnames", "linux-modules-"]))?;
        newest(&names).with_context(|| {
            format!("{BACKPORTS} has no kernel of series {} or later", KERNEL_OLDEST[0])
        })
    }

    /// Unpacks exactly the packages of the kernel `version` below `target`.
    pub(crate) fn unpack_kernel(&self, version: &str, target: &Path) -> Result<()> {
        let packages = ["base", "binary", "modules"].map(|part| format!("linux-{part}-{version}"));
        let archives = self.folder.join("kernel");
        fs::create_dir_all(&archives)?;
        run::quietly(
            self.command("apt-get")
                .args(["-qq", "download"])
                .args(&packages)
                .current_dir(&archives),
        )
        .context("fetching the kernel")?;
        unpack(&archives, target)
    }

    /// Unpacks `packages` and all they depend on below `target`. No script of theirs runs.
    pub(crate) fn unpack_packages(&self, packages: &[&str], target: &Path) -> Result<()> {
        run::quietly(
            self.command("apt-get")
                .args(["-qq", "--yes", "--download-only", "--no-install-recommends", "install"])
                .args(packages),
        )
        .context("fetching the guest's programs")?;
        unpack(&self.folder.join("cache/archives"), target)
    }

    /// Fetches the source archive of a package as its authors published it.
    pub(crate) fn fetch_source(&self, package: &str, target: &Path) -> Result<()> {
        let listed =
            run::quietly(self.command("apt-get").args(["-qq", "source", "--print-uris", package]))?;
        // 'ADDRESS' NAME BYTES SHA256:SUM
        let mut lines = listed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let archive = lines.find(|words| {
            // The signature of the archive has the same name with one more ending.
            let ending = words.get(1).and_then(|name| name.split_once(".orig.tar."));
            ending.is_some_and(|(_, compression)| !compression.contains('.'))
        });
        let Some([address, _, _, sum]) = archive.as_deref() else {
            bail!("{SUITE} has no source archive of {package}");
        };
        let mut fetch = self.command("/usr/lib/apt/apt-helper");
        fetch.args(["download-file", address.trim_matches('\'')]).arg(target).arg(sum);
        run::quietly(&mut fetch)
            .with_context(|| format!("fetching the source of {package}"))
            .map(drop)
    }

    fn command(&self, program: &str) -> Command {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", at("lists")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            // A release in the making is valid for a week after each change, and mirrors lag. The
            // signatures are checked all the same.
            "Acquire::Check-Valid-Until=false".to_owned(),
            // The folder may be one that apt's own user cannot write.
            "APT::Sandbox::User=".to_owned(),
        ];
        let mut command = Command::new(program);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command.args(options.map(|option| format!("-o{option}")));
        command
    }
}

/// Where this machine's apt gets Debian from.
fn mirror() -> Result<String> {
    let targets = run::quietly(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
    ]))?;
    targets
        .lines()
        .map(|uri| uri.trim_end_matches('/'))
        .find(|uri| uri.ends_with("/debian"))
        .map(ToOwned::to_owned)
        .context("this machine's apt has no Debian mirror")
}

/// The sources of packages: a choice of packages depends on them as well as on the names.
pub(crate) fn sources() -> String {
    format!("{SUITE} {BACKPORTS} {KERNEL_FLAVOUR} and sources")
}

/// The newest version among package names `linux-modules-VERSION`.
fn newest(names: &str) -> Option<String> {
    names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-modules-"))
        .filter_map(|version| Some((numbers(version)?, version)))
        .max()
        .filter(|(numbers, _)| numbers.as_slice() >= KERNEL_OLDEST.as_slice())
        .map(|(_, version)| version.to_owned())
}

/// `[7, 3, 4]` of `7.3.4+deb13-amd64`, nothing of other flavours.
fn numbers(version: &str) -> Option<Vec<u32>> {
    let (numbers, rest) = version.split_once('+')?;
    let (_, flavour) = rest.split_once('-')?;
    if flavour != KERNEL_FLAVOUR {
        return None;
    }
    numbers.split('.').map(|number| number.parse().ok()).collect()
}

fn unpack(archives: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    let mut count = 0;
    for entry in fs::read_dir(archives)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            run::quietly(Command::new("dpkg-deb").arg("-x").arg(&path).arg(target))?;
            count += 1;
        }
    }
    ensure!(count > 0, "no package in {}", archives.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_newest_compares_version_numbers() {
        let names = "linux-modules-7.9.2+deb13-amd64\n\
                     linux-modules-7.10.1+deb13-amd64\n\
                     linux-modules-7.11.0+deb13-rt-amd64\n\
                     linux-modules-7.12.0+deb13-cloud-amd64\n\
                     linux-modules-amd64\n";
        assert_eq!(newest(names).as_deref(), Some("7.10.1+deb13-amd64"));
        assert_eq!(newest("linux-modules-6.12.1+deb13-amd64\n"), None);
    }
}
