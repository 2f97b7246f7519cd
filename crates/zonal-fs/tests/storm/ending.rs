//! Rules once all faults have ended, without a remount: every operation works, and all space comes
//! back.

use std::ops::Range;

use zonal::GeometrySpec;
use zonal_fs::FsError;
use zonal_fs::furrow::{Furrow, StepProgress, Work};
use zonal_fs::vfs::{
    Allocate, Caller, FileKind, FileSystem, Ino, NewInode, RenameFlags, SetAttr, WriteFlags,
    XattrMode,
};

use crate::model::ROOT;
use crate::node::BLOCK;
use crate::setting::index;
use crate::world::{World, delete_all, name_of};

/// Nanoseconds after which the longest pause is over.
const PAUSE_NS: u64 = 64_000_000_000;

/// Steps of one kind after which something goes round in circles.
const STEPS_MAX: usize = 20_000;

/// Blocks of a drive up to which it is filled.
const FILLED_MAX: u64 = 5000;

/// Blocks by which metadata may take more or less than in the empty file system.
const SLACK: u64 = 8;

/// Blocks that a few small files and their directory entries may take.
const USED_MAX: u64 = 16;

/// A mount at the end of a round.
pub(crate) struct Ending<'a> {
    pub(crate) fs: &'a Furrow,
    pub(crate) world: &'a World,
    /// Free blocks of the empty file system.
    pub(crate) empty: u64,
}

fn failed(what: &'static str) -> impl Fn(FsError) -> String {
    move |error| format!("after all faults, {what}: {error}")
}

impl Ending<'_> {
    /// Checks it all. The tree is empty afterwards.
    pub(crate) fn check(&self, spec: GeometrySpec) -> Result<(), String> {
        let is_small = spec.block_count.get() <= FILLED_MAX;
        if is_small {
            // A full drive takes no more names.
            let files = [200, 201, 206].map(|name| self.create(name));
            if let [Ok(filler), Ok(copy), Ok(room)] = files {
                self.fill(filler)?;
                self.overwrite_copy(filler, copy, room)?;
            }
        }
        self.do_all_work()?;
        self.owes_nothing()?;
        for name in [200, 201, 206] {
            match self.fs.unlink(Ino::ROOT, &name_of(name)) {
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => return Err(failed("deleting what fills it")(error)),
            }
        }
        self.make_space()?;
        self.use_all()?;
        delete_all(self.fs, ROOT).map_err(failed("deleting everything"))?;
        self.do_all_work()?;
        self.is_empty()
    }

    fn create(&self, name: u8) -> Result<Ino, FsError> {
        let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
        Ok(self.fs.create(&Caller::ROOT, Ino::ROOT, &name_of(name), &new)?.ino)
    }

    /// A copy shares the blocks of the file that fills the drive, in extents of several blocks.
    /// Each of them that is overwritten then takes a block: no more than are free.
    fn overwrite_copy(&self, filler: Ino, copy: Ino, room: Ino) -> Result<(), String> {
        let fs = self.fs;
        let half = fs.getattr(filler).map_err(failed("what fills it"))?.size / 2;
        let size = SetAttr { size: Some(half), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, filler, &size).map_err(failed("truncating"))?;
        match fs.copy_range((filler, 0), (copy, 0), half, WriteFlags::empty()) {
            Ok(_) | Err(FsError::NoSpace) => {}
            Err(error) => return Err(failed("copying")(error)),
        }
        fs.sync().map_err(failed("a sync"))?;
        self.write_blocks(room, 0..u64::MAX)?;
        let before = fs.live().blocks.used;
        let free = fs.statfs().map_err(failed("its size"))?.blocks_free;
        let blocks = fs.getattr(copy).map_err(failed("a copy"))?.size / BLOCK;
        for at in 0..blocks {
            self.write_blocks(copy, at..at + 1)?;
        }
        let taken = fs.live().blocks.used.saturating_sub(before);
        if taken > free + SLACK {
            return Err(format!("overwriting a copy took {taken} blocks where {free} were free"));
        }
        fs.sync().map_err(failed("a sync of what was overwritten"))
    }

    /// Writes blocks of a file one by one, as long as there is space.
    fn write_blocks(&self, file: Ino, blocks: Range<u64>) -> Result<(), String> {
        for at in blocks {
            match self.fs.write(file, at * BLOCK, &[9; 4096], WriteFlags::DIRECT) {
                Ok(_) => {}
                Err(FsError::NoSpace) => break,
                Err(error) => return Err(failed("filling it")(error)),
            }
        }
        Ok(())
    }

    /// A writer takes all space, also that of pending removals, while the pauses after faults go
    /// on.
    fn fill(&self, file: Ino) -> Result<(), String> {
        let mut at = 0;
        for blocks in [16, 1] {
            loop {
                let data = vec![5; index(blocks * BLOCK)];
                match self.fs.write(file, at * BLOCK, &data, WriteFlags::DIRECT) {
                    Ok(_) => at += blocks,
                    Err(FsError::NoSpace) => break,
                    Err(error) => return Err(failed("filling it")(error)),
                }
            }
        }
        let free = self.fs.statfs().map_err(failed("its size"))?.blocks_free;
        match self.fs.stats().removals_owed {
            0 if free <= SLACK => Ok(()),
            owed => Err(format!("a writer finds no space: {free} are free, {owed} removals owed")),
        }
    }

    /// Lets all pauses end, and does everything that is due then.
    fn do_all_work(&self) -> Result<(), String> {
        self.fs.sync().map_err(failed("a sync"))?;
        self.world.pass_time(PAUSE_NS);
        let works = [
            Work::Commit,
            Work::Truncate,
            Work::Reset,
            Work::Backrefs,
            Work::Reclaim,
            Work::Compact,
        ];
        for _ in 0..2 {
            for work in works {
                let mut steps = 0;
                while self.fs.step(work).map_err(failed("a step"))? == StepProgress::More {
                    steps += 1;
                    if steps == STEPS_MAX {
                        return Err(format!("{work:?} has no end"));
                    }
                }
            }
            self.fs.sync().map_err(failed("a sync"))?;
        }
        while self.fs.step(Work::Reset).map_err(failed("a reset"))? == StepProgress::More {}
        Ok(())
    }

    fn owes_nothing(&self) -> Result<(), String> {
        let stats = self.fs.stats();
        match (stats.removals_owed, stats.resets_owed) {
            (0, 0) => Ok(()),
            (removals, resets) => {
                Err(format!("{removals} removals and {resets} resets are owed after the pauses"))
            }
        }
    }

    /// Empties the file that fills the drive, if the operations have left too little space for
    /// more files.
    fn make_space(&self) -> Result<(), String> {
        let free = self.fs.statfs().map_err(failed("its size"))?.blocks_free;
        let Some(ballast) = self.world.ballast().map(Ino::new).filter(|_| free < USED_MAX) else {
            return Ok(());
        };
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        match self.fs.setattr(&Caller::ROOT, ballast, &size) {
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(failed("emptying what fills it")(error)),
        }
    }

    /// Uses every kind of operation.
    fn use_all(&self) -> Result<(), String> {
        let (fs, root) = (self.fs, Ino::ROOT);
        self.do_all_work()?;
        let one = self.create(202).map_err(failed("creating"))?;
        fs.write(one, 0, &[1; 12_288], WriteFlags::empty()).map_err(failed("writing"))?;
        fs.setxattr(&Caller::ROOT, one, b"user.001", b"value", XattrMode::Any)
            .map_err(failed("setxattr"))?;
        fs.sync().map_err(failed("a sync"))?;
        let (from, to) = (name_of(202), name_of(203));
        fs.rename((root, &from), (root, &to), RenameFlags::empty()).map_err(failed("renaming"))?;
        let two = self.create(202).map_err(failed("creating again"))?;
        let copied = fs.copy_range((one, 0), (two, 4096), 8192, WriteFlags::empty());
        assert_eq!(copied.map_err(failed("copying"))?, 8192, "a copy is whole");
        fs.write(two, 5000, &[2; 5000], WriteFlags::DIRECT).map_err(failed("overwriting"))?;
        fs.fallocate(one, Allocate::Punch, 4096, 4096).map_err(failed("punching"))?;
        let size = SetAttr { size: Some(100), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, one, &size).map_err(failed("truncating"))?;
        let size = SetAttr { size: Some(9000), ..SetAttr::default() };
        fs.setattr(&Caller::ROOT, one, &size).map_err(failed("growing"))?;
        let mut found = vec![7; 9000];
        fs.read(one, 0, &mut found).map_err(failed("reading"))?;
        assert!(found[..100] == [1; 100] && found[100..] == [0; 8900], "what is read of it");
        let directory = NewInode { kind: FileKind::Directory, perm: 0o755, rdev: 0, target: b"" };
        fs.create(&Caller::ROOT, root, &name_of(204), &directory).map_err(failed("mkdir"))?;
        fs.rmdir(root, &name_of(204)).map_err(failed("rmdir"))?;
        fs.link(one, root, &name_of(205)).map_err(failed("linking"))?;
        fs.unlink(root, &to).map_err(failed("deleting"))
    }

    /// Nothing is used, and nothing is owed.
    fn is_empty(&self) -> Result<(), String> {
        self.owes_nothing()?;
        let (stats, live) = (self.fs.stats(), self.fs.live());
        let free = self.fs.statfs().map_err(failed("its size"))?.blocks_free;
        let held = live.reservations.growing + live.reservations.preallocated;
        if stats.zones_unread > 0 || live.blocks.used > 0 || held > 0 || free + SLACK < self.empty {
            return Err(format!(
                "all is deleted, and {} blocks are used, {held} held, {free} free instead of {}; \
                 {} zones were not read",
                live.blocks.used, self.empty, stats.zones_unread
            ));
        }
        Ok(())
    }
}
