//! Sizes of source files, and their headers. Functions are clippy's (`too_many_lines`).

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{files, shown};

/// Lines of a file without its tests: beyond this nobody keeps it in mind.
const LINES_MAX: usize = 600;

/// Lines from which a file is named in the report.
const LINES_NOTED: usize = 450;

/// Measures every source file.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for path in files(root, &[".rs"])? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let name = shown(root, &path);
        if !text.starts_with("//! ") {
            wrong.push(format!("{name} does not begin with `//!`: what it is, what it guarantees"));
        }
        let lines = lines_without_tests(&text);
        if lines > LINES_MAX {
            wrong.push(format!("{name} has {lines} lines without tests, over {LINES_MAX}"));
        } else if lines > LINES_NOTED {
            println!("  {name} has {lines} lines without tests");
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Lines up to the test module, which is the last thing in a file.
fn lines_without_tests(text: &str) -> usize {
    text.lines()
        .zip(text.lines().skip(1).chain([""]))
        .position(|(line, next)| line == "#[cfg(test)]" && next.starts_with("mod "))
        .unwrap_or_else(|| text.lines().count())
}

#[cfg(test)]
mod tests {
    use super::lines_without_tests;

    #[test]
    fn the_test_module_does_not_count() {
        let text = "//! a\n\n#[cfg(test)]\nuse b;\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(lines_without_tests(text), 5);
        assert_eq!(lines_without_tests("//! a\n"), 1);
    }
}
