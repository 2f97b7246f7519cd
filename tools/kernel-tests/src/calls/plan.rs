//! Chooses the next call at random, with offsets and lengths near the interesting ones.
//!
//! The choice depends on the seed and on the answers of the mount so far, so two mounts with the
//! same answers get the same calls.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// How many files can be open at once.
pub(super) const SLOTS: usize = 10;

/// One call. The log shows its `Debug` form.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Open { slot: usize, path: String, flags: Vec<Flag> },
    Close { slot: usize },
    Write { slot: usize, at: u64, len: usize, how: How },
    Read { slot: usize, at: u64, len: usize },
    Truncate { path: String, size: u64 },
    TruncateOpen { slot: usize, size: u64 },
    Seek { slot: usize, whence: Whence, at: i64 },
    Map { slot: usize, mapping: Mapping },
    Fsync { slot: usize },
    Fdatasync { slot: usize },
    Allocate { slot: usize, mode: Allocation },
    Copy { from: usize, to: usize, len: usize },
    Stat { path: String },
    Statfs,
    List { dir: String },
    FsyncDir { dir: String },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: u32, gid: u32 },
    Touch { path: String },
    Unlink { path: String },
    Rmdir { path: String },
    Mkdir { path: String },
    Mknod { path: String },
    Symlink { path: String },
    Tmpfile { dir: String },
    Link { from: String, to: String },
    Rename { from: String, to: String },
    SetXattr { path: String },
    GetXattr { path: String },
    ListXattr { path: String },
    DropCaches,
    ChangeZone { path: String, fate: Fate },
}

/// A change of a zone behind the back of the file system.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    ReadOnly,
    Offline,
    Written,
}

/// Flags of `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    Rdonly,
    Wronly,
    Rdwr,
    Direct,
    Append,
    Trunc,
    Creat,
    Excl,
    Dsync,
}

/// Flags of `pwritev2`.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Plain,
    Append,
    Dsync,
    Nowait,
}

/// Where `lseek` counts from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whence {
    Start,
    End,
    Data,
    Hole,
}

/// Kinds of `mmap`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mapping {
    SharedRead,
    SharedWrite,
    PrivateWrite,
}

/// Kinds of `fallocate`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Allocation {
    Extend,
    KeepSize,
    PunchHole,
}

/// The planner's knowledge of an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) size: u64,
    pub(super) capacity: u64,
    pub(super) block: u64,
    /// How it was opened.
    pub(super) writes: Writes,
}

/// Where writes to an open file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// To the offset of the call.
    Anywhere,
    /// To the end, independent of the offset.
    AtEnd,
}

/// The planner's knowledge of the mount.
pub(super) struct View<'a> {
    pub(super) files: &'a [String],
    pub(super) dirs: &'a [String],
    /// Slots with an open file.
    pub(super) open: &'a [usize],
}

/// Which files may be truncated to their capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// All files.
    Any,
    /// Only files that are open and not empty.
    OpenAndWritten,
}

/// Whether zones change behind the back of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peace {
    /// No.
    Kept,
    /// Now and then; then all I/O is direct, because reads from the page cache would prove nothing.
    Broken,
}

/// Chooses calls.
pub(super) struct Planner {
    pub(super) rng: ChaCha8Rng,
    pub(super) finish: Finish,
    pub(super) peace: Peace,
}

/// The largest write that is one request, to any drive here and to FUSE.
const REQUEST_OF_DRIVE: usize = 64 << 10;
const REQUEST_OF_FUSE: usize = 1 << 20;

/// Names that no zone file has.
const STRANGERS: [&str; 8] = [
    "new",
    "seq/new",
    "seq/00",
    "seq/+1",
    "seq/123456",
    "cnv/new",
    "seq/a-name-beyond-16-bytes",
    "seq/0/below",
];

impl Planner {
    /// The next call. `shape` tells about an open file.
    pub(super) fn next(&mut self, view: &View, shape: impl Fn(usize) -> Option<Shape>) -> Call {
        if self.peace == Peace::Broken && self.rng.random_ratio(1, 50) {
            let fates = [Fate::ReadOnly, Fate::Offline, Fate::Written, Fate::Written];
            let path = self.file(view);
            // The device cannot do it to a conventional zone.
            if path.starts_with("seq/") {
                return Call::ChangeZone { path, fate: self.one_of(&fates) };
            }
        }
        let Some(slot) = view.open.choose(&mut self.rng).copied() else {
            return self.open(view);
        };
        let Some(shape) = shape(slot) else { return Call::Close { slot } };
        match self.rng.random_range(0..100) {
            0..30 => self.write(slot, shape),
            30..44 => self.read(slot, shape),
            44..57 => self.open(view),
            57..63 => Call::Close { slot },
            // The kernel truncates open files even if they are open for reading only; ours does
            // not.
            63..68 if self.peace == Peace::Kept => {
                let size = self.size(shape);
                let finishes = size == shape.capacity && shape.size == 0;
                Call::TruncateOpen {
                    slot,
                    size: if finishes { self.finishing(size) } else { size },
                }
            }
            63..74 => {
                let size = self.size(shape);
                let finishes = size == shape.capacity;
                let size = if finishes { self.finishing(size) } else { size };
                Call::Truncate { path: self.file(view), size }
            }
            74..86 => self.of_open_file(view, slot, shape),
            _ => self.of_path(view),
        }
    }

    fn of_open_file(&mut self, view: &View, slot: usize, shape: Shape) -> Call {
        match self.rng.random_range(0..9) {
            0..3 => {
                let whences = [Whence::Start, Whence::End, Whence::Data, Whence::Hole];
                let whence = self.one_of(&whences);
                let at = i64::try_from(self.size(shape)).unwrap_or(i64::MAX);
                let sign = if self.rng.random_ratio(1, 4) { -1 } else { 1 };
                Call::Seek { slot, whence, at: at * sign }
            }
            3..5 if self.peace == Peace::Broken => Call::Fsync { slot },
            3..5 => {
                let kinds = [Mapping::SharedRead, Mapping::SharedWrite, Mapping::PrivateWrite];
                Call::Map { slot, mapping: self.one_of(&kinds) }
            }
            5 => Call::Fsync { slot },
            6 => Call::Fdatasync { slot },
            7 => {
                let modes = [Allocation::Extend, Allocation::KeepSize, Allocation::PunchHole];
                Call::Allocate { slot, mode: self.one_of(&modes) }
            }
            _ => {
                let to = view.open.choose(&mut self.rng).copied().unwrap_or(slot);
                Call::Copy { from: slot, to, len: self.length(shape, 0) }
            }
        }
    }

    fn of_path(&mut self, view: &View) -> Call {
        let path = self.any(view);
        match self.rng.random_range(0..19) {
            0..3 => Call::Stat { path },
            3 => Call::Statfs,
            4 => Call::List { dir: self.dir(view) },
            5 => Call::FsyncDir { dir: self.dir(view) },
            6 => {
                let modes = [0o640, 0o600, 0o444, 0o500, 0o755, 0o1711, 0o000];
                Call::Chmod { path, mode: self.one_of(&modes) }
            }
            7 => {
                let (uid, gid) = self.one_of(&[(0, 0), (1000, 0), (1000, 1000), (0, 100)]);
                Call::Chown { path, uid, gid }
            }
            8 => Call::Touch { path },
            9 => Call::Unlink { path },
            10 => Call::Rmdir { path },
            11 => Call::Mkdir { path },
            12 => {
                if self.rng.random_ratio(1, 2) {
                    Call::Mknod { path }
                } else {
                    Call::Symlink { path }
                }
            }
            13 => Call::Tmpfile { dir: self.dir(view) },
            14 => Call::Link { from: path, to: self.any(view) },
            15 | 16 => Call::Rename { from: path, to: self.any(view) },
            17 => match self.rng.random_range(0..3) {
                0 => Call::SetXattr { path },
                1 => Call::GetXattr { path },
                _ => Call::ListXattr { path },
            },
            _ => Call::DropCaches,
        }
    }

    fn open(&mut self, view: &View) -> Call {
        let slot = self.rng.random_range(0..SLOTS);
        let path = if self.rng.random_ratio(1, 12) { self.any(view) } else { self.file(view) };
        let access = match self.rng.random_range(0..6) {
            0 => Flag::Rdonly,
            1 => Flag::Wronly,
            _ => Flag::Rdwr,
        };
        let mut flags = vec![access];
        let rare = [
            (Flag::Direct, 2, 3),
            (Flag::Append, 1, 5),
            (Flag::Trunc, 1, 14),
            (Flag::Creat, 1, 14),
            (Flag::Excl, 1, 20),
            (Flag::Dsync, 1, 10),
        ];
        for (flag, count, of) in rare {
            if self.rng.random_ratio(count, of) {
                flags.push(flag);
            }
        }
        if self.peace == Peace::Broken && !flags.contains(&Flag::Direct) {
            flags.push(Flag::Direct);
        }
        // Without O_CREAT, O_EXCL means nothing.
        if !flags.contains(&Flag::Creat) {
            flags.retain(|flag| *flag != Flag::Excl);
        }
        Call::Open { slot, path, flags }
    }

    fn write(&mut self, slot: usize, shape: Shape) -> Call {
        let at = if self.rng.random_ratio(2, 3) { shape.size } else { self.size(shape) };
        // A conventional file is always full: most writes go somewhere inside.
        let inside = shape.size == shape.capacity && self.rng.random_ratio(2, 3);
        let at = if inside { self.aligned(shape) } else { at };
        let how = match self.rng.random_range(0..20) {
            0..2 => How::Append,
            2 => How::Dsync,
            3 => How::Nowait,
            _ => How::Plain,
        };
        let len = self.written(shape, at);
        // An append that names an offset beyond the capacity is EFBIG in the kernel. FUSE does not
        // tell the offset of an append, so there the file would be written and differ from then on.
        let appends = shape.writes == Writes::AtEnd || matches!(how, How::Append);
        let at = if appends { at.min(shape.capacity - shape.block) } else { at };
        Call::Write { slot, at, len, how }
    }

    fn read(&mut self, slot: usize, shape: Shape) -> Call {
        let at = if self.rng.random_ratio(1, 2) { self.aligned(shape) } else { self.size(shape) };
        Call::Read { slot, at, len: self.length(shape, at) }
    }

    /// A size or an offset that is likely to matter.
    fn size(&mut self, shape: Shape) -> u64 {
        let Shape { size, capacity, block, .. } = shape;
        match self.rng.random_range(0..12) {
            0..3 => 0,
            3 => size,
            4 => size + block,
            5 => size.saturating_sub(block),
            6 => size + block / 2,
            7..9 => capacity,
            9 => capacity + block,
            10 => capacity - block,
            _ => self.aligned(shape),
        }
    }

    /// A size that finishes a file, or, if such files are not to be finished, the size that resets
    /// it.
    fn finishing(&self, size: u64) -> u64 {
        match self.finish {
            Finish::Any => size,
            Finish::OpenAndWritten => 0,
        }
    }

    fn aligned(&mut self, shape: Shape) -> u64 {
        let blocks = shape.size.max(shape.block) / shape.block;
        self.rng.random_range(0..blocks) * shape.block
    }

    fn length(&mut self, shape: Shape, at: u64) -> usize {
        let Shape { capacity, block, .. } = shape;
        let length = match self.rng.random_range(0..24) {
            0..12 => self.rng.random_range(1..=16) * block,
            12..17 => self.rng.random_range(1..=(256 << 10) / block) * block,
            17..19 => capacity.saturating_sub(at),
            19 => capacity.saturating_sub(at) + block,
            20 => block / 2,
            21 => block + block / 2,
            22 => 0,
            _ => self.rng.random_range(1..10_000),
        };
        usize::try_from(length).expect("a length of a few MiB")
    }

    /// The length of a write. A write of several requests is made of whole blocks, and with limits
    /// the first write to a zone is a single request, because FUSE and the block layer answer a
    /// longer one in parts.
    fn written(&mut self, shape: Shape, at: u64) -> usize {
        let len = self.length(shape, at);
        let block = usize::try_from(shape.block).expect("a block is small");
        let opens = self.finish == Finish::OpenAndWritten && shape.size == 0;
        if opens {
            len.min(REQUEST_OF_DRIVE)
        } else if len > REQUEST_OF_FUSE {
            len - len % block
        } else {
            len
        }
    }

    /// Few files, so that calls meet; the first and the last are special.
    fn file(&mut self, view: &View) -> String {
        view.files.choose(&mut self.rng).cloned().unwrap_or_default()
    }

    fn dir(&mut self, view: &View) -> String {
        view.dirs.choose(&mut self.rng).cloned().unwrap_or_default()
    }

    fn any(&mut self, view: &View) -> String {
        match self.rng.random_range(0..4) {
            0 => self.one_of(&STRANGERS).to_owned(),
            1 => self.dir(view),
            _ => self.file(view),
        }
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        *choices.choose(&mut self.rng).expect("there is a choice")
    }
}
