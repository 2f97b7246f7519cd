//! The command line of `zonal schemas`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct Schemas {
    /// Directory to write them to
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}
