//! Documents with tables that are printed from something else, so that the two cannot differ.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Some documents, and how their tables are printed.
pub(crate) struct Printed<F> {
    pub(crate) documents: Vec<PathBuf>,
    /// The text of a document as it should be.
    pub(crate) render: F,
    /// The source of the tables.
    pub(crate) source: &'static str,
    /// The command that prints them.
    pub(crate) command: &'static str,
}

impl<F: Fn(&str) -> Result<String>> Printed<F> {
    /// Writes the tables into the documents.
    pub(crate) fn refresh(&self) -> Result<()> {
        for (path, new) in self.differing()? {
            fs::write(&path, new).with_context(|| format!("writing {}", path.display()))?;
            println!("refreshed {}", path.display());
        }
        Ok(())
    }

    /// Fails with the documents that differ from the source.
    pub(crate) fn compare(&self) -> Result<()> {
        let differ: Vec<String> =
            self.differing()?.iter().map(|(path, _)| format!("{}\n", path.display())).collect();
        let (differ, Self { source, command, .. }) = (differ.concat(), self);
        ensure!(differ.is_empty(), "{differ}differs from {source}: `{command}` refreshes it");
        Ok(())
    }

    /// Every document that is not as it should be, and how it should be.
    fn differing(&self) -> Result<Vec<(PathBuf, String)>> {
        let mut found = Vec::new();
        for path in &self.documents {
            let shown = || format!("in {}", path.display());
            let old = fs::read_to_string(path).with_context(shown)?;
            let new = (self.render)(&old).with_context(shown)?;
            if old != new {
                found.push((path.clone(), new));
            }
        }
        found.sort();
        Ok(found)
    }
}

/// The files of a folder.
pub(crate) fn files_of(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
