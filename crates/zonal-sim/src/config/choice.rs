//! The choices a translation layer leaves open: victim, frontier, isolation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How GC chooses its victim among full superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The one with the fewest valid units.
    #[default]
    Greedy,
    /// The one with the highest (1 − u) × age / (1 + u).
    CostBenefit,
    /// The one written longest ago.
    Fifo,
    /// Any.
    Random,
    /// The one with the fewest valid units of this many, chosen at random.
    Choices(u32),
    /// The one with the fewest valid units of this many, written longest ago.
    Windowed(u32),
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greedy => f.write_str("greedy"),
            Self::CostBenefit => f.write_str("cost-benefit"),
            Self::Fifo => f.write_str("fifo"),
            Self::Random => f.write_str("random"),
            Self::Choices(d) => write!(f, "d-choices:{d}"),
            Self::Windowed(window) => write!(f, "windowed:{window}"),
        }
    }
}

impl FromStr for Victim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=65_536).contains(number));
        match text.split_once(':') {
            None => match text {
                "greedy" => Some(Self::Greedy),
                "cost-benefit" => Some(Self::CostBenefit),
                "fifo" => Some(Self::Fifo),
                "random" => Some(Self::Random),
                _ => None,
            },
            Some(("d-choices", d)) => number(d).map(Self::Choices),
            Some(("windowed", window)) => number(window).map(Self::Windowed),
            Some(_) => None,
        }
        .ok_or_else(|| {
            "greedy, cost-benefit, fifo, random, d-choices:N or windowed:N, N from 1 to 65536"
                .to_owned()
        })
    }
}

impl Serialize for Victim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Victim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Where GC puts the data that it moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Frontier {
    /// Into a superblock of its own.
    #[default]
    Separate,
    /// Into the superblock the host writes.
    Mixed,
}

/// Whether an FDP drive keeps handles apart when GC moves their data (NVMe base specification,
/// "Flexible Data Placement": initially and persistently isolated reclaim unit handles).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Moved data of all handles may share a reclaim unit.
    #[default]
    Initially,
    /// Moved data stays with its handle.
    Persistently,
}
