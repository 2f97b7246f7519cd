//! The byte tables of `docs/format/drive-file.md` and `docs/format/trace.md` match the structs, and
//! the structs have the offsets and sizes that their tables say.
//!
//! `UPDATE=1 cargo test -p zonal --test format_doc` rewrites the pages.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use zonal::file::format::{DriveHeader, LiveHeader, RecordHeader, SnapshotHeader, ZoneEntry};
use zonal::layer::trace::{TraceHeader, TraceRecord};

/// The fields of both headers for the shape of a device.
const GEOMETRY: &str = include_str!("../src/geometry/bytes.rs");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The table in the doc comment of a struct: its lines, without the slashes.
fn table(source: &str, name: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let at = lines.iter().position(|line| *line == format!("pub struct {name} {{"));
    let at = at.unwrap_or_else(|| panic!("there is no struct {name}"));
    let doc = lines[..at].iter().rev().take_while(|line| !line.is_empty());
    let mut rows: Vec<String> =
        doc.filter_map(|line| line.strip_prefix("/// |")).map(|row| format!("|{row}")).collect();
    rows.reverse();
    rows
}

/// (offset, bytes, field) of each row, checked to follow one another.
fn check_rows(name: &str, rows: &[String], size: usize) -> Vec<(usize, usize, String)> {
    let mut next = 0;
    let parse = |row: &String| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (at, bytes) = (cells[1].parse().unwrap(), cells[2].parse().unwrap());
        assert_eq!(at, next, "{name}: {row}");
        next = at + bytes;
        (at, bytes, cells[3].to_owned())
    };
    let fields: Vec<_> = rows[2..].iter().map(parse).collect();
    assert_eq!(next, size, "{name}: the table ends there");
    fields
}

/// The fields of a struct in order, with the sizes of their types.
fn fields(source: &str, name: &str) -> Vec<(usize, String)> {
    let body = source.split(&format!("pub struct {name} {{\n")).nth(1).unwrap();
    let body = body.split("\n}").next().unwrap();
    let size = |kind: &str| match kind {
        "u8" => 1,
        "U16" => 2,
        "U32" => 4,
        "U64" => 8,
        "[[U32; 2]; 8]" => 64,
        array => {
            let count = array.trim_start_matches("[u8; ").trim_end_matches(']');
            count.parse().unwrap_or_else(|_| panic!("{name}: type {kind}"))
        }
    };
    body.lines()
        .flat_map(|line| {
            let (field, kind) = line.trim().trim_start_matches("pub ").split_once(": ").unwrap();
            match kind.trim_end_matches(',') {
                "GeometryBytes" => fields(GEOMETRY, "GeometryBytes"),
                kind => vec![(size(kind), field.to_owned())],
            }
        })
        .collect()
}

/// Checks one struct, and the copy of its table after a line `<!-- NAME -->` of the page.
fn check(page: &mut String, source: &str, name: &str, size: usize) {
    let rows = table(source, name);
    let shown: Vec<_> =
        check_rows(name, &rows, size).into_iter().map(|(_, bytes, field)| (bytes, field)).collect();
    assert_eq!(shown, fields(source, name), "{name}: the table and the fields");
    let marker = format!("<!-- {name} -->\n");
    let (before, after) = page.split_once(&marker).unwrap_or_else(|| panic!("no {marker}"));
    let rest = after.trim_start_matches('\n');
    let end =
        rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
    *page = format!("{before}{marker}\n{}\n{}", rows.join("\n"), &rest[end..]);
}

fn compare(path: &str, source: &str, structs: &[(&str, usize)]) {
    let path = root().join(path);
    let found = std::fs::read_to_string(&path).unwrap();
    let mut page = found.clone();
    for &(name, size) in structs {
        check(&mut page, source, name, size);
    }
    if page != found && std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
        return;
    }
    assert!(page == found, "{} differs from the code: UPDATE=1 rewrites it", path.display());
}

#[test]
fn page_of_drive_file_matches_code() {
    compare(
        "docs/format/drive-file.md",
        include_str!("../src/file/format.rs"),
        &[
            ("DriveHeader", size_of::<DriveHeader>()),
            ("LiveHeader", size_of::<LiveHeader>()),
            ("ZoneEntry", size_of::<ZoneEntry>()),
            ("SnapshotHeader", size_of::<SnapshotHeader>()),
            ("RecordHeader", size_of::<RecordHeader>()),
        ],
    );
}

#[test]
fn page_of_trace_matches_code() {
    compare(
        "docs/format/trace.md",
        include_str!("../src/layer/trace/format.rs"),
        &[("TraceHeader", size_of::<TraceHeader>()), ("TraceRecord", size_of::<TraceRecord>())],
    );
}
