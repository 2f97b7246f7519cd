//! The map as one self-contained page: the zones as a grid, and the files of each.

use anyhow::{Context, Result};
use serde::Serialize;

use super::ZoneContent;

/// The page. `TITLE` and `DATA` are the places of the title and of [`Data`].
const PAGE: &str = include_str!("page.html");

/// Files of a zone that the page lists: those with most bytes.
pub(super) const FILES_MAX: usize = 64;

/// What the script of the page reads. Short names: a large drive has a hundred thousand zones.
#[derive(Serialize)]
struct Data<'a> {
    files: Vec<String>,
    zones: Vec<ZoneData<'a>>,
}

#[derive(Serialize)]
struct ZoneData<'a> {
    /// Its use.
    u: &'a str,
    /// Percentage written.
    w: f64,
    /// Percentage used.
    f: Option<f64>,
    /// Files: place in `files`, and bytes.
    c: Vec<(usize, u64)>,
    /// Files that are not listed.
    m: usize,
}

/// The page of a map.
pub(super) fn page(title: &str, zones: &[ZoneContent]) -> Result<String> {
    let mut numbers = std::collections::BTreeMap::new();
    let mut files = Vec::new();
    let mut number_of = |file: &super::FileContent| {
        *numbers.entry(file.inode).or_insert_with(|| {
            files.push(file.name());
            files.len() - 1
        })
    };
    let zones = zones
        .iter()
        .map(|zone| ZoneData {
            u: zone.zone_use,
            w: zone.written_percent,
            f: zone.used_percent,
            c: zone.contents.iter().take(FILES_MAX).map(|f| (number_of(f), f.bytes)).collect(),
            m: zone.contents.len().saturating_sub(FILES_MAX),
        })
        .collect();
    let data =
        serde_json::to_string(&Data { files, zones }).context("turning the map into JSON")?;
    // A name may have the end of a script in it.
    let data = data.replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let (head, tail) = PAGE.split_once("DATA").expect("the page has a place for it");
    Ok(format!("{}{data}{tail}", head.replace("TITLE", &title)))
}

#[cfg(test)]
mod tests {
    use super::super::FileContent;
    use super::*;

    #[test]
    fn page_escapes_names_and_counts_files_that_it_leaves_out() {
        let file = |inode| FileContent {
            path: Some(format!("/</script>{inode}").into()),
            inode,
            bytes: 4096,
            places: Vec::new(),
        };
        let zone = ZoneContent {
            zone: 0,
            zone_use: "data",
            written_percent: 100.0,
            used_percent: Some(3.0),
            contents: (0..70).map(file).collect(),
        };
        let page = page("<b>&DATA", &[zone]).unwrap();
        assert!(
            page.contains("<h1>Zones of &lt;b>&amp;DATA</h1>") && page.contains("\"m\":6"),
            "{page}"
        );
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
