//! Addresses of stores: `zonal://DEVICE?OPTION=VALUE&...`.
//!
//! DEVICE is any device that a command of Zonal takes: a drive file, `/dev/nvme0n1`,
//! `po2:/dev/ng0n1`, `sim:`. The last question mark begins the options, so a name with a question
//! mark has to be followed by another one.

use std::path::PathBuf;

use zonal::{ByteCount, size};
use zonal_fs::furrow::MountOptions;

use crate::{Error, Result};

/// The scheme of RocksDB's addresses. It is optional.
pub const SCHEME: &str = "zonal://";

/// Memory for the read cache, unless the address has another size.
const CACHE: ByteCount = ByteCount::new(256 << 20);

/// The directory on Linux for memory that outlives a process.
const MEMORY_DIR: &str = "/dev/shm";

/// An address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The device.
    pub device: String,
    /// What to do with a device that holds nothing.
    pub blank: Blank,
    /// Memory for Furrow's metadata and write buffer.
    pub memory: ByteCount,
    /// Memory for the read cache.
    pub cache: ByteCount,
    /// The directory in memory for unsynced changes; `None` to keep no notes.
    pub unsynced: Option<PathBuf>,
    /// What to do with hints of how long files will live.
    pub hints: Hints,
    /// The file that gets the numbers of bytes written to the drive when the store is closed.
    pub counts: Option<PathBuf>,
}

/// What to do with hints of how long files will live. The hints are stored with the files in any
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// Place files by them.
    Follow,
    /// Predict lifetimes instead, to measure the value of the hints.
    Ignore,
}

/// What to do with a device that holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// Refuse it.
    Refuse,
    /// Make a Furrow on it: for drives that live as long as the process, such as `sim:`.
    Furrow,
    /// Make a zonefs on it, likewise.
    Zonefs,
}

impl Address {
    /// Takes an address apart.
    ///
    /// ```
    /// use zonal_kv::uri::{Address, Blank};
    /// let address = Address::parse("zonal://po2:/dev/nvme0n1?memory=1G&format=1")?;
    /// assert_eq!((address.device.as_str(), address.blank), ("po2:/dev/nvme0n1", Blank::Furrow));
    /// assert!(Address::parse("zonal://drive.zns?colour=blue").is_err());
    /// # Ok::<(), zonal_kv::Error>(())
    /// ```
    pub fn parse(uri: &str) -> Result<Self> {
        let bad = |why: String| Error::Uri { uri: uri.to_owned(), why };
        let rest = uri.strip_prefix(SCHEME).unwrap_or(uri);
        let (device, options) = rest.rsplit_once('?').unwrap_or((rest, ""));
        if device.is_empty() {
            return Err(bad("it names no device: zonal://DEVICE?OPTION=VALUE".to_owned()));
        }
        let mut address = Self {
            device: device.to_owned(),
            blank: Blank::Refuse,
            memory: MountOptions::MEMORY,
            cache: CACHE,
            unsynced: Some(MEMORY_DIR.into()),
            hints: Hints::Follow,
            counts: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("format", "0") => address.blank = Blank::Refuse,
                ("format", "1") => address.blank = Blank::Furrow,
                ("format", "zonefs") => address.blank = Blank::Zonefs,
                ("memory", value) => match size::parse(value) {
                    Ok(memory) if memory >= MountOptions::MEMORY_MIN => address.memory = memory,
                    Ok(_) | Err(_) => {
                        return Err(bad(format!("{option:?}: memory is a size from 64M on")));
                    }
                },
                ("cache", value) => match size::parse(value) {
                    Ok(cache) => address.cache = cache,
                    Err(_) => return Err(bad(format!("{option:?}: cache is a size"))),
                },
                ("unsynced", "off") => address.unsynced = None,
                ("unsynced", folder) if folder.starts_with('/') => {
                    address.unsynced = Some(folder.into());
                }
                ("counts", file) if file.starts_with('/') => address.counts = Some(file.into()),
                ("lifetime", "on") => address.hints = Hints::Follow,
                ("lifetime", "off") => address.hints = Hints::Ignore,
                _ => {
                    return Err(bad(format!(
                        "no option {option:?}: there are format=0|1|zonefs, memory=SIZE, \
                         cache=SIZE, unsynced=DIR|off, lifetime=on|off, counts=FILE"
                    )));
                }
            }
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_keeps_layers_and_options_of_device() {
        for device in [
            "/dev/ng0n1",
            "po2:drive.zns",
            "mem:zone=4M,zones=64",
            "fault(write,nth=3;seed=1):drive.zns",
            "odd?name.zns",
        ] {
            let address = Address::parse(&format!("zonal://{device}?format=1")).unwrap();
            assert_eq!((&*address.device, address.blank), (device, Blank::Furrow));
        }
        assert_eq!(Address::parse("drive.zns").unwrap().device, "drive.zns");
        assert_eq!(Address::parse("drive.zns").unwrap().hints, Hints::Follow);
        assert_eq!(Address::parse("drive.zns?cache=1G").unwrap().cache.get(), 1 << 30);
        assert_eq!(Address::parse("drive.zns?lifetime=off").unwrap().hints, Hints::Ignore);
    }

    #[test]
    fn address_errors_are_explained() {
        for (uri, has) in [
            ("zonal://", "names no device"),
            ("zonal://x?format=2", "format=0|1|zonefs"),
            ("zonal://x?memory=1K", "from 64M on"),
            ("zonal://x?cache=all", "cache is a size"),
            ("zonal://x?unsynced=there", "unsynced=DIR|off"),
            ("zonal://x?lifetime=long", "lifetime=on|off"),
            ("zonal://x?counts=here", "counts=FILE"),
            ("zonal://x?&speed", "no option \"speed\""),
        ] {
            let error = Address::parse(uri).unwrap_err();
            assert!(error.to_string().contains(has), "{error}");
            assert_eq!(error.errno(), 22);
        }
    }
}
