//! The tools: what works on a drive that is not mounted.

pub(in crate::furrow) mod check;
pub(in crate::furrow) mod division;
pub(in crate::furrow) mod dump;
pub(in crate::furrow) mod mkfs;
