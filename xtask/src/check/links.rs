//! Links of the documents to files of the workspace: each must lead somewhere.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{files, shown};

/// Follows every relative link.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut broken = Vec::new();
    for path in files(root, &[".md"])? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let folder = path.parent().unwrap_or(root);
        for target in targets(&text) {
            if !folder.join(target).exists() {
                broken.push(format!("{}: {target} does not exist", shown(root, &path)));
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

/// Targets of `[text](target)` that are files: no address of the web, no bare anchor.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split_once(')')?.0;
        let file = target.split_once('#').map_or(target, |(file, _)| file);
        (!file.is_empty() && !file.contains("://") && !file.starts_with("mailto:")).then_some(file)
    })
}

#[cfg(test)]
mod tests {
    use super::targets;

    #[test]
    fn only_files_are_targets() {
        let text = "[a](b.md#c) and [d](https://e.f) and [g](#h) and [i](../j.md)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["b.md", "../j.md"]);
    }
}
