//! The names of fields: the page has each, with one meaning and the unit with which it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::{docs, schemas};

/// A unit, the ending of its names, and the types of its values.
const UNITS: [(&str, &str, &[&str]); 17] = [
    ("bytes", "bytes", &["integer"]),
    ("blocks", "blocks", &["integer"]),
    ("LBA", "lba", &["integer"]),
    ("units", "units", &["integer"]),
    ("ns", "ns", &["integer"]),
    ("µs", "us", &["number"]),
    ("s", "seconds", &["number", "integer"]),
    ("%", "percent", &["number"]),
    ("MB/s", "mb", &["number"]),
    ("1/s", "iops", &["number"]),
    ("count", "", &["integer"]),
    ("ratio", "", &["number"]),
    ("text", "", &["string"]),
    ("yes/no", "", &["boolean"]),
    ("list", "", &["array"]),
    ("object", "", &["object"]),
    ("option", "", &[]),
];

/// The head of the section with names that no schema has.
const MOUNT: &str = "### Settings and counters of a mount";

/// The page's row for a name.
pub(crate) struct Row {
    unit: String,
    meaning: String,
    is_of_mount: bool,
}

/// The rows of the page's tables.
pub(crate) fn rows() -> BTreeMap<String, Row> {
    let page = fs::read_to_string(docs().join("json.md")).unwrap();
    let (mut rows, mut is_of_mount) = (BTreeMap::new(), false);
    for line in page.lines() {
        is_of_mount |= line == MOUNT;
        let Some(cells) = line.strip_prefix("| `").and_then(|line| line.strip_suffix(" |")) else {
            continue;
        };
        let (name, cells) = cells.split_once("` | ").expect(line);
        let (unit, meaning) = cells.split_once(" | ").expect(line);
        let row = Row { unit: unit.to_owned(), meaning: meaning.to_owned(), is_of_mount };
        assert!(rows.insert(name.to_owned(), row).is_none(), "{name} is in the page twice");
    }
    assert!(is_of_mount, "{MOUNT:?} is missing");
    rows
}

/// The types of the values of each name, in any part of the schema `whole`.
fn types(schema: &Value, whole: &Value, found: &mut BTreeMap<String, BTreeSet<String>>) {
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        for (name, field) in fields {
            let words = found.entry(name.clone()).or_default();
            match field.get("type") {
                Some(Value::Array(list)) => words.extend(list.iter().filter_map(text)),
                Some(word) => words.extend(text(word)),
                None => {
                    let is_choice = is_choice_of_words(field, whole);
                    words.insert(if is_choice { "string" } else { "object" }.to_owned());
                }
            }
            words.remove("null");
        }
    }
    match schema {
        Value::Object(rules) => rules.values().for_each(|rule| types(rule, whole, found)),
        Value::Array(list) => list.iter().for_each(|rule| types(rule, whole, found)),
        _ => {}
    }
}

/// Whether a field refers to a definition that lists words, and not to an object.
fn is_choice_of_words(field: &Value, whole: &Value) -> bool {
    let place = field.get("$ref").and_then(Value::as_str);
    let place = place.and_then(|place| place.strip_prefix('#'));
    let definition = place.and_then(|place| whole.pointer(place));
    let choices = definition.and_then(|found| found.get("oneOf")).and_then(Value::as_array);
    choices
        .is_some_and(|list| list.iter().all(|one| one.get("const").is_some_and(Value::is_string)))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(ToOwned::to_owned)
}

#[test]
fn json_field_names_have_one_meaning_and_unit() {
    let mut found = BTreeMap::new();
    for schema in schemas().values() {
        types(schema, schema, &mut found);
    }
    let rows = rows();
    let missing: Vec<_> = found.keys().filter(|name| !rows.contains_key(*name)).collect();
    assert!(missing.is_empty(), "docs/json.md says nothing of {missing:?}");
    let stale = rows.iter().filter(|(name, row)| !row.is_of_mount && !found.contains_key(*name));
    let stale: Vec<_> = stale.map(|(name, _)| name).collect();
    assert!(stale.is_empty(), "docs/json.md has {stale:?}, and no schema has them");
    let mut meanings = BTreeMap::new();
    for (name, row) in &rows {
        let known = UNITS.iter().find(|(unit, ..)| *unit == row.unit);
        let (unit, ending, types) = known.unwrap_or_else(|| panic!("{name}: {}", row.unit));
        let parts: BTreeSet<&str> = name.split('_').collect();
        let ends = UNITS.iter().map(|(_, ending, _)| *ending);
        let ends: Vec<&str> = ends.filter(|ending| parts.contains(ending)).collect();
        let wanted: &[&str] = if ending.is_empty() { &[] } else { &[ending] };
        // A name that begins with a unit counts things, such as `blocks_reread`, or it is per
        // operation.
        let is_odd = name.starts_with("blocks_") || *name == "cpu_us_per_op";
        assert!(ends == wanted || is_odd, "{name} is in {unit}: is that how it ends?");
        for word in found.get(name).into_iter().flatten() {
            assert!(types.contains(&&**word), "{name} is a {word}, and in {unit}");
        }
        let before = meanings.insert(row.meaning.to_lowercase(), name);
        assert!(before.is_none(), "{name} and {} mean the same", before.unwrap());
    }
}
