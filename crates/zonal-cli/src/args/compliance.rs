//! The arguments of `zonal compliance`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use zonal::ZoneId;
use zonal_compliance::Scope;

#[derive(Args)]
pub(crate) struct Compliance {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Also try rules that write, in these zones, FIRST-LAST; without --force they have to be empty
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) zones: Option<Zones>,
    /// Destroy the data in the zones of --zones, a file system too
    #[arg(short, long, requires = "zones")]
    pub(crate) force: bool,
    /// Whose rules the device is held to where NVMe and SCSI differ [default: zbc for /dev/sdX and
    /// drive files made so, otherwise zns]
    #[arg(long, value_enum)]
    pub(crate) rules: Option<RuleSet>,
    /// Print every rule, not only the broken ones
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Also write the report to this file as a page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// First run of a power cut: write to the zones of --zones, and record the writes in this file,
    /// which must not lie on the device
    #[arg(long, value_name = "FILE", requires = "zones", conflicts_with_all = ["all", "html"])]
    pub(crate) before_cut: Option<PathBuf>,
    /// Second run of a power cut: compare the device with the writes that this file records
    #[arg(long, value_name = "FILE", conflicts_with_all = ["zones", "before_cut"])]
    pub(crate) after_cut: Option<PathBuf>,
}

/// Which rules are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Broken,
}

impl Compliance {
    pub(crate) fn shown(&self) -> Shown {
        if self.all { Shown::All } else { Shown::Broken }
    }
}

/// A set of rules.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuleSet {
    /// NVMe Zoned Namespaces
    Zns,
    /// SCSI zoned block commands
    Zbc,
}

/// Zones from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zones {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Zones {
    pub(crate) fn scope(self) -> Scope {
        Scope::Zones { first: ZoneId::new(self.first), last: ZoneId::new(self.last) }
    }
}

impl FromStr for Zones {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not FIRST-LAST, such as 4-15");
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.parse().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("zone {first} is behind zone {last}"));
        }
        Ok(Self { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_range_parses_two_numbers_in_order() {
        assert_eq!("4-15".parse(), Ok(Zones { first: 4, last: 15 }));
        for wrong in ["", "4", "4-", "-4", "a-b", "9-4"] {
            assert!(wrong.parse::<Zones>().is_err(), "{wrong}");
        }
    }
}
