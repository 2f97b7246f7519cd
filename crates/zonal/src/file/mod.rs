//! A zoned drive in one plain, sparse file, in several (`file/pieces.rs`), or on a disk without
//! zones (`file/disk.rs`).
//!
//! - The file describes itself; nothing else is needed to open it.
//! - kill −9 of the process loses nothing that returned, at any moment. After a flush that failed,
//!   it loses as much as a power cut may: the host may have forgotten data that it could not write.
//! - After a power cut of the host each zone holds its written data at least up to the last
//!   [`flush`](ZonedDevice::flush), its pointer and condition true of that (D4); open zones come
//!   back Closed, as on a real drive.
//! - A drive has many readers or one writer, which keep each other out by a lock on the file. In
//!   addition, others may look on: they see the writer's pointers, and data that changes under
//!   them.
//! - A new file can be opened by its owner alone: a user who can open it can lock it, too.
//! - A reset gives the space back once it is durable.
//! - A reserve of the host's space lets a file system reset zones on a full host
//!   (`file/reserve.rs`).
//!
//! `docs/format/drive-file.md` has the bytes; `file/table.rs` says how the states are kept.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use zerocopy::FromBytes;

mod backing;
mod creation;
mod disk;
pub mod format;
mod pieces;
mod reserve;
mod table;

#[cfg(test)]
mod tests;

use self::backing::{Backing, HostFile};
pub use self::disk::{disk_len, zones_that_fit};
use self::format::{Description, HostLen, Layout, ZoneEntry};
use self::pieces::Pieces;
pub use self::pieces::is_in_pieces;
use self::reserve::Reserve;
use self::table::{BootId, Table};
use crate::claim::{self, Claim, OpenMode};
use crate::emulated::{BlockInZone, Emulated, Medium};
use crate::error::Result;
use crate::limits::Limits;
use crate::state::{Rules, ZoneState};
use crate::{
    ByteCount, DeviceError, FailZone, Geometry, GeometrySpec, Identity, Lba, LbaCount, Select,
    ZoneAction, ZoneFailure, ZoneId, ZonedDevice,
};

/// How to treat a file that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Leave it and fail.
    Refuse,
    /// Replace it, unless another process has it open as a drive.
    Replace,
}

/// The properties of a new drive file.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Its shape.
    pub geometry: GeometrySpec,
    /// The command set whose rules its zones follow.
    pub rules: Rules,
    /// Its identity.
    pub uuid: [u8; 16],
    /// How to treat a file that is already there.
    pub overwrite: Overwrite,
}

impl CreateOptions {
    fn description(&self) -> Result<Description> {
        let geometry = Geometry::new(self.geometry)?;
        let (rules, uuid, journal_len) = (self.rules, self.uuid, format::JOURNAL_LEN);
        Ok(Description { geometry, rules, uuid, journal_len })
    }
}

/// A zoned drive in a plain file.
///
/// ```
/// use zonal::OpenMode;
/// use zonal::file::{CreateOptions, FileDrive, Overwrite};
/// use zonal::{Profile, Rules, ZoneId, ZonedDevice};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("drive.zns");
/// FileDrive::create(&path, &CreateOptions {
///     geometry: Profile::Small.geometry(),
///     rules: Rules::Zns,
///     uuid: [1; 16],
///     overwrite: Overwrite::Refuse,
/// })?;
/// let drive = FileDrive::open(&path, OpenMode::ReadWrite)?;
/// drive.append(ZoneId::new(2), &[7; 4096])?;
/// drive.flush()?;
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub struct FileDrive {
    drive: Emulated<DriveFile>,
    mode: OpenMode,
    description: Description,
    /// The claim on a disk. It ends after the drive has.
    claim: Option<Claim>,
}

impl FileDrive {
    /// Makes a drive file: sparse, so at once, whatever its size. A failure leaves none. Where
    /// files of the host's file system end below the drive's length, it becomes a directory of
    /// files. The path of a block device makes the disk a drive.
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<()> {
        Self::create_with(path, options, &mut |_, _| {})
    }

    /// The same; on a disk some bytes have to be zeroed first, and `progress` gets the number of
    /// zeroed bytes, and of all.
    pub fn create_with(
        path: impl AsRef<Path>,
        options: &CreateOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let path = path.as_ref();
        let drive = options.description()?;
        if disk::is_disk(path) {
            return disk::create(path, options, &drive, progress);
        }
        creation::create(path, options.overwrite, None, &drive)
    }

    /// Makes a drive as a directory of files of `piece` bytes: whole MiB.
    pub fn create_in_pieces(
        path: impl AsRef<Path>,
        options: &CreateOptions,
        piece: ByteCount,
    ) -> Result<()> {
        creation::create(path.as_ref(), options.overwrite, Some(piece), &options.description()?)
    }

    /// Opens a drive file, or a disk that was made a drive.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self> {
        let path = path.as_ref();
        if disk::is_disk(path) {
            let claim = Claim::take(path, mode)?;
            let file = disk::open(path, mode)?;
            let boot = disk::boot_id(&file, boot_id());
            let mut drive = Self::open_on(Box::new(HostFile(file)), path, mode, boot)?;
            drive.claim = claim;
            return Ok(drive);
        }
        if path.is_dir() {
            return Self::open_on(Box::new(Pieces::open(path, mode)?), path, mode, boot_id());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(mode == OpenMode::ReadWrite)
            .open(path)
            .map_err(|source| io_error("opening", path, source))?;
        claim::lock(&file, path, mode)?;
        Self::open_on(Box::new(HostFile(file)), path, mode, boot_id())
    }

    fn open_on(
        backing: Box<dyn Backing>,
        path: &Path,
        mode: OpenMode,
        boot: BootId,
    ) -> Result<Self> {
        let fail = |source| io_error("opening", path, source);
        let malformed = |what| DeviceError::Malformed { path: path.to_owned(), what };
        let len = backing.len().map_err(fail)?;
        let host_len = if disk::is_disk(path) { HostLen::Disk(len) } else { HostLen::File(len) };
        let head_len = len.min(2 * format::PAGE);
        let mut head = vec![0; usize::try_from(head_len).expect("two pages fit in memory")];
        backing.read_at(0, &mut head).map_err(fail)?;
        let description = format::parse_header(&head, host_len).map_err(malformed)?;
        let recovered = table::recover(&*backing, &description, boot).map_err(fail)?;
        let recovered = recovered.map_err(malformed)?;
        let (states, live) = (recovered.states.clone(), recovered.live);
        let table = Table::new(&description, recovered);
        if mode == OpenMode::ReadWrite {
            // From here on the drive relies on data that the process before left in the page cache:
            // it has to be on the medium too, or a later power cut could take back a record that
            // was acted on.
            if let Err(error) = backing.sync() {
                // A second sync may succeed although the data is lost.
                table.forget_live(&*backing);
                return Err(fail(error));
            }
            if !live {
                table.renew(&*backing, boot).map_err(fail)?;
            }
        }
        let follow =
            if live && mode == OpenMode::ReadOnly { Follow::Writer } else { Follow::Nobody };
        let (geometry, rules) = (description.geometry, description.rules);
        let layout = Layout::new(&description);
        let reserve = Reserve::new(&geometry, &layout, host_len);
        let path = path.to_owned();
        let medium = DriveFile { backing, path, geometry, layout, table, follow, reserve };
        let parts = states.into_iter().map(|state| (state, ()));
        let drive = Emulated::new(geometry, rules, medium, parts);
        Ok(Self { drive, mode, description, claim: None })
    }

    /// Identity of the drive.
    pub fn uuid(&self) -> [u8; 16] {
        self.description.uuid
    }

    /// The command set whose rules its zones follow.
    pub fn rules(&self) -> Rules {
        self.description.rules
    }

    /// Makes a zone fail, as drives do on their own. There is no way back.
    pub fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        self.mode.check_writable()?;
        self.drive.fail(zone, failure.event())
    }
}

impl FailZone for FileDrive {
    fn fail_zone(&self, zone: ZoneId, failure: ZoneFailure) -> Result<()> {
        self.fail_zone(zone, failure)
    }
}

impl ZonedDevice for FileDrive {
    crate::pass_on!(drive: geometry, report, read, rotates);

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.mode.check_writable()?;
        self.drive.write(lba, data)
    }
    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.mode.check_writable()?;
        self.drive.append(zone, data)
    }
    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.mode.check_writable()?;
        self.drive.manage(zones, action)
    }
    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.mode.check_writable()?;
        self.drive.deallocate(lba, blocks)
    }
    fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }
    fn identity(&self) -> Identity {
        Identity { model: Some("drive file".into()), ..Identity::of_uuid(self.uuid()) }
    }
    fn flush(&self) -> Result<()> {
        match self.mode {
            OpenMode::ReadWrite => self.drive.flush(),
            OpenMode::ReadOnly | OpenMode::ReadLocked => Ok(()),
        }
    }
    fn keep_reserve(&self) -> Result<()> {
        self.mode.check_writable()?;
        let DriveFile { reserve, backing, path, .. } = self.drive.medium();
        reserve.keep(&**backing).map_err(|source| io_error("keeping a reserve for", path, source))
    }
    fn use_reserve(&self) -> Result<()> {
        self.mode.check_writable()?;
        let DriveFile { reserve, backing, path, .. } = self.drive.medium();
        reserve.give_up(&**backing).map_err(|source| io_error("using the reserve of", path, source))
    }
}

/// Leaves the durable table complete, so that the states survive an ordinary reboot too.
impl Drop for FileDrive {
    fn drop(&mut self) {
        // No caller is left to get an error; without the flush, the drive is as after a kill.
        let _ = self.flush();
    }
}

/// Where changes of zone states can come from while the drive is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// Only this process changes them.
    Nobody,
    /// Another process may have the drive open for writing: its live table is read.
    Writer,
}

/// The file as a medium.
struct DriveFile {
    backing: Box<dyn Backing>,
    path: PathBuf,
    geometry: Geometry,
    layout: Layout,
    table: Table,
    follow: Follow,
    reserve: Reserve,
}

impl DriveFile {
    fn byte_at(&self, at: BlockInZone) -> u64 {
        let block = self.geometry.zone_start(at.zone) + at.offset - Lba::ZERO;
        self.layout.data_at + self.geometry.bytes(block).get()
    }

    /// The first write after a reset begins at the zone's start, or skips blocks from there on.
    fn discard_stale(&self, zone: ZoneId) -> Result<()> {
        self.table
            .discard_stale(&*self.backing, zone)
            .map_err(|source| self.fail("recording the reset of", zone, source))
    }

    #[cold]
    fn fail(&self, what: &str, zone: ZoneId, source: io::Error) -> DeviceError {
        io_error(&format!("{what} zone {zone} of"), &self.path, source)
    }

    #[cold]
    fn fail_flush(&self, source: io::Error) -> DeviceError {
        io_error("flushing", &self.path, source)
    }
}

impl Medium for DriveFile {
    type ZoneData = ();

    fn read(&self, (): &(), at: BlockInZone, buffer: &mut [u8]) -> Result<()> {
        self.backing
            .read_at(self.byte_at(at), buffer)
            .map_err(|source| self.fail("reading", at.zone, source))
    }

    fn write(&self, (): &mut (), at: BlockInZone, data: &[u8]) -> Result<()> {
        if at.offset == LbaCount::ZERO {
            self.discard_stale(at.zone)?;
        }
        self.backing
            .write_at(self.byte_at(at), data)
            .map_err(|source| self.fail("writing", at.zone, source))?;
        self.table.mark_data();
        Ok(())
    }

    /// Zeroes the blocks, since the file may hold data from before a reset or a power cut.
    fn skip(&self, (): &mut (), at: BlockInZone, blocks: LbaCount) -> Result<()> {
        self.discard_stale(at.zone)?;
        self.backing
            .zero(self.byte_at(at), self.geometry.bytes(blocks).get())
            .map_err(|source| self.fail("zeroing blocks of", at.zone, source))?;
        self.table.mark_data();
        Ok(())
    }

    fn deallocate(&self, (): &mut (), at: BlockInZone, blocks: LbaCount) -> Result<()> {
        self.backing
            .punch(self.byte_at(at), self.geometry.bytes(blocks).get())
            .map_err(|source| self.fail("deallocating blocks of", at.zone, source))?;
        self.table.mark_data();
        Ok(())
    }

    fn record(&self, zone: ZoneId, from: ZoneState, to: ZoneState) -> Result<()> {
        self.table
            .record(&*self.backing, zone, from, to)
            .map_err(|source| self.fail("recording the state of", zone, source))
    }

    fn erase(&self, (): &mut (), zone: ZoneId) -> Result<()> {
        self.table.mark_emptied(zone);
        Ok(())
    }

    fn flush(&self, conditions: &Mutex<Limits>) -> Result<()> {
        self.table.flush(&*self.backing, conditions).map_err(|source| self.fail_flush(source))
    }

    fn take_emptied(&self) -> Vec<ZoneId> {
        self.table.take_emptied()
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        if !self.table.promises_nothing(zone) {
            self.table.mark_emptied(zone);
            return Ok(());
        }
        let at = self.byte_at(BlockInZone { zone, offset: LbaCount::ZERO });
        let len = self.geometry.bytes(self.geometry.size_of(zone)).get();
        self.backing.punch(at, len).map_err(|source| {
            // The next flush tries again.
            self.table.mark_emptied(zone);
            self.fail("emptying", zone, source)
        })
    }

    fn refresh(&self, zone: ZoneId, cached: ZoneState) -> Result<ZoneState> {
        if self.follow == Follow::Nobody {
            return Ok(cached);
        }
        let mut bytes = [0; size_of::<ZoneEntry>()];
        self.backing
            .read_at(self.layout.live_entry_at(zone), &mut bytes)
            .map_err(|source| self.fail("reading the state of", zone, source))?;
        let entry = ZoneEntry::ref_from_bytes(&bytes).expect("an entry has no alignment");
        Ok(format::decode_entry(&self.geometry, zone, entry).unwrap_or(cached))
    }
}

fn io_error(what: &str, path: &Path, source: io::Error) -> DeviceError {
    let what = format!("{what} {}", path.display());
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DeviceError::NoSpace { what },
        _ => DeviceError::Io { what, source },
    }
}

/// Identity of this run of the kernel: sixteen bytes as thirty-two hexadecimal digits and dashes.
fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.trim().chars().filter(|&digit| digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| zerocopy::big_endian::U128::new(number).to_bytes())
}
