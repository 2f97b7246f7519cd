//! Every field of a config: its default, unit, range and meaning.
//!
//! The meaning is the comment of the field and the default that of its type, as the JSON Schema of
//! a config has them. The range is the answer of the config's check to a value that is too large.
//! So the table cannot differ from the code.

use std::fmt::Write;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use super::{Config, Pattern, Setting};
use crate::error::SimError;

/// A field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Field {
    /// Its path, as `--set` takes it.
    pub path: String,
    /// Its value in a config that does not name it.
    pub default: String,
    /// Its unit; empty for a number or a word.
    pub unit: String,
    /// Allowed values; empty where the type says it.
    pub range: String,
    /// Its meaning.
    pub meaning: String,
}

/// All fields, section by section.
pub fn fields() -> Vec<Field> {
    let schema = schema::<Config>();
    let properties = |schema: &Value| schema["properties"].as_object().cloned();
    let mut all = Vec::new();
    for (name, field) in properties(schema.as_value()).unwrap_or_default() {
        match properties(&field) {
            None => all.push(Field::new(name, &field)),
            Some(section) => all.extend(
                section.iter().map(|(inner, field)| Field::new(format!("{name}.{inner}"), field)),
            ),
        }
    }
    all
}

/// The kinds of workloads, each with its comment.
pub fn workloads() -> Vec<(String, String)> {
    let schema = schema::<Pattern>();
    let kinds = schema.as_value()["oneOf"].as_array().into_iter().flatten();
    kinds.map(|kind| (text(&kind["const"]), text(&kind["description"]))).collect()
}

fn schema<T: JsonSchema>() -> Schema {
    let inline = |settings: &mut SchemaSettings| settings.inline_subschemas = true;
    SchemaSettings::default().with(inline).into_generator().into_root_schema_for::<T>()
}

/// A comment on one line, or another string.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('\n', " ")
}

impl Field {
    fn new(path: String, schema: &Value) -> Self {
        let name = path.rsplit('.').next().unwrap_or_default();
        let unit = match schema["unit"].as_str() {
            Some(unit) => unit,
            None if name.ends_with("_us") => "µs",
            None if name.ends_with("_ms") => "ms",
            None if name.ends_with("_mb_s") => "MB/s",
            None if name == "seconds" => "s",
            None => "",
        };
        let default = match &schema["default"] {
            Value::Null => "none".to_owned(),
            Value::String(text) if !text.is_empty() => text.clone(),
            value => value.to_string(),
        };
        let words = schema["oneOf"].as_array().into_iter().flatten();
        let words: Vec<_> = words.map(|word| text(&word["const"])).collect();
        let range = too_large(&path).unwrap_or_else(|| words.join(", "));
        Self { default, unit: unit.to_owned(), range, meaning: text(&schema["description"]), path }
    }
}

/// The values that the check of a config allows, from its refusal of one that is too large.
fn too_large(path: &str) -> Option<String> {
    let values = [u64::from(u32::MAX).to_string(), i64::MAX.to_string(), "1e300".to_owned()];
    values.into_iter().find_map(|value| {
        let config = Config::default().set(&Setting { path: path.to_owned(), value }).ok()?;
        match config.check() {
            Err(SimError::Field { field, allowed, .. }) if field == path => {
                Some(allowed.trim_start_matches("from ").to_owned())
            }
            _ => None,
        }
    })
}

/// The page of all fields and all kinds of workloads, in Markdown.
pub fn page() -> String {
    const TAKES_ALL: &str = "a string takes all";
    let mut text = String::from(
        "# Fields of a simulation\n\n\
         A config is a TOML file of these fields; each may be left out, and `--set PATH=VALUE` changes one.\n\
         `zonal sim fields` prints this page. Most times are µs, rates are 10^6 bytes a second.\n\
         A range that depends on other fields is printed for their defaults.\n\n\
         | field | default | unit | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for field in fields() {
        let Field { path, default, unit, range, meaning } = field;
        writeln!(text, "| `{path}` | {default} | {unit} | {range} | {meaning} |").expect(TAKES_ALL);
    }
    text += "\n## Workloads\n\n| `workload.kind` | what the host does |\n| --- | --- |\n";
    for (name, meaning) in workloads() {
        writeln!(text, "| `{name}` | {meaning} |").expect(TAKES_ALL);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use toml::Table;

    use super::*;
    use crate::config::{Controller, Disk};

    #[test]
    fn fields_are_all_there_and_explained() {
        let (controller, disk) = (Some(Controller::default()), Some(Disk::default()));
        let config = Config { controller, disk, ..Config::default() };
        let table = Table::try_from(&config).expect("a table");
        let listed = fields();
        for (section, value) in &table {
            let Some(inner) = value.as_table() else { continue };
            for name in inner.keys() {
                let path = format!("{section}.{name}");
                assert!(listed.iter().any(|field| field.path == path), "{path} is not listed");
            }
        }
        for field in &listed {
            assert!(!field.meaning.is_empty(), "{} is not explained", field.path);
            if field.default == "none" {
                continue;
            }
            let setting = Setting { path: field.path.clone(), value: field.default.clone() };
            config.set(&setting).unwrap_or_else(|error| panic!("{}: {error}", field.path));
        }
    }

    #[test]
    fn fields_with_words_name_all_of_them() {
        let mut checked = 0;
        for field in fields() {
            let words: Vec<&str> = field.range.split(", ").collect();
            for word in words.iter().filter(|_| words.contains(&&*field.default)) {
                let setting = Setting { path: field.path.clone(), value: (*word).to_owned() };
                let set = Config::default().set(&setting);
                set.unwrap_or_else(|error| panic!("{} = {word}: {error}", field.path));
                checked += 1;
            }
        }
        assert_eq!(checked, 26);
        assert_eq!(workloads().len(), 9);
    }

    #[test]
    fn fields_page_is_what_code_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lab/sim-fields.md");
        if std::env::var_os("WRITE_PAGE").is_some() {
            std::fs::write(&path, page()).expect("written");
        }
        let written = std::fs::read_to_string(&path).expect("the page");
        assert_eq!(written, page(), "WRITE_PAGE=1 prints it anew");
    }
}
