//! The zonefs super block: 4096 bytes at the start of the device, and all there is on disk.
//!
//! The bytes are those of mkzonefs and of Linux. Format: `docs/format/zonefs.md`. Reading checks a
//! super block in the same order as Linux, accepts any bytes and never panics.

use std::borrow::Cow;
use std::fmt;
use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};
use zonal::crc32c::crc32;
use zonal::{Lba, ZonedDevice};

use crate::FsError;
use crate::vfs::Result;

/// Bytes of the super block.
pub const SUPERBLOCK_BYTES: usize = 4096;

/// First bytes of a super block.
pub const MAGIC: u32 = 0x5a4f_4653;

/// Permission bits of files where the super block names none.
pub const PERM_DEFAULT: u32 = 0o640;

/// Bytes that a label can have: one less than its field, as programs expect a zero at its end.
pub const LABEL_BYTES_MAX: usize = 63;

bitflags::bitflags! {
    /// Which fields of a super block count.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Features: u64 {
        /// Neighbouring conventional zones are one file (`aggr_cnv`).
        const AGGREGATE_CONVENTIONAL = 1;
        /// Files belong to `uid`.
        const UID = 2;
        /// Files belong to group `gid`.
        const GID = 4;
        /// Files have permission bits `perm`.
        const PERM = 8;
    }
}

/// The super block as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RawSuperblock {
    /// 0x5a4f4653.
    pub magic: U32,
    /// CRC-32 of all 4096 bytes, these four taken as zero: the reflected polynomial 0xedb88320,
    /// all ones to start with, not inverted at the end.
    pub crc: U32,
    /// Name of the file system, zero padded. Programs only show it.
    pub label: [u8; 64],
    /// Identity of the file system, in the order in which it is printed.
    pub uuid: [u8; 16],
    /// 1: neighbouring conventional zones are one file. 2, 4, 8: `uid`, `gid`, `perm` count. A
    /// super block with any other bit is refused.
    pub features: U64,
    /// Owner of all files; the superuser without its feature bit. All ones is refused.
    pub uid: U32,
    /// Group of all files, likewise.
    pub gid: U32,
    /// Permission bits of all files; 0640 without its feature bit. Not masked: setuid works.
    pub perm: U32,
    /// Zero; anything else is refused.
    pub reserved: [u8; 3988],
}

const _: () = assert!(size_of::<RawSuperblock>() == 4096);
const _: () = assert!(offset_of!(RawSuperblock, label) == 8);
const _: () = assert!(offset_of!(RawSuperblock, uuid) == 72);
const _: () = assert!(offset_of!(RawSuperblock, features) == 88);
const _: () = assert!(offset_of!(RawSuperblock, uid) == 96);
const _: () = assert!(offset_of!(RawSuperblock, gid) == 100);
const _: () = assert!(offset_of!(RawSuperblock, perm) == 104);
const _: () = assert!(offset_of!(RawSuperblock, reserved) == 108);

/// How conventional zones become files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// Each zone is a file.
    #[default]
    Separate,
    /// Each run of neighbouring conventional zones is one file (`aggr_cnv`).
    Conventional,
}

/// Name of a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label([u8; 64]);

impl Label {
    /// A label of this text: at most [`LABEL_BYTES_MAX`] bytes, none of them zero.
    pub fn new(text: &str) -> Result<Self> {
        if text.len() > LABEL_BYTES_MAX {
            return Err(FsError::Invalid { what: "a label over 63 bytes" });
        }
        if text.contains('\0') {
            return Err(FsError::Invalid { what: "a label with a zero byte" });
        }
        let mut bytes = [0; 64];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(bytes))
    }

    /// Its text. Invalid UTF-8 becomes U+FFFD.
    pub fn text(&self) -> Cow<'_, str> {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end])
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(), f)
    }
}

/// A super block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Name.
    pub label: Label,
    /// Identity.
    pub uuid: [u8; 16],
    /// How conventional zones become files.
    pub aggregate: Aggregate,
    /// Owner of all files, if named.
    pub uid: Option<u32>,
    /// Group of all files, if named.
    pub gid: Option<u32>,
    /// Permission bits of all files, if named.
    pub perm: Option<u32>,
}

/// Why 4096 bytes are no super block that can be mounted. The errno is EINVAL, as in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// It does not begin as a super block does.
    #[error("it begins with {found:#010x}, not {MAGIC:#010x}")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// Its checksum is wrong.
    #[error("the super block carries checksum {stored:#010x}, its bytes have {computed:#010x}")]
    Checksum {
        /// The one it carries.
        stored: u32,
        /// The one that its bytes have.
        computed: u32,
    },
    /// It has features that this program does not know.
    #[error("the super block has unknown features {unknown:#x}")]
    Features {
        /// The bits.
        unknown: u64,
    },
    /// The owner of files is no user.
    #[error("the super block names user 0xffffffff, which nobody is")]
    Uid,
    /// The group of files is no group.
    #[error("the super block names group 0xffffffff, which nobody has")]
    Gid,
    /// A reserved byte is not zero.
    #[error("byte {at} of the super block is reserved and not zero")]
    Reserved {
        /// The first such byte.
        at: usize,
    },
}

impl From<SuperblockError> for FsError {
    fn from(error: SuperblockError) -> Self {
        let (what, why) = ("zonefs", error.to_string());
        match error {
            SuperblockError::Magic { .. } => Self::Missing { what, why },
            SuperblockError::Checksum { .. }
            | SuperblockError::Features { .. }
            | SuperblockError::Uid
            | SuperblockError::Gid
            | SuperblockError::Reserved { .. } => Self::Foreign { what, why },
        }
    }
}

impl Superblock {
    /// Reads and checks the super block of a device.
    pub fn read(device: &dyn ZonedDevice) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read(Lba::ZERO, &mut bytes)?;
        Ok(Self::parse(&bytes)?)
    }

    /// Checks the bytes of a super block: magic, checksum, features, owner, reserved bytes.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> std::result::Result<Self, SuperblockError> {
        let raw: RawSuperblock = zerocopy::transmute!(*bytes);
        if raw.magic.get() != MAGIC {
            return Err(SuperblockError::Magic { found: raw.magic.get() });
        }
        let (stored, computed) = (raw.crc.get(), raw.checksum());
        if stored != computed {
            return Err(SuperblockError::Checksum { stored, computed });
        }
        let Some(features) = Features::from_bits(raw.features.get()) else {
            let unknown = raw.features.get() & !Features::all().bits();
            return Err(SuperblockError::Features { unknown });
        };
        let named = |feature, value: U32| features.contains(feature).then_some(value.get());
        let (uid, gid) = (named(Features::UID, raw.uid), named(Features::GID, raw.gid));
        if uid == Some(u32::MAX) {
            return Err(SuperblockError::Uid);
        }
        if gid == Some(u32::MAX) {
            return Err(SuperblockError::Gid);
        }
        if let Some(index) = raw.reserved.iter().position(|&byte| byte != 0) {
            return Err(SuperblockError::Reserved {
                at: offset_of!(RawSuperblock, reserved) + index,
            });
        }
        let aggregate = if features.contains(Features::AGGREGATE_CONVENTIONAL) {
            Aggregate::Conventional
        } else {
            Aggregate::Separate
        };
        let perm = named(Features::PERM, raw.perm);
        Ok(Self { label: Label(raw.label), uuid: raw.uuid, aggregate, uid, gid, perm })
    }

    /// Its bytes, with the checksum.
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut features = Features::empty();
        features.set(Features::AGGREGATE_CONVENTIONAL, self.aggregate == Aggregate::Conventional);
        features.set(Features::UID, self.uid.is_some());
        features.set(Features::GID, self.gid.is_some());
        features.set(Features::PERM, self.perm.is_some());
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = U32::new(MAGIC);
        raw.label = self.label.0;
        raw.uuid = self.uuid;
        raw.features = U64::new(features.bits());
        // As mkzonefs does, also where no feature bit makes them count.
        raw.uid = U32::new(self.uid.unwrap_or(0));
        raw.gid = U32::new(self.gid.unwrap_or(0));
        raw.perm = U32::new(self.perm.unwrap_or(PERM_DEFAULT));
        raw.crc = U32::new(raw.checksum());
        zerocopy::transmute!(raw)
    }
}

impl RawSuperblock {
    /// The checksum of its bytes.
    pub fn checksum(mut self) -> u32 {
        self.crc = U32::new(0);
        !crc32(self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Superblock {
        Superblock {
            label: Label::new("").unwrap(),
            uuid: [7; 16],
            aggregate: Aggregate::Separate,
            uid: None,
            gid: None,
            perm: None,
        }
    }

    /// A sound super block with some bytes changed, and the checksum put right unless they are it.
    fn changed(change: impl FnOnce(&mut RawSuperblock)) -> Box<[u8; SUPERBLOCK_BYTES]> {
        let full = Superblock { uid: Some(1), gid: Some(2), perm: Some(0o600), ..plain() };
        let mut raw: RawSuperblock = zerocopy::transmute!(full.to_bytes());
        let crc = raw.crc;
        change(&mut raw);
        if raw.crc == crc {
            raw.crc = U32::new(raw.checksum());
        }
        Box::new(zerocopy::transmute!(raw))
    }

    #[test]
    fn superblock_round_trips() {
        for superblock in [
            plain(),
            Superblock { label: Label::new(&"x".repeat(63)).unwrap(), ..plain() },
            Superblock { aggregate: Aggregate::Conventional, ..plain() },
            Superblock { uid: Some(0), gid: Some(1000), perm: Some(0o177_777), ..plain() },
        ] {
            assert_eq!(Superblock::parse(&superblock.to_bytes()), Ok(superblock));
        }
    }

    #[test]
    fn superblock_bytes_match_mkzonefs() {
        let label = Label::new("tape").unwrap();
        let bytes = Superblock {
            label,
            uuid: *b"0123456789abcdef",
            aggregate: Aggregate::Conventional,
            uid: Some(0x0102),
            gid: None,
            perm: None,
        }
        .to_bytes();
        assert_eq!(bytes[..4], *b"SFOZ");
        assert_eq!(bytes[8..13], *b"tape\0");
        assert_eq!(bytes[72..88], *b"0123456789abcdef");
        assert_eq!(bytes[88..96], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[96..108], [2, 1, 0, 0, 0, 0, 0, 0, 0xa0, 1, 0, 0]);
        assert!(bytes[108..].iter().all(|&byte| byte == 0));
    }

    /// The CRC of the nine digits is 0xcbf43926 with the final inversion that zonefs leaves out.
    #[test]
    fn superblock_checksum_is_not_inverted() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let bytes = plain().to_bytes();
        let mut zeroed = bytes;
        zeroed[4..8].fill(0);
        let stored = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        assert_eq!(stored, crc32(&zeroed) ^ 0xffff_ffff);
    }

    #[test]
    fn superblock_faults_are_named() {
        let all = u32::MAX;
        let table = [
            (changed(|raw| raw.magic = U32::new(5)), SuperblockError::Magic { found: 5 }),
            (
                changed(|raw| raw.features = U64::new(0x13)),
                SuperblockError::Features { unknown: 16 },
            ),
            (changed(|raw| raw.uid = U32::new(all)), SuperblockError::Uid),
            (changed(|raw| raw.gid = U32::new(all)), SuperblockError::Gid),
            (changed(|raw| raw.reserved[0] = 1), SuperblockError::Reserved { at: 108 }),
            (changed(|raw| raw.reserved[3987] = 1), SuperblockError::Reserved { at: 4095 }),
        ];
        for (bytes, expected) in table {
            assert_eq!(Superblock::parse(&bytes), Err(expected));
            assert_eq!(FsError::from(expected).errno(), 22, "EINVAL");
        }
        let torn = changed(|raw| raw.crc = U32::new(raw.crc.get() ^ 1));
        assert!(matches!(Superblock::parse(&torn), Err(SuperblockError::Checksum { .. })));
    }

    #[test]
    fn superblock_first_of_several_faults_is_reported() {
        let order = [
            changed(|raw| {
                raw.magic = U32::new(0);
                raw.crc = U32::new(0);
            }),
            changed(|raw| {
                raw.features = U64::new(1 << 40);
                raw.crc = U32::new(0);
            }),
            changed(|raw| {
                raw.features = U64::new(1 << 40 | 2);
                raw.uid = U32::new(u32::MAX);
            }),
            changed(|raw| {
                raw.uid = U32::new(u32::MAX);
                raw.gid = U32::new(u32::MAX);
            }),
            changed(|raw| {
                raw.gid = U32::new(u32::MAX);
                raw.reserved[9] = 1;
            }),
        ];
        let found = order.map(|bytes| Superblock::parse(&bytes).unwrap_err());
        assert!(matches!(found[0], SuperblockError::Magic { found: 0 }), "{found:?}");
        assert!(matches!(found[1], SuperblockError::Checksum { stored: 0, .. }), "{found:?}");
        assert!(matches!(found[2], SuperblockError::Features { unknown: 0x100_0000_0000 }));
        assert_eq!(found[3..], [SuperblockError::Uid, SuperblockError::Gid]);
    }

    #[test]
    fn superblock_owner_needs_feature_bit() {
        let bytes = changed(|raw| {
            raw.features = U64::new(0);
            raw.uid = U32::new(u32::MAX);
        });
        let superblock = Superblock::parse(&bytes).unwrap();
        assert_eq!((superblock.uid, superblock.gid, superblock.perm), (None, None, None));
    }

    #[test]
    fn superblock_bytes_match_document() {
        let document = include_str!("../../../../docs/format/zonefs.md");
        let superblock = Superblock {
            label: Label::new("tape").unwrap(),
            uuid: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            aggregate: Aggregate::Conventional,
            uid: Some(1000),
            gid: Some(100),
            perm: Some(0o600),
        };
        for (index, line) in superblock.to_bytes()[..112].chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let line = format!("{:4}  {}", index * 16, hex.join(" "));
            assert!(document.contains(&line), "{line}");
        }
    }

    #[test]
    fn label_of_64_bytes_is_read_but_not_created() {
        assert!(Label::new(&"x".repeat(64)).is_err());
        assert!(Label::new("a\0b").is_err());
        let bytes = changed(|raw| raw.label = [b'y'; 64]);
        assert_eq!(Superblock::parse(&bytes).unwrap().label.text(), "y".repeat(64));
    }
}
