//! Shared by all benchmarks of the workspace, and by nothing that ships.
//!
//! A benchmark measures its subjects in turns ([`interleave`]) by one of the clocks, and adds the
//! samples of each figure to a [`Report`]. The report prints the figures next to figures of earlier
//! runs, and writes them as JSON ([`Results`]). `bench/results/` keeps such files, and
//! `cargo xtask bench report` prints the tables of `docs/performance*` from them.

#![forbid(unsafe_code)]

pub mod callgrind;
#[cfg(feature = "clock")]
mod clock;
mod figures;
mod memory;
mod report;
mod results;
mod turns;

#[cfg(feature = "clock")]
pub use clock::{Machine, ProcessorTime, Took, process_ns, thread_ns, threads_ns, timed};
pub use figures::{Spread, digits, median, ratio};
pub use memory::{KEEP_FREED, keep_freed};
pub use report::{DIRTY, Report, commit};
pub use results::{Figure, Results, Run, table};
pub use turns::{WarmUp, interleave};
