//! How a request is answered: simple replies, and chunks of structured ones.

use std::io::{self, IoSlice};

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::handshake::CONTEXT_NUMBER;
use super::perform::{Failure, Part, PartKind, Replies};
use super::socket::Output;
use crate::wire::{
    Chunk, ErrorChunk, Extent, Hole, Offset, Request, STRING_MAX, SimpleReply, chunk, magic,
};

/// Success, without data.
pub(super) fn done(output: &mut Output, request: &Request) -> io::Result<()> {
    output.send(&mut [IoSlice::new(simple(request, 0).as_bytes())])
}

/// Failure. A structured reply says why.
pub(super) fn failed(
    output: &mut Output,
    request: &Request,
    replies: Replies,
    failure: &Failure,
) -> io::Result<()> {
    let number = failure.error.number();
    match replies {
        Replies::Simple => output.send(&mut [IoSlice::new(simple(request, number).as_bytes())]),
        Replies::Structured => {
            let end = failure.message.floor_char_boundary(STRING_MAX);
            let message = &failure.message.as_bytes()[..end];
            let length = u16::try_from(message.len()).expect("a message is short");
            let error = ErrorChunk { error: number.into(), length: length.into() };
            let bytes = size_of::<ErrorChunk>() + message.len();
            let head = head(request, chunk::ERROR, chunk::DONE, bytes);
            let slices = [head.as_bytes(), error.as_bytes(), message];
            output.send(&mut slices.map(IoSlice::new))
        }
    }
}

/// The beginning of a read that is sent in pieces.
pub(super) fn simple_data(output: &mut Output, request: &Request, data: &[u8]) -> io::Result<()> {
    output.send(&mut [IoSlice::new(simple(request, 0).as_bytes()), IoSlice::new(data)])
}

/// A piece of a read, after which others follow. `at` is where it is in the read.
pub(super) fn chunk_data(
    output: &mut Output,
    request: &Request,
    at: usize,
    data: &[u8],
) -> io::Result<()> {
    let head = head(request, chunk::OFFSET_DATA, 0, size_of::<Offset>() + data.len());
    let offset = offset(request, at);
    output.send(&mut [head.as_bytes(), offset.as_bytes(), data].map(IoSlice::new))
}

/// The end of a read in pieces, or of one that reads nothing.
pub(super) fn chunk_end(output: &mut Output, request: &Request) -> io::Result<()> {
    output.send(&mut [IoSlice::new(head(request, chunk::NONE, chunk::DONE, 0).as_bytes())])
}

/// A read, in parts.
pub(super) fn parts(
    output: &mut Output,
    request: &Request,
    parts: &[Part],
    data: &[u8],
) -> io::Result<()> {
    if data.is_empty() {
        return chunk_end(output, request);
    }
    let heads: Vec<Vec<u8>> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            let flags = if index + 1 == parts.len() { chunk::DONE } else { 0 };
            let offset = offset(request, part.range.start);
            match part.kind {
                PartKind::Data => {
                    let bytes = size_of::<Offset>() + part.range.len();
                    let head = head(request, chunk::OFFSET_DATA, flags, bytes);
                    [head.as_bytes(), offset.as_bytes()].concat()
                }
                PartKind::Zeroes => {
                    let head = head(request, chunk::OFFSET_HOLE, flags, size_of::<Hole>());
                    let length = U32::new(bytes_of(part.range.len()));
                    let hole = Hole { offset: offset.offset, length };
                    [head.as_bytes(), hole.as_bytes()].concat()
                }
            }
        })
        .collect();
    let mut slices = Vec::with_capacity(2 * parts.len());
    for (part, head) in parts.iter().zip(&heads) {
        slices.push(IoSlice::new(head));
        if part.kind == PartKind::Data {
            slices.push(IoSlice::new(&data[part.range.clone()]));
        }
    }
    output.send(&mut slices)
}

/// The extents of a range.
pub(super) fn extents(
    output: &mut Output,
    request: &Request,
    extents: &[Extent],
) -> io::Result<()> {
    let context = U32::new(CONTEXT_NUMBER);
    let bytes = context.as_bytes().len() + size_of_val(extents);
    let head = head(request, chunk::BLOCK_STATUS, chunk::DONE, bytes);
    let slices = [head.as_bytes(), context.as_bytes(), extents.as_bytes()];
    output.send(&mut slices.map(IoSlice::new))
}

fn simple(request: &Request, error: u32) -> SimpleReply {
    let magic = magic::SIMPLE_REPLY.into();
    SimpleReply { magic, error: error.into(), cookie: request.cookie.into() }
}

fn head(request: &Request, kind: u16, flags: u16, bytes: usize) -> Chunk {
    Chunk {
        magic: magic::CHUNK.into(),
        flags: flags.into(),
        kind: kind.into(),
        cookie: request.cookie.into(),
        length: bytes_of(bytes).into(),
    }
}

fn offset(request: &Request, at: usize) -> Offset {
    Offset { offset: (request.offset + at as u64).into() }
}

fn bytes_of(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a chunk has little more than 32 MiB")
}
