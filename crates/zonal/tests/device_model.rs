//! Random operations on real devices against a simple model, which shares no code with them: the
//! same answers, the same reports, the same bytes. proptest shrinks a failure and prints it.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

mod devices;

use devices::{DEVICES, shapes};
use proptest::prelude::*;
use zonal::{GeometrySpec, Io, Lba, LbaCount, Select, ZoneAction, ZoneCond, ZoneId, ZonedDevice};

#[derive(Clone, Debug)]
enum Op {
    /// A write `skew` blocks from the write pointer.
    Write {
        zone: u32,
        skew: i64,
        blocks: u64,
    },
    Append {
        zone: u32,
        blocks: u64,
    },
    Manage(u32, ZoneAction),
    ManageAll(ZoneAction),
    Read {
        zone: u32,
        offset: u64,
        blocks: u64,
    },
    Deallocate {
        zone: u32,
        offset: u64,
        blocks: u64,
    },
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    let action = proptest::sample::select(&ZoneAction::ALL[..]);
    let zone = 0..9_u32;
    let skew = prop_oneof![8 => Just(0_i64), 1 => -2..3_i64];
    prop_oneof![
        4 => (zone.clone(), skew, 1..30_u64)
            .prop_map(|(zone, skew, blocks)| Op::Write { zone, skew, blocks }),
        4 => (zone.clone(), 1..6_u64).prop_map(|(zone, blocks)| Op::Append { zone, blocks }),
        3 => (zone.clone(), action.clone()).prop_map(|(zone, action)| Op::Manage(zone, action)),
        1 => action.prop_map(Op::ManageAll),
        3 => (zone.clone(), 0..40_u64, 1..50_u64)
            .prop_map(|(zone, offset, blocks)| Op::Read { zone, offset, blocks }),
        1 => (zone, 0..40_u64, 0..12_u64)
            .prop_map(|(zone, offset, blocks)| Op::Deallocate { zone, offset, blocks }),
        1 => Just(Op::Flush),
    ]
}

struct ModelZone {
    cond: ZoneCond,
    start: u64,
    size: u64,
    capacity: u64,
    /// One stamp for each block of the zone; 0 is nothing.
    blocks: Vec<u8>,
    written: u64,
    used: u64,
}

struct Model {
    zones: Vec<ModelZone>,
    spec: GeometrySpec,
    clock: u64,
    stamp: u8,
}

/// NVMe status type and code.
type Status = (u8, u8);
const BOUNDARY: Status = (1, 0xb8);
const FULL: Status = (1, 0xb9);
const INVALID_WRITE: Status = (1, 0xbc);
const TOO_MANY_ACTIVE: Status = (1, 0xbd);
const TOO_MANY_OPEN: Status = (1, 0xbe);
const TRANSITION: Status = (1, 0xbf);
const INVALID_FIELD: Status = (0, 0x02);
const OUT_OF_RANGE: Status = (0, 0x80);

impl Model {
    fn new(device: &dyn ZonedDevice) -> Self {
        let zones = device.report_all().unwrap();
        let zones = zones.iter().map(|zone| ModelZone {
            cond: zone.cond,
            start: zone.start.get(),
            size: zone.size.get(),
            capacity: zone.capacity.get(),
            blocks: vec![0; zone.size.get() as usize],
            written: 0,
            used: 0,
        });
        Self { zones: zones.collect(), spec: *device.geometry().spec(), clock: 0, stamp: 0 }
    }

    fn count(&self, test: fn(ZoneCond) -> bool) -> u32 {
        self.zones.iter().filter(|zone| test(zone.cond)).count() as u32
    }

    /// Room for one more open zone.
    fn make_room(&mut self, at: usize) -> Result<(), Status> {
        let cond = self.zones[at].cond;
        let full = |limit: Option<u32>, count: u32| limit.is_some_and(|limit| count >= limit);
        if !cond.is_active() && full(self.spec.max_active, self.count(ZoneCond::is_active)) {
            return Err(TOO_MANY_ACTIVE);
        }
        if !cond.is_open() && full(self.spec.max_open, self.count(ZoneCond::is_open)) {
            let implicit = self.zones.iter_mut().filter(|zone| zone.cond == ZoneCond::ImplicitOpen);
            implicit.min_by_key(|zone| zone.used).ok_or(TOO_MANY_OPEN)?.cond = ZoneCond::Closed;
        }
        Ok(())
    }

    /// Stamps of the blocks of a write, made whether or not it succeeds.
    fn stamps(&mut self, blocks: u64) -> Vec<u8> {
        let next = |_| {
            self.stamp = self.stamp % 250 + 1;
            self.stamp
        };
        (0..blocks).map(next).collect()
    }

    fn write(&mut self, at: usize, offset: u64, stamps: &[u8]) -> Result<(), Status> {
        let end = offset + stamps.len() as u64;
        let zone = &self.zones[at];
        match zone.cond {
            ZoneCond::NotWp if end > zone.capacity => return Err(BOUNDARY),
            ZoneCond::NotWp => {}
            ZoneCond::Full => return Err(FULL),
            _ if offset != zone.written => return Err(INVALID_WRITE),
            _ if end > zone.capacity => return Err(BOUNDARY),
            _ => {
                if !zone.cond.is_open() {
                    self.make_room(at)?;
                    self.zones[at].cond = ZoneCond::ImplicitOpen;
                }
                let zone = &mut self.zones[at];
                self.clock += 1;
                (zone.written, zone.used) = (end, self.clock);
                if end == zone.capacity {
                    zone.cond = ZoneCond::Full;
                }
            }
        }
        self.zones[at].blocks[offset as usize..end as usize].copy_from_slice(stamps);
        Ok(())
    }

    /// Deallocates as emulated drives do: zeroes.
    fn deallocate(&mut self, lba: u64, blocks: u64) -> Result<(), Status> {
        if lba + blocks > self.zones.last().map_or(0, |zone| zone.start + zone.size) {
            return Err(OUT_OF_RANGE);
        }
        let Some(zone) = self.zones.iter_mut().rfind(|zone| zone.start <= lba) else {
            return Ok(());
        };
        let offset = lba - zone.start;
        match zone.cond {
            _ if blocks == 0 => Ok(()),
            ZoneCond::NotWp if offset + blocks > zone.capacity => Err(BOUNDARY),
            ZoneCond::NotWp => {
                zone.blocks[offset as usize..(offset + blocks) as usize].fill(0);
                Ok(())
            }
            _ => Err(INVALID_FIELD),
        }
    }

    fn manage(&mut self, at: usize, action: ZoneAction) -> Result<(), Status> {
        let cond = self.zones[at].cond;
        match (action, cond) {
            (_, ZoneCond::NotWp) => return Err(INVALID_FIELD),
            (ZoneAction::Open, ZoneCond::Full)
            | (ZoneAction::Close, ZoneCond::Empty | ZoneCond::Full) => return Err(TRANSITION),
            (ZoneAction::Open, _) => {
                self.make_room(at)?;
                self.zones[at].cond = ZoneCond::ExplicitOpen;
            }
            (ZoneAction::Close, _) => self.zones[at].cond = ZoneCond::Closed,
            (ZoneAction::Finish, _) => self.zones[at].cond = ZoneCond::Full,
            (ZoneAction::Reset, _) => {
                let zone = &mut self.zones[at];
                zone.blocks.fill(0);
                (zone.cond, zone.written) = (ZoneCond::Empty, 0);
            }
        }
        self.clock += 1;
        self.zones[at].used = self.clock;
        Ok(())
    }

    fn manage_all(&mut self, action: ZoneAction) -> Result<(), Status> {
        let explicit = self.count(|cond| cond == ZoneCond::ExplicitOpen);
        let closed = self.count(|cond| cond == ZoneCond::Closed);
        let limit = self.spec.max_open.unwrap_or(u32::MAX);
        if action == ZoneAction::Open && explicit + closed > limit {
            return Err(TOO_MANY_OPEN);
        }
        for at in 0..self.zones.len() {
            let cond = self.zones[at].cond;
            let taken = match action {
                ZoneAction::Open => cond == ZoneCond::Closed,
                ZoneAction::Close => cond.is_open(),
                ZoneAction::Finish => cond.is_active(),
                ZoneAction::Reset => cond.is_active() || cond == ZoneCond::Full,
            };
            if taken {
                self.manage(at, action)?;
            }
        }
        Ok(())
    }

    /// Runs one operation on both and compares the outcome.
    fn step(&mut self, device: &dyn ZonedDevice, op: &Op) -> Result<(), TestCaseError> {
        let block = self.spec.block_size.bytes() as usize;
        let end = self.zones.last().map(|zone| zone.start + zone.size).unwrap();
        let data = |stamps: &[u8]| -> Vec<u8> {
            stamps.iter().flat_map(|&stamp| std::iter::repeat_n(stamp, block)).collect()
        };
        let zone_at = |zone: u32| zone as usize % self.zones.len();
        let in_a_gap = self.starts_in_a_gap(op);
        let (expected, found) = match *op {
            Op::Write { zone, skew, blocks } => {
                let at = zone_at(zone);
                let wp = self.zones[at].written;
                let offset = wp.saturating_add_signed(skew).min(self.zones[at].size - 1);
                let stamps = self.stamps(blocks);
                let lba = self.zones[at].start + offset;
                let expected = if lba + blocks > end {
                    Err(OUT_OF_RANGE)
                } else {
                    self.write(at, offset, &stamps)
                };
                (expected, device.write(Lba::new(lba), &data(&stamps)))
            }
            Op::Append { zone, blocks } => {
                let at = zone_at(zone);
                let (stamps, offset) = (self.stamps(blocks), self.zones[at].written);
                let expected = match self.zones[at].cond {
                    _ if blocks > self.spec.max_append.get() => Err(INVALID_FIELD),
                    ZoneCond::NotWp => Err(INVALID_FIELD),
                    _ => self.write(at, offset, &stamps),
                };
                let found = device.append(ZoneId::new(at as u32), &data(&stamps));
                if let Ok(lba) = found {
                    prop_assert_eq!(lba.get(), self.zones[at].start + offset);
                }
                (expected, found.map(drop))
            }
            Op::Manage(zone, action) => {
                let at = zone_at(zone);
                let one = Select::One(ZoneId::new(at as u32));
                (self.manage(at, action), device.manage(one, action))
            }
            Op::ManageAll(action) => (self.manage_all(action), device.manage(Select::All, action)),
            Op::Read { zone, offset, blocks } => {
                let lba = self.zones[zone_at(zone)].start + offset;
                let mut buffer = vec![0xee; blocks as usize * block];
                let found = device.read(Lba::new(lba), &mut buffer);
                let all: Vec<u8> = self.zones.iter().flat_map(|zone| zone.blocks.clone()).collect();
                match all.get(lba as usize..(lba + blocks) as usize) {
                    None => (Err(OUT_OF_RANGE), found),
                    Some(stamps) => {
                        prop_assert!(buffer == data(stamps), "other bytes");
                        (Ok(()), found)
                    }
                }
            }
            Op::Deallocate { zone, offset, blocks } => {
                let lba = self.zones[zone_at(zone)].start + offset;
                let (first, count) = (Lba::new(lba), LbaCount::new(blocks));
                (self.deallocate(lba, blocks), device.deallocate(first, count))
            }
            Op::Flush => (Ok(()), device.flush()),
        };
        let status = found.as_ref().map_err(zonal::DeviceError::nvme_status);
        let status = status.map_err(|status| (status.kind, status.code));
        if in_a_gap {
            prop_assert!(found.is_err(), "{:?}", op);
        } else {
            prop_assert_eq!(status.map(|&()| ()), expected, "{:?}: {:?}", op, found);
        }
        Ok(())
    }

    /// A write above the capacity is an error; which one depends on where an adapter's gap begins.
    fn starts_in_a_gap(&self, op: &Op) -> bool {
        let Op::Write { zone, skew, .. } = *op else { return false };
        let zone = &self.zones[zone as usize % self.zones.len()];
        zone.written.saturating_add_signed(skew).min(zone.size - 1) >= zone.capacity
    }

    fn compare(&self, device: &dyn ZonedDevice) -> Result<(), TestCaseError> {
        for (zone, model) in device.report_all().unwrap().iter().zip(&self.zones) {
            let written = match model.cond {
                ZoneCond::NotWp => None,
                ZoneCond::Full => Some(model.capacity),
                _ => Some(model.written),
            };
            prop_assert_eq!(zone.cond, model.cond, "zone {}", zone.id);
            prop_assert_eq!(zone.written().map(LbaCount::get), written, "zone {}", zone.id);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn devices_match_model(
        shape in 0..shapes().len(),
        device in 0..DEVICES.len(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        // Select All of the fault layer opens zone by zone, so its failure may come half way.
        prop_assume!(!DEVICES[device].0.contains("fault"));
        let device = DEVICES[device].1(shapes()[shape].1);
        let mut model = Model::new(&*device.device);
        for op in &ops {
            model.step(&*device.device, op)?;
            model.compare(&*device.device)?;
        }
    }

    /// A batch ends as its requests do one by one: results, zones, bytes. Reads are of zones that
    /// the batch does not write.
    #[test]
    fn batch_equals_requests_one_by_one(
        shape in 0..shapes().len(),
        device in 0..DEVICES.len(),
        batches in prop::collection::vec(prop::collection::vec(request(), 0..12), 1..6),
    ) {
        let make = || DEVICES[device].1(shapes()[shape].1);
        let (together, single) = (make(), make());
        for requests in &batches {
            let run = |device: &dyn ZonedDevice, perform: fn(&dyn ZonedDevice, &mut [Io<'_>])| {
                let mut memory: Vec<Vec<u8>> =
                    requests.iter().zip(1..).map(|(op, stamp)| op.memory(device, stamp)).collect();
                let zones = device.report_all().unwrap();
                let mut batch: Vec<Io<'_>> = requests
                    .iter()
                    .zip(&mut memory)
                    .map(|(op, memory)| op.request(&zones, memory))
                    .collect();
                perform(device, &mut batch);
                let outcomes: Vec<String> =
                    batch.into_iter().map(|io| format!("{:?}", io.outcome())).collect();
                (outcomes, memory, device.report_all().unwrap())
            };
            let (found, bytes, zones) = run(&*together.device, |device, batch| device.submit(batch));
            let (expected, expected_bytes, expected_zones) = run(&*single.device, |device, batch| {
                for io in batch {
                    io.perform(device);
                }
            });
            prop_assert_eq!(found, expected);
            prop_assert_eq!(zones, expected_zones);
            prop_assert!(bytes == expected_bytes, "other bytes were read");
        }
    }
}

/// Requests of a batch: changes of the first four zones, reads of the others.
fn request() -> impl Strategy<Value = Op> {
    let zone = 0..4_u32;
    let skew = prop_oneof![8 => Just(0_i64), 1 => -2..3_i64];
    prop_oneof![
        4 => (zone.clone(), skew, 1..9_u64)
            .prop_map(|(zone, skew, blocks)| Op::Write { zone, skew, blocks }),
        3 => (zone, 1..6_u64).prop_map(|(zone, blocks)| Op::Append { zone, blocks }),
        3 => (4..8_u32, 0..40_u64, 1..50_u64)
            .prop_map(|(zone, offset, blocks)| Op::Read { zone, offset, blocks }),
        1 => Just(Op::Flush),
    ]
}

impl Op {
    /// The data to write, or room for the data to read.
    fn memory(&self, device: &dyn ZonedDevice, stamp: u8) -> Vec<u8> {
        let block = device.geometry().block_size().bytes() as usize;
        match *self {
            Self::Write { blocks, .. }
            | Self::Append { blocks, .. }
            | Self::Read { blocks, .. } => {
                vec![stamp; blocks as usize * block]
            }
            Self::Manage(..) | Self::ManageAll(_) | Self::Deallocate { .. } | Self::Flush => {
                Vec::new()
            }
        }
    }

    fn request<'a>(&self, zones: &[zonal::Zone], memory: &'a mut [u8]) -> Io<'a> {
        let zone = |number: u32| &zones[number as usize % zones.len()];
        match *self {
            Self::Write { zone: number, skew, .. } => {
                let zone = zone(number);
                let wp = zone.wp.unwrap_or(zone.start).get();
                Io::write(Lba::new(wp.saturating_add_signed(skew)), memory)
            }
            Self::Append { zone: number, .. } => Io::append(zone(number).id, memory),
            Self::Read { zone: number, offset, .. } => {
                // Some drives show fewer than eight zones; the model writes the first
                // four.
                let zone = &zones[4 + (number as usize - 4) % (zones.len() - 4)];
                Io::read(zone.start + LbaCount::new(offset), memory)
            }
            Self::Manage(..) | Self::ManageAll(_) | Self::Deallocate { .. } | Self::Flush => {
                Io::flush()
            }
        }
    }
}
