//! A zoned NVMe namespace by passthrough: `/dev/ng0n1`.
//!
//! The kernel passes NVMe commands on without interpreting them, so this also works for namespaces
//! that have no block device because their zone size is not a power of two. The kernel does not
//! order passthrough writes, so a lock serialises the writers of one zone; appends run side by
//! side.
//!
//! - `shape.rs`: decodes the drive's own report of its geometry, limits and zones.
//! - `command.rs`: commands; `channel.rs`: the two paths to the kernel, `ioctl.rs` and `ring.rs`.
//! - `batch.rs`: several requests at once.
//! - `raw.rs`: commands without Zonal's checks.
//! - `failure.rs`: turns statuses into errors.

mod batch;
mod channel;
mod command;
mod failure;
mod ioctl;
pub(crate) mod raw;
mod ring;
mod shape;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use rustix::io::Errno;
use zonal::nvme::command::{Opcode, SubmissionEntry};
use zonal::nvme::decode::{
    BlockRange, Durability, Identify, ReportCount, ReportForm, SendTarget, ZoneReceive, ZoneSend,
    ZoneSendAction,
};
use zonal::nvme::identify::cns;
use zonal::nvme::{Nsid, command_set, identify};
use zonal::{
    Claim, DeviceError, Geometry, Identity, Io, Lba, LbaCount, OpenMode, Select, Zone, ZoneAction,
    ZoneCond, ZoneId, ZonedDevice,
};

use self::channel::Channel;
use self::command::{Command, Failure, Queue};
use self::shape::{Answers, Limits, WriteCache};
use crate::Result;
use crate::by_zone::{self, Access, WriteRange, refusal};
use crate::data::Data;
use crate::rounds::{Appends, in_rounds};
use crate::sysfs::Attributes;

pub use self::channel::SubmissionPath;

/// Zones of one report, if the kernel accepts as long a command.
const REPORT_ZONES: usize = 1024;

/// Most bytes of a command if the kernel does not report a limit: the default limit of a queue.
const KERNEL_BYTES: u64 = 124 * 1024;

/// An open namespace.
pub struct PassthroughDrive {
    file: File,
    /// The block device of the same namespace, if there is one: claimed, so that no program mounts
    /// it.
    _block: Option<Claim>,
    path: PathBuf,
    mode: OpenMode,
    nsid: Nsid,
    identity: Identity,
    geometry: Geometry,
    limits: Limits,
    channel: Channel,
    zones: Box<[ZoneState]>,
}

/// The write pointer of a zone, and the lock of its writers.
struct ZoneState {
    /// Blocks written.
    written: AtomicU64,
    /// Exclusive for a write or a change of condition, shared for appends.
    turn: RwLock<()>,
}

impl PassthroughDrive {
    /// Opens a namespace by its node. Unless `mode` is [`OpenMode::ReadOnly`], it must be neither
    /// mounted nor open in another Zonal process that is not read-only.
    pub fn open(path: &Path, mode: OpenMode, via: SubmissionPath) -> Result<Self> {
        let failed =
            |source| DeviceError::Io { what: format!("opening {}", path.display()), source };
        let writes = mode == OpenMode::ReadWrite;
        let file = File::options().read(true).write(writes).open(path).map_err(failed)?;
        let nsid = ioctl::namespace_id(&file).map_err(|errno| not_a_namespace(path, errno))?;
        let attributes = Attributes::of_namespace(file.metadata().map_err(failed)?.rdev());
        zonal::claim::lock(&file, path, mode)?;
        let node = attributes.as_ref().and_then(Attributes::node);
        let block = node.map(|node| Claim::take(&node, mode)).transpose()?.flatten();
        let answers = identify_all(&file, path, nsid)?;
        let kernel_bytes =
            attributes.as_ref().and_then(Attributes::transfer_bytes).unwrap_or(KERNEL_BYTES);
        let unsuitable = |what| DeviceError::Unsuitable { path: path.to_owned(), what };
        let (geometry, limits) = shape::decode(&answers, kernel_bytes).map_err(unsuitable)?;
        let channel = Channel::new(via).map_err(|error| no_io_uring(&error))?;
        let mut drive = Self {
            file,
            _block: block,
            path: path.to_owned(),
            mode,
            nsid,
            identity: shape::identity(&answers),
            geometry,
            limits,
            channel,
            zones: Box::new([]),
        };
        let zones = drive.first_report()?;
        drive.geometry = shape::with_capacity(&drive.geometry, &zones).map_err(unsuitable)?;
        let state = |zone: &Zone| ZoneState {
            written: AtomicU64::new(zone.written().map_or(0, LbaCount::get)),
            turn: RwLock::new(()),
        };
        drive.zones = zones.iter().map(state).collect();
        Ok(drive)
    }

    /// Reports every zone. The first one is a probe of `io_uring`, which does not pass NVMe
    /// commands on Linux 5.18 and older.
    fn first_report(&mut self) -> Result<Vec<Zone>> {
        let mut report = vec![0; shape::report_bytes(1)];
        let entry = self.receive(ZoneId::ZERO, report.len());
        let probe = &mut Command::new(entry, Data::Fill(&mut report));
        if let Err(Failure::Kernel(source)) = self.channel.probe(&self.file, probe) {
            tracing::debug!(%source, "io_uring does not pass NVMe commands; only the ioctl is used");
            if !self.channel.without_rings() {
                return Err(self.failed("reporting zones of", Failure::Kernel(source)));
            }
        }
        let mut zones = Vec::new();
        self.report_raw(ZoneId::ZERO, &mut zones, self.geometry.zone_count() as usize)?;
        Ok(zones)
    }

    fn receive(&self, first: ZoneId, bytes: usize) -> SubmissionEntry {
        let receive = ZoneReceive {
            first: self.geometry.zone_start(first),
            bytes,
            form: ReportForm::Plain,
            only: None,
            count: ReportCount::Reported,
        };
        receive.encode(self.nsid)
    }

    fn state(&self, zone: ZoneId) -> Result<&ZoneState> {
        self.zones.get(zone.index()).ok_or(DeviceError::NoSuchZone { zone })
    }

    /// Reports zones from `first` on, up to `limit`.
    fn report_raw(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let end = first.index().saturating_add(limit).min(self.geometry.zone_count() as usize);
        let most = self.geometry.bytes(self.limits.transfer).get();
        let most = usize::try_from(most).expect("at most what is in memory");
        let mut next = first.index();
        while next < end {
            let id = ZoneId::new(u32::try_from(next).expect("a zone"));
            let bytes = shape::report_bytes((end - next).min(REPORT_ZONES)).min(most);
            let mut report = vec![0; bytes];
            let entry = self.receive(id, report.len());
            let mut command = Command::new(entry, Data::Fill(report.as_mut_slice()));
            self.channel
                .run(&self.file, &mut command)
                .map_err(|failure| self.failed("reporting zones of", failure))?;
            let found =
                shape::zones(&report, &self.geometry, id).map_err(|what| self.wrong(what))?;
            next += found.len();
            zones.extend(found);
        }
        Ok(())
    }

    /// Reports one zone while no write or reset of it is running, whose result would be newer than
    /// the report.
    fn refresh_between_writes(&self, zone: ZoneId) -> Result<Zone> {
        let _turn = self.state(zone)?.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.refresh(zone)
    }

    /// Reports one zone, and stores its write pointer. The caller holds its lock.
    fn refresh(&self, zone: ZoneId) -> Result<Zone> {
        let state = self.state(zone)?;
        let found = self.zone(zone)?;
        state.written.store(found.written().map_or(0, LbaCount::get), Ordering::Release);
        Ok(found)
    }

    fn byte_len(&self, blocks: LbaCount) -> usize {
        usize::try_from(self.geometry.bytes(blocks).get()).expect("at most what is in memory")
    }

    /// A command for a range of blocks.
    fn blocks(&self, opcode: Opcode, first: Lba, bytes: usize) -> Result<SubmissionEntry> {
        let blocks = self.geometry.blocks(bytes)?;
        Ok(BlockRange { first, blocks, durability: Durability::Volatile }.encode(opcode, self.nsid))
    }

    /// Adds the commands for the blocks from `lba` on: reads side by side, writes in their order.
    fn add_commands<'a>(
        &self,
        commands: &mut Vec<Command<'a>>,
        lba: Lba,
        pieces: impl Iterator<Item = Data<'a>>,
        access: Access,
    ) -> Result<()> {
        let opcode = match access {
            Access::Read => Opcode::READ,
            Access::Write => Opcode::WRITE,
        };
        let (mut at, mut pieces) = (lba, pieces.peekable());
        while let Some(data) = pieces.next() {
            let entry = self.blocks(opcode, at, data.len())?;
            at += self.geometry.blocks(data.len())?;
            let command = Command::new(entry, data);
            let waits = matches!(access, Access::Write) && pieces.peek().is_some();
            commands.push(if waits { command.linked() } else { command });
        }
        Ok(())
    }

    /// Runs the commands for the blocks from `lba` on, which lie in `zone`.
    fn transfer<'a>(
        &self,
        zone: ZoneId,
        lba: Lba,
        pieces: impl Iterator<Item = Data<'a>>,
        access: Access,
    ) -> Result<()> {
        let mut commands = Vec::new();
        self.add_commands(&mut commands, lba, pieces, access)?;
        if let [command] = commands.as_mut_slice() {
            let done = self.channel.run(&self.file, command);
            return done.map(drop).map_err(|why| self.explain_command(zone, command, access, why));
        }
        let results = self.channel.run_all(&self.file, &mut commands);
        for (command, result) in commands.iter().zip(results) {
            result.map_err(|why| self.explain_command(zone, command, access, why))?;
        }
        Ok(())
    }

    fn explain_command(
        &self,
        zone: ZoneId,
        command: &Command<'_>,
        access: Access,
        failure: Failure,
    ) -> DeviceError {
        let entry = BlockRange::decode(command.entry());
        self.explain(zone, entry.first, entry.blocks, access, failure)
    }

    /// Reads a part of a zone: the written blocks, and zeroes beyond, where not every drive allows
    /// reads.
    fn read_in_zone(&self, zone: ZoneId, offset: LbaCount, target: &mut [u8]) -> Result<()> {
        let state = self.state(zone)?;
        let blocks = self.geometry.blocks(target.len())?;
        let mut stored = LbaCount::new(state.written.load(Ordering::Acquire));
        if offset + blocks > stored {
            // Another process may have written, and only a report tells that a zone is offline.
            let asked = self.refresh_between_writes(zone)?;
            if asked.cond == ZoneCond::Offline {
                return Err(DeviceError::ZoneOffline { zone });
            }
            // A read-only zone has no write pointer: the drive decides.
            stored = asked.written().unwrap_or(asked.capacity);
        }
        let len = self.byte_len(stored.saturating_sub(offset).min(blocks));
        let (head, tail) = target.split_at_mut(len);
        tail.fill(0);
        if head.is_empty() {
            return Ok(());
        }
        let most = self.byte_len(self.limits.transfer);
        let lba = self.geometry.zone_start(zone) + offset;
        self.transfer(zone, lba, head.chunks_mut(most).map(Data::Fill), Access::Read)
    }

    /// Notes where the drive says that an append went.
    fn appended(&self, zone: ZoneId, lba: Lba, blocks: LbaCount) -> Result<Lba> {
        let (start, end) = (self.geometry.zone_start(zone), lba.checked_add(blocks));
        if lba < start || end.is_none_or(|end| end > start + self.geometry.capacity_of(zone)) {
            return Err(self.wrong(format!("says that an append to zone {zone} went to {lba}")));
        }
        self.state(zone)?.written.fetch_max((lba - start + blocks).get(), Ordering::AcqRel);
        Ok(lba)
    }

    fn manage_one(&self, zone: ZoneId, action: ZoneAction) -> Result<()> {
        let state = self.state(zone)?;
        let _turn = state.turn.write().unwrap_or_else(PoisonError::into_inner);
        let zones = SendTarget::Start(self.geometry.zone_start(zone));
        let send = ZoneSend { action: ZoneSendAction::Manage(action), zones }.encode(self.nsid);
        let mut command = Command::new(send, Data::Nothing);
        if let Err(failure) = self.channel.run(&self.file, &mut command) {
            return Err(self.explain_action(zone, action, failure));
        }
        match action {
            ZoneAction::Reset => state.written.store(0, Ordering::Release),
            ZoneAction::Finish => {
                state.written.store(self.geometry.capacity_of(zone).get(), Ordering::Release);
            }
            ZoneAction::Open | ZoneAction::Close => {}
        }
        Ok(())
    }
}

impl ZonedDevice for PassthroughDrive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let before = zones.len();
        self.report_raw(first, zones, limit)?;
        let changed = |zone: &&Zone| zone.capacity != self.geometry.capacity_of(zone.id);
        match zones[before..].iter().find(changed) {
            Some(zone) => {
                let (id, capacity) = (zone.id, zone.capacity);
                Err(self.wrong(format!("zone {id} now has a capacity of {capacity} blocks")))
            }
            None => Ok(()),
        }
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        by_zone::read(&self.geometry, lba, buffer, |zone, offset, part| {
            self.read_in_zone(zone, offset, part)
        })
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.mode.check_writable()?;
        let Some(range) = WriteRange::of_write(&self.geometry, lba, data.len())? else {
            return Ok(());
        };
        let WriteRange { zone, offset, blocks } = range;
        let state = self.state(zone)?;
        let _turn = state.turn.write().unwrap_or_else(PoisonError::into_inner);
        if state.written.load(Ordering::Acquire) != offset.get()
            && let Some(error) = refusal(&self.refresh(zone)?, lba)
        {
            return Err(error);
        }
        let most = self.byte_len(self.limits.transfer);
        self.transfer(zone, lba, data.chunks(most).map(Data::Take), Access::Write)?;
        state.written.store((offset + blocks).get(), Ordering::Release);
        Ok(())
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.mode.check_writable()?;
        let state = self.state(zone)?;
        let blocks = by_zone::append_blocks(&self.geometry, data.len())?;
        let start = self.geometry.zone_start(zone);
        if blocks == LbaCount::ZERO {
            return Ok(start + LbaCount::new(state.written.load(Ordering::Acquire)));
        }
        let _turn = state.turn.read().unwrap_or_else(PoisonError::into_inner);
        let entry = self.blocks(Opcode::ZONE_APPEND, start, data.len())?;
        let mut command = Command::new(entry, Data::Take(data));
        let lba = self
            .channel
            .run(&self.file, &mut command)
            .map(Lba::new)
            .map_err(|failure| self.explain(zone, start, blocks, Access::Write, failure))?;
        self.appended(zone, lba, blocks)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.mode.check_writable()?;
        by_zone::manage(self, zones, action, |zone| self.manage_one(zone, action))
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn flush(&self) -> Result<()> {
        if self.limits.cache == WriteCache::None || self.mode != OpenMode::ReadWrite {
            return Ok(());
        }
        let entry = SubmissionEntry::new(Opcode::FLUSH, self.nsid);
        self.channel
            .run(&self.file, &mut Command::new(entry, Data::Nothing))
            .map(drop)
            .map_err(|failure| self.failed("flushing", failure))
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        in_rounds(self, Appends::Together, batch, |round| self.side_by_side(round));
    }
}

fn no_io_uring(error: &io::Error) -> DeviceError {
    let why = format!("{error}; the setting kernel.io_uring_disabled may be the reason");
    DeviceError::Io {
        what: "setting up io_uring".to_owned(),
        source: io::Error::new(io::ErrorKind::Unsupported, why),
    }
}

fn not_a_namespace(path: &Path, errno: Errno) -> DeviceError {
    let name = path.display();
    match errno {
        Errno::NOTTY | Errno::INVAL => DeviceError::Unsuitable {
            path: path.to_owned(),
            what: "is not an NVMe namespace, such as /dev/ng0n1".into(),
        },
        errno => DeviceError::Io { what: format!("identifying {name}"), source: errno.into() },
    }
}

/// Requests the Identify data structures that `shape.rs` decodes.
fn identify_all(file: &File, path: &Path, nsid: Nsid) -> Result<Answers> {
    let name = path.display();
    let ask = |what, command_set, nsid| {
        let mut answer = [0; identify::BYTES];
        let entry = Identify { what, command_set }.encode(nsid);
        let mut command = Command::new(entry, Data::Fill(&mut answer));
        ioctl::run(file, Queue::Admin, &mut command).map(|_| answer)
    };
    let fail = |failure| failure::plain(format!("identifying {name}"), failure);
    let zoned_namespace = match ask(cns::COMMAND_SET_NAMESPACE, command_set::ZNS, nsid) {
        Ok(answer) => answer,
        Err(Failure::Drive(_)) => {
            let (path, what) = (path.to_owned(), "has no zones".into());
            return Err(DeviceError::Unsuitable { path, what });
        }
        Err(failure) => return Err(fail(failure)),
    };
    Ok(Answers {
        namespace: ask(cns::NAMESPACE, command_set::NVM, nsid).map_err(fail)?,
        zoned_namespace,
        controller: ask(cns::CONTROLLER, command_set::NVM, Nsid::NONE).map_err(fail)?,
        zoned_controller: ask(cns::COMMAND_SET_CONTROLLER, command_set::ZNS, Nsid::NONE)
            .map_err(fail)?,
    })
}
