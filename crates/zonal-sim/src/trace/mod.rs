//! Block traces as workloads: read as a stream, from any of the usual formats, put on a drive of
//! any size, at any speed, again and again.
//!
//! | file | question |
//! | --- | --- |
//! | `format.rs` | which format is it, and which request does a line hold? |
//! | `file.rs` | how is a file read, compressed or not? |
//! | `recording.rs` | which requests does a recording of the `trace(FILE):` layer hold? |
//! | `fit.rs` | where on the drive is an address of the trace? |
//! | `sizing.rs` | how large is a drive that just holds the trace? |
//! | `replay.rs` | when does which request come? |

mod file;
mod fit;
mod format;
mod recording;
mod replay;
mod sizing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

pub use format::{Line, Parser};
pub(crate) use replay::{Replay, from_now};
pub use sizing::{of_fit, size_drive, touched_bytes};

pub use crate::config::{BadLines, Event, Fit, Format, ReplayTimes, Trace};
pub use crate::request::Seen;

use crate::error::{Result, SimError};
use crate::request::Op;
use file::{LineError, Text};
use recording::Recording;

/// A request, as the trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, from the origin that the trace counts from.
    pub at_ns: u64,
    /// The volume, by order of appearance.
    pub volume: u32,
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// Bytes, at least one.
    pub bytes: u64,
}

/// Reads the requests of a trace, one after the other.
pub struct Reader {
    path: String,
    source: Source,
    line: u64,
    bad: BadLines,
    bad_lines: u64,
    /// The volume that is wanted, if not all.
    wanted: String,
    volumes: BTreeMap<String, u32>,
    name: String,
}

/// Where requests are read from.
enum Source {
    Lines { text: Text, parser: Parser },
    Recording(Box<Recording>),
}

impl Reader {
    /// Opens a trace and finds out its format.
    pub fn open(path: &Path, options: &Trace) -> Result<Self> {
        let name = path.display().to_string();
        let text = Text::open(path);
        Self::new(name, text, options)
    }

    /// Reads a trace from any source.
    pub fn from_source(
        name: &str,
        source: impl std::io::Read + Send + 'static,
        options: &Trace,
    ) -> Result<Self> {
        Self::new(name.to_owned(), Text::new(source), options)
    }

    fn new(path: String, text: std::io::Result<Text>, options: &Trace) -> Result<Self> {
        let failed = |source| SimError::Io { path: path.clone(), source };
        let mut text = text.map_err(failed)?;
        let head = text.head().map_err(failed)?;
        let Some(format) = options.format.or_else(|| Format::detect(head)) else {
            let what = "of no known format: fio, blkparse, msr, alibaba, tencent, systor or zonal";
            let what = what.to_owned();
            return Err(SimError::Trace { path, line: 1, what });
        };
        let source = match format {
            Format::Zonal => Source::Recording(Box::new(Recording::new(text, &path)?)),
            _ => Source::Lines { text, parser: Parser::new(format) },
        };
        Ok(Self {
            path,
            source,
            line: 0,
            bad: options.bad_lines,
            bad_lines: 0,
            wanted: options.volume.clone(),
            volumes: BTreeMap::new(),
            name: String::new(),
        })
    }

    /// Begins anew. Volumes keep their numbers.
    fn begin(&mut self, path: &Path, options: &Trace) -> Result<()> {
        let volumes = std::mem::take(&mut self.volumes);
        *self = Self { volumes, ..Self::open(path, options)? };
        Ok(())
    }

    /// Lines that were passed over.
    pub const fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    /// Whether its requests have times; operations of a recording have none.
    pub const fn has_times(&self) -> bool {
        matches!(self.source, Source::Lines { .. })
    }

    /// The volumes met so far. Each has the number of its first appearance.
    pub const fn volumes(&self) -> &BTreeMap<String, u32> {
        &self.volumes
    }

    /// The next request; `None` at the end.
    pub fn record(&mut self) -> Result<Option<Record>> {
        loop {
            let (text, parser) = match &mut self.source {
                Source::Lines { text, parser } => (text, parser),
                Source::Recording(_) => return self.recorded(),
            };
            self.line += 1;
            let what = match text.line() {
                Ok(None) => return Ok(None),
                Ok(Some(text)) => match parser.line(text) {
                    Ok(None) => continue,
                    Ok(Some(line)) => {
                        name(line.volume, &mut self.name);
                        if !self.wanted.is_empty() && self.name != self.wanted {
                            continue;
                        }
                        let Line { at_ns, op, offset, bytes, .. } = line;
                        let volume = number(&self.name, &mut self.volumes);
                        return Ok(Some(Record { at_ns, volume, op, offset, bytes }));
                    }
                    Err(what) => what,
                },
                Err(LineError::Text(what)) => what.to_owned(),
                Err(LineError::Io(source)) => {
                    return Err(SimError::Io { path: self.path.clone(), source });
                }
            };
            match self.bad {
                BadLines::Skip => self.bad_lines += 1,
                BadLines::Refuse => return Err(self.wrong(what)),
            }
        }
    }

    /// The next request of a recording.
    fn recorded(&mut self) -> Result<Option<Record>> {
        let Source::Recording(recording) = &mut self.source else { return Ok(None) };
        match (recording.record(), self.bad) {
            (Ok(Some(_)), _) if !self.wanted.is_empty() => Ok(None), // it has no volumes
            (Err(SimError::Trace { .. }), BadLines::Skip) => {
                // Nothing can be read after that.
                self.bad_lines += 1;
                Ok(None)
            }
            (outcome, _) => outcome,
        }
    }

    /// An error at the line that was read last.
    pub(crate) fn wrong(&self, what: String) -> SimError {
        SimError::Trace { path: self.path.clone(), line: self.line, what }
    }
}

/// A volume's name from its parts.
fn name((first, second): (&str, &str), name: &mut String) {
    name.clear();
    name.push_str(first);
    if !second.is_empty() {
        name.push('_');
        name.push_str(second);
    }
}

/// A volume's number.
fn number(name: &str, volumes: &mut BTreeMap<String, u32>) -> u32 {
    if let Some(number) = volumes.get(name) {
        return *number;
    }
    let number = u32::try_from(volumes.len()).unwrap_or(u32::MAX);
    volumes.insert(name.to_owned(), number);
    number
}
