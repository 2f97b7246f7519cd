//! Ready-made drive shapes, and changing single numbers of them by name: `zone=96M,open=14`.
//!
//! The same words serve `zonal create`, the `mem:` device specification and tests.

use std::fmt;
use std::str::FromStr;

use crate::size::{self, SizeError, readable};
use crate::{
    BlockSize, ByteCount, DeviceError, GeometrySpec, LbaCount, Rules, ZoneKind, ZoneRuns,
    ZoneRunsError,
};

/// A kind of drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// A ZNS SSD: 128 MiB zones, 14 open, 28 active.
    #[default]
    Zns,
    /// A ZNS SSD with 96 MiB zones: not a power of two, so Linux refuses it.
    ZnsNpo2,
    /// A host-managed SMR disk: conventional zones first, 256 MiB zones, a runt at the end.
    Smr,
    /// A host-aware SMR disk: the same with sequential write preferred zones, which have no limits.
    HostAware,
    /// A drive for tests: 1 MiB zones that hold 768 KiB, tight limits.
    Small,
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 5] = [Self::Zns, Self::ZnsNpo2, Self::Smr, Self::HostAware, Self::Small];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zns => "zns",
            Self::ZnsNpo2 => "zns-npo2",
            Self::Smr => "smr",
            Self::HostAware => "host-aware",
            Self::Small => "small",
        }
    }

    /// The command set whose rules the zones of such a drive follow.
    pub const fn rules(self) -> Rules {
        match self {
            Self::Zns | Self::ZnsNpo2 | Self::Small => Rules::Zns,
            Self::Smr | Self::HostAware => Rules::Zbc,
        }
    }

    /// Its shape, without changes.
    pub fn geometry(self) -> GeometrySpec {
        Shape::of(self).spec(BlockSize::B4096)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        Self::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            ProfileError::new(format!("no profile {text:?}; there are: {names}"))
        })
    }
}

/// Words that are no profile and no changes of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ProfileError {
    /// The wrong word, and the possible ones.
    pub what: String,
}

impl ProfileError {
    const fn new(what: String) -> Self {
        Self { what }
    }
}

impl From<ZoneRunsError> for ProfileError {
    fn from(error: ZoneRunsError) -> Self {
        Self::new(error.what)
    }
}

impl From<SizeError> for ProfileError {
    fn from(error: SizeError) -> Self {
        Self::new(error.to_string())
    }
}

/// A limit on zones that can be set and lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLimit {
    /// As many as there are.
    Unlimited,
    /// At most so many.
    AtMost(u32),
}

impl FromStr for ZoneLimit {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        match text {
            "none" | "0" => Ok(Self::Unlimited),
            number => parse_number(number).map(Self::AtMost),
        }
    }
}

/// The numbers of a profile that change. `size` and `zones` are two ways to say how large; `zones`
/// wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The profile that is changed.
    pub profile: Profile,
    /// Bytes of the drive; rounded down to whole zones, except for `smr` and `host-aware`, which
    /// have a runt.
    pub size: Option<ByteCount>,
    /// Number of zones.
    pub zones: Option<u32>,
    /// Bytes of a block: 512 or 4096.
    pub block: Option<ByteCount>,
    /// Bytes from one zone's start to the next.
    pub zone: Option<ByteCount>,
    /// Writable bytes of a zone.
    pub capacity: Option<ByteCount>,
    /// Conventional zones.
    pub conventional: Option<ZoneRuns>,
    /// Most open zones.
    pub open: Option<ZoneLimit>,
    /// Most active zones.
    pub active: Option<ZoneLimit>,
    /// Bytes of the largest append.
    pub append: Option<ByteCount>,
}

impl Changes {
    /// The words that [`set`](Self::set) knows.
    pub const KEYS: [&'static str; 10] = [
        "profile",
        "size",
        "zones",
        "block",
        "zone",
        "capacity",
        CONVENTIONAL,
        "open",
        "active",
        "append",
    ];

    /// Sets one number by its word.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ProfileError> {
        match key {
            "profile" => self.profile = value.parse()?,
            "size" => self.size = Some(size::parse(value)?),
            "zones" => self.zones = Some(parse_number(value)?),
            "block" => self.block = Some(size::parse(value)?),
            "zone" => self.zone = Some(size::parse(value)?),
            "capacity" => self.capacity = Some(size::parse(value)?),
            CONVENTIONAL => self.conventional = Some(value.parse()?),
            "open" => self.open = Some(value.parse()?),
            "active" => self.active = Some(value.parse()?),
            "append" => self.append = Some(size::parse(value)?),
            _ => {
                let keys = Self::KEYS.join(", ");
                return Err(ProfileError::new(format!("no option {key:?}; there are: {keys}")));
            }
        }
        Ok(())
    }

    /// The shape that results.
    pub fn geometry(&self) -> Result<GeometrySpec, DeviceError> {
        let block = match self.block {
            None => BlockSize::B4096,
            Some(bytes) => BlockSize::from_bytes(bytes.get())
                .ok_or_else(|| geometry_error(format!("blocks of {bytes} bytes: 512 or 4096")))?,
        };
        let mut shape = Shape::of(self.profile);
        if let Some(zone) = self.zone {
            shape.zone = zone.get();
            shape.capacity = shape.zone;
        }
        if let Some(capacity) = self.capacity {
            shape.capacity = capacity.get();
        }
        for (what, bytes) in [("zone", shape.zone), ("capacity", shape.capacity)] {
            if bytes == 0 || bytes % block.bytes() != 0 {
                let size = block.bytes();
                let why = format!("{what} of {bytes} bytes: not whole blocks of {size}");
                return Err(geometry_error(why));
            }
        }
        shape.resize(self.size, self.zones)?;
        if shape.size < block.bytes() {
            let (size, zone) = (readable(shape.size), readable(shape.zone));
            return Err(geometry_error(format!("a drive of {size} holds no zone of {zone}")));
        }
        shape.conventional = self.conventional.unwrap_or(shape.conventional);
        if let Some(append) = self.append {
            shape.append = append.get();
        }
        let limit = |change: Option<ZoneLimit>, profile| match change {
            None => profile,
            Some(ZoneLimit::Unlimited) => None,
            Some(ZoneLimit::AtMost(zones)) => Some(zones),
        };
        shape.open = limit(self.open, shape.open);
        shape.active = limit(self.active, shape.active);
        // A profile's limit gives way to one that was asked for.
        if let (Some(open), Some(active)) = (shape.open, shape.active)
            && open > active
        {
            match (self.open, self.active) {
                (Some(_), None) => shape.active = Some(open),
                (None, Some(_)) => shape.open = Some(active),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        let spec = shape.spec(block);
        crate::Geometry::new(spec)?;
        Ok(spec)
    }
}

/// `key=value` pairs with commas between them; nothing at all is the default profile. The zones
/// of `conventional=0-3,100-103` have commas, too.
impl FromStr for Changes {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut changes = Self::default();
        let mut parts = text.split(',').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| ProfileError::new(format!("{part:?} is not key=value")))?;
            let mut value = value.to_owned();
            while let Some(more) = parts.next_if(|more| key == CONVENTIONAL && is_zones(more)) {
                value = format!("{value},{more}");
            }
            changes.set(key, &value)?;
        }
        Ok(changes)
    }
}

const CONVENTIONAL: &str = "conventional";

/// Whether a part goes on with the zones of the part before it.
fn is_zones(part: &str) -> bool {
    part.starts_with(|first: char| first.is_ascii_digit()) && !part.contains('=')
}

/// A shape in bytes.
#[derive(Clone, Copy)]
struct Shape {
    size: u64,
    zone: u64,
    capacity: u64,
    /// Whether a size that is not whole zones leaves a smaller last zone.
    runt: Runt,
    conventional: ZoneRuns,
    sequential_kind: ZoneKind,
    open: Option<u32>,
    active: Option<u32>,
    append: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Runt {
    Kept,
    Dropped,
}

impl Shape {
    fn of(profile: Profile) -> Self {
        let flash = Self {
            size: 8 * GIB,
            zone: 128 * MIB,
            capacity: 128 * MIB,
            runt: Runt::Dropped,
            conventional: ZoneRuns::NONE,
            sequential_kind: ZoneKind::SequentialRequired,
            open: Some(14),
            active: Some(28),
            append: MIB,
        };
        match profile {
            Profile::Zns => flash,
            Profile::ZnsNpo2 => {
                let (zone, capacity) = (96 * MIB, 96 * MIB);
                Self { size: 8160 * MIB, zone, capacity, ..flash }
            }
            Profile::HostAware => Self {
                sequential_kind: ZoneKind::SequentialPreferred,
                open: None,
                ..Self::of(Profile::Smr)
            },
            // The proportions of a 15 TB disk: about one zone in a hundred is conventional.
            Profile::Smr => Self {
                size: 64 * GIB - 84 * MIB,
                zone: 256 * MIB,
                capacity: 256 * MIB,
                runt: Runt::Kept,
                conventional: ZoneRuns::leading(3),
                open: Some(128),
                active: None,
                ..flash
            },
            Profile::Small => Self {
                size: 64 * MIB,
                zone: MIB,
                capacity: 768 * KIB,
                open: Some(6),
                active: Some(8),
                append: 128 * KIB,
                ..flash
            },
        }
    }

    fn resize(&mut self, size: Option<ByteCount>, zones: Option<u32>) -> Result<(), DeviceError> {
        if let Some(size) = size {
            self.size = size.get();
        }
        if self.runt == Runt::Dropped && self.size >= self.zone {
            self.size -= self.size % self.zone;
        }
        if let Some(zones) = zones {
            let size = u64::from(zones).checked_mul(self.zone);
            self.size = size.ok_or_else(|| geometry_error(format!("{zones} zones: too large")))?;
        }
        Ok(())
    }

    fn spec(&self, block_size: BlockSize) -> GeometrySpec {
        let blocks = |bytes: u64| LbaCount::new(bytes >> block_size.shift());
        GeometrySpec {
            block_size,
            block_count: blocks(self.size),
            zone_size: blocks(self.zone),
            zone_capacity: blocks(self.capacity),
            conventional_zones: self.conventional,
            sequential_kind: self.sequential_kind,
            max_open: self.open,
            max_active: self.active,
            max_append: blocks(self.append),
        }
    }
}

fn parse_number(text: &str) -> Result<u32, ProfileError> {
    text.parse().map_err(|_| ProfileError::new(format!("{text:?} is not a number of zones")))
}

fn geometry_error(what: String) -> DeviceError {
    DeviceError::Geometry { what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Geometry;

    #[test]
    fn profiles_are_possible_drives() {
        for profile in Profile::ALL {
            let geometry = Geometry::new(profile.geometry()).unwrap();
            assert!(geometry.zone_count() >= 64, "{profile}");
            assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
        }
    }

    #[test]
    fn profile_covers_disk_of_zonefs_talk() {
        let text = "profile=smr,zones=55880,conventional=524";
        let spec = text.parse::<Changes>().unwrap().geometry().unwrap();
        assert_eq!(Geometry::new(spec).unwrap().zone_count(), 55_880);
    }

    #[test]
    fn limit_option_moves_other_limit_of_profile() {
        let spec = "open=40".parse::<Changes>().unwrap().geometry().unwrap();
        assert_eq!((spec.max_open, spec.max_active), (Some(40), Some(40)));
        let spec = "active=4".parse::<Changes>().unwrap().geometry().unwrap();
        assert_eq!((spec.max_open, spec.max_active), (Some(4), Some(4)));
        let spec = "open=none,active=none".parse::<Changes>().unwrap().geometry().unwrap();
        assert_eq!((spec.max_open, spec.max_active), (None, None));
        assert!("open=5,active=4".parse::<Changes>().unwrap().geometry().is_err());
    }

    #[test]
    fn limit_of_host_aware_drive_is_refused() {
        for text in ["profile=host-aware,open=8", "profile=host-aware,active=8"] {
            let error = text.parse::<Changes>().unwrap().geometry().unwrap_err().to_string();
            assert!(error.contains("sequential write preferred"), "{error}");
        }
    }

    #[test]
    fn conventional_zones_have_commas() {
        for (text, zones) in [
            ("conventional=4,zones=99", ZoneRuns::leading(4)),
            ("conventional=0-3,20,30-31,zones=99", "0-3,20,30-31".parse().unwrap()),
            ("zones=99,conventional=98-98", "98-98".parse().unwrap()),
        ] {
            let spec = text.parse::<Changes>().unwrap().geometry().unwrap();
            assert_eq!(spec.conventional_zones, zones, "{text}");
        }
    }

    #[test]
    fn sizes_may_be_decimal() {
        let spec = "size=1.92TB,zone=1GiB".parse::<Changes>().unwrap().geometry().unwrap();
        assert_eq!(Geometry::new(spec).unwrap().zone_count(), 1788);
    }

    #[test]
    fn options_invalid_are_named() {
        for (text, what) in [
            ("sise=8G", "\"sise\""),
            ("size", "\"size\" is not key=value"),
            ("zones=9,4", "\"4\" is not key=value"),
            ("conventional=3-1", "\"3-1\" is no range of zones"),
            ("size=8X", "\"8X\""),
            ("size=99999999999P", "\"99999999999P\""),
            ("open=many", "\"many\""),
            ("profile=smt", "\"smt\""),
        ] {
            let error = text.parse::<Changes>().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let error = "zone=1000".parse::<Changes>().unwrap().geometry().unwrap_err().to_string();
        assert!(error.contains("zone of 1000 bytes: not whole blocks of 4096"), "{error}");
    }

    #[test]
    fn shape_errors_answer_in_unit_of_question() {
        for (text, what) in [
            ("size=14", "a drive of 14 B holds no zone of 128 MiB"),
            ("size=0", "a drive of 0 B holds no zone of 128 MiB"),
            ("zones=0", "a drive of 0 B holds no zone of 128 MiB"),
            ("profile=smr,size=14", "a drive of 14 B holds no zone of 256 MiB"),
            ("zone=1M,capacity=2M", "a zone capacity of 2 MiB: from 4 KiB to 1 MiB"),
            ("size=128PiB,zone=1TiB", "a device of 128 PiB: 64 PiB at most"),
            ("size=1PiB,zone=4K", "274877906944 zones of 4 KiB: 16777216 at most"),
            ("append=14", "a largest append of less than a block"),
        ] {
            let error = text.parse::<Changes>().unwrap().geometry().unwrap_err().to_string();
            assert_eq!(error, format!("not a possible geometry: {what}"), "{text}");
        }
    }
}
