//! Sizes of source files, and their headers. Functions are clippy's (`too_many_lines`).

use std::path::Path;

use anyhow::Result;

use super::refuse;

/// Lines of a file without its tests: beyond this nobody keeps it in mind.
const LINES_MAX: usize = 600;

/// Lines from which a file is named in the report.
const LINES_NOTED: usize = 450;

/// Measures every source file.
pub(super) fn check(root: &Path) -> Result<()> {
    refuse(root, &[".rs"], |path, text| {
        let mut wrong = Vec::new();
        if !text.starts_with("//! ") {
            wrong.push(" does not begin with `//!`: what it is, what it guarantees".to_owned());
        }
        let lines = lines_without_tests(text);
        if lines > LINES_MAX {
            wrong.push(format!(" has {lines} lines without tests, over {LINES_MAX}"));
        } else if lines > LINES_NOTED {
            let name = path.strip_prefix(root).unwrap_or(path).display();
            println!("  {name} has {lines} lines without tests");
        }
        wrong
    })
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
