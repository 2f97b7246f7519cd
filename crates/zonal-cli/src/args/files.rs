//! Arguments of the commands on files of a drive that is not mounted.

use std::path::PathBuf;

use clap::Args;

/// The help of what stands before the path.
const PLACE: &str = "DEVICE:/PATH, such as drive.zns:/notes; the last `:/` divides it";

#[derive(Args)]
pub(crate) struct List {
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) place: String,
    /// One line with mode, links, owner, size and time for each
    #[arg(short, long)]
    pub(crate) long: bool,
    /// What is in directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Args)]
pub(crate) struct Copy {
    #[arg(
        required = true,
        value_name = "SOURCE",
        help = "Files on a drive, as DEVICE:/PATH, or on this machine"
    )]
    pub(crate) sources: Vec<String>,
    /// Where to: a directory, or the name of the copy
    pub(crate) target: String,
    /// Copy directories with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

#[derive(Args)]
pub(crate) struct Remove {
    #[arg(required = true, value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) places: Vec<String>,
    /// Remove directories with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
}

#[derive(Args)]
pub(crate) struct Rename {
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) source: String,
    #[arg(
        help = "The new place on the same drive, DEVICE:/PATH or /PATH: a directory or a new name"
    )]
    pub(crate) target: String,
}

#[derive(Args)]
pub(crate) struct Link {
    #[arg(value_name = "TARGET", help = "What to link to: DEVICE:/PATH; with -s any text")]
    pub(crate) target: String,
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) place: String,
    /// Make a symbolic link
    #[arg(short, long)]
    pub(crate) symbolic: bool,
}

#[derive(Args)]
pub(crate) struct MakeDir {
    #[arg(required = true, value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) places: Vec<String>,
    /// Make those above as well, and let existing ones be
    #[arg(short, long)]
    pub(crate) parents: bool,
}

#[derive(Args)]
pub(crate) struct Space {
    /// Devices
    #[arg(required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<PathBuf>,
}
