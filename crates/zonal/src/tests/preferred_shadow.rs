//! The content that a drive of sequential write preferred zones may have after a power cut or a
//! kill, for the tests of everything that loses power.
//!
//! A shadow performs random requests on a device and remembers, for each block, all contents since
//! the last flush. After a cut a block has one of these, independently of the others.

use crate::error::Result;
use crate::{
    BlockSize, DeviceError, Geometry, GeometrySpec, LbaCount, Select, Zone, ZoneAction, ZoneCond,
    ZoneId, ZoneKind, ZoneRuns, ZonedDevice,
};

const BLOCK: usize = 512;
const CAPACITY: usize = 9;
const ZONES: u32 = 5;

/// Small zones, the first of them conventional.
pub(crate) fn geometry() -> Geometry {
    Geometry::new(GeometrySpec {
        block_size: BlockSize::B512,
        block_count: LbaCount::new(u64::from(ZONES) * 11),
        zone_size: LbaCount::new(11),
        zone_capacity: LbaCount::new(CAPACITY as u64),
        conventional_zones: ZoneRuns::leading(1),
        sequential_kind: ZoneKind::SequentialPreferred,
        max_open: None,
        max_active: None,
        max_append: LbaCount::new(4),
    })
    .unwrap()
}

/// The loss that is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// None: everything that returned is there.
    Nothing,
    /// As by a power cut.
    Unflushed,
}

/// The zones of a drive, from the first sequential one on.
pub(crate) struct Shadow {
    zones: Vec<Vec<Life>>,
    stamp: u8,
}

/// A zone from one reset to the next.
#[derive(Clone)]
struct Life {
    /// Stamps of each block: at the last flush, and those written since.
    blocks: Vec<Vec<u8>>,
    flushed: Edge,
    now: Edge,
}

/// The report of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Edge {
    pointer: usize,
    is_full: bool,
    non_sequential: bool,
}

impl Edge {
    fn of(zone: &Zone) -> Self {
        let written = zone.written().expect("no zone has failed");
        Self {
            pointer: usize::try_from(written.get()).unwrap(),
            is_full: zone.cond == ZoneCond::Full,
            non_sequential: zone.non_sequential,
        }
    }
}

impl Life {
    fn new() -> Self {
        let edge = Edge::default();
        Self { blocks: vec![vec![0]; CAPACITY], flushed: edge, now: edge }
    }

    fn flush(&mut self) {
        for stamps in &mut self.blocks {
            stamps.drain(..stamps.len() - 1);
        }
        self.flushed = self.now;
    }

    fn write(&mut self, offset: usize, stamps: &[u8]) {
        for (block, &stamp) in self.blocks[offset..].iter_mut().zip(stamps) {
            block.push(stamp);
        }
        let end = offset + stamps.len();
        let now = &mut self.now;
        now.non_sequential |= offset != now.pointer;
        now.pointer = now.pointer.max(end);
        now.is_full |= end == CAPACITY;
    }

    /// Whether a zone can be left so in this life.
    fn allows(&self, edge: Edge, found: &[u8], loss: Loss) -> bool {
        if loss == Loss::Nothing {
            let newest = self.blocks.iter().map(|stamps| *stamps.last().unwrap());
            return edge == self.now && newest.eq(found.iter().copied());
        }
        let (first, last) = (self.flushed, self.now);
        let is_block = |(at, &stamp): (usize, &u8)| {
            // Blocks beyond the pointer were not written.
            if at < edge.pointer { self.blocks[at].contains(&stamp) } else { stamp == 0 }
        };
        edge.pointer >= first.pointer
            && edge.pointer <= last.pointer
            && (edge.is_full || !first.is_full)
            && (last.is_full || !edge.is_full)
            && (edge.non_sequential || !first.non_sequential)
            && (last.non_sequential || !edge.non_sequential)
            && found.iter().enumerate().all(is_block)
    }
}

impl Shadow {
    /// The shadow of a new drive.
    pub(crate) fn new() -> Self {
        Self { zones: vec![vec![Life::new()]; ZONES as usize - 1], stamp: 0 }
    }

    /// Takes the present content of a drive as flushed.
    pub(crate) fn rebase(&mut self, device: &dyn ZonedDevice) {
        for (lives, zone) in self.zones.iter_mut().zip(&device.report_all().unwrap()[1..]) {
            let edge = Edge::of(zone);
            let blocks = read(device, zone).into_iter().map(|stamp| vec![stamp]).collect();
            *lives = vec![Life { blocks, flushed: edge, now: edge }];
        }
    }

    /// Performs one random request. A change that it may have made when the power went counts as
    /// made.
    pub(crate) fn step(
        &mut self,
        device: &dyn ZonedDevice,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Result<()> {
        let mut below = |limit: usize| usize::try_from(random(limit as u64)).unwrap();
        let index = below(self.zones.len());
        let id = ZoneId::new(1 + u32::try_from(index).unwrap());
        let start = device.geometry().zone_start(id);
        let lives = &mut self.zones[index];
        let life = lives.last_mut().unwrap();
        match below(20) {
            0..=9 => {
                let offset = below(CAPACITY);
                let stamps = stamps(&mut self.stamp, 1 + below(CAPACITY - offset));
                let lba = start + LbaCount::new(offset as u64);
                let outcome = device.write(lba, &bytes(&stamps));
                if is_maybe_done(&outcome) {
                    life.write(offset, &stamps);
                }
                outcome
            }
            10..=12 => {
                let stamps = stamps(&mut self.stamp, 1 + below(4));
                let at = life.now.pointer;
                let fits = !life.now.is_full && at + stamps.len() <= CAPACITY;
                match device.append(id, &bytes(&stamps)) {
                    Ok(lba) => {
                        assert!(fits, "an append to a zone without room");
                        assert_eq!(lba, start + LbaCount::new(at as u64));
                        life.write(at, &stamps);
                        Ok(())
                    }
                    Err(DeviceError::ZoneFull { .. } | DeviceError::CrossesZone { .. }) => {
                        assert!(!fits, "an append that fits");
                        Ok(())
                    }
                    Err(error) => {
                        let outcome = Err(error);
                        if fits && is_maybe_done(&outcome) {
                            life.write(at, &stamps);
                        }
                        outcome
                    }
                }
            }
            13 | 14 => {
                let outcome = device.manage(Select::One(id), ZoneAction::Reset);
                if is_maybe_done(&outcome) {
                    lives.push(Life::new());
                }
                outcome
            }
            15 => {
                let outcome = device.manage(Select::One(id), ZoneAction::Finish);
                if is_maybe_done(&outcome) {
                    (life.now.pointer, life.now.is_full) = (CAPACITY, true);
                }
                outcome
            }
            16 => device.manage(Select::One(id), ZoneAction::Open),
            17 => device.manage(Select::One(id), ZoneAction::Close),
            _ => {
                device.flush()?;
                for lives in &mut self.zones {
                    lives.drain(..lives.len() - 1);
                    lives[0].flush();
                }
                Ok(())
            }
        }
    }

    /// Compares a drive with the contents that are possible.
    pub(crate) fn check(&self, device: &dyn ZonedDevice, loss: Loss) {
        for (lives, zone) in self.zones.iter().zip(&device.report_all().unwrap()[1..]) {
            let (edge, found) = (Edge::of(zone), read(device, zone));
            let lives = match loss {
                Loss::Nothing => &lives[lives.len() - 1..],
                Loss::Unflushed => lives,
            };
            let is_possible = lives.iter().any(|life| life.allows(edge, &found, loss));
            assert!(is_possible, "zone {}: {edge:?}, {found:?}", zone.id);
        }
    }

    /// How many zones lost something.
    pub(crate) fn lost(&self, device: &dyn ZonedDevice) -> usize {
        let zones = device.report_all().unwrap();
        let is_lost = |(lives, zone): &(&Vec<Life>, &Zone)| {
            let newest = lives.last().unwrap();
            !newest.allows(Edge::of(zone), &read(device, zone), Loss::Nothing)
        };
        self.zones.iter().zip(&zones[1..]).filter(is_lost).count()
    }
}

fn is_maybe_done(outcome: &Result<()>) -> bool {
    // The host of a drive file fails with its own error.
    matches!(outcome, Ok(()) | Err(DeviceError::PowerCut | DeviceError::Io { .. }))
}

fn stamps(last: &mut u8, count: usize) -> Vec<u8> {
    let next = |_| {
        *last = *last % 250 + 1;
        *last
    };
    (0..count).map(next).collect()
}

fn bytes(stamps: &[u8]) -> Vec<u8> {
    stamps.iter().flat_map(|&stamp| [stamp; BLOCK]).collect()
}

fn read(device: &dyn ZonedDevice, zone: &Zone) -> Vec<u8> {
    let mut data = vec![0xee; CAPACITY * BLOCK];
    device.read(zone.start, &mut data).unwrap();
    let blocks = data.chunks(BLOCK);
    let stamp = |block: &[u8]| {
        assert!(block.iter().all(|&byte| byte == block[0]), "zone {}: a torn block", zone.id);
        block[0]
    };
    blocks.map(stamp).collect()
}

/// The conventional zone in front is not written here.
#[test]
fn preferred_shadow_is_that_of_its_drive() {
    let drive = crate::MemoryDrive::new(*geometry().spec()).unwrap();
    let mut at = 0_u64;
    let mut random = move |limit: u64| {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) % limit
    };
    let mut shadow = Shadow::new();
    for _ in 0..3_000 {
        shadow.step(&drive, &mut random).unwrap();
        shadow.check(&drive, Loss::Nothing);
        shadow.check(&drive, Loss::Unflushed);
    }
    assert_eq!(shadow.lost(&drive), 0);
    shadow.rebase(&drive);
    shadow.check(&drive, Loss::Nothing);
    // It sees a write of which it does not know.
    drive.write(drive.geometry().zone_start(ZoneId::new(2)), &[251; BLOCK]).unwrap();
    assert_eq!(shadow.lost(&drive), 1);
}
