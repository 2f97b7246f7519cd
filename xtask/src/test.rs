//! `cargo xtask test`: every test there is, in an order that shows cheap failures first.
//!
//! Tests that need root, tools or minutes are marked `#[ignore = "why; run by cargo xtask test"]` in
//! their crates; the last step runs them. One that finds at run time that it cannot run prints
//! `SKIP: why` and returns.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Ignored};
use crate::tally::{Tally, now};
use crate::{check, tools, vm};

/// How much to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Without root, without tools, in under two minutes.
    Quick,
    /// All of it.
    Everything,
}

/// Runs the tests of `scope`.
pub(crate) fn all(root: &Path, scope: Scope, tally: &mut Tally) {
    let start = now();
    println!("== check");
    check::all(root, tally);
    let ignored = match scope {
        Scope::Quick => Ignored::Skipped,
        Scope::Everything => Ignored::RunLater,
    };
    run::tests(
        "unit, contract, model, crash and transcript tests",
        cargo(root)
            .args(["test", "--workspace", "--lib", "--bins", "--tests"])
            .args(GO_ON)
            .args(["--", "--show-output"]),
        ignored,
        tally,
    );
    run::tests(
        "examples in the documentation",
        cargo(root).args(["test", "--workspace", "--doc"]).args(GO_ON),
        ignored,
        tally,
    );
    if scope == Scope::Everything {
        println!("\n== programs that the suites use");
        let path = tools::install(root, tally);
        run::tests(
            "long tests and suites through a real mount",
            cargo(root)
                .args(["test", "--package=zonal-fuse", "--package=zonal-cli", "--tests"])
                .args(GO_ON)
                .args(["--", "--ignored", "--nocapture", "--test-threads=1"])
                .args(["--exact", "--skip=daemon"])
                .env("PATH", path),
            Ignored::RunLater,
            tally,
        );
        run::tests(
            "disks without zones",
            cargo(root).args(["test", "--package=zonal-linux", "--test=disk"]).args([
                "--",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ]),
            Ignored::RunLater,
            tally,
        );
        println!("\n== comparison with a real kernel");
        vm::all(root, &[], tally);
    }
    println!("\ntook {:.0} s", start.elapsed().as_secs_f64());
}

/// One failure hides no other.
const GO_ON: [&str; 1] = ["--no-fail-fast"];

/// Every run tries the same random tests, so that a failure is the change's and not the day's.
/// `SEED` in the environment chooses others; `cargo xtask crash` takes fresh ones.
fn cargo(root: &Path) -> Command {
    let mut command = check::cargo(root);
    for name in ["SEED", "PROPTEST_RNG_SEED"] {
        if std::env::var_os(name).is_none() {
            command.env(name, "1");
        }
    }
    command
}
