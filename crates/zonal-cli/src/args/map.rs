//! The arguments of `zonal map`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct Map {
    #[arg(
        value_name = "FILE|DIR|DEVICE",
        help = "File of a mount, mount point, device that is not mounted, or DEVICE:/PATH on it"
    )]
    pub(crate) what: OsString,
    /// Only this zone, with every extent in it
    #[arg(long, value_name = "N")]
    pub(crate) zone: Option<u32>,
    /// Write a page with a picture of all zones to this file instead
    #[arg(long, value_name = "FILE", conflicts_with = "zone")]
    pub(crate) html: Option<PathBuf>,
}
