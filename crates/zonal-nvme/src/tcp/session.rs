//! One connection: ICReq, Connect, then the commands of a queue, on a thread of its own.
//!
//! Commands are executed in the order in which their data is complete. Reads, writes and appends
//! that have arrived together are one batch of the device (`pending.rs`). Responses are collected
//! while more PDUs are buffered, and sent together. The memory that a host can take here is
//! bounded: as many commands as the queue has entries, and buffers within the
//! [budget](zonal::budget).

use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};
use zonal::budget::{Buffer, Reservation};
use zonal::nvme::command::DataPointer;
use zonal::nvme::{CompletionEntry, NvmeStatus, Opcode, SubmissionEntry, status};

use super::output::Output;
use super::pdu::{self, COMMON_BYTES, DIGEST_BYTES, DataPdu, Digest, Fatal, FatalStatus, Frame};
use super::pdu::{ConnectionParams, IcPdu, PduType};
use super::peers::{Peer, Standing};
use super::pending::{Data, IN_CAPSULE_BYTES, Pending};
use super::stream::{self, Expected, Input, QUEUE_BUFFER, SMALL_BUFFER, Wait};
use super::transfers::{OWN_BYTES, Transfers};
use super::{Shared, discovery};
use crate::command::{Executed, Outcome, Payload, Plan, TRANSFER_MAX};
use crate::queue;
use crate::subsystem::controller::{ADMIN_ENTRIES_MAX, ENTRIES_MAX, IN_CAPSULE_MAX};
use crate::subsystem::{Controller, Link};
use crate::wire::fabrics::{
    Connect, ConnectData, ConnectFault, FlowControl, Property, command_type,
};

/// MAXH2CDATA: most bytes of data in one H2CData PDU.
const H2C_DATA_MAX: u32 = 256 * 1024;
/// Bytes of responses that are collected before they are sent.
const OUTPUT_MAX: usize = 256 * 1024;
/// Most bytes of PDUs that the output takes in addition to the data of a command: its header and
/// CapsuleResp, and an R2T for every entry of the queue.
const OUTPUT_SLACK: usize = 32 * 1024;
/// Memory of a connection without a queue: its receive buffer, and its thread.
pub(super) const CONNECTION_BYTES: usize = SMALL_BUFFER + 48 * 1024;
/// Memory that a queue takes in addition: buffers, and the commands it holds.
pub(super) const QUEUE_BYTES: usize = QUEUE_BUFFER
    + OWN_BYTES
    + OUTPUT_MAX
    + TRANSFER_MAX
    + OUTPUT_SLACK
    + IN_CAPSULE_BYTES
    + 224 * 1024;
/// How long a host may take to connect a queue.
const CONNECT_TIMEOUT_NS: u64 = 10_000_000_000;
/// How late a Keep Alive may be.
const KEEP_ALIVE_GRACE_MS: u64 = 1_000;
/// SQHD when SQ flow control is disabled.
const NO_FLOW_CONTROL: u16 = 0xffff;

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// A fatal transport error; the server sends the host the header in error.
    Fatal(Fatal, Vec<u8>),
    /// The connection was closed, or timed out.
    Io(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The queue of a connection.
pub(super) struct Queue {
    pub(super) controller: Arc<Controller>,
    id: u16,
    entries: u32,
    pub(super) flow_control: FlowControl,
    head: u32,
}

/// A connection.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    peer: Arc<Peer>,
    input: Input,
    pub(super) output: Output,
    pub(super) params: ConnectionParams,
    pub(super) queue: Option<Queue>,
    pub(super) transfers: Transfers,
    pub(super) pending: Pending,
    /// When the last command of the admin queue arrived, or the connection did. An I/O queue notes
    /// its commands at the controller.
    last_command_ns: u64,
    /// The memory of the connection, and that of its queue.
    _memory: Reservation,
    queue_memory: Option<Reservation>,
}

/// Another thread closes the connection.
impl Link for TcpStream {
    fn close(&self) {
        // It may be closed already.
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

impl<'a> Session<'a> {
    /// `memory` is [`CONNECTION_BYTES`].
    pub(super) fn new(shared: &'a Shared, peer: Arc<Peer>, memory: Reservation) -> Self {
        let (clock, stream) = (Arc::clone(&shared.clock), Arc::clone(&peer.stream));
        let since_ns = peer.heard_ns();
        Self {
            shared,
            input: Input::new(stream, clock, since_ns.saturating_add(CONNECT_TIMEOUT_NS)),
            peer,
            output: Output::default(),
            params: ConnectionParams::default(),
            queue: None,
            transfers: Transfers::new(Arc::clone(&shared.memory)),
            pending: Pending::default(),
            last_command_ns: since_ns,
            _memory: memory,
            queue_memory: None,
        }
    }

    /// Serves the connection until it ends.
    pub(super) fn run(mut self) -> End {
        let end = self.serve();
        self.execute_pending();
        if let End::Fatal(fatal, header) = &end {
            pdu::put_term_req(&mut self.output.pdus, *fatal, header);
        }
        // Earlier responses are sent as well. The host may be gone.
        let _ = self.send();
        if let Some(queue) = self.queue.take() {
            queue.controller.remove_queue(queue.id);
        }
        end
    }

    fn serve(&mut self) -> End {
        let Err(end) = self.initialize() else { return self.serve_pdus() };
        end
    }

    fn serve_pdus(&mut self) -> End {
        loop {
            if let Err(end) = self.serve_pdu() {
                return end;
            }
        }
    }

    /// Sends all responses, also those of commands that wait for others to join them.
    fn send(&mut self) -> io::Result<()> {
        self.execute_pending();
        stream::send(&self.peer.stream, &*self.shared.clock, &mut self.output.slices())?;
        self.output.clear();
        Ok(())
    }

    /// Waits for a PDU, and reads and checks its header.
    fn next_frame(&mut self, data_max: usize) -> Result<Frame, End> {
        let output_bytes = self.output.bytes() + self.pending.to_host_bytes();
        if self.input.buffered().len() < COMMON_BYTES || output_bytes >= OUTPUT_MAX {
            self.send()?;
        }
        let has_requested = self.transfers.expects_data();
        self.input.expect(if has_requested { Expected::Data } else { Expected::Commands });
        loop {
            self.send_event()?;
            let deadline = self.deadline();
            if self.input.wait(deadline)? == Wait::Ready {
                break;
            }
        }
        self.input.fill(COMMON_BYTES)?;
        let first: [u8; COMMON_BYTES] =
            self.input.buffered()[..COMMON_BYTES].try_into().expect("filled");
        let refuse = |fatal| End::Fatal(fatal, first.to_vec());
        let frame = Frame::parse(first, self.params, data_max).map_err(refuse)?;
        if self.input.buffered().len() < frame.head_bytes() {
            self.send()?;
        }
        self.input.fill(frame.head_bytes())?;
        let head = &self.input.buffered()[..frame.head_bytes()];
        frame.check_head(head).map_err(|fatal| End::Fatal(fatal, head.to_vec()))?;
        Ok(frame)
    }

    /// When the connection times out: before Connect, or by the keep alive timer. The host may have
    /// changed that timer, and a command on any of its queues restarts it (CTRATT, TBKAS).
    fn deadline(&mut self) -> Option<u64> {
        let timeout_ns = match &self.queue {
            None => CONNECT_TIMEOUT_NS,
            Some(queue) if queue.id == 0 => {
                let was_used = queue.controller.was_used();
                let keep_alive_ms = queue.controller.keep_alive_ms();
                if was_used {
                    self.last_command_ns = self.shared.clock.monotonic_ns();
                }
                self.peer.note(self.last_command_ns, Standing::of_timer(keep_alive_ms));
                (u64::from(keep_alive_ms?) + KEEP_ALIVE_GRACE_MS) * 1_000_000
            }
            Some(_) => return None,
        };
        Some(self.last_command_ns.saturating_add(timeout_ns))
    }

    /// Completes an Asynchronous Event Request if there is an event.
    fn send_event(&mut self) -> io::Result<()> {
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

    /// A fatal transport error about the PDU whose header is buffered.
    fn fatal(&self, frame: &Frame, fatal: Fatal) -> End {
        End::Fatal(fatal, self.input.buffered()[..frame.header_bytes].to_vec())
    }

    /// `ICReq` and `ICResp`.
    fn initialize(&mut self) -> Result<(), End> {
        let frame = self.next_frame(0)?;
        if frame.kind != PduType::ICReq {
            return Err(self.fatal(&frame, Fatal::of(FatalStatus::Sequence)));
        }
        let request = IcPdu::read_from_bytes(&self.input.buffered()[..frame.header_bytes]);
        let request = request.expect("the header is as long as its type says");
        if request.version.get() != 0 {
            let unsupported = Fatal { status: FatalStatus::Unsupported, info: 8 };
            return Err(self.fatal(&frame, unsupported));
        }
        if request.alignment > 31 {
            return Err(self.fatal(&frame, Fatal::header(10)));
        }
        self.input.take(frame.bytes());
        let digests = request.digests & 3;
        let response = IcPdu {
            alignment: 0,
            digests,
            limit: H2C_DATA_MAX.into(),
            reserved: [0; 112],
            ..request
        };
        pdu::put(
            &mut self.output.pdus,
            PduType::ICResp,
            0,
            response.as_bytes(),
            &[],
            ConnectionParams::default(),
        );
        let alignment = (usize::from(request.alignment) + 1) * 4;
        self.params = ConnectionParams { alignment, ..ConnectionParams::digests(digests) };
        Ok(())
    }

    fn serve_pdu(&mut self) -> Result<(), End> {
        let frame = self.next_frame(H2C_DATA_MAX as usize)?;
        match frame.kind {
            PduType::CapsuleCmd => self.command(&frame)?,
            PduType::H2CData => self.h2c_data(&frame)?,
            PduType::H2CTermReq => {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
            PduType::ICReq => {
                return Err(self.fatal(&frame, Fatal::of(FatalStatus::Sequence)));
            }
            PduType::ICResp
            | PduType::C2HTermReq
            | PduType::CapsuleResp
            | PduType::C2HData
            | PduType::R2T => return Err(self.fatal(&frame, Fatal::header(0))),
        }
        self.request_data();
        Ok(())
    }

    /// CapsuleCmd: a command, perhaps with in-capsule data.
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
            Some(_) => {
                self.last_command_ns = self.shared.clock.monotonic_ns();
                self.peer.note(self.last_command_ns, Standing::Timed);
            }
            // Before Connect, a command does not extend the time limit.
            None => {}
        }
        let entries = self.queue.as_ref().map_or(1, |queue| queue.entries) as usize;
        if self.transfers.len() + self.pending.len() >= entries {
            return Err(self.fatal(frame, Fatal::of(FatalStatus::Sequence)));
        }
        let capsule = self.input.take(frame.bytes());
        let entry = SubmissionEntry::read_from_bytes(&capsule[COMMON_BYTES..frame.header_bytes]);
        let entry = entry.expect("the header is as long as its type says");
        let mut data = None;
        let mut is_damaged = false;
        if frame.data_bytes > 0 {
            let (sent, digest) = capsule[frame.data_at..].split_at(frame.data_bytes);
            is_damaged = frame.data_digest == Digest::On && !pdu::is_digest_of(sent, digest);
            let mut buffer = self.shared.memory.buffer(frame.data_bytes);
            buffer.data_mut().copy_from_slice(sent);
            data = Some(buffer);
        }
        let id = entry.id.get();
        if let Some(queue) = &mut self.queue {
            queue.head = (queue.head + 1) % queue.entries;
        }
        if self.transfers.contains(id) || self.pending.contains(id) {
            self.respond(id, Err(status::ID_CONFLICT));
        } else if is_damaged {
            self.respond(id, Err(status::TRANSIENT_TRANSPORT));
        } else {
            self.execute_capsule(entry, data);
        }
        Ok(())
    }

    fn execute_capsule(&mut self, entry: SubmissionEntry, capsule: Option<Buffer>) {
        let data = capsule.as_ref().map_or(&[][..], Buffer::data);
        if entry.opcode() == Opcode::FABRICS {
            return self.fabrics(&entry, data);
        }
        let Some(queue) = &self.queue else {
            return self.respond(entry.id.get(), Err(status::SEQUENCE));
        };
        let planned = queue::plan(&queue.controller, queue.id, &entry);
        let joins = self.joins_others(&entry);
        match planned.and_then(|plan| locate(&entry, plan, data.len())) {
            Ok(Located::Nowhere) => self.execute(&entry, Payload::NoData),
            Ok(Located::InCapsule(range)) => match capsule {
                Some(capsule) if joins => {
                    self.make_room_for(&entry);
                    self.join(entry, Data::InCapsule(capsule, range));
                }
                Some(capsule) => {
                    self.execute(&entry, Payload::FromHost(&capsule.data()[range]));
                }
                None => self.execute(&entry, Payload::FromHost(&[])),
            },
            Ok(Located::ToHost(bytes)) if joins => {
                self.make_room_for(&entry);
                let buffer = self.shared.memory.buffer(bytes);
                self.join(entry, Data::ToHost(buffer));
            }
            Ok(Located::ToHost(bytes)) => self.execute_to_host(&entry, bytes),
            Ok(Located::AtHost(bytes)) => self.transfers.add(entry, bytes),
            Err(status) => self.answer(&entry, Err(status)),
        }
    }

    /// Whether a command is executed together with others.
    fn joins_others(&self, entry: &SubmissionEntry) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.id != 0 && queue::joins_others(entry))
    }

    /// Executes a command that sends no data to the host.
    fn execute(&mut self, entry: &SubmissionEntry, payload: Payload<'_>) {
        self.execute_pending();
        let queue = self.queue.as_ref().expect("planned by its controller");
        let executed = queue::execute(&queue.controller, queue.id, entry, payload);
        self.answer(entry, executed);
    }

    /// Executes another command that sends data to the host.
    fn execute_to_host(&mut self, entry: &SubmissionEntry, bytes: usize) {
        self.execute_pending();
        let queue = self.queue.as_ref().expect("planned by its controller");
        let mut data = self.shared.memory.buffer(bytes);
        // These commands do not write zero fields.
        data.data_mut().fill(0);
        let payload = Payload::ToHost(data.data_mut());
        let executed = queue::execute(&queue.controller, queue.id, entry, payload);
        self.answer_with(entry, executed, data);
    }

    /// Answers a command of a queue. If it failed, it is added to the error log.
    pub(super) fn answer(&mut self, entry: &SubmissionEntry, executed: Executed) {
        if let (Err(status), Some(queue)) = (executed, &self.queue) {
            queue.controller.log_error(queue.id, entry, status);
        }
        self.respond(entry.id.get(), executed);
    }

    /// Answers a command, unless it is an outstanding event request.
    fn respond(&mut self, id: u16, executed: Executed) {
        let (result, status) = match executed {
            Ok(Outcome::Outstanding) => return,
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
        pdu::put_response(&mut self.output.pdus, &completion, self.params);
    }

    /// Sends R2Ts.
    pub(super) fn request_data(&mut self) {
        while let Some(r2t) = self.transfers.request() {
            pdu::put(&mut self.output.pdus, PduType::R2T, 0, r2t.as_bytes(), &[], self.params);
        }
    }

    /// H2CData: data of a command.
    fn h2c_data(&mut self, frame: &Frame) -> Result<(), End> {
        let header = DataPdu::read_from_bytes(&self.input.buffered()[..frame.header_bytes]);
        let header = header.expect("the header is as long as its type says");
        let checked = self.transfers.check(&header, frame);
        let range = checked.map_err(|fatal| self.fatal(frame, fatal))?;
        if self.input.buffered().len() < frame.bytes() {
            self.send()?;
        }
        self.input.fill(frame.data_at)?;
        self.input.take(frame.data_at);
        let (id, end) = (header.tag.get(), range.end);
        let part = self.transfers.part(id, range);
        self.input.read_into(part)?;
        if frame.data_digest == Digest::On {
            self.input.fill(DIGEST_BYTES)?;
            if !pdu::is_digest_of(part, self.input.take(DIGEST_BYTES)) {
                self.transfers.damaged(id);
            }
        }
        match self.transfers.received(id, end) {
            None => {}
            Some(received) if received.damaged => {
                self.respond(id, Err(status::TRANSIENT_TRANSPORT));
                self.transfers.release(received);
            }
            Some(received) if self.joins_others(&received.entry) => {
                self.make_room_for(&received.entry);
                self.join(received.entry, Data::Received(received));
            }
            Some(received) => {
                self.execute(&received.entry, Payload::FromHost(received.buffer.data()));
                self.transfers.release(received);
            }
        }
        Ok(())
    }

    /// A Fabrics command.
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

    /// Connect: makes this connection a queue. Returns the controller identifier, or the status and
    /// the result that names the invalid field.
    fn connect(&mut self, entry: &SubmissionEntry, data: &[u8]) -> Result<u16, (NvmeStatus, u64)> {
        let plain = |status| (status, 0);
        let asked = Connect::decode(entry).map_err(plain)?;
        let plan = Plan::FromHost(size_of::<ConnectData>());
        let data = match locate(entry, plan, data.len()).map_err(plain)? {
            Located::InCapsule(range) => &data[range],
            Located::Nowhere | Located::ToHost(_) | Located::AtHost(_) => {
                return Err(plain(status::SGL_TYPE));
            }
        };
        let data = ConnectData::read_from_bytes(data).map_err(|_| plain(status::SGL_LENGTH))?;
        let most = if asked.queue == 0 { ADMIN_ENTRIES_MAX.into() } else { ENTRIES_MAX };
        if asked.entries < 2 || asked.entries > most {
            return Err((status::CONNECT_PARAMETERS, 44));
        }
        // So that making room does not close this connection.
        self.peer.note(self.last_command_ns, Standing::Timed);
        let memory = self.shared.make_room(|| self.shared.memory.reserve(QUEUE_BYTES));
        let Some(memory) = memory else {
            tracing::warn!("a queue is refused: the memory for connections is used up");
            return Err(plain(status::CONNECT_BUSY));
        };
        let subsystem = &self.shared.subsystem;
        let found = if asked.queue == 0 {
            let local = self.peer.stream.local_addr().map_err(|_| plain(status::INTERNAL))?;
            subsystem.create_controller(&data, &discovery::entry(subsystem.nqn(), local))
        } else {
            subsystem.find_controller(&data)
        };
        let controller =
            found.map_err(|(status, fault)| (status, fault.map_or(0, ConnectFault::encode)))?;
        let link: Arc<dyn Link> = self.peer.stream.clone();
        if let Err(status) = controller.add_queue(asked.queue, link) {
            // Byte 42 of the command: QID.
            return Err((status, 42));
        }
        if asked.queue == 0 {
            controller.set_keep_alive_ms(asked.keep_alive_ms);
            self.last_command_ns = self.shared.clock.monotonic_ns();
            let host = &controller.host().nqn;
            tracing::info!(host, controller = controller.id(), "connected");
        }
        let id = controller.id();
        let Connect { queue, entries, flow_control, .. } = asked;
        self.queue_memory = Some(memory);
        self.input.connected();
        // SQHD counts this command as well.
        self.queue = Some(Queue { controller, id: queue, entries, flow_control, head: 1 });
        Ok(id)
    }
}

/// Where the data of a command is or goes.
enum Located {
    /// There is none.
    Nowhere,
    /// In the capsule: this part of the data there.
    InCapsule(Range<usize>),
    /// At the host: it has to be requested.
    AtHost(usize),
    /// To the host.
    ToHost(usize),
}

/// Compares the data that a command transfers with its data pointer, and with the bytes of data
/// that its capsule has.
fn locate(entry: &SubmissionEntry, plan: Plan, capsule: usize) -> Result<Located, NvmeStatus> {
    let pointer = &entry.data;
    let length = pointer.length.get() as usize;
    match plan {
        Plan::NoData => Ok(Located::Nowhere),
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
                let range = range.filter(|range| range.end <= capsule);
                range.map(Located::InCapsule).ok_or(status::SGL_OFFSET)
            }
            _ => Err(status::SGL_TYPE),
        },
    }
}
