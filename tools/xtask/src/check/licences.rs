//! Licences of everything that is compiled in: each must be satisfiable from a list.

use anyhow::{Result, bail};
use serde_json::Value;

use xtask::metadata::{list, text};

/// Licences that only ask us to keep their text. An expression of several licences is listed as a
/// whole.
const ALLOWED: &[&str] = &[
    "(MIT OR Apache-2.0) AND Unicode-3.0",
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 AND ISC",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSD-3-Clause AND BSD-2-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unlicense",
    "Zlib",
];

/// Tools that only tests run and that leave nothing in our programs, each with its licence, which
/// is not in the list.
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

/// Whether an SPDX expression, or one of its alternatives, is in the list. The old `/` means `OR`.
fn satisfiable(expression: &str) -> bool {
    let alternatives = expression.split(" OR ").flat_map(|part| part.split('/')).map(str::trim);
    ALLOWED.contains(&expression)
        || (!expression.contains('(') && alternatives.into_iter().any(|one| ALLOWED.contains(&one)))
}

#[cfg(test)]
mod tests {
    use super::satisfiable;

    #[test]
    fn licence_needs_one_acceptable_alternative() {
        for good in ["MIT", "MIT/Apache-2.0", "GPL-2.0-only OR Apache-2.0 WITH LLVM-exception"] {
            assert!(satisfiable(good), "{good}");
        }
        for bad in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT OR ISC) AND GPL-3.0-only"] {
            assert!(!satisfiable(bad), "{bad}");
        }
    }
}
