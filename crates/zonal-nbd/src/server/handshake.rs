//! The handshake: options until the client has chosen an export, or ends the connection.

use std::io::{self, IoSlice};
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};
use zonal::DiskShape;

use super::perform::{PAYLOAD_MAX, Replies};
use super::socket::{Input, Output, Socket, invalid};
use super::{Shared, TlsPolicy};
use crate::Export;
use crate::wire::{
    BlockSizeInfo, CONTEXT, ClientFlags, ContextQuery, ExportInfo, ExportQuery, Greeting,
    OptionHeader, OptionReply, client_flag, context_matches, handshake_flag, info, magic, option,
    reply, transmission_flag,
};

/// Most bytes of the data of an option: a name, and some hundred queries.
const OPTION_MAX: u32 = 32 * 1024;
/// Longer options are skipped up to this; the connection of a longer one ends.
const SKIP_MAX: u32 = 1 << 20;
/// The number by which a client knows [`CONTEXT`].
pub(super) const CONTEXT_NUMBER: u32 = 1;

/// The choices of a client: its export, and the form of replies.
pub(super) struct Chosen {
    pub(super) export: Arc<Export>,
    pub(super) replies: Replies,
    /// Whether it may ask for extents.
    pub(super) has_context: bool,
}

/// The next step after an option.
enum Next {
    Option,
    Transmission(Arc<Export>),
    End,
}

/// Speaks with a client until it has chosen; `None` if it ends the connection.
pub(super) fn run(
    shared: &Shared,
    socket: &Socket,
    input: &mut Input,
    output: &mut Output,
) -> io::Result<Option<Chosen>> {
    let greeting = Greeting {
        magic: magic::GREETING.into(),
        options_magic: magic::OPTION.into(),
        flags: (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).into(),
    };
    output.send(&mut [IoSlice::new(greeting.as_bytes())])?;
    let mut flags = ClientFlags::new_zeroed();
    input.read(flags.as_mut_bytes())?;
    let client_flags = flags.flags.get();
    if client_flags & !(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES) != 0 {
        return Err(invalid("unknown flags of a client"));
    }
    let replies = Replies::Simple;
    let mut handshake =
        Handshake { shared, socket, input, output, client_flags, replies, context: None };
    loop {
        match handshake.serve_option()? {
            Next::Option => {}
            Next::End => return Ok(None),
            Next::Transmission(export) => {
                let has_context = handshake.context.is_some_and(|of| Arc::ptr_eq(&of, &export));
                return Ok(Some(Chosen { export, replies: handshake.replies, has_context }));
            }
        }
    }
}

struct Handshake<'a> {
    shared: &'a Shared,
    socket: &'a Socket,
    input: &'a mut Input,
    output: &'a mut Output,
    client_flags: u32,
    replies: Replies,
    /// The export whose extents the client may ask for.
    context: Option<Arc<Export>>,
}

impl Handshake<'_> {
    fn serve_option(&mut self) -> io::Result<Next> {
        let mut header = OptionHeader::new_zeroed();
        self.input.read(header.as_mut_bytes())?;
        if header.magic.get() != magic::OPTION {
            return Err(invalid("no option of NBD"));
        }
        let (option, length) = (header.option.get(), header.length.get());
        if length > OPTION_MAX {
            if length > SKIP_MAX || option == option::EXPORT_NAME {
                return Err(invalid("an option that is too long"));
            }
            self.input.skip(length)?;
            return self.refuse(option, reply::TOO_BIG, "options have at most 32 KiB");
        }
        let mut data = vec![0; length as usize];
        self.input.read(&mut data)?;
        if option == option::ABORT {
            // The client need not wait for it.
            let _ = self.reply(option, reply::ACK, &[]);
            return Ok(Next::End);
        }
        if self.shared.connections.is_ending() {
            return self.refuse(option, reply::SHUTDOWN, "the server is ending");
        }
        let policy = self.shared.tls.as_ref().map(super::Tls::policy);
        let needs_tls = policy == Some(TlsPolicy::Required) && !self.socket.has_tls();
        if needs_tls && option != option::START_TLS {
            return self.refuse(option, reply::TLS_REQUIRED, "this server requires TLS");
        }
        match option {
            option::EXPORT_NAME => self.export_name(&data),
            option::LIST => self.list(&data),
            option::START_TLS => self.start_tls(&data),
            option::INFO | option::GO => self.info(option, &data),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.replies = Replies::Structured;
                self.acknowledge(option)
            }
            option::STRUCTURED_REPLY => self.refuse_data(option),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(option, &data),
            _ => self.refuse(option, reply::UNSUPPORTED, "this server does not know the option"),
        }
    }

    /// Sends a reply of these parts.
    fn reply(&mut self, option: u32, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).expect("a reply to an option is short");
        let header = OptionReply::new(option, kind, length);
        let mut slices = vec![IoSlice::new(header.as_bytes())];
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        self.output.send(&mut slices)
    }

    fn acknowledge(&mut self, option: u32) -> io::Result<Next> {
        self.reply(option, reply::ACK, &[])?;
        Ok(Next::Option)
    }

    /// Refuses an option. `EXPORT_NAME` has no reply that could do so: its connection ends.
    fn refuse(&mut self, option: u32, kind: u32, why: &str) -> io::Result<Next> {
        if option == option::EXPORT_NAME {
            return Err(io::Error::other(why));
        }
        self.reply(option, kind, &[why.as_bytes()])?;
        Ok(Next::Option)
    }

    fn refuse_data(&mut self, option: u32) -> io::Result<Next> {
        self.refuse(option, reply::INVALID, "the data of the option makes no sense")
    }

    fn refuse_name(&mut self, option: u32) -> io::Result<Next> {
        self.refuse(option, reply::UNKNOWN, "this server has no export of this name")
    }

    fn export_name(&mut self, data: &[u8]) -> io::Result<Next> {
        let export = std::str::from_utf8(data).ok().and_then(|name| self.shared.exports.find(name));
        let Some(export) = export.map(Arc::clone) else {
            return self.refuse_name(option::EXPORT_NAME);
        };
        let info = export_info(&export, self.replies);
        let zeroes = if self.client_flags & client_flag::NO_ZEROES == 0 { 124 } else { 0 };
        let padding = [0; 124];
        let padding = IoSlice::new(&padding[..zeroes]);
        self.output.send(&mut [IoSlice::new(info.as_bytes()), padding])?;
        Ok(Next::Transmission(export))
    }

    fn list(&mut self, data: &[u8]) -> io::Result<Next> {
        if !data.is_empty() {
            return self.refuse_data(option::LIST);
        }
        for export in self.shared.exports.iter() {
            let (name, description) = (export.name().as_bytes(), export.description().as_bytes());
            let length = zerocopy::big_endian::U32::new(length_of(name));
            self.reply(option::LIST, reply::SERVER, &[length.as_bytes(), name, description])?;
        }
        self.acknowledge(option::LIST)
    }

    fn start_tls(&mut self, data: &[u8]) -> io::Result<Next> {
        let option = option::START_TLS;
        let Some(tls) = &self.shared.tls else {
            return self.refuse(option, reply::POLICY, "this server has no certificate");
        };
        if !data.is_empty() {
            return self.refuse_data(option);
        }
        if self.socket.has_tls() {
            return self.refuse(option, reply::INVALID, "TLS has started");
        }
        let connection = tls.connection().map_err(io::Error::other)?;
        self.reply(option, reply::ACK, &[])?;
        self.input.start_tls(connection, self.output)?;
        // Forget the choices that came in clear: an attacker may have sent them.
        (self.replies, self.context) = (Replies::Simple, None);
        Ok(Next::Option)
    }

    /// INFO and GO.
    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        let Some(query) = ExportQuery::parse(data) else { return self.refuse_data(option) };
        let Some(export) = self.shared.exports.find(query.name).map(Arc::clone) else {
            return self.refuse_name(option);
        };
        self.reply_info(option, info::EXPORT, export_info(&export, self.replies).as_bytes())?;
        let sizes = block_sizes(&export.shape());
        self.reply_info(option, info::BLOCK_SIZE, sizes.as_bytes())?;
        if query.infos.contains(&info::NAME) {
            self.reply_info(option, info::NAME, export.name().as_bytes())?;
        }
        if query.infos.contains(&info::DESCRIPTION) && !export.description().is_empty() {
            self.reply_info(option, info::DESCRIPTION, export.description().as_bytes())?;
        }
        self.acknowledge(option)?;
        Ok(if option == option::GO { Next::Transmission(export) } else { Next::Option })
    }

    fn reply_info(&mut self, option: u32, kind: u16, data: &[u8]) -> io::Result<()> {
        let kind = zerocopy::big_endian::U16::new(kind);
        self.reply(option, reply::INFO, &[kind.as_bytes(), data])
    }

    /// `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            self.context = None;
        }
        if self.replies == Replies::Simple {
            return self.refuse(option, reply::INVALID, "structured replies have to come first");
        }
        let Some(query) = ContextQuery::parse(data) else { return self.refuse_data(option) };
        let Some(export) = self.shared.exports.find(query.name).map(Arc::clone) else {
            return self.refuse_name(option);
        };
        let all = query.queries.is_empty() && !sets;
        if all || query.queries.iter().any(|query| context_matches(option, query)) {
            let number = if sets { CONTEXT_NUMBER } else { 0 };
            let number = zerocopy::big_endian::U32::new(number);
            let context = [number.as_bytes(), CONTEXT.as_bytes()];
            self.reply(option, reply::META_CONTEXT, &context)?;
            if sets {
                self.context = Some(export);
            }
        }
        self.acknowledge(option)
    }
}

fn length_of(text: &[u8]) -> u32 {
    u32::try_from(text.len()).expect("a name is short")
}

/// The size of an export, and its flags.
fn export_info(export: &Export, replies: Replies) -> ExportInfo {
    use transmission_flag::{
        CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA,
        SEND_TRIM, SEND_WRITE_ZEROES,
    };
    let shape = export.shape();
    // A flush of a disk covers all writes that returned, whichever connection they came by.
    let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
    let access =
        if shape.is_read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO };
    let structured = match replies {
        Replies::Simple => 0,
        Replies::Structured => SEND_DF,
    };
    ExportInfo { bytes: shape.bytes().into(), flags: (always | access | structured).into() }
}

/// Sizes of requests.
fn block_sizes(shape: &DiskShape) -> BlockSizeInfo {
    let bytes = |size: zonal::BlockSize| 1_u32 << size.shift();
    BlockSizeInfo {
        minimum: bytes(shape.block_size).into(),
        preferred: bytes(shape.physical_size).max(bytes(shape.block_size)).into(),
        payload_max: PAYLOAD_MAX.into(),
    }
}
