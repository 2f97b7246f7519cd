//! The arguments of `zonal doctor`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct Doctor {
    /// Device or mount point to look at [default: the machine and every disk of it]
    #[arg(value_name = "DEVICE|DIR")]
    pub(crate) what: Option<String>,
    /// Also write facts for a maintainer to this new file, as JSON, without names or contents of
    /// files
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
}
