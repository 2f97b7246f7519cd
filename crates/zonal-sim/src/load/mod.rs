//! What the host does: a stream of requests, generated or read from a trace.

use crate::error::Result;

/// What a request is for.
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
    /// What for.
    pub op: Op,
    /// Stream or reclaim unit handle.
    pub handle: u8,
}

/// A source of requests. It may be endless.
pub trait Workload {
    /// Clears `batch` and fills it up to its capacity; fewer requests than that only at the end.
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()>;
}
