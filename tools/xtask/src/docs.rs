//! The byte tables of `docs/format/`, printed from the structs so that they cannot differ.
//!
//! A document asks for a table with a pair of comments; the text between them is replaced:
//!
//! ```text
//! <!-- bytes: crates/zonal-fs/src/zonefs/format.rs RawSuperblock -->
//! <!-- end -->
//! ```
//!
//! An on-disk struct has fields that need no alignment, so offsets are running sums; the meaning of
//! a field is the first paragraph of its documentation. Types are integers, arrays of a length in
//! digits, and structs of the same file. The sum must equal the size that the file pins with
//! `assert!(size_of::<Name>() == N)`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::printed::{Printed, files_of};

const OPEN: &str = "<!-- bytes: ";
const CLOSE: &str = "<!-- end -->";

/// Writes the tables into the documents.
pub(crate) fn refresh(root: &Path) -> Result<()> {
    printed(root)?.refresh()
}

/// Says which documents differ from the code.
pub(crate) fn compare(root: &Path) -> Result<()> {
    printed(root)?.compare()
}

fn printed(root: &Path) -> Result<Printed<impl Fn(&str) -> Result<String>>> {
    Ok(Printed {
        documents: files_of(&root.join("docs/format"))?,
        render: move |text: &str| render(root, text),
        source: "the code",
        command: "cargo xtask docs",
    })
}

fn render(root: &Path, text: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (request, after) = after.split_once(" -->").context("a comment is not closed")?;
        let (_, after) = after.split_once(CLOSE).with_context(|| format!("no `{CLOSE}`"))?;
        let (file, name) = request.split_once(' ').context("a table needs a file and a struct")?;
        let source = fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let table = table(&source, name).with_context(|| format!("{file}, {name}"))?;
        out.extend([before, OPEN, request, " -->\n", &table, CLOSE]);
        rest = after;
    }
    Ok(out + rest)
}

/// A field of a struct: its name, its type, and its meaning.
struct Field<'a> {
    name: &'a str,
    kind: &'a str,
    meaning: String,
}

/// The fields of a struct.
fn fields<'a>(source: &'a str, name: &str) -> Result<Vec<Field<'a>>> {
    let (_, body) = source
        .split_once(&format!("struct {name} {{\n"))
        .with_context(|| format!("no struct {name} in the file"))?;
    let (body, _) = body.split_once("\n}").context("the struct does not end")?;
    let (mut found, mut lines) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            lines.push(words.trim());
        } else if let Some((name, kind)) = line.split_once(": ") {
            let paragraph: Vec<&str> =
                lines.drain(..).take_while(|line| !line.is_empty()).collect();
            let name = name.rsplit(' ').next().unwrap_or(name);
            let meaning = paragraph.join(" ").replace('|', "\\|");
            ensure!(!meaning.is_empty(), "{name} has no documentation");
            found.push(Field { name, kind: kind.trim_end_matches(','), meaning });
        }
    }
    Ok(found)
}

/// Bytes of a type.
fn size(source: &str, kind: &str) -> Result<u64> {
    if let Some(inside) = kind.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (kind, len) = inside.rsplit_once("; ").context("an array has a length")?;
        let len: u64 = len.parse().with_context(|| format!("the length {len} is no number"))?;
        return Ok(len * size(source, kind)?);
    }
    let kind = kind.rsplit("::").next().unwrap_or(kind);
    match kind {
        "u8" | "i8" => Ok(1),
        "U16" | "I16" => Ok(2),
        "U32" | "I32" => Ok(4),
        "U64" | "I64" => Ok(8),
        "U128" | "I128" => Ok(16),
        name => fields(source, name)?.iter().map(|field| size(source, field.kind)).sum(),
    }
}

/// The table of a struct, in Markdown.
fn table(source: &str, name: &str) -> Result<String> {
    let mut table = String::from("| at | bytes | field | meaning |\n| --- | --- | --- | --- |\n");
    let mut at = 0;
    for Field { name, kind, meaning } in fields(source, name)? {
        let bytes = size(source, kind).with_context(|| name.to_owned())?;
        writeln!(table, "| {at} | {bytes} | `{name}` | {meaning} |")?;
        at += bytes;
    }
    let pinned = format!("size_of::<{name}>() == ");
    let (_, rest) = source.split_once(&pinned).context("the file asserts no size of it")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    ensure!(digits == at.to_string(), "it adds up to {at} bytes, but the file asserts {digits}");
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
pub(super) struct Head {
    /// `HEAD`.
    pub magic: [u8; 4],
    /// CRC-32C of bytes 8.. of the
    /// head.
    ///
    /// More.
    pub(super) crc: little_endian::U32,
    /// Copies of a pair.
    pub pairs: [Pair; 2],
}
struct Pair {
    /// One.
    one: U16,
    /// Two.
    two: U64,
}
const _: () = assert!(size_of::<Head>() == 28);
const _: () = { assert!(size_of::<Pair>() == 11); };
";

    #[test]
    fn offsets_are_running_sums() {
        let table = table(SOURCE, "Head").expect("Head is well formed");
        assert!(table.contains("| 0 | 4 | `magic` | `HEAD`. |"), "{table}");
        assert!(table.contains("| 4 | 4 | `crc` | CRC-32C of bytes 8.. of the head. |"), "{table}");
        assert!(table.contains("| 8 | 20 | `pairs` |"), "{table}");
    }

    #[test]
    fn sum_differing_from_assertion_is_refused() {
        let error = table(SOURCE, "Pair").expect_err("10 is not 11");
        assert!(error.to_string().contains("10"), "{error}");
    }
}
