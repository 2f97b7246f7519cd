//! The commands of the guide print what the guide shows.
//!
//! Each page runs in a directory of its own that holds `words.txt` and `msr.csv`.

use std::fs;
use std::path::Path;

#[test]
fn the_guide_tells_the_truth() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces");
    let place = tempfile::tempdir().unwrap();
    let pages = ["devices", "furrow", "zonefs", "faults", "sim", "sim-drive", "sim-sweeps"];
    let pages = pages.map(|page| (page, guide.join(format!("{page}.md"))));
    for (page, path) in pages.into_iter().chain([("json", guide.join("../json.md"))]) {
        // trycmd gives a page a directory of its own, copied from `.in`, if there is an `.out`.
        for ending in ["in", "out"] {
            let folder = place.path().join(format!("{page}.{ending}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("words.txt"), "one two three\n").unwrap();
            fs::copy(traces.join("msr.csv"), folder.join("msr.csv")).unwrap();
        }
        fs::copy(path, place.path().join(format!("{page}.md"))).unwrap();
    }
    trycmd::TestCases::new().case(place.path().join("*.md").to_str().unwrap());
}
