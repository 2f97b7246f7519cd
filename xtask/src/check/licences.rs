//! Licences of everything that is compiled in: each must be satisfiable from a list.

use anyhow::{Result, bail};
use serde_json::Value;

use super::{list, text};

/// Licences that ask for no more than their text being kept.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Tools that only tests run, of which nothing is in what we build, with the licence that is not in
/// the list.
const TOOLS: &[(&str, &str)] = &[("cbindgen", "MPL-2.0")];

/// Looks at the licence field of every package.
pub(super) fn check(metadata: &Value) -> Result<()> {
    let refused: Vec<String> = list(metadata, "packages")
        .iter()
        .filter(|package| !satisfiable(text(package, "license")))
        .filter(|package| !TOOLS.contains(&(text(package, "name"), text(package, "license"))))
        .map(|package| {
            let (name, licence) = (text(package, "name"), text(package, "license"));
            format!("{name} {}: licence `{licence}` is not allowed", text(package, "version"))
        })
        .collect();
    if refused.is_empty() { Ok(()) } else { bail!("{}", refused.join("\n")) }
}

/// Whether an SPDX expression can be satisfied from the list. `AND` binds tighter than `OR`; the
/// old `/` means `OR`.
fn satisfiable(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(words: &mut &[&str]) -> bool {
    let mut satisfied = every(words);
    while let Some(("OR", rest)) = split(words) {
        *words = rest;
        satisfied |= every(words);
    }
    satisfied
}

fn every(words: &mut &[&str]) -> bool {
    let mut satisfied = one(words);
    while let Some(("AND", rest)) = split(words) {
        *words = rest;
        satisfied &= one(words);
    }
    satisfied
}

fn one(words: &mut &[&str]) -> bool {
    let Some((word, rest)) = split(words) else { return false };
    *words = rest;
    if word == "(" {
        let satisfied = any(words);
        let Some((")", rest)) = split(words) else { return false };
        *words = rest;
        return satisfied;
    }
    if let [with @ "WITH", exception, rest @ ..] = *words {
        *words = rest;
        return ALLOWED.contains(&format!("{word} {with} {exception}").as_str());
    }
    ALLOWED.contains(&word)
}

fn split<'w, 'a>(words: &'w [&'a str]) -> Option<(&'a str, &'w [&'a str])> {
    words.split_first().map(|(first, rest)| (*first, rest))
}

#[cfg(test)]
mod tests {
    use super::satisfiable;

    #[test]
    fn expressions() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR GPL-3.0-only",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert!(satisfiable(good), "{good}");
        }
        for bad in
            ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT", "MIT MIT", "MIT WITH something"]
        {
            assert!(!satisfiable(bad), "{bad}");
        }
    }
}
