//! A device's shape in bytes, as the headers of drive files and of traces have it.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{GeometrySpec, ZoneRun, ZoneRuns};
use crate::{BlockSize, LbaCount, ZoneKind};

/// A shape without its block size. The tables of the headers show its fields as theirs.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the tables of the headers document the fields")]
pub struct GeometryBytes {
    pub block_count: U64,
    pub zone_size: U64,
    pub zone_capacity: U64,
    pub conventional_runs: U32,
    pub max_open: U32,
    pub max_active: U32,
    pub sequential_kind: U32,
    pub max_append: U64,
    pub conventional_zones: [[U32; 2]; 8],
}
const _: () = assert!(size_of::<GeometryBytes>() == 112);
const _: () = assert!(ZoneRuns::RUNS_MAX == 8);

impl GeometryBytes {
    /// The block size and the rest of a shape.
    pub(crate) fn encode(spec: &GeometrySpec) -> (U32, Self) {
        let runs = spec.conventional_zones.runs();
        let mut conventional_zones = [[U32::ZERO; 2]; ZoneRuns::RUNS_MAX];
        for (bytes, run) in conventional_zones.iter_mut().zip(runs) {
            *bytes = [run.first.into(), run.count.into()];
        }
        let rest = Self {
            block_count: spec.block_count.get().into(),
            zone_size: spec.zone_size.get().into(),
            zone_capacity: spec.zone_capacity.get().into(),
            conventional_runs: u32::try_from(runs.len()).expect("8 at most").into(),
            max_open: spec.max_open.unwrap_or(0).into(),
            max_active: spec.max_active.unwrap_or(0).into(),
            sequential_kind: match spec.sequential_kind {
                ZoneKind::SequentialPreferred => 1.into(),
                // The other kind is none of a checked shape.
                ZoneKind::SequentialRequired | ZoneKind::Conventional => 0.into(),
            },
            max_append: spec.max_append.get().into(),
            conventional_zones,
        };
        ((1_u32 << spec.block_size.shift()).into(), rest)
    }

    /// The shape with this block size. Whether it is possible is for `Geometry::new` to say.
    pub(crate) fn decode(&self, block_size: U32) -> Result<GeometrySpec, String> {
        let limit = |raw: U32| if raw == 0 { None } else { Some(raw.get()) };
        let runs = usize::try_from(self.conventional_runs.get()).unwrap_or(usize::MAX);
        let runs = self.conventional_zones.get(..runs);
        let runs = runs.ok_or_else(|| format!("{} runs of zones", self.conventional_runs))?;
        let runs =
            runs.iter().map(|[first, count]| ZoneRun { first: first.get(), count: count.get() });
        Ok(GeometrySpec {
            block_size: BlockSize::from_bytes(block_size.get().into())
                .ok_or_else(|| format!("blocks of {block_size} bytes"))?,
            block_count: LbaCount::new(self.block_count.get()),
            zone_size: LbaCount::new(self.zone_size.get()),
            zone_capacity: LbaCount::new(self.zone_capacity.get()),
            conventional_zones: ZoneRuns::new(runs).map_err(|error| error.to_string())?,
            sequential_kind: match self.sequential_kind.get() {
                0 => ZoneKind::SequentialRequired,
                1 => ZoneKind::SequentialPreferred,
                other => return Err(format!("sequential zones of kind {other}")),
            },
            max_open: limit(self.max_open),
            max_active: limit(self.max_active),
            max_append: LbaCount::new(self.max_append.get()),
        })
    }
}
