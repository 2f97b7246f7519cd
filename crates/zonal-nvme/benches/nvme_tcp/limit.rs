//! The least that a server has to do: PDUs of the right sizes go in and out, and mean nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use zonal_nvme::tcp::pdu::{COMMON_BYTES, PduType};

/// Like the target's: for received bytes, and for bytes that are collected before they are sent.
const BUFFER_BYTES: usize = 256 << 10;
const HEADER_BYTES: usize = 24;

/// Serves connections, each on a thread, until this process is ended.
pub fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stream in listener.incoming() {
        std::thread::spawn(move || {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            // The host ends the connection when it has enough.
            let _ = connection(stream);
        });
    }
}

fn connection(mut stream: TcpStream) -> std::io::Result<()> {
    let mut first = [0; 16];
    stream.read_exact(&mut first)?;
    let total = u64::from_le_bytes(first[8..].try_into().unwrap());
    match first[0] {
        b'r' => send(&mut stream, total),
        b'w' => receive(&mut stream, total),
        b'?' => Ok(()),
        _ => pdus(&mut stream, &first),
    }
}

fn send(stream: &mut TcpStream, mut total: u64) -> std::io::Result<()> {
    let buffer = vec![1; 128 << 10];
    while total > 0 {
        stream.write_all(&buffer)?;
        total -= buffer.len() as u64;
    }
    // The processor time is read before the connection ends.
    stream.read(&mut [0]).map(drop)
}

fn receive(stream: &mut TcpStream, mut total: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    while total > 0 {
        total -= stream.read(&mut buffer)? as u64;
    }
    stream.write_all(&[1])?;
    stream.read(&mut [0]).map(drop)
}

/// Answers PDUs: data for a read, a request for data or a completion for a write, a completion for
/// data.
fn pdus(stream: &mut TcpStream, first: &[u8]) -> std::io::Result<()> {
    let mut input = vec![0; BUFFER_BYTES];
    input[..first.len()].copy_from_slice(first);
    let mut have = first.len();
    let mut output = vec![0; 2 * BUFFER_BYTES];
    let mut ready = 0;
    // Bytes of data of the present PDU that have not arrived.
    let mut missing = 0;
    loop {
        let mut at = missing.min(have);
        missing -= at;
        while missing == 0 && have - at >= COMMON_BYTES {
            let pdu = &input[at..have];
            let bytes = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize;
            let head = usize::from(pdu[2]);
            if pdu.len() < head {
                break;
            }
            let is_data = pdu[0] == PduType::H2CData.code();
            if is_data || bytes > head {
                // The completion is early if data is missing, but the host does not look.
                ready += put(&mut output[ready..], PduType::CapsuleResp, [pdu[8], pdu[9]], 0);
            } else if pdu[8] == 2 {
                let length = u32::from_le_bytes([pdu[40], pdu[41], pdu[42], pdu[43]]);
                let id = [pdu[10], pdu[11]];
                ready += put(&mut output[ready..], PduType::C2HData, id, length as usize);
                ready += put(&mut output[ready..], PduType::CapsuleResp, id, 0);
            } else {
                let id = [pdu[10], pdu[11]];
                ready += put(&mut output[ready..], PduType::R2T, id, 0);
            }
            let here = bytes.min(pdu.len());
            missing = bytes - here;
            at += here;
            if ready >= BUFFER_BYTES {
                stream.write_all(&output[..ready])?;
                ready = 0;
            }
        }
        input.copy_within(at..have, 0);
        have -= at;
        if missing == 0 || ready > HEADER_BYTES {
            stream.write_all(&output[..ready])?;
            ready = 0;
        }
        let received = stream.read(&mut input[have..])?;
        if received == 0 {
            return Ok(());
        }
        have += received;
    }
}

/// Puts a header; the data behind it is the old content of the buffer. Returns the length of both.
fn put(output: &mut [u8], kind: PduType, id: [u8; 2], data: usize) -> usize {
    let bytes = u32::try_from(HEADER_BYTES + data).unwrap();
    output[..HEADER_BYTES].fill(0);
    output[0] = kind.code();
    output[4..8].copy_from_slice(&bytes.to_le_bytes());
    output[8..10].copy_from_slice(&id);
    HEADER_BYTES + data
}
