//! Version and build options of the kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// Build options that matter to zoned drives, and to what Zonal needs.
const OPTIONS: [&str; 7] = [
    "CONFIG_BLK_DEV_ZONED",
    "CONFIG_BLK_DEV_SD",
    "CONFIG_CHR_DEV_SG",
    "CONFIG_FUSE_FS",
    "CONFIG_FUSE_IO_URING",
    "CONFIG_IO_URING",
    "CONFIG_BLK_DEV_UBLK",
];

/// Largest configuration that is read. That of a kernel with everything has 300 KiB.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The options, from the first file that has them; an option that it does not set is `n`.
pub(super) fn options(root: &Path, release: &str) -> Option<BTreeMap<&'static str, char>> {
    let boot = root.join(format!("boot/config-{release}"));
    let modules = root.join(format!("lib/modules/{release}/config"));
    let text = unpacked(&root.join("proc/config.gz"))
        .or_else(|| fs::read_to_string(boot).ok())
        .or_else(|| fs::read_to_string(modules).ok())?;
    Some(decode(&text))
}

fn unpacked(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = GzDecoder::new(File::open(path).ok()?);
    file.take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn decode(text: &str) -> BTreeMap<&'static str, char> {
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        lines.next().and_then(|value| value.chars().next()).unwrap_or('n')
    };
    OPTIONS.into_iter().map(|name| (name, value(name))).collect()
}

/// Major and minor number of a release such as `6.12.43-amd64`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_option_without_line_is_off() {
        let text = "CONFIG_BLK_DEV_ZONED=y\n# CONFIG_CHR_DEV_SG is not set\nCONFIG_FUSE_FS=m\n";
        let options = decode(text);
        let of = |name| options[name];
        assert_eq!((of("CONFIG_BLK_DEV_ZONED"), of("CONFIG_FUSE_FS")), ('y', 'm'));
        assert_eq!((of("CONFIG_CHR_DEV_SG"), of("CONFIG_IO_URING")), ('n', 'n'));
    }

    #[test]
    fn kernel_version_is_first_two_numbers() {
        assert_eq!(version("6.12.43+deb13-amd64"), Some((6, 12)));
        assert_eq!(version("7.1-rc3"), Some((7, 1)));
        assert_eq!(version("unknown"), None);
    }
}
