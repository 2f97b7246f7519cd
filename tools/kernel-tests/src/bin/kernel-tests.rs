//! The host's side: boots the machine. `cargo xtask vm` starts it.

use std::process::ExitCode;

fn main() -> ExitCode {
    kernel_tests::host::main()
}
