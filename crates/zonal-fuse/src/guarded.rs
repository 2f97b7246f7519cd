//! Catches panics of a file system, so that a bug of ours does not end the mount for all its users.
//!
//! The call that panics fails with `EIO`. From then on the file system is read-only, and nothing is
//! written to the device: it keeps the state of the last commit, as after a power cut. Changes fail
//! with `EROFS`; a sync fails with `EIO`, since earlier writes are not durable. Reads continue,
//! unless the panic interrupted a change of the state in memory: then they fail with `EIO` too,
//! without a call of the file system.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use zonal_fs::FsError;
use zonal_fs::vfs::{
    Access, Allocate, Attr, Caller, DirEntry, FileExtent, FileModel, FileSystem, Ino, Listing,
    NewInode, OpenFor, ReadFlags, Remains, RenameFlags, Result, Seek, SetAttr, StatFs, SyncKind,
    Wake, WriteFlags, Written, XattrMode,
};
use zonal_fuse_transport::panics::caught;

use crate::control::Control;
use crate::read_only::RemountTrigger;

/// A file system whose panics make it read-only.
pub(crate) struct Guarded {
    below: Arc<dyn FileSystem>,
    /// Shows the message of the first panic.
    control: Option<Arc<Control>>,
    /// The message of the first panic.
    panicked: OnceLock<String>,
    /// Whether the state in memory may be inconsistent.
    is_torn: AtomicBool,
    /// Fires once the file system is read-only.
    pub(crate) became_read_only: RemountTrigger,
}

impl Guarded {
    /// Guards `below`. The first panic fires `became_read_only`, and `control` shows its message.
    pub(crate) fn new(below: Arc<dyn FileSystem>, control: Option<Arc<Control>>) -> Self {
        let (panicked, is_torn) = (OnceLock::new(), AtomicBool::new(false));
        Self { below, control, panicked, is_torn, became_read_only: RemountTrigger::default() }
    }

    /// Fires `became_read_only` if the file system has become read-only.
    pub(crate) fn watch_access(&self) {
        if self.access() == Access::ReadOnly {
            self.became_read_only.fire();
        }
    }

    /// Handles a panic; logs the first one.
    pub(crate) fn note(&self, message: &str) {
        let is_first = self.panicked.set(message.to_owned()).is_ok();
        if let Some(control) = &self.control {
            control.set_panicked(message);
        }
        let remains = caught(|| self.below.give_up(message)).unwrap_or(Remains::Nothing);
        let is_torn = remains == Remains::Nothing;
        let was_torn = self.is_torn.fetch_or(is_torn, Ordering::SeqCst);
        if is_first {
            tracing::error!(
                "the file system is read-only from now on, because it panicked: {message}. What was \
                 not synced is lost. Unmount it and mount it again; `zonal check` tells whether all \
                 is well"
            );
            self.became_read_only.fire();
        }
        if is_torn && !was_torn {
            tracing::error!("reads fail as well: a change of what is in memory was under way");
        }
    }

    fn error(&self) -> Option<FsError> {
        let message = self.panicked.get()?.clone();
        Some(FsError::Panicked { message })
    }

    fn call<T>(&self, call: impl FnOnce(&dyn FileSystem) -> Result<T>) -> Result<T> {
        caught(|| call(&*self.below)).unwrap_or_else(|message| {
            self.note(&message);
            Err(FsError::Panicked { message })
        })
    }

    /// Runs a call that changes nothing.
    fn look<T>(&self, call: impl FnOnce(&dyn FileSystem) -> Result<T>) -> Result<T> {
        match self.error() {
            Some(error) if self.is_torn.load(Ordering::SeqCst) => Err(error),
            Some(_) | None => self.call(call),
        }
    }

    /// Runs a call that changes something.
    fn change<T>(&self, call: impl FnOnce(&dyn FileSystem) -> Result<T>) -> Result<T> {
        if self.panicked.get().is_some() { Err(FsError::ReadOnly) } else { self.call(call) }
    }

    /// Runs a call that makes something durable. It fails if another thread has panicked meanwhile.
    fn make_durable(&self, call: impl FnOnce(&dyn FileSystem) -> Result<()>) -> Result<()> {
        match self.error() {
            Some(error) => Err(error),
            None => self.call(call).and_then(|()| self.error().map_or(Ok(()), Err)),
        }
    }

    /// Runs a call that counts users of an inode. After a panic nothing is deleted or written, so
    /// no count matters.
    fn count<T: Default>(&self, call: impl FnOnce(&dyn FileSystem) -> Result<T>) -> Result<T> {
        if self.panicked.get().is_some() { Ok(T::default()) } else { self.call(call) }
    }
}

/// Methods that call the method of the same name below, grouped by the policy that runs the call.
macro_rules! calls {
    ($($policy:ident { $(
        fn $name:ident($($argument:ident: $kind:ty),*) -> $out:ty;
    )+})+) => {$($(
        fn $name(&self, $($argument: $kind),*) -> Result<$out> {
            self.$policy(|fs| fs.$name($($argument),*))
        }
    )+)+};
}

impl FileSystem for Guarded {
    fn model(&self, ino: Ino) -> FileModel {
        self.below.model(ino)
    }

    fn root(&self) -> Ino {
        self.below.root()
    }

    fn access(&self) -> Access {
        if self.panicked.get().is_some() { Access::ReadOnly } else { self.below.access() }
    }

    fn open(&self, ino: Ino, purpose: OpenFor) -> Result<()> {
        match purpose {
            OpenFor::Reading => self.count(|fs| fs.open(ino, purpose)),
            OpenFor::Writing => self.change(|fs| fs.open(ino, purpose)),
        }
    }

    fn close(&self, ino: Ino, purpose: OpenFor) {
        // It has no error.
        let _ = self.count(|fs| {
            fs.close(ino, purpose);
            Ok(())
        });
    }

    calls! {
        look {
            fn lookup(parent: Ino, name: &[u8]) -> Attr;
            fn getattr(ino: Ino) -> Attr;
            fn readlink(ino: Ino) -> Vec<u8>;
            fn read_with(ino: Ino, offset: u64, buffer: &mut [u8], flags: ReadFlags) -> usize;
            fn readdir_with(
                ino: Ino, cookie: u64, flags: ReadFlags,
                each: &mut dyn FnMut(DirEntry<'_>) -> Listing
            ) -> ();
            fn seek(ino: Ino, what: Seek, offset: u64) -> u64;
            fn extents(
                start: (Ino, u64), end: Ino, each: &mut dyn FnMut(FileExtent) -> Listing
            ) -> ();
            fn statfs() -> StatFs;
            fn getxattr(ino: Ino, name: &[u8]) -> Vec<u8>;
            fn listxattr(ino: Ino) -> Vec<Vec<u8>>;
        }
        change {
            fn setattr(caller: &Caller, ino: Ino, set: &SetAttr) -> Attr;
            fn create(caller: &Caller, parent: Ino, name: &[u8], new: &NewInode<'_>) -> Attr;
            fn create_unnamed(caller: &Caller, parent: Ino, new: &NewInode<'_>) -> Attr;
            fn unlink(parent: Ino, name: &[u8]) -> ();
            fn rmdir(parent: Ino, name: &[u8]) -> ();
            fn rename(source: (Ino, &[u8]), target: (Ino, &[u8]), flags: RenameFlags) -> ();
            fn link(ino: Ino, parent: Ino, name: &[u8]) -> Attr;
            fn write(ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Written;
            fn fallocate(ino: Ino, how: Allocate, offset: u64, len: u64) -> ();
            fn copy_range(
                source: (Ino, u64), target: (Ino, u64), len: u64, flags: WriteFlags
            ) -> u64;
            fn setxattr(
                caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode
            ) -> ();
            fn removexattr(ino: Ino, name: &[u8]) -> ();
        }
        count {
            fn pin(ino: Ino) -> ();
            fn note_read(ino: Ino) -> bool;
        }
        make_durable {
            fn fsync(ino: Ino, kind: SyncKind) -> ();
            fn sync() -> ();
            fn shutdown() -> ();
        }
    }

    fn path(&self, ino: Ino) -> Option<String> {
        self.look(|fs| Ok(fs.path(ino))).ok().flatten()
    }

    fn unpin(&self, ino: Ino) {
        // It has no error.
        let _ = self.count(|fs| {
            fs.unpin(ino);
            Ok(())
        });
    }

    fn tick(&self) -> Result<()> {
        if self.is_torn.load(Ordering::SeqCst) { Ok(()) } else { self.call(|fs| fs.tick()) }
    }

    fn on_work(&self, wake: Wake) {
        self.below.on_work(wake);
    }
}

#[cfg(test)]
mod tests {
    use zonal::{
        Clock, DeviceError, Lba, ManualClock, MemoryDrive, ZoneId, ZonedDevice, profile::Changes,
    };
    use zonal_fs::furrow::{self, Furrow, MkfsOptions, MountOptions};
    use zonal_fs::vfs::FileKind;

    use super::*;

    /// A drive and a clock that panic when they are told to.
    struct Panicky {
        below: MemoryDrive,
        clock: ManualClock,
        reads: AtomicBool,
        writes: AtomicBool,
        looks: AtomicBool,
        /// How many panics there were.
        count: std::sync::atomic::AtomicU32,
    }

    impl Panicky {
        fn new() -> Arc<Self> {
            let shape: Changes = "zone=4M,zones=64,open=14,active=14".parse().unwrap();
            let below = MemoryDrive::new(shape.geometry().unwrap()).unwrap();
            let [reads, writes, looks] = [(); 3].map(|()| AtomicBool::new(false));
            let (clock, count) = (ManualClock::new(1), 0.into());
            Arc::new(Self { below, clock, reads, writes, looks, count })
        }

        fn pass(&self, panics: &AtomicBool, what: &str) {
            if panics.load(Ordering::SeqCst) {
                self.count.fetch_add(1, Ordering::SeqCst);
                panic!("the {what} panics");
            }
        }
    }

    impl ZonedDevice for Panicky {
        zonal::pass_on!(below: geometry, report, manage, flush);

        fn read(&self, lba: Lba, buffer: &mut [u8]) -> std::result::Result<(), DeviceError> {
            self.pass(&self.reads, "read");
            self.below.read(lba, buffer)
        }

        fn write(&self, lba: Lba, data: &[u8]) -> std::result::Result<(), DeviceError> {
            self.pass(&self.writes, "write");
            self.below.write(lba, data)
        }

        fn append(&self, zone: ZoneId, data: &[u8]) -> std::result::Result<Lba, DeviceError> {
            self.pass(&self.writes, "write");
            self.below.append(zone, data)
        }
    }

    impl Clock for Panicky {
        fn monotonic_ns(&self) -> u64 {
            self.clock.monotonic_ns()
        }

        fn wall_ns(&self) -> i64 {
            self.pass(&self.looks, "clock");
            self.clock.wall_ns()
        }
    }

    const NEW: NewInode<'_> =
        NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };

    fn mount(device: &Arc<Panicky>) -> Guarded {
        let (drive, clock) = (Arc::clone(device), Arc::clone(device) as _);
        let fs = Furrow::mount(drive, clock, MountOptions::default()).unwrap();
        Guarded::new(Arc::new(fs), None)
    }

    /// With a file that is synced, and one that is not.
    fn begun() -> (Arc<Panicky>, Guarded, [Ino; 2]) {
        let device = Panicky::new();
        let options = MkfsOptions::default();
        furrow::mkfs(Arc::clone(&device), &*device, &options, &mut |_| ()).unwrap();
        let fs = mount(&device);
        let inodes = [b"synced", b"recent"].map(|name| {
            let ino = fs.create(&Caller::ROOT, Ino::ROOT, name, &NEW).unwrap().ino;
            fs.write(ino, 0, name, WriteFlags::empty()).unwrap();
            if name == b"synced" {
                fs.sync().unwrap();
            }
            ino
        });
        (device, fs, inodes)
    }

    fn content(fs: &Guarded, ino: Ino) -> Result<Vec<u8>> {
        let mut buffer = vec![0; 4096];
        let len = fs.read(ino, 0, &mut buffer)?;
        buffer.truncate(len);
        Ok(buffer)
    }

    fn is_panicked<T>(result: Result<T>, message: &str) -> bool {
        matches!(result, Err(FsError::Panicked { message: said }) if said == message)
    }

    /// Checks that a file system after a panic writes nothing more.
    fn writes_nothing(fs: &Guarded, message: &str) {
        let made = fs.create(&Caller::ROOT, Ino::ROOT, b"more", &NEW);
        assert!(matches!(made, Err(FsError::ReadOnly)), "{made:?}");
        assert!(is_panicked(fs.sync(), message));
        assert!(is_panicked(fs.fsync(Ino::ROOT, SyncKind::Full), message));
        assert_eq!(fs.access(), Access::ReadOnly);
        fs.tick().unwrap();
        assert!(is_panicked(fs.shutdown(), message));
    }

    #[test]
    fn sync_that_panics_fails_for_good_but_reads_work() {
        let (device, fs, [synced, recent]) = begun();
        device.writes.store(true, Ordering::SeqCst);
        assert!(is_panicked(fs.sync(), "the write panics"));
        writes_nothing(&fs, "the write panics");
        assert_eq!(content(&fs, synced).unwrap(), b"synced");
        assert_eq!(content(&fs, recent).unwrap(), b"recent");
        assert_eq!(device.count.load(Ordering::SeqCst), 1, "it does not come to writes any more");
        drop(fs);
        device.writes.store(false, Ordering::SeqCst);
        let fs = mount(&device);
        let ino = fs.lookup(Ino::ROOT, b"synced").unwrap().ino;
        assert_eq!(content(&fs, ino).unwrap(), b"synced");
        fs.create(&Caller::ROOT, Ino::ROOT, b"more", &NEW).unwrap();
        fs.shutdown().unwrap();
    }

    #[test]
    fn read_that_panics_fails_but_later_one_works() {
        let (device, fs, _) = begun();
        fs.shutdown().unwrap();
        let fs = mount(&device);
        let synced = fs.lookup(Ino::ROOT, b"synced").unwrap().ino;
        device.reads.store(true, Ordering::SeqCst);
        assert!(is_panicked(content(&fs, synced), "the read panics"));
        device.reads.store(false, Ordering::SeqCst);
        assert_eq!(content(&fs, synced).unwrap(), b"synced");
        writes_nothing(&fs, "the read panics");
    }

    #[test]
    fn change_that_panics_midway_stops_all_access() {
        let (device, fs, [synced, _]) = begun();
        device.looks.store(true, Ordering::SeqCst);
        let made = fs.create(&Caller::ROOT, Ino::ROOT, b"third", &NEW);
        assert!(is_panicked(made, "the clock panics"));
        assert!(is_panicked(content(&fs, synced), "the clock panics"));
        assert!(is_panicked(fs.lookup(Ino::ROOT, b"synced"), "the clock panics"));
        assert!(is_panicked(fs.statfs(), "the clock panics"));
        writes_nothing(&fs, "the clock panics");
        assert_eq!(device.count.load(Ordering::SeqCst), 1);
    }
}
