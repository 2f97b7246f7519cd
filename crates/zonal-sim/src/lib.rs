//! An SSD simulator: conventional, zoned and FDP drives on one flash model.
//!
//! | module | question |
//! | --- | --- |
//! | [`config`] | what is simulated? Every field, its unit and its range |
//! | [`files`] | what do file systems make of the same files? |
//! | [`flash`] | of which shape is the flash, and how long do its operations take? |
//! | [`ftl`] | where does data lie? Page-mapped, zone-mapped, FDP; victims, GC, wear |
//! | [`host`] | what if the host overwrites in place on zones? Its log and reclaim |
//! | [`load`] | what does the host do? Generators and traces, as [`load::Request`]s |
//! | [`measured`] | how far is a preset from the real drive? |
//! | [`experiment`] | many configs, one question, and the published answer beside ours |
//! | [`preset`] | which configs come with it? |
//! | [`ssd`] | how does a file system run on a simulated drive? |
//! | [`trace`] | how is a trace read, and put on a drive? |
//! | [`counting`] | what does counting mode do with a config? |
//! | [`timed`] | how long does it take? A translation layer driven by discrete events |
//! | [`sweep`] | how is a config run with many values, on many cores and machines? |
//! | [`report`] | what came out? Tables, pictures, pages |
//! | [`theory`] | what amplification should come out? Published formulas |
//!
//! There are two modes. *Counting* has no time: a workload drives a translation layer as fast as
//! memory allows. *Timed* drives the same translation layer, step by step, by discrete events.
//! Nothing reads a clock or ambient randomness: the same config and seed give the same bytes (S1).

#![forbid(unsafe_code)]

pub mod config;
mod controller;
pub mod counting;
pub mod error;

pub mod experiment;
pub mod files;
pub mod flash;
pub mod ftl;
pub mod host;
pub mod load;
pub mod measured;
pub mod preset;
pub mod report;
mod request;
mod scheme;
pub mod size;
pub mod ssd;
pub mod sweep;
pub mod theory;
pub mod timed;
pub mod trace;

pub use config::Config;
pub use error::{Result, SimError};
pub use scheme::SCHEME;
pub use size::Size;
pub use ssd::SimSsd;

/// Progress of some work: `done` of `total`, in the unit of that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Done so far.
    pub done: u64,
    /// All of it.
    pub total: u64,
}
