//! The commands of the guide's page for users of ZenFS, run as they stand there.

use std::path::Path;
use std::process::Command;

use crate::place::{library, output};

#[test]
fn commands_of_page_for_zenfs_users_work() {
    let Some(library) = library() else { return };
    // `cargo test --workspace` builds it; for this package alone cargo does not.
    let built = library.parent().and_then(Path::parent).unwrap();
    if !built.join("zonal").is_file() {
        println!("SKIP: {} has no zonal", built.display());
        return;
    }
    let page = include_str!("../../../../docs/guide/applications/zenfs.md");
    let blocks: Vec<String> = page
        .split("```")
        .filter_map(|block| block.strip_prefix("sh\n"))
        .map(|block| {
            let installed = "/usr/lib/zonal/libzonal_rocksdb.so";
            block.replace(installed, library.to_str().unwrap())
        })
        .collect();
    let [make, look, copy, zonefs] = &blocks[..] else { panic!("{blocks:?}") };
    let folder = tempfile::tempdir().unwrap();
    let run = |block: &str| {
        let path = format!("{}:{}", built.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", block]).current_dir(&folder).env("PATH", path);
        output(&mut shell)
    };
    let said = run(make);
    assert!(said.contains("fillrandom "), "{said}");
    let said = run(look);
    assert!(said.contains("/CURRENT") || said.contains(" CURRENT"), "{said}");
    assert!(said.contains("drive.zns: clean"), "{said}");
    let said = run(copy);
    assert!(said.contains("OK"), "{said}");
    assert!(folder.path().join("backup/CURRENT").is_file());
    let said = run(zonefs);
    assert!(said.contains("overwrite ") && said.contains(".sst"), "{said}");
}
