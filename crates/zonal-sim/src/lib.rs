//! An SSD simulator: conventional, zoned and FDP drives on one flash model.
//!
//! | module | question |
//! | --- | --- |
//! | [`config`] | which fields does a config have, in which units and ranges? |
//! | [`files`] | how do file systems compare on the same files? |
//! | [`flash`] | which shape does the flash have, and how long do its operations take? |
//! | [`ftl`] | where does data lie? Page-mapped, zone-mapped, FDP; victims, GC, wear |
//! | [`host`] | how does a host overwrite in place on zones? Its log and reclaim |
//! | [`load`] | which requests does the host send? Generators and traces, as [`load::Request`]s |
//! | [`measured`] | how far is a preset from the real drive? |
//! | [`experiment`] | many configs, one question, and the published answer beside ours |
//! | [`preset`] | which configs come with the simulator? |
//! | [`ssd`] | how does a file system run on a simulated drive? |
//! | [`trace`] | how is a trace read, and put on a drive? |
//! | [`counting`] | how does a config run in counting mode? |
//! | [`timed`] | how long do requests take? A translation layer driven by discrete events |
//! | [`sweep`] | how is a config run with many values, on many cores and machines? |
//! | [`report`] | how are results shown? Tables, pictures, pages |
//! | [`theory`] | which amplification do published formulas predict? |
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
