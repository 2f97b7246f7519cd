//! The common code of the programs that build and test the workspace: `cargo xtask`, and the
//! programs that it starts, `kernel-tests` and `packaging`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "they are command-line programs")]

use std::path::Path;
use std::process::Command;

pub mod deviations;
#[path = "../../../crates/zonal-kv/build/headers.rs"]
mod headers;
pub mod metadata;
pub mod plugins;
pub mod run;
pub mod share;
pub mod tally;
pub mod tools;
pub mod watch;

/// `cargo`, started in the workspace.
pub fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}
