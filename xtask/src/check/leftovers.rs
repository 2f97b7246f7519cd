//! Marks of unfinished work, which do not reach the main branch.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{files, shown};

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
    let mut found = Vec::new();
    for path in files(root, &[".rs", ".md", ".toml", ".sh", ".trycmd"])? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        for (index, line) in text.lines().enumerate() {
            if let Some(mark) = MARKS.iter().find(|mark| line.contains(**mark)) {
                found.push(format!("{}:{}: {mark}", shown(root, &path), index + 1));
            }
        }
    }
    if found.is_empty() { Ok(()) } else { bail!("{}", found.join("\n")) }
}
