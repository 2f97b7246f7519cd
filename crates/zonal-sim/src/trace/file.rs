//! A trace as a file: plain, or compressed by gzip or zstd, which its first bytes tell. Read as a
//! stream: a trace may be far larger than memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Bytes read at once; the format is found out from the first of them.
const BUFFER: usize = 1 << 16;

/// Longest line of a trace.
const LINE_MAX: u64 = 1 << 16;

/// The text of a trace.
pub(super) struct Text {
    source: Box<dyn BufRead + Send>,
    line: Vec<u8>,
}

impl Text {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }

    /// Text from anywhere.
    pub(super) fn new(source: impl Read + Send + 'static) -> io::Result<Self> {
        let mut source = BufReader::with_capacity(BUFFER, source);
        let source: Box<dyn BufRead + Send> = match source.fill_buf()? {
            [0x1f, 0x8b, ..] => buffered(MultiGzDecoder::new(source)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                buffered(zstd::Decoder::with_buffer(source)?)
            }
            _ => Box::new(source),
        };
        Ok(Self { source, line: Vec::new() })
    }

    /// The first bytes of the text. Call it before the first line is read.
    pub(super) fn head(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    /// The source, for a trace that is no text.
    pub(super) fn into_source(self) -> Box<dyn BufRead + Send> {
        self.source
    }

    /// The next line without its end; `None` at the end of the trace.
    pub(super) fn line(&mut self) -> Result<Option<&str>, LineError> {
        self.line.clear();
        let read = (&mut self.source).take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.last() != Some(&b'\n') && read as u64 == LINE_MAX {
            // The rest of it is not the next line.
            while !matches!(skim(&mut self.source)?, Skimmed::End) {}
            return Err(LineError::Text("longer than 64 KiB"));
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| LineError::Text("not UTF-8"))?;
        Ok(Some(text))
    }
}

/// Why there is no line.
#[derive(Debug)]
pub(super) enum LineError {
    /// The file cannot be read.
    Io(io::Error),
    /// The line is no text.
    Text(&'static str),
}

impl From<io::Error> for LineError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn buffered(source: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFER, source))
}

enum Skimmed {
    More,
    End,
}

/// Skips to the end of the line.
fn skim(source: &mut impl BufRead) -> io::Result<Skimmed> {
    let buffer = source.fill_buf()?;
    let end = buffer.iter().position(|byte| *byte == b'\n');
    let (count, last) = (end.map_or(buffer.len(), |at| at + 1), buffer.is_empty());
    source.consume(count);
    Ok(if end.is_some() || last { Skimmed::End } else { Skimmed::More })
}
