//! The table: rows on the drive, sorted by key.
//!
//! | file | question |
//! | --- | --- |
//! | [`key`] | in which order do rows lie? |
//! | [`leaf`] | how do a few hundred neighbouring rows become bytes, and come back? |
//! | [`part`] | how are leaves written and found again, in two copies? |
//! | [`merge`] | what is the newest row of each key? |

pub mod key;
pub mod leaf;
pub mod merge;
pub mod part;

#[cfg(test)]
mod sample;
