//! The fuzz target `nvme_tcp` parses bytes as PDUs of NVMe/TCP, and sends them to a server as a
//! host. Nothing may panic, and every connection must end.
//!
//! `cargo fuzz run nvme_tcp` runs it with libFuzzer; `crates/zonal-nvme/tests/nvme_tcp_hostile/`
//! runs it over `fixtures/corpus/nvme_tcp/`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zonal::nvme::SubmissionEntry;
use zonal::nvme::name;
use zonal::spec::open_stack;
use zonal::{ManualClock, OpenMode};
use zonal_nvme::extension::ExtensionSize;
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::pdu::{
    self, COMMON_BYTES, CommonHeader, ConnectionParams, Frame, IcPdu, PduType,
};
use zonal_nvme::tcp::{MEMORY_MAX, Server};
use zonal_nvme::wire::fabrics::{Connect, ConnectData, DYNAMIC_CONTROLLER, FlowControl, Property};
use zonal_nvme::{Namespace, Subsystem};

const NQN: &str = "nqn.2026-11.localhost:fuzz";

/// Parses the PDUs, then sends them. The first byte names the start of the session.
pub(crate) fn nvme_tcp(data: &[u8]) {
    let Some((&how, pdus)) = data.split_first() else { return };
    parse(pdus, ConnectionParams::digests(how >> 6));
    session(how, pdus);
}

/// A PDU that the parser accepts has its parts in order, and is as long as it says.
fn parse(mut bytes: &[u8], agreed: ConnectionParams) {
    while let Some((first, _)) = bytes.split_first_chunk() {
        let Ok(frame) = Frame::parse(*first, agreed, 1 << 18) else { return };
        assert!(frame.head_bytes() <= frame.data_at, "{frame:?}");
        assert!(frame.data_at + frame.data_bytes <= frame.bytes(), "{frame:?}");
        let length = u32::from_le_bytes([first[4], first[5], first[6], first[7]]);
        assert_eq!(frame.bytes(), length as usize, "{frame:?}");
        let Some((pdu, rest)) = bytes.split_at_checked(frame.bytes()) else { return };
        let _ = frame.check_head(&pdu[..frame.head_bytes()]);
        bytes = rest;
    }
}

/// Where the server of this process listens.
fn server() -> SocketAddr {
    static SERVER: OnceLock<(Server, SocketAddr)> = OnceLock::new();
    let (_, address) = SERVER.get_or_init(|| {
        let clock = Arc::new(ManualClock::new(0));
        let spec = "mem:zone=192K,zones=8,open=3,active=5";
        let stack = open_stack(spec, OpenMode::ReadWrite, clock.clone()).expect("a sound drive");
        let namespace = Namespace::new(stack, "a device", [1; 16]).expect("no conventional zones");
        let size = ExtensionSize::from_bytes(64).expect("a multiple of 64");
        let namespaces = vec![namespace.with_extensions(size)];
        let subsystem = Subsystem::new(NQN, namespaces, Hosts::All).expect("a sound name");
        let anywhere = ["127.0.0.1:0".parse().expect("an address")];
        let server =
            Server::start(Arc::new(subsystem), &anywhere, MEMORY_MAX, clock).expect("a free port");
        let address = server.addresses()[0];
        (server, address)
    });
    *address
}

/// Sends the start that `how` names, then the bytes: as they are, or each 64 of them as a command
/// with right digests; and waits for the server to end the connection.
fn session(how: u8, bytes: &[u8]) {
    let (params, address) = (ConnectionParams::digests(how >> 6), server());
    let admin = (how & 3 == 3).then(|| {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream
            .write_all(&start(ConnectionParams::default(), 0, DYNAMIC_CONTROLLER))
            .expect("it reads");
        let mut answer = [0; 128 + 24];
        stream.read_exact(&mut answer).expect("ICResp, and the completion of Connect");
        (u16::from_le_bytes([answer[136], answer[137]]), stream)
    });
    let mut sent = match how & 3 {
        0 => Vec::new(),
        1 => initialize(params),
        2 => start(params, 0, DYNAMIC_CONTROLLER),
        _ => start(params, 1, admin.as_ref().map_or(0, |(controller, _)| *controller)),
    };
    if how & 4 == 0 {
        sent.extend_from_slice(bytes);
    } else {
        for chunk in bytes.chunks(64) {
            let mut entry = [0; 64];
            entry[..chunk.len()].copy_from_slice(chunk);
            command(&mut sent, SubmissionEntry::ref_from_bytes(&entry).expect("64"), &[], params);
        }
    }
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
    // The server may end it before it has taken everything.
    let _ = stream.write_all(&sent);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it ends");
    }
}

fn initialize(params: ConnectionParams) -> Vec<u8> {
    let mut request = IcPdu::new_zeroed();
    request.common = CommonHeader::UNSET;
    request.digests = u8::from(params.header_digest == pdu::Digest::On)
        | u8::from(params.data_digest == pdu::Digest::On) << 1;
    let mut out = Vec::new();
    pdu::put(&mut out, PduType::ICReq, 0, request.as_bytes(), &[], ConnectionParams::default());
    out
}

/// Everything until a queue can be used, without waiting for answers.
fn start(params: ConnectionParams, queue: u16, controller: u16) -> Vec<u8> {
    let mut out = initialize(params);
    let (entries, flow_control) = (32, FlowControl::On);
    let mut data = ConnectData::new_zeroed();
    data.controller_id = controller.into();
    data.subsystem = name(NQN);
    data.host = name("nqn.2026-11.localhost:host");
    let connect = Connect { queue, entries, flow_control, keep_alive_ms: None }.encode();
    command(&mut out, &connect, data.as_bytes(), params);
    if queue == 0 {
        command(&mut out, &Property::Configuration.set(0x0046_0061), &[], params);
    }
    out
}

fn command(out: &mut Vec<u8>, entry: &SubmissionEntry, data: &[u8], params: ConnectionParams) {
    let mut header = [0; COMMON_BYTES + 64];
    header[COMMON_BYTES..].copy_from_slice(entry.as_bytes());
    pdu::put(out, PduType::CapsuleCmd, 0, &header, data, params);
}
