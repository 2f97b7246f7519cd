//! The superblock: one 4 KiB record of the superblock log. The newest valid epoch wins.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zonal::{LbaCount, ZoneRuns, crc32c};

use super::{Address, BLOCK_BYTES, VERSION};

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"FURROWSB";

/// Address of a copy of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ManifestPointer {
    /// Zone.
    pub zone: U32,
    /// Block in the zone.
    pub block: U32,
    /// Bytes of the record, header included.
    pub bytes: U32,
    /// CRC-32C of the record, as in its header.
    pub crc: U32,
}

/// A record of the superblock log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Superblock {
    /// `FURROWSB`.
    pub magic: [u8; 8],
    /// CRC-32C of bytes 12..4096.
    pub crc: U32,
    /// Format version, 8.
    pub version: U16,
    /// Bytes of a device block: 512 or 4096.
    pub device_block: U16,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Number of the superblock; the valid one with the highest number is current.
    pub epoch: U64,
    /// Device blocks of the drive.
    pub device_blocks: U64,
    /// Device blocks between two zone starts.
    pub zone_size: U64,
    /// Capacity of a zone in device blocks.
    pub zone_capacity: U64,
    /// Zones of the drive.
    pub zones: U32,
    /// How many zones are conventional.
    pub conventional: U32,
    /// Own address: zone.
    pub own_zone: U32,
    /// Own address: block in the zone.
    pub own_block: U32,
    /// Both copies of the manifest.
    pub manifest: [ManifestPointer; 2],
    /// Nanoseconds since 1970 at mkfs.
    pub created_ns: U64,
    /// 1 if an unmount wrote it, else 0. With no batch behind it the unmount was clean. Recovery
    /// never relies on it.
    pub clean: U32,
    /// Percent of the data zones that are reserved for reclaim.
    pub reserve_percent: U32,
    /// Features that a program must know to mount; none yet.
    pub incompatible: U64,
    /// Name of the file system, UTF-8, zero padded.
    pub label: [u8; 64],
    /// Number of the last journal record that was durable before this superblock. A record up to
    /// there that is missing is lost, not torn.
    pub last_batch: U64,
    /// Number of the first void record of the journal that the manifest names: recovery has found
    /// that it and all behind it do not count. 0: all count.
    pub first_void: U64,
    /// CRC-32C of the numbers of the conventional zones, 4 bytes each; 0 if they are the first
    /// zones.
    pub conventional_crc: U32,
    /// Zones of the data drive, which come first; 0 if one drive has everything.
    pub data_zones: U32,
    /// Name of the metadata drive at mkfs, UTF-8, zero padded: where a mount looks first.
    pub metadata: [u8; 256],
    /// Zero when written, ignored when read.
    pub reserved: [u8; 3616],
}

const _: () = assert!(size_of::<Superblock>() == 4096);
const _: () = assert!(size_of::<ManifestPointer>() == 16);
const _: () = assert!(offset_of!(Superblock, epoch) == 32);
const _: () = assert!(offset_of!(Superblock, manifest) == 80);
const _: () = assert!(offset_of!(Superblock, label) == 136);
const _: () = assert!(offset_of!(Superblock, data_zones) == 220);

/// The error for a file system of another version.
pub fn unknown(version: u16) -> String {
    format!("Furrow of version {version}; this program knows {VERSION}")
}

/// The value of [`Superblock::conventional_crc`] for a drive with these conventional zones.
pub fn conventional_crc(zones: &ZoneRuns) -> u32 {
    if zones.leading_count() == zones.zone_count() {
        return 0;
    }
    let numbers = zones.runs().iter().flat_map(|run| run.first..run.end());
    crc32c::crc32c(&numbers.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
}

impl Superblock {
    /// Its 4096 bytes, with address and checksum.
    pub fn encode(mut self, own: Address) -> [u8; BLOCK_BYTES] {
        self.magic = MAGIC;
        self.version = U16::new(VERSION);
        self.own_zone = U32::new(own.zone);
        self.own_block = U32::new(own.block);
        self.crc = U32::new(0);
        let mut bytes = [0; BLOCK_BYTES];
        bytes.copy_from_slice(self.as_bytes());
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Device blocks of the metadata drive.
    pub fn metadata_blocks(&self) -> LbaCount {
        let data = u64::from(self.data_zones.get()).saturating_mul(self.zone_size.get());
        LbaCount::new(self.device_blocks.get().saturating_sub(data))
    }

    /// The zones of the data drive by bytes that may be a superblock of any version.
    pub fn data_zones_of(block: &[u8; BLOCK_BYTES]) -> u32 {
        Self::read_from_bytes(block).map_or(0, |superblock| superblock.data_zones.get())
    }

    /// Decodes a superblock; the error says why these bytes are none.
    pub fn decode(bytes: &[u8], own: Address) -> Result<Self, String> {
        let superblock = Self::decode_any_version(bytes, own)?;
        superblock.check_version()?;
        Ok(superblock)
    }

    /// Whether this program knows the version and all features; if not, which ones.
    pub fn check_version(&self) -> Result<(), String> {
        let (version, features) = (self.version.get(), self.incompatible.get());
        if version != VERSION {
            return Err(unknown(version));
        }
        if features != 0 {
            return Err(format!("has features {features:#x} that this program does not know"));
        }
        Ok(())
    }

    /// Decodes a superblock of any version: all versions are the same up to the label.
    pub fn decode_any_version(bytes: &[u8], own: Address) -> Result<Self, String> {
        let Ok((superblock, _)) = Self::read_from_prefix(bytes) else {
            return Err(format!("{} bytes, too short", bytes.len()));
        };
        if superblock.magic != MAGIC {
            return Err("no magic".into());
        }
        if superblock.crc.get() != crc32c::crc32c(&bytes[12..BLOCK_BYTES]) {
            return Err("checksum mismatch".into());
        }
        let stored = Address { zone: superblock.own_zone.get(), block: superblock.own_block.get() };
        if stored != own {
            return Err(format!("written for {stored:?}, found at {own:?}"));
        }
        Ok(superblock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conventional_zones_elsewhere_are_another_drive() {
        let crc = |text: &str| conventional_crc(&text.parse().unwrap());
        assert_eq!(["0", "3", "0-2"].map(crc), [0; 3]);
        let elsewhere = ["1-3", "2-4", "0-1,3", "0,3-4"].map(crc);
        for (index, one) in elsewhere.iter().enumerate() {
            assert!(*one != 0 && !elsewhere[..index].contains(one), "{elsewhere:?}");
        }
    }
}
