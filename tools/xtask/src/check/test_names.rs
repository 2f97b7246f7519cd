//! Names of tests: a subject, a condition and an expectation, so that they sort by subject and a
//! subject finds its tests.

use std::path::Path;

use anyhow::Result;

use super::refuse;

/// Characters of a name, at most: a longer one is a sentence.
const LENGTH_MAX: usize = 60;

/// First words that name no subject.
const NO_SUBJECT: [&str; 17] = [
    "a", "all", "an", "each", "every", "it", "no", "nobody", "nothing", "only", "so", "the",
    "there", "they", "what", "where", "who",
];

/// Looks at the name of every test.
pub(super) fn check(root: &Path) -> Result<()> {
    refuse(root, &[".rs"], |_, text| wrong(text))
}

/// The tests of a file with a wrong name, each with its line.
fn wrong(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (line, at) in text.lines().map(str::trim_start).zip(1..) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(name) = line.strip_prefix("fn ").filter(|_| is_test) {
            is_test = false;
            let name = name.split('(').next().unwrap_or(name);
            found.extend(fault(name).map(|why| format!(":{at}: {name} {why}")));
        }
    }
    found
}

/// Why a name is refused.
fn fault(name: &str) -> Option<String> {
    let first = name.split('_').next().unwrap_or(name);
    if name.len() > LENGTH_MAX {
        Some(format!("has more than {LENGTH_MAX} characters"))
    } else if NO_SUBJECT.contains(&first) {
        Some(format!("begins with `{first}` instead of its subject"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{fault, wrong};

    #[test]
    fn test_name_begins_with_subject_within_60_characters() {
        assert!(fault("size_parse_rejects_invalid").is_none());
        assert!(fault("what_is_no_size_is_refused").is_some_and(|why| why.contains("`what`")));
        assert!(fault("the").is_some() && fault("theory_holds").is_none());
        assert!(fault(&"x".repeat(60)).is_none() && fault(&"x".repeat(61)).is_some());
    }

    #[test]
    fn test_name_is_that_of_function_with_attribute() {
        let text =
            "fn a_helper() {}\n#[test]\n#[ignore = \"slow\"]\nfn a_test() {\n    fn b() {}\n}\n";
        assert_eq!(wrong(text).len(), 1);
        assert!(wrong(text)[0].starts_with(":4: a_test "));
    }
}
