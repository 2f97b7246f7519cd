//! Commands of I/O queues. Commands of zoned namespaces are here: their part of the NVM command
//! set, and the Zoned Namespace Command Set. Commands of disks are in `disk.rs`.

use std::sync::LazyLock;

use zonal::Select;
use zonal::nvme::decode::{
    BlockRange, Durability, SendTarget, ZoneReceive, ZoneSend, ZoneSendAction,
};
use zonal::nvme::{Nsid, NvmeStatus, Opcode, SubmissionEntry, status};

use crate::command::{DONE, Executed, Outcome, Payload, Plan, TRANSFER_MAX};
use crate::namespace::{Access, Kind, ZonedNamespace};
use crate::subsystem::Subsystem;

/// Data of the largest Write Zeroes, which all connections share.
static ZEROES: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; TRANSFER_MAX]);

/// Validates a command and says what data it transfers.
pub(crate) fn plan(subsystem: &Subsystem, entry: &SubmissionEntry) -> Result<Plan, NvmeStatus> {
    if entry.opcode() == Opcode::FLUSH && entry.nsid() == Nsid::ALL {
        return Ok(Plan::NoData);
    }
    match subsystem.namespace(entry.nsid())?.kind() {
        Kind::Zoned(zoned) => plan_zoned(zoned, entry),
        Kind::Disk(disk) => disk.plan(entry),
    }
}

fn plan_zoned(namespace: &ZonedNamespace, entry: &SubmissionEntry) -> Result<Plan, NvmeStatus> {
    let range = BlockRange::decode(entry);
    match entry.opcode() {
        Opcode::FLUSH => Ok(Plan::NoData),
        Opcode::ZONE_SEND => {
            let bytes = namespace.send_bytes(&ZoneSend::decode(entry)?)?;
            Ok(bytes.map_or(Plan::NoData, Plan::FromHost))
        }
        Opcode::READ => namespace.check(range.first, range.blocks).map(Plan::ToHost),
        Opcode::WRITE => namespace.check(range.first, range.blocks).map(Plan::FromHost),
        Opcode::WRITE_ZEROES => {
            namespace.check(range.first, range.blocks)?;
            Ok(Plan::NoData)
        }
        Opcode::ZONE_APPEND => {
            namespace.zone_at(range.first)?;
            if range.blocks > namespace.geometry().max_append() {
                return Err(status::INVALID_FIELD);
            }
            namespace.bytes(range.blocks).map(Plan::FromHost)
        }
        Opcode::ZONE_RECEIVE => {
            let asked = ZoneReceive::decode(entry)?;
            if asked.bytes > TRANSFER_MAX {
                return Err(status::INVALID_FIELD);
            }
            Ok(Plan::ToHost(asked.bytes))
        }
        _ => Err(status::INVALID_OPCODE),
    }
}

/// Executes a command that was planned, and does not [join others](joins_others).
pub(crate) fn execute(
    subsystem: &Subsystem,
    entry: &SubmissionEntry,
    payload: Payload<'_>,
) -> Executed {
    if entry.opcode() == Opcode::FLUSH && entry.nsid() == Nsid::ALL {
        subsystem.namespaces().try_for_each(|(_, namespace)| namespace.flush())?;
        return DONE;
    }
    let durability = subsystem.durability(BlockRange::decode(entry).durability);
    match subsystem.namespace(entry.nsid())?.kind() {
        Kind::Zoned(zoned) => execute_zoned(zoned, entry, durability, payload),
        Kind::Disk(disk) => disk.execute(entry, durability, payload),
    }
}

fn execute_zoned(
    namespace: &ZonedNamespace,
    entry: &SubmissionEntry,
    durability: Durability,
    payload: Payload<'_>,
) -> Executed {
    let BlockRange { first, blocks, .. } = BlockRange::decode(entry);
    match entry.opcode() {
        Opcode::FLUSH => namespace.flush()?,
        Opcode::WRITE_ZEROES => {
            let bytes = namespace.check(first, blocks)?;
            let zeroes = Access::Write(&ZEROES[..bytes], durability);
            for done in namespace.submit(std::iter::once((first, zeroes))) {
                done?;
            }
        }
        Opcode::ZONE_SEND => {
            let ZoneSend { action, zones } = ZoneSend::decode(entry)?;
            let zones = match zones {
                SendTarget::Start(start) => Select::One(namespace.zone_at(start)?),
                SendTarget::All => Select::All,
            };
            match (action, zones) {
                (ZoneSendAction::Manage(action), _) => namespace.manage(zones, action)?,
                (ZoneSendAction::Offline, _) => namespace.take_offline(zones)?,
                (ZoneSendAction::SetExtension, Select::One(zone)) => {
                    namespace.extend(zone, payload.sent())?;
                }
                (ZoneSendAction::SetExtension | ZoneSendAction::FlushZrwa, _) => {
                    return Err(status::INVALID_FIELD);
                }
            }
        }
        Opcode::ZONE_RECEIVE => {
            namespace.report(&ZoneReceive::decode(entry)?, payload.room())?;
        }
        _ => return Err(status::INVALID_OPCODE),
    }
    DONE
}

/// Whether a command can be executed together with others.
pub(crate) fn joins_others(entry: &SubmissionEntry) -> bool {
    matches!(entry.opcode(), Opcode::READ | Opcode::WRITE | Opcode::ZONE_APPEND)
}

/// Executes planned commands, all for the namespace of the first.
pub(crate) fn execute_batch(
    subsystem: &Subsystem,
    batch: Vec<(SubmissionEntry, Payload<'_>)>,
) -> Vec<Executed> {
    let Some((first, _)) = batch.first() else { return Vec::new() };
    let namespace = match subsystem.namespace(first.nsid()) {
        Ok(namespace) => namespace,
        Err(status) => return vec![Err(status); batch.len()],
    };
    let accesses = batch.into_iter().map(|(entry, payload)| {
        let BlockRange { first, durability, .. } = BlockRange::decode(&entry);
        let durability = subsystem.durability(durability);
        let what = match entry.opcode() {
            Opcode::READ => Access::Read(payload.room()),
            Opcode::WRITE => Access::Write(payload.sent(), durability),
            _ => Access::Append(payload.sent(), durability),
        };
        (first, what)
    });
    let done = match namespace.kind() {
        Kind::Zoned(zoned) => zoned.submit(accesses),
        Kind::Disk(disk) => disk.submit(accesses),
    };
    done.into_iter().map(|done| done.map(Outcome::Done)).collect()
}
