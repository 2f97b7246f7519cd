//! Tools for a drive that is not mounted: format, check, dump.

pub(super) mod check;
pub(super) mod division;
pub(super) mod dump;
pub(super) mod mkfs;
