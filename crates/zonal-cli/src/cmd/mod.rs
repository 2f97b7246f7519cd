//! One file per subcommand. Each takes its arguments and prints its result.

mod bench;
mod block;
mod check;
mod compliance;
mod create;
mod disk;
mod division;
mod doctor;
mod dump;
mod files;
mod info;
mod map;
pub(crate) mod mkfs;
pub(crate) mod mkzonefs;
pub(crate) mod mount;
mod quickstart;
mod reclaim;
mod schemas;
mod serve;
mod shell;
mod sim;
mod stats;
mod trace;
mod umount;
mod zone;
mod zones;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::args::{Cli, Command};
use crate::output::failure;
use crate::{interrupt, top};

/// Runs the subcommand.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode> {
    let global = &cli.global;
    match &cli.command {
        Command::Create(args) => create::run(global, args)?,
        Command::Disk(command) => disk::run(global, command)?,
        Command::Info(args) => info::run(global, args)?,
        Command::Zones(args) => zones::run(global, args)?,
        Command::Zone(command) => zone::run(global, command)?,
        Command::Read(args) => block::read(global, args)?,
        Command::Write(args) => block::write(global, args)?,
        Command::Append(args) => block::append(global, args)?,
        Command::Quickstart(args) => quickstart::run(global, args)?,
        Command::Mkfs(args) => mkfs::run(global, args)?,
        Command::Mkzonefs(args) => mkzonefs::run(global, args)?,
        Command::Mount(args) => return mount::run(global, args),
        Command::Check(args) => return check::run(global, args),
        Command::Dump(args) => dump::run(args)?,
        Command::Ls(args) => files::list(global, args)?,
        Command::Cp(args) => files::copy(args)?,
        Command::Cat(args) => files::cat(args)?,
        Command::Stat(args) => files::stat(global, args)?,
        Command::Rm(args) => files::remove(args)?,
        Command::Mv(args) => files::rename(args)?,
        Command::Ln(args) => files::link(args)?,
        Command::Mkdir(args) => files::make_dir(args)?,
        Command::Df(args) => files::space(global, args)?,
        Command::Bench(args) => bench::run(global, args)?,
        Command::Compliance(args) => return compliance::run(global, args),
        Command::Doctor(args) => return doctor::run(global, args),
        Command::Map(args) => map::run(global, args)?,
        Command::Trace(command) => trace::run(global, command)?,
        Command::Sim(command) => sim::run(global, command)?,
        Command::Serve(command) => serve::run(global, command)?,
        Command::Stats(args) => stats::run(global, args)?,
        Command::Reclaim(args) => reclaim::run(global, args)?,
        Command::Top(args) => top::run(global, args)?,
        Command::Umount(args) => umount::run(global, args)?,
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args)?,
        Command::Schemas(args) => schemas::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Notes which command this process runs: its code for a failure, which for `check` is fsck's for
/// an operational error, and whether it serves others.
pub(crate) fn note_running(command: &Command) {
    failure::note_code(if matches!(command, Command::Check(_)) { 8 } else { 1 });
    if matches!(command, Command::Mount(_) | Command::Serve(_)) {
        interrupt::note_server();
    }
}

/// The exit code of arguments that are not understood, or that ask for help (`usual` 0): `check`
/// has fsck's, where 16 is wrong usage, and `mkzonefs` its namesake's.
pub(crate) fn usage_code(arguments: &[OsString], usual: i32) -> u8 {
    match arguments.get(1).and_then(|command| command.to_str()) {
        _ if usual == 0 => 0,
        Some("check") => 16,
        Some("mkzonefs") => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_usage_errors_use_fsck_exit_codes() {
        let arguments = |command: &str| ["zonal", command].map(OsString::from);
        assert_eq!(usage_code(&arguments("check"), 2), 16);
        assert_eq!(usage_code(&arguments("check"), 0), 0);
        assert_eq!(usage_code(&arguments("mkzonefs"), 2), 1);
        assert_eq!(usage_code(&arguments("zones"), 2), 2);
    }
}
