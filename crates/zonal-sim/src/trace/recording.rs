//! The requests of a recording of the `trace(FILE):` layer: operations of a program on a zoned
//! drive.
//!
//! Addresses are the recorded drive's, as if it had no zones. A reset becomes a trim of the blocks
//! that the recording has written to the zone. Operations that failed, reports, flushes and other
//! zone actions make no requests. A recording has no times.

use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;
use std::path::Path;

use zonal::layer::meter::OpKind;
use zonal::layer::trace::{TraceEnd, TraceError, TraceOperation, TraceReader};
use zonal::{Geometry, Select, ZoneId};

use super::Record;
use super::file::Text;
use crate::error::{Result, SimError};
use crate::request::Op;

/// A recording that is being read.
pub(super) struct Recording {
    path: String,
    reader: TraceReader<Box<dyn BufRead + Send>>,
    geometry: Geometry,
    /// Sequential zone → end of the data that the recording has written to it.
    written: BTreeMap<ZoneId, u64>,
    /// Trims of a reset that are still to be returned.
    trims: VecDeque<Record>,
    operations: u64,
}

impl Recording {
    /// Reads the head.
    pub(super) fn new(text: Text, path: &str) -> Result<Self> {
        let reader = TraceReader::new(text.into_source(), Path::new(path));
        let reader = reader.map_err(|error| failure(path, error))?;
        let geometry = Geometry::new(*reader.geometry());
        let geometry = geometry.map_err(|error| wrong(path, error.to_string()))?;
        Ok(Self {
            path: path.to_owned(),
            reader,
            geometry,
            written: BTreeMap::new(),
            trims: VecDeque::new(),
            operations: 0,
        })
    }

    /// The next request; `None` at the end.
    pub(super) fn record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(trim) = self.trims.pop_front() {
                return Ok(Some(trim));
            }
            let operation = match self.reader.operation() {
                Ok(Ok(operation)) => operation,
                Ok(Err(TraceEnd::Whole)) => return Ok(None),
                Ok(Err(TraceEnd::Cut)) => {
                    let what = format!(
                        "the recording was interrupted in operation {}: --skip-bad replays those \
                         before it",
                        self.operations
                    );
                    return Err(wrong(&self.path, what));
                }
                Err(error) => return Err(failure(&self.path, error)),
            };
            self.operations += 1;
            if operation.failure.is_none()
                && let Some(record) = self.request(&operation)?
            {
                return Ok(Some(record));
            }
        }
    }

    /// The request of an operation. The trims of a reset go to `trims`.
    fn request(&mut self, operation: &TraceOperation) -> Result<Option<Record>> {
        let op = match operation.kind {
            OpKind::Read => Op::Read,
            OpKind::Write | OpKind::Append => Op::Write,
            OpKind::Deallocate => Op::Trim,
            OpKind::Reset => {
                self.reset(operation.zones);
                return Ok(None);
            }
            OpKind::Report | OpKind::Open | OpKind::Close | OpKind::Finish | OpKind::Flush => {
                return Ok(None);
            }
        };
        let (Some(lba), Some(blocks)) = (operation.lba, operation.blocks) else { return Ok(None) };
        let end = lba.get().checked_add(blocks.get());
        if end.is_none_or(|end| end > self.geometry.block_count().get()) {
            let what = format!("operation {} ends beyond the recorded drive", operation.index);
            return Err(wrong(&self.path, what));
        }
        if blocks.get() == 0 {
            return Ok(None);
        }
        let zone = self.geometry.locate(lba).0;
        let end = lba.get() + blocks.get();
        if op == Op::Write && self.geometry.kind(zone).is_sequential() {
            let written = self.written.entry(zone).or_insert(end);
            *written = end.max(*written);
        }
        Ok(Some(self.blocks(op, lba.get(), end)))
    }

    fn reset(&mut self, zones: Option<Select>) {
        let written = match zones {
            Some(Select::One(zone)) => {
                self.written.remove(&zone).map(|end| (zone, end)).into_iter().collect()
            }
            Some(Select::All) => std::mem::take(&mut self.written),
            None => BTreeMap::new(),
        };
        for (zone, end) in written {
            let trim = self.blocks(Op::Trim, self.geometry.zone_start(zone).get(), end);
            self.trims.push_back(trim);
        }
    }

    /// A request from one block up to another.
    const fn blocks(&self, op: Op, first: u64, end: u64) -> Record {
        let shift = self.geometry.block_size().shift();
        Record { at_ns: 0, volume: 0, op, offset: first << shift, bytes: (end - first) << shift }
    }
}

fn wrong(path: &str, what: String) -> SimError {
    SimError::Trace { path: path.to_owned(), line: 0, what }
}

fn failure(path: &str, error: TraceError) -> SimError {
    match error {
        TraceError::Malformed { what, .. } => wrong(path, what),
        TraceError::Io { source, .. } => SimError::Io { path: path.to_owned(), source },
        other => wrong(path, other.to_string()),
    }
}
