//! `zonal stats`: the counters of a mounted file system, from its control directory.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use zonal_fuse::{ServeError, control};

use crate::args::{Global, Stats};
use crate::output::table;

/// The members of a JSON object in the order in which they stand there.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        from.deserialize_map(InOrder)
    }
}

/// Prints them.
pub(crate) fn run(global: &Global, args: &Stats) -> Result<()> {
    let text = read(&args.dir)?;
    if global.json {
        say!("{text}");
        return Ok(());
    }
    let Members(members) = parse(&text)?;
    let pairs: Vec<(&str, String)> = members
        .iter()
        .map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            (name.as_str(), value)
        })
        .collect();
    say!("{}", table::properties(&pairs));
    Ok(())
}

/// One of them that is a text.
pub(crate) fn text(dir: &Path, name: &str) -> Result<String> {
    member(dir, name, |value| value.as_str().map(ToOwned::to_owned))
}

/// One of them that is a number.
pub(crate) fn number(dir: &Path, name: &str) -> Result<u64> {
    member(dir, name, Value::as_u64)
}

fn member<T>(dir: &Path, name: &str, read_as: impl Fn(&Value) -> Option<T>) -> Result<T> {
    let Members(members) = parse(&read(dir)?)?;
    let found = members.iter().find(|(other, _)| other == name);
    let found = found.and_then(|(_, value)| read_as(value));
    found.with_context(|| format!("the counters have no {name}"))
}

fn parse(text: &str) -> Result<Members> {
    serde_json::from_str(text).context("the counters are not valid JSON")
}

fn read(dir: &Path) -> Result<String> {
    match fs::read_to_string(dir.join(control::NAME).join("stats")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir.exists() => {
            Err(ServeError::NotServed { point: dir.to_owned() }.into())
        }
        read => read.with_context(|| format!("reading the counters of {}", dir.display())),
    }
}
