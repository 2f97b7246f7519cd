//! Reading a trace back, and replaying the recorded calls on a device.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::format::{MAGIC, TraceHeader, TraceRecord, decode_header, is_valid};
use super::{TraceContent, report_bytes, status};
use crate::crc32c;
use crate::error::NvmeStatus;
use crate::layer::meter::OpKind;
use crate::{
    ByteCount, Geometry, GeometrySpec, Lba, LbaCount, Select, ZoneAction, ZoneId, ZonedDevice,
};

/// Bytes of the largest operation that is replayed: a damaged length must not take all memory.
const OPERATION_BYTES_MAX: u64 = 1 << 30;

/// Result of reading or replaying a trace.
type Result<T> = std::result::Result<T, TraceError>;

/// Why a trace is not replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file is no trace, or damaged.
    #[error("{path}: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// The device is of another shape than the one that was recorded.
    #[error("{path} was recorded on another shape of device: {recorded:?}, not {found:?}")]
    OtherShape {
        /// The file.
        path: PathBuf,
        /// The shape of the device that was recorded.
        recorded: Box<GeometrySpec>,
        /// The shape of this one.
        found: Box<GeometrySpec>,
    },
    /// An operation did not end as it did when it was recorded.
    #[error("operation {index} of the trace, {operation}: {what}")]
    Different {
        /// Which operation, from 0 on.
        index: u64,
        /// The operation.
        operation: String,
        /// The difference.
        what: String,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation, and its object.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// A trace file, read from its start on. Takes any bytes.
pub struct TraceReader<R> {
    source: BufReader<R>,
    path: PathBuf,
    geometry: Geometry,
    content: TraceContent,
    next: u64,
}

/// One operation, as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOperation {
    /// Its number, from 0 on.
    pub index: u64,
    /// The kind of operation.
    pub kind: OpKind,
    /// The zones of an action. A report has the first zone that was asked for, reads and writes
    /// have the zone of their first block.
    pub zones: Option<Select>,
    /// The first block. An append has one where it succeeded.
    pub lba: Option<Lba>,
    /// How many blocks.
    pub blocks: Option<LbaCount>,
    /// The error, as NVMe has it; `None` of success.
    pub failure: Option<NvmeStatus>,
}

/// How a trace ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEnd {
    /// After a whole record.
    Whole,
    /// In the middle of a record: the recording process was stopped.
    Cut,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Operations done again.
    pub operations: u64,
    /// Bytes read and written by them.
    pub bytes: ByteCount,
    /// How the trace ends.
    pub end: TraceEnd,
}

impl TraceReader<File> {
    /// Opens a trace file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| {
            let what = format!("opening {}", path.display());
            TraceError::Io { what, source }
        })?;
        Self::new(file, path)
    }
}

/// The first bytes of a trace, if there are enough.
fn read_header(source: &mut impl Read) -> std::result::Result<TraceHeader, String> {
    let mut bytes = Vec::new();
    let whole = size_of::<TraceHeader>();
    let read = source.take(whole as u64).read_to_end(&mut bytes);
    read.map_err(|error| format!("no header: {error}"))?;
    let begin = MAGIC.len().min(bytes.len());
    if bytes[..begin] != MAGIC[..begin] {
        return Err("not a trace: it does not begin with ZONTRACE".into());
    }
    FromBytes::read_from_bytes(&bytes)
        .map_err(|_| format!("no header: it ends after {} of {whole} bytes", bytes.len()))
}

impl<R: Read> TraceReader<R> {
    /// Reads the head of a trace. Errors call the trace `path`.
    pub fn new(source: R, path: &Path) -> Result<Self> {
        let mut source = BufReader::new(source);
        let malformed = |what| TraceError::Malformed { path: path.to_owned(), what };
        let header = read_header(&mut source).map_err(malformed)?;
        let (spec, content) = decode_header(&header).map_err(malformed)?;
        let geometry = Geometry::new(spec).map_err(|error| malformed(error.to_string()))?;
        Ok(Self { source, path: path.to_owned(), geometry, content, next: 0 })
    }

    /// Bytes of so many blocks of that device.
    pub const fn bytes(&self, blocks: LbaCount) -> ByteCount {
        self.geometry.bytes(blocks)
    }

    /// Shape of the device that was traced.
    pub const fn geometry(&self) -> &GeometrySpec {
        self.geometry.spec()
    }

    /// The next operation, or how the trace ends. An error leaves nothing to be read after it.
    pub fn operation(&mut self) -> Result<std::result::Result<TraceOperation, TraceEnd>> {
        let record = match self.record()? {
            Ok((record, _)) => record,
            Err(end) => return Ok(Err(end)),
        };
        let kind = self.kind(&record)?;
        let [code, kind_of_status] = record.status.get().to_le_bytes();
        let failure = NvmeStatus { kind: kind_of_status, code };
        let failure = (record.status != 0).then_some(failure);
        let zone = Select::One(ZoneId::new(record.zone.get()));
        let (lba, blocks) = (Lba::new(record.lba.get()), LbaCount::new(record.blocks.get()));
        let (zones, lba, blocks) = match kind {
            OpKind::Read | OpKind::Write | OpKind::Deallocate => {
                let is_there = lba.get() < self.geometry.block_count().get();
                let zone = is_there.then(|| Select::One(self.geometry.locate(lba).0));
                (zone, Some(lba), Some(blocks))
            }
            OpKind::Append => (Some(zone), Some(lba).filter(|_| failure.is_none()), Some(blocks)),
            OpKind::Report => (Some(zone), None, None),
            OpKind::Open | OpKind::Close | OpKind::Finish | OpKind::Reset => {
                (Some(if record.select == 1 { Select::All } else { zone }), None, None)
            }
            OpKind::Flush => (None, None, None),
        };
        Ok(Ok(TraceOperation { index: record.index.get(), kind, zones, lba, blocks, failure }))
    }

    fn kind(&self, record: &TraceRecord) -> Result<OpKind> {
        let kind = OpKind::ALL.get(usize::from(record.op)).copied();
        kind.ok_or_else(|| {
            self.malformed(format!("operation {}: kind {}", record.index, record.op))
        })
    }

    /// The next record and the data that it carries.
    fn record(&mut self) -> Result<std::result::Result<(TraceRecord, Vec<u8>), TraceEnd>> {
        let mut bytes = Vec::new();
        self.read_up_to(size_of::<TraceRecord>() as u64, &mut bytes)?;
        let mut record = TraceRecord::new_zeroed();
        match bytes.len() {
            0 => return Ok(Err(TraceEnd::Whole)),
            len if len < size_of::<TraceRecord>() => return Ok(Err(TraceEnd::Cut)),
            _ => record.as_mut_bytes().copy_from_slice(&bytes),
        }
        if !is_valid(&record, self.next) {
            return Err(self.malformed(format!("operation {} is damaged", self.next)));
        }
        let carries = self.content == TraceContent::Data
            && [OpKind::Write as u8, OpKind::Append as u8].contains(&record.op);
        let mut data = Vec::new();
        if carries {
            let len = self.data_len(&record)?;
            self.read_up_to(len, &mut data)?;
            if (data.len() as u64) < len {
                return Ok(Err(TraceEnd::Cut));
            }
            if record.data_crc != crc32c::crc32c(&data) {
                return Err(self.malformed(format!("data of operation {} is damaged", self.next)));
            }
        }
        self.next += 1;
        Ok(Ok((record, data)))
    }

    /// Bytes that a record speaks of.
    fn data_len(&self, record: &TraceRecord) -> Result<u64> {
        let blocks = LbaCount::new(record.blocks.get());
        if blocks.get() > OPERATION_BYTES_MAX >> self.geometry.block_size().shift() {
            return Err(self.malformed(format!("operation {} of {blocks} blocks", record.index)));
        }
        Ok(self.geometry.bytes(blocks).get())
    }

    /// Takes memory as bytes arrive, so a wrong length costs nothing.
    fn read_up_to(&mut self, len: u64, bytes: &mut Vec<u8>) -> Result<()> {
        match (&mut self.source).take(len).read_to_end(bytes) {
            Ok(_) => Ok(()),
            Err(source) => {
                Err(TraceError::Io { what: format!("reading {}", self.path.display()), source })
            }
        }
    }

    fn malformed(&self, what: String) -> TraceError {
        TraceError::Malformed { path: self.path.clone(), what }
    }
}

/// Replays the recorded calls on a device of the same shape, and checks how each of them ends.
/// Stops at the first difference.
pub fn replay<R: Read>(trace: &mut TraceReader<R>, device: &dyn ZonedDevice) -> Result<Replayed> {
    if trace.geometry() != device.geometry().spec() {
        let (recorded, found) = (*trace.geometry(), *device.geometry().spec());
        return Err(TraceError::OtherShape {
            path: trace.path.clone(),
            recorded: Box::new(recorded),
            found: Box::new(found),
        });
    }
    let mut done = Replayed { operations: 0, bytes: ByteCount::ZERO, end: TraceEnd::Whole };
    loop {
        let (record, data) = match trace.record()? {
            Ok(next) => next,
            Err(end) => return Ok(Replayed { end, ..done }),
        };
        done.bytes += ByteCount::new(run(trace, device, &record, data)?);
        done.operations += 1;
    }
}

/// Runs one operation and returns the bytes it moved.
fn run<R: Read>(
    trace: &TraceReader<R>,
    device: &dyn ZonedDevice,
    record: &TraceRecord,
    data: Vec<u8>,
) -> Result<u64> {
    let kind = trace.kind(record)?;
    let (zone, lba) = (ZoneId::new(record.zone.get()), Lba::new(record.lba.get()));
    let zones = if record.select == 1 { Select::All } else { Select::One(zone) };
    let len = match kind {
        OpKind::Read | OpKind::Write | OpKind::Append => trace.data_len(record)?,
        OpKind::Report
        | OpKind::Open
        | OpKind::Close
        | OpKind::Finish
        | OpKind::Reset
        | OpKind::Flush
        | OpKind::Deallocate => 0,
    };
    let bytes = usize::try_from(len).expect("a device's data fits in memory");
    let data = if data.is_empty() { pattern(record.index.get(), bytes) } else { data };
    let manage = |action| device.manage(zones, action).map(|()| None);
    let outcome = match kind {
        OpKind::Report => {
            let mut zones = Vec::new();
            let limit = usize::try_from(record.blocks.get()).unwrap_or(usize::MAX);
            device
                .report(zone, &mut zones, limit)
                .map(|()| Some(crc32c::crc32c(&report_bytes(&zones))))
        }
        OpKind::Read => {
            let mut buffer = data;
            device.read(lba, &mut buffer).map(|()| match trace.content {
                TraceContent::Data => Some(crc32c::crc32c(&buffer)),
                TraceContent::Checksums => None,
            })
        }
        OpKind::Write => device.write(lba, &data).map(|()| None),
        OpKind::Append => match device.append(zone, &data) {
            Ok(at) if record.status == 0 && at != lba => {
                return Err(different(record, kind, format!("appended at {at}, not {lba}")));
            }
            other => other.map(|_| None),
        },
        OpKind::Open => manage(ZoneAction::Open),
        OpKind::Close => manage(ZoneAction::Close),
        OpKind::Finish => manage(ZoneAction::Finish),
        OpKind::Reset => manage(ZoneAction::Reset),
        OpKind::Flush => device.flush().map(|()| None),
        OpKind::Deallocate => {
            device.deallocate(lba, LbaCount::new(record.blocks.get())).map(|()| None)
        }
    };
    if record.status != status(&outcome) {
        let ended = outcome.map_or_else(|error| error.to_string(), |_| "success".into());
        let what = format!("status {:#06x} then, now: {ended}", record.status);
        return Err(different(record, kind, what));
    }
    match outcome {
        Ok(Some(crc)) if record.data_crc != crc => {
            let what = match kind {
                OpKind::Report => "other zone states than then",
                _ => "other bytes than then",
            };
            Err(different(record, kind, what.into()))
        }
        Ok(_) => Ok(len),
        Err(_) => Ok(0),
    }
}

/// Stands for data that the trace does not carry: different for each operation, never zero.
fn pattern(index: u64, len: usize) -> Vec<u8> {
    let word = (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes();
    word.iter().copied().cycle().take(len).collect()
}

fn different(record: &TraceRecord, kind: OpKind, what: String) -> TraceError {
    let operation = format!("{} zone {} lba {}", kind.name(), record.zone, record.lba);
    TraceError::Different { index: record.index.get(), operation, what }
}
