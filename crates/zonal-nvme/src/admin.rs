//! Commands of the admin queue: Identify, log pages, features, events.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::event;
use crate::wire::fabrics::{self, DiscoveryEntry, DiscoveryHeader};
use crate::wire::feature::{self, QueueCounts, Select, SetFeature};
use crate::wire::log::{self, ChangedZones, Effects, FirmwareSlots, GetLogPage, Health, page};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromZeros, Immutable, IntoBytes};
use zonal::nvme::decode::Identify;
use zonal::nvme::identify::{
    self, IdentifyController, IdentifyNvmController, IdentifyZonedController, cns, descriptor,
};
use zonal::nvme::{self, Nsid, NvmeStatus, Opcode, SubmissionEntry, command_set, status};

use crate::command::{DONE, Executed, Outcome, Payload, Plan, TRANSFER_MAX, TRANSFER_MAX_SHIFT};
use crate::namespace::{Namespace, Usage};
use crate::subsystem::controller::{COMMAND_CAPSULE, ENTRIES_MAX, Features, QUEUES_MAX, VERSION};
use crate::subsystem::events::ERRORS_MAX;
use crate::subsystem::{Controller, Role, WriteCache};

/// CTRATT bit 0: host identifiers of 128 bits.
const HOST_ID_128: u32 = 1;
/// CTRATT bit 6: traffic based keep alive (NVM Express 2.0, section 3.9.4).
const ANY_COMMAND_KEEPS_ALIVE: u32 = 1 << 6;
/// ONCS bit 2: Dataset Management.
const DATASET_MANAGEMENT: u16 = 1 << 2;
/// ONCS bit 3: Write Zeroes.
const WRITE_ZEROES: u16 = 1 << 3;
/// VWC bit 0: there is a volatile write cache.
const VOLATILE: u8 = 1;
/// Most outstanding Asynchronous Event Requests.
const EVENTS_MAX: u8 = 4;
/// The temperature that is reported, in kelvin: 25 °C.
const TEMPERATURE: u16 = 298;

/// Validates a command and says what data it transfers.
pub(crate) fn plan(controller: &Controller, entry: &SubmissionEntry) -> Result<Plan, NvmeStatus> {
    let io = matches!(controller.role(), Role::Io);
    match entry.opcode() {
        Opcode::IDENTIFY => Ok(Plan::ToHost(identify::BYTES)),
        Opcode::GET_LOG_PAGE => {
            let bytes = usize::try_from(GetLogPage::decode(entry)?.bytes).ok();
            let bytes = bytes.filter(|&bytes| bytes <= TRANSFER_MAX);
            bytes.map(Plan::ToHost).ok_or(status::INVALID_FIELD)
        }
        Opcode::GET_FEATURES if io => match feature::decode_get(entry) {
            // Over fabrics, host identifiers have 128 bits (EXHID).
            (feature::id::HOST_ID, Select::Current) if entry.dword(11) & 1 == 0 => {
                Err(status::INVALID_FIELD)
            }
            (feature::id::HOST_ID, Select::Current) => Ok(Plan::ToHost(16)),
            _ => Ok(Plan::NoData),
        },
        Opcode::SET_FEATURES | Opcode::GET_FEATURES | Opcode::KEEP_ALIVE | Opcode::ASYNC_EVENT => {
            Ok(Plan::NoData)
        }
        Opcode::ABORT if io => Ok(Plan::NoData),
        _ => Err(status::INVALID_OPCODE),
    }
}

/// Executes a command that was planned.
pub(crate) fn execute(
    controller: &Controller,
    entry: &SubmissionEntry,
    payload: Payload<'_>,
) -> Executed {
    match entry.opcode() {
        Opcode::IDENTIFY => identify(controller, entry, payload.room())?,
        Opcode::GET_LOG_PAGE => get_log_page(controller, entry, payload.room())?,
        Opcode::GET_FEATURES => return get_feature(controller, entry, payload),
        Opcode::SET_FEATURES => return set_feature(controller, entry),
        Opcode::KEEP_ALIVE => {}
        Opcode::ASYNC_EVENT => {
            controller.add_event_request(entry.id.get(), EVENTS_MAX.into())?;
            return Ok(Outcome::Outstanding);
        }
        // Bit 0: the command was not aborted. It has completed, or runs on another connection.
        Opcode::ABORT => return Ok(Outcome::Done(1)),
        _ => return Err(status::INVALID_OPCODE),
    }
    DONE
}

/// Copies a structure into the data to the host.
fn give(structure: &(impl IntoBytes + Immutable), out: &mut [u8]) {
    let bytes = structure.as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
}

fn identify(
    controller: &Controller,
    entry: &SubmissionEntry,
    out: &mut [u8],
) -> Result<(), NvmeStatus> {
    let asked = Identify::decode(entry);
    if asked.what == cns::CONTROLLER {
        give(&identify_controller(controller), out);
        return Ok(());
    }
    if matches!(controller.role(), Role::Discovery(_)) {
        return Err(status::INVALID_FIELD);
    }
    match (asked.what, asked.command_set) {
        (cns::ACTIVE_NAMESPACES, _) => list_namespaces(controller, entry.nsid(), None, out),
        (cns::COMMAND_SET_NAMESPACES, command_set::NVM | command_set::ZNS) => {
            list_namespaces(controller, entry.nsid(), Some(asked.command_set), out)
        }
        (cns::COMMAND_SET_CONTROLLER, command_set::NVM) => {
            let mut answer = IdentifyNvmController::new_zeroed();
            answer.write_zeroes_max = write_zeroes_max_shift(controller);
            // DMRL, DMRSL and DMSL stay 0: a Dataset Management may have as many ranges and blocks
            // as it can name.
            give(&answer, out);
            Ok(())
        }
        (cns::COMMAND_SET_CONTROLLER, command_set::ZNS) => {
            let mut answer = IdentifyZonedController::new_zeroed();
            answer.append_max = append_max_shift(controller);
            give(&answer, out);
            Ok(())
        }
        (cns::COMMAND_SETS, _) => {
            // The only combination: the NVM and the zoned command set together.
            let both = 1_u64 << command_set::NVM | 1 << command_set::ZNS;
            give(&U64::new(both), out);
            Ok(())
        }
        (
            cns::NAMESPACE | cns::COMMAND_SET_NAMESPACE | cns::COMMON_NAMESPACE | cns::DESCRIPTORS,
            command_set,
        ) => {
            let namespace = controller.subsystem().namespace(entry.nsid())?;
            identify_namespace(namespace, asked.what, command_set, out)
        }
        _ => Err(status::INVALID_FIELD),
    }
}

fn identify_namespace(
    namespace: &Namespace,
    structure: u8,
    command_set: u8,
    out: &mut [u8],
) -> Result<(), NvmeStatus> {
    match (structure, command_set) {
        (cns::NAMESPACE, _) => give(&namespace.identify(), out),
        // No protection information: all fields are zero.
        (cns::COMMAND_SET_NAMESPACE, command_set::NVM) => {}
        (cns::COMMAND_SET_NAMESPACE, command_set::ZNS) => {
            let zoned = namespace.zoned().ok_or(status::INVALID_FIELD)?;
            give(&zoned.identify_zoned(), out);
        }
        (cns::COMMON_NAMESPACE, _) => give(&namespace.identify_common(), out),
        (cns::DESCRIPTORS, _) => {
            let rest = descriptor::put(out, descriptor::GUID, &namespace.uuid());
            let rest = descriptor::put(rest, descriptor::UUID, &namespace.uuid());
            descriptor::put(rest, descriptor::COMMAND_SET, &[namespace.command_set()]);
        }
        _ => return Err(status::INVALID_FIELD),
    }
    Ok(())
}

/// Namespaces after `after`, of one command set or of all that the host has selected; as many as
/// fit.
fn list_namespaces(
    controller: &Controller,
    after: Nsid,
    of: Option<u8>,
    out: &mut [u8],
) -> Result<(), NvmeStatus> {
    if after.get() >= Nsid::ALL.get() - 1 {
        return Err(status::INVALID_NAMESPACE);
    }
    let is_listed = |namespace: &Namespace| {
        let command_set = namespace.command_set();
        of.is_none_or(|of| of == command_set)
            && (command_set == command_set::NVM || controller.sees_zoned())
    };
    let listed = controller.subsystem().namespaces().filter(|(_, one)| is_listed(one));
    let following = listed.filter(|(nsid, _)| *nsid > after);
    for (slot, (nsid, _)) in out.chunks_exact_mut(4).zip(following) {
        give(&U32::new(nsid.get()), slot);
    }
    Ok(())
}

fn identify_controller(controller: &Controller) -> IdentifyController {
    let subsystem = controller.subsystem();
    let mut answer = IdentifyController::new_zeroed();
    answer.serial = nvme::ascii(&serial(subsystem.nqn()));
    answer.model = nvme::ascii("Zonal");
    answer.firmware = nvme::ascii(FIRMWARE);
    answer.transfer_max = TRANSFER_MAX_SHIFT;
    answer.controller_id = controller.id().into();
    answer.version = VERSION.into();
    answer.attributes = (HOST_ID_128 | ANY_COMMAND_KEEPS_ALIVE).into();
    answer.abort_limit = 3;
    answer.event_limit = EVENTS_MAX - 1;
    // One slot, read-only.
    answer.firmware_slots = 1 << 1 | 1;
    answer.log_pages = 1 << 1 | 1 << 2;
    answer.temperature = [U16::new(343), U16::new(353)];
    answer.keep_alive = 1.into();
    answer.command_max = u16::try_from(ENTRIES_MAX).expect("1024").into();
    // SGLs are supported, with offsets into the capsule and transport data blocks.
    answer.sgl = (1 | 1 << 20 | 1 << 21).into();
    answer.command_capsule = COMMAND_CAPSULE.into();
    answer.response_capsule = 1.into();
    answer.descriptors = 1;
    match controller.role() {
        Role::Discovery(_) => {
            answer.kind = 2;
            answer.subsystem = nvme::name(fabrics::DISCOVERY_NQN);
        }
        Role::Io => {
            answer.kind = 1;
            // A host that connects twice has two paths to the same namespaces.
            answer.multipath = 1 << 1;
            answer.sq_entry = 0x66;
            answer.cq_entry = 0x44;
            let count = subsystem.namespaces().count();
            answer.namespaces = u32::try_from(count).expect("few").into();
            answer.namespaces_max = answer.namespaces;
            answer.commands = WRITE_ZEROES.into();
            if subsystem.has_disks() {
                answer.commands = (WRITE_ZEROES | DATASET_MANAGEMENT).into();
            }
            answer.events = (event::ZONE_NOTICES | event::NAMESPACE_NOTICES).into();
            answer.error_log = ERRORS_MAX - 1;
            // A flush can be for all namespaces.
            answer.write_cache = 3 << 1;
            if subsystem.write_cache() == WriteCache::Volatile {
                answer.write_cache |= VOLATILE;
            }
            answer.subsystem = nvme::name(subsystem.nqn());
        }
    }
    answer
}

/// FR.
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// A serial number that stays the same: it is derived from the NQN.
fn serial(nqn: &str) -> String {
    // FNV-1a.
    let hash = nqn.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016X}")
}

/// ZASL: the smallest append limit of all namespaces, rounded down to a power of two of pages. A
/// limit below one page cannot be reported; larger appends fail.
fn append_max_shift(controller: &Controller) -> u8 {
    let zoned = controller.subsystem().namespaces().filter_map(|(_, one)| one.zoned());
    let limits = zoned.map(|namespace| {
        let geometry = namespace.geometry();
        let pages = geometry.bytes(geometry.max_append()).get() / 4096;
        pages.checked_ilog2().unwrap_or(0)
    });
    let least = limits.min().unwrap_or(0).min(TRANSFER_MAX_SHIFT.into());
    u8::try_from(least).expect("at most the transfer limit")
}

/// WZSL: the smallest limit of all namespaces, as a power of two of pages. No host may need more
/// blocks for it than a command can name: Linux cuts their number off.
fn write_zeroes_max_shift(controller: &Controller) -> u8 {
    let limits = controller.subsystem().namespaces().map(|(_, one)| one.write_zeroes_max());
    let pages = limits.min().unwrap_or(0) / 4096;
    u8::try_from(pages.checked_ilog2().unwrap_or(0)).expect("a logarithm of 64 bits")
}

fn get_log_page(
    controller: &Controller,
    entry: &SubmissionEntry,
    out: &mut [u8],
) -> Result<(), NvmeStatus> {
    let asked = GetLogPage::decode(entry)?;
    let content = match (controller.role(), asked.page) {
        (_, page::SUPPORTED) => supported_pages(controller),
        (Role::Discovery(entry), page::DISCOVERY) => discovery(controller, entry),
        (Role::Io, page::ERRORS) => controller.error_log().as_bytes().to_vec(),
        (Role::Io, page::HEALTH) => health(controller).as_bytes().to_vec(),
        (Role::Io, page::FIRMWARE) => {
            let mut slots = FirmwareSlots::new_zeroed();
            slots.active = 1;
            slots.slot_1 = nvme::ascii(FIRMWARE);
            slots.as_bytes().to_vec()
        }
        (Role::Io, page::CHANGED_NAMESPACES) => {
            let changed = controller.changed_namespaces(asked.read);
            let mut list = vec![0; 4096];
            for (slot, nsid) in list.chunks_exact_mut(4).zip(changed) {
                give(&U32::new(nsid.get()), slot);
            }
            list
        }
        (Role::Io, page::EFFECTS) => effects(asked.command_set)?.as_bytes().to_vec(),
        (Role::Io, page::CHANGED_ZONES) => {
            let zones = controller.changed_zones(entry.nsid(), asked.read)?;
            ChangedZones::encode(&zones).as_bytes().to_vec()
        }
        (Role::Io | Role::Discovery(_), _) => return Err(status::INVALID_LOG_PAGE),
    };
    let offset = usize::try_from(asked.offset).map_err(|_| status::INVALID_FIELD)?;
    let content = content.get(offset..).ok_or(status::INVALID_FIELD)?;
    let count = content.len().min(out.len());
    out[..count].copy_from_slice(&content[..count]);
    Ok(())
}

fn supported_pages(controller: &Controller) -> Vec<u8> {
    let pages: &[u8] = match controller.role() {
        Role::Discovery(_) => &[page::SUPPORTED, page::DISCOVERY],
        Role::Io => &[
            page::SUPPORTED,
            page::ERRORS,
            page::HEALTH,
            page::FIRMWARE,
            page::CHANGED_NAMESPACES,
            page::EFFECTS,
            page::CHANGED_ZONES,
        ],
    };
    let mut content = vec![0; 1024];
    for &page in pages {
        content[usize::from(page) * 4] = 1;
    }
    content
}

fn discovery(controller: &Controller, entry: &DiscoveryEntry) -> Vec<u8> {
    let mut header = DiscoveryHeader::new_zeroed();
    header.generation = 1.into();
    let allowed = controller.subsystem().allows(&controller.host().nqn);
    header.records = u64::from(allowed).into();
    let mut content = header.as_bytes().to_vec();
    if allowed {
        content.extend_from_slice(entry.as_bytes());
    }
    content
}

fn health(controller: &Controller) -> Health {
    let sum = |count: fn(&Usage) -> &AtomicU64| -> u128 {
        let namespaces = controller.subsystem().namespaces();
        namespaces.map(|(_, one)| u128::from(count(one.usage()).load(Ordering::Relaxed))).sum()
    };
    let units = |bytes: u128| U128::new(bytes.div_ceil(512_000));
    let mut health = Health::new_zeroed();
    health.temperature = TEMPERATURE.into();
    health.spare = 100;
    health.spare_min = 10;
    health.read = units(sum(|usage| &usage.read_bytes));
    health.written = units(sum(|usage| &usage.written_bytes));
    health.reads = sum(|usage| &usage.reads).into();
    health.writes = sum(|usage| &usage.writes).into();
    health.errors = u128::from(controller.error_count()).into();
    health
}

fn effects(of: u8) -> Result<Effects, NvmeStatus> {
    let mut effects = Effects::new_zeroed();
    let only = U32::new(log::EFFECT_SUPPORTED);
    let changes = U32::new(log::EFFECT_SUPPORTED | log::EFFECT_DATA);
    for opcode in [
        Opcode::GET_LOG_PAGE,
        Opcode::IDENTIFY,
        Opcode::ABORT,
        Opcode::SET_FEATURES,
        Opcode::GET_FEATURES,
        Opcode::ASYNC_EVENT,
        Opcode::KEEP_ALIVE,
    ] {
        effects.admin[usize::from(opcode.0)] = only;
    }
    let more = match of {
        command_set::NVM => &[(Opcode::DATASET_MANAGEMENT, changes)][..],
        command_set::ZNS => &[
            (Opcode::ZONE_RECEIVE, only),
            (Opcode::ZONE_SEND, changes),
            (Opcode::ZONE_APPEND, changes),
        ],
        _ => return Err(status::INVALID_FIELD),
    };
    let plain = [
        (Opcode::FLUSH, only),
        (Opcode::READ, only),
        (Opcode::WRITE, changes),
        (Opcode::WRITE_ZEROES, changes),
    ];
    for &(opcode, effect) in plain.iter().chain(more) {
        effects.io[usize::from(opcode.0)] = effect;
    }
    Ok(effects)
}

fn get_feature(controller: &Controller, entry: &SubmissionEntry, payload: Payload<'_>) -> Executed {
    use feature::id;
    let (which, select) = feature::decode_get(entry);
    let features = match select {
        Select::Current => controller.features(),
        Select::Default | Select::Saved => Features::default(),
        // Bit 2: changeable. Not saveable, not namespace specific.
        Select::Supported => {
            let changeable =
                [id::ARBITRATION, id::ERROR_RECOVERY, id::QUEUES, id::ASYNC_EVENTS, id::KEEP_ALIVE];
            return Ok(Outcome::Done(u64::from(changeable.contains(&which)) << 2));
        }
    };
    let queues = QueueCounts { submission: QUEUES_MAX.into(), completion: QUEUES_MAX.into() };
    let has_cache = controller.subsystem().write_cache() == WriteCache::Volatile;
    let value = match (controller.role(), which) {
        (_, id::ASYNC_EVENTS) => features.async_events,
        (_, id::KEEP_ALIVE) => controller.keep_alive_ms().unwrap_or(0),
        (Role::Io, id::ARBITRATION) => features.arbitration,
        (Role::Io, id::ERROR_RECOVERY) => features.error_recovery,
        (Role::Io, id::POWER | id::WRITE_ATOMICITY | id::COMMAND_SET_PROFILE) => 0,
        (Role::Io, id::TEMPERATURE) => 343,
        (Role::Io, id::WRITE_CACHE) if has_cache => 1,
        (Role::Io, id::QUEUES) => queues.encode(),
        (Role::Io, id::HOST_ID) if select == Select::Current => {
            payload.room().copy_from_slice(&controller.host().id);
            0
        }
        (Role::Io | Role::Discovery(_), _) => return Err(status::INVALID_FIELD),
    };
    Ok(Outcome::Done(value.into()))
}

fn set_feature(controller: &Controller, entry: &SubmissionEntry) -> Executed {
    use feature::id;
    let SetFeature { id, lifetime, value } = SetFeature::decode(entry);
    if lifetime == feature::Lifetime::Saved {
        return Err(status::FEATURE_NOT_SAVEABLE);
    }
    match (controller.role(), id) {
        (_, id::ASYNC_EVENTS) => controller.set_features(|features| features.async_events = value),
        (_, id::KEEP_ALIVE) => controller.set_keep_alive_ms(Some(value).filter(|&ms| ms != 0)),
        (Role::Io, id::ARBITRATION) => {
            controller.set_features(|features| features.arbitration = value);
        }
        (Role::Io, id::ERROR_RECOVERY) => {
            controller.set_features(|features| features.error_recovery = value);
        }
        (Role::Io, id::QUEUES) => {
            let asked = QueueCounts::decode(value);
            if asked.submission > 0xffff || asked.completion > 0xffff {
                return Err(status::INVALID_FIELD);
            }
            if controller.has_io_queue() {
                return Err(status::SEQUENCE);
            }
            let limit = u32::from(QUEUES_MAX);
            let given = QueueCounts {
                submission: asked.submission.min(limit),
                completion: asked.completion.min(limit),
            };
            return Ok(Outcome::Done(given.encode().into()));
        }
        (Role::Io, id::COMMAND_SET_PROFILE) if matches!(value & 0x1ff, 0) => {}
        (Role::Io, id::WRITE_CACHE) if controller.subsystem().write_cache() == WriteCache::None => {
            return Err(status::INVALID_FIELD);
        }
        (Role::Io, id::WRITE_CACHE) if value & 1 == 1 => {}
        (Role::Io, id::POWER) if matches!(value & 0x1f, 0) => {}
        (Role::Io, id::WRITE_CACHE | id::POWER | id::WRITE_ATOMICITY | id::TEMPERATURE) => {
            return Err(status::FEATURE_NOT_CHANGEABLE);
        }
        // The host sent its identifier with Connect.
        (Role::Io, id::HOST_ID) => return Err(status::SEQUENCE),
        (Role::Io | Role::Discovery(_), _) => return Err(status::INVALID_FIELD),
    }
    DONE
}
