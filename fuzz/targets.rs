//! The fuzz targets parse bytes; where a checksum guards a structure, they put the right one on it
//! first. Nothing may panic, loop or allocate without bound.
//!
//! `cargo fuzz run TARGET` runs one with libFuzzer; `crates/zonal-fs/tests/fuzz.rs` runs all of
//! them over `fixtures/corpus/` and mutations of it.

#![allow(dead_code, reason = "a fuzzer's binary uses one target")]

#[path = "table.rs"]
mod table;

use std::path::Path;
use std::sync::{Arc, Mutex};

use zerocopy::{FromBytes, IntoBytes};
use zonal::crc32c;
use zonal::file::format::{DriveHeader, HostLen, parse_header};
use zonal::layer::fault::FaultPlan;
use zonal::layer::trace::{TraceReader, replay};
use zonal::{
    BlockSize, DeviceError, GeometrySpec, Lba, LbaCount, ManualClock, MemoryDrive, OpenMode,
    Select, Zone, ZoneAction, ZoneKind, ZoneRuns, ZonedDevice, spec,
};
use zonal_fs::furrow::format::batch::take_fresh;
use zonal_fs::furrow::format::manifest::{KeyBytes, Manifest, PartPointer};
use zonal_fs::furrow::format::record::{
    HEADER_BYTES, RecordBuffer, RecordHeader, RecordId, RecordKind, decode_header, verify,
};
use zonal_fs::furrow::format::superblock::Superblock;
use zonal_fs::furrow::format::{self, Address, BLOCK_BYTES, row};
use zonal_fs::furrow::table::key::{Key, RowKind};
use zonal_fs::furrow::table::leaf::decode_rows;
use zonal_fs::furrow::table::merge::Cursor;
use zonal_fs::furrow::table::part::{
    BuiltPart, PartBuilder, PartId, PartReader, PartSource, PartSummary,
};
use zonal_fs::furrow::{
    Access, DataCheck, DumpWhat, Furrow, MkfsOptions, MountOptions, check, dump, mkfs,
};
use zonal_fs::signature;
use zonal_fs::tree::snapshot;
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags, XattrMode};
use zonal_fs::zonefs::{self, format::RawSuperblock};

/// A target: its name, which is also its corpus folder, and its body.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const TARGETS: [Target; 11] = [
    ("superblock", superblock),
    ("record", record),
    ("manifest", manifest),
    ("drive_header", drive_header),
    ("device_spec", device_spec),
    ("trace", trace),
    ("mount_image", mount_image),
    ("zonefs_superblock", zonefs_superblock),
    ("leaf", table::leaf),
    ("part", table::part),
    ("owners", owners),
];

/// A superblock as it is, and with magic, address and checksum put right.
pub(crate) fn superblock(data: &[u8]) {
    let own = Address { zone: 3, block: 7 };
    let _ = Superblock::decode(data, own);
    if let Ok((superblock, _)) = Superblock::read_from_prefix(data) {
        let bytes = superblock.encode(own);
        let _ = Superblock::decode(&bytes, own);
    }
}

/// The value of a row of back-references.
pub(crate) fn owners(data: &[u8]) {
    if let Ok(records) = format::backref::decode(data) {
        let again = format::backref::decode(&format::backref::encode(&records));
        assert_eq!(again, Ok(records), "it is read as it was written");
    }
}

/// A zonefs super block as it is, and with magic and checksum put right; and as the start of a
/// device of unknown content.
pub(crate) fn zonefs_superblock(data: &[u8]) {
    let mut bytes = [0; 4096];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    let _ = zonefs::Superblock::parse(&bytes);
    let mut raw: RawSuperblock = zerocopy::transmute!(bytes);
    raw.magic = zonefs::MAGIC.into();
    raw.crc = raw.checksum().into();
    if let Ok(superblock) = zonefs::Superblock::parse(&zerocopy::transmute!(raw)) {
        let again = zonefs::Superblock::parse(&superblock.to_bytes());
        assert_eq!(again, Ok(superblock), "it is read as it was written");
    }
    if let Ok(drive) = MemoryDrive::new(small()) {
        drive.write(Lba::ZERO, &bytes).expect("the drive is empty");
        let _ = signature::find(&drive);
    }
}

/// A record as it is; and `data` as the body of a sound one, with all its rows.
pub(crate) fn record(data: &[u8]) {
    let own = Address { zone: 3, block: 7 };
    for kind in [RecordKind::Batch, RecordKind::Manifest] {
        if let Ok(header) = decode_header(data, kind, own) {
            let _ = verify(data, &header);
        }
    }
    let mut buffer = RecordBuffer::new();
    buffer.body().extend_from_slice(data);
    let padded = buffer.pad();
    let bytes = padded.record_bytes();
    let id = RecordId {
        kind: RecordKind::Batch,
        uuid: [1; 16],
        continues: false,
        trails: false,
        seq: 1,
        prev: 0,
    };
    let (sealed, _) = padded.seal(&id, own);
    let header = decode_header(&sealed, RecordKind::Batch, own).expect("it was just sealed");
    verify(&sealed[..bytes], &header).expect("it was just sealed");
    let body = &sealed[HEADER_BYTES..bytes];
    for rows in [body, take_fresh(body).map_or(&[][..], |(_, rows)| rows)] {
        let _ = decode_rows(rows, &mut |key, value: Option<&[u8]>| {
            value.map_or(Ok(()), |value| row::decode(key, value).map(drop))
        });
    }
    for kind in RowKind::ALL {
        let _ = row::decode(Key::new(kind, 1, 1), data);
    }
}

/// The body of a manifest.
pub(crate) fn manifest(data: &[u8]) {
    if let Ok(manifest) = Manifest::decode(data) {
        let mut body = Vec::new();
        manifest.encode(&mut body);
        assert_eq!(Manifest::decode(&body).as_ref(), Ok(&manifest), "it decodes as it was encoded");
    }
}

/// The head of a drive file as it is, and with its checksum put right.
pub(crate) fn drive_header(data: &[u8]) {
    const HEADER: usize = size_of::<DriveHeader>();
    let len = u64::try_from(data.len()).expect("in memory");
    let mut fixed = data.to_vec();
    if fixed.len() >= HEADER {
        fixed[..8].copy_from_slice(b"ZONALDRV");
        let crc = crc32c::crc32c(&fixed[20..HEADER]);
        fixed[16..20].copy_from_slice(&crc.to_le_bytes());
    }
    for host_len in [HostLen::File(len), HostLen::Disk(len), HostLen::Disk(u64::MAX)] {
        let _ = parse_header(data, host_len);
        let _ = parse_header(&fixed, host_len);
    }
}

/// A device specification and a fault plan. Specifications that would make files are left out.
pub(crate) fn device_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = text.parse::<FaultPlan>();
    if !text.contains("trace") && text.len() < 256 {
        let text = format!("{text}:mem:zones=20,zone=1M");
        for text in [format!("concat(({text}),mem:zone=1M)"), text] {
            let _ = spec::open(&text, OpenMode::ReadOnly, Arc::new(ManualClock::new(0)));
        }
    }
}

/// A trace, replayed on a small drive.
pub(crate) fn trace(data: &[u8]) {
    let Ok(mut trace) = TraceReader::new(data, Path::new("fuzzed")) else { return };
    if let Ok(drive) = MemoryDrive::new(small()) {
        let _ = replay(&mut trace, &drive);
    }
}

/// A small drive with a file system whose structures were changed, with every checksum right, so
/// that the fuzzer reaches the code behind the checksums. The first byte names the structure; then
/// come groups of four: two bytes for a position, one for the kind of change, one for its value.
pub(crate) fn mount_image(data: &[u8]) {
    let Some((&which, edits)) = data.split_first() else { return };
    let drive = Arc::new(Patched::formatted());
    drive.patch(which, edits);
    let device = || -> Arc<dyn ZonedDevice> { drive.clone() };
    let before = check(device(), DataCheck::Read, &mut |_| ());
    for (_, what) in DumpWhat::ALL {
        let _ = dump(device(), what, &mut |_| ());
    }
    let clock = Arc::new(ManualClock::new(0));
    let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    if let Ok(fs) = Furrow::mount(device(), clock.clone(), options) {
        let _ = snapshot(&fs);
    }
    let mount = || Furrow::mount(device(), clock.clone(), MountOptions::default());
    let Ok(fs) = mount() else { return };
    let _ = snapshot(&fs);
    fill(&fs, "more");
    if fs.sync().is_err() {
        return;
    }
    drop(fs);
    // A mount reads little, and leaves other damage as it is. A sound image must stay sound.
    let after = check(device(), DataCheck::Read, &mut |_| ());
    if before.is_ok_and(|report| report.is_clean()) {
        let after = after.expect("just committed");
        assert!(after.is_clean(), "{after:?}");
        mount().expect("just committed");
    }
}

fn small() -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(24 * 80),
        zone_size: LbaCount::new(80),
        zone_capacity: LbaCount::new(72),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(14),
        max_active: Some(14),
        max_append: LbaCount::new(16),
    }
}

/// A few inodes of each kind. Calls may fail, because the image may be damaged.
fn fill(fs: &Furrow, prefix: &str) {
    let make = |parent, name: &str, kind| {
        let target: &[u8] = if kind == FileKind::Symlink { b"target" } else { b"" };
        let new = NewInode { kind, perm: 0o755, rdev: 0, target };
        let name = format!("{prefix}-{name}");
        fs.create(&Caller::ROOT, parent, name.as_bytes(), &new).map(|attr| attr.ino)
    };
    let Ok(dir) = make(Ino::ROOT, "dir", FileKind::Directory) else { return };
    let Ok(file) = make(dir, "file", FileKind::Regular) else { return };
    let _ = fs.write(file, 100, &[5; 9000], WriteFlags::empty());
    let _ = fs.setxattr(&Caller::ROOT, file, b"user.a", b"value", XattrMode::Any);
    if let Ok(short) = make(dir, "short", FileKind::Regular) {
        // The file system learns from its end how long such data lives.
        let _ = fs.write(short, 0, &[5; 9000], WriteFlags::empty()).and_then(|_| fs.sync());
        let _ = fs.unlink(dir, format!("{prefix}-short").as_bytes());
    }
    let _ = make(Ino::ROOT, "link", FileKind::Symlink);
    if let Ok(other) = make(Ino::ROOT, "other", FileKind::Regular) {
        let _ = fs.write(other, 0, &vec![6; 70_000], WriteFlags::empty());
        let _ = fs.copy_range((other, 0), (file, 8192), 8192, WriteFlags::empty());
    }
}

/// A drive whose blocks can be changed behind its back.
struct Patched {
    below: MemoryDrive,
    blocks: Mutex<std::collections::BTreeMap<u64, Vec<u8>>>,
}

impl Patched {
    /// A drive with a table, and a batch in the journal.
    fn formatted() -> Self {
        let below = MemoryDrive::new(small()).expect("a possible geometry");
        let drive = Arc::new(below);
        let clock = Arc::new(ManualClock::new(0));
        mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).expect("it is empty");
        let mount = || Furrow::mount(drive.clone(), clock.clone(), MountOptions::default());
        let fs = mount().expect("just formatted");
        fill(&fs, "first");
        fs.shutdown().expect("nothing fails");
        drop(fs);
        let fs = mount().expect("just unmounted");
        fill(&fs, "second");
        fs.sync().expect("nothing fails");
        drop(fs);
        let below = Arc::into_inner(drive).expect("nobody else has it");
        Self { below, blocks: Mutex::default() }
    }

    fn lba(at: Address) -> u64 {
        u64::from(at.zone) * 80 + u64::from(at.block)
    }

    fn load(&self, at: Address, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES];
        self.read(Lba::new(Self::lba(at)), &mut buffer).expect("on the drive");
        buffer.truncate(bytes);
        buffer
    }

    fn store(&self, at: Address, bytes: &[u8]) {
        let mut blocks = self.blocks.lock().expect("no holder panicked");
        for (index, block) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
            let mut block = block.to_vec();
            block.resize(BLOCK_BYTES, 0);
            blocks.insert(Self::lba(at) + index, block);
        }
    }

    /// The newest superblock of each pair, found from the zones' write pointers.
    fn superblocks(&self) -> Vec<(Address, Superblock)> {
        let zones = self.report_all().expect("no zone is offline");
        let newest = |zone: &Zone| {
            let written = zone.written()?.get();
            let block = u32::try_from(written.checked_sub(1)?).ok()?;
            let at = Address { zone: zone.id.get(), block };
            let superblock = Superblock::decode(&self.load(at, BLOCK_BYTES), at).ok()?;
            Some((at, superblock))
        };
        zones.iter().filter_map(newest).collect()
    }

    /// Changes one structure, in all its copies.
    fn patch(&self, which: u8, edits: &[u8]) {
        let superblocks = self.superblocks();
        let Some((_, superblock)) = superblocks.first().copied() else { return };
        let manifest_at = |copy: usize| Address {
            zone: superblock.manifest[copy].zone.get(),
            block: superblock.manifest[copy].block.get(),
        };
        let bytes = superblock.manifest[0].bytes.get() as usize;
        let body = self.load(manifest_at(0), bytes).split_off(HEADER_BYTES);
        let Ok(mut manifest) = Manifest::decode(&body) else { return };
        match which % 4 {
            0 => {
                for (at, superblock) in superblocks {
                    let mut bytes = superblock.as_bytes().to_vec();
                    edit(&mut bytes[16..200], edits);
                    let edited = Superblock::read_from_bytes(&bytes).expect("as long as before");
                    self.store(at, &edited.encode(at));
                }
            }
            1 => {
                let mut body = body;
                edit(&mut body, edits);
                self.put_manifest(&body);
            }
            2 => {
                let Some(pointer) = manifest.parts.first().copied() else { return };
                let at = |copy: usize| Address {
                    zone: pointer.zone[copy].get(),
                    block: pointer.block.get(),
                };
                let Some(part) = self.edited_part(&pointer, superblock.uuid, edits) else { return };
                if part.bytes.len() > pointer.bytes.get() as usize {
                    return;
                }
                (0..2).for_each(|copy| self.store(at(copy), &part.bytes));
                let pointer = &mut manifest.parts[0];
                let summary = part.summary;
                pointer.bytes = summary.bytes.into();
                pointer.index_at = summary.index_at.into();
                pointer.index_bytes = summary.index_bytes.into();
                pointer.index_crc = summary.index_crc.into();
                let mut body = Vec::new();
                manifest.encode(&mut body);
                self.put_manifest(&body);
            }
            _ => {
                let zones = manifest.journal[0];
                let at = |copy: usize| Address {
                    zone: zones.zone[copy].get(),
                    block: manifest.header.journal_block.get(),
                };
                let header = self.load(at(0), HEADER_BYTES);
                let header = RecordHeader::read_from_bytes(&header).expect("a header's bytes");
                let bytes = HEADER_BYTES + header.body_bytes.get() as usize;
                let mut body = self.load(at(0), bytes).split_off(HEADER_BYTES);
                edit(&mut body, edits);
                for copy in 0..2 {
                    self.reseal(RecordKind::Batch, at(copy), &body);
                }
            }
        }
    }

    /// The part with values changed, built again.
    fn edited_part(
        &self,
        pointer: &PartPointer,
        uuid: [u8; 16],
        edits: &[u8],
    ) -> Option<BuiltPart> {
        let key = |bytes: &KeyBytes| {
            Some(Key::new(RowKind::from_code(bytes.kind)?, bytes.owner.get(), bytes.at.get()))
        };
        let number = pointer.number.get();
        let summary = PartSummary {
            number,
            first: key(&pointer.first)?,
            last: key(&pointer.last)?,
            rows: pointer.rows.get(),
            tombstones: pointer.tombstones.get(),
            lost: pointer.lost.get(),
            bytes: pointer.bytes.get(),
            index_at: pointer.index_at.get(),
            index_bytes: pointer.index_bytes.get(),
            index_crc: pointer.index_crc.get(),
            moved_below: pointer.moved_below.get(),
        };
        let source = PatchedPart { drive: self, pointer };
        let mut cursor =
            PartReader::open(&summary, uuid, source).ok()?.cursor_from(Key::MIN).ok()?;
        let mut builder = PartBuilder::new(PartId { uuid, number }, usize::MAX);
        let mut edits = edits.chunks(4);
        while let Some((key, value)) = cursor.peek() {
            let mut value = value.map(<[u8]>::to_vec);
            if let (Some(value), Some(now)) = (&mut value, edits.next()) {
                edit(value, now);
            }
            builder.push(key, value.as_deref());
            cursor.advance().ok()?;
        }
        Some(builder.finish())
    }

    /// Puts a body in place of the manifest's, and makes the superblocks lead to it.
    fn put_manifest(&self, body: &[u8]) {
        for (at, mut superblock) in self.superblocks() {
            for copy in 0..2 {
                let pointer = superblock.manifest[copy];
                let manifest_at = Address { zone: pointer.zone.get(), block: pointer.block.get() };
                let crc = self.reseal(RecordKind::Manifest, manifest_at, body);
                superblock.manifest[copy].crc = crc.into();
            }
            self.store(at, &superblock.encode(at));
        }
    }

    /// Puts a body in place of a record's and makes its checksums right; returns its `crc`.
    fn reseal(&self, kind: RecordKind, at: Address, body: &[u8]) -> u32 {
        let header = self.load(at, HEADER_BYTES);
        let header = RecordHeader::read_from_bytes(&header).expect("a header's bytes");
        let id = RecordId {
            kind,
            uuid: header.uuid,
            continues: header.continues != 0,
            trails: header.trails != 0,
            seq: header.seq.get(),
            prev: header.prev.get(),
        };
        let mut buffer = RecordBuffer::new();
        buffer.body().extend_from_slice(body);
        let (bytes, crc) = buffer.pad().seal(&id, at);
        self.store(at, &bytes);
        crc
    }
}

/// Both copies of a part on such a drive.
struct PatchedPart<'a> {
    drive: &'a Patched,
    pointer: &'a PartPointer,
}

impl PartSource for PatchedPart<'_> {
    fn read(&self, copy: usize, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let skipped = u32::try_from(offset / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let block = self.pointer.block.get().saturating_add(skipped);
        let at = Address { zone: self.pointer.zone[copy].get(), block };
        self.drive.read(Lba::new(Patched::lba(at)), buffer)
    }
}

/// Applies groups of a position, a kind of change and a value.
fn edit(bytes: &mut [u8], edits: &[u8]) {
    for group in edits.chunks_exact(4) {
        let position = usize::from(u16::from_le_bytes([group[0], group[1]]));
        let Some(byte) = bytes.len().checked_rem(bytes.len()).map(|_| position % bytes.len())
        else {
            return;
        };
        let byte = &mut bytes[byte];
        *byte = match group[2] % 4 {
            0 => group[3],
            1 => *byte ^ group[3],
            2 => byte.wrapping_add(group[3]),
            _ => !*byte,
        };
    }
}

impl ZonedDevice for Patched {
    zonal::pass_on!(below: geometry, report, write, append, flush);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.below.read(lba, buffer)?;
        let blocks = self.blocks.lock().expect("no holder panicked");
        for (index, into) in (0..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            if let Some(block) = blocks.get(&(lba.get() + index)) {
                into.copy_from_slice(block);
            }
        }
        Ok(())
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<(), DeviceError> {
        if action == ZoneAction::Reset {
            let mut blocks = self.blocks.lock().expect("no holder panicked");
            match zones {
                Select::All => blocks.clear(),
                Select::One(zone) => {
                    let first = u64::from(zone.get()) * 80;
                    blocks.retain(|lba, _| !(first..first + 80).contains(lba));
                }
            }
        }
        self.below.manage(zones, action)
    }
}
