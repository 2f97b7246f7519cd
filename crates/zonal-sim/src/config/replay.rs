//! The section of a config that says how a trace is replayed, and the names of the formats.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Result, within};

/// How a trace is replayed. Its path is `workload.trace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// The format; without it, it is found out from the first lines.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub format: Option<Format>,
    /// Only the requests of this volume: a device, disk or file, as the trace names it; in MSR
    /// traces host and disk, as in `usr_0`. Empty: all.
    pub volume: String,
    /// How addresses fit on the drive.
    pub fit: Fit,
    /// When requests come.
    pub times: ReplayTimes,
    /// How much faster than in the trace.
    pub speed: f64,
    /// Times the trace is replayed; 0: until the drive writes of `run` are done.
    pub loops: u32,
    /// How a line that cannot be read is treated.
    pub bad_lines: BadLines,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            format: None,
            volume: String::new(),
            fit: Fit::Compact,
            times: ReplayTimes::Own,
            speed: 1.0,
            loops: 0,
            bad_lines: BadLines::Refuse,
        }
    }
}

impl Trace {
    pub(super) fn check(&self) -> Result<()> {
        within("trace.speed", self.speed, 1e-6, 1e9)
    }
}

/// When requests of a trace come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayTimes {
    /// At the times of the trace, divided by the speed.
    #[default]
    Own,
    /// One after the other, as fast as the drive takes them.
    Closed,
}

/// How a line that cannot be read is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BadLines {
    /// The replay fails, and says which line and why.
    #[default]
    Refuse,
    /// They are skipped and counted.
    Skip,
}

/// How addresses of a trace fit on a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// Regions of 1 MiB that the trace touches follow each other on the drive, in the order in
    /// which they are touched first. Volumes stay apart.
    #[default]
    Compact,
    /// The address modulo the drive's capacity. Volumes lie over each other.
    Modulo,
}

impl FromStr for Fit {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "compact" => Ok(Self::Compact),
            "modulo" => Ok(Self::Modulo),
            _ => Err(format!("{text:?} is neither compact nor modulo")),
        }
    }
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio's iolog.
    Fio,
    /// The text of blkparse, and which of a request's events counts: `Q` (queued), `D` (given to
    /// the driver) or `C` (completed).
    Blkparse(Event),
    /// MSR Cambridge.
    Msr,
    /// Alibaba block traces.
    Alibaba,
    /// Tencent CBS.
    Tencent,
    /// SYSTOR '17 (LUNs of a virtual desktop infrastructure).
    Systor,
    /// A recording of the `trace(FILE):` layer.
    Zonal,
}

/// An event in the life of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Queued by the program that issued it.
    Queued,
    /// Given to the driver.
    Issued,
    /// Completed.
    Completed,
}

impl Event {
    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Queued => "Q",
            Self::Issued => "D",
            Self::Completed => "C",
        }
    }
}

impl Format {
    /// Every format with its name.
    pub const ALL: [(&'static str, Self); 9] = [
        ("fio", Self::Fio),
        ("blkparse", Self::Blkparse(Event::Queued)),
        ("blkparse:D", Self::Blkparse(Event::Issued)),
        ("blkparse:C", Self::Blkparse(Event::Completed)),
        ("msr", Self::Msr),
        ("alibaba", Self::Alibaba),
        ("tencent", Self::Tencent),
        ("systor", Self::Systor),
        ("zonal", Self::Zonal),
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::ALL.iter().find(|(_, format)| format == self);
        f.write_str(found.expect("every format has a name").0)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("trace.format = {text:?} is not possible: one of {}", names.join(", "))
        })
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
