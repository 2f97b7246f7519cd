//! The command line of `zonal schemas`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct Schemas {
    /// Directory for the schemas
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
}
