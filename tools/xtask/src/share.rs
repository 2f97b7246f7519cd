//! The share of the long tests that a run makes: a third, another third after each commit.
//!
//! All of them take half of the time of a whole run, and few changes break them. Runs of the same
//! commit make the same share, so that a failure comes again.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

/// Number of shares.
const SHARES: usize = 3;

/// Which of the long tests a run makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Every one.
    All,
    /// Those whose place in the list leaves this remainder by the number of shares.
    One(usize),
}

impl Share {
    /// The share of a run at the commit that is checked out in `root`.
    pub fn of_commit(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        let output = git.arg("-C").arg(root).args(["rev-list", "--count", "HEAD"]).output();
        let why = "the number of commits chooses the share of the run; `--full` needs none";
        let output = output.context(why)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "git counts no commits: {}: {why}", said.trim());
        let commits: usize = String::from_utf8_lossy(&output.stdout).trim().parse()?;
        Ok(Self::One(commits % SHARES))
    }

    /// Whether it includes the test at `place` of the list.
    pub fn has(self, place: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(share) => place % SHARES == share,
        }
    }
}

/// `2/3` is the second third.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::One(share) => write!(f, "{}/{SHARES}", share + 1),
        }
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "all" {
            return Ok(Self::All);
        }
        let share = (0..SHARES).map(Self::One).find(|share| share.to_string() == text);
        share.with_context(|| format!("`{text}` is no share: all, 1/{SHARES} to {SHARES}/{SHARES}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_each_test_once() {
        for place in 0..9 {
            let having = (0..SHARES).filter(|share| Share::One(*share).has(place)).count();
            assert_eq!((having, Share::All.has(place)), (1, true), "test {place}");
        }
    }

    #[test]
    fn share_parses_its_own_text() {
        for share in [Share::All, Share::One(0), Share::One(SHARES - 1)] {
            assert_eq!(share.to_string().parse::<Share>().unwrap(), share);
        }
        for text in ["", "0/3", "4/3", "1/2", "1"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn commit_chooses_same_share_each_time() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let first = Share::of_commit(root).unwrap();
        assert_eq!(Share::of_commit(root).unwrap(), first);
    }
}
