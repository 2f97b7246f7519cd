//! How a failure is reported: what failed, on what, and what to try.
//!
//! Errors of the libraries carry facts; one table here decides which advice fits which error.
//! Several commands meet the same error, and the advice names no option that the command lacks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fmt, fs};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};
use rustix::io::Errno;
use zonal::DeviceError;
use zonal::error::FileLimit;
use zonal::output::Refused;
use zonal_fs::{FsError, volume};
use zonal_fuse::ServeError;
use zonal_linux::ublk;

use crate::args::Cli;
use crate::device::Holds;
use crate::interrupt;
use crate::mounts::{self, MountedAt};
use crate::output::failure::{Failure, TRY, is_json_asked};
use crate::output::{self, REDIRECT, Unprinted, shell};

/// Separates a hint from its alternative. A command prints the parts whose options it has.
const OR_OPTION: &str = ", or ";

/// The options of the command that this process runs.
static RUNNING: OnceLock<Options> = OnceLock::new();

/// A command: its words, such as `zone reset`, and its long options.
struct Options {
    words: String,
    names: BTreeSet<String>,
}

impl Options {
    /// The long options of the subcommand that `words` name. Options of every command may stand
    /// between the words.
    fn of<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut command = Cli::command();
        command.build();
        let (mut found, mut path) = (&command, Vec::new());
        for word in words {
            if let Some(inner) = found.find_subcommand(word) {
                found = inner;
                path.push(word);
            }
            if !found.has_subcommands() {
                break;
            }
        }
        let options = found.get_arguments().filter_map(|argument| argument.get_long());
        Self { words: path.join(" "), names: options.map(str::to_owned).collect() }
    }

    /// Whether the command can follow an advice: it has all the options that the advice names, and
    /// the advice does not tell the user to run this very command.
    fn can_follow(&self, advice: &str) -> bool {
        let own = format!("`zonal {} ", self.words);
        self.have_all_of(advice) && (self.words.is_empty() || !advice.contains(&own))
    }

    /// Whether the command has all the options that a text names.
    fn have_all_of(&self, text: &str) -> bool {
        options_in(text).all(|option| self.names.contains(option))
    }
}

/// The options that a text names for the command that prints it: not those within backquotes, which
/// belong to a command that is quoted.
fn options_in(text: &str) -> impl Iterator<Item = &str> {
    let unquoted = text.split('`').step_by(2).flat_map(str::split_whitespace);
    unquoted.filter_map(|word| {
        let name = word.trim_start_matches('(').strip_prefix("--")?;
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        let name = name.split(|letter| !is_part(letter)).next().unwrap_or(name);
        // `--` alone ends the options.
        (!name.is_empty()).then_some(name)
    })
}

/// Remembers which command this process runs. The parser has accepted `arguments`, the words of
/// the process's command line.
pub(crate) fn note_command(arguments: &[OsString]) {
    RUNNING.get_or_init(|| Options::of(arguments.iter().skip(1).filter_map(|word| word.to_str())));
}

/// Prints a failure on standard error.
pub(crate) fn print(error: &anyhow::Error) {
    Failure::new(chain(error), errno(error), hint(error)).print();
}

/// A failure that another process reports. Its message has the advice, too.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) message: String,
    pub(crate) errno: Option<i32>,
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Reported {}

/// Subcommands that destroy something. The command never suggests them for a mistyped one.
const DESTRUCTIVE: [&str; 9] =
    ["rm", "mv", "mkfs", "mkzonefs", "reset", "finish", "read-only", "offline", "create"];

/// The error of a command line, without suggestions that destroy something: a user who types
/// `format` must not be led to run `rm`.
fn without_danger(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(suggested)) = error.remove(ContextKind::SuggestedSubcommand) {
        let is_safe = |name: &String| !DESTRUCTIVE.contains(&name.as_str());
        let safe: Vec<String> = suggested.into_iter().filter(is_safe).collect();
        if !safe.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(safe));
        }
    }
    error
}

/// Prints the error of a command line, or the help that it asks for.
pub(crate) fn print_usage(error: clap::Error) {
    let error = without_danger(error);
    if !error.use_stderr() {
        if let Err(error) = error.print() {
            output::end(&error);
        }
        return output::finish();
    }
    if !is_json_asked() {
        let closed = |error: io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if error.print().is_err_and(closed) {
            interrupt::on_broken_pipe();
        }
        return;
    }
    let text = error.render().to_string();
    let message = text.trim().trim_start_matches("error: ").to_owned();
    Failure::new(message, None, None).print();
}

/// The error number of the first cause that has one.
pub(crate) fn errno(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|cause| {
        if cause.is::<Holds>() {
            Some(Errno::BUSY.raw_os_error())
        } else if let Some(error) = cause.downcast_ref::<DeviceError>() {
            Some(error.errno().raw_os_error())
        } else if let Some(error) = cause.downcast_ref::<FsError>() {
            Some(error.errno())
        } else if let Some(error) = cause.downcast_ref::<volume::Error>() {
            Some(error.errno())
        } else if let Some(error) = cause.downcast_ref::<Reported>() {
            error.errno
        } else if let Some(error) = cause.downcast_ref::<Unprinted>() {
            error.errno
        } else if let Some(errno) = cause.downcast_ref::<Errno>() {
            Some(errno.raw_os_error())
        } else {
            cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error)
        }
    })
}

/// The failure and its advice, as the command prints them.
pub(crate) fn text(error: &anyhow::Error) -> String {
    match hint(error) {
        Some(advice) => format!("{}{TRY}{advice}", chain(error)),
        None => chain(error),
    }
}

/// The whole chain of causes on one line, without a cause that its neighbour repeats.
fn chain(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        match parts.last_mut() {
            Some(last) if cause.starts_with(last.as_str()) => *last = cause,
            Some(last) if last.ends_with(&cause) => {}
            _ => parts.push(cause),
        }
    }
    parts.join(": ")
}

/// What to try, by options that the running command has.
fn hint(error: &anyhow::Error) -> Option<String> {
    let none = || Options { words: String::new(), names: BTreeSet::new() };
    advice(error, RUNNING.get_or_init(none))
}

/// What to try, by options that the command has.
fn advice(error: &anyhow::Error, options: &Options) -> Option<String> {
    let advice = best_advice(error)?;
    // The first alternative of an advice needs no option.
    let parts = advice.split(OR_OPTION);
    let fitting: Vec<&str> = parts.filter(|part| options.can_follow(part)).collect();
    (!fitting.is_empty()).then(|| fitting.join(OR_OPTION))
}

fn best_advice(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        if let Some(MountedAt { first, second, .. }) = cause.downcast_ref::<MountedAt>() {
            let [first, second] = [first, second].map(shell::word);
            Some(format!(
                "`mount --bind {first} {second}` shows it there too; `zonal umount {first}` ends it"
            ))
        } else if cause.is::<Holds>() {
            Some(
                "`zonal info DEVICE`, which tells more of it, or --force to change it all the same"
                    .into(),
            )
        } else if let Some(error) = cause.downcast_ref::<DeviceError>() {
            of_device(error)
        } else if let Some(error) = cause.downcast_ref::<FsError>() {
            of_fs(error)
        } else if let Some(error) = cause.downcast_ref::<ServeError>() {
            of_serve(error)
        } else if let Some(error) = cause.downcast_ref::<ublk::Error>() {
            of_ublk(error)
        } else if cause.is::<Unprinted>() {
            Some(REDIRECT.into())
        } else {
            cause.downcast_ref::<io::Error>().and_then(of_io)
        }
    })
}

fn of_device(error: &DeviceError) -> Option<String> {
    let text = match error {
        DeviceError::Locked { path, by } => {
            of_locked(mounts::place_of(path), *by, &by.map(words_of).unwrap_or_default())
        }
        DeviceError::NotAtWritePointer { wp, .. } => {
            format!("--lba {wp}, or `zonal append`, which finds the place itself")
        }
        DeviceError::ZoneFull { zone } => format!("`zonal zone reset DEVICE {zone}` empties it"),
        DeviceError::TooManyActive { .. } => "finish or reset an active zone first".into(),
        DeviceError::TooManyOpen { .. } => "close an open zone first".into(),
        DeviceError::NoSuchZone { .. } | DeviceError::OutOfRange { .. } => {
            "`zonal info DEVICE` prints how large it is".into()
        }
        DeviceError::NoZones { path } => {
            let path = shell::word(path);
            format!("`zonal create {path} --zone-size 256MiB` cuts it into virtual zones")
        }
        DeviceError::NoSpace { .. } => {
            "make space on the file system that holds the drive file".into()
        }
        DeviceError::FileTooLarge { by: FileLimit::Process, .. } => {
            "`ulimit -f unlimited` first, or a smaller --size".into()
        }
        DeviceError::FileTooLarge { by: FileLimit::FileSystem, .. } => {
            "a file system that takes larger files, such as XFS, or a smaller --size".into()
        }
        // The command also opens and makes files that are no drives.
        DeviceError::Io { what, source }
            if source.kind() == io::ErrorKind::NotFound && what.starts_with("opening ") =>
        {
            "check the path, or `zonal create FILE` makes a drive".into()
        }
        DeviceError::Io { source, .. } => return of_io(source),
        _ => return None,
    };
    Some(text)
}

/// Who uses a drive: a mount at `place`, or another process, with the words of its command line.
fn of_locked(place: Option<PathBuf>, by: Option<u32>, words: &[String]) -> String {
    if let Some(dir) = place {
        let dir = shell::word(dir);
        return format!("it is mounted at {dir}: `zonal umount {dir}` waits until it is released");
    }
    let program = words.first().and_then(|program| Path::new(program).file_name()?.to_str());
    match (by, program, words.get(1).map(String::as_str)) {
        (Some(by), Some("zonal"), Some("serve")) => {
            let kind = words.get(2).map_or("", String::as_str);
            format!("`kill {by}` ends `zonal serve {kind}`, which releases it")
        }
        (Some(by), Some(program), command) if program != "zonal" || command != Some("mount") => {
            format!("wait until {program} ends, which is process {by}")
        }
        _ => "is it mounted? `zonal umount DIR` waits until it is released".into(),
    }
}

/// The command line of a process; empty if it has ended or belongs to another user.
fn words_of(process: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn of_fs(error: &FsError) -> Option<String> {
    match error {
        FsError::Occupied { .. } => Some("--force to overwrite it: what it holds is lost".into()),
        FsError::Blank { what: "zonefs" } => Some("`zonal mkzonefs DEVICE` makes one".into()),
        FsError::Blank { .. } => {
            Some("`zonal mkfs DEVICE` makes one, `zonal mkzonefs DEVICE` a zonefs".into())
        }
        // It may be a damaged file system, which mkfs would destroy.
        FsError::Missing { .. } => Some("`zonal info DEVICE` tells what it holds".into()),
        FsError::OtherShape { .. } => {
            Some("put the layers it was made through, such as po2:, in front of the device".into())
        }
        FsError::Corrupt { .. } | FsError::Checksum { .. } => {
            Some("`zonal check DEVICE` lists what is wrong".into())
        }
        FsError::Unsuitable { .. } => {
            Some("`zonal create` with more zones or larger limits".into())
        }
        FsError::Device(error) => of_device(error),
        _ => None,
    }
}

fn of_serve(error: &ServeError) -> Option<String> {
    match error {
        ServeError::Dead { point } => {
            Some(format!("`zonal umount {}`, which clears it; then mount again", shell::word(point)))
        }
        ServeError::FuseDenied => Some(
            "as root, or as a user that may open /dev/fuse: `ls -l /dev/fuse` shows who may".into(),
        ),
        ServeError::Mount { source, .. } => of_mount(source),
        ServeError::NotDurable { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Some(
                "free space on the file system that holds the drive file, and unmount again".into(),
            )
        }
        ServeError::Busy { .. } => Some("leave the directory and close its files".into()),
        ServeError::NotServed { .. } => {
            Some("`findmnt -t fuse.furrow,fuseblk.furrow,fuse.zonefs,fuseblk.zonefs` lists what is mounted"
                .into())
        }
        _ => None,
    }
}

/// What to try where mount(2) or fusermount3 has failed.
fn of_mount(source: &io::Error) -> Option<String> {
    let said = source.to_string();
    if said.contains("user_allow_other") {
        Some("without allow_other, or let root write user_allow_other into /etc/fuse.conf".into())
    } else if said.starts_with("fusermount3:") && source.kind() != io::ErrorKind::Other {
        // It was not started: its own messages have no kind.
        Some("install the package fuse3, or mount as root".into())
    } else if source.kind() == io::ErrorKind::PermissionDenied {
        Some("a mount point that this user may search and write to, or as root".into())
    } else {
        of_io(source)
    }
}

fn of_ublk(error: &ublk::Error) -> Option<String> {
    let text = match error {
        ublk::Error::NoDriver => "`modprobe ublk_drv`".into(),
        ublk::Error::Denied => "as root, or with sudo".into(),
        ublk::Error::ZoneSize { .. } => {
            "`po2:` in front of the device, which rounds its zones up".into()
        }
        ublk::Error::Taken { id } => {
            format!("another --id; --recover {id} if its server was killed; or --remove {id}")
        }
        ublk::Error::Missing { .. } => "`zonal serve ublk --list` shows which there are".into(),
        ublk::Error::Served { server, .. } => {
            format!("another number, or `kill {server}` first, which removes the device")
        }
        ublk::Error::NotRecoverable { id, .. } | ublk::Error::Notes { id, .. } => {
            format!("`zonal serve ublk --remove {id}`, and serve it as a new one")
        }
        ublk::Error::OtherShape { .. } => {
            "serve the device that it was made for, with the same layers".into()
        }
        _ => return None,
    };
    Some(text)
}

fn of_io(error: &io::Error) -> Option<String> {
    if error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Refused>) {
        return Some("name another file for what is written".into());
    }
    match error.kind() {
        io::ErrorKind::NotFound => Some("check the path".into()),
        io::ErrorKind::PermissionDenied => Some("as the owner of the file, or as root".into()),
        io::ErrorKind::AlreadyExists => Some("another name, or --force to replace it".into()),
        io::ErrorKind::StorageFull => {
            Some("free space on the disk that holds the drive file".into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
