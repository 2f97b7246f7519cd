//! Marks of unfinished work, which do not reach the main branch.

use std::path::Path;

use anyhow::Result;

use super::refuse_lines;

/// Written in two halves, so that this file passes its own check.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("dbg", "!("),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("<<<<", "<<< "),
    concat!(">>>>", ">>> "),
];

/// Looks for the marks in source and documents.
pub(super) fn check(root: &Path) -> Result<()> {
    refuse_lines(root, &[".rs", ".md", ".toml", ".sh", ".trycmd"], |_, line| {
        MARKS.iter().find(|mark| line.contains(**mark)).map(|mark| (*mark).to_owned())
    })
}
