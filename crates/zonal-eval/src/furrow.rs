//! Furrow on a simulated ZNS SSD.

use std::collections::BTreeMap;
use std::sync::Arc;

use zonal::{Clock, ManualClock};
use zonal_fs::furrow::{self, DataCheck, Furrow, MkfsOptions, MountOptions};
use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};
use zonal_sim::files::{FileOp, FileStore};
use zonal_sim::ssd::Account;
use zonal_sim::{Config, SimSsd};

use crate::content::{BLOCK, Content};
use crate::{During, EvalError, Result, mismatch};

/// Bytes of a request, as FUSE has it.
const REQUEST: usize = 1 << 20;

/// Front ends tick once a second.
const TICK_NS: u64 = 1_000_000_000;

/// A mounted Furrow, and the content of its files.
pub(super) struct FurrowStore {
    fs: Furrow,
    drive: Arc<SimSsd>,
    clock: Arc<ManualClock>,
    content: Content,
    inodes: BTreeMap<u32, Ino>,
    ticked_ns: u64,
    /// Bytes that making the file system wrote.
    made_bytes: u64,
}

impl FurrowStore {
    /// A new file system on a new drive.
    pub(super) fn new(config: &Config) -> Result<Self> {
        let drive = Arc::new(SimSsd::new(config)?);
        let clock = drive.clock();
        furrow::mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())
            .during("making a Furrow")?;
        let made_bytes = drive.account().host_bytes;
        let fs = Furrow::mount(drive.clone(), clock.clone(), MountOptions::default())
            .during("mounting the Furrow")?;
        let (content, inodes) = (Content::default(), BTreeMap::new());
        Ok(Self { fs, drive, clock, content, inodes, ticked_ns: 0, made_bytes })
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let starts = (offset..).step_by(REQUEST);
        for (at, part) in starts.zip(data.chunks(REQUEST)) {
            self.fs.write(ino, at, part, WriteFlags::DIRECT).during("writing a file")?;
        }
        Ok(())
    }

    /// Compares the byte counts of file system and drive, reads every file, unmounts, and checks
    /// the drive.
    pub(super) fn verify(self) -> Result<()> {
        let (stats, drive) = (self.fs.stats(), self.drive.account().host_bytes - self.made_bytes);
        let wrote = stats.user_bytes + stats.reclaim_bytes + stats.meta_bytes;
        if wrote != drive {
            return Err(mismatch(format!(
                "the file system counts {wrote} bytes, its drive {drive}"
            )));
        }
        for (file, blocks) in self.content.files() {
            let mut data = vec![0; blocks * BLOCK];
            let read = self.fs.read(self.inodes[&file], 0, &mut data);
            self.content.compare(file, &data[..read.during("reading a file again")?])?;
        }
        self.fs.shutdown().during("unmounting")?;
        let report = furrow::check(self.drive, DataCheck::Read, &mut |_| ()).during("checking")?;
        if !report.is_clean() {
            return Err(mismatch(format!("the check finds {:?}", report.problems.first())));
        }
        Ok(())
    }
}

impl FileStore for FurrowStore {
    type Error = EvalError;

    fn apply(&mut self, op: &FileOp) -> Result<()> {
        let data = self.content.bytes_of(op);
        match *op {
            FileOp::Create { file, .. } => {
                let new = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
                let name = file.to_string();
                let made = self.fs.create(&Caller::ROOT, Ino::ROOT, name.as_bytes(), &new);
                let made = made.during("creating a file")?;
                self.inodes.insert(file, made.ino);
                self.write(made.ino, 0, &data)?;
            }
            FileOp::Overwrite { file, offset, .. } => {
                self.write(self.inodes[&file], offset, &data)?;
            }
            FileOp::Delete { file } => {
                self.inodes.remove(&file);
                let removed = self.fs.unlink(Ino::ROOT, file.to_string().as_bytes());
                removed.during("removing a file")?;
            }
            FileOp::Sync => self.fs.sync().during("syncing")?,
        }
        let now = self.clock.monotonic_ns();
        if now - self.ticked_ns >= TICK_NS {
            self.ticked_ns = now;
            self.fs.tick().during("the second's tick")?;
        }
        Ok(())
    }

    fn account(&self) -> Account {
        self.drive.account()
    }
}
