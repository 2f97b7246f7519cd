//! The host: keeps a number of operations going on one connection, and looks at no data.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use zerocopy::IntoBytes;
use zonal::crc32c;
use zonal::nvme::command::DataPointer;
use zonal::nvme::decode::{BlockRange, Durability, SendTarget, ZoneSend, ZoneSendAction};
use zonal::nvme::{Nsid, Opcode, SubmissionEntry};
use zonal::{Lba, LbaCount, ZoneAction};
use zonal_nvme::tcp::pdu::{self, COMMON_BYTES, ConnectionParams, DataPdu, PduType, flag};

use crate::NQN;
use crate::initiator::{Host, Move, Queue, Style};

const ONE: Nsid = Nsid::new(1);
/// Data that goes with the command.
const CAPSULE_MAX: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub op: Op,
    pub bytes: usize,
    pub depth: u32,
    pub count: u32,
}

/// How the host speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Commands and data.
    PDUs,
    /// The same with digests.
    Digests,
    /// Bytes in one direction.
    Stream,
}

/// A connection that is ready to work.
pub struct Turn {
    work: Work,
    way: Way,
    stream: TcpStream,
    /// Keeps the controller.
    _host: Option<(Host, Queue)>,
    params: ConnectionParams,
    data: Vec<u8>,
    /// The digest of the data, which is always the same; empty without digests.
    digest: Vec<u8>,
    sent: u32,
}

impl Turn {
    /// Connects. Zones are written before they are read, and empty before they are written.
    pub fn prepare(address: SocketAddr, way: Way, work: Work) -> Self {
        let target = address.port();
        let host = (way != Way::Stream && is_nvme(address)).then(|| {
            let digests = if way == Way::Digests { 3 } else { 0 };
            let host = Host::connect(address, NQN, Style { digests, ..Style::PLAIN });
            let mut queue = host.queue(1).unwrap();
            zones(&mut queue, work);
            (host, queue)
        });
        let (stream, params) = match &host {
            Some((_, queue)) => (queue.stream.try_clone().unwrap(), queue.params),
            None => {
                (TcpStream::connect(("127.0.0.1", target)).unwrap(), ConnectionParams::default())
            }
        };
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(None).unwrap();
        let data = vec![7; work.bytes];
        let digest = match way {
            Way::Digests => crc32c::crc32c(&data).to_le_bytes().to_vec(),
            Way::PDUs | Way::Stream => Vec::new(),
        };
        Self { work, way, stream, _host: host, params, data, digest, sent: 0 }
    }

    /// Does the work.
    pub fn run(&mut self) {
        match self.way {
            Way::PDUs | Way::Digests => self.operate(),
            Way::Stream => self.transfer(),
        }
    }

    fn operate(&mut self) {
        let Work { depth, count, .. } = self.work;
        let mut input = vec![0; 1 << 20];
        let mut have = 0;
        let mut output = Vec::new();
        (0..depth).for_each(|_| self.command(&mut output));
        self.put(&mut output);
        let mut done = 0;
        while done < count {
            let received = self.stream.read(&mut input[have..]).unwrap();
            assert!(received > 0, "the connection holds");
            have += received;
            let mut at = 0;
            while have - at >= COMMON_BYTES {
                let pdu = &input[at..have];
                let bytes = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize;
                if pdu.len() < bytes {
                    break;
                }
                if pdu[0] == PduType::CapsuleResp.code() {
                    assert_eq!(pdu[22..24], [0, 0], "success");
                    done += 1;
                    if self.sent < count {
                        self.command(&mut output);
                    }
                } else if pdu[0] == PduType::R2T.code() {
                    let (id, tag) = ([pdu[8], pdu[9]], [pdu[10], pdu[11]]);
                    self.host_data(u16::from_le_bytes(id), u16::from_le_bytes(tag));
                } else {
                    assert_eq!(pdu[0], PduType::C2HData.code(), "data");
                }
                at += bytes;
            }
            input.copy_within(at..have, 0);
            have -= at;
            self.put(&mut output);
        }
    }

    fn put(&mut self, output: &mut Vec<u8>) {
        self.stream.write_all(output).unwrap();
        output.clear();
    }

    /// The next command, each behind the one before.
    fn command(&mut self, output: &mut Vec<u8>) {
        let blocks = self.work.bytes as u64 / 4096;
        let first = Lba::new(u64::from(self.sent) * blocks);
        let opcode = match self.work.op {
            Op::Read => Opcode::READ,
            Op::Write => Opcode::WRITE,
        };
        let (blocks, durability) = (LbaCount::new(blocks), Durability::Volatile);
        let mut entry = BlockRange { first, blocks, durability }.encode(opcode, ONE);
        entry.id = u16::try_from(self.sent % 1024).unwrap().into();
        let bytes = u32::try_from(self.work.bytes).unwrap();
        let here = self.work.op == Op::Write && self.work.bytes <= CAPSULE_MAX;
        entry.data =
            if here { DataPointer::in_capsule(bytes) } else { DataPointer::transport(bytes) };
        self.sent += 1;
        let mut header = [0; COMMON_BYTES + size_of::<SubmissionEntry>()];
        header[COMMON_BYTES..].copy_from_slice(entry.as_bytes());
        let data = if here { &self.data[..] } else { &[] };
        pdu::put(output, PduType::CapsuleCmd, 0, &header, data, self.params);
    }

    /// Sends all data of a command, from the place where it lies.
    fn host_data(&mut self, id: u16, tag: u16) {
        let header = DataPdu::new(id, tag, &(0..self.data.len()));
        let mut head = Vec::new();
        // Header and data are made together, and only the header is kept: with digests that is
        // work of the host which the server does not wait for.
        pdu::put(
            &mut head,
            PduType::H2CData,
            flag::LAST,
            header.as_bytes(),
            &self.data,
            self.params,
        );
        head.truncate(head.len() - self.data.len() - self.digest.len());
        self.stream.write_all(&head).unwrap();
        self.stream.write_all(&self.data).unwrap();
        self.stream.write_all(&self.digest).unwrap();
    }

    /// Moves as many bytes in one direction; the first byte tells the server which.
    fn transfer(&mut self) {
        let total = self.work.bytes as u64 * u64::from(self.work.count);
        let mut buffer = vec![0; 128 << 10];
        let mut head = [0; 16];
        head[0] = match self.work.op {
            Op::Read => b'r',
            Op::Write => b'w',
        };
        head[8..].copy_from_slice(&total.to_le_bytes());
        self.stream.write_all(&head).unwrap();
        match self.work.op {
            Op::Read => {
                let mut left = total;
                while left > 0 {
                    left -= self.stream.read(&mut buffer).unwrap() as u64;
                }
            }
            Op::Write => {
                (0..self.work.count).for_each(|_| self.stream.write_all(&self.data).unwrap());
                self.stream.read_exact(&mut buffer[..1]).unwrap();
            }
        }
    }
}

/// Whether an NVMe target listens there: the limit's server closes a connection that begins like
/// one to a target.
fn is_nvme(address: SocketAddr) -> bool {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[b'?'; 16]).unwrap();
    let mut answer = [0; 1];
    matches!(stream.read(&mut answer), Ok(1)) && answer[0] == PduType::C2HTermReq.code()
}

/// Makes zones as the work needs them.
fn zones(queue: &mut Queue, work: Work) {
    let send = |action, zones| ZoneSend { action: ZoneSendAction::Manage(action), zones };
    let full = SendTarget::All;
    match work.op {
        Op::Write => {
            queue.command(send(ZoneAction::Reset, full).encode(ONE), &Move::Nothing).unwrap();
        }
        Op::Read => {
            let data = vec![7; 1 << 20];
            let last = work.bytes as u64 * u64::from(work.count) / 4096 - 256;
            let written = |queue: &mut Queue, first| {
                let (blocks, durability) = (LbaCount::new(256), Durability::Volatile);
                let write = BlockRange { first, blocks, durability };
                queue.command(write.encode(Opcode::WRITE, ONE), &Move::Send(&data)).is_ok()
            };
            queue.command(send(ZoneAction::Reset, full).encode(ONE), &Move::Nothing).unwrap();
            for first in (0..=last).step_by(256) {
                assert!(written(queue, Lba::new(first)), "room for it");
            }
        }
    }
    queue.sent.clear();
}
