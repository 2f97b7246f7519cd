//! Passes the commit of the sources to the program, which writes it on pages of results. A package
//! is built without a checkout and has no commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The sources of a package may lie in the checkout of another project.
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let top = git(&["rev-parse", "--show-toplevel"]);
    let is_own = |top: &String| own.canonicalize().is_ok_and(|own| Path::new(top) == own);
    if !top.as_ref().is_some_and(is_own) {
        return;
    }
    for path in ["src", "../zonal-sim/src", "../zonal-sim/configs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["describe", "--always", "--dirty", "--exclude=*"]) {
        println!("cargo::rustc-env=ZONAL_COMMIT={commit}");
    }
}

/// The output of git; `None` if git is missing, fails or prints nothing.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
