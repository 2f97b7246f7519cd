//! Placement: into which zone a block goes, and which zone is emptied next. One policy for Furrow,
//! for the simulator and for models, as pure code: it knows no drive, reads no clock and draws no
//! random numbers.
//!
//! | file | question |
//! | --- | --- |
//! | [`lifetime`] | how long does a program say that its data will live? |
//! | [`life`] | how long will a block live, and how old is it? |
//! | [`learned`] | how long has data of a kind lived, and how large are its files? |
//! | [`sharing`] | which files share a zone, and which have one of their own? |
//! | [`streams`] | which of the open zones does a writer get? |
//! | [`victim`] | which of two zones is the better victim? |
//! | [`victims`] | which of all zones is emptied next? |
//! | [`pace`] | how much does a write pay for reclaim? |
//! | `model` | how many blocks does a policy move under a workload? With the feature of this name |

#![forbid(unsafe_code)]

pub mod learned;
pub mod life;
pub mod lifetime;
#[cfg(feature = "model")]
pub mod model;
pub mod pace;
pub mod sharing;
pub mod streams;
pub mod victim;
pub mod victims;
