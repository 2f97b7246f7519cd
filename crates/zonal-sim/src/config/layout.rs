//! Capacities, over-provisioning and superblocks of a config, in mapping units.

use serde::Serialize;

use super::{Config, Frontier, Isolation, Kind};
use crate::error::{Result, SimError, refused};
use crate::size::Size;

/// Sizes of a drive: its units and superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Layout {
    /// Bytes of a unit.
    #[serde(rename = "unit_bytes")]
    pub unit: u64,
    /// Units the host sees.
    pub user_units: u32,
    /// Units of a superblock.
    #[serde(rename = "superblock_units")]
    pub block_units: u32,
    /// Superblocks in use: without those that bad blocks and parity have taken.
    #[serde(rename = "superblocks_usable")]
    pub blocks: u32,
    /// Superblocks that never hold data at rest: free ones below the low water mark, and open ones.
    #[serde(rename = "superblocks_reserved")]
    pub kept_blocks: u32,
    /// Of these, superblocks that are being filled at any time.
    #[serde(rename = "superblocks_open")]
    pub open_blocks: u32,
    /// Superblocks of the flash.
    #[serde(rename = "superblocks")]
    pub raw_blocks: u32,
    /// Entries of the drive's own mapping table: one for each unit, or for each superblock of each
    /// zone.
    pub map_entries: u32,
}

impl Layout {
    /// The layout of a drive; an error names the field that makes it impossible.
    pub fn new(config: &Config) -> Result<Self> {
        let (flash, drive) = (&config.flash, &config.drive);
        let (unit, block) = (drive.unit.0, flash.superblock_bytes());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32"
        )]
        let taken = (f64::from(flash.superblocks) * drive.reserved).ceil() as u32;
        let blocks = flash.superblocks - taken;
        let raw_units = u64::from(blocks) * (block / unit);
        if raw_units >= u64::from(u32::MAX) {
            let allowed = "at most 2^32 mapping units of flash: take a larger drive.unit";
            return Err(refused("drive.unit", drive.unit, allowed));
        }
        let open_blocks = open_blocks(config);
        let kept_blocks = match drive.kind {
            Kind::Zns => config.zones.spare,
            Kind::Conventional | Kind::Fdp => config.gc.low_water + open_blocks,
        };
        let user_bytes = match (drive.kind, drive.user) {
            (Kind::Zns, _) => {
                let zones = (blocks - config.zones.spare.min(blocks)) / config.zones.superblocks;
                u64::from(zones) * u64::from(config.zones.superblocks) * block
            }
            (Kind::Conventional | Kind::Fdp, Some(user)) => user.0,
            (Kind::Conventional | Kind::Fdp, None) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "far below 2^52"
                )]
                let user = (flash.raw_bytes() as f64 / (1.0 + drive.op)) as u64;
                user
            }
        };
        let limit = u64::from(blocks.saturating_sub(kept_blocks)) * block;
        if user_bytes < unit || user_bytes > limit {
            let allowed = if limit < unit {
                "any, as reserved, free and open superblocks leave nothing of the flash".to_owned()
            } else if user_bytes < unit {
                format!("at least a mapping unit of user capacity, {}", Size(unit))
            } else {
                format!("at most {} of user capacity, which is {}", Size(limit), {
                    "what the flash leaves after reserved, free and open superblocks"
                })
            };
            return Err(match drive.user {
                Some(user) => refused("drive.user", user, &allowed),
                None => refused("drive.op", drive.op, &allowed),
            });
        }
        let narrow = |units: u64| u32::try_from(units).expect("fewer than the raw units");
        let map_entries = match drive.kind {
            Kind::Zns => user_bytes / block,
            Kind::Conventional | Kind::Fdp => user_bytes / unit,
        };
        Ok(Self {
            unit,
            user_units: narrow(user_bytes / unit),
            block_units: narrow(block / unit),
            blocks,
            kept_blocks,
            open_blocks,
            raw_blocks: flash.superblocks,
            map_entries: narrow(map_entries),
        })
    }

    /// (raw − user) / user, of all the flash.
    pub fn op_nominal(&self) -> f64 {
        self.op(f64::from(self.raw_blocks))
    }

    /// (raw − user) / user, of the flash in which data can rest when GC chooses a victim: without
    /// bad blocks, parity, the free superblocks, and the unwritten part of the open ones.
    pub fn op_effective(&self) -> f64 {
        let kept = match self.open_blocks {
            0 => f64::from(self.kept_blocks),
            // GC begins when one superblock less than low water is free. One frontier has become
            // full just then; the others are half full on average.
            open => f64::from(self.kept_blocks - open - 1) + f64::from(open - 1) / 2.0,
        };
        self.op(f64::from(self.blocks) - kept)
    }

    fn op(&self, blocks: f64) -> f64 {
        blocks * f64::from(self.block_units) / f64::from(self.user_units) - 1.0
    }

    /// Bytes of DRAM that the drive needs for its mapping table, at 4 bytes an entry: a thousandth
    /// of the user capacity with units of 4 KiB, next to nothing with zones.
    pub const fn map_bytes(&self) -> u64 {
        4 * self.map_entries as u64
    }

    /// Bytes the host sees.
    pub const fn user_bytes(&self) -> u64 {
        self.user_units as u64 * self.unit
    }
}

impl Config {
    /// The layout of this config.
    pub fn layout(&self) -> Result<Layout> {
        if self.disk.is_some() {
            let what = "a spinning disk has no flash to simulate: use it as a device, as in \
                        `zonal bench sim:hc620`";
            return Err(SimError::Config { what: what.to_owned() });
        }
        Layout::new(self)
    }

    /// Streams or reclaim unit handles that the host can name.
    pub(crate) fn handles(&self) -> u8 {
        let handles = match self.drive.kind {
            // On a zoned drive the streams belong to the host's log.
            Kind::Conventional | Kind::Zns => self.gc.streams,
            Kind::Fdp => self.fdp.handles,
        };
        u8::try_from(handles).unwrap_or(u8::MAX)
    }
}

/// Superblocks that are being filled at any time.
fn open_blocks(config: &Config) -> u32 {
    let handles = match config.drive.kind {
        Kind::Zns => return 0,
        Kind::Conventional => config.gc.streams,
        Kind::Fdp => config.fdp.handles,
    };
    let moved = match (config.gc.frontier, config.drive.kind, config.fdp.isolation) {
        (Frontier::Mixed, _, _) => 0,
        (Frontier::Separate, Kind::Fdp, Isolation::Persistently) => handles,
        (Frontier::Separate, _, _) => 1,
    };
    handles + moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_bytes_are_thousandth_of_units_and_tiny_of_zones() {
        let layout = |text| Config::parse(text).unwrap().layout().unwrap();
        let pages = layout("[drive]\nuser = \"1.92TB\"");
        assert_eq!(pages.map_bytes(), 4 * (1_920_000_000_000 / 4096));
        let zones = layout("[drive]\nkind = \"zns\"");
        assert_eq!(zones.map_bytes(), 4 * 1947);
    }

    #[test]
    fn user_capacity_impossible_is_told_its_bound() {
        for (text, bound) in [
            ("[drive]\nuser = 0", "at least a mapping unit of user capacity, 4KiB"),
            ("[drive]\nuser = \"4EiB\"", "at most "),
        ] {
            let error = Config::parse(text).and_then(|config| config.layout()).unwrap_err();
            assert!(error.to_string().contains(bound), "{error}");
        }
    }

    #[test]
    fn over_provisioning_effective_excludes_free_open_bad() {
        let text = "[flash]\nsuperblocks = 1000\n[drive]\nop = 0.25\nreserved = 0.01\n\
                    [gc]\nlow_water = 5\nstreams = 3\n";
        let layout = Config::parse(text).unwrap().layout().unwrap();
        assert_eq!((layout.blocks, layout.open_blocks, layout.kept_blocks), (990, 4, 9));
        assert!((layout.op_nominal() - 0.25).abs() < 1e-6);
        // Of 800 superblocks of data; 4 free, three of the open ones half full.
        assert!((layout.op_effective() - ((990.0 - 4.0 - 1.5) / 800.0 - 1.0)).abs() < 1e-6);
    }
}
