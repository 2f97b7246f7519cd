//! The commands of the page about fio, run as they stand there.

use std::path::Path;
use std::process::Command;

/// Path of the engine after the installation of the package.
const INSTALLED: &str = "/usr/lib/zonal/libzonal_fio.so";

#[test]
fn fio_page_commands_work() {
    let version = Command::new("fio").arg("--version").output();
    let version = version.map(|output| String::from_utf8(output.stdout).unwrap());
    let Ok(version) = version else {
        println!("SKIP: there is no fio");
        return;
    };
    if let Err(error) = zonal_fio::abi::release(version.trim()) {
        println!("SKIP: {error}");
        return;
    }
    // cargo builds the library into the directory of the tests.
    let test = std::env::current_exe().unwrap();
    let engine = test.parent().unwrap().join("libzonal_fio.so");
    let zonal = Path::new(env!("CARGO_BIN_EXE_zonal")).parent().unwrap();
    let path = format!("{}:{}", zonal.display(), std::env::var("PATH").unwrap());
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lab/fio.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> =
        page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let place = tempfile::tempdir().unwrap();
    let mut said = String::new();
    for block in &blocks {
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", &block.replace(INSTALLED, engine.to_str().unwrap())]);
        let output = shell.current_dir(place.path()).env("PATH", &path).output().unwrap();
        said += &String::from_utf8_lossy(&output.stdout);
        said += &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{block}: {said}");
    }
    assert_eq!(blocks.len(), 2);
    assert!(said.contains("zone size      3 MiB, not a power of two"), "{said}");
    assert_eq!(said.matches("err= ").count(), 3, "{said}");
}
