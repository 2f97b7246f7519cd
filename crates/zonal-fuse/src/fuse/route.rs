//! Route of the data of an open file: through the page cache or direct, and by which mount.

/// Handle of a file that goes through the page cache.
const CACHED: u64 = 0;
/// Handle of a file opened with `O_DIRECT`.
const DIRECT: u64 = 1;
/// Handles of files with a backing file.
const BACKED: u64 = 2;
const DIRECT_FORCED: u64 = 3;

/// How the data of an open file travels. The handle of the file says which route it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Through the page cache.
    Cached,
    /// Direct, as the open flags ask (`O_DIRECT`).
    Direct,
    /// Direct reads by the hidden mount (passthrough).
    Backed,
    /// Direct I/O forced because a passthrough reader has the file open.
    DirectForced,
}

impl From<u64> for Route {
    fn from(handle: u64) -> Self {
        match handle {
            DIRECT => Self::Direct,
            BACKED => Self::Backed,
            DIRECT_FORCED => Self::DirectForced,
            _ => Self::Cached,
        }
    }
}

impl Route {
    /// Handle of an open file with this route.
    pub(super) fn handle(self) -> u64 {
        match self {
            Self::Cached => CACHED,
            Self::Direct => DIRECT,
            Self::Backed => BACKED,
            Self::DirectForced => DIRECT_FORCED,
        }
    }
}
