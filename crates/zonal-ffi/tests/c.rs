//! C programs against the library as it is installed: header, pkg-config file, shared and static
//! library. Each is compiled with every warning an error, and run again under `AddressSanitizer`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::profile::Changes;
use zonal::{Rules, SystemClock};
use zonal_fs::furrow::{self, MkfsOptions};

/// The output of the example `zones`.
const ZONES_PRINTS: &str = "\
10 zones of 3145728 bytes, host-managed
appended 4096 bytes into zone 1
zone 1 is implicit-open, 8192 bytes are written
refused: write at 768, but zone 1 has its write pointer at 770
10 zones are empty
";

/// How a program is linked.
#[derive(Clone, Copy, Debug)]
enum Way {
    Shared,
    Static,
    /// Shared, with `AddressSanitizer` in the program.
    Sanitized,
}

/// The library in a directory of its own, as a package would install it.
struct Installed {
    place: TempDir,
}

/// Installs the libraries that cargo has built, by the commands of the guide, in a directory in
/// place of /usr/local; `None` where there is no C compiler.
fn install() -> Option<Installed> {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("SKIP: there is no C compiler, cc");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    // Next to the tests: cargo builds the libraries for them.
    let test = std::env::current_exe().unwrap();
    let (built, at) = (test.parent().unwrap().to_str().unwrap(), place.path().to_str().unwrap());
    let commands = blocks("sh").remove(0);
    // Cargo has built already, and ldconfig would change this machine's cache.
    let commands: String = commands
        .lines()
        .filter(|line| !line.starts_with("cargo build") && *line != "ldconfig")
        .map(|line| line.replace("target/release", built).replace("/usr/local", at) + "\n")
        .collect();
    succeed(Command::new("sh").args(["-euc", &commands]).current_dir(root()));
    Some(Installed { place })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The code blocks of the guide in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/guide/use/c-library.md")).unwrap();
    let fence = format!("```{language}\n");
    page.split(&fence)
        .skip(1)
        .map(|rest| rest.split_once("```").expect("the block ends").0.to_owned())
        .collect()
}

impl Installed {
    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Compiles a program and returns where it is.
    fn compile(&self, source: &str, way: Way) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.path(&format!("{way:?}"));
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        cc.arg("-pedantic");
        cc.arg(&source).arg("-o").arg(&program);
        match way {
            Way::Shared => {
                cc.args(self.of_pkg_config());
            }
            Way::Static => {
                cc.arg("-I").arg(self.path("include")).arg(self.path("lib/libzonal.a"));
                cc.args(["-lpthread", "-ldl", "-lm"]);
            }
            Way::Sanitized => {
                cc.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
                cc.args(self.of_pkg_config());
            }
        }
        succeed(&mut cc);
        program
    }

    /// The flags of pkg-config, or, where it is not installed, the same by hand.
    fn of_pkg_config(&self) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "--libs", "zonal"]);
        match command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig")).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let text = String::from_utf8(output.stdout).unwrap();
                text.split_whitespace().map(str::to_owned).collect()
            }
            Err(_) => {
                let of = |name| self.path(name).display().to_string();
                vec![format!("-I{}", of("include")), format!("-L{}", of("lib")), "-lzonal".into()]
            }
        }
    }

    /// Runs a program in each way and returns its output, the same each time.
    fn run(&self, source: &str, arguments: impl Fn() -> Option<String>) -> String {
        let mut printed = Vec::new();
        for way in [Way::Shared, Way::Static, Way::Sanitized] {
            let mut program = Command::new(self.compile(source, way));
            program.args(arguments()).env("LD_LIBRARY_PATH", self.path("lib"));
            printed.push(succeed(&mut program));
        }
        assert!(printed.windows(2).all(|pair| pair[0] == pair[1]), "{printed:?}");
        printed.remove(0)
    }

    /// A new drive file with a file system.
    fn drive(&self) -> String {
        let path = self.path("drive.zns");
        let geometry = "zone=3M,zones=64".parse::<Changes>().unwrap().geometry().unwrap();
        let overwrite = Overwrite::Replace;
        let options = CreateOptions { geometry, rules: Rules::Zns, uuid: [1; 16], overwrite };
        FileDrive::create(&path, &options).unwrap();
        let drive = Arc::new(FileDrive::open(&path, OpenMode::ReadWrite).unwrap());
        let clock = SystemClock::new();
        furrow::mkfs(drive, &clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn c_program_manages_zones() {
    let Some(installed) = install() else { return };
    assert_eq!(installed.run("examples/zones.c", || None), ZONES_PRINTS);
}

#[test]
fn c_program_uses_files() {
    let Some(installed) = install() else { return };
    let printed = installed.run("examples/files.c", || Some(installed.drive()));
    assert_eq!(printed, "two\n8 bytes, mode 100644\ntoday\nthere is room\n");
}

#[test]
fn c_misuse_is_refused_and_structs_match_libzbd() {
    let Some(installed) = install() else { return };
    let printed = installed.run("tests/misuse.c", || Some(installed.drive()));
    assert_eq!(printed, "every misuse is refused\n");
}

#[test]
fn c_program_formats_drive_in_memory() {
    let Some(installed) = install() else { return };
    let printed = installed.run("examples/memory.c", || None);
    assert_eq!(
        printed,
        "CURRENT is 000012.log, from memory\nthe second append went to byte 3145728\n"
    );
}

#[test]
fn c_files_change_in_every_way_and_misuse_is_refused() {
    let Some(installed) = install() else { return };
    let printed = installed.run("tests/formatted.c", || None);
    assert_eq!(printed, "files are made, changed and found again\n");
}

#[test]
fn c_batch_requests_have_individual_results() {
    let Some(installed) = install() else { return };
    assert_eq!(installed.run("tests/batch.c", || None), "every request has its result\n");
}

#[test]
fn header_compiles_alone_as_strict_c99() {
    let Some(installed) = install() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/header.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror"]);
    compiler.arg(&source).arg("-o").arg(installed.path("c99")).args(installed.of_pkg_config());
    succeed(&mut compiler);
    succeed(Command::new(installed.path("c99")).env("LD_LIBRARY_PATH", installed.path("lib")));
}

#[test]
fn cpp_program_uses_files_and_zones() {
    let Some(installed) = install() else { return };
    let Ok(_) = Command::new("c++").arg("--version").output() else {
        println!("SKIP: there is no C++ compiler, c++");
        return;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.cpp");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror"]).arg(&source);
    compiler.arg("-o").arg(installed.path("cpp")).args(installed.of_pkg_config());
    succeed(&mut compiler);
    let mut program = Command::new(installed.path("cpp"));
    let printed = succeed(program.env("LD_LIBRARY_PATH", installed.path("lib")));
    assert_eq!(printed, "files and zones from C++\n");
}

#[test]
fn c_guide_code_equals_examples_and_output() {
    let examples: String = ["files", "memory", "zones"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.c")))
        .map(|path| fs::read_to_string(path).unwrap())
        .concat();
    let shown = blocks("c");
    assert!(shown.len() >= 4);
    for block in shown {
        assert!(examples.contains(&block), "no example has this code:\n{block}");
    }
    assert_eq!(blocks("text"), [ZONES_PRINTS]);
}
