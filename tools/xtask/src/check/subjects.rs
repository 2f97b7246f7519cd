//! Subjects of commits: `area: imperative`, in at most 72 characters, because `git log` and mail
//! show no more. Commits up to [`BASE`] are older than the rule.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use xtask::run;
use xtask::tally::Tally;

/// The last commit before the rule.
const BASE: &str = "ed8cad50a6c06dc705a4cf862dd2c7a60b1d9697";

const LENGTH_MAX: usize = 72;

/// Looks at every commit after [`BASE`]. A shallow clone does not have it; the tally then says that
/// nothing is checked.
pub(super) fn check(root: &Path, tally: &mut Tally) {
    match since(root, BASE) {
        Some(log) => tally.check("subjects of commits", || refuse(&log)),
        None => {
            tally.skip("subjects of commits", &format!("none is checked: no commit {BASE} here"));
        }
    }
}

/// `hash subject` of every commit after `base`, if that is one of this history.
fn since(root: &Path, base: &str) -> Option<String> {
    let git = |arguments: &[&str]| {
        run::quietly(Command::new("git").args(arguments).current_dir(root)).ok()
    };
    git(&["merge-base", "--is-ancestor", base, "HEAD"])?;
    git(&["log", "--no-merges", "--format=%h %s", &format!("{base}..HEAD")])
}

fn refuse(log: &str) -> Result<()> {
    let lines = log.lines().filter_map(|line| line.split_once(' '));
    let wrong: Vec<String> = lines
        .filter_map(|(hash, subject)| Some(format!("{hash} {subject}: {}", objection(subject)?)))
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The mistake in a subject.
fn objection(subject: &str) -> Option<&'static str> {
    let is_area = |area: &str| {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !area.is_empty() && area.bytes().all(is_part)
    };
    let Some((area, what)) = subject.split_once(": ").filter(|(area, _)| is_area(area)) else {
        return Some("it does not begin with `area: `, in small letters");
    };
    let first = what.split([' ', ',']).next().unwrap_or_default();
    if area.len() + 2 + what.chars().count() > LENGTH_MAX {
        Some("it has more than 72 characters")
    } else if what.ends_with('.') {
        Some("it ends with a full stop")
    } else if !is_imperative(first) {
        Some("no imperative follows the area, as in `add`, `keep`, `refuse`")
    } else {
        None
    }
}

/// Whether a word can be an imperative. Words that begin a sentence or a noun cannot, nor can most
/// words with the endings of other forms of a verb.
fn is_imperative(word: &str) -> bool {
    const OTHERS: &[&str] = &[
        "a", "all", "an", "and", "any", "are", "as", "at", "but", "by", "each", "every", "for",
        "from", "he", "how", "if", "in", "is", "it", "its", "many", "more", "new", "no", "not",
        "now", "of", "on", "one", "only", "or", "our", "some", "that", "the", "their", "there",
        "these", "they", "this", "those", "to", "two", "we", "what", "when", "where", "which",
        "who", "why", "with",
    ];
    const VERBS: &[&str] = &[
        "alias", "bias", "bring", "embed", "exceed", "feed", "focus", "need", "ping", "proceed",
        "seed", "shed", "speed", "spring", "string", "succeed", "swing",
    ];
    let is_form = ["ing", "ed", "s"].iter().any(|ending| word.ends_with(ending));
    let is_word = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let is_verb = VERBS.contains(&word) || word.ends_with("ss") || !is_form;
    word.len() > 1 && is_word && is_verb && !OTHERS.contains(&word)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn subject_with_area_and_imperative_passes() {
        for good in [
            "furrow: keep a write in its zone",
            "zonal-fs: turn flags of open(2) into a volume's in one place",
            "kv: pass over files, links and pipes",
            "docs: need no more than one page",
        ] {
            assert_eq!(objection(good), None, "{good}");
        }
    }

    #[test]
    fn subject_of_another_form_is_refused() {
        for bad in [
            "keep a write in its zone",
            "Furrow: keep a write in its zone",
            "furrow:keep a write in its zone",
            "furrow: Keep a write in its zone",
            "furrow: keep a write in its zone.",
            "furrow: a write stays in its zone",
            "furrow: keeps a write in its zone",
            "furrow: keeping a write in its zone",
            "furrow: added a zone",
            "furrow: ",
            "Revert \"furrow: keep a write\"",
        ] {
            assert!(objection(bad).is_some(), "{bad}");
        }
        let long = |letters| format!("furrow: keep {}", "é".repeat(letters));
        assert_eq!(objection(&long(59)), None);
        assert!(objection(&long(60)).is_some());
    }

    /// A repository with commits of these subjects, and the hash of the first one.
    fn repository(subjects: &[&str]) -> (TempDir, String) {
        let place = TempDir::new().unwrap();
        let git = |arguments: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@invalid"];
            let mut git = Command::new("git");
            run::quietly(git.args(identity).args(arguments).current_dir(place.path())).unwrap()
        };
        git(&["init", "--quiet"]);
        for subject in subjects {
            git(&["commit", "--quiet", "--allow-empty", "--no-gpg-sign", "--message", subject]);
        }
        let first = git(&["rev-list", "--max-parents=0", "HEAD"]).trim().to_owned();
        (place, first)
    }

    #[test]
    fn subjects_are_checked_after_base_only() {
        let (place, first) = repository(&["An old one", "docs: add a page", "A new one"]);
        let log = since(place.path(), &first).unwrap();
        let error = refuse(&log).unwrap_err().to_string();
        assert!(error.lines().count() == 1 && error.contains("A new one"), "{error}");
    }

    #[test]
    fn history_without_the_base_is_not_checked() {
        let (place, first) = repository(&["An old one", "A new one"]);
        let shallow = TempDir::new().unwrap();
        let mut clone = Command::new("git");
        let from = format!("file://{}", place.path().display());
        clone.args(["clone", "--quiet", "--depth=1", &from]).arg(shallow.path().join("clone"));
        run::quietly(&mut clone).unwrap();
        assert_eq!(since(&shallow.path().join("clone"), &first), None);
        assert_eq!(since(&PathBuf::from(shallow.path()), &first), None);
    }
}
