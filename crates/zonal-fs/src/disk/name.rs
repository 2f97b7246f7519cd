//! Names of disks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{DIRECTORY, Error};

/// Longest name, and longest name of a snapshot, in bytes.
const PART_MAX: usize = 64;

/// The beginning of the name of a file that is no disk yet, or no disk any more.
const HIDDEN: &str = ".unfinished-";

/// The name of a disk: `NAME`, or `NAME@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DiskName(String);

impl DiskName {
    /// The path of its file in the volume.
    pub(super) fn path(&self) -> String {
        format!("{DIRECTORY}/{}", self.0)
    }

    /// The path of its file while the disk is being made or removed.
    pub(super) fn hidden_path(&self) -> String {
        format!("{DIRECTORY}/{HIDDEN}{}", self.0)
    }

    /// Whether it is that of a snapshot, which only [`Disks::snapshot`](super::Disks::snapshot)
    /// gives.
    pub fn is_snapshot(&self) -> bool {
        self.0.contains('@')
    }

    /// Whether it is that of a snapshot of `disk`.
    pub(super) fn is_snapshot_of(&self, disk: &Self) -> bool {
        self.0.split_once('@').is_some_and(|(name, _)| name == disk.0)
    }

    /// The name of a snapshot of this disk.
    pub fn snapshot(&self, snapshot: &str) -> Result<Self, Error> {
        format!("{}@{snapshot}", self.0).parse()
    }
}

/// Whether this is the name of a file whose disk is being made or removed.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with(HIDDEN)
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DiskName> for String {
    fn from(name: DiskName) -> Self {
        name.0
    }
}

impl TryFrom<String> for DiskName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl FromStr for DiskName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_part = |part: &str| {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            (1..=PART_MAX).contains(&part.len())
                && part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(is_allowed)
        };
        let is_name = match text.split_once('@') {
            Some((name, snapshot)) => is_part(name) && is_part(snapshot),
            None => is_part(text),
        };
        if is_name { Ok(Self(text.to_owned())) } else { Err(Error::BadName { text: text.into() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_name_is_simple_or_refused() {
        let long = "n".repeat(65);
        for (text, is_name) in [
            ("root", true),
            ("vm-1.img", true),
            ("7_x", true),
            ("root@monday", true),
            ("", false),
            (".x", false),
            ("-x", false),
            ("a/b", false),
            ("..", false),
            ("a@", false),
            ("@a", false),
            ("a@b@c", false),
            // Names that commands and URLs would read as something else.
            ("a:b", false),
            ("a//b", false),
            ("a?b", false),
            ("a%41", false),
            ("a\n", false),
            ("a b", false),
            ("ä", false),
            (long.as_str(), false),
        ] {
            assert_eq!(text.parse::<DiskName>().is_ok(), is_name, "{text}");
        }
    }
}
