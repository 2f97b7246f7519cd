//! Marks of unfinished work, which do not reach the main branch.

use std::path::Path;

use anyhow::Result;

use super::{by_line, refuse};

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
    let mark =
        |line: &str| MARKS.iter().find(|mark| line.contains(**mark)).map(ToString::to_string);
    refuse(root, &[".rs", ".md", ".toml", ".sh", ".trycmd"], |_, text| by_line(text, mark))
}
