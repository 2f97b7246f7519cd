//! The rules of `zonal compliance` that drives break, as `docs/compliance.md` explains them: rows
//! `| drives | rules | what happens |` of a table, each about one deviation.
//!
//! A row names drives and rules, separated by commas; a rule may have one `*`, which stands for
//! anything.

use anyhow::{Result, ensure};

/// Fails unless `drive` breaks exactly the rules that the document has for it.
pub fn compare(document: &str, drive: &str, broken: &[&str]) -> Result<()> {
    let patterns = patterns(document, drive);
    let explains = |rule: &&str| patterns.iter().any(|pattern| matches(pattern, rule));
    let unexplained: Vec<&&str> = broken.iter().filter(|rule| !explains(rule)).collect();
    ensure!(unexplained.is_empty(), "{drive} breaks rules that no row explains: {unexplained:#?}");
    let is_seen = |pattern: &&&str| broken.iter().any(|rule| matches(pattern, rule));
    let unseen: Vec<&&str> = patterns.iter().filter(|pattern| !is_seen(pattern)).collect();
    ensure!(unseen.is_empty(), "{drive} follows rules that a row says it breaks: {unseen:#?}");
    Ok(())
}

/// The rules of a drive in the table.
fn patterns<'a>(document: &'a str, drive: &str) -> Vec<&'a str> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    rows.filter(|(drives, _)| drives.split(", ").any(|name| name == drive))
        .filter_map(|(_, rest)| rest.split_once(" | "))
        .flat_map(|(rules, _)| rules.split(", "))
        .filter_map(|rule| rule.strip_prefix('`')?.strip_suffix('`'))
        .collect()
}

fn matches(pattern: &str, rule: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == rule,
        Some((head, tail)) => {
            rule.len() >= head.len() + tail.len() && rule.starts_with(head) && rule.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "| drives | rules | what happens |\n| --- | --- | --- |\n\
                            | one, other | `a.b`, `c.*.d` | because |\n| other | `e` | also |\n";

    #[test]
    fn rules_of_a_drive_are_those_of_its_rows() {
        assert_eq!(patterns(DOCUMENT, "one"), ["a.b", "c.*.d"]);
        assert_eq!(patterns(DOCUMENT, "other"), ["a.b", "c.*.d", "e"]);
        assert!(patterns(DOCUMENT, "third").is_empty());
    }

    #[test]
    fn star_covers_any_middle() {
        assert!(matches("a.*.c", "a.b.c") && matches("a.b", "a.b") && matches("a.*", "a.b"));
        assert!(!matches("a.*.c", "a.c") && !matches("a.b", "a.bc"));
    }

    #[test]
    fn broken_rules_that_differ_from_rows_are_named() {
        let error = |broken: &[&str]| compare(DOCUMENT, "one", broken).map_err(|e| e.to_string());
        assert_eq!(error(&["a.b", "c.x.d"]), Ok(()));
        assert!(error(&["a.b", "c.x.d", "e"]).is_err_and(|text| text.contains("\"e\"")));
        assert!(error(&["a.b"]).is_err_and(|text| text.contains("c.*.d")));
    }
}
