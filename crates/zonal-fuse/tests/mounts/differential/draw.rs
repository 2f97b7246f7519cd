//! Random calls on a tree so small that they meet.

use rustix::fs::{FallocateFlags, OFlags, RenameFlags, XattrFlags};

use super::call::{Call, Lock, Node, Time};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Descriptors of each process.
const SLOTS: usize = 2;

/// Random numbers (`SplitMix64`): the same seed draws the same calls on any machine.
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Draw { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A path: short ones often, so that names meet; now and then one that is refused.
    fn path(&mut self) -> String {
        if self.one_in(40) {
            let long = "n".repeat(255);
            let refused = ["", ".", "..", "a/.", "a/..", "b/", &long, &(long.clone() + "n")];
            return self.one_of(&refused).to_owned();
        }
        let depth = self.one_of(&[1, 1, 1, 1, 2, 2, 3]);
        let names: Vec<_> = (0..depth).map(|_| self.one_of(&NAMES)).collect();
        names.join("/")
    }

    fn slot(&mut self) -> usize {
        self.below(SLOTS)
    }

    /// A place in a file: at the ends of blocks and near them.
    fn place(&mut self) -> u64 {
        let block = self.below(20) as u64 * 4096;
        match self.below(5) {
            0 => block + 1,
            1 => (block + 4095).min(1 << 20),
            2 => self.below(1 << 17) as u64,
            _ => block,
        }
    }

    fn len(&mut self) -> usize {
        let most = self.one_of(&[1, 100, 4096, 4097, 20_000, 70_000]);
        1 + self.below(most)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(1 + self.below(250)).unwrap()
    }

    fn mode(&mut self) -> u32 {
        self.one_of(&[0o777, 0o755, 0o644, 0o700, 0o070, 0o007, 0o4755, 0o2775, 0o1777, 0o6777, 0])
    }

    fn flags(&mut self) -> u32 {
        let mut flags = self.one_of(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR]);
        let more = [
            (8, OFlags::EXCL),
            (8, OFlags::TRUNC),
            (6, OFlags::APPEND),
            (20, OFlags::NOFOLLOW),
            (20, OFlags::DIRECTORY),
            (20, OFlags::SYNC),
        ];
        flags.set(OFlags::CREATE, !self.one_in(3));
        for (many, flag) in more {
            flags.set(flag, self.one_in(many));
        }
        if self.one_in(20) {
            flags = OFlags::TMPFILE | OFlags::RDWR;
        }
        flags.bits()
    }

    fn time(&mut self) -> Time {
        match self.below(3) {
            0 => Time::Now,
            1 => Time::Omit,
            _ => Time::Second(i64::try_from(self.below(1_000_000_000)).unwrap()),
        }
    }

    fn id(&mut self) -> Option<u32> {
        self.one_of(&[None, Some(0), Some(1000), Some(1001), Some(65534)])
    }

    fn attribute(&mut self) -> String {
        self.one_of(&["user.one", "user.two", "trusted.one", "security.one", "user.", "bad"])
            .to_owned()
    }

    /// The next call.
    pub(crate) fn call(&mut self) -> Call {
        match self.below(20) {
            0..=4 => Call::Open {
                slot: self.slot(),
                path: self.path(),
                flags: self.flags(),
                mode: self.mode(),
            },
            5..=11 => self.call_on_open_files(),
            _ => self.call_on_names(),
        }
    }

    fn call_on_open_files(&mut self) -> Call {
        let slot = self.slot();
        match self.below(20) {
            0 => Call::Close { slot },
            1..=3 => Call::Read { slot, at: self.place(), len: self.len() },
            4..=5 => Call::ReadOn { slot, len: self.len() },
            6..=9 => Call::Write { slot, at: self.place(), len: self.len(), byte: self.byte() },
            10..=11 => Call::WriteOn { slot, len: self.len(), byte: self.byte() },
            12 => Call::Truncate { slot, len: self.place() },
            13..=14 => {
                let (punch, keep) = (FallocateFlags::PUNCH_HOLE, FallocateFlags::KEEP_SIZE);
                let zero = FallocateFlags::ZERO_RANGE;
                let none = FallocateFlags::empty();
                let mode = self.one_of(&[none, keep, punch | keep, punch, zero, zero | keep]);
                let len = self.len() as u64;
                Call::Allocate { slot, mode: mode.bits(), at: self.place(), len }
            }
            15 => {
                let (from, to) = (self.slot(), self.slot());
                let (from_at, to_at) = (self.place(), self.place());
                Call::Copy { from, from_at, to, to_at, len: self.len() }
            }
            16 => Call::Sync { slot },
            17 => {
                let how = self.one_of(&[Lock::Shared, Lock::Exclusive, Lock::None]);
                Call::Lock { slot, how }
            }
            18 => Call::LinkOpen { slot, to: self.path() },
            _ => Call::ChmodOpen { slot, mode: self.mode() },
        }
    }

    fn call_on_names(&mut self) -> Call {
        let path = self.path();
        match self.below(28) {
            0..=1 => Call::Link { from: path, to: self.path(), follow: self.one_in(3) },
            2..=4 => Call::Unlink { path },
            5..=6 => Call::RemoveDir { path },
            7..=9 => Call::MakeDir { path, mode: self.mode() | 0o500 },
            10..=11 => {
                let kind = self.one_of(&[Node::Fifo, Node::Socket, Node::File, Node::Null]);
                Call::MakeNode { path, kind, mode: self.mode() }
            }
            12 => Call::Symlink { target: self.path(), path },
            13 => Call::ReadLink { path },
            14..=16 => {
                let (new, exchange) = (RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
                let none = RenameFlags::empty();
                let flags = self.one_of(&[none, none, none, new, exchange, new | exchange]).bits();
                Call::Rename { from: path, to: self.path(), flags }
            }
            17..=18 => Call::Chmod { path, mode: self.mode() },
            // Not without either: a setuid file of another user then says EPERM on ext4, and the
            // kernel asks a server nothing.
            19 => Call::Chown { path, user: self.id(), group: Some(1000) },
            20 => Call::Chown { path, user: Some(1000), group: self.id() },
            21 => Call::Times { path, access: self.time(), modify: self.time() },
            22 => {
                let (create, replace) = (XattrFlags::CREATE, XattrFlags::REPLACE);
                let flags = self.one_of(&[XattrFlags::empty(), create, replace]).bits();
                Call::SetAttribute { path, name: self.attribute(), len: self.below(300), flags }
            }
            23 => Call::GetAttribute { path, name: self.attribute() },
            24 => Call::ListAttributes { path },
            25 => Call::RemoveAttribute { path, name: self.attribute() },
            26 => match self.below(3) {
                0 => Call::Umask { mode: self.one_of(&[0, 0o022, 0o077]) },
                _ => Call::Access { path, mode: u32::try_from(self.below(8)).unwrap() },
            },
            _ => Call::List { path },
        }
    }
}
