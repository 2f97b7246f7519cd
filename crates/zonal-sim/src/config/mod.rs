//! The config of a simulation: one TOML file. Every field has a default, a unit and a range.
//!
//! Unknown fields are refused. Sweeps set fields by their path, as in `drive.op`; that is why the
//! sections are flat and a section that does not concern the drive is ignored.

mod choice;
mod controller;
mod disk;
#[cfg(feature = "schema")]
pub mod fields;
mod layout;
mod replay;
mod set;

use serde::{Deserialize, Serialize};

pub use choice::{Frontier, Isolation, Victim};
pub use controller::Controller;
pub use disk::{DISK_BLOCK_BYTES, Disk};
pub use layout::Layout;
pub use replay::{BadLines, Event, Fit, Format, ReplayTimes, Trace};
pub use set::Setting;

use crate::error::{Result, SimError, refused, within};
use crate::flash::Flash;
use crate::size::Size;

/// A simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What people call it.
    pub name: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The flash.
    pub flash: Flash,
    /// The drive made of it.
    pub drive: Drive,
    /// The controller, if it has times of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<Controller>,
    /// The spinning disk, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// GC of a conventional or FDP drive.
    pub gc: Gc,
    /// Zones of a zoned drive.
    pub zones: Zones,
    /// Placement of an FDP drive.
    pub fdp: Fdp,
    /// The workload of the host.
    pub workload: Workload,
    /// How a trace is replayed.
    pub trace: Trace,
    /// How long it runs, and how often it is sampled.
    pub run: Run,
}

/// How a drive shows its flash to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Blocks that may be written anywhere: page-mapped, with over-provisioning and GC.
    #[default]
    Conventional,
    /// Zones, written sequentially: zone-mapped, no GC.
    Zns,
    /// As conventional, but the host names a reclaim unit handle with each write.
    Fdp,
}

/// The drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Drive {
    /// Which interface it has.
    pub kind: Kind,
    /// Nominal over-provisioning, (raw − user) / user. Not used if `user` is given.
    pub op: f64,
    /// User capacity, instead of `op`.
    pub user: Option<Size>,
    /// Share of superblocks lost to bad blocks and parity, before over-provisioning counts.
    pub reserved: f64,
    /// Mapping unit: what one entry of the mapping table stands for.
    pub unit: Size,
    /// Firmware time of a read. 6 for conventional, 20 for the pre-production zoned drive: fitted.
    pub read_firmware_us: f64,
    /// Write buffer: programs that may wait for each die. 3: hides collisions of dies.
    pub buffer_programs: u32,
    /// GC reads that may be under way at once.
    pub gc_reads: u32,
}

impl Default for Drive {
    fn default() -> Self {
        Self {
            kind: Kind::Conventional,
            op: 0.07,
            user: None,
            reserved: 0.0,
            unit: Size(4096),
            read_firmware_us: 6.0,
            buffer_programs: 3,
            gc_reads: 64,
        }
    }
}

/// GC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Gc {
    /// How a victim is chosen: `greedy`, `cost-benefit`, `fifo`, `random`, `d-choices:5`,
    /// `windowed:100`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub victim: Victim,
    /// Whether moved data has a frontier of its own.
    pub frontier: Frontier,
    /// Free superblocks below which GC works; at most a quarter of all.
    pub low_water: u32,
    /// Streams the host may name; 1 is none.
    pub streams: u32,
    /// Erase counts may differ by this much before cold blocks are moved; 0 is never.
    pub wear_gap: u32,
}

impl Default for Gc {
    fn default() -> Self {
        Self {
            victim: Victim::Greedy,
            frontier: Frontier::Separate,
            low_water: 4,
            streams: 1,
            wear_gap: 0,
        }
    }
}

/// Zones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Zones {
    /// Zone size, as addresses; the capacity is `superblocks` of flash. 0: the capacity, rounded
    /// up to a power of two.
    pub size: Size,
    /// Superblocks of a zone.
    pub superblocks: u32,
    /// Zones that may be open, at most `max_active`. 14: the published drive.
    pub max_open: u32,
    /// Zones that may be active.
    pub max_active: u32,
    /// Superblocks kept to replace worn ones; at most half of all.
    pub spare: u32,
    /// Zone random write area: the window from the write pointer on in which the host may write in
    /// any order, and again. It takes memory of the drive; the drive programs a block only when a
    /// commit moves the write pointer over it. 0: none.
    pub zrwa: Size,
    /// A commit of a random write area programs a whole multiple of this, and pads the part that
    /// the host has not written. 0: the mapping unit.
    pub zrwa_granule: Size,
    /// Zones that may have a random write area at once.
    pub zrwa_zones: u32,
}

impl Default for Zones {
    fn default() -> Self {
        Self {
            size: Size(0),
            superblocks: 1,
            max_open: 14,
            max_active: 14,
            spare: 0,
            zrwa: Size(0),
            zrwa_granule: Size(0),
            zrwa_zones: 14,
        }
    }
}

impl Zones {
    /// Zones that can have a random write area at once.
    pub const fn areas(&self) -> u32 {
        if self.zrwa.0 == 0 { 0 } else { self.zrwa_zones }
    }

    /// Memory of the drive for random write areas.
    pub fn area_bytes(&self) -> u64 {
        self.zrwa.0 * u64::from(self.areas())
    }

    /// Bytes of a granule of commits.
    pub(crate) const fn granule(&self, unit: u64) -> u64 {
        if self.zrwa_granule.0 == 0 { unit } else { self.zrwa_granule.0 }
    }

    fn check(&self, flash: &Flash, unit: Size) -> Result<()> {
        within("zones.superblocks", self.superblocks, 1, flash.superblocks)?;
        within("zones.spare", self.spare, 0, flash.superblocks / 2)?;
        within("zones.max_active", self.max_active, 1, 1 << 16)?;
        within("zones.max_open", self.max_open, 1, self.max_active)?;
        within("zones.zrwa_zones", self.zrwa_zones, 0, 1 << 16)?;
        let capacity = flash.superblock_bytes() * u64::from(self.superblocks);
        let granule = self.granule(unit.0);
        if !granule.is_multiple_of(unit.0) {
            let allowed = format!("a multiple of the mapping unit, {unit}");
            return Err(refused("zones.zrwa_granule", self.zrwa_granule, &allowed));
        }
        if !self.zrwa.0.is_multiple_of(granule) || self.zrwa.0 > capacity {
            let allowed = format!(
                "a multiple of {}, up to the zone capacity, {}",
                Size(granule),
                Size(capacity)
            );
            return Err(refused("zones.zrwa", self.zrwa, &allowed));
        }
        Ok(())
    }
}

/// Flexible data placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Fdp {
    /// Reclaim unit handles.
    pub handles: u32,
    /// Whether data stays apart when GC moves it.
    pub isolation: Isolation,
}

impl Default for Fdp {
    fn default() -> Self {
        Self { handles: 8, isolation: Isolation::Initially }
    }
}

/// The workload of the host. Its `kind` decides which fields count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// The generator.
    pub kind: Pattern,
    /// Bytes of a write.
    pub io: Size,
    /// `zipf`: the exponent.
    pub theta: f64,
    /// `hot-cold`: share of the addresses that is hot.
    pub hot_part: f64,
    /// `hot-cold`: share of the writes that goes there.
    pub hot_share: f64,
    /// `zones`, `log`: zones written at once.
    pub open_zones: u32,
    /// `zones`, `log`: bytes of a zone; 0: a superblock.
    pub zone: Size,
    /// `zones`, `log`: share of a zone that the host writes before it finishes the zone. A zoned
    /// drive then pads the superblock that was begun.
    pub finish_at: f64,
    /// `zones`: share of writes that repeat the last write to their zone. A zoned drive needs
    /// `zones.zrwa` for that.
    pub rewrite_share: f64,
    /// `log`: bytes appended to a zone after which the host commits them, if the zone has a random
    /// write area; the next append begins behind the last granule. 0: only at the end of the zone.
    pub commit_every: Size,
    /// `zones`, `log`: whether each pass writes every zone once, in random order, or any zone may
    /// come next.
    pub permutation: Permutation,
    /// Timed: writes a second, 10^6 bytes; 0: as fast as the drive takes them.
    pub write_mb_s: f64,
    /// Timed: random 4 KiB reads kept in flight.
    pub read_depth: u32,
    /// Timed: writes kept in flight.
    pub write_depth: u32,
    /// `mixed`: share of requests that are reads.
    pub read_share: f64,
    /// `files`: share of the user capacity that files take.
    pub fill: f64,
    /// The trace to replay.
    pub trace: String,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            kind: Pattern::Uniform,
            io: Size(4096),
            theta: 0.99,
            hot_part: 0.2,
            hot_share: 0.8,
            open_zones: 14,
            zone: Size(0),
            finish_at: 1.0,
            rewrite_share: 0.0,
            commit_every: Size(0),
            permutation: Permutation::Any,
            write_mb_s: 0.0,
            read_depth: 0,
            write_depth: 32,
            read_share: 0.0,
            fill: 0.9,
            trace: String::new(),
        }
    }
}

/// Generators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every address alike.
    #[default]
    Uniform,
    /// Sequential addresses, from the start again at the end.
    Sequential,
    /// Few addresses often, by Zipf's law.
    Zipf,
    /// Two classes of addresses.
    HotCold,
    /// fio's `zonemode=zbd rw=randwrite`: some zones open at once, each written in order, a full
    /// one replaced by another.
    Zones,
    /// Logs, one in each of some open zones: appends of `io` bytes to any of them. An append that
    /// begins inside a mapping unit writes the whole unit again. Where a zoned drive has no random
    /// write area for that, the host pads each append to whole units instead.
    Log,
    /// Uniform reads and writes.
    Mixed,
    /// Files that are created, overwritten as a whole and deleted, with very different lives.
    Files,
    /// A trace.
    Trace,
}

/// Which zone comes after a full one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Permutation {
    /// Any that is not open (fio's `norandommap`).
    #[default]
    Any,
    /// One that this pass has not written (fio's random map).
    EachOnce,
}

/// The length of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Run {
    /// Whether time passes.
    pub mode: Mode,
    /// Writes of the whole user capacity, in all.
    pub drive_writes: f64,
    /// How many of these, at most all, are counted only, before anything is measured.
    pub warm_up: f64,
    /// Drive writes between two samples.
    pub sample: f64,
    /// Timed: simulated seconds to measure; 0: until `drive_writes`.
    pub seconds: f64,
}

impl Default for Run {
    fn default() -> Self {
        Self { mode: Mode::Counting, drive_writes: 6.0, warm_up: 3.0, sample: 0.05, seconds: 0.0 }
    }
}

/// The two modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Placement only.
    #[default]
    Counting,
    /// Discrete events.
    Timed,
}

impl Config {
    /// The same drive with `programs_per_block` programs in a block instead, as
    /// [`Flash::shrunk`](crate::flash::Flash::shrunk), and resets that take proportionally less
    /// time.
    #[must_use]
    pub fn shrunk(&self, programs_per_block: u32) -> Self {
        let share = f64::from(programs_per_block) / f64::from(self.flash.programs_per_block);
        let mut config = self.clone();
        config.flash = self.flash.shrunk(programs_per_block);
        if let Some(controller) = &mut config.controller {
            controller.reset_us *= share;
            controller.reset_superblock_us *= share;
            controller.reset_lock_us *= share;
        }
        config
    }

    /// Reads a config, and refuses an impossible one.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, &[])
    }

    fn parse_unchecked(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| SimError::Config { what: error.to_string() })
    }

    /// The whole config as TOML, defaults included.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field has a form in TOML")
    }

    /// Refuses fields outside their range and impossible combinations.
    pub fn check(&self) -> Result<()> {
        if let Some(disk) = &self.disk {
            within("zones.max_open", self.zones.max_open, 1, 1 << 24)?;
            return disk.check(self.zones.size);
        }
        self.flash.check()?;
        self.controller.as_ref().map_or(Ok(()), Controller::check)?;
        let (drive, gc, run) = (&self.drive, &self.gc, &self.run);
        within("drive.op", drive.op, 0.0, 100.0)?;
        within("drive.reserved", drive.reserved, 0.0, 0.5)?;
        let program = self.flash.program_bytes();
        if !drive.unit.0.is_power_of_two() || !(512..=1 << 20).contains(&drive.unit.0) {
            return Err(refused("drive.unit", drive.unit, "a power of two from 512B to 1MiB"));
        }
        if !self.flash.superblock_bytes().is_multiple_of(drive.unit.0)
            || (run.mode == Mode::Timed && !program.is_multiple_of(drive.unit.0))
        {
            let allowed = format!("a divisor of a program, {}", Size(program));
            return Err(refused("drive.unit", drive.unit, &allowed));
        }
        within("drive.read_firmware_us", drive.read_firmware_us, 0.0, 1e6)?;
        within("drive.buffer_programs", drive.buffer_programs, 1, 1024)?;
        within("drive.gc_reads", drive.gc_reads, 1, 4096)?;
        within("gc.low_water", gc.low_water, 2, self.flash.superblocks / 4)?;
        within("gc.streams", gc.streams, 1, 64)?;
        self.zones.check(&self.flash, drive.unit)?;
        within("fdp.handles", self.fdp.handles, 1, 64)?;
        self.workload.check()?;
        self.trace.check()?;
        within("run.drive_writes", run.drive_writes, 0.0, 1e6)?;
        within("run.warm_up", run.warm_up, 0.0, run.drive_writes)?;
        within("run.sample", run.sample, 1e-4, 1e6)?;
        within("run.seconds", run.seconds, 0.0, 1e7)?;
        self.layout().map(|_| ())
    }
}

impl Workload {
    fn check(&self) -> Result<()> {
        within("workload.io", self.io.0, 512, 1 << 30)?;
        within("workload.theta", self.theta, 0.01, 4.0)?;
        within("workload.hot_part", self.hot_part, 1e-6, 1.0)?;
        within("workload.hot_share", self.hot_share, 0.0, 1.0)?;
        within("workload.open_zones", self.open_zones, 1, 4096)?;
        within("workload.finish_at", self.finish_at, 0.001, 1.0)?;
        within("workload.rewrite_share", self.rewrite_share, 0.0, 0.99)?;
        within("workload.commit_every", self.commit_every.0, 0, 1 << 30)?;
        within("workload.write_mb_s", self.write_mb_s, 0.0, 1e6)?;
        within("workload.read_depth", self.read_depth, 0, 4096)?;
        within("workload.write_depth", self.write_depth, 0, 4096)?;
        within("workload.read_share", self.read_share, 0.0, 1.0)?;
        within("workload.fill", self.fill, 0.1, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_round_trips() {
        let config = Config::default();
        assert_eq!(Config::parse(&config.to_toml()).expect("parses"), config);
        let changed = Config::parse(
            "[drive]\nkind = \"fdp\"\nuser = \"1.92TB\"\n[gc]\nvictim = \"d-choices:5\"",
        )
        .expect("parses");
        assert_eq!(changed.gc.victim, Victim::Choices(5));
        assert_eq!(Config::parse(&changed.to_toml()).expect("parses"), changed);
    }

    #[test]
    fn config_impossible_is_refused() {
        for (text, said) in [
            ("[drive]\nop = -0.1", "drive.op = -0.1 is not possible: from 0 to 100"),
            ("[drive]\nunit = 5000", "drive.unit = 5kB is not possible: a power of two"),
            ("[drive]\nuser = \"3TB\"", "drive.user = 3TB is not possible"),
            ("[gc]\nvictim = \"best\"", "best"),
            ("[gc]\nvictims = \"greedy\"", "victims"),
            (
                "[run]\ndrive_writes = 2\nwarm_up = 3",
                "run.warm_up = 3 is not possible: from 0 to 2",
            ),
        ] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
