//! Programs in Python against the package, laid out as a wheel installs it, with the library that
//! cargo has built; and against the unpacked wheel.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// An installed package.
struct Installed {
    place: TempDir,
}

/// Lays the package out; `None` where there is no Python.
fn install() -> Option<Installed> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIP: there is no Python, python3");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let package = place.path().join("site/zonal");
    fs::create_dir_all(&package).unwrap();
    for file in fs::read_dir(here().join("python/zonal")).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    symlink(library(), package.join("_zonal.abi3.so")).unwrap();
    Some(Installed { place })
}

/// The library, next to the tests: cargo builds it for them.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libzonal_python.so")
}

/// Makes a wheel, as `cargo xtask dist` does.
fn wheel(place: &Path) -> PathBuf {
    let stripped = place.join("library.so");
    succeed(Command::new("strip").arg("-o").arg(&stripped).arg(library()));
    let mut make = Command::new("python3");
    make.arg(here().join("wheel.py")).arg("--library").arg(stripped);
    make.args(["--version", env!("CARGO_PKG_VERSION"), "--epoch", "1700000000"]);
    make.arg("--licence").arg(here().join("../../LICENSE-MIT"));
    make.arg("--out").arg(place);
    PathBuf::from(succeed(&mut make).trim_end())
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Installed {
    /// A Python that finds the package, and nothing else that is not its own.
    fn python(&self) -> Command {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", self.place.path().join("site")).env_remove("PYTHONHOME");
        python.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONFAULTHANDLER", "1");
        python.args(["-s", "-W", "error"]).current_dir(self.place.path());
        python
    }

    /// Runs the tests of a file of `tests/python`.
    fn test(&self, name: &str) {
        let mut python = self.python();
        python.arg("-m").arg("unittest").arg("-v").arg(name);
        let path =
            std::env::join_paths([self.place.path().join("site"), here().join("tests/python")]);
        python.env("PYTHONPATH", path.unwrap());
        let output = python.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{told}", output.status);
        assert!(told.contains("\nOK") && !told.contains("Ran 0 tests"), "{told}");
    }
}

/// Runs a program and returns its output.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn program_manages_zones() {
    let Some(installed) = install() else { return };
    installed.test("test_devices");
}

#[test]
fn program_uses_files() {
    let Some(installed) = install() else { return };
    installed.test("test_volumes");
}

#[test]
fn program_simulates() {
    let Some(installed) = install() else { return };
    installed.test("test_sim");
}

#[test]
fn misuse_raises_without_ending_interpreter() {
    let Some(installed) = install() else { return };
    installed.test("test_misuse");
}

#[test]
fn types_match_package() {
    let Some(installed) = install() else { return };
    installed.test("test_types");
}

#[test]
fn guide_code_runs_as_shown() {
    let Some(installed) = install() else { return };
    let guide = here().join("../../docs/guide/use/python.md");
    let runner = here().join("tests/python/guide.py");
    let printed = succeed(installed.python().arg(runner).arg(guide));
    assert!(printed.trim_end().parse::<u32>().is_ok_and(|count| count > 20), "{printed}");
}

#[test]
fn wheel_is_whole_and_reproducible() {
    let Some(installed) = install() else { return };
    let other = tempfile::tempdir().unwrap();
    let (one, other) = (wheel(installed.place.path()), wheel(other.path()));
    let name = one.file_name().unwrap().to_str().unwrap();
    assert!(name.contains("-cp39-abi3-manylinux_2_"), "{name}");
    assert_eq!(one.file_name(), other.file_name());
    assert!(fs::read(&one).unwrap() == fs::read(other).unwrap(), "they differ");
    let site = installed.place.path().join("site");
    fs::remove_dir_all(&site).unwrap();
    succeed(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(one).arg(&site));
    installed.test("test_wheel");
}
