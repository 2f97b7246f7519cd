//! Links of the documents to files of the workspace: each must lead somewhere.

use std::path::Path;

use anyhow::Result;

use super::refuse;

/// Follows every relative link.
pub(super) fn check(root: &Path) -> Result<()> {
    refuse(root, &[".md"], |path, text| {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        let broken = targets(text).filter(|target| !folder.join(target).exists());
        broken.map(|target| format!(": {target} does not exist")).collect()
    })
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
    fn link_targets_are_files_only() {
        let text = "[a](b.md#c) and [d](https://e.f) and [g](#h) and [i](../j.md)";
        assert_eq!(targets(text).collect::<Vec<_>>(), ["b.md", "../j.md"]);
    }
}
