//! Sizes of source files, and their headers. Functions are clippy's (`too_many_lines`).

use std::path::Path;

use anyhow::Result;

use super::refuse;

/// Lines of a file without its tests: a reader cannot keep a longer one in mind.
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
        wrong.extend(stray_test_module(text));
        let lines = lines_without_tests(text);
        if lines > LINES_MAX {
            wrong.push(format!(" has {lines} lines without tests, over {LINES_MAX}"));
        } else if lines > LINES_NOTED {
            println!("  {path} has {lines} lines without tests");
        }
        wrong
    })
}

/// Lines up to the test module, which is the last thing in a file unless it has a file of its own.
fn lines_without_tests(text: &str) -> usize {
    text.lines()
        .zip(text.lines().skip(1).chain([""]))
        .position(|(line, next)| {
            line == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{')
        })
        .unwrap_or_else(|| text.lines().count())
}

/// A test module that has a file of its own and is not called `tests`: then the path of the file
/// does not show that it is test code.
fn stray_test_module(text: &str) -> Option<String> {
    text.lines().zip(text.lines().skip(1)).find_map(|(line, next)| {
        let declared = next.strip_suffix(';')?;
        let (_, name) = declared.rsplit_once("mod ")?;
        (line == "#[cfg(test)]" && name != "tests")
            .then(|| format!(" has the test module `{name}` in a path without `tests`"))
    })
}

#[cfg(test)]
mod tests {
    use super::{lines_without_tests, stray_test_module};

    #[test]
    fn size_excludes_test_module() {
        let text = "//! a\n\n#[cfg(test)]\nuse b;\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(lines_without_tests(text), 5);
        assert_eq!(lines_without_tests("//! a\n"), 1);
        let declared = "//! a\n\n#[cfg(test)]\nmod tests;\n\nfn product() {}\n";
        assert_eq!(lines_without_tests(declared), 6);
    }

    #[test]
    fn test_module_outside_tests_path_is_refused() {
        let declared = |name: &str| format!("//! a\n\n#[cfg(test)]\n{name};\n");
        assert!(
            stray_test_module(&declared("mod model")).is_some_and(|why| why.contains("`model`"))
        );
        assert!(stray_test_module(&declared("pub(super) mod sample")).is_some());
        assert!(stray_test_module(&declared("mod tests")).is_none());
        assert!(stray_test_module("//! a\n\nmod model;\n").is_none());
        assert!(stray_test_module("#[cfg(test)]\nmod tests {\n    use a;\n").is_none());
    }
}
