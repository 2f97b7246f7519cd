//! `Trace`: records every operation into a file, and replays such a file against any device.
//!
//! Calls are passed down one at a time, a batch as one of them, so that the order in the file is
//! the order in which the device saw them. A replay does the same operations again and checks that
//! each ends in the same way: the same status, the same address of an append, the same zone report,
//! and, if the trace carries the data, the same bytes read. A trace without data writes a pattern
//! instead: addresses and states are as recorded, contents are not.

mod format;
mod replay;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zerocopy::IntoBytes;

pub use self::format::{TraceHeader, TraceRecord};
pub use self::replay::{Replayed, TraceEnd, TraceError, TraceOperation, TraceReader, replay};
use super::meter::OpKind;
use crate::crc32c;
use crate::device::batch::{Io, Op};
use crate::error::Result;
use crate::{DeviceError, Geometry, Lba, LbaCount, Select, Zone, ZoneAction, ZoneId, ZonedDevice};

/// How much a trace keeps of written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceContent {
    /// A checksum: 48 bytes for each operation.
    Checksums = 0,
    /// All of it.
    Data = 1,
}

/// A device that records the operations on the one below.
///
/// ```
/// use std::path::Path;
/// use zonal::layer::trace::{Trace, TraceContent, TraceReader, replay};
/// use zonal::{MemoryDrive, Profile, ZoneId, ZonedDevice};
/// let shape = Profile::Small.geometry();
/// let mut file = Vec::new();
/// let traced = Trace::new(MemoryDrive::new(shape)?, &mut file, TraceContent::Data)?;
/// traced.append(ZoneId::new(3), &[5; 4096])?;
/// traced.flush()?;
/// drop(traced);
/// let mut trace = TraceReader::new(file.as_slice(), Path::new("example"))?;
/// assert_eq!(replay(&mut trace, &MemoryDrive::new(shape)?)?.operations, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Trace<D, W: Write> {
    below: D,
    content: TraceContent,
    recorder: Mutex<Recorder<W>>,
}

struct Recorder<W: Write> {
    sink: std::io::BufWriter<W>,
    next: u64,
    /// The first failure to write. Nothing is recorded after it; `flush` reports it.
    failure: Option<std::io::Error>,
}

impl<D: ZonedDevice, W: Write + Send> Trace<D, W> {
    /// `below`, recorded into `sink`.
    pub fn new(below: D, sink: W, content: TraceContent) -> Result<Self> {
        let mut sink = std::io::BufWriter::new(sink);
        let header = format::encode_header(below.geometry(), content);
        sink.write_all(header.as_bytes()).map_err(trace_error)?;
        let recorder = Mutex::new(Recorder { sink, next: 0, failure: None });
        Ok(Self { below, content, recorder })
    }

    /// The device below.
    pub const fn below(&self) -> &D {
        &self.below
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder<W>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records one operation that ended.
    fn record<T>(&self, recorder: &mut Recorder<W>, entry: &Entry<'_>, outcome: &Result<T>) {
        let mut record = entry.record(recorder.next, status(outcome));
        format::seal(&mut record);
        recorder.next += 1;
        if recorder.failure.is_some() {
            return;
        }
        let carried = match (self.content, entry.kind) {
            (TraceContent::Data, OpKind::Write | OpKind::Append) => entry.data,
            (TraceContent::Data | TraceContent::Checksums, _) => &[],
        };
        let written = recorder
            .sink
            .write_all(record.as_bytes())
            .and_then(|()| recorder.sink.write_all(carried));
        recorder.failure = written.err();
    }

    fn record_read<T>(
        &self,
        recorder: &mut Recorder<W>,
        lba: Lba,
        buffer: &[u8],
        outcome: &Result<T>,
    ) {
        let mut entry = Entry::of_data(OpKind::Read, self.below.geometry(), lba, buffer);
        if outcome.is_err() {
            entry.data = &[]; // What a failed read leaves in the buffer means nothing.
        }
        self.record(recorder, &entry, outcome);
    }

    fn record_write<T>(
        &self,
        recorder: &mut Recorder<W>,
        lba: Lba,
        data: &[u8],
        outcome: &Result<T>,
    ) {
        let entry = Entry::of_data(OpKind::Write, self.below.geometry(), lba, data);
        self.record(recorder, &entry, outcome);
    }

    fn record_append(
        &self,
        recorder: &mut Recorder<W>,
        zone: ZoneId,
        data: &[u8],
        outcome: &Result<Lba>,
    ) {
        let lba = *outcome.as_ref().unwrap_or(&Lba::ZERO);
        let entry = Entry::of_data(OpKind::Append, self.below.geometry(), lba, data);
        self.record(recorder, &Entry { zone, ..entry }, outcome);
    }

    /// Records a flush, which also tells whether recording has failed.
    fn record_flush(&self, recorder: &mut Recorder<W>, outcome: Result<()>) -> Result<()> {
        self.record(recorder, &Entry::new(OpKind::Flush), &outcome);
        if recorder.failure.is_none() {
            recorder.failure = recorder.sink.flush().err();
        }
        match &recorder.failure {
            Some(source) => {
                Err(trace_error(std::io::Error::new(source.kind(), source.to_string())))
            }
            None => outcome,
        }
    }
}

/// The requests of a batch in an order in which a replay, one by one, ends in the same way: as they
/// stand, but appends to one zone in the order in which they went there.
fn in_order(batch: &[Io<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    let mut appends: BTreeMap<ZoneId, Vec<usize>> = BTreeMap::new();
    for (number, io) in batch.iter().enumerate() {
        if let (Op::Append { zone, data }, Some(Ok(_))) = (&io.op, &io.result)
            && !data.is_empty()
        {
            appends.entry(*zone).or_default().push(number);
        }
    }
    let at =
        |number: &usize| batch[*number].result.as_ref().and_then(|result| result.as_ref().ok());
    for places in appends.into_values() {
        let mut sorted = places.clone();
        sorted.sort_by_key(at);
        for (place, number) in places.into_iter().zip(sorted) {
            order[place] = number;
        }
    }
    order
}

/// The record of an operation, without its status.
struct Entry<'a> {
    kind: OpKind,
    select: u8,
    zone: ZoneId,
    lba: Lba,
    blocks: LbaCount,
    data: &'a [u8],
}

impl<'a> Entry<'a> {
    fn new(kind: OpKind) -> Self {
        let (zone, lba, blocks) = (ZoneId::ZERO, Lba::ZERO, LbaCount::ZERO);
        Self { kind, select: 0, zone, lba, blocks, data: &[] }
    }

    fn of_data(kind: OpKind, geometry: &Geometry, lba: Lba, data: &'a [u8]) -> Self {
        let blocks = LbaCount::new(data.len() as u64 >> geometry.block_size().shift());
        Self { lba, blocks, data, ..Self::new(kind) }
    }

    fn of_action(zones: Select, action: ZoneAction) -> Self {
        let (select, zone) = match zones {
            Select::One(zone) => (0, zone),
            Select::All => (1, ZoneId::ZERO),
        };
        Self { select, zone, ..Self::new(OpKind::of(action)) }
    }

    fn record(&self, index: u64, status: u16) -> TraceRecord {
        TraceRecord {
            magic: format::RECORD_MAGIC,
            crc: 0.into(),
            index: index.into(),
            op: self.kind as u8,
            select: self.select,
            status: status.into(),
            zone: self.zone.get().into(),
            lba: self.lba.get().into(),
            blocks: self.blocks.get().into(),
            data_crc: crc32c::crc32c(self.data).into(),
            reserved: 0.into(),
        }
    }
}

/// How an operation ended, as the file holds it.
fn status<T>(outcome: &Result<T>) -> u16 {
    match outcome {
        Ok(_) => 0,
        Err(error) => {
            let status = error.nvme_status();
            u16::from(status.kind) << 8 | u16::from(status.code)
        }
    }
}

/// The bytes of a report that its checksum covers: conditions and write pointers.
fn report_bytes(zones: &[Zone]) -> Vec<u8> {
    let bytes = |zone: &Zone| {
        let wp = zone.wp.map_or(u64::MAX, Lba::get);
        std::iter::once(zone.cond.code()).chain(zerocopy::little_endian::U64::new(wp).to_bytes())
    };
    zones.iter().flat_map(bytes).collect()
}

fn trace_error(source: std::io::Error) -> DeviceError {
    DeviceError::Io { what: "writing the trace".into(), source }
}

impl<D: ZonedDevice, W: Write + Send> ZonedDevice for Trace<D, W> {
    crate::pass_on!(below: geometry, identity, rotates, keep_reserve, use_reserve);

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        let (mut recorder, before) = (self.recorder(), zones.len());
        let outcome = self.below.report(first, zones, limit);
        let data = report_bytes(&zones[before..]);
        let blocks = LbaCount::new(limit as u64);
        let entry = Entry { zone: first, blocks, data: &data, ..Entry::new(OpKind::Report) };
        self.record(&mut recorder, &entry, &outcome);
        outcome
    }

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let mut recorder = self.recorder();
        let outcome = self.below.read(lba, buffer);
        self.record_read(&mut recorder, lba, buffer, &outcome);
        outcome
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        let mut recorder = self.recorder();
        let outcome = self.below.write(lba, data);
        self.record_write(&mut recorder, lba, data, &outcome);
        outcome
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        let mut recorder = self.recorder();
        let outcome = self.below.append(zone, data);
        self.record_append(&mut recorder, zone, data, &outcome);
        outcome
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        let mut recorder = self.recorder();
        let outcome = self.below.manage(zones, action);
        self.record(&mut recorder, &Entry::of_action(zones, action), &outcome);
        outcome
    }

    fn flush(&self) -> Result<()> {
        let mut recorder = self.recorder();
        let outcome = self.below.flush();
        self.record_flush(&mut recorder, outcome)
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        let mut recorder = self.recorder();
        let outcome = self.below.deallocate(lba, blocks);
        let entry = Entry { lba, blocks, ..Entry::new(OpKind::Deallocate) };
        self.record(&mut recorder, &entry, &outcome);
        outcome
    }

    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut recorder = self.recorder();
        self.below.submit(batch);
        for number in in_order(batch) {
            let Io { op, result } = &mut batch[number];
            let Some(outcome) = result else { continue };
            match op {
                Op::Read { lba, buffer } => self.record_read(&mut recorder, *lba, buffer, outcome),
                Op::Write { lba, data } => self.record_write(&mut recorder, *lba, data, outcome),
                Op::Append { zone, data } => {
                    self.record_append(&mut recorder, *zone, data, outcome);
                }
                Op::Flush => {
                    let flushed = result.take().expect("just found").map(drop);
                    let flushed = self.record_flush(&mut recorder, flushed);
                    *result = Some(flushed.map(|()| Lba::ZERO));
                }
            }
        }
    }
}
