//! Compares two logs of the same calls, line by line.
//!
//! The differences that are meant are rows of a table in a document; every other one is an error.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// A difference that is meant: a row `| call | kernel | here | why |`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The calls of the row; `...` stands for any text.
    calls: Vec<String>,
    kernel: String,
    here: String,
    shown: Shown,
}

/// Whether calls of any seed show a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Always,
    /// It takes luck; the reason begins with this word.
    Rarely,
}

/// The rows below the heading `heading` of a document.
pub(crate) fn rows(document: &str, heading: &str) -> Result<Vec<Row>> {
    let (_, section) = document
        .split_once(&format!("\n{heading}\n"))
        .with_context(|| format!("no heading {heading:?}"))?;
    let table = section.lines().skip_while(|line| !line.starts_with('|'));
    let table = table.take_while(|line| line.starts_with('|'));
    // The first two lines are the head.
    let rows: Option<Vec<Row>> = table.skip(2).map(row).collect();
    rows.with_context(|| format!("a row below {heading:?} has not four cells"))
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> =
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
    let [call, kernel, here, why] = cells[..] else { return None };
    let calls = call.split("`, `").map(str::to_owned).collect();
    let shown = if why.starts_with("rarely") { Shown::Rarely } else { Shown::Always };
    Some(Row { calls, kernel: kernel.to_owned(), here: here.to_owned(), shown })
}

/// How often each row explained a difference, by its name.
pub(crate) type Used = BTreeMap<String, u32>;

/// Compares two logs. An error shows the first difference that no row explains, and the calls
/// before it.
pub(crate) fn logs(kernel: &str, here: &str, rows: &[Row]) -> Result<Used> {
    let mut used = Used::new();
    let theirs: Vec<&str> = kernel.lines().collect();
    let ours: Vec<&str> = here.lines().collect();
    ensure!(!theirs.is_empty(), "the kernel's log is empty");
    for (index, (theirs_line, ours_line)) in theirs.iter().zip(&ours).enumerate() {
        if theirs_line == ours_line {
            continue;
        }
        let explained = rows.iter().find(|row| row.explains(theirs_line, ours_line));
        let Some(row) = explained else {
            let before = theirs[index.saturating_sub(8)..index].join("\n  ");
            bail!(
                "line {}: \n  {before}\n- {theirs_line}   (kernel)\n+ {ours_line}   (here)",
                index + 1
            );
        };
        *used.entry(row.name()).or_default() += 1;
    }
    ensure!(
        theirs.len() == ours.len(),
        "{} lines of the kernel, {} here",
        theirs.len(),
        ours.len()
    );
    Ok(used)
}

impl Row {
    /// Whether every run with enough calls shows the difference, with any seed.
    pub(crate) fn is_common(&self) -> bool {
        self.shown == Shown::Always
    }

    /// The row's calls and results, which no other row has.
    pub(crate) fn name(&self) -> String {
        format!("{} | {} | {}", self.calls.join(", "), self.kernel, self.here)
    }

    fn explains(&self, kernel: &str, here: &str) -> bool {
        let (Some((call, theirs)), Some((same, ours))) =
            (kernel.split_once(" = "), here.split_once(" = "))
        else {
            return false;
        };
        // No row can explain a different effect on the file.
        let (theirs, theirs_after) = theirs.split_once("; ").unwrap_or((theirs, ""));
        let (ours, ours_after) = ours.split_once("; ").unwrap_or((ours, ""));
        call == same
            && theirs_after == ours_after
            && self.calls.iter().any(|pattern| matches(pattern, call))
            && matches(&self.kernel, theirs)
            && matches(&self.here, ours)
    }
}

/// Whether `text` is `pattern`, in which `...` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once("...") else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    rest.is_empty()
        || (0..=text.len())
            .filter(|at| text.is_char_boundary(*at))
            .any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Zonefs

### Differences

Words.

| call | kernel | here | why |
| --- | --- | --- | --- |
| `Seek { ... }...` | `EINVAL` | `...` | the kernel of FUSE answers |
| `Mkdir...`, `Mknod...` | `ENOENT` | `EACCES` | rarely seen |

Words.
";

    #[test]
    fn log_diff_allows_and_counts_documented_differences() {
        let rows = rows(DOCUMENT, "### Differences").unwrap();
        assert_eq!(rows.iter().map(Row::is_common).collect::<Vec<_>>(), [true, false]);
        let kernel = "Seek { at: 9 } on a = EINVAL; size 0\nMkdir { path: \"x\" } = ENOENT\n";
        let here = "Seek { at: 9 } on a = 9; size 0\nMkdir { path: \"x\" } = EACCES\n";
        let used = logs(kernel, here, &rows).unwrap();
        assert_eq!(used.values().sum::<u32>(), 2);
    }

    #[test]
    fn log_diff_rejects_undocumented_differences() {
        let rows = rows(DOCUMENT, "### Differences").unwrap();
        for (kernel, here) in [
            ("Seek { at: 9 } = EINVAL; size 0", "Seek { at: 9 } = 9; size 1"),
            ("Seek { at: 9 } = EIO", "Seek { at: 9 } = 9"),
            ("Seek { at: 9 } = EINVAL", "Seek { at: 8 } = EINVAL"),
            ("Stat = EIO", "Stat = 9"),
            ("Stat = 9\nStat = 9", "Stat = 9"),
            ("", ""),
        ] {
            assert!(logs(kernel, here, &rows).is_err(), "{kernel} / {here}");
        }
    }
}
