//! The file for a maintainer: findings, and the facts behind them, as one JSON document.
//!
//! It has no names or contents of files: of a mount the counters and the options, of a device its
//! shape and the conditions of its zones, of the machine its disks and the lines of the kernel's
//! log that name them.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use zonal::mounts::Mount;
use zonal_linux::machine::{Disk, Facts, Node};

use super::finding::Report;
use crate::control;
use crate::output::json::text;

/// Writes the file, which must not be there.
pub(super) fn write(
    file: &Path,
    report: &Report,
    machine: &Facts,
    mount: Option<&Mount>,
) -> Result<()> {
    let writing = || format!("writing {}", file.display());
    let mut bundle =
        OpenOptions::new().write(true).create_new(true).open(file).with_context(writing)?;
    let document = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "report": report,
        "machine": of_machine(machine),
        // A mount that has not told its access does not answer.
        "mount": mount.filter(|_| report.facts.contains_key("access")).map(of_mount),
    });
    bundle.write_all(text(&document)?.as_bytes()).with_context(writing)
}

fn of_machine(facts: &Facts) -> Value {
    json!({
        "kernel": facts.release,
        "options": facts.options.as_ref().map(|options| {
            options.iter().map(|(name, value)| (*name, value.to_string())).collect::<BTreeMap<_, _>>()
        }),
        "fuse": format!("{:?}", facts.fuse.access),
        "ublk": format!("{:?}", facts.ublk.access),
        "io_uring_disabled": facts.io_uring_disabled,
        "log": format!("{:?}", facts.log),
        "disks": facts.disks.iter().map(of_disk).collect::<Vec<_>>(),
    })
}

fn of_disk(disk: &Disk) -> Value {
    let node = |node: &Option<Node>| {
        node.as_ref().map(|node| format!("{} {:?}", node.path.display(), node.access))
    };
    json!({
        "name": disk.name,
        "bus": format!("{:?}", disk.bus),
        "adapter": disk.adapter,
        "model": disk.model,
        "scsi_type": disk.scsi_type,
        "block": node(&disk.block),
        "generic": node(&disk.generic),
        "queue": disk.queue.as_ref().map(|queue| format!("{queue:?}")),
        "queue_depth": disk.queue_depth,
        "log": disk.log,
    })
}

/// Counters and options, without the paths in them.
fn of_mount(mount: &Mount) -> Value {
    const PATHS: [&str; 2] = ["mount", "source"];
    let read = |name: &str| {
        let text = control::read(&mount.point, name).ok()?;
        serde_json::from_str::<Value>(&text).ok().map(|mut value| {
            without(&mut value, &PATHS);
            value
        })
    };
    json!({ "stats": read("stats"), "options": read("options") })
}

/// Removes texts by the names of their fields.
fn without(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !(names.contains(&&**name) && value.is_string()));
            fields.values_mut().for_each(|value| without(value, names));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| without(value, names)),
        _ => {}
    }
}
