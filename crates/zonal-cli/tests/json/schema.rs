//! Compares a document with a JSON Schema, and notes which fields it shows.
//!
//! It knows the keywords of our schemas and refuses others, so it checks everything in a schema. It
//! is stricter than a validator: it refuses a name that the schema does not list, because a program
//! could not know of it.

use std::collections::BTreeSet;

use serde_json::Value;

/// Keywords that a document cannot contradict.
const SAYS_NOTHING: [&str; 6] = ["$schema", "$defs", "title", "description", "default", "format"];

/// The fields that were shown, as places in the schema.
pub(crate) type Places = BTreeSet<String>;

/// Compares `value` with all of a schema. Returns the fields that it shows, or the difference.
pub(crate) fn compare(schema: &Value, value: &Value) -> Result<Places, String> {
    let mut walk = Walk { whole: schema, shown: Places::new() };
    walk.check((schema, "#"), value, "")?;
    Ok(walk.shown)
}

/// Every field of a schema.
pub(crate) fn declared(schema: &Value, at: &str, found: &mut Places) {
    match schema {
        Value::Object(rules) => {
            for (keyword, rule) in rules {
                let at = format!("{at}/{keyword}");
                if let ("properties", Value::Object(fields)) = (keyword.as_str(), rule) {
                    found.extend(fields.keys().map(|name| format!("{at}/{name}")));
                }
                declared(rule, &at, found);
            }
        }
        Value::Array(list) => {
            for (index, rule) in list.iter().enumerate() {
                declared(rule, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

struct Walk<'a> {
    whole: &'a Value,
    shown: Places,
}

impl<'a> Walk<'a> {
    /// Compares a value, which lies at `path` of the document, with a part of the schema.
    fn check(
        &mut self,
        (schema, at): (&'a Value, &str),
        value: &Value,
        path: &str,
    ) -> Result<(), String> {
        if schema == &Value::Bool(true) {
            return Ok(());
        }
        let rules = schema.as_object().ok_or_else(|| format!("{at} is no schema"))?;
        for (keyword, rule) in rules {
            let at = format!("{at}/{keyword}");
            self.keyword(keyword, (rule, &at), value, path)?;
        }
        let Some(fields) = rules.get("properties") else { return Ok(()) };
        for (name, value) in value.as_object().into_iter().flatten() {
            if fields.get(name).is_some() {
                continue;
            }
            match rules.get("additionalProperties") {
                Some(rule) => self.check((rule, &format!("{at}/*")), value, path)?,
                None => return Err(format!("{path}/{name} is not in the schema")),
            }
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: &str,
        (rule, at): (&'a Value, &str),
        value: &Value,
        path: &str,
    ) -> Result<(), String> {
        let differs = || Err(format!("{path} is {value}, {at} is {rule}"));
        match keyword {
            "$ref" => {
                let target = rule.as_str().ok_or("$ref is no text")?;
                let found = self.whole.pointer(target.trim_start_matches('#'));
                self.check((found.ok_or("$ref leads nowhere")?, target), value, path)
            }
            "type" if !is_of_type(rule, value) => differs(),
            "const" if rule != value => differs(),
            "enum" if !rule.as_array().ok_or("enum")?.contains(value) => differs(),
            "minimum" if value.as_f64() < rule.as_f64() && value.is_number() => differs(),
            "minItems" if value.as_array().map(|list| list.len() as u64) < rule.as_u64() => {
                differs()
            }
            "maxItems" if value.as_array().map(|list| list.len() as u64) > rule.as_u64() => {
                differs()
            }
            "type" | "const" | "enum" | "minimum" | "minItems" | "maxItems" => Ok(()),
            other if SAYS_NOTHING.contains(&other) => Ok(()),
            "anyOf" | "oneOf" => self.any((rule, at), value, path),
            "properties" => {
                for (name, rule) in rule.as_object().ok_or("properties")? {
                    if let Some(value) = value.get(name) {
                        self.shown.insert(format!("{at}/{name}"));
                        let place = (rule, &*format!("{at}/{name}"));
                        self.check(place, value, &format!("{path}/{name}"))?;
                    }
                }
                Ok(())
            }
            "required" => {
                let names = rule.as_array().ok_or("required")?.iter().filter_map(Value::as_str);
                let mut missing = names.filter(|name| value.get(name).is_none());
                missing.next().map_or(Ok(()), |name| Err(format!("{path} has no {name}")))
            }
            // Next to `properties` it is for other names; alone, as here, for all names.
            "additionalProperties" => {
                let members = value.as_object().into_iter().flatten();
                members.map(|(_, value)| value).try_for_each(|value| {
                    if at.ends_with("/additionalProperties") && rule.is_object() {
                        self.check((rule, at), value, path)
                    } else {
                        Ok(())
                    }
                })
            }
            "items" => {
                value.as_array().into_iter().flatten().enumerate().try_for_each(|(index, value)| {
                    self.check((rule, at), value, &format!("{path}/{index}"))
                })
            }
            other => Err(format!("{at}: the keyword {other} is not known here")),
        }
    }

    /// One of several rules has to fit; the first that fits counts.
    fn any(
        &mut self,
        (rules, at): (&'a Value, &str),
        value: &Value,
        path: &str,
    ) -> Result<(), String> {
        let mut failures = Vec::new();
        for (index, rule) in rules.as_array().ok_or("no list")?.iter().enumerate() {
            let mut walk = Self { whole: self.whole, shown: Places::new() };
            match walk.check((rule, &format!("{at}/{index}")), value, path) {
                Ok(()) => {
                    self.shown.extend(walk.shown);
                    return Ok(());
                }
                Err(failure) => failures.push(failure),
            }
        }
        Err(failures.join(", or "))
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let is = |word: &str| match word {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match rule {
        Value::Array(words) => words.iter().filter_map(Value::as_str).any(is),
        word => word.as_str().is_some_and(is),
    }
}

#[test]
fn json_schema_compare_rejects_differing_document() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "zones": { "type": "integer", "minimum": 1 },
            "label": { "anyOf": [{ "$ref": "#/$defs/Label" }, { "type": "null" }] },
            "counts": { "type": "object", "additionalProperties": { "type": "integer" } },
        },
        "required": ["zones"],
        "$defs": { "Label": { "type": "object", "properties": { "text": { "type": "string" } } } },
    });
    let compare = |text: &str| compare(&schema, &serde_json::from_str(text).unwrap());
    let full = compare(r#"{"zones":1,"label":{"text":"x"},"counts":{"a":1}}"#).unwrap();
    let mut all = Places::new();
    declared(&schema, "#", &mut all);
    assert_eq!(full, all);
    assert_eq!(compare(r#"{"zones":2,"label":null}"#).unwrap().len(), 2);
    for (text, why) in [
        ("[]", "is []"),
        (r#"{"label":null}"#, "has no zones"),
        (r#"{"zones":1.5}"#, "/zones is 1.5"),
        (r#"{"zones":0}"#, "minimum"),
        (r#"{"zones":1,"size":3}"#, "/size is not in the schema"),
        (r#"{"zones":1,"label":{"text":1}}"#, "/label/text is 1"),
        (r#"{"zones":1,"label":{"word":"x"}}"#, "/label/word is not in the schema"),
        (r#"{"zones":1,"counts":{"a":"b"}}"#, "/counts"),
    ] {
        let failure = compare(text).expect_err(text);
        assert!(failure.contains(why), "{text}: {failure}");
    }
    let unknown = serde_json::json!({ "not": {} });
    assert!(super::schema::compare(&unknown, &Value::Null).is_err());
}
