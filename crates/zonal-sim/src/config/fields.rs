//! Every field of a config, as the code has it: its default, unit, range and meaning.
//!
//! The meaning is the comment of the field, the range is the check of the config, and the default
//! comes from the type. This module reads them from the source, so that the table cannot differ
//! from the code.

use std::fmt::Write;

use serde::Serialize;
use toml::{Table, Value};

use super::{Config, Controller};

/// A field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// A source of fields.
struct Source {
    text: &'static str,
    /// The section of a config, and the type that holds its fields.
    sections: &'static [(&'static str, &'static str)],
}

const SOURCES: [Source; 4] = [
    Source { text: include_str!("../flash.rs"), sections: &[("flash", "Flash")] },
    Source {
        text: include_str!("mod.rs"),
        sections: &[
            ("drive", "Drive"),
            ("gc", "Gc"),
            ("zones", "Zones"),
            ("fdp", "Fdp"),
            ("workload", "Workload"),
            ("run", "Run"),
        ],
    },
    Source { text: include_str!("controller.rs"), sections: &[("controller", "Controller")] },
    Source { text: include_str!("../trace/mod.rs"), sections: &[("trace", "Trace")] },
];

/// Types of fields that have words as values.
const WORDS: [(&str, &str); 9] = [
    ("Kind", include_str!("mod.rs")),
    ("Pattern", include_str!("mod.rs")),
    ("Permutation", include_str!("mod.rs")),
    ("Mode", include_str!("mod.rs")),
    ("Frontier", include_str!("../ftl/choice.rs")),
    ("Isolation", include_str!("../ftl/choice.rs")),
    ("Fit", include_str!("../trace/fit.rs")),
    ("ReplayTimes", include_str!("../trace/mod.rs")),
    ("BadLines", include_str!("../trace/mod.rs")),
];

/// All fields, section by section.
pub fn fields() -> Vec<Field> {
    let config = Config { controller: Some(Controller::default()), ..Config::default() };
    let defaults = Table::try_from(&config).expect("every field has a form in TOML");
    let mut all = vec![
        Field {
            path: "name".into(),
            default: "\"\"".into(),
            unit: String::new(),
            range: String::new(),
            meaning: "What people call it.".into(),
        },
        Field {
            path: "seed".into(),
            default: "0".into(),
            unit: String::new(),
            range: String::new(),
            meaning: "The seed of everything random.".into(),
        },
    ];
    for source in SOURCES {
        for &(section, holder) in source.sections {
            for member in members(source.text, &format!("pub struct {holder} {{")) {
                let Some((name, kind)) = member
                    .code
                    .strip_prefix("pub ")
                    .and_then(|code| code.trim_end_matches(',').split_once(": "))
                else {
                    continue;
                };
                let path = format!("{section}.{name}");
                all.push(Field {
                    default: default(&defaults, section, name),
                    unit: unit(name, kind).into(),
                    range: range(&path).unwrap_or_else(|| words(kind)),
                    meaning: member.comment,
                    path,
                });
            }
        }
    }
    all
}

/// The kinds of workloads, each with its comment.
pub fn workloads() -> Vec<(String, String)> {
    let members = members(include_str!("mod.rs"), "pub enum Pattern {");
    members.into_iter().map(|member| (kebab(&member.code), member.comment)).collect()
}

/// The page of all fields and all kinds of workloads, in Markdown.
pub fn page() -> String {
    const TAKES_ALL: &str = "a string takes all";
    let mut text = String::from(
        "# Fields of a simulation\n\n\
         A config is a TOML file of these fields; each may be left out, and `--set PATH=VALUE` changes one.\n\
         `zonal sim fields` prints this page. Most times are µs, rates are 10^6 bytes a second.\n\n\
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

/// A field or a variant of a type, and its comment.
struct Member {
    code: String,
    comment: String,
}

/// The members of a type that begins with this line.
fn members(text: &str, head: &str) -> Vec<Member> {
    let (mut found, mut comment) = (Vec::new(), String::new());
    let lines = text.lines().skip_while(|line| *line != head).skip(1);
    for line in lines.take_while(|line| *line != "}").map(str::trim) {
        match line.strip_prefix("/// ") {
            Some(more) => {
                if !comment.is_empty() {
                    comment.push(' ');
                }
                comment.push_str(more.trim());
            }
            None if line.starts_with('#') || line.is_empty() => {}
            None => {
                let comment = std::mem::take(&mut comment);
                found.push(Member { code: line.to_owned(), comment });
            }
        }
    }
    found
}

fn default(defaults: &Table, section: &str, name: &str) -> String {
    let value = defaults.get(section).and_then(Value::as_table).and_then(|table| table.get(name));
    match value {
        None => "none".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn unit(name: &str, kind: &str) -> &'static str {
    match () {
        () if name.ends_with("_us") => "µs",
        () if name.ends_with("_mb_s") => "MB/s",
        () if name == "seconds" => "s",
        () if kind.contains("Size") => "bytes",
        () => "",
    }
}

/// The range of a field, from the `within` call that checks it.
fn range(path: &str) -> Option<String> {
    let call = format!("within(\"{path}\", ");
    let after = SOURCES.iter().find_map(|source| Some(source.text.split_once(&call)?.1))?;
    let end = [")?", ")\n"].iter().filter_map(|end| after.find(end)).min()?;
    let arguments = &after[..end];
    let mut arguments = arguments.rsplitn(3, ", ");
    let (last, first) = (arguments.next()?, arguments.next()?);
    let plain = |text: &str| text.replace("self.", "").replace(" << ", "≪");
    let shift = |text: String| match text.split_once('≪') {
        Some((base, by)) => match (base.parse::<u64>(), by.parse::<u32>()) {
            (Ok(base), Ok(by)) => (base << by).to_string(),
            _ => text,
        },
        None => text,
    };
    Some(format!("{} to {}", shift(plain(first)), shift(plain(last))))
}

/// The words that a field of this type may have.
fn words(kind: &str) -> String {
    let Some((_, text)) = WORDS.iter().find(|(name, _)| *name == kind) else {
        return String::new();
    };
    let members = members(text, &format!("pub enum {kind} {{"));
    let words: Vec<String> = members.iter().map(|member| kebab(&member.code)).collect();
    words.join(", ")
}

/// A variant as configs write it.
fn kebab(variant: &str) -> String {
    let mut word = String::new();
    for letter in variant.trim_end_matches(',').chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Setting;

    #[test]
    fn fields_are_all_there_and_explained() {
        let config = Config { controller: Some(Controller::default()), ..Config::default() };
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
        for field in fields() {
            for word in field.range.split(", ").filter(|_| !field.range.contains(" to ")) {
                if word.is_empty() {
                    continue;
                }
                let setting = Setting { path: field.path.clone(), value: word.to_owned() };
                let set = Config::default().set(&setting);
                set.unwrap_or_else(|error| panic!("{} = {word}: {error}", field.path));
            }
        }
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
