//! Operations on file systems, as numbers: "the third file there is" rather than a path, so that a
//! shorter run with smaller numbers still means something. Shared by the model test and the crash
//! test.
#![allow(dead_code, reason = "each test uses a part")]
#![expect(clippy::cast_possible_truncation, reason = "numbers are reduced to small ranges")]

pub(crate) mod by_path;
pub(crate) mod drives;
pub(crate) mod session;

use zonal_fs::acl::{Acl, Entry, Who};
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, Privilege, RenameFlags, SyncKind, WriteFlags, XattrMode,
};

/// Chooses one of the things that exist, by number modulo how many there are.
pub(crate) type Pick = u16;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Sync,
    Fsync {
        file: Pick,
        kind: SyncKind,
    },
    /// Six seconds pass, then the periodic work is done.
    Tick,
    /// Clean unmount, mount.
    Remount,
    Create {
        dir: Pick,
        name: u8,
        kind: FileKind,
        perm: u16,
        caller: Caller,
    },
    Unlink {
        entry: Pick,
    },
    Rmdir {
        dir: Pick,
    },
    Rename {
        source: Pick,
        dir: Pick,
        name: u8,
        flags: RenameFlags,
    },
    /// A rename onto something that exists.
    RenameOver {
        source: Pick,
        target: Pick,
        flags: RenameFlags,
    },
    Link {
        source: Pick,
        dir: Pick,
        name: u8,
    },
    Write {
        file: Pick,
        offset: u64,
        len: u32,
        seed: u16,
        flags: WriteFlags,
    },
    Truncate {
        file: Pick,
        size: u64,
    },
    Fallocate {
        file: Pick,
        how: Allocate,
        offset: u64,
        len: u64,
    },
    CopyRange {
        source: Pick,
        from: u64,
        target: Pick,
        to: u64,
        len: u64,
    },
    Read {
        file: Pick,
        offset: u64,
        len: u32,
    },
    List {
        dir: Pick,
    },
    Chmod {
        entry: Pick,
        perm: u16,
        caller: Caller,
    },
    Chown {
        entry: Pick,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        entry: Pick,
        mtime: (i64, u32),
    },
    SetXattr {
        entry: Pick,
        name: u8,
        len: u16,
        seed: u16,
        mode: XattrMode,
    },
    RemoveXattr {
        entry: Pick,
        name: u8,
    },
    SetAcl {
        entry: Pick,
        default: bool,
        perms: u16,
        caller: Caller,
    },
    /// Sets the time of a write whose content came before, as the kernel's page cache does.
    NoteWritten {
        entry: Pick,
        secs: i64,
    },
    /// Keeps a file open; a later `Unlink` leaves it without a name.
    Hold {
        file: Pick,
    },
    /// Creates a file without a name (`O_TMPFILE`) and keeps it open.
    CreateUnnamed {
        dir: Pick,
    },
    /// Gives a file that is held a name.
    LinkHeld {
        held: Pick,
        dir: Pick,
        name: u8,
    },
    /// Writes to a file that is held, whether or not it has a name.
    WriteHeld {
        held: Pick,
        offset: u64,
        len: u32,
        seed: u16,
    },
    Release {
        held: Pick,
    },
    /// Writes a large file and rewrites parts of it: makes zones worth reclaiming.
    Churn {
        file: Pick,
        seed: u16,
    },
}

const USER: Caller = Caller { uid: 1000, gid: 100, umask: 0o027, privilege: Privilege::None };
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
];
const HOWS: [Allocate; 7] = [
    Allocate::Extend,
    Allocate::KeepSize,
    Allocate::Punch,
    Allocate::Zero,
    Allocate::ZeroKeepSize,
    Allocate::PunchLater,
    Allocate::ZeroLater,
];
const MODES: [XattrMode; 4] =
    [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];

/// Offsets around block and extent boundaries, a few far out.
fn offset(raw: u16) -> u64 {
    let near = u64::from(raw >> 3) * 37 % 180_000;
    match raw & 7 {
        0 => 0,
        1..=3 => near / 4096 * 4096,
        4 | 5 => near,
        6 => near % 5000,
        _ if raw > 0xfff0 => (1 << 62) + near,
        _ => near * 10,
    }
}

fn len(raw: u16) -> u32 {
    let raw32 = u32::from(raw >> 2);
    match raw & 3 {
        0 => 1 + raw32 % 4096,
        1 => 4096 * (1 + raw32 % 10),
        2 => 1 + raw32 % 300,
        _ => 1 + raw32 * 5 % 70_000,
    }
}

fn caller(raw: u16) -> Caller {
    if raw & 3 == 3 { USER } else { Caller { umask: 0o022, ..Caller::ROOT } }
}

/// Numbers of the six that make an operation.
pub(crate) type Raw = [u16; 6];

impl Op {
    /// The operation that six numbers stand for. All zero is `Sync`.
    pub(crate) fn decode(raw: Raw) -> Self {
        match raw[0] % 64 {
            0..=2 => Self::Sync,
            3 => {
                let kind = if raw[2] & 1 == 0 { SyncKind::Full } else { SyncKind::Data };
                Self::Fsync { file: raw[1], kind }
            }
            4 => Self::Tick,
            5 | 6 => Self::Remount,
            what @ 7..=25 => Self::decode_names(what, raw),
            what @ 26..=44 => Self::decode_content(what, raw),
            what @ 45..=55 => Self::decode_attr(what, raw),
            56 | 57 => Self::Hold { file: raw[1] },
            58 | 59 => {
                let (offset, len) = (offset(raw[2]) % 200_000, len(raw[3]));
                Self::WriteHeld { held: raw[1], offset, len, seed: raw[4] }
            }
            60 | 61 => Self::Release { held: raw[1] },
            _ => Self::Churn { file: raw[1], seed: raw[2] },
        }
    }

    fn decode_names(what: u16, [_, pick, other, name, how, perm]: Raw) -> Self {
        let name = (name % 12) as u8;
        match what {
            7..=12 => {
                let kind = KINDS[usize::from(if how & 1 == 0 { 0 } else { how / 2 % 7 })];
                let (perm, caller) = (perm & 0o7777, caller(other));
                Self::Create { dir: pick, name, kind, perm, caller }
            }
            13 | 14 => {
                let (kind, perm) = (FileKind::Directory, 0o755 | (how & 0o2000));
                Self::Create { dir: pick, name, kind, perm, caller: caller(other) }
            }
            15..=18 => Self::Unlink { entry: pick },
            19 => Self::Rmdir { dir: pick },
            20 | 21 => {
                let flags = RenameFlags::from_bits_truncate(u32::from(how % 5 == 1));
                Self::Rename { source: pick, dir: other, name, flags }
            }
            22 | 23 => {
                let flags = RenameFlags::from_bits_truncate(u32::from(how % 4));
                Self::RenameOver { source: pick, target: other, flags }
            }
            _ => Self::Link { source: pick, dir: other, name },
        }
    }

    fn decode_content(what: u16, [_, pick, at, length, seed, how]: Raw) -> Self {
        match what {
            26..=35 => {
                let flags = match how % 16 {
                    0 => WriteFlags::DIRECT,
                    1 => WriteFlags::APPEND,
                    2 => WriteFlags::KILL_PRIVILEGES,
                    3 => WriteFlags::DURABLE,
                    _ => WriteFlags::empty(),
                };
                Self::Write { file: pick, offset: offset(at), len: len(length), seed, flags }
            }
            36..=38 => Self::Truncate { file: pick, size: offset(at) },
            39 | 40 => {
                let (offset, len) = (offset(at) % 200_000, u64::from(len(length)));
                Self::Fallocate {
                    file: pick,
                    how: HOWS[usize::from(seed) % HOWS.len()],
                    offset,
                    len,
                }
            }
            41 | 42 => {
                let (from, to) = (offset(at) % 100_000, offset(how) % 100_000);
                let len = u64::from(len(length));
                Self::CopyRange { source: pick, from, target: seed, to, len }
            }
            _ => Self::Read { file: pick, offset: offset(at), len: len(length) },
        }
    }

    fn decode_attr(what: u16, [_, entry, who, name, len, how]: Raw) -> Self {
        let xattr = (name % 4) as u8;
        match what {
            45 => Self::List { dir: entry },
            46 | 47 => Self::Chmod { entry, perm: how & 0o7777, caller: caller(who) },
            48 => Self::Chown { entry, uid: u32::from(who % 3), gid: u32::from(name % 3) },
            49 => Self::SetTimes {
                entry,
                mtime: ((i64::from(who) - 1000) << 46, u32::from(who) * 10_000),
            },
            50..=52 => {
                let len = if len % 8 == 0 { len } else { len % 300 };
                let mode = MODES[usize::from(who % 4)];
                Self::SetXattr { entry, name: xattr, len, seed: how, mode }
            }
            53 => Self::RemoveXattr { entry, name: xattr },
            _ => Self::SetAcl { entry, default: who & 1 == 1, perms: name, caller: caller(len) },
        }
    }

    /// Whether everything before it is durable when it returns.
    pub(crate) fn is_durable(&self) -> bool {
        match self {
            Self::Sync | Self::Remount | Self::Fsync { .. } => true,
            Self::Write { flags, .. } => flags.contains(WriteFlags::DURABLE),
            _ => false,
        }
    }
}

/// The content that a write with `seed` puts at `offset`: never zero, and different for each seed,
/// so that foreign and stale bytes show.
pub(crate) fn content(seed: u16, offset: u64, len: usize) -> Vec<u8> {
    let word = |at: u64| {
        let word = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(seed) << 17);
        word.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 0x0101_0101_0101_0101
    };
    let words = offset / 8..(offset + len as u64).div_ceil(8);
    let mut bytes: Vec<u8> = words.flat_map(|at| word(at).to_le_bytes()).collect();
    bytes.drain(..(offset % 8) as usize);
    bytes.truncate(len);
    bytes
}

/// An ACL from sixteen bits: three for each basic entry, then perhaps a named user and a mask.
pub(crate) fn acl(perms: u16) -> Vec<u8> {
    let entry = |who, shift: u16| Entry { who, perm: (perms >> shift & 7) as u8 };
    let mut entries = vec![entry(Who::Owner, 6)];
    let named = perms & 0x200 != 0;
    if named {
        entries.push(entry(Who::User(1000), 10));
    }
    entries.push(entry(Who::OwningGroup, 3));
    if named {
        entries.push(entry(Who::Mask, 12));
    }
    entries.push(entry(Who::Other, 0));
    Acl::from_entries(entries).expect("the entries are in order").encode()
}
