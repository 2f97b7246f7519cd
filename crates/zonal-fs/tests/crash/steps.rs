//! The steps that short workloads are made of, all of them on the same few paths, and the syncs
//! that end them. `sequences` puts them together.

use std::fmt;

use zonal_fs::vfs::{Allocate, Caller, FileKind, RenameFlags, SyncKind, WriteFlags, XattrMode};

use crate::ops::drives::Shape;
use crate::ops::session::Names;
use crate::ops::{Op, Pick};
use crate::run::Start;

/// Every path that a step names. Each keeps its number, whether or not it exists.
const PATHS: [&str; 11] =
    ["/", "/n0", "/n0/n0", "/n1", "/n2", "/n3", "/n4", "/n0/n4", "/n5", "/n7", "/n0/n7"];
const ROOT: Pick = 0;
const DIR: Pick = 1;
/// Half a block in `DIR`, with an attribute.
const INNER: Pick = 2;
const EMPTY_DIR: Pick = 3;
/// Two blocks and a bit.
const FILE: Pick = 4;
/// Shares the first two blocks of `FILE`.
const CLONE: Pick = 5;
/// A block and a half; `OTHER_LINK` in `DIR` is the same file.
const LINKED: Pick = 6;
const OTHER_LINK: Pick = 7;
const SYMLINK: Pick = 8;
/// Not there at the start, nor is `NEW_INNER` in `DIR`: steps make them, and others use them.
const NEW: Pick = 9;
const NEW_INNER: Pick = 10;
/// The last part of both.
const NEW_NAME: u8 = 7;

/// Bytes of `FILE`.
const FILE_LEN: u64 = 9000;
/// Where `FILE` ends and where it is longest, from inside a block to inside another.
const ACROSS_END: (u64, u64) = (8000, 20_000);

/// One step: calls that belong together, and the path that a sync after them names.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    ops: Vec<Op>,
    synced: Pick,
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Nothing,
    Fdatasync,
    Fsync,
    Sync,
}

impl Ending {
    pub(crate) const ALL: [Self; 4] = [Self::Nothing, Self::Fdatasync, Self::Fsync, Self::Sync];

    fn op(self, file: Pick) -> Option<Op> {
        match self {
            Self::Nothing => None,
            Self::Fdatasync => Some(Op::Fsync { file, kind: SyncKind::Data }),
            Self::Fsync => Some(Op::Fsync { file, kind: SyncKind::Full }),
            Self::Sync => Some(Op::Sync),
        }
    }
}

/// Steps with their endings.
#[derive(Clone)]
pub(crate) struct Sequence<'a>(pub(crate) Vec<(&'a Step, Ending)>);

impl Sequence<'_> {
    /// The operations. Contents differ by the place of a step in the sequence, so that a step that
    /// is done twice writes something new. A sequence without a last sync ends with a tick, which
    /// commits by age.
    pub(crate) fn ops(&self) -> Vec<Op> {
        let ops_at = |(at, (step, ending)): (u16, &(&Step, Ending))| {
            let mut ops = step.ops.clone();
            for op in &mut ops {
                if let Op::Write { seed, .. }
                | Op::WriteHeld { seed, .. }
                | Op::SetXattr { seed, .. } = op
                {
                    *seed += at;
                }
            }
            ops.extend(ending.op(step.synced));
            ops
        };
        let ops = (0..).step_by(100).zip(&self.0).flat_map(ops_at);
        let is_open = self.0.last().is_some_and(|(_, ending)| *ending == Ending::Nothing);
        ops.chain(is_open.then_some(Op::Tick)).collect()
    }

    /// How many operations come before the last step.
    pub(crate) fn before_last(&self) -> usize {
        let before = self.0[..self.0.len() - 1].iter();
        before.map(|(step, ending)| step.ops.len() + usize::from(*ending != Ending::Nothing)).sum()
    }
}

impl fmt::Display for Sequence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (step, ending)) in self.0.iter().enumerate() {
            let before = if index == 0 { "" } else { "; " };
            write!(f, "{before}{}, {ending:?}", step.name)?;
        }
        Ok(())
    }
}

/// A drive with the paths above.
pub(crate) fn start(shape: &Shape) -> Start {
    let plain = WriteFlags::empty();
    let ops = [
        create(ROOT, 0, FileKind::Directory),
        create(ROOT, 1, FileKind::Directory),
        create(ROOT, 2, FileKind::Regular),
        create(ROOT, 3, FileKind::Regular),
        create(ROOT, 4, FileKind::Regular),
        create(ROOT, 5, FileKind::Symlink),
        create(DIR, 0, FileKind::Regular),
        link(LINKED, DIR, 4),
        write(FILE, 0, 9000, 1, plain),
        write(INNER, 0, 2000, 2, plain),
        write(LINKED, 0, 6000, 3, plain),
        copy((FILE, 0), (CLONE, 0), 8192),
        set_xattr(INNER, 0, 20),
    ];
    Start::on_paths(shape, Names::fixed(&PATHS), &ops)
}

/// An entry's number: entries leave the root out.
const fn entry(path: Pick) -> Pick {
    path - 1
}

fn create(dir: Pick, name: u8, kind: FileKind) -> Op {
    Op::Create { dir, name, kind, perm: 0o644, caller: Caller::ROOT }
}

fn link(source: Pick, dir: Pick, name: u8) -> Op {
    Op::Link { source: entry(source), dir, name }
}

fn unlink(path: Pick) -> Op {
    Op::Unlink { entry: entry(path) }
}

fn rename(source: Pick, target: Pick, flags: RenameFlags) -> Op {
    Op::RenameOver { source: entry(source), target: entry(target), flags }
}

fn write(file: Pick, offset: u64, len: u32, seed: u16, flags: WriteFlags) -> Op {
    Op::Write { file, offset, len, seed, flags }
}

fn copy((source, from): (Pick, u64), (target, to): (Pick, u64), len: u64) -> Op {
    Op::CopyRange { source, from, target, to, len }
}

fn set_xattr(path: Pick, name: u8, len: u16) -> Op {
    Op::SetXattr { entry: path, name, len, seed: 4, mode: XattrMode::Any }
}

fn step(name: &'static str, synced: Pick, ops: impl Into<Vec<Op>>) -> Step {
    Step { name, ops: ops.into(), synced }
}

/// All steps.
pub(crate) fn all() -> Vec<Step> {
    [new_names(), names_gone(), renames(), writes(), sizes(), copies(), attributes()].concat()
}

fn new_names() -> Vec<Step> {
    let unnamed = [
        Op::CreateUnnamed { dir: ROOT },
        Op::WriteHeld { held: 0, offset: 0, len: 5000, seed: 5 },
        Op::LinkHeld { held: 0, dir: ROOT, name: NEW_NAME },
        Op::Release { held: 0 },
    ];
    vec![
        step("create", ROOT, [create(ROOT, NEW_NAME, FileKind::Regular)]),
        step("create inside", DIR, [create(DIR, NEW_NAME, FileKind::Regular)]),
        step("make directory", DIR, [create(DIR, NEW_NAME, FileKind::Directory)]),
        step("make symlink", DIR, [create(DIR, NEW_NAME, FileKind::Symlink)]),
        step("make fifo", ROOT, [create(ROOT, NEW_NAME, FileKind::Fifo)]),
        step("write unnamed file", ROOT, &unnamed[..2]),
        step("link held file", ROOT, &unnamed[2..3]),
        step("link unnamed file", ROOT, unnamed),
        step("link", DIR, [link(FILE, DIR, NEW_NAME)]),
        step("link outside", INNER, [link(INNER, ROOT, NEW_NAME)]),
        step("link symlink", ROOT, [link(SYMLINK, ROOT, NEW_NAME)]),
    ]
}

fn names_gone() -> Vec<Step> {
    let held = [Op::Hold { file: FILE }, unlink(FILE)];
    let late = Op::WriteHeld { held: 0, offset: 4096, len: 9000, seed: 6 };
    let written = [held.to_vec(), vec![late]].concat();
    let released = [written.clone(), vec![Op::Release { held: 0 }]].concat();
    vec![
        step("unlink", ROOT, [unlink(FILE)]),
        step("unlink inside", DIR, [unlink(INNER)]),
        step("unlink clone", ROOT, [unlink(CLONE)]),
        step("unlink link", DIR, [unlink(LINKED)]),
        step("unlink other link", DIR, [unlink(OTHER_LINK)]),
        step("unlink symlink", ROOT, [unlink(SYMLINK)]),
        step("unlink new", ROOT, [unlink(NEW)]),
        step("unlink new inside", DIR, [unlink(NEW_INNER)]),
        step("unlink held", ROOT, held),
        step("write unlinked", ROOT, written),
        step("release unlinked", ROOT, released),
        step("remove directory", ROOT, [Op::Rmdir { dir: EMPTY_DIR }]),
        step("remove new directory", DIR, [Op::Rmdir { dir: NEW_INNER }]),
    ]
}

fn renames() -> Vec<Step> {
    let none = RenameFlags::empty();
    let (exchange, whiteout) = (RenameFlags::EXCHANGE, RenameFlags::WHITEOUT);
    vec![
        step("rename", ROOT, [rename(FILE, NEW, none)]),
        step("rename without replacing", FILE, [rename(FILE, NEW, RenameFlags::NOREPLACE)]),
        step("rename into", DIR, [rename(FILE, NEW_INNER, none)]),
        step("rename out of", ROOT, [rename(INNER, NEW, none)]),
        step("rename directory into", DIR, [rename(EMPTY_DIR, NEW_INNER, none)]),
        step("rename full directory", ROOT, [rename(DIR, NEW, none)]),
        step("rename over", ROOT, [rename(CLONE, FILE, none)]),
        step("rename new over", FILE, [rename(NEW, FILE, none)]),
        step("rename out of, over", DIR, [rename(INNER, FILE, none)]),
        step("rename into, over", DIR, [rename(FILE, INNER, none)]),
        step("rename over link", ROOT, [rename(FILE, LINKED, none)]),
        step("rename over the same file", DIR, [rename(LINKED, OTHER_LINK, none)]),
        step("rename over directory", ROOT, [rename(DIR, EMPTY_DIR, none)]),
        step("rename symlink over", ROOT, [rename(SYMLINK, FILE, none)]),
        step("exchange", DIR, [rename(FILE, INNER, exchange)]),
        step("exchange with directory", ROOT, [rename(DIR, FILE, exchange)]),
        step("exchange directories", EMPTY_DIR, [rename(DIR, EMPTY_DIR, exchange)]),
        step("rename with whiteout", ROOT, [rename(FILE, NEW, whiteout)]),
        step("rename over with whiteout", DIR, [rename(INNER, CLONE, whiteout)]),
    ]
}

fn writes() -> Vec<Step> {
    let plain = WriteFlags::empty();
    let direct = WriteFlags::DIRECT;
    // As the kernel writes pages back that programs have changed in their mappings.
    let page = |file, page: u64, seed| {
        let flags = WriteFlags::KEEP_TIMES | WriteFlags::KEEP_CAPABILITY;
        let pages = write(file, page * 4096, 4096, seed, flags);
        vec![pages, Op::NoteWritten { entry: file, secs: 1_800_000_000 + i64::from(seed) }]
    };
    vec![
        step("write block", FILE, [write(FILE, 0, 4096, 10, plain)]),
        step("write across blocks", FILE, [write(FILE, 100, 5000, 11, plain)]),
        step("write at end", FILE, [write(FILE, FILE_LEN, 3000, 12, plain)]),
        step("write beyond end", FILE, [write(FILE, 40_000, 1000, 13, plain)]),
        step("append", INNER, [write(INNER, 0, 3000, 14, WriteFlags::APPEND)]),
        step("write durably", INNER, [write(INNER, 1000, 200, 15, WriteFlags::DURABLE)]),
        step("write by link", OTHER_LINK, [write(OTHER_LINK, 2000, 4096, 16, plain)]),
        step("write clone", CLONE, [write(CLONE, 0, 4096, 17, plain)]),
        step("write new", NEW, [write(NEW, 0, 5000, 18, plain)]),
        step("write new inside", NEW_INNER, [write(NEW_INNER, 0, 5000, 19, plain)]),
        step("write directly", FILE, [write(FILE, 4096, 4096, 20, direct)]),
        step("write directly over end", FILE, [write(FILE, 4096, 8192, 21, direct)]),
        step("write clone directly", CLONE, [write(CLONE, 0, 8192, 22, direct)]),
        step("write new directly", NEW, [write(NEW, 0, 40_960, 23, direct)]),
        step("write page", FILE, page(FILE, 1, 24)),
        step("write page at end", FILE, page(FILE, 2, 26)),
        step("write page of clone", CLONE, page(CLONE, 0, 25)),
    ]
}

fn sizes() -> Vec<Step> {
    let truncate = |file, size| [Op::Truncate { file, size }];
    let allocate = |how, (offset, len)| [Op::Fallocate { file: FILE, how, offset, len }];
    let (inside, block) = ((1000, 6000), (4096, 4096));
    let punch = Op::Fallocate { file: CLONE, how: Allocate::Punch, offset: 0, len: 5000 };
    vec![
        step("truncate to nothing", FILE, truncate(FILE, 0)),
        step("truncate inside block", FILE, truncate(FILE, 5000)),
        step("truncate to block", FILE, truncate(FILE, 4096)),
        step("grow", FILE, truncate(FILE, 30_000)),
        step("truncate clone", CLONE, truncate(CLONE, 4096)),
        step("truncate link", LINKED, truncate(LINKED, 700)),
        step("allocate", FILE, allocate(Allocate::Extend, ACROSS_END)),
        step("allocate, keep size", FILE, allocate(Allocate::KeepSize, ACROSS_END)),
        step("punch", FILE, allocate(Allocate::Punch, inside)),
        step("punch block", FILE, allocate(Allocate::Punch, block)),
        step("punch clone", CLONE, [punch]),
        step("punch later", FILE, allocate(Allocate::PunchLater, (0, 8192))),
        step("zero", FILE, allocate(Allocate::Zero, ACROSS_END)),
        step("zero, keep size", FILE, allocate(Allocate::ZeroKeepSize, ACROSS_END)),
        step("zero later", FILE, allocate(Allocate::ZeroLater, (0, 8192))),
    ]
}

fn copies() -> Vec<Step> {
    vec![
        step("copy to new", NEW, [copy((FILE, 0), (NEW, 0), FILE_LEN)]),
        step("copy over", LINKED, [copy((FILE, 0), (LINKED, 0), FILE_LEN)]),
        step("copy block", INNER, [copy((FILE, 4096), (INNER, 4096), 4096)]),
        step("copy from inside block", INNER, [copy((FILE, 100), (INNER, 300), 5000)]),
        step("copy within", FILE, [copy((FILE, 0), (FILE, 12_288), 8192)]),
        step("copy back from clone", FILE, [copy((CLONE, 0), (FILE, 4096), 8192)]),
    ]
}

fn attributes() -> Vec<Step> {
    let acl =
        |path, default, perms| Op::SetAcl { entry: path, default, perms, caller: Caller::ROOT };
    let replaced =
        Op::SetXattr { entry: INNER, name: 0, len: 5000, seed: 7, mode: XattrMode::Replace };
    let chmod = Op::Chmod { entry: FILE, perm: 0o4711, caller: Caller::ROOT };
    vec![
        step("chmod", FILE, [chmod]),
        step("chown", FILE, [Op::Chown { entry: FILE, uid: 5, gid: 6 }]),
        step("set times", FILE, [Op::SetTimes { entry: FILE, mtime: (1 << 40, 7) }]),
        step("set attribute", FILE, [set_xattr(FILE, 1, 30)]),
        step("set capability", FILE, [set_xattr(FILE, 3, 20)]),
        step("set attribute of directory", DIR, [set_xattr(DIR, 1, 300)]),
        step("replace attribute", INNER, [replaced]),
        step("remove attribute", INNER, [Op::RemoveXattr { entry: INNER, name: 0 }]),
        step("set default ACL", DIR, [acl(DIR, true, 0o1755)]),
        step("set ACL", FILE, [acl(FILE, false, 0o4755)]),
    ]
}
