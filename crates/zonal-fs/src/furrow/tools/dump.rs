//! `zonal dump`: the structures on a drive as JSON, one value for each.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zerocopy::byteorder::little_endian::U32;
use zonal_placement::learned::ROW_SLOTS;

use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::drive::drives::Drives;
use crate::furrow::format::backref::{Backref, Owner};
use crate::furrow::format::remap::RemapRow;
use crate::furrow::format::row::{DiscardRow, LearnedRow, Place, Row, decode};
use crate::furrow::format::superblock::Superblock;
use crate::furrow::format::{ZoneGeneration, remap};
use crate::furrow::invariant::Problems;
use crate::furrow::log::superblock_log;
use crate::furrow::metadata::inode::row::inode_of;
use crate::furrow::metadata::{Body, Inode};
use crate::furrow::planted::Planted;
use crate::furrow::recovery::contents::missing_error;
use crate::furrow::recovery::replay::JournalReader;
use crate::furrow::recovery::{self, Opened};
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::leaf::decode_rows;
use crate::furrow::table::levels::Part;
use crate::furrow::table::part::{PartReader, PartSummary, unread};
use crate::furrow::table::remaps::zone_of;
use crate::furrow::table::store::DriveCopies;
use crate::furrow::table::view::scan::Scanned;
use crate::vfs::{FileKind, Ino, Result, Timestamp};

/// A kind of structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpWhat {
    /// The newest superblock of each zone that holds one.
    Superblock,
    /// The current manifest.
    Manifest,
    /// Every part of the table, with its level.
    Parts,
    /// Every leaf of every part.
    Leaves,
    /// Every row of every batch that the table does not have yet.
    Journal,
    /// Inodes.
    Inodes,
    /// Directory entries.
    Entries,
    /// Extended attributes.
    Xattrs,
    /// Shared extents.
    Extents,
    /// Map entries.
    Maps,
    /// Zones: role, live blocks, condition.
    Zones,
}

impl DumpWhat {
    /// Every kind, with its name on a command line.
    pub const ALL: [(&'static str, Self); 11] = [
        ("superblock", Self::Superblock),
        ("manifest", Self::Manifest),
        ("parts", Self::Parts),
        ("leaves", Self::Leaves),
        ("journal", Self::Journal),
        ("inodes", Self::Inodes),
        ("entries", Self::Entries),
        ("xattrs", Self::Xattrs),
        ("extents", Self::Extents),
        ("maps", Self::Maps),
        ("zones", Self::Zones),
    ];
}

/// Hands each structure of a kind to `each`. Writes nothing.
pub fn dump(drives: impl Into<Drives>, what: DumpWhat, each: &mut dyn FnMut(Value)) -> Result<()> {
    let drive = Drive::of(&drives.into())?;
    if what == DumpWhat::Superblock {
        let superblock_log::SuperblockSearch { found, bad, .. } = superblock_log::find_all(&drive);
        for found in &found {
            each(superblock(&found.superblock));
        }
        let newest = superblock_log::newest(&found, &bad, Planted::default()).map(drop);
        return newest.map_err(|error| missing_error(&drive, error));
    }
    let opened = recovery::open(&drive, Planted::default(), &mut Problems::default())?;
    let mut rows = |kind: RowKind| each_row(&drive, &opened, kind, each);
    match what {
        DumpWhat::Superblock => Ok(()),
        DumpWhat::Manifest => {
            each(manifest(&opened));
            Ok(())
        }
        DumpWhat::Parts => {
            parts(&opened, each);
            Ok(())
        }
        DumpWhat::Leaves => leaves(&drive, &opened, each),
        DumpWhat::Journal => journal(&drive, &opened, each),
        DumpWhat::Inodes => rows(RowKind::Inode),
        DumpWhat::Entries => rows(RowKind::Entry),
        DumpWhat::Xattrs => rows(RowKind::Xattr),
        DumpWhat::Extents => rows(RowKind::Extent),
        DumpWhat::Maps => rows(RowKind::Map),
        DumpWhat::Zones => zones(&drive, &opened, each),
    }
}

/// Hands on the readable rows of a kind.
fn each_row(
    drive: &Drive,
    opened: &Opened,
    kind: RowKind,
    each: &mut dyn FnMut(Value),
) -> Result<()> {
    opened.table.view.scan(drive, KeySpan::ALL, &mut |scanned| {
        if let Scanned::Row(key, value) = scanned
            && key.kind() == kind
            && let Ok(row) = decode(key, value)
            && let Some(value) = value_of(key, &row)
        {
            each(value);
        }
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn superblock(superblock: &Superblock) -> Value {
    let manifest: Vec<Value> = superblock
        .manifest
        .iter()
        .map(|copy| {
            json!({ "zone": copy.zone.get(), "block": copy.block.get(), "bytes": copy.bytes.get() })
        })
        .collect();
    let uuid = uuid::Uuid::from_bytes(superblock.uuid).to_string();
    json!({
        "zone": superblock.own_zone.get(),
        "block": superblock.own_block.get(),
        "version": superblock.version.get(),
        "uuid": uuid,
        "label": text(&superblock.label).trim_end_matches('\0'),
        "epoch": superblock.epoch.get(),
        "clean": superblock.clean.get() == 1,
        "created_ns": superblock.created_ns.get(),
        "reserve_percent": superblock.reserve_percent.get(),
        "device_block": superblock.device_block.get(),
        "device_blocks": superblock.device_blocks.get(),
        "zone_size": superblock.zone_size.get(),
        "zone_capacity": superblock.zone_capacity.get(),
        "zones": superblock.zones.get(),
        "conventional": superblock.conventional.get(),
        "data_zones": superblock.data_zones.get(),
        "manifest": manifest,
    })
}

fn manifest(opened: &Opened) -> Value {
    let header = &opened.manifest.header;
    let journal: Vec<[u32; 2]> =
        opened.manifest.journal.iter().map(|pair| pair.zone.map(U32::get)).collect();
    let levels = opened.table.view.levels();
    json!({
        "next_part": header.next_part.get(),
        "last_batch": header.last_batch.get(),
        "runs": levels.upper.len(),
        "parts": levels.parts().count(),
        "sweep_turn": levels.sweep.turn,
        "sweep_key": key(levels.sweep.key),
        "journal_zones": journal,
        "journal_block": header.journal_block.get(),
    })
}

fn key(key: Key) -> String {
    format!("{key:?}")
}

/// Runs are numbered from the newest on; the last level has no number.
fn parts(opened: &Opened, each: &mut dyn FnMut(Value)) {
    let levels = opened.table.view.levels();
    let part = |part: &Part| {
        let PartSummary { number, first, last, rows, tombstones, bytes, .. } = part.summary;
        json!({
            "part": number, "first": key(first), "last": key(last), "rows": rows,
            "deleted": tombstones, "bytes": bytes, "zone": part.at.map(|at| at.zone),
            "block": part.at.map(|at| at.block),
        })
    };
    for (index, run) in levels.upper.iter().enumerate() {
        for one in &run.parts {
            let mut value = part(one);
            (value["run"], value["tier"]) = (index.into(), run.tier.into());
            each(value);
        }
    }
    for one in &levels.last {
        each(part(one));
    }
}

fn leaves(drive: &Drive, opened: &Opened, each: &mut dyn FnMut(Value)) -> Result<()> {
    for part in opened.table.view.levels().parts() {
        let source = DriveCopies { drive, at: part.at };
        let reader = PartReader::open(&part.summary, opened.superblock.uuid, source);
        let reader = reader.map_err(unread)?;
        for index in 0..reader.leaves() {
            let (offset, bytes) = reader.index().place_of(index);
            // No copy of the leaf can be read: the index has its keys.
            let rows = reader.leaf(index).map(|leaf| leaf.len()).ok();
            each(json!({
                "part": part.summary.number, "leaf": index, "rows": rows,
                "first": key(reader.index().first_of(index)), "offset": offset, "bytes": bytes,
            }));
        }
        for &(first, last) in reader.index().lost() {
            each(json!({
                "part": part.summary.number, "lost": true, "first": key(first), "last": key(last),
            }));
        }
    }
    Ok(())
}

fn journal(drive: &Drive, opened: &Opened, each: &mut dyn FnMut(Value)) -> Result<()> {
    let (superblock, manifest) = (&opened.superblock, &opened.manifest);
    let mut reader =
        JournalReader::new(drive, &opened.zones, superblock, manifest, Planted::default());
    let corrupt = |why| FsError::Corrupt { what: "journal", why };
    while let Some(batch) = reader.next().map_err(corrupt)? {
        for body in &batch.bodies {
            let mut show = |key: Key, value: Option<&[u8]>| {
                let op = if value.is_some() { "put" } else { "delete" };
                let row = value.map(|value| decode(key, value)).transpose()?;
                each(json!({ "batch": batch.seq, "op": op, "row": row_value(key, row.as_ref()) }));
                Ok(())
            };
            decode_rows(body, &mut show).map_err(corrupt)?;
        }
    }
    Ok(())
}

fn moved_value(row: &RemapRow, tail: &[u8]) -> Value {
    let to = ZoneGeneration::from_raw(row.zone.get());
    let runs = remap::decode(row, tail).unwrap_or_default();
    let runs: Vec<_> = runs.iter().map(|run| [run.block, run.blocks]).collect();
    json!({
        "zone": to.zone(), "zone_generation": to.generation(), "block": row.block.get(), "runs": runs,
    })
}

/// A row; the key of a deleted one.
fn row_value(key: Key, row: Option<&Row<'_>>) -> Value {
    let (owner, at) = (key.owner(), key.at());
    let mut value = match key.kind() {
        RowKind::Inode => json!({ "inode": owner }),
        RowKind::Xattr => json!({ "inode": owner, "slot": at }),
        RowKind::Map => json!({ "inode": owner, "first": at }),
        RowKind::Entry => json!({ "parent": owner, "cookie": at }),
        RowKind::Extent => json!({ "extent": owner }),
        RowKind::Totals => json!({ "totals": owner }),
        RowKind::Zone => json!({ "zone": owner }),
        RowKind::Orphan => json!({ "orphan": owner }),
        RowKind::Learned => json!({ "learned": owner }),
        RowKind::Discard => json!({ "discarded_in": owner, "first": at }),
        RowKind::Name => json!({ "parent": owner, "hash": format!("{at:016x}") }),
        RowKind::Backrefs => json!({ "zone": owner, "list": at }),
        RowKind::Remap => {
            let from = zone_of(key).unwrap_or(ZoneGeneration::from_raw(u32::MAX));
            json!({ "moved_from": from.zone(), "generation": from.generation(), "number": at })
        }
    };
    let Some(row) = row else { return value };
    let more = match row {
        Row::Inode(row, target) => json!({
            "kind": row.kind, "perm": row.perm.get(), "nlink": row.nlink.get(),
            "context": row.context.get(), "uid": row.uid.get(), "gid": row.gid.get(), "size": row.size.get(),
            "count": row.count.get(), "next": row.next.get(), "mtime": [row.mtime.get(), i64::from(row.mtime_ns.get())], "target": text(target),
        }),
        Row::Entry(row, name) => json!({
            "name": text(name), "inode": row.ino.get(), "kind": row.kind,
        }),
        Row::Xattr(name, value) => json!({ "name": text(name), "bytes": value.len() }),
        Row::Extent(row, crcs) => json!({
            "zone": row.zone.get(), "block": row.block.get(), "blocks": crcs.len(),
            "refs": row.refs.get(),
        }),
        Row::Map(blocks, Place::Preallocated) => json!({ "blocks": blocks }),
        Row::Map(blocks, Place::Zone(place, _)) => json!({
            "blocks": blocks, "zone": place.generation().zone(),
            "generation": place.generation().generation(), "block": place.block.get(),
        }),
        Row::Map(blocks, Place::Shared(place, space)) => json!({
            "blocks": blocks, "extent": place.extent.get(), "skip": place.skip.get(),
            "preallocated": space.preallocated(*blocks),
        }),
        Row::Totals(row) => json!({
            "next_ino": row.next_ino.get(), "next_extent": row.next_extent.get(),
            "inodes": row.inodes.get(), "live": row.live.get(),
            "preallocated": row.preallocated.get(), "row_bytes": row.row_bytes.get(),
            "place_bytes": row.place_bytes.get(), "data_clock": row.data_clock.get(),
        }),
        Row::Zone(row) => json!({
            "live": row.live.get(), "end": row.end.get(), "last_write": row.last_write.get(),
            "born": row.born.get(), "moved": row.moved == 1,
            "next_owners": row.next_owners.get(), "listed": row.listed == 1,
            "generation": row.generation,
        }),
        Row::Orphan => json!({}),
        Row::Learned(row) => learned_value(owner, row),
        Row::Discard(row) => discarded_value(row),
        Row::Name(cookies) => json!({
            "cookies": cookies.iter().map(|cookie| cookie.get()).collect::<Vec<_>>(),
        }),
        Row::Backrefs(records) => json!({
            "records": records.iter().map(owner_record).collect::<Vec<_>>(),
        }),
        Row::Remap(row, tail) => moved_value(row, tail),
    };
    for (name, field) in more.as_object().into_iter().flatten() {
        value[name] = field.clone();
    }
    value
}

fn discarded_value(row: &DiscardRow) -> Value {
    json!({ "limit": row.limit.get(), "keeps_space": row.keeps_space == 1 })
}

/// Each context with a learned life or size, by its slot.
fn learned_value(number: u64, row: &LearnedRow) -> Value {
    let slots = row.lives.iter().zip(&row.sizes).enumerate();
    let slots = slots.filter(|(_, (life, size))| life.get() > 0 || size.get() > 0);
    let contexts = slots.map(|(slot, (life, size))| {
        let slot = number.saturating_mul(ROW_SLOTS.into()).saturating_add(slot as u64);
        json!({ "context": slot, "log_life": life.get(), "log_size": size.get() })
    });
    json!({ "contexts": contexts.collect::<Vec<_>>() })
}

fn owner_record(record: &Backref) -> Value {
    let mut value = json!({ "block": record.block, "blocks": record.blocks });
    match record.owner {
        Owner::Entry(ino, first) => {
            (value["inode"], value["first"]) = (json!(ino.get()), json!(first));
        }
        Owner::Extent(id) => value["extent"] = json!(id.0),
    }
    value
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// The row of an inode, entry, attribute, extent or map as JSON.
fn value_of(key: Key, row: &Row<'_>) -> Option<Value> {
    match row {
        Row::Inode(row, target) => {
            let inode = inode_of(row, target).ok()?;
            Some(inode_value(Ino::new(key.owner()), &inode))
        }
        Row::Entry(row, name) => Some(json!({
            "parent": key.owner(), "name": text(name), "inode": row.ino.get(),
            "cookie": key.at(),
        })),
        Row::Xattr(name, value) => {
            Some(json!({ "inode": key.owner(), "name": text(name), "value": text(value) }))
        }
        Row::Extent(row, crcs) => Some(json!({
            "extent": key.owner(), "zone": row.zone.get(), "block": row.block.get(),
            "blocks": crcs.len(), "refs": row.refs.get(), "crc32c": crcs_value(crcs),
        })),
        Row::Map(blocks, place) => Some(map_value(key, *blocks, place)),
        Row::Totals(_)
        | Row::Zone(_)
        | Row::Orphan
        | Row::Learned(_)
        | Row::Discard(_)
        | Row::Name(_)
        | Row::Backrefs(_)
        | Row::Remap(..) => None,
    }
}

fn crcs_value(crcs: &[U32]) -> Value {
    crcs.iter().map(|crc| crc.get()).collect()
}

/// Seconds and nanoseconds: together they are more than a number of JSON holds.
fn time(time: Timestamp) -> Value {
    json!([time.secs(), time.nanos()])
}

fn inode_value(ino: Ino, inode: &Inode) -> Value {
    let mut value = json!({
        "inode": ino.get(), "kind": kind_name(inode.kind), "perm": format!("{:04o}", inode.perm),
        "nlink": inode.nlink, "uid": inode.uid, "gid": inode.gid, "size": inode.size,
        "blocks": inode.attr(ino).blocks, "atime": time(inode.atime),
        "mtime": time(inode.mtime), "ctime": time(inode.ctime), "btime": time(inode.btime),
    });
    if !inode.flags.is_empty() {
        value["flags"] = json!(inode.flags.bits());
    }
    match &inode.body {
        Body::Symlink(target) => value["target"] = json!(text(target)),
        Body::Directory(directory) => value["parent"] = json!(directory.parent.get()),
        Body::Special => value["rdev"] = json!(inode.rdev),
        Body::File(_) => {}
    }
    value
}

fn map_value(key: Key, blocks: u32, place: &Place<'_>) -> Value {
    let mut value = json!({ "inode": key.owner(), "first": key.at(), "blocks": blocks });
    match place {
        Place::Preallocated => {}
        Place::Zone(place, crcs) => {
            value["zone"] = json!(place.address().zone);
            value["block"] = json!(place.block.get());
            value["crc32c"] = crcs_value(crcs);
        }
        Place::Shared(place, space) => {
            value["preallocated"] = json!(space.preallocated(blocks));
            value["extent"] = json!(place.extent.get());
            value["skip"] = json!(place.skip.get());
        }
    }
    value
}

/// Rows of map entries and extents, which say where data lies, count the live blocks of zones.
fn zones(drive: &Drive, opened: &Opened, each: &mut dyn FnMut(Value)) -> Result<()> {
    let mut counts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    opened.table.view.scan(drive, KeySpan::ALL.starting_at(Key::BASE_END), &mut |scanned| {
        let Scanned::Row(key, value) = scanned else { return };
        let (zone, blocks) = match decode(key, value) {
            Ok(Row::Extent(row, crcs)) => (row.zone.get(), crcs.len()),
            Ok(Row::Map(_, Place::Zone(place, crcs))) => (place.address().zone, crcs.len()),
            _ => return,
        };
        let (live, runs) = counts.entry(zone).or_default();
        *live += blocks as u64;
        *runs += 1;
    })?;
    for (zone, slot) in opened.zones.iter().zip(opened.slots(drive)) {
        let (live, runs) = counts.get(&zone.id.get()).copied().unwrap_or_default();
        each(json!({
            "zone": zone.id.get(), "cond": zone.cond.name(), "role": slot.role.name(),
            "capacity_blocks": slot.capacity, "live_blocks": live, "extents": runs,
        }));
    }
    Ok(())
}
