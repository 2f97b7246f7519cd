//! A host in user space, as small as a test needs: queues that block, one command at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zonal::nvme::command::DataPointer;
use zonal::nvme::{CompletionEntry, NvmeStatus, SubmissionEntry, name, status};
use zonal_nvme::tcp::pdu::{
    self, COMMON_BYTES, CommonHeader, ConnectionParams, DataPdu, Digest, Frame, IcPdu, PduType,
    flag,
};
use zonal_nvme::wire::fabrics::{Connect, ConnectData, DYNAMIC_CONTROLLER, FlowControl, Property};

pub const HOST: &str = "nqn.2026-11.localhost:host";

/// Where the data of a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the capsule, if it fits.
    Capsule,
    /// Always when asked for.
    Request,
}

/// How a host uses its connections.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub digests: u8,
    /// HPDA.
    pub alignment: u8,
    pub placement: Placement,
    pub flow_control: FlowControl,
    /// KATO.
    pub keep_alive_ms: Option<u32>,
}

impl Style {
    pub const PLAIN: Self = Self {
        digests: 0,
        alignment: 0,
        placement: Placement::Capsule,
        flow_control: FlowControl::On,
        keep_alive_ms: Some(5000),
    };
    pub const EVERYTHING: Self = Self {
        digests: 3,
        alignment: 7,
        placement: Placement::Request,
        flow_control: FlowControl::Off,
        keep_alive_ms: Some(5000),
    };
}

/// The data of a command.
pub enum Move<'a> {
    Nothing,
    Send(&'a [u8]),
    Receive(usize),
}

/// One connection.
pub struct Queue {
    pub stream: TcpStream,
    pub params: ConnectionParams,
    style: Style,
    host_data_max: usize,
    next_id: u16,
    /// Every PDU so far.
    pub sent: Vec<Vec<u8>>,
}

pub type Answer = Result<(u64, Vec<u8>), NvmeStatus>;

impl Queue {
    /// `ICReq` and `ICResp`.
    pub fn open(address: SocketAddr, style: Style) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = IcPdu {
            common: CommonHeader::UNSET,
            version: 0.into(),
            alignment: style.alignment,
            digests: style.digests,
            limit: 0.into(),
            reserved: [0; 112],
        };
        let mut out = Vec::new();
        pdu::put(&mut out, PduType::ICReq, 0, request.as_bytes(), &[], ConnectionParams::default());
        stream.write_all(&out).unwrap();
        let sent = vec![out];
        let mut bytes = [0; 128];
        stream.read_exact(&mut bytes).unwrap();
        let response = IcPdu::read_from_bytes(&bytes).unwrap();
        assert_eq!(response.common.kind, PduType::ICResp.code());
        assert_eq!(response.digests, style.digests);
        let host_data_max = response.limit.get() as usize;
        let params = ConnectionParams::digests(style.digests);
        Self { stream, params, style, host_data_max, next_id: 1, sent }
    }

    fn put(&mut self, pdu: Vec<u8>) {
        self.stream.write_all(&pdu).unwrap();
        self.sent.push(pdu);
    }

    /// Sends a command and waits for its end.
    pub fn command(&mut self, entry: SubmissionEntry, data: &Move<'_>) -> Answer {
        let id = self.send(entry, data);
        let (completion, received) = self.complete(id, data);
        match completion.status() {
            status::SUCCESS => Ok((completion.result.get(), received)),
            status => Err(status),
        }
    }

    /// Sends a command and returns its identifier.
    pub fn send(&mut self, entry: SubmissionEntry, data: &Move<'_>) -> u16 {
        let (id, pdu) = self.capsule(entry, data);
        self.put(pdu);
        id
    }

    /// Sends commands in one piece and waits for the end of all.
    pub fn batch(&mut self, commands: &[(SubmissionEntry, Move<'_>)]) -> Vec<Answer> {
        let (ids, pdus): (Vec<u16>, Vec<_>) =
            commands.iter().map(|(entry, data)| self.capsule(*entry, data)).unzip();
        self.put(pdus.concat());
        let mut received = vec![Vec::new(); ids.len()];
        let mut answers = vec![None; ids.len()];
        while answers.contains(&None) {
            let (frame, pdu) = self.receive().expect("the connection holds");
            let number = |id: u16| ids.iter().position(|&found| found == id).unwrap();
            match frame.kind {
                PduType::C2HData => {
                    let header = DataPdu::read_from_bytes(&pdu[..24]).unwrap();
                    let number = number(header.command.get());
                    received[number].extend_from_slice(&pdu[frame.data_at..][..frame.data_bytes]);
                    if frame.flags & flag::SUCCESS != 0 {
                        answers[number] = Some(Ok((0, std::mem::take(&mut received[number]))));
                    }
                }
                PduType::R2T => {
                    let header = DataPdu::read_from_bytes(&pdu[..24]).unwrap();
                    let id = header.command.get();
                    let Move::Send(data) = commands[number(id)].1 else { panic!("no data") };
                    self.send_data(id, &header, data);
                }
                PduType::CapsuleResp => {
                    let completion = CompletionEntry::read_from_bytes(&pdu[8..24]).unwrap();
                    let number = number(completion.id.get());
                    answers[number] = Some(match completion.status() {
                        status::SUCCESS => {
                            Ok((completion.result.get(), std::mem::take(&mut received[number])))
                        }
                        status => Err(status),
                    });
                }
                other => panic!("{other:?}: {pdu:02x?}"),
            }
        }
        answers.into_iter().flatten().collect()
    }

    /// A command as it is sent, and its identifier.
    fn capsule(&mut self, mut entry: SubmissionEntry, data: &Move<'_>) -> (u16, Vec<u8>) {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1).max(1);
        entry.id = id.into();
        let connect = entry.opcode == 0x7f;
        let here = match *data {
            Move::Nothing => &[][..],
            Move::Receive(bytes) => {
                entry.data = DataPointer::transport(u32::try_from(bytes).unwrap());
                &[]
            }
            Move::Send(data) => {
                let bytes = u32::try_from(data.len()).unwrap();
                if connect || self.style.placement == Placement::Capsule && bytes <= 8192 {
                    entry.data = DataPointer::in_capsule(bytes);
                    data
                } else {
                    entry.data = DataPointer::transport(bytes);
                    &[]
                }
            }
        };
        let mut header = [0; COMMON_BYTES + 64];
        header[COMMON_BYTES..].copy_from_slice(entry.as_bytes());
        let mut out = Vec::new();
        pdu::put(&mut out, PduType::CapsuleCmd, 0, &header, here, self.params);
        (id, out)
    }

    /// Waits for the end of a command that moves no data.
    pub fn wait_for(&mut self, id: u16) -> (CompletionEntry, Vec<u8>) {
        self.complete(id, &Move::Nothing)
    }

    fn complete(&mut self, id: u16, data: &Move<'_>) -> (CompletionEntry, Vec<u8>) {
        let mut received = Vec::new();
        loop {
            let (frame, pdu) = self.receive().expect("the connection holds");
            match frame.kind {
                PduType::C2HData => {
                    let header = DataPdu::read_from_bytes(&pdu[..24]).unwrap();
                    assert_eq!(header.command.get(), id);
                    assert_eq!(header.offset.get() as usize, received.len());
                    let align = (usize::from(self.style.alignment) + 1) * 4;
                    assert!(frame.data_at.is_multiple_of(align), "data at {}", frame.data_at);
                    received.extend_from_slice(&pdu[frame.data_at..][..frame.data_bytes]);
                    if frame.flags & flag::SUCCESS != 0 {
                        assert_eq!(self.style.flow_control, FlowControl::Off);
                        return (CompletionEntry::new_zeroed(), received);
                    }
                }
                PduType::R2T => {
                    let Move::Send(data) = *data else { panic!("asked for no data's data") };
                    self.send_data(id, &DataPdu::read_from_bytes(&pdu[..24]).unwrap(), data);
                }
                PduType::CapsuleResp => {
                    let completion = CompletionEntry::read_from_bytes(&pdu[8..24]).unwrap();
                    assert_eq!(completion.id.get(), id);
                    return (completion, received);
                }
                other => panic!("{other:?}: {pdu:02x?}"),
            }
        }
    }

    /// The end of whichever command ends next.
    pub fn next_completion(&mut self) -> CompletionEntry {
        let (frame, pdu) = self.receive().expect("the connection holds");
        assert_eq!(frame.kind, PduType::CapsuleResp, "{pdu:02x?}");
        CompletionEntry::read_from_bytes(&pdu[8..24]).unwrap()
    }

    /// Whether nothing arrives for a moment.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let silent = self.stream.peek(&mut [0]).is_err();
        self.stream.set_read_timeout(None).unwrap();
        silent
    }

    /// Answers an R2T.
    pub fn send_data(&mut self, id: u16, request: &DataPdu, data: &[u8]) {
        let start = request.offset.get() as usize;
        let end = start + request.length.get() as usize;
        let mut at = start;
        while at < end {
            // Smaller than allowed, so that also small transfers come in parts.
            let next = (at + self.host_data_max.min(12_288)).min(end);
            let header = DataPdu::new(id, request.tag.get(), &(at..next));
            let flags = if next == end { flag::LAST } else { 0 };
            let mut out = Vec::new();
            pdu::put(
                &mut out,
                PduType::H2CData,
                flags,
                header.as_bytes(),
                &data[at..next],
                self.params,
            );
            self.put(out);
            at = next;
        }
    }

    /// The next PDU, its digests checked; `None` when the connection has ended.
    pub fn receive(&mut self) -> Option<(Frame, Vec<u8>)> {
        let mut first = [0; COMMON_BYTES];
        self.stream.read_exact(&mut first).ok()?;
        let frame = Frame::parse(first, self.params, usize::MAX).unwrap();
        let mut pdu = first.to_vec();
        pdu.resize(frame.bytes(), 0);
        self.stream.read_exact(&mut pdu[COMMON_BYTES..]).ok()?;
        frame.check_head(&pdu[..frame.head_bytes()]).unwrap();
        if frame.data_digest == Digest::On {
            let (data, digest) = pdu[frame.data_at..].split_at(frame.data_bytes);
            assert!(pdu::is_digest_of(data, digest), "the data's digest is right");
        }
        Some((frame, pdu))
    }
}

/// A host that is connected to a subsystem.
pub struct Host {
    pub admin: Queue,
    pub controller: u16,
    address: SocketAddr,
    nqn: String,
    name: String,
    style: Style,
}

impl Host {
    /// Connects an admin queue and enables the controller.
    pub fn connect(address: SocketAddr, nqn: &str, style: Style) -> Self {
        Self::connect_as(HOST, address, nqn, style).unwrap()
    }

    pub fn connect_as(
        host: &str,
        address: SocketAddr,
        nqn: &str,
        style: Style,
    ) -> Result<Self, NvmeStatus> {
        let mut admin = Queue::open(address, style);
        let data = connect_data(host, nqn, DYNAMIC_CONTROLLER);
        let (id, _) = admin.command(connect(0, style), &Move::Send(data.as_bytes()))?;
        let controller = u16::try_from(id & 0xffff).unwrap();
        let (nqn, name) = (nqn.to_owned(), host.to_owned());
        let mut host = Self { admin, controller, address, nqn, name, style };
        let get = |admin: &mut Queue, property: Property| {
            admin.command(property.get(), &Move::Nothing).unwrap().0
        };
        assert_eq!(get(&mut host.admin, Property::Status), 0);
        host.admin.command(Property::Configuration.set(0x0046_0061), &Move::Nothing)?;
        assert_eq!(get(&mut host.admin, Property::Status), 1, "ready");
        Ok(host)
    }

    /// Connects an I/O queue.
    pub fn queue(&self, number: u16) -> Result<Queue, NvmeStatus> {
        let mut queue = Queue::open(self.address, self.style);
        let data = connect_data(&self.name, &self.nqn, self.controller);
        queue.command(connect(number, self.style), &Move::Send(data.as_bytes()))?;
        Ok(queue)
    }
}

pub fn connect(queue: u16, style: Style) -> SubmissionEntry {
    let Style { flow_control, keep_alive_ms, .. } = style;
    Connect { queue, entries: 128, flow_control, keep_alive_ms }.encode()
}

pub fn connect_data(host: &str, nqn: &str, controller: u16) -> ConnectData {
    let mut data = ConnectData::new_zeroed();
    data.host_id = [5; 16];
    data.controller_id = controller.into();
    data.subsystem = name(nqn);
    data.host = name(host);
    data
}
