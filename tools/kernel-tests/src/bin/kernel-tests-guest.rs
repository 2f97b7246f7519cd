//! The guest's side: makes the comparisons. The host starts it in the machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    kernel_tests::guest::main()
}
