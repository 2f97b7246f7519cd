//! The controller of a drive: the time that its commands take outside the flash.

use serde::{Deserialize, Serialize};

use crate::error::{Result, within};

/// A controller with times of its own. Without this section a drive models only the flash and a
/// constant time for each command, and performs the requests of a batch one after the other.
///
/// The defaults come from the `zn540` preset; its file names their sources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Controller {
    /// Time of a write from its arrival to its acknowledgement, without the transfer of its data
    /// and without waiting; at least `write_busy_us`.
    pub write_us: f64,
    /// Time for which a write occupies the processor: its reciprocal limits writes a second.
    pub write_busy_us: f64,
    /// Time of an append, as `write_us`; at least `append_busy_us`.
    pub append_us: f64,
    /// Time for which an append occupies the processor.
    pub append_busy_us: f64,
    /// Time for which a read occupies the processor.
    pub read_busy_us: f64,
    /// Mean of the exponential part of the time for which a command occupies the processor; at most
    /// the shortest of the three times above.
    pub jitter_us: f64,
    /// Additional time of the first write of an empty zone.
    pub first_write_us: f64,
    /// Additional time of the first append of an empty zone.
    pub first_append_us: f64,
    /// Time to open a zone.
    pub open_us: f64,
    /// Time to close a zone.
    pub close_us: f64,
    /// Time to finish a zone that needs no padding, because it is empty or full.
    pub finish_us: f64,
    /// Time to reset an empty zone.
    pub reset_us: f64,
    /// Additional time of a reset for each written superblock.
    pub reset_superblock_us: f64,
    /// Share by which a reset takes longer or shorter at most.
    pub reset_spread: f64,
    /// Mean time for which a command waits while a reset occupies the processor.
    pub reset_slice_us: f64,
    /// Time for which a reset holds the mapping, from its begin on: a read that arrives then waits
    /// for the end of the reset.
    pub reset_lock_us: f64,
    /// Rate of the link from the host, 10^6 bytes a second.
    pub link_in_mb_s: f64,
    /// Rate of the link to the host, 10^6 bytes a second.
    pub link_out_mb_s: f64,
    /// Additional time to sense the last page of a program.
    pub slow_page_us: f64,
    /// Share by which a plane takes longer or shorter at most to program; a program ends with the
    /// slowest plane of its die.
    pub program_spread: f64,
    /// Mean of the exponential part of a suspension: the program first goes on to the end of a
    /// pulse.
    pub suspend_pulse_us: f64,
    /// Reads for which one program is suspended at most; the next ones wait for its end.
    pub suspends_max: u32,
    /// Writes of the size of the one that waits, for which a full write buffer must have room
    /// before that one goes on.
    pub resume_writes: u32,
    /// Stripes of the host after which the drive programs one of its own; 0: never.
    pub own_stripe_every: u32,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            write_us: 9.6,
            write_busy_us: 5.4,
            append_us: 13.1,
            append_busy_us: 7.4,
            read_busy_us: 1.5,
            jitter_us: 1.0,
            first_write_us: 2.1,
            first_append_us: 2.8,
            open_us: 9.5,
            close_us: 10.9,
            finish_us: 14.0,
            reset_us: 1600.0,
            reset_superblock_us: 14_300.0,
            reset_spread: 0.12,
            reset_slice_us: 14.2,
            reset_lock_us: 30.0,
            link_in_mb_s: 2370.0,
            link_out_mb_s: 3250.0,
            slow_page_us: 12.3,
            program_spread: 0.06,
            suspend_pulse_us: 65.0,
            suspends_max: 4,
            resume_writes: 3,
            own_stripe_every: 31,
        }
    }
}

impl Controller {
    /// Refuses fields outside their range.
    pub(super) fn check(&self) -> Result<()> {
        within("controller.write_busy_us", self.write_busy_us, 0.0, 1e6)?;
        within("controller.write_us", self.write_us, self.write_busy_us, 1e6)?;
        within("controller.append_busy_us", self.append_busy_us, 0.0, 1e6)?;
        within("controller.append_us", self.append_us, self.append_busy_us, 1e6)?;
        within("controller.read_busy_us", self.read_busy_us, 0.0, 1e6)?;
        let busy_us = self.write_busy_us.min(self.append_busy_us).min(self.read_busy_us);
        within("controller.jitter_us", self.jitter_us, 0.0, busy_us)?;
        within("controller.first_write_us", self.first_write_us, 0.0, 1e6)?;
        within("controller.first_append_us", self.first_append_us, 0.0, 1e6)?;
        within("controller.open_us", self.open_us, 0.0, 1e6)?;
        within("controller.close_us", self.close_us, 0.0, 1e6)?;
        within("controller.finish_us", self.finish_us, 0.0, 1e6)?;
        within("controller.reset_us", self.reset_us, 0.0, 1e7)?;
        within("controller.reset_superblock_us", self.reset_superblock_us, 0.0, 1e7)?;
        within("controller.reset_spread", self.reset_spread, 0.0, 1.0)?;
        within("controller.reset_slice_us", self.reset_slice_us, 0.0, 1e6)?;
        within("controller.reset_lock_us", self.reset_lock_us, 0.0, 1e6)?;
        within("controller.link_in_mb_s", self.link_in_mb_s, 1.0, 1e6)?;
        within("controller.link_out_mb_s", self.link_out_mb_s, 1.0, 1e6)?;
        within("controller.slow_page_us", self.slow_page_us, 0.0, 1e5)?;
        within("controller.program_spread", self.program_spread, 0.0, 1.0)?;
        within("controller.suspend_pulse_us", self.suspend_pulse_us, 0.0, 1e5)?;
        within("controller.suspends_max", self.suspends_max, 0, 255)?;
        within("controller.resume_writes", self.resume_writes, 1, 64)?;
        within("controller.own_stripe_every", self.own_stripe_every, 0, 1 << 20)
    }
}
