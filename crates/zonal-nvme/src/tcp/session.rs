//! One connection: from the first unit over Connect to commands, on a thread of its own.
//!
//! Commands are executed one after the other, in the order in which their data is complete; a host
//! that wants more at once connects more queues. Answers are collected while more units wait, and
//! sent together. What a host can make this side remember is bounded: as many commands as the queue
//! has entries, and [`GRANTED_MAX`] bytes of data that it was asked for.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use crate::wire::fabrics::{
    Connect, ConnectData, ConnectFault, FlowControl, Property, command_type,
};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};
use zonal::nvme::command::DataPointer;
use zonal::nvme::{CompletionEntry, NvmeStatus, Opcode, SubmissionEntry, status};

use super::pdu::{self, COMMON_BYTES, DIGEST_BYTES, Data, Digest, Fatal, FatalStatus, Frame};
use super::pdu::{Initialize, Kind, Terms, flag};
use super::stream::{self, Input, Waited};
use super::{Shared, discovery};
use crate::{
    ADMIN_ENTRIES_MAX, Controller, ENTRIES_MAX, Executed, IN_CAPSULE_MAX, Link, Outcome, Payload,
    Plan, TRANSFER_MAX,
};

/// MAXH2CDATA: data in one unit from the host.
const HOST_DATA_MAX: u32 = 256 * 1024;
/// Data that a connection has asked its host for and not got yet. A single command may have more.
const GRANTED_MAX: usize = 2 * TRANSFER_MAX;
/// Bytes of buffers that are kept for the next transfers: as many as can be granted at once, since a
/// new buffer is filled with zeroes first.
const SPARE_MAX: usize = GRANTED_MAX;
/// Answers that are collected before they are sent.
const OUTPUT_MAX: usize = 256 * 1024;
/// How long a connection may exist without a queue.
const STRANGER_NS: u64 = 10_000_000_000;
/// What a late keep alive is forgiven.
const KEEP_ALIVE_GRACE_MS: u64 = 1_000;
/// SQHD where nobody keeps count.
const NO_FLOW_CONTROL: u16 = 0xffff;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The host violated the protocol; the header in error is repeated to it.
    Fatal(Fatal, Vec<u8>),
    /// The connection is gone, or was silent for too long.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The queue that a connection is for.
struct Queue {
    controller: Arc<Controller>,
    id: u16,
    entries: u32,
    flow_control: FlowControl,
    head: u32,
}

/// Data on its way from the host.
struct Transfer {
    entry: SubmissionEntry,
    data: Vec<u8>,
    received: usize,
    damaged: bool,
}

/// A connection.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    stream: Arc<TcpStream>,
    input: Input,
    output: Vec<u8>,
    terms: Terms,
    queue: Option<Queue>,
    /// By tag.
    transfers: BTreeMap<u16, Transfer>,
    granted: usize,
    next_tag: u16,
    /// Commands whose data has not been asked for yet, and how much it is.
    waiting: VecDeque<(SubmissionEntry, usize)>,
    /// Buffers of finished transfers.
    spare: Vec<Vec<u8>>,
    /// The command capsule at hand.
    capsule: Vec<u8>,
    /// When the host last sent a command here; queues for I/O tell their controller instead.
    heard_ns: u64,
}

/// Closing a connection from another thread.
impl Link for TcpStream {
    fn close(&self) {
        // It may be closed already.
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(shared: &'a Shared, stream: Arc<TcpStream>) -> Self {
        let clock = Arc::clone(&shared.clock);
        Self {
            shared,
            input: Input::new(Arc::clone(&stream), clock),
            stream,
            output: Vec::new(),
            terms: Terms::default(),
            queue: None,
            transfers: BTreeMap::new(),
            granted: 0,
            next_tag: 0,
            waiting: VecDeque::new(),
            spare: Vec::new(),
            capsule: Vec::new(),
            heard_ns: shared.clock.monotonic_ns(),
        }
    }

    /// Serves the connection until it ends.
    pub(super) fn run(mut self) -> End {
        let end = self.serve();
        if let End::Fatal(fatal, header) = &end {
            pdu::put_terminate(&mut self.output, *fatal, header);
        }
        // Also what was answered before the end; the host may be gone.
        let _ = self.send();
        if let Some(queue) = self.queue.take() {
            queue.controller.remove_queue(queue.id);
        }
        end
    }

    fn serve(&mut self) -> End {
        let Err(end) = self.initialize() else { return self.serve_units() };
        end
    }

    fn serve_units(&mut self) -> End {
        loop {
            if let Err(end) = self.serve_unit() {
                return end;
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        stream::send(&self.stream, &*self.shared.clock, &self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Waits for a unit and reads how it is made up.
    fn next_frame(&mut self, data_max: usize) -> Result<Frame, End> {
        if self.input.buffered().len() < COMMON_BYTES || self.output.len() >= OUTPUT_MAX {
            self.send()?;
        }
        loop {
            self.report_event()?;
            let deadline = self.deadline();
            if self.input.wait(deadline)? == Waited::Well {
                break;
            }
        }
        self.input.fill(COMMON_BYTES)?;
        let first: [u8; COMMON_BYTES] =
            self.input.buffered()[..COMMON_BYTES].try_into().expect("filled");
        let refuse = |fatal| End::Fatal(fatal, first.to_vec());
        let frame = Frame::parse(first, self.terms, data_max).map_err(refuse)?;
        if self.input.buffered().len() < frame.head_bytes() {
            self.send()?;
        }
        self.input.fill(frame.head_bytes())?;
        let head = &self.input.buffered()[..frame.head_bytes()];
        frame.check_head(head).map_err(|fatal| End::Fatal(fatal, head.to_vec()))?;
        Ok(frame)
    }

    /// When the host has been silent for too long. It may have changed its promise meanwhile, and a
    /// command on any of its queues is as good as a keep alive.
    fn deadline(&mut self) -> Option<u64> {
        let patience_ns = match &self.queue {
            None => STRANGER_NS,
            Some(queue) if queue.id == 0 => {
                if queue.controller.was_used() {
                    self.heard_ns = self.shared.clock.monotonic_ns();
                }
                (u64::from(queue.controller.keep_alive_ms()?) + KEEP_ALIVE_GRACE_MS) * 1_000_000
            }
            Some(_) => return None,
        };
        Some(self.heard_ns.saturating_add(patience_ns))
    }

    /// Tells the host of an event, if there is one.
    fn report_event(&mut self) -> io::Result<()> {
        let event = match &self.queue {
            Some(queue) if queue.id == 0 => queue.controller.event(),
            Some(_) | None => None,
        };
        if let Some((id, result)) = event {
            self.complete(id, result, status::SUCCESS);
            self.send()?;
        }
        Ok(())
    }

    /// The header of the unit that was looked at, for a last word.
    fn fatal(&self, frame: &Frame, fatal: Fatal) -> End {
        End::Fatal(fatal, self.input.buffered()[..frame.header_bytes].to_vec())
    }

    /// `ICReq` and `ICResp`.
    fn initialize(&mut self) -> Result<(), End> {
        let frame = self.next_frame(0)?;
        if frame.kind != Kind::InitializeRequest {
            return Err(self.fatal(&frame, Fatal::of(FatalStatus::Sequence)));
        }
        let request = Initialize::read_from_bytes(&self.input.buffered()[..frame.header_bytes]);
        let request = request.expect("the header is as long as its kind says");
        if request.version.get() != 0 {
            let unsupported = Fatal { status: FatalStatus::Unsupported, info: 8 };
            return Err(self.fatal(&frame, unsupported));
        }
        if request.alignment > 31 {
            return Err(self.fatal(&frame, Fatal::header(10)));
        }
        self.input.take(frame.bytes());
        let digests = request.digests & 3;
        let response = Initialize {
            alignment: 0,
            digests,
            limit: HOST_DATA_MAX.into(),
            reserved: [0; 112],
            ..request
        };
        let unit = (Kind::InitializeResponse, 0);
        pdu::put(&mut self.output, unit, response.as_bytes(), &[], Terms::default());
        let alignment = (usize::from(request.alignment) + 1) * 4;
        self.terms = Terms { alignment, ..Terms::digests(digests) };
        Ok(())
    }

    fn serve_unit(&mut self) -> Result<(), End> {
        let frame = self.next_frame(HOST_DATA_MAX as usize)?;
        match frame.kind {
            Kind::Command => self.command(&frame)?,
            Kind::HostData => self.host_data(&frame)?,
            Kind::HostTerminates => {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
            Kind::InitializeRequest => {
                return Err(self.fatal(&frame, Fatal::of(FatalStatus::Sequence)));
            }
            Kind::InitializeResponse
            | Kind::ControllerTerminates
            | Kind::Response
            | Kind::ControllerData
            | Kind::ReadyToTransfer => return Err(self.fatal(&frame, Fatal::header(0))),
        }
        self.grant();
        Ok(())
    }

    /// A command capsule: the command, and data if it fits.
    fn command(&mut self, frame: &Frame) -> Result<(), End> {
        if frame.data_bytes > IN_CAPSULE_MAX as usize {
            return Err(self.fatal(frame, Fatal::of(FatalStatus::LimitExceeded)));
        }
        if self.input.buffered().len() < frame.bytes() {
            self.send()?;
        }
        self.input.fill(frame.bytes())?;
        match &self.queue {
            Some(queue) if queue.id != 0 => queue.controller.note_use(),
            Some(_) | None => self.heard_ns = self.shared.clock.monotonic_ns(),
        }
        let entries = self.queue.as_ref().map_or(1, |queue| queue.entries) as usize;
        if self.waiting.len() + self.transfers.len() >= entries {
            return Err(self.fatal(frame, Fatal::of(FatalStatus::Sequence)));
        }
        let mut capsule = std::mem::take(&mut self.capsule);
        capsule.clear();
        capsule.extend_from_slice(self.input.take(frame.bytes()));
        self.execute_capsule(frame, &capsule);
        self.capsule = capsule;
        Ok(())
    }

    fn execute_capsule(&mut self, frame: &Frame, capsule: &[u8]) {
        let entry = SubmissionEntry::read_from_bytes(&capsule[COMMON_BYTES..frame.header_bytes]);
        let entry = entry.expect("the header is as long as its kind says");
        let (data, digest) = match frame.data_bytes {
            0 => (&[][..], &[][..]),
            bytes => capsule[frame.data_at..].split_at(bytes),
        };
        if let Some(queue) = &mut self.queue {
            queue.head = (queue.head + 1) % queue.entries;
        }
        let id = entry.id.get();
        let known = self.waiting.iter().map(|(entry, _)| entry);
        let mut known = known.chain(self.transfers.values().map(|transfer| &transfer.entry));
        if known.any(|known| known.id.get() == id) {
            return self.respond(id, Err(status::ID_CONFLICT));
        }
        if frame.data_digest == Digest::On && !pdu::is_digest_of(data, digest) {
            return self.respond(id, Err(status::TRANSIENT_TRANSPORT));
        }
        if entry.opcode() == Opcode::FABRICS {
            return self.fabrics(&entry, data);
        }
        let Some(queue) = &self.queue else { return self.respond(id, Err(status::SEQUENCE)) };
        let planned = queue.controller.plan(queue.id, &entry);
        match planned.and_then(|plan| locate(&entry, plan, data)) {
            Ok(Located::Here(payload)) => self.execute(&entry, payload),
            Ok(Located::ToHost(bytes)) => self.execute_to_host(&entry, bytes),
            Ok(Located::AtHost(bytes)) => self.waiting.push_back((entry, bytes)),
            Err(status) => self.answer(&entry, Err(status)),
        }
    }

    /// Executes a command that sends no data to the host.
    fn execute(&mut self, entry: &SubmissionEntry, payload: Payload<'_>) {
        let queue = self.queue.as_ref().expect("planned by its controller");
        let executed = queue.controller.execute(queue.id, entry, payload);
        self.answer(entry, executed);
    }

    /// Executes a command that sends data to the host: the data is made where it is sent from.
    fn execute_to_host(&mut self, entry: &SubmissionEntry, bytes: usize) {
        let queue = self.queue.as_ref().expect("planned by its controller");
        let (id, unit) = (entry.id.get(), self.output.len());
        let data = pdu::begin_data(&mut self.output, id, bytes, self.terms);
        let payload = Payload::ToHost(&mut self.output[data.clone()]);
        let executed = queue.controller.execute(queue.id, entry, payload);
        if executed.is_err() {
            self.output.truncate(unit);
            return self.answer(entry, executed);
        }
        // Where nobody keeps count of the queue, a success without a result needs no completion.
        let short = queue.flow_control == FlowControl::Off && executed == Ok(Outcome::Done(0));
        let flags = if short { flag::SUCCESS } else { 0 };
        pdu::end_data(&mut self.output, unit, &data, flags, self.terms);
        if !short {
            self.respond(id, executed);
        }
    }

    /// Answers a command of a queue; its host finds it in the error log if it failed.
    fn answer(&mut self, entry: &SubmissionEntry, executed: Executed) {
        if let (Err(status), Some(queue)) = (executed, &self.queue) {
            queue.controller.note(queue.id, entry, status);
        }
        self.respond(entry.id.get(), executed);
    }

    /// Answers a command, unless it is held.
    fn respond(&mut self, id: u16, executed: Executed) {
        let (result, status) = match executed {
            Ok(Outcome::Held) => return,
            Ok(Outcome::Done(result)) => (result, status::SUCCESS),
            Err(status) => (0, status),
        };
        self.complete(id, result, status);
    }

    fn complete(&mut self, id: u16, result: u64, status: NvmeStatus) {
        let head = match &self.queue {
            Some(queue) if queue.flow_control == FlowControl::Off => NO_FLOW_CONTROL,
            Some(queue) => u16::try_from(queue.head).expect("below the entries of a queue"),
            None => 0,
        };
        let completion = CompletionEntry {
            result: result.into(),
            sq_head: head.into(),
            sq_id: U16::ZERO,
            id: id.into(),
            status: status.field().into(),
        };
        pdu::put_response(&mut self.output, &completion, self.terms);
    }

    /// Asks for data of commands, in their order.
    fn grant(&mut self) {
        while let Some(&(entry, bytes)) = self.waiting.front() {
            if !self.transfers.is_empty() && self.granted + bytes > GRANTED_MAX {
                return;
            }
            self.waiting.pop_front();
            while self.transfers.contains_key(&self.next_tag) {
                self.next_tag = self.next_tag.wrapping_add(1);
            }
            let tag = self.next_tag;
            self.next_tag = tag.wrapping_add(1);
            let request = Data::new(entry.id.get(), tag, &(0..bytes));
            let unit = (Kind::ReadyToTransfer, 0);
            pdu::put(&mut self.output, unit, request.as_bytes(), &[], self.terms);
            let mut data = self.spare.pop().unwrap_or_default();
            data.resize(bytes, 0);
            self.granted += bytes;
            let (received, damaged) = (0, false);
            self.transfers.insert(tag, Transfer { entry, data, received, damaged });
        }
    }

    /// Data of a command.
    fn host_data(&mut self, frame: &Frame) -> Result<(), End> {
        let header = Data::read_from_bytes(&self.input.buffered()[..frame.header_bytes]);
        let header = header.expect("the header is as long as its kind says");
        let tag = header.tag.get();
        let Some(mut transfer) = self.transfers.remove(&tag) else {
            return Err(self.fatal(frame, Fatal::header(10)));
        };
        let (offset, bytes) = (header.offset.get() as usize, header.length.get() as usize);
        let end = offset.saturating_add(bytes);
        let wrong = if transfer.entry.id != header.command {
            Some(Fatal::header(8))
        } else if bytes != frame.data_bytes || bytes == 0 {
            Some(Fatal::header(16))
        } else if offset != transfer.received || end > transfer.data.len() {
            Some(Fatal::of(FatalStatus::OutOfRange))
        } else if (frame.flags & flag::LAST != 0) != (end == transfer.data.len()) {
            Some(Fatal::header(1))
        } else {
            None
        };
        if let Some(fatal) = wrong {
            return Err(self.fatal(frame, fatal));
        }
        if self.input.buffered().len() < frame.bytes() {
            self.send()?;
        }
        self.input.fill(frame.data_at)?;
        self.input.take(frame.data_at);
        self.input.read_into(&mut transfer.data[offset..end])?;
        if frame.data_digest == Digest::On {
            self.input.fill(DIGEST_BYTES)?;
            let digest = self.input.take(DIGEST_BYTES);
            transfer.damaged |= !pdu::is_digest_of(&transfer.data[offset..end], digest);
        }
        transfer.received = end;
        if end < transfer.data.len() {
            self.transfers.insert(tag, transfer);
            return Ok(());
        }
        self.granted -= transfer.data.len();
        if transfer.damaged {
            self.respond(transfer.entry.id.get(), Err(status::TRANSIENT_TRANSPORT));
        } else {
            self.execute(&transfer.entry, Payload::FromHost(&transfer.data));
        }
        let kept: usize = self.spare.iter().map(Vec::capacity).sum();
        if kept + transfer.data.capacity() <= SPARE_MAX {
            self.spare.push(transfer.data);
        }
        Ok(())
    }

    /// A command of fabrics.
    fn fabrics(&mut self, entry: &SubmissionEntry, data: &[u8]) {
        let id = entry.id.get();
        let [kind, ..] = entry.nsid.to_bytes();
        match (&self.queue, kind) {
            (None, command_type::CONNECT) => match self.connect(entry, data) {
                Ok(controller) => self.complete(id, controller.into(), status::SUCCESS),
                Err((status, result)) => self.complete(id, result, status),
            },
            (Some(queue), command_type::PROPERTY_GET) if queue.id == 0 => {
                let property = Property::decode(entry);
                let value = property.map(|property| queue.controller.property(property));
                self.respond(id, value.map(Outcome::Done));
            }
            (Some(queue), command_type::PROPERTY_SET) if queue.id == 0 => {
                let set = Property::decode(entry).and_then(|property| {
                    queue.controller.set_property(property, Property::value(entry))
                });
                self.respond(id, set.map(|()| Outcome::Done(0)));
            }
            (None, _) | (Some(_), command_type::CONNECT) => {
                self.respond(id, Err(status::SEQUENCE));
            }
            (Some(_), _) => self.respond(id, Err(status::INVALID_FIELD)),
        }
    }

    /// Makes this connection a queue and returns the controller's identifier; or the status and
    /// what was wrong.
    fn connect(&mut self, entry: &SubmissionEntry, data: &[u8]) -> Result<u16, (NvmeStatus, u64)> {
        let plain = |status| (status, 0);
        let asked = Connect::decode(entry).map_err(plain)?;
        let plan = Plan::FromHost(size_of::<ConnectData>());
        let data = match locate(entry, plan, data).map_err(plain)? {
            Located::Here(Payload::FromHost(data)) => data,
            Located::Here(_) | Located::ToHost(_) | Located::AtHost(_) => {
                return Err(plain(status::SGL_TYPE));
            }
        };
        let data = ConnectData::read_from_bytes(data).map_err(|_| plain(status::SGL_LENGTH))?;
        let most = if asked.queue == 0 { ADMIN_ENTRIES_MAX.into() } else { ENTRIES_MAX };
        if asked.entries < 2 || asked.entries > most {
            return Err((status::CONNECT_PARAMETERS, 44));
        }
        let subsystem = &self.shared.subsystem;
        let found = if asked.queue == 0 {
            let local = self.stream.local_addr().map_err(|_| plain(status::INTERNAL))?;
            subsystem.create_controller(&data, &discovery::entry(subsystem.nqn(), local))
        } else {
            subsystem.find_controller(&data)
        };
        let controller =
            found.map_err(|(status, fault)| (status, fault.map_or(0, ConnectFault::encode)))?;
        let link: Arc<dyn Link> = self.stream.clone();
        if let Err(status) = controller.add_queue(asked.queue, link) {
            // A place of 42: the queue's number.
            return Err((status, 42));
        }
        if asked.queue == 0 {
            controller.set_keep_alive_ms(asked.keep_alive_ms);
            let host = &controller.owner().name;
            tracing::info!(host, controller = controller.id(), "connected");
        }
        let id = controller.id();
        let Connect { queue, entries, flow_control, .. } = asked;
        // The head counts this command as well.
        self.queue = Some(Queue { controller, id: queue, entries, flow_control, head: 1 });
        Ok(id)
    }
}

/// Where the data of a command is.
enum Located<'a> {
    /// In the capsule, or there is none.
    Here(Payload<'a>),
    /// At the host, which has to be asked for it.
    AtHost(usize),
    /// It goes to the host.
    ToHost(usize),
}

/// Compares what a command moves with what its data pointer says.
fn locate<'a>(
    entry: &SubmissionEntry,
    plan: Plan,
    capsule: &'a [u8],
) -> Result<Located<'a>, NvmeStatus> {
    let pointer = &entry.data;
    let length = pointer.length.get() as usize;
    match plan {
        Plan::NoData => Ok(Located::Here(Payload::NoData)),
        Plan::ToHost(bytes) => match pointer.kind {
            DataPointer::TRANSPORT if length >= bytes => Ok(Located::ToHost(bytes)),
            DataPointer::TRANSPORT => Err(status::SGL_LENGTH),
            _ => Err(status::SGL_TYPE),
        },
        Plan::FromHost(bytes) => match pointer.kind {
            DataPointer::TRANSPORT | DataPointer::IN_CAPSULE if length != bytes => {
                Err(status::SGL_LENGTH)
            }
            DataPointer::TRANSPORT => Ok(Located::AtHost(bytes)),
            DataPointer::IN_CAPSULE => {
                let start = usize::try_from(pointer.address.get()).ok();
                let range = start.and_then(|start| Some(start..start.checked_add(length)?));
                let data = range.and_then(|range| capsule.get(range));
                let data = data.ok_or(status::SGL_OFFSET)?;
                Ok(Located::Here(Payload::FromHost(data)))
            }
            _ => Err(status::SGL_TYPE),
        },
    }
}
