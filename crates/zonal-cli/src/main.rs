//! The `zonal` command.
//!
//! `args/` is the command line, `cmd/` has one file per subcommand, `output/` one per form of
//! output, `top/` the live picture on a terminal, `manual/` the manual pages. Called as
//! `mount.furrow`, `mkfs.furrow` or `fsck.furrow`, it takes the arguments that mount(8), mkfs(8)
//! and fsck(8) pass to such programs: `alias.rs`.

#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod advice;
mod alias;
mod args;
mod clock;
mod cmd;
mod device;
mod interrupt;
mod log;
mod manual;
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
        ExitCode::from(cmd::running_failure_code())
    });
    interrupt::end_if_pending();
    code
}
