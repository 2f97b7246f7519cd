//! The table: rows on the drive, sorted by key.
//!
//! | file | question |
//! | --- | --- |
//! | [`key`] | in which order do rows lie? |
//! | [`leaf`] | how do a few hundred neighbouring rows become bytes, and come back? |

pub mod key;
pub mod leaf;

#[cfg(test)]
mod sample;
