//! Requests of a host, and their sources: generators (`load/`) and traces (`trace/`).

use serde::Serialize;

use crate::error::Result;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// The data is not needed any more; drives may use that.
    Trim,
    /// A whole zone is not needed any more. A zoned drive resets it; others take no notice.
    Reset,
    /// An empty zone is opened with a random write area. A zoned drive gives it one, if it has one
    /// left; others take no notice.
    OpenArea,
    /// The host commits the random write area of a zone up to the unit at the offset. Drives take
    /// no notice where the zone has none.
    Commit,
    /// Nothing more is written to a zone. A zoned drive finishes it; others take no notice.
    Finish,
}

/// One request. Offsets are bytes of the user capacity; on a zoned drive zones follow each other
/// there without the gap between capacity and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrives, for workloads with times of their own; otherwise 0.
    pub at_ns: u64,
    /// The first byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// The operation.
    pub op: Op,
    /// Stream or reclaim unit handle.
    pub handle: u8,
}

/// A source of requests. It may be endless.
pub trait Workload: Send {
    /// Clears `batch` and fills it up to its capacity; fewer requests than that only at the end.
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()>;

    /// Whether its requests have times of their own.
    fn has_times(&self) -> bool {
        false
    }

    /// Counts of the trace that is replayed, so far; `None` for generators.
    fn seen(&self) -> Option<Seen> {
        None
    }
}

/// Counts of a replayed trace so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Seen {
    /// Requests of the trace.
    pub requests: u64,
    /// Of these, reads.
    #[serde(rename = "read_requests")]
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Lines that were passed over because they could not be read.
    pub bad_lines: u64,
    /// Times the trace was begun.
    pub loops: u32,
    /// Bytes that the trace has touched, in regions of 1 MiB.
    pub touched_bytes: u64,
    /// Bytes of the drive that the trace has reached; 0 for `fit = "modulo"`.
    pub reached_bytes: u64,
    /// Places of the trace that share their room on the drive with another, because the drive is
    /// too small for all.
    #[serde(rename = "shared_regions")]
    pub shared: u64,
}
