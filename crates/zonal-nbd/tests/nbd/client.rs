//! A client for tests, which sends exactly the bytes that a test wants.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zonal_nbd::Address;
use zonal_nbd::wire::{
    BlockSizeInfo, Chunk, Command, ErrorChunk, ExportInfo, Extent, Greeting, Hole, Offset,
    OptionHeader, OptionReply, Request, SimpleReply, chunk, client_flag, info, magic, option,
    reply,
};

pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A reply to an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
}

/// Replies of a server to a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) message: String,
    pub(crate) data: Vec<u8>,
    /// Bytes of the read that came as holes.
    pub(crate) hole_bytes: usize,
    /// Content chunks.
    pub(crate) chunks: usize,
    /// Length and flags of extents.
    pub(crate) extents: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    Structured,
}

pub(crate) struct Client {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) style: Style,
    pub(crate) bytes: u64,
    pub(crate) flags: u16,
    pub(crate) sizes: Option<BlockSizeInfo>,
    next_cookie: u64,
    /// Bytes that each read that is outstanding asked for.
    reads: Vec<Request>,
}

pub(crate) fn connect(address: &Address) -> Box<dyn Stream> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).unwrap()),
    }
}

impl Client {
    /// One that has got the greeting, and answered it.
    pub(crate) fn greet(address: &Address) -> Self {
        let mut client = Self::over(connect(address));
        client.answer_greeting(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES).unwrap();
        client
    }

    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        let (style, reads) = (Style::Simple, Vec::new());
        Self { stream, style, bytes: 0, flags: 0, sizes: None, next_cookie: 1, reads }
    }

    pub(crate) fn answer_greeting(&mut self, flags: u32) -> io::Result<()> {
        let mut greeting = Greeting::new_zeroed();
        self.stream.read_exact(greeting.as_mut_bytes())?;
        assert_eq!(greeting.magic.get(), magic::GREETING);
        assert_eq!(greeting.options_magic.get(), magic::OPTION);
        assert_eq!(greeting.flags.get(), 3);
        self.stream.write_all(zerocopy::big_endian::U32::new(flags).as_bytes())
    }

    /// One that has chosen an export.
    pub(crate) fn open(address: &Address, name: &str, style: Style) -> Self {
        let mut client = Self::greet(address);
        client.go(name, style);
        client
    }

    pub(crate) fn go(&mut self, name: &str, style: Style) {
        if style == Style::Structured {
            let replies = self.option(option::STRUCTURED_REPLY, &[]).unwrap();
            assert_eq!(replies, [Reply { kind: reply::ACK, data: Vec::new() }]);
            self.style = style;
            let set = self.option(option::SET_META_CONTEXT, &context(name, &["base:allocation"]));
            assert_eq!(set.unwrap().len(), 2);
        }
        let replies = self.option(option::GO, &query(name, &[info::BLOCK_SIZE])).unwrap();
        assert_eq!(replies.last().unwrap().kind, reply::ACK, "{replies:?}");
        for Reply { data, .. } in &replies[..replies.len() - 1] {
            let (kind, rest) = zerocopy::big_endian::U16::ref_from_prefix(data).unwrap();
            match kind.get() {
                info::EXPORT => {
                    let export = ExportInfo::read_from_bytes(rest).unwrap();
                    (self.bytes, self.flags) = (export.bytes.get(), export.flags.get());
                }
                info::BLOCK_SIZE => {
                    self.sizes = Some(BlockSizeInfo::read_from_bytes(rest).unwrap());
                }
                _ => {}
            }
        }
    }

    /// Sends an option, and gets all replies.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> io::Result<Vec<Reply>> {
        let length = u32::try_from(data.len()).unwrap().into();
        let header = OptionHeader { magic: magic::OPTION.into(), option: option.into(), length };
        self.stream.write_all(&[header.as_bytes(), data].concat())?;
        let mut replies = Vec::new();
        loop {
            let mut header = OptionReply::new_zeroed();
            self.stream.read_exact(header.as_mut_bytes())?;
            assert_eq!((header.magic.get(), header.option.get()), (magic::OPTION_REPLY, option));
            let mut data = vec![0; header.length.get() as usize];
            self.stream.read_exact(&mut data)?;
            let kind = header.kind.get();
            replies.push(Reply { kind, data });
            if kind == reply::ACK || kind & reply::ERROR != 0 {
                return Ok(replies);
            }
        }
    }

    /// Sends a request, and does not wait.
    pub(crate) fn send(&mut self, command: Command, flags: u16, offset: u64, length: u32) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let request = Request { command: Ok(command), flags, cookie, offset, length };
        self.stream.write_all(request.header().as_bytes()).unwrap();
        if command == Command::Read {
            self.reads.push(request);
        }
        cookie
    }

    /// Sends a request, and waits for its answer.
    pub(crate) fn ask(&mut self, command: Command, flags: u16, offset: u64, length: u32) -> Answer {
        let cookie = self.send(command, flags, offset, length);
        let answer = self.answer().unwrap();
        assert_eq!(answer.cookie, cookie);
        answer
    }

    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Answer {
        self.ask(Command::Read, 0, offset, length)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> Answer {
        let length = u32::try_from(data.len()).unwrap();
        let cookie = self.send(Command::Write, flags, offset, length);
        self.stream.write_all(data).unwrap();
        let answer = self.answer().unwrap();
        assert_eq!(answer.cookie, cookie);
        answer
    }

    /// The next answer, to whichever request.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = Answer::default();
        let mut start = [0; 4];
        loop {
            self.stream.read_exact(&mut start)?;
            let number = zerocopy::big_endian::U32::ref_from_bytes(&start).unwrap().get();
            if number == magic::SIMPLE_REPLY {
                let mut rest = SimpleReply::new_zeroed();
                self.stream.read_exact(&mut rest.as_mut_bytes()[4..])?;
                (answer.cookie, answer.error) = (rest.cookie.get(), rest.error.get());
                if let Some(read) = self.take_read(answer.cookie) {
                    assert_eq!(self.style, Style::Simple);
                    if answer.error == 0 {
                        answer.data = vec![0; read.length as usize];
                        self.stream.read_exact(&mut answer.data)?;
                    }
                }
                return Ok(answer);
            }
            assert_eq!((number, self.style), (magic::CHUNK, Style::Structured));
            let mut head = Chunk::new_zeroed();
            self.stream.read_exact(&mut head.as_mut_bytes()[4..])?;
            let mut payload = vec![0; head.length.get() as usize];
            self.stream.read_exact(&mut payload)?;
            answer.cookie = head.cookie.get();
            self.take_chunk(&mut answer, head.kind.get(), &payload);
            if head.flags.get() & chunk::DONE != 0 {
                self.take_read(answer.cookie);
                return Ok(answer);
            }
        }
    }

    fn take_read(&mut self, cookie: u64) -> Option<Request> {
        let index = self.reads.iter().position(|read| read.cookie == cookie)?;
        Some(self.reads.swap_remove(index))
    }

    fn take_chunk(&mut self, answer: &mut Answer, kind: u16, payload: &[u8]) {
        let read = self.reads.iter().find(|read| read.cookie == answer.cookie);
        if let Some(read) = read {
            answer.data.resize(read.length as usize, 0xee);
        }
        match kind {
            chunk::NONE => {}
            chunk::OFFSET_DATA => {
                let (offset, data) = Offset::read_from_prefix(payload).unwrap();
                let at = usize::try_from(offset.offset.get() - read.unwrap().offset).unwrap();
                answer.data[at..at + data.len()].copy_from_slice(data);
                answer.chunks += 1;
            }
            chunk::OFFSET_HOLE => {
                let hole = Hole::read_from_bytes(payload).unwrap();
                let at = usize::try_from(hole.offset.get() - read.unwrap().offset).unwrap();
                let count = hole.length.get() as usize;
                answer.data[at..at + count].fill(0);
                answer.hole_bytes += count;
                answer.chunks += 1;
            }
            chunk::BLOCK_STATUS => {
                let extents = <[Extent]>::ref_from_bytes(&payload[4..]).unwrap();
                let each = extents.iter().map(|extent| (extent.length.get(), extent.flags.get()));
                answer.extents = each.collect();
            }
            chunk::ERROR => {
                let (error, message) = ErrorChunk::read_from_prefix(payload).unwrap();
                assert_eq!(usize::from(error.length.get()), message.len());
                answer.error = error.error.get();
                answer.message = String::from_utf8(message.to_vec()).unwrap();
            }
            _ => panic!("a chunk of kind {kind}"),
        }
    }

    /// Whether the server has ended the connection.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// Data of INFO and GO.
pub(crate) fn query(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    let count = u16::try_from(infos.len()).unwrap();
    for number in std::iter::once(&count).chain(infos) {
        data.extend_from_slice(zerocopy::big_endian::U16::new(*number).as_bytes());
    }
    data
}

/// Data of `SET_META_CONTEXT`.
pub(crate) fn context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    let count = u32::try_from(queries.len()).unwrap();
    data.extend_from_slice(zerocopy::big_endian::U32::new(count).as_bytes());
    for query in queries {
        data.extend(string(query));
    }
    data
}

fn string(text: &str) -> Vec<u8> {
    let length = zerocopy::big_endian::U32::new(u32::try_from(text.len()).unwrap());
    [length.as_bytes(), text.as_bytes()].concat()
}
