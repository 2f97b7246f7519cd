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
    /// Writes the tables into the documents, as far as they can be printed.
    pub(crate) fn refresh(&self) -> Result<()> {
        let (differing, errors) = self.differing();
        for (path, new) in differing {
            fs::write(&path, new).with_context(|| format!("writing {}", path.display()))?;
            println!("refreshed {}", path.display());
        }
        ensure!(errors.is_empty(), "{}", errors.join("\n"));
        Ok(())
    }

    /// Fails with the documents that differ from the source.
    pub(crate) fn compare(&self) -> Result<()> {
        let (differing, errors) = self.differing();
        ensure!(errors.is_empty(), "{}", errors.join("\n"));
        let differ: Vec<String> =
            differing.iter().map(|(path, _)| format!("{}\n", path.display())).collect();
        let (differ, Self { source, command, .. }) = (differ.concat(), self);
        ensure!(differ.is_empty(), "{differ}differs from {source}: `{command}` refreshes it");
        Ok(())
    }

    /// Every document that is not as it should be, and how it should be; and the errors of others.
    fn differing(&self) -> (Vec<(PathBuf, String)>, Vec<String>) {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for path in &self.documents {
            let old = fs::read_to_string(path).map_err(anyhow::Error::from);
            match old.and_then(|old| Ok(((self.render)(&old)?, old))) {
                Ok((new, old)) if new != old => found.push((path.clone(), new)),
                Ok(_) => {}
                Err(error) => errors.push(format!("in {}: {error:#}", path.display())),
            }
        }
        found.sort();
        (found, errors)
    }
}

/// The files of a folder.
pub(crate) fn files_of(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
