//! `zonal create`: an emulated zoned drive in a sparse file.

use anyhow::{Context, Result};
use serde::Serialize;
use zonal::Geometry;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::profile::{Changes, ZoneLimit};

use crate::args::{Create, Global};
use crate::output::{count, json, size};

#[derive(Serialize)]
struct Created<'a> {
    file: &'a std::path::Path,
    bytes: u64,
    zones: u32,
}

/// Makes the file.
pub(crate) fn run(global: &Global, args: &Create) -> Result<()> {
    let name = args.file.display();
    let changes = changes(args);
    let spec = changes.geometry().with_context(|| format!("cannot create {name}"))?;
    let options = CreateOptions {
        geometry: spec,
        rules: args.profile.rules(),
        uuid: uuid::Uuid::new_v4().into_bytes(),
        overwrite: if args.force { Overwrite::Replace } else { Overwrite::Refuse },
    };
    FileDrive::create(&args.file, &options).with_context(|| format!("cannot create {name}"))?;
    let geometry = Geometry::new(spec).context("the shape was checked when the file was made")?;
    let bytes = geometry.bytes(geometry.block_count()).get();
    if global.json {
        let zones = geometry.zone_count();
        return json::document(&Created { file: &args.file, bytes, zones });
    }
    let zones = count(geometry.zone_count().into());
    let zone = size(geometry.bytes(geometry.zone_size()).get());
    sayln!("{name}: {} in {zones} zones of {zone}, sparse", size(bytes));
    Ok(())
}

/// What the options change of the profile.
fn changes(args: &Create) -> Changes {
    let limit = |zones: Option<u32>| {
        zones.map(|zones| match zones {
            0 => ZoneLimit::Unlimited,
            zones => ZoneLimit::AtMost(zones),
        })
    };
    Changes {
        profile: args.profile,
        size: args.size,
        zones: args.zones,
        block: args.block_size,
        zone: args.zone_size,
        capacity: args.zone_capacity,
        conventional: args.conventional,
        open: limit(args.max_open),
        active: limit(args.max_active),
        append: args.max_append,
    }
}
