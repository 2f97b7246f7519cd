//! The common code of the programs that build and test the workspace: `cargo xtask`, and the
//! programs that it starts, `kernel-tests` and `packaging`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "they are command-line programs")]

use std::path::{Path, PathBuf};
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

/// The workspace's root, independent of the current directory. Cargo names the folder of the
/// program that it runs, which may be another one than the program was built in: two clones can
/// share a target folder. Programs that this program starts inherit the name.
pub fn root() -> PathBuf {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf(), PathBuf::from);
    folder.ancestors().nth(2).expect("it lies two folders below").to_path_buf()
}

/// `cargo`, started in the workspace.
pub fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root);
    command
}
