//! The commands of the guide print the output that it shows.
//!
//! Each page runs in a directory of its own that holds `words.txt` and `msr.csv`.

use std::fs;
use std::path::Path;

/// Pages below `docs/` whose commands run here. Other tests run pages that need a mount, root or
/// other programs.
const PAGES: [&str; 16] = [
    "guide/use/devices",
    "guide/use/disks",
    "guide/use/doctor",
    "guide/use/furrow",
    "guide/use/map",
    "guide/use/metadata-drive",
    "guide/use/smr-disks",
    "guide/use/zonefs",
    "guide/operate/capacity",
    "guide/operate/compliance",
    "guide/operate/split-and-join",
    "guide/lab/faults",
    "guide/lab/sim",
    "guide/lab/sim-drive",
    "guide/lab/sim-sweeps",
    "json",
];

#[test]
fn guide_commands_print_what_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let traces = root.join("fixtures/traces");
    let place = tempfile::tempdir().unwrap();
    for page in PAGES {
        // Names of files differ from page to page.
        let name = page.replace('/', "-");
        // trycmd gives a page a directory of its own, copied from `.in`, if there is an `.out`.
        for ending in ["in", "out"] {
            let folder = place.path().join(format!("{name}.{ending}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("words.txt"), "one two three\n").unwrap();
            fs::copy(traces.join("msr.csv"), folder.join("msr.csv")).unwrap();
        }
        let source = root.join("docs").join(format!("{page}.md"));
        fs::copy(source, place.path().join(format!("{name}.md"))).unwrap();
    }
    trycmd::TestCases::new().case(place.path().join("*.md").to_str().unwrap());
}
