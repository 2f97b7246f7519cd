//! The `zonal` command.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `clock`, `notify` | real time; tells systemd that a server is ready | |
//! | `alias` | names under which mount(8), mkfs(8) and fsck(8) start the command | |
//! | `interrupt` | signals that end the command | |
//! | `mounts`, `control` | the mounts of a device; the control directory of a mount | |
//! | `device` | opens the device of a command line, and protects its file system | `mounts` |
//! | `args` | the command line: every subcommand, option and default | `device` |
//! | `output` | prints results, one file per form, and failures | `interrupt` |
//! | `metadata` | finds the metadata drive of a file system | `device`, `output` |
//! | `manual` | the manual pages | `args`, `device` |
//! | `advice` | decides what to try after a failure | all above |
//! | `log` | logging | `args`, `output` |
//! | `top` | a mount or a drive as a live picture on a terminal | all above |
//! | `cmd` | one file per subcommand | all above |
//!
//! Called as `mount.furrow`, `mkfs.furrow` or `fsck.furrow`, it takes the arguments that mount(8),
//! mkfs(8) and fsck(8) pass to such programs: `alias.rs`.

#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod advice;
mod alias;
mod args;
mod clock;
mod cmd;
mod control;
mod device;
mod interrupt;
mod log;
mod manual;
mod metadata;
mod mounts;
mod notify;
mod top;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;

fn main() -> ExitCode {
    let arguments = alias::arguments(std::env::args_os());
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let usual = error.exit_code();
            advice::print_usage(error);
            return ExitCode::from(cmd::usage_code(&arguments, usual));
        }
    };
    advice::note_command(&arguments);
    cmd::note_running(&cli.command);
    let outcome = log::start(&cli.global, &cli.command).and_then(|log| {
        let outcome = cmd::run(&cli);
        drop(log);
        outcome
    });
    output::finish();
    let code = outcome.unwrap_or_else(|error| {
        advice::print(&error);
        ExitCode::from(output::failure::code())
    });
    interrupt::end_if_pending();
    code
}
