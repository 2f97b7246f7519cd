//! The manual pages that `zonal man` writes, as man(1) shows them: groff formats each without a
//! warning, and the reader sees no Markdown. Skipped where groff is missing.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every page, in a directory of its own.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let status = Command::new(env!("CARGO_BIN_EXE_zonal")).arg("man").arg(folder).status();
    assert!(status.unwrap().success());
    let mut pages: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 40, "{pages:?}");
    pages
}

#[test]
fn manual_pages_format_without_warning_or_markdown() {
    if Command::new("groff").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIP: groff is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let mut groff = Command::new("groff");
        // All warnings, except for lines that groff cannot fill evenly.
        groff.args(["-man", "-Tutf8", "-k", "-ww", "-Wbreak", "-P-cbou"]).arg(&page);
        let output = groff.env("LC_ALL", "C.UTF-8").output().unwrap();
        let warnings = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && warnings.is_empty(), "{name}: {warnings}");
        let text = String::from_utf8(output.stdout).unwrap();
        for markdown in ["`", "**", "](", "\n#", "\n- ", "\\-", "\\f"] {
            assert!(!text.contains(markdown), "{name} has {markdown:?}:\n{text}");
        }
        for heading in ["NAME", "SYNOPSIS", "FILES", "EXAMPLES", "SEE ALSO"] {
            assert!(text.contains(&format!("\n{heading}\n")), "{name}: no {heading}:\n{text}");
        }
    }
}

#[test]
fn manual_synopsis_names_option_values() {
    let folder = tempfile::tempdir().unwrap();
    pages(folder.path());
    let page = fs::read_to_string(folder.path().join("zonal-mount.1")).unwrap();
    let (_, synopsis) = page.split_once(".SH SYNOPSIS").unwrap();
    let (synopsis, _) = synopsis.split_once(".SH").unwrap();
    let synopsis = ["\\fB", "\\fI", "\\fR"]
        .iter()
        .fold(synopsis.to_owned(), |text, font| text.replace(font, ""));
    for part in ["[\\-\\-type TYPE]", "[\\-o OPTIONS ...]", "[\\-\\-log FILE]", "DEVICE", "DIR"] {
        assert!(synopsis.contains(part), "{part}: {synopsis}");
    }
}
