//! A simulator of drives: conventional, zoned and FDP SSDs on one flash model, and spinning disks.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `error` | what can fail | |
//! | [`size`] | sizes as people write them | |
//! | `ends` | when do commands end? | |
//! | `request` | a request of a host | `error` |
//! | [`flash`] | which shape does the flash have, and how long do its operations take? | `error`, `size` |
//! | [`config`] | which fields does a config have, in which units and ranges? | `error`, `size`, `flash` |
//! | [`preset`] | which configs come with the simulator? | `config` |
//! | [`theory`] | which amplification do published formulas predict? | |
//! | `controller` | how long do commands take outside the flash? | `flash`, `config` |
//! | [`trace`] | how is a trace read, and put on a drive? | `error`, `size`, `request`, `flash`, `config` |
//! | [`load`] | which requests does the host send? Generators and traces, as [`load::Request`]s | `error`, `size`, `request`, `flash`, `config`, `trace` |
//! | [`ftl`] | where does data lie? Page-mapped, zone-mapped, FDP; victims, GC, wear | `error`, `size`, `flash`, `config` |
//! | [`host`] | how does a host overwrite in place on zones? Its log and reclaim | `error`, `size`, `flash`, `config`, `ftl` |
//! | [`report`] | how are results shown? Tables, pictures, pages | |
//! | [`counting`] | how does a config run in counting mode? | `error`, `flash`, `config`, `trace`, `load`, `ftl`, `host`, `report` |
//! | [`timed`] | how long do requests take? A translation layer driven by discrete events | `error`, `request`, `flash`, `config`, `controller`, `trace`, `load`, `ftl`, `report`, `counting` |
//! | [`ssd`] | how does a file system run on a simulated drive? | `ends`, `error`, `size`, `flash`, `config`, `controller`, `ftl`, `host` |
//! | [`disk`] | how does a file system run on a simulated spinning disk? | `ends`, `error`, `size`, `config`, `controller` |
//! | [`files`] | how do file systems compare on the same files? | `error`, `size`, `flash`, `config`, `ssd` |
//! | `scheme` | `sim:CONFIG` as the name of a device | `error`, `config`, `preset`, `ssd`, `disk` |
//! | [`measured`] | how far is a preset from the real drive? | `error`, `size`, `config`, `report`, `timed`, `ssd` |
//! | [`experiment`] | many configs, one question, and the published answer beside ours | `error`, `config`, `preset`, `theory`, `ftl`, `report`, `counting`, `timed`, `disk`, `measured` |
//! | [`sweep`] | how is a config run with many values, on many cores and machines? | `error`, `config`, `ftl`, `report`, `counting`, `timed` |
//!
//! There are two modes. *Counting* has no time: a workload drives a translation layer as fast as
//! memory allows. *Timed* drives the same translation layer, step by step, by discrete events.
//! Nothing reads a clock or ambient randomness: the same config and seed give the same bytes (S1).

#![forbid(unsafe_code)]

pub mod config;
mod controller;
pub mod counting;
pub mod disk;
mod ends;
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
pub use disk::SimDisk;
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
