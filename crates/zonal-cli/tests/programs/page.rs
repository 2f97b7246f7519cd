//! The commands of a page of the guide about applications, run as they stand there.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{run, text};

/// The blocks of shell commands of a page.
pub(crate) fn blocks(page: &str) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/applications");
    let page = fs::read_to_string(guide.join(page)).unwrap();
    let mut parts = page.split("```");
    // The text before the first block, then each block and the text behind it.
    let mut blocks = Vec::new();
    parts.next();
    while let Some(block) = parts.next() {
        blocks.extend(block.strip_prefix("sh\n").map(ToOwned::to_owned));
        parts.next();
    }
    blocks
}

/// Runs a block in a directory, with `zonal` and these directories on the search path.
pub(crate) fn run_block(block: &str, dir: &Path, folders: &[&Path], mut shell: Command) -> String {
    let zonal = Path::new(env!("CARGO_BIN_EXE_zonal")).parent().unwrap();
    let mut path = vec![text(zonal).to_owned()];
    path.extend(folders.iter().map(|folder| text(folder).to_owned()));
    path.push(std::env::var("PATH").unwrap());
    shell.args(["-eu", "-c", block]).current_dir(dir);
    run(shell.env("PATH", path.join(":")))
}
