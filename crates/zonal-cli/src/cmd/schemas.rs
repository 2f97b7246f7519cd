//! `zonal schemas`: the documents of each command with `--json`, as JSON Schema 2020-12.
//!
//! A schema is made from the struct that the command prints, so the two cannot differ. Its names
//! are in `docs/json.md`; `tests/json` compares schemas with that page and with printed documents.

use anyhow::{Context, Result};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use zonal::output;
use zonal_eval::Comparison;
use zonal_fs::disk::{DiskInfo, ListedDisk};
use zonal_fuse::control::Report;
use zonal_sim::experiment::Document;

use super::{
    bench, block, check, compliance, create, doctor, files, info, map, mkfs, mkzonefs, mount,
    quickstart, reclaim,
};
use super::{serve, sim, trace, umount, zone, zones};
use crate::args::schemas::Schemas;
use crate::output::failure::Failure;

/// Makes a schema.
type Make = fn() -> Schema;

/// Every command that prints JSON, with the schema of a document of it. The schema of
/// `zone` is also that of its subcommands. `error` is no command: a command that fails prints it.
const SCHEMAS: [(&str, Make); 42] = [
    ("append", of::<block::Done>),
    ("bench", of::<Vec<bench::Row>>),
    ("check", of::<check::Report<'_>>),
    ("compliance", of::<compliance::Answer<'_>>),
    ("create", of::<create::Created<'_>>),
    ("df", of::<Vec<files::space::Report>>),
    ("disk clone", of::<DiskInfo>),
    ("disk create", of::<DiskInfo>),
    ("disk info", of::<DiskInfo>),
    ("disk list", of::<Vec<ListedDisk>>),
    ("disk resize", of::<DiskInfo>),
    ("disk snapshot", of::<DiskInfo>),
    ("doctor", of::<doctor::Report>),
    ("error", of::<Failure>),
    ("info", of::<info::Report>),
    ("ls", of::<Vec<files::list::Listed>>),
    ("map", of::<map::ZoneContent>),
    ("mkfs", of::<mkfs::Answer<'_>>),
    ("mkzonefs", of::<mkzonefs::Made<'_>>),
    ("mount", of::<mount::Answer<'_>>),
    ("quickstart", of::<quickstart::report::Summary<'_>>),
    ("read", of::<block::Done>),
    ("reclaim", of::<reclaim::Answer>),
    ("serve nbd", of::<serve::nbd::Answer<'_>>),
    ("serve nvme-tcp", of::<serve::Answer<'_>>),
    ("serve ublk", of::<serve::ublk::Answer<'_>>),
    ("sim config", of::<sim::Configs>),
    ("sim experiment", of::<Document<'_>>),
    ("sim fields", of::<Vec<zonal_sim::config::fields::Field>>),
    ("sim fs", of::<Comparison>),
    ("sim replay", of::<sim::run::Ran<'_>>),
    ("sim reproduce", of::<sim::experiment::Written<'_>>),
    ("sim run", of::<sim::run::Ran<'_>>),
    ("sim show", of::<sim::show::Shown>),
    ("sim sweep", of::<sim::sweep::Swept>),
    ("stat", of::<Vec<files::list::Listed>>),
    ("stats", of::<Report>),
    ("trace replay", of::<trace::Done>),
    ("umount", of::<umount::Answer<'_>>),
    ("write", of::<block::Done>),
    ("zone", of::<zone::Done<'_>>),
    ("zones", of::<zones::Row>),
];

/// Writes a file for each.
pub(crate) fn run(args: &Schemas) -> Result<()> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    for (command, schema) in SCHEMAS {
        let mut schema = schema();
        let title = match command {
            "error" => "a failure of any command, with --json".to_owned(),
            command => format!("zonal {command} --json"),
        };
        schema.insert("title".to_owned(), title.into());
        let text =
            serde_json::to_string_pretty(&schema).context("writing a schema as JSON")? + "\n";
        let path = dir.join(format!("{}.json", command.replace(' ', "-")));
        output::write(&path, text, &[]).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// Commands that print no document of theirs with `--json`, and why.
    const WITHOUT: [(&str, &str); 13] = [
        ("cat", "prints contents"),
        ("completions", "prints a script"),
        ("cp", "prints nothing, or contents"),
        ("disk rm", "prints nothing"),
        ("dump", "prints structures as docs/format has them, one line of JSON each, in any case"),
        ("ln", "prints nothing"),
        ("man", "prints nothing"),
        ("mkdir", "prints nothing"),
        ("mv", "prints nothing"),
        ("rm", "prints nothing"),
        ("schemas", "prints nothing"),
        ("top", "draws on a terminal: `zonal stats --json --watch` has the numbers"),
        ("trace print", "prints lines of a trace"),
    ];

    /// The commands that have no subcommands.
    fn leaves(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
        let mut below = command.get_subcommands().filter(|below| below.get_name() != "help");
        let Some(first) = below.next() else {
            found.insert(name.to_owned());
            return;
        };
        for below in std::iter::once(first).chain(below) {
            leaves(below, format!("{name} {}", below.get_name()).trim(), found);
        }
    }

    #[test]
    fn schemas_cover_every_command_with_json_output() {
        let mut found = BTreeSet::new();
        leaves(&Cli::command(), "", &mut found);
        let schemas: BTreeSet<&str> = SCHEMAS.iter().map(|(command, _)| *command).collect();
        assert_eq!(schemas.len(), SCHEMAS.len(), "one schema for each");
        for name in &found {
            let group = name.split(' ').next().expect("a name has a word");
            let has_schema = schemas.contains(&**name) || schemas.contains(group);
            let is_without = WITHOUT.iter().any(|(without, _)| without == name);
            assert!(has_schema != is_without, "`zonal {name}`: with a schema or without?");
        }
        for command in schemas.into_iter().filter(|command| *command != "error") {
            let is_there =
                |name: &String| name.split(' ').next() == Some(command) || name == command;
            assert!(found.iter().any(is_there), "there is no `zonal {command}`");
        }
    }
}
