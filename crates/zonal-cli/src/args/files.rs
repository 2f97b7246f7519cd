//! Arguments of the commands on files of a drive that is not mounted.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The help of an argument that names a file of a drive.
const PLACE: &str = "DEVICE:/PATH, such as drive.zns:/notes; the last `:/` divides it";

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct List {
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) place: OsString,
    /// Also list names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Long format: mode, links, owner, size and time
    #[arg(short, long)]
    pub(crate) long: bool,
    /// With -l: sizes with units
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// List directories recursively
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Args, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Copy {
    #[arg(
        required = true,
        value_name = "SOURCE",
        help = "Files on a drive, as DEVICE:/PATH, or on this machine; - is standard input"
    )]
    pub(crate) sources: Vec<OsString>,
    /// A directory, the name of the copy, or - for standard output
    pub(crate) target: OsString,
    /// Copy directories recursively
    #[arg(short, visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// For backups: the same as -r -P -p, and keep hard links
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep owner, mode, times, ACLs and extended attributes
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Copy symbolic links as links
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
    /// Follow symbolic links and copy their targets
    #[arg(short = 'L', long, conflicts_with = "no_dereference")]
    pub(crate) dereference: bool,
    /// Share blocks with the original instead of copying them; also for two files in one mount of
    /// Furrow [default: auto; without WHEN: always]
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    pub(crate) reflink: Option<Reflink>,
}

/// When a copy shares blocks with its original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reflink {
    /// Share, or fail
    Always,
    /// Share where possible, else copy
    Auto,
    /// Copy always
    Never,
}

#[derive(Args)]
pub(crate) struct Cat {
    #[arg(required = true, value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) places: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Stat {
    #[arg(required = true, value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) places: Vec<OsString>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
}

#[derive(Args)]
pub(crate) struct Remove {
    #[arg(required = true, value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) places: Vec<OsString>,
    /// Remove directories recursively
    #[arg(short, visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct Rename {
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) source: OsString,
    #[arg(
        help = "The new place on the same drive, DEVICE:/PATH or /PATH: a directory or a new name"
    )]
    pub(crate) target: OsString,
}

#[derive(Args)]
pub(crate) struct Link {
    #[arg(value_name = "TARGET", help = "Target of the link: DEVICE:/PATH; with -s any text")]
    pub(crate) target: OsString,
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) place: OsString,
    /// Make a symbolic link
    #[arg(short, long)]
    pub(crate) symbolic: bool,
}

#[derive(Args)]
pub(crate) struct MakeDir {
    #[arg(required = true, value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) places: Vec<OsString>,
    /// Also make missing parents; existing directories are no error
    #[arg(short, long)]
    pub(crate) parents: bool,
}

#[derive(Args)]
pub(crate) struct Space {
    /// Devices
    #[arg(required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<PathBuf>,
}
