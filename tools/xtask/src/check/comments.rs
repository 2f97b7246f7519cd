//! Comments are sentences with a subject, and fit into 100 columns.
//!
//! Clauses that begin with "what is", "who has" or "those that" name no subject. A crate may have
//! few of them per 1,000 lines of comments: some are questions, or quote a message.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use regex_lite::Regex;

use super::{by_line, refuse, texts};

/// Most headless clauses per 1,000 lines of comments in a crate.
const HEADLESS_MAX: usize = 6;
/// Most columns of a line of comment, as rustfmt's `max_width`.
const COLUMNS_MAX: usize = 100;

/// A clause without a subject, up to the word after its head.
const CLAUSE: &str = concat!(
    r"(?i)\b(what|who|whoever|those (that|who|of)|that which) ",
    r"(a|an|the|it|they|is|was|were|are|has|had|have|does|takes|needs|gives|holds|no|others?) "
);

/// Lines of comment in a crate, and the headless clauses in them.
#[derive(Default)]
struct Count {
    lines: usize,
    headless: Vec<String>,
}

/// Refuses wide lines of comment, but for rows of tables, which cannot wrap.
pub(super) fn check_columns(root: &Path) -> Result<()> {
    let wide = |line: &str| {
        comment(line).filter(|words| !words.starts_with(" |"))?;
        let columns = line.chars().count();
        (columns > COLUMNS_MAX).then(|| format!("a comment of {columns} columns"))
    };
    refuse(root, &[".rs"], |_, text| by_line(text, wide))
}

/// Counts headless clauses per crate, and refuses too many of them.
pub(super) fn check_subjects(root: &Path) -> Result<()> {
    let clause = Regex::new(CLAUSE).context("the pattern of a clause")?;
    let mut crates: BTreeMap<String, Count> = BTreeMap::new();
    for (path, text) in texts(root, &[".rs"])? {
        let count = crates.entry(crate_of(&path)).or_default();
        for (line, at) in text.lines().zip(1..) {
            let Some(comment) = comment(line) else { continue };
            count.lines += 1;
            let found = || format!("  {path}:{at}: {}", line.trim());
            count.headless.extend(clause.find_iter(comment).map(|_| found()));
        }
    }
    let mut wrong = Vec::new();
    for (name, Count { lines, headless }) in &crates {
        let allowed = lines * HEADLESS_MAX / 1000;
        if headless.len() > allowed {
            let count = headless.len();
            wrong.push(format!(
                "{name}: {count} clauses without a subject in {lines} lines of comments, at most \
                 {allowed}: name the subject\n{}",
                headless.join("\n")
            ));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// The folder of a crate: `crates/zonal-fs`, `tools/xtask`, `fuzz`.
fn crate_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let depth = if matches!(parts[0], "crates" | "tools") { 2 } else { 1 };
    parts[..depth.min(parts.len())].join("/")
}

/// The words of a line that is a comment and nothing else.
fn comment(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headless_clauses_are_counted() {
        let clause = Regex::new(CLAUSE).expect("a pattern");
        for (comment, count) in [
            (" Says what is missing, and who has the rest.", 2),
            (" (what the kernel sends) and those that are dropped", 2),
            (" Names the zone that a write goes to.", 0),
            (" What happens to blocks whose zone fails?", 0),
        ] {
            assert_eq!(clause.find_iter(comment).count(), count, "{comment}");
        }
    }

    #[test]
    fn comment_is_whole_line_only() {
        assert_eq!(comment("    /// Words."), Some(" Words."));
        assert_eq!(comment("    let a = 1; // Words."), None);
    }

    #[test]
    fn crate_is_folder_below_crates_or_tools() {
        assert_eq!(crate_of("crates/zonal-fs/src/lib.rs"), "crates/zonal-fs");
        assert_eq!(crate_of("fuzz/targets.rs"), "fuzz");
    }
}
