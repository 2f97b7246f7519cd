//! The byte tables of `docs/format/`, printed from the structs so that they cannot differ.
//!
//! A document asks for a table with a pair of comments; what stands between them is replaced:
//!
//! ```text
//! <!-- bytes: crates/zonal/src/file.rs Header -->
//! <!-- end -->
//! ```
//!
//! The meaning of a field is the first paragraph of its documentation. `layout.rs` computes offsets.

mod layout;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use layout::Sources;

const OPEN: &str = "<!-- bytes: ";
const CLOSE: &str = "<!-- end -->";

/// Writes the tables into the documents.
pub(crate) fn refresh(root: &Path) -> Result<()> {
    for (path, old, new) in rendered(root)? {
        if old != new {
            std::fs::write(&path, new).with_context(|| format!("writing {}", path.display()))?;
            println!("refreshed {}", path.display());
        }
    }
    Ok(())
}

/// Says which documents differ from the code.
pub(crate) fn compare(root: &Path) -> Result<()> {
    let differ: Vec<String> = rendered(root)?
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(path, ..)| format!("{} differs from the code", path.display()))
        .collect();
    if !differ.is_empty() {
        bail!("{}\n`cargo xtask docs` refreshes them", differ.join("\n"));
    }
    Ok(())
}

/// Every document of `docs/format` as it is and as it should be.
fn rendered(root: &Path) -> Result<Vec<(PathBuf, String, String)>> {
    let folder = root.join("docs/format");
    let mut all = Vec::new();
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(all) };
    for entry in entries {
        let path = entry.with_context(|| format!("listing {}", folder.display()))?.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            let old = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            let new = render(root, &old).with_context(|| format!("in {}", path.display()))?;
            all.push((path, old, new));
        }
    }
    all.sort();
    Ok(all)
}

fn render(root: &Path, text: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (request, after) = after.split_once("-->").context("a comment is not closed")?;
        let (_, after) = after.split_once(CLOSE).with_context(|| format!("no `{CLOSE}`"))?;
        let (file, name) =
            request.trim().split_once(' ').context("a table needs a file and a struct")?;
        let table = Sources::of_crate(root, file)?.table(name)?;
        for part in [before, OPEN, file, " ", name, " -->\n", &table, CLOSE] {
            out.push_str(part);
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
