//! A namespace of a server as a device, to run the contract of all devices on it.

use std::collections::BTreeSet;
use std::sync::Mutex;

use zerocopy::FromBytes;
use zonal::error::Result;
use zonal::nvme::decode::{
    BlockRange, Durability, Identify, ReportCount, ReportForm, SendTarget, ZoneReceive, ZoneSend,
    ZoneSendAction,
};
use zonal::nvme::identify::{
    BYTES, IdentifyNamespace, IdentifyZonedController, IdentifyZonedNamespace, cns, decode_limit,
};
use zonal::nvme::zone::{ReportHeader, ZoneDescriptor};
use zonal::nvme::{Nsid, NvmeStatus, Opcode, SubmissionEntry, command_set, status};
use zonal::{
    BlockSize, DeviceError, Geometry, GeometrySpec, Io, Lba, LbaCount, Op, Select, Zone,
    ZoneAction, ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

use crate::initiator::{Host, Move, Queue};

pub struct Remote {
    /// Keeps the controller.
    _host: Mutex<Host>,
    queue: Mutex<Queue>,
    nsid: Nsid,
    geometry: Geometry,
}

pub fn identify(host: &mut Host, nsid: Nsid, what: u8, command_set: u8) -> Vec<u8> {
    let entry = Identify { what, command_set }.encode(nsid);
    host.admin.command(entry, &Move::Receive(BYTES)).unwrap().1
}

impl Remote {
    pub fn new(mut host: Host, nsid: Nsid) -> Self {
        let zoned = command_set::ZNS;
        let plain = identify(&mut host, nsid, cns::NAMESPACE, 0);
        let plain = IdentifyNamespace::read_from_bytes(&plain).unwrap();
        let of_zones = identify(&mut host, nsid, cns::COMMAND_SET_NAMESPACE, zoned);
        let of_zones = IdentifyZonedNamespace::read_from_bytes(&of_zones).unwrap();
        let limits = identify(&mut host, Nsid::NONE, cns::COMMAND_SET_CONTROLLER, zoned);
        let limits = IdentifyZonedController::read_from_bytes(&limits).unwrap();
        let mut queue = host.queue(1).unwrap();
        let shift = plain.block_formats[0].block_shift;
        let append_shift = if limits.append_max == 0 { 8 } else { limits.append_max };
        let zone_size = LbaCount::new(of_zones.zone_formats[0].zone_size.get());
        let first = report(&mut queue, nsid, (Lba::ZERO, zone_size), 1).unwrap();
        let geometry = Geometry::new(GeometrySpec {
            block_size: BlockSize::from_bytes(1 << shift).unwrap(),
            block_count: LbaCount::new(plain.size.get()),
            zone_size,
            zone_capacity: first[0].capacity,
            conventional_zones: ZoneRuns::NONE,
            sequential_kind: ZoneKind::SequentialRequired,
            max_open: decode_limit(of_zones.open_max),
            max_active: decode_limit(of_zones.active_max),
            max_append: LbaCount::new((4096 << append_shift) >> shift),
        });
        let geometry = geometry.unwrap();
        Self { _host: Mutex::new(host), queue: Mutex::new(queue), nsid, geometry }
    }

    fn command(&self, entry: SubmissionEntry, data: &Move<'_>) -> crate::initiator::Answer {
        self.queue.lock().unwrap().command(entry, data)
    }

    fn range(&self, opcode: Opcode, first: Lba, blocks: LbaCount) -> SubmissionEntry {
        BlockRange { first, blocks, durability: Durability::Volatile }.encode(opcode, self.nsid)
    }

    /// The error of the device that the server has answered by this status.
    fn explain(&self, status: NvmeStatus, first: Lba, blocks: LbaCount) -> DeviceError {
        if status == status::LBA_OUT_OF_RANGE {
            return DeviceError::OutOfRange { lba: first, blocks };
        }
        let zone = self.geometry.locate(first).0;
        match status {
            status::ZONE_BOUNDARY => DeviceError::CrossesZone { zone, lba: first, blocks },
            status::ZONE_FULL => DeviceError::ZoneFull { zone },
            status::ZONE_READ_ONLY => DeviceError::ZoneReadOnly { zone },
            status::ZONE_OFFLINE => DeviceError::ZoneOffline { zone },
            status::ZONE_INVALID_WRITE => {
                let wp = self.zone(zone).unwrap().wp.unwrap();
                DeviceError::NotAtWritePointer { zone, wp, lba: first }
            }
            status::TOO_MANY_ACTIVE => {
                DeviceError::TooManyActive { zone, limit: self.geometry.max_active().unwrap() }
            }
            status::TOO_MANY_OPEN => {
                DeviceError::TooManyOpen { zone, limit: self.geometry.max_open().unwrap() }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn report(
    queue: &mut Queue,
    nsid: Nsid,
    (first, size): (Lba, LbaCount),
    limit: usize,
) -> std::result::Result<Vec<Zone>, NvmeStatus> {
    let (form, count) = (ReportForm::Plain, ReportCount::Reported);
    let bytes = 64 + 64 * limit;
    let entry = ZoneReceive { first, bytes, form, only: None, count }.encode(nsid);
    let (_, answer) = queue.command(entry, &Move::Receive(bytes))?;
    let (header, rest) = ReportHeader::read_from_prefix(&answer).unwrap();
    let zones = rest.chunks_exact(64).take(usize::try_from(header.zone_count.get()).unwrap());
    Ok((first.get() / size.get()..)
        .zip(zones)
        .map(|(number, bytes)| {
            let id = ZoneId::new(u32::try_from(number).unwrap());
            ZoneDescriptor::read_from_bytes(bytes).unwrap().decode(id, size).unwrap()
        })
        .collect())
}

impl ZonedDevice for Remote {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let there = self.geometry.zone_count().saturating_sub(first.get()) as usize;
        let limit = limit.min(there);
        if limit == 0 {
            return Ok(());
        }
        let first = (self.geometry.zone_start(first), self.geometry.zone_size());
        let found = report(&mut self.queue.lock().unwrap(), self.nsid, first, limit);
        zones.extend(found.expect("a zone of the namespace"));
        Ok(())
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let blocks = self.geometry.blocks(buffer.len())?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let entry = self.range(Opcode::READ, lba, blocks);
        let (_, data) = self
            .command(entry, &Move::Receive(buffer.len()))
            .map_err(|status| self.explain(status, lba, blocks))?;
        buffer.copy_from_slice(&data);
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let blocks = self.geometry.blocks(data.len())?;
        if blocks == LbaCount::ZERO {
            return Ok(());
        }
        let entry = self.range(Opcode::WRITE, lba, blocks);
        let written = self.command(entry, &Move::Send(data));
        written.map(drop).map_err(|status| self.explain(status, lba, blocks))
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let (blocks, limit) = (self.geometry.blocks(data.len())?, self.geometry.max_append());
        if blocks > limit {
            return Err(DeviceError::AppendTooLarge { blocks, limit });
        }
        let start = self.geometry.zone_start(zone);
        if blocks == LbaCount::ZERO {
            // No command can append nothing. A zone without a write pointer is not in the tests.
            return Ok(self.zone(zone)?.wp.unwrap_or(start));
        }
        match self.command(self.range(Opcode::ZONE_APPEND, start, blocks), &Move::Send(data)) {
            Ok((at, _)) => Ok(Lba::new(at)),
            Err(status::LBA_OUT_OF_RANGE) => Err(DeviceError::NoSuchZone { zone }),
            Err(status) => Err(self.explain(status, start, blocks)),
        }
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let (target, zone) = match zones {
            Select::One(zone) => (SendTarget::Start(self.geometry.zone_start(zone)), zone),
            Select::All => (SendTarget::All, ZoneId::ZERO),
        };
        let send = ZoneSend { action: ZoneSendAction::Manage(action), zones: target };
        match self.command(send.encode(self.nsid), &Move::Nothing) {
            Ok(_) => Ok(()),
            Err(status::LBA_OUT_OF_RANGE) => Err(DeviceError::NoSuchZone { zone }),
            Err(status::INVALID_TRANSITION) => {
                Err(DeviceError::Transition { zone, cond: self.zone(zone)?.cond, action })
            }
            Err(status) => {
                Err(self.explain(status, self.geometry.zone_start(zone), LbaCount::ZERO))
            }
        }
    }

    fn flush(&self) -> Result<()> {
        let entry = SubmissionEntry::new(Opcode::FLUSH, self.nsid);
        self.command(entry, &Move::Nothing).expect("a flush of memory");
        Ok(())
    }

    /// Commands that have no order among them go together.
    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut rest = batch;
        while !rest.is_empty() {
            let count = self.together(rest);
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(count.max(1));
            rest = tail;
            match part {
                [one] => one.perform(self),
                part => self.send_together(part),
            }
        }
    }
}

impl Remote {
    /// How many of the first requests have no order among them and can be sent.
    fn together(&self, batch: &[Io<'_>]) -> usize {
        let mut zones = BTreeSet::new();
        let joins = |io: &&Io<'_>| {
            let blocks = self.geometry.blocks(io.op.len());
            let is_sent = blocks.is_ok_and(|blocks| blocks > LbaCount::ZERO);
            is_sent
                && match io.op {
                    Op::Read { .. } => true,
                    Op::Write { lba, data } => {
                        self.geometry.blocks_at(lba, data.len()).is_ok()
                            && zones.insert(self.geometry.locate(lba).0)
                    }
                    Op::Append { zone, data } => {
                        let blocks = self.geometry.blocks(data.len()).unwrap();
                        zone.get() < self.geometry.zone_count()
                            && blocks <= self.geometry.max_append()
                            && zones.insert(zone)
                    }
                    Op::Flush => false,
                }
        };
        batch.iter().take_while(joins).count()
    }

    fn send_together(&self, batch: &mut [Io<'_>]) {
        let mut commands = Vec::new();
        for io in &*batch {
            let blocks = self.geometry.blocks(io.op.len()).unwrap();
            commands.push(match io.op {
                Op::Read { lba, .. } => {
                    (self.range(Opcode::READ, lba, blocks), Move::Receive(io.op.len()))
                }
                Op::Write { lba, data } => {
                    (self.range(Opcode::WRITE, lba, blocks), Move::Send(data))
                }
                Op::Append { zone, data } => {
                    let start = self.geometry.zone_start(zone);
                    (self.range(Opcode::ZONE_APPEND, start, blocks), Move::Send(data))
                }
                Op::Flush => unreachable!("a flush is sent alone"),
            });
        }
        let answers = self.queue.lock().unwrap().batch(&commands);
        drop(commands);
        for (io, answer) in batch.iter_mut().zip(answers) {
            let blocks = self.geometry.blocks(io.op.len()).unwrap();
            io.result = Some(match (&mut io.op, answer) {
                (Op::Read { lba, buffer }, Ok((_, data))) => {
                    buffer.copy_from_slice(&data);
                    Ok(*lba)
                }
                (Op::Write { lba, .. }, Ok(_)) => Ok(*lba),
                (Op::Append { .. }, Ok((at, _))) => Ok(Lba::new(at)),
                (Op::Read { lba, .. } | Op::Write { lba, .. }, Err(status)) => {
                    Err(self.explain(status, *lba, blocks))
                }
                (Op::Append { zone, .. }, Err(status)) => {
                    Err(self.explain(status, self.geometry.zone_start(*zone), blocks))
                }
                (Op::Flush, _) => unreachable!("a flush is sent alone"),
            });
        }
    }
}
