//! `zonal dump`: the structures on a drive as JSON, one value for each.

use std::sync::Arc;

use serde_json::{Value, json};
use zonal::ZonedDevice;

use super::format::row::{Place, Row, RowOp, decode};
use super::format::superblock::Superblock;
use super::invariant::Problems;
use super::io::Drive;
use super::layout::Layout;
use super::place::MapEntry;
use super::planted::Planted;
use super::recover::{self, Copies, Loaded};
use super::replay::Reader;
use super::state::{Body, Inode};
use super::superlog;
use crate::FsError;
use crate::vfs::{FileKind, Ino, Result, Timestamp};

/// What to dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpWhat {
    /// The newest superblock of each zone that holds one.
    Superblock,
    /// The current manifest.
    Manifest,
    /// Every row of every batch since the checkpoint.
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
    /// Every one, with the word for it on a command line.
    pub const ALL: [(&'static str, Self); 9] = [
        ("superblock", Self::Superblock),
        ("manifest", Self::Manifest),
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
pub fn dump(
    device: Arc<dyn ZonedDevice>,
    what: DumpWhat,
    each: &mut dyn FnMut(Value),
) -> Result<()> {
    let layout = Layout::new(device.geometry())?;
    let drive = Drive::new(device, layout);
    if what == DumpWhat::Superblock {
        let superlog::Search { found, bad, .. } = superlog::find_all(&drive);
        for found in &found {
            each(superblock(&found.superblock));
        }
        return superlog::newest(&found, &bad, Planted::default()).map(drop);
    }
    let loaded =
        recover::read(&drive, Copies::First, Planted::default(), &mut Problems::default())?;
    match what {
        DumpWhat::Superblock => {}
        DumpWhat::Manifest => each(manifest(&loaded)),
        DumpWhat::Journal => journal(&drive, &loaded, each)?,
        DumpWhat::Inodes => inodes(&loaded, each),
        DumpWhat::Entries => entries(&loaded, each),
        DumpWhat::Xattrs => xattrs(&loaded, each),
        DumpWhat::Extents => extents(&loaded, each),
        DumpWhat::Maps => maps(&loaded, each),
        DumpWhat::Zones => zones(&loaded, each),
    }
    Ok(())
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
        "manifest": manifest,
    })
}

fn manifest(loaded: &Loaded) -> Value {
    let header = &loaded.manifest.header;
    let both =
        |zone: [zerocopy::little_endian::U32; 2]| zone.map(zerocopy::little_endian::U32::get);
    let pieces: Vec<Value> = loaded
        .manifest
        .pieces
        .iter()
        .map(|piece| {
            json!({
                "zone": both(piece.zone), "block": both(piece.block), "bytes": piece.bytes.get(),
            })
        })
        .collect();
    let journal: Vec<[u32; 2]> =
        loaded.manifest.journal.iter().map(|zones| both(zones.zone)).collect();
    json!({
        "next_ino": header.next_ino.get(),
        "next_extent": header.next_extent.get(),
        "last_batch": header.last_batch.get(),
        "rows": header.rows.get(),
        "data_clock": header.data_clock.get(),
        "pieces": pieces,
        "journal_zones": journal,
        "journal_block": both(header.journal_block),
    })
}

fn journal(drive: &Drive, loaded: &Loaded, each: &mut dyn FnMut(Value)) -> Result<()> {
    let identity = (loaded.superblock.uuid, loaded.superblock.epoch.get());
    let mut reader =
        Reader::new(drive, &loaded.zones, identity, &loaded.manifest, Planted::default());
    let corrupt = |why| FsError::Corrupt { what: "journal", why };
    while let Some(batch) = reader.next().map_err(corrupt)? {
        let mut body = &batch.body[..];
        let mut next = || decode(&mut body).map_err(corrupt);
        while let Some((op, decoded)) = next()? {
            let op = if op == RowOp::Put { "put" } else { "delete" };
            each(json!({ "batch": batch.seq, "op": op, "row": row(&decoded) }));
        }
    }
    Ok(())
}

fn row(row: &Row<'_>) -> Value {
    match row {
        Row::Inode(row, target) => json!({
            "inode": row.ino.get(), "kind": row.kind, "perm": row.perm.get(),
            "nlink": row.nlink.get(), "uid": row.uid.get(), "gid": row.gid.get(),
            "size": row.size.get(), "mtime": [row.mtime.get(), i64::from(row.mtime_ns.get())], "target": text(target),
        }),
        Row::Entry(row, name) => json!({
            "parent": row.parent.get(), "name": text(name), "inode": row.ino.get(),
            "cookie": row.cookie.get(),
        }),
        Row::Xattr(row, name, value) => json!({
            "inode": row.ino.get(), "name": text(name), "bytes": value.len(),
        }),
        Row::Extent(row, crcs) => json!({
            "extent": row.id.get(), "zone": row.zone.get(), "block": row.block.get(),
            "blocks": crcs.len(), "refs": row.refs.get(),
        }),
        Row::Map(row, place) => {
            let mut value = json!({
                "inode": row.ino.get(), "first": row.first.get(), "blocks": row.blocks.get(),
            });
            match place {
                Place::Preallocated => {}
                Place::Zone(place, _) => {
                    (value["zone"], value["block"]) =
                        (place.zone.get().into(), place.block.get().into());
                }
                Place::Shared(place) => {
                    (value["extent"], value["skip"]) =
                        (place.extent.get().into(), place.skip.get().into());
                }
            }
            value
        }
    }
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

fn inodes(loaded: &Loaded, each: &mut dyn FnMut(Value)) {
    for (ino, inode) in &loaded.state.inodes {
        each(inode_value(*ino, inode));
    }
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

fn entries(loaded: &Loaded, each: &mut dyn FnMut(Value)) {
    for (parent, inode) in &loaded.state.inodes {
        let Ok(directory) = inode.directory() else { continue };
        for (name, entry) in &directory.by_name {
            each(json!({
                "parent": parent.get(), "name": text(name), "inode": entry.ino.get(),
                "cookie": entry.cookie,
            }));
        }
    }
}

fn xattrs(loaded: &Loaded, each: &mut dyn FnMut(Value)) {
    for (ino, inode) in &loaded.state.inodes {
        for (name, value) in &inode.xattrs {
            each(json!({ "inode": ino.get(), "name": text(name), "value": text(value) }));
        }
    }
}

fn extents(loaded: &Loaded, each: &mut dyn FnMut(Value)) {
    for (id, extent) in &loaded.state.extents {
        each(json!({
            "extent": id.0, "zone": extent.zone, "block": extent.block,
            "blocks": extent.crcs.blocks(), "refs": extent.refs, "crc32c": extent.crcs.as_slice(),
        }));
    }
}

fn maps(loaded: &Loaded, each: &mut dyn FnMut(Value)) {
    for (ino, inode) in &loaded.state.inodes {
        let Ok(file) = inode.file() else { continue };
        for (first, entry) in &file.map {
            let mut value = json!({ "inode": ino.get(), "first": first, "blocks": entry.blocks() });
            match entry {
                MapEntry::Preallocated { .. } => {}
                MapEntry::At { zone, block, crcs } => {
                    value["zone"] = json!(zone);
                    value["block"] = json!(block);
                    value["crc32c"] = json!(crcs.as_slice());
                }
                MapEntry::Shared { extent, skip, .. } => {
                    value["extent"] = json!(extent.0);
                    value["skip"] = json!(skip);
                }
            }
            each(value);
        }
    }
}

fn zones(loaded: &Loaded, each: &mut dyn FnMut(Value)) {
    for zone in &loaded.zones {
        let slot = loaded.state.zones.slot(zone.id.get());
        each(json!({
            "zone": zone.id.get(), "cond": zone.cond.name(), "role": slot.role.name(),
            "capacity_blocks": slot.capacity, "live_blocks": slot.live,
            "extents": slot.runs(),
        }));
    }
}
