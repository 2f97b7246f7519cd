//! Route of the data of an open file: through the page cache or direct, and by which mount.

/// How the data of an open file travels. The handle of the file is the number of its route.
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
        let others = [Self::Direct, Self::Backed, Self::DirectForced];
        others.into_iter().find(|route| route.handle() == handle).unwrap_or(Self::Cached)
    }
}

impl Route {
    /// Handle of an open file with this route.
    pub(super) fn handle(self) -> u64 {
        self as u64
    }
}
