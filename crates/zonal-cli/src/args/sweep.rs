//! The command line of `zonal sim sweep` and `replay`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::PossibleValuesParser;
use zonal_sim::config::Setting;
use zonal_sim::sweep::{FIGURES, Over};
use zonal_sim::trace::{Fit, Format};

use super::simulated::{Simulated, presets};
use super::suggested::Suggested;

#[derive(Args)]
pub(crate) struct SimSweep {
    #[command(flatten)]
    pub(crate) simulated: Simulated,
    /// A field and its values, as in `op=5..100:5` (percent), `victim=greedy,fifo` or
    /// `drive.user=1.6TB`
    #[arg(long, value_name = "FIELD=VALUES")]
    pub(crate) over: Vec<Over>,
    /// Run each combination this many times, with different seeds
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seeds: NonZeroUsize,
    /// Number of parallel runs [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// CSV file to write; runs that it already holds are skipped
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Draw the figure as SVG, or as PNG where FILE ends in .png: over the field with most numbers,
    /// or as bars
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Figure to print and draw: a column of the CSV
    #[arg(
        long,
        value_name = "COLUMN",
        default_value = "wa",
        value_parser = PossibleValuesParser::new(FIGURES),
        hide_possible_values = true
    )]
    pub(crate) figure: String,
}

/// Most drive writes that a config may ask for: as many as the loops come to.
pub(crate) const DRIVE_WRITES_MAX: f64 = 1e6;

fn drive_writes(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if number > 0.0 && number <= DRIVE_WRITES_MAX {
        return Ok(number);
    }
    Err(format!("more than 0, at most {DRIVE_WRITES_MAX}: 0 drive writes measure nothing"))
}

/// How a trace and a drive fit together.
#[derive(Clone, Copy)]
pub(crate) enum TraceFit {
    /// The trace's addresses fit on the drive in this way.
    Addresses(Fit),
    /// The drive is as large as the trace, and has this share of over-provisioning.
    Drive { op: f64 },
}

impl FromStr for TraceFit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            let fit = text.parse().map_err(|error| format!("{error}, nor a percentage"))?;
            return Ok(Self::Addresses(fit));
        };
        match percent.parse::<f64>() {
            Ok(percent) if percent.is_finite() => Ok(Self::Drive { op: percent / 100.0 }),
            _ => Err(format!("{text:?} is no percentage, as in 7%")),
        }
    }
}

#[derive(Args)]
pub(crate) struct SimReplay {
    /// Trace of fio, blkparse, MSR Cambridge, Alibaba, Tencent or SYSTOR '17, or a recording of a
    /// `trace(FILE):` layer; plain, gzip or zstd
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Config of the drive: a TOML file, or the name of a preset
    #[arg(
        long,
        value_name = "CONFIG",
        default_value = "small",
        value_parser = Suggested(presets),
        hide_possible_values = true
    )]
    pub(crate) config: String,
    /// Change a field of the config, as in `drive.op=0.28`
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Seed of the random numbers, instead of the config's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Format: fio, blkparse (`blkparse:D` or `:C` for other events than Q), msr, alibaba, tencent,
    /// systor or zonal [default: detected from the first lines]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// Replay only this volume, as the trace names it
    #[arg(long)]
    pub(crate) volume: Option<String>,
    /// Speed-up factor of the trace's timestamps
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
    /// Issue each request when the one before it ends, ignoring the trace's timestamps
    #[arg(long, conflicts_with = "speed")]
    pub(crate) closed: bool,
    /// Mapping of addresses to the drive: compact (1 MiB regions in the order of first
    /// access) or modulo the drive's capacity; a percentage, as in `7%`: compact, on a drive as
    /// large as the trace with that over-provisioning
    #[arg(long, value_name = "compact|modulo|OP%")]
    pub(crate) fit: Option<TraceFit>,
    /// Number of replays [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) loops: Option<u32>,
    /// Replay until the host has written the user capacity this many times
    #[arg(long, value_name = "N", conflicts_with = "loops", value_parser = drive_writes)]
    pub(crate) drive_writes: Option<f64>,
    /// Skip and count lines that cannot be parsed
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Print a time series as CSV
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}
