//! Short exhaustive workloads in the manner of ACE (Mohan et al., "Finding Crash-Consistency Bugs
//! with Bounded Black-Box Crash Testing", OSDI 2018): every sequence of one operation, and of two,
//! with a sync after the last, between, or nowhere, on a small fixed tree.

use zonal_fs::vfs::{Allocate, Caller, FileKind, RenameFlags, SyncKind, WriteFlags, XattrMode};

use crate::ops::drives::{SMALL, Shape};
use crate::ops::{Op, Pick};
use crate::run::Start;

// What `Names` calls things in the fixed tree, in its order: `/`, `/n0`, `/n0/n4`, `/n1`, `/n2`,
// `/n3`. Directories are 0 `/`, 1 `/n0`, 2 `/n1`; regular files 0 `/n0/n4`, 1 `/n2`, 2 `/n3`.
const ROOT: Pick = 0;
const DIR: Pick = 1;
const OTHER_DIR: Pick = 2;
/// Entries leave the root out.
const ENTRY_OF_DIR: Pick = 0;
const ENTRY_INNER: Pick = 1;
const ENTRY_EMPTY_DIR: Pick = 2;
const ENTRY_FILE: Pick = 3;
const ENTRY_OTHER: Pick = 4;
const INNER: Pick = 0;
const FILE: Pick = 1;
const OTHER: Pick = 2;

/// The fixed tree: directories `n0` and `n1`, files `n2` (two blocks and a bit), `n3` (empty) and
/// `n0/n4` (half a block, with an attribute).
pub(crate) fn start() -> Start {
    start_on(&SMALL)
}

/// The same on a drive of another shape.
pub(crate) fn start_on(shape: &Shape) -> Start {
    let ops = [
        create(ROOT, 0, FileKind::Directory),
        create(ROOT, 1, FileKind::Directory),
        create(ROOT, 2, FileKind::Regular),
        create(ROOT, 3, FileKind::Regular),
        create(DIR, 4, FileKind::Regular),
        write(FILE, 0, 9000, WriteFlags::empty()),
        write(INNER, 0, 2000, WriteFlags::empty()),
        Op::SetXattr { entry: 2, name: 0, len: 20, seed: 9, mode: XattrMode::Any },
    ];
    Start::new(shape, 0, &ops)
}

fn create(dir: Pick, name: u8, kind: FileKind) -> Op {
    Op::Create { dir, name, kind, perm: 0o644, caller: Caller::ROOT }
}

fn write(file: Pick, offset: u64, len: u32, flags: WriteFlags) -> Op {
    Op::Write { file, offset, len, seed: 77, flags }
}

fn rename(source: Pick, dir: Pick, name: u8) -> Op {
    Op::Rename { source, dir, name, flags: RenameFlags::empty() }
}

fn over(source: Pick, target: Pick, flags: RenameFlags) -> Op {
    Op::RenameOver { source, target, flags }
}

/// The operations, fourteen kinds of them.
pub(crate) fn operations() -> Vec<Op> {
    let plain = WriteFlags::empty();
    let none = RenameFlags::empty();
    let fallocate = |how, offset, len| Op::Fallocate { file: FILE, how, offset, len };
    vec![
        create(ROOT, 5, FileKind::Regular),
        create(DIR, 5, FileKind::Regular),
        create(DIR, 5, FileKind::Directory),
        create(DIR, 5, FileKind::Symlink),
        create(ROOT, 6, FileKind::Fifo),
        Op::Unlink { entry: ENTRY_INNER },
        Op::Unlink { entry: ENTRY_FILE },
        Op::Unlink { entry: ENTRY_OTHER },
        Op::Rmdir { dir: OTHER_DIR },
        rename(ENTRY_FILE, ROOT, 7),
        rename(ENTRY_FILE, DIR, 7),
        rename(ENTRY_INNER, ROOT, 7),
        rename(ENTRY_OF_DIR, OTHER_DIR, 7),
        over(ENTRY_FILE, ENTRY_OTHER, none),
        over(ENTRY_INNER, ENTRY_FILE, none),
        over(ENTRY_OTHER, ENTRY_INNER, none),
        over(ENTRY_OF_DIR, ENTRY_EMPTY_DIR, none),
        over(ENTRY_FILE, ENTRY_INNER, RenameFlags::EXCHANGE),
        over(ENTRY_OF_DIR, ENTRY_FILE, RenameFlags::EXCHANGE),
        Op::Link { source: ENTRY_FILE, dir: DIR, name: 8 },
        Op::Link { source: ENTRY_INNER, dir: ROOT, name: 8 },
        write(OTHER, 0, 5000, plain),
        write(FILE, 0, 4096, plain),
        write(FILE, 100, 5000, plain),
        write(FILE, 9000, 3000, plain),
        write(FILE, 40_000, 1000, plain),
        write(FILE, 4096, 8192, WriteFlags::DIRECT),
        write(OTHER, 0, 40_000, WriteFlags::DIRECT),
        write(INNER, 0, 3000, WriteFlags::APPEND),
        write(INNER, 1000, 200, WriteFlags::DURABLE),
        Op::Truncate { file: FILE, size: 0 },
        Op::Truncate { file: FILE, size: 5000 },
        Op::Truncate { file: FILE, size: 30_000 },
        Op::Truncate { file: INNER, size: 700 },
        fallocate(Allocate::Extend, 8000, 20_000),
        fallocate(Allocate::KeepSize, 8000, 20_000),
        fallocate(Allocate::Punch, 1000, 6000),
        fallocate(Allocate::Zero, 4000, 9000),
        fallocate(Allocate::ZeroKeepSize, 4000, 9000),
        Op::CopyRange { source: FILE, from: 0, target: OTHER, to: 0, len: 9000 },
        Op::CopyRange { source: FILE, from: 4096, target: INNER, to: 4096, len: 4096 },
        Op::Chmod { entry: 4, perm: 0o4711, caller: Caller::ROOT },
        Op::Chown { entry: 4, uid: 5, gid: 6 },
        Op::SetTimes { entry: 4, mtime: (1 << 40, 7) },
        Op::SetXattr { entry: 4, name: 1, len: 30, seed: 3, mode: XattrMode::Any },
        Op::SetXattr { entry: 2, name: 0, len: 5000, seed: 4, mode: XattrMode::Replace },
        Op::RemoveXattr { entry: 2, name: 0 },
        Op::SetAcl { entry: 1, default: true, perms: 0o1755, caller: Caller::ROOT },
        Op::SetAcl { entry: 4, default: false, perms: 0o4755, caller: Caller::ROOT },
        Op::Hold { file: FILE },
    ]
}

/// How a sequence becomes durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Syncs {
    Last,
    Each,
    FsyncLast,
    TickLast,
}

impl Syncs {
    pub(crate) const ALL: [Self; 4] = [Self::Last, Self::Each, Self::FsyncLast, Self::TickLast];

    /// `ops` with syncs, and one more operation that is under way when the power goes.
    pub(crate) fn weave(self, ops: &[Op]) -> Vec<Op> {
        let mut woven = Vec::new();
        for op in ops {
            woven.push(op.clone());
            if matches!(self, Self::Each) {
                woven.push(Op::Sync);
            }
        }
        woven.push(match self {
            Self::Last | Self::Each => Op::Sync,
            Self::FsyncLast => Op::Fsync { file: 4, kind: SyncKind::Data },
            Self::TickLast => Op::Tick,
        });
        woven.push(write(0, 0, 100, WriteFlags::empty()));
        woven.push(Op::Tick);
        woven
    }
}
