//! Words that were retired: the table at the end of `docs/terms.md` lists them, and they appear
//! nowhere else.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{by_line, refuse};

const TERMS: &str = "docs/terms.md";
const HEADING: &str = "## Retired";

/// Looks for retired words in source and documents.
pub(super) fn check(root: &Path) -> Result<()> {
    let terms = std::fs::read_to_string(root.join(TERMS)).context(TERMS)?;
    let retired = retired(&terms);
    ensure!(!retired.is_empty(), "{TERMS} lists no words under `{HEADING}`");
    let word = |line: &str| {
        let word = retired.iter().find(|word| has_word(line, word))?;
        Some(format!("{word}, see {TERMS}"))
    };
    refuse(root, &[".rs", ".md", ".toml", ".trycmd"], |path, text| {
        if path == TERMS { Vec::new() } else { by_line(text, word) }
    })
}

/// The words in the first column of the table below the heading.
fn retired<'a>(terms: &'a str) -> Vec<&'a str> {
    let Some((_, table)) = terms.split_once(HEADING) else { return Vec::new() };
    let word = |line: &'a str| Some(line.strip_prefix("| `")?.split_once('`')?.0);
    table.lines().filter_map(word).collect()
}

/// Whether `word` is in `line`, and no part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let is_edge =
        |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric() && next != '_');
    line.match_indices(word).any(|(at, _)| {
        is_edge(line[..at].chars().next_back()) && is_edge(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_first_column() {
        let terms = "# Terms\n| `kept` | a |\n## Retired\n| not | we write |\n| `old` | `new` |\n";
        assert_eq!(retired(terms), ["old"]);
    }

    #[test]
    fn word_matches_whole_words_only() {
        assert!(has_word("fn old() {", "old"));
        assert!(has_word("in two words", "two words"));
        assert!(!has_word("bold, older, old_age", "old"));
    }
}
