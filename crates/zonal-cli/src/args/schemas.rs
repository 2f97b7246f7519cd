//! The command line of `zonal schemas`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct Schemas {
    /// Directory for the schemas
    pub(crate) dir: PathBuf,
}
