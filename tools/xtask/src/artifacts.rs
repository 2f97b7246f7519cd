//! The programs of the workspace: builds them with one set of features, so that no crate is
//! compiled twice, and says where they are.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::{cargo, plugins};

/// Crates that cargo compiles between two lines about the build.
const COMPILED_A_LINE: u32 = 25;

/// A program that was built.
pub(crate) struct Program {
    /// The package of its crate: `zonal-fs`.
    pub(crate) package: String,
    /// Of the library, program or file of tests: `crash`.
    pub(crate) name: String,
    /// Its path.
    pub(crate) path: PathBuf,
    /// The folder of its crate, in which its tests run.
    pub(crate) folder: PathBuf,
    /// Whether it runs tests.
    pub(crate) tests: bool,
}

/// Builds the `targets`, given as options of cargo, and lists all programs among them.
pub(crate) fn build(root: &Path, targets: &[&str]) -> Result<Vec<Program>> {
    built(
        cargo(root)
            .args(["build", "--quiet", "--message-format=json-render-diagnostics"])
            .args(plugins::workspace(root))
            .args(targets),
    )
}

/// Runs a `cargo build` that prints messages, and lists the programs that they are about. Says what
/// it has built, since a build takes many minutes on a busy machine.
pub(crate) fn built(build: &mut Command) -> Result<Vec<Program>> {
    let mut cargo = build.stdout(Stdio::piped()).spawn().context("could not start cargo")?;
    let messages = BufReader::new(cargo.stdout.take().expect("it is piped"));
    let (mut compiled, mut programs) = (0, Vec::new());
    for line in messages.lines() {
        let line = line.context("reading the messages of cargo")?;
        let Ok(message) = serde_json::from_str(&line) else { continue };
        if is_compiled(&message) {
            compiled += 1;
            if compiled % COMPILED_A_LINE == 0 {
                println!(
                    "compiled {compiled} crates and tests, the last: {}",
                    message["target"]["name"]
                );
            }
        }
        programs.extend(parsed(&message));
    }
    ensure!(cargo.wait().context("waiting for cargo")?.success(), "{build:?} failed");
    Ok(programs)
}

/// Whether a message of cargo is about a crate that it has compiled now.
fn is_compiled(message: &Value) -> bool {
    message["reason"] == "compiler-artifact" && message["fresh"] == false
}

/// The program that a message of cargo is about.
fn parsed(message: &Value) -> Option<Program> {
    let path = message["executable"].as_str()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?;
    Some(Program {
        package: folder.file_name()?.to_str()?.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        path: PathBuf::from(path),
        folder: folder.to_path_buf(),
        tests: message["profile"]["test"].as_bool()?,
    })
}

/// Builds one program, not a test, and returns its path.
pub(crate) fn program(root: &Path, name: &str) -> Result<PathBuf> {
    let programs = build(root, &[&format!("--bin={name}")])?;
    find(&programs, name).map(Path::to_path_buf)
}

/// The path of the program that is not a test.
pub(crate) fn find<'a>(programs: &'a [Program], name: &str) -> Result<&'a Path> {
    let mut found = programs.iter().filter(|program| !program.tests && program.name == name);
    let program = found.next().with_context(|| format!("cargo built no program {name}"))?;
    Ok(&program.path)
}

/// The path of a file of tests. Another crate may have one of the same name.
pub(crate) fn find_tests<'a>(
    programs: &'a [Program],
    package: &str,
    name: &str,
) -> Result<&'a Path> {
    let is_it = |one: &&Program| one.tests && one.package == package && one.name == name;
    let program = programs.iter().find(is_it);
    Ok(&program.with_context(|| format!("cargo built no tests {name} of {package}"))?.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_crate_and_name() {
        let built = |package: &str, tests| Program {
            package: package.to_owned(),
            name: "ublk".to_owned(),
            path: Path::new("/w").join(package),
            folder: PathBuf::from("/w"),
            tests,
        };
        let programs = [built("one", true), built("two", false), built("two", true)];
        assert_eq!(find_tests(&programs, "two", "ublk").unwrap(), Path::new("/w/two"));
        assert!(find_tests(&programs, "three", "ublk").is_err());
    }

    #[test]
    fn programs_are_parsed_from_cargo_messages() {
        let message = |text| serde_json::from_str(text).unwrap();
        let artifact: Value = message(
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/zonal-fs/Cargo.toml",
            "target":{"kind":["test"],"name":"crash"},"profile":{"test":true},"fresh":false,
            "executable":"/w/target/debug/deps/crash-1"}"#,
        );
        let found = parsed(&artifact).unwrap();
        assert_eq!((&*found.package, &*found.name, found.tests), ("zonal-fs", "crash", true));
        assert_eq!(found.folder, Path::new("/w/crates/zonal-fs"));
        assert!(is_compiled(&artifact));
        let script: Value = message(r#"{"reason":"build-script-executed"}"#);
        assert!(parsed(&script).is_none() && !is_compiled(&script));
    }
}
