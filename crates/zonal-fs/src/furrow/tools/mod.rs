//! The tools: what works on a drive that is not mounted.

pub(super) mod check;
pub(super) mod division;
pub(super) mod dump;
pub(super) mod mkfs;
