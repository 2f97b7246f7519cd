//! The command line of `zonal sim sweep`, `merge` and `replay`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use zonal_sim::config::Setting;
use zonal_sim::sweep::{Over, Shard};
use zonal_sim::trace::{Fit, Format};

use super::sim::Simulated;

#[derive(Args)]
pub(crate) struct SimSweep {
    #[command(flatten)]
    pub(crate) simulated: Simulated,
    /// A field and its values, as in `op=5..100:5`, `victim=greedy,fifo` or `drive.user=1.6TB`;
    /// op is in percent
    #[arg(long, value_name = "FIELD=VALUES")]
    pub(crate) over: Vec<Over>,
    /// Only every N-th run, from the I-th on: one machine's part
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// Runs at once; as many as there are cores if it is not given
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// The CSV; runs that are in it already are not done again
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Args)]
pub(crate) struct SimMerge {
    /// The CSVs of all shards, in any order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) parts: Vec<PathBuf>,
    /// The file that all runs go to; it must not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Args)]
pub(crate) struct SimReplay {
    /// The trace: of fio, blkparse, MSR Cambridge, Alibaba or Tencent; plain, gzip or zstd
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// The drive: a TOML file, or the name of a config that comes with the simulator
    #[arg(long, value_name = "CONFIG", default_value = "small")]
    pub(crate) config: String,
    /// Change a field of the config, as in `drive.op=0.28`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of everything random, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// fio, blkparse (`:D`, `:C` for other events than Q), msr, alibaba or tencent; found out from
    /// the first lines if it is not given
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// Only this volume, as the trace names it
    #[arg(long)]
    pub(crate) volume: Option<String>,
    /// So many times faster than in the trace
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
    /// Request after request, without the times of the trace
    #[arg(long, conflicts_with = "speed")]
    pub(crate) closed: bool,
    /// How addresses fit on the drive: compact, 1 MiB after 1 MiB as they are touched first, or
    /// modulo its capacity
    #[arg(long, value_name = "compact|modulo")]
    pub(crate) fit: Option<Fit>,
    /// Replay it so many times; once if nothing is given
    #[arg(long, value_name = "N")]
    pub(crate) loops: Option<u32>,
    /// Replay it until the host has written the user capacity so many times
    #[arg(long, value_name = "N", conflicts_with = "loops")]
    pub(crate) drive_writes: Option<f64>,
    /// Pass over lines that cannot be read, and count them
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Print the course as CSV
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}
