//! Signatures: the content of a device, recognised by the magic bytes of formats at known places.
//!
//! Every command that changes a device looks for one before it destroys anything, mount to find the
//! type. A signature is only a hint: mounting then checks everything. [`held`] also finds data
//! without a signature.

use std::fmt;
use std::ops::RangeInclusive;

use zonal::{Lba, Zone, ZoneCond, ZoneId, ZonedDevice};

use crate::furrow;
use crate::vfs::Result;
use crate::zonefs;

/// The signature found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Kind of its content.
    pub kind: Content,
    /// Label, if the format has one at a known place.
    pub label: Option<String>,
}

/// Kind of the content of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Furrow.
    Furrow,
    /// zonefs.
    Zonefs,
    /// Another format, with its name in blkid(8).
    Foreign(&'static str),
}

impl Content {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Furrow => "furrow",
            Self::Zonefs => "zonefs",
            Self::Foreign(name) => name,
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.label {
            Some(label) if !label.is_empty() => write!(f, ", label {label:?}"),
            Some(_) | None => Ok(()),
        }
    }
}

/// Bytes of a device that a search reads: up to the last place in [`KNOWN`].
pub const LOOKED_AT: usize = 68 * 1024;

/// Signatures of other formats: name, offset on the device in bytes, magic bytes. The first match
/// counts, so formats that can contain others, such as partition tables, come late. Sources: each
/// format's own documentation; where there is none, blkid(8).
const KNOWN: [(&str, usize, &[u8]); 37] = [
    // The header of a drive that is on a disk without zones.
    ("zonal_drive", 0, &zonal::file::format::MAGIC),
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("LVM2_member", 0, b"LABELONE"),
    ("LVM2_member", 512, b"LABELONE"),
    ("LVM2_member", 1024, b"LABELONE"),
    ("LVM2_member", 1536, b"LABELONE"),
    ("linux_raid_member", 0, &0xa92b_4efc_u32.to_le_bytes()),
    ("linux_raid_member", 4096, &0xa92b_4efc_u32.to_le_bytes()),
    ("xfs", 0, b"XFSB"),
    ("btrfs", 65_536 + 64, b"_BHRfS_M"),
    // The superblock log of btrfs on zones starts the first zone.
    ("btrfs", 64, b"_BHRfS_M"),
    ("f2fs", 1024, &0xf2f5_2010_u32.to_le_bytes()),
    ("nilfs2", 1024 + 6, &0x3434_u16.to_le_bytes()),
    ("erofs", 1024, &0xe0f5_e1e2_u32.to_le_bytes()),
    ("squashfs", 0, b"hsqs"),
    ("jfs", 32_768, b"JFS1"),
    ("reiserfs", 65_536 + 52, b"ReIsErFs"),
    ("reiserfs", 65_536 + 52, b"ReIsEr2Fs"),
    ("reiserfs", 65_536 + 52, b"ReIsEr3Fs"),
    ("gfs2", 65_536, &[0x01, 0x16, 0x19, 0x70]),
    ("bcache", 4096 + 24, BCACHE),
    ("bcachefs", 4096 + 24, BCACHEFS),
    ("dm-zoned", 0, b"DBZD"),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("swap", 65_536 - 10, b"SWAPSPACE2"),
    ("swap", 4096 - 10, b"SWAP-SPACE"),
    ("iso9660", 32_769, b"CD001"),
    ("udf", 32_769, b"NSR02"),
    ("udf", 32_769, b"BEA01"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 82, b"FAT32   "),
    ("vfat", 54, b"FAT16   "),
    ("vfat", 54, b"FAT12   "),
    ("gpt", 512, b"EFI PART"),
    ("gpt", 4096, b"EFI PART"),
    ("dos", 510, &[0x55, 0xaa]),
];

/// Identity that a bcache superblock carries.
const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";

/// Identity that a bcachefs superblock carries.
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

/// Finds the signature on a device. A device whose start cannot be read has none.
pub fn find(device: &dyn ZonedDevice) -> Result<Option<Signature>> {
    // Before the others: where Furrow is made on a drive whose first zone is conventional, the
    // first block of an older file system may still be there.
    if let Some(label) = furrow::label_of(device) {
        return Ok(Some(Signature { kind: Content::Furrow, label: Some(label) }));
    }
    Ok(of_bytes(&start_of(device)?))
}

/// Whether a block begins as metadata of a Furrow does: a zone of its journal, its table or its
/// superblocks. Without a superblock, that is what a mkfs leaves that was interrupted.
pub fn is_metadata(block: &[u8]) -> bool {
    furrow::METADATA_MAGICS.iter().any(|magic| block.starts_with(magic))
}

/// The content that an overwrite of a whole device would destroy, in words: the signature that
/// [`find`] has found, or else data of any kind. `zones` is the report of the device.
pub fn held(
    device: &dyn ZonedDevice,
    zones: &[Zone],
    found: Option<&Signature>,
) -> Result<Option<String>> {
    if let Some(found) = found {
        return Ok(Some(found.to_string()));
    }
    let last = zones.len().saturating_sub(1);
    data_in(device, zones, 0..=u32::try_from(last).unwrap_or(u32::MAX))
}

/// The first zone in a range that holds data, in words: one that is written to, or a conventional
/// one that does not begin with zeroes. Zones that failed hold nothing that can be overwritten.
pub fn data_in(
    device: &dyn ZonedDevice,
    zones: &[Zone],
    range: RangeInclusive<u32>,
) -> Result<Option<String>> {
    let mut block = vec![0; 4096];
    for zone in zones.iter().filter(|zone| range.contains(&zone.id.get())) {
        match zone.cond {
            ZoneCond::Empty | ZoneCond::ReadOnly | ZoneCond::Offline => {}
            ZoneCond::NotWp => {
                // Conventional zones of a device whose blocks have 512 bytes may be smaller.
                let bytes = device.geometry().bytes(zone.size).get().min(4096);
                let start = &mut block[..usize::try_from(bytes).expect("4 KiB at most")];
                device.read(zone.start, start)?;
                if start.iter().any(|&byte| byte != 0) {
                    let zone = zone.id;
                    return Ok(Some(format!("data: conventional zone {zone} is not zeroes")));
                }
            }
            cond @ (ZoneCond::ImplicitOpen
            | ZoneCond::ExplicitOpen
            | ZoneCond::Closed
            | ZoneCond::Full) => {
                return Ok(Some(format!("data: zone {} is {}", zone.id, cond.name())));
            }
        }
    }
    Ok(None)
}

/// Overwrites the places of signatures and superblocks in conventional zones, so that no program
/// finds the old ones. mkfs resets sequential zones.
pub(crate) fn wipe(device: &dyn ZonedDevice) -> Result<()> {
    let geometry = device.geometry();
    if geometry.kind(ZoneId::ZERO).is_sequential() {
        return Ok(());
    }
    let blocks = geometry.blocks(LOOKED_AT)?.min(geometry.capacity_of(ZoneId::ZERO));
    let bytes = usize::try_from(geometry.bytes(blocks).get()).expect("68 KiB at most");
    Ok(device.write(Lba::ZERO, &vec![0; bytes])?)
}

/// The first bytes of a device; zeroes behind its end, and where the medium fails.
fn start_of(device: &dyn ZonedDevice) -> Result<Vec<u8>> {
    let geometry = device.geometry();
    let mut bytes = vec![0; LOOKED_AT];
    let blocks = geometry.blocks(LOOKED_AT)?.get().min(geometry.block_count().get());
    let block_bytes = usize::try_from(geometry.block_size().bytes()).expect("512 or 4096");
    let within = blocks.min(geometry.size_of(ZoneId::ZERO).get());
    let (first, rest) = bytes.split_at_mut(usize::try_from(within).expect("68 KiB") * block_bytes);
    if device.read(Lba::ZERO, first).is_err() {
        first.fill(0);
    }
    let rest_len = usize::try_from(blocks - within).expect("68 KiB") * block_bytes;
    if rest_len > 0 && device.read(Lba::new(within), &mut rest[..rest_len]).is_err() {
        rest.fill(0);
    }
    Ok(bytes)
}

/// The signature in the first bytes of a device. It looks at [`LOOKED_AT`] of them.
pub fn of_bytes(bytes: &[u8]) -> Option<Signature> {
    let at = |from: usize, len: usize| bytes.get(from..from + len);
    if at(0, 4) == Some(&zonefs::MAGIC.to_le_bytes()) {
        return Some(Signature { kind: Content::Zonefs, label: at(8, 64).map(label) });
    }
    if at(1024 + 56, 2) == Some(&[0x53, 0xef]) {
        let name = ext_name(at(1024 + 92, 12)?);
        return Some(Signature {
            kind: Content::Foreign(name),
            label: at(1024 + 120, 16).map(label),
        });
    }
    let (name, ..) =
        KNOWN.into_iter().find(|(_, from, magic)| at(*from, magic.len()) == Some(magic))?;
    let label = match name {
        "xfs" => at(108, 12).map(label),
        _ => None,
    };
    Some(Signature { kind: Content::Foreign(name), label })
}

/// Formats of files, by their first bytes. On a device they would be raw data, which is nothing
/// that [`find`] reports. Sources: each format's own documentation.
const FILES: [(&str, usize, &[u8]); 10] = [
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a VMDK image", 0, b"KDMV"),
    ("gzip data", 0, &[0x1f, 0x8b]),
    ("xz data", 0, b"\xfd7zXZ\0"),
    ("zstd data", 0, &[0x28, 0xb5, 0x2f, 0xfd]),
    ("bzip2 data", 0, b"BZh"),
    ("a zip archive", 0, b"PK\x03\x04"),
    ("a tar archive", 257, b"ustar"),
    ("a program", 0, b"\x7fELF"),
    ("a trace of zonal", 0, b"ZONTRACE"),
];

/// The content of a file that is to be a drive and is none: a file system, or a format of files. It
/// looks at the first [`LOOKED_AT`] bytes.
pub fn of_file(bytes: &[u8]) -> Option<Signature> {
    if bytes.is_empty() {
        return Some(Signature { kind: Content::Foreign("nothing"), label: None });
    }
    of_bytes(bytes).or_else(|| {
        let is_at = |(_, from, magic): &(&str, usize, &[u8])| {
            bytes.get(*from..from + magic.len()) == Some(*magic)
        };
        let (name, ..) = FILES.into_iter().find(is_at)?;
        Some(Signature { kind: Content::Foreign(name), label: None })
    })
}

/// Which of its family an ext superblock is: by a feature that ext3 lacks, then by the journal.
/// `features` are its compatible, incompatible and read-only compatible features.
fn ext_name(features: &[u8]) -> &'static str {
    const HAS_JOURNAL: u8 = 0x04;
    // 64-bit, flexible groups, extents, metadata groups and more; the low byte has the old ones.
    const NEW_INCOMPATIBLE: u8 = 0xc0;
    match features {
        [_, _, _, _, low, high, ..] if low & NEW_INCOMPATIBLE != 0 || *high != 0 => "ext4",
        [compatible, ..] if compatible & HAS_JOURNAL != 0 => "ext3",
        _ => "ext2",
    }
}

/// Text up to the first zero.
fn label(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::{ManualClock, OpenMode, spec};

    fn with(parts: &[(usize, &[u8])]) -> Option<Signature> {
        let mut bytes = vec![0; LOOKED_AT];
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
        }
        of_bytes(&bytes)
    }

    #[test]
    fn signature_is_found_at_its_place_only() {
        for (name, at, magic) in KNOWN {
            let found = with(&[(at, magic)]).expect(name);
            assert_eq!(found.kind, Content::Foreign(name));
            assert_eq!(with(&[(at + 16, magic)]).filter(|other| other.kind == found.kind), None);
            assert!(at + magic.len() <= LOOKED_AT, "{name} is looked at");
        }
        assert_eq!(with(&[]), None);
        assert_eq!(of_bytes(&[]), None);
    }

    #[test]
    fn signature_of_file_names_formats_of_files_too() {
        let of_file = |at: usize, magic: &[u8]| {
            let mut bytes = vec![0; 600];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            super::of_file(&bytes).map(|found| found.to_string())
        };
        for (name, at, magic) in FILES {
            assert_eq!(of_file(at, magic).as_deref(), Some(name));
            assert_eq!(with(&[(at, magic)]), None, "{name} is raw data of a device");
        }
        assert_eq!(of_file(0, b"XFSB").as_deref(), Some("xfs"));
        assert_eq!(of_file(0, b"words"), None);
        assert_eq!(super::of_file(&[]).unwrap().to_string(), "nothing");
    }

    #[test]
    fn signature_gives_names_and_labels() {
        let magic = (1080, &[0x53, 0xef][..]);
        for (features, name) in
            [([0, 0], "ext2"), ([4, 0], "ext3"), ([4, 0x40], "ext4"), ([4, 0x02], "ext3")]
        {
            let found = with(&[magic, (1116, &features[..1]), (1120, &features[1..])]);
            assert_eq!(found.map(|found| found.kind.name()), Some(name), "{features:?}");
        }
        let zonefs = with(&[(0, b"SFOZ"), (8, b"tape")]).unwrap();
        assert_eq!(zonefs.to_string(), "zonefs, label \"tape\"");
        let xfs = with(&[(0, b"XFSB"), (108, b"twelve bytes")]).unwrap();
        assert_eq!(xfs.to_string(), "xfs, label \"twelve bytes\"");
        assert_eq!(with(&[(0, b"SFOZ")]).unwrap().to_string(), "zonefs");
        // A boot sector ends with the bytes of a partition table.
        let fat = with(&[(82, b"FAT32   "), (510, &[0x55, 0xaa])]).unwrap();
        assert_eq!(fat.to_string(), "vfat");
    }

    #[test]
    fn signature_scan_of_small_device_reads_to_end() {
        let clock = std::sync::Arc::new(ManualClock::new(0));
        for shape in
            ["zones=3,zone=8K,block=4096", "zones=3,zone=1536,block=512", "zones=9,zone=3M"]
        {
            let device =
                spec::open(&format!("mem:{shape}"), OpenMode::ReadWrite, clock.clone()).unwrap();
            assert_eq!(find(&*device).unwrap(), None);
            let mut block = vec![0; 4096];
            if shape.contains("block=512") {
                block.truncate(512);
            }
            block[..4].copy_from_slice(b"XFSB");
            device.write(Lba::ZERO, &block).unwrap();
            assert_eq!(find(&*device).unwrap().unwrap().kind, Content::Foreign("xfs"));
        }
    }
}
