//! Arguments of the commands on files of a drive that is not mounted.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The help of what stands before the path.
const PLACE: &str = "DEVICE:/PATH, such as drive.zns:/notes; the last `:/` divides it";

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct List {
    #[arg(value_name = "DEVICE:/PATH", help = PLACE)]
    pub(crate) place: OsString,
    /// Names that begin with a dot too
    #[arg(short, long)]
    pub(crate) all: bool,
    /// One line with mode, links, owner, size and time for each
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Sizes with units, with -l
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// What is in directories too
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
    /// Where to: a directory, the name of the copy, or - for standard output
    pub(crate) target: OsString,
    /// Copy directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Keep everything that a backup needs: the same as -r -P -p, and hard links
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep owner, mode, times, ACLs and extended attributes
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Copy symbolic links as links
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
    /// Copy what symbolic links lead to
    #[arg(short = 'L', long, conflicts_with = "no_dereference")]
    pub(crate) dereference: bool,
    /// Share blocks with the original, which takes no space; also between two files of this machine
    /// in one mount of Furrow [default: auto; without WHEN: always]
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
    /// Fail where it cannot
    Always,
    /// Copy where it cannot
    Auto,
    /// Copy
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
    /// Remove directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Leave out what is not there
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
    #[arg(value_name = "TARGET", help = "What to link to: DEVICE:/PATH; with -s any text")]
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
