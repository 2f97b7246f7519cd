//! The examples work as their comments say, and the guide shows their code.

use std::fs;
use std::path::Path;

#[path = "../examples/append_log.rs"]
#[allow(dead_code, reason = "main is the example's")]
mod append_log;
#[path = "../examples/files.rs"]
#[allow(dead_code, reason = "main is the example's")]
mod files;
#[path = "../examples/list.rs"]
#[allow(dead_code, reason = "main is the example's")]
mod list;
#[path = "../examples/streams.rs"]
#[allow(dead_code, reason = "main is the example's")]
mod streams;

use zonal::Rules;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::profile::Changes;

/// The examples of the guide, in its order.
const EXAMPLES: [&str; 4] = ["files", "streams", "append_log", "list"];

fn page() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(here.join("../../docs/guide/use/library.md"))
        .expect("the page is in the repository")
}

#[test]
fn example_files_are_written_read_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.zns");
    let geometry = "zone=3M,zones=64".parse::<Changes>().unwrap().geometry().unwrap();
    let overwrite = Overwrite::Refuse;
    let options = CreateOptions { geometry, rules: Rules::Zns, uuid: [1; 16], overwrite };
    FileDrive::create(&path, &options).unwrap();
    let spec = path.to_str().unwrap();
    for _ in 0..2 {
        assert_eq!(files::run(spec).unwrap(), "written as a whole\nin the middle\n");
    }
    let listed = list::run(spec).unwrap();
    assert!(listed.starts_with("/notes/today/first 19\n"), "{listed}");
    assert!(listed.contains("inodes\n") && listed.contains(" are free\n"), "{listed}");
}

#[test]
fn example_append_log_keeps_synced_records() {
    let told = append_log::run().unwrap();
    assert_eq!(told, "400 records synced, every one is there and whole\n");
}

#[test]
fn example_stream_writes_and_reads() {
    assert_eq!(streams::run().unwrap(), "10436 bytes, the last line is 1000 1000000\n");
}

/// The commands of the guide name the examples that the tests above run.
#[test]
fn guide_runs_the_examples() {
    let page = page();
    let commands = page.split("cargo run -p zonal-fs --example ").skip(1);
    let named: Vec<&str> =
        commands.map(|rest| rest.split([' ', '`', '\n']).next().unwrap()).collect();
    assert_eq!(named, EXAMPLES);
}

#[test]
fn guide_shows_code_of_examples() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = page();
    let examples: String = EXAMPLES
        .map(|name| fs::read_to_string(here.join(format!("examples/{name}.rs"))).unwrap())
        .concat();
    let blocks: Vec<&str> = page
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split_once("```").expect("the block ends").0)
        .collect();
    assert!(blocks.len() >= EXAMPLES.len());
    for block in blocks {
        assert!(examples.contains(block), "no example has this code:\n{block}");
    }
}
