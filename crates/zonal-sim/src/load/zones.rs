//! Zones written in order, several at once, as fio does with `zonemode=zbd rw=randwrite
//! max_open_zones=N`, on zoned drives and, with `zonesize`, on conventional ones. It is the
//! workload of the published measurements (zbdbench, `fio_zone_write`).
//!
//! Each write goes to a random one of the open zones. The host replaces a full zone at once, by any
//! zone that is not open or by one that this pass has not written; a reset of the new zone comes
//! before its first write. Open zones are always different zones. A host may finish each zone
//! before it is full, and repeat the last write to a zone.
//!
//! A log appends bytes to such a zone. An append that begins inside a mapping unit writes that unit
//! again, which a zoned drive takes in a random write area only.

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Op, Request, Workload};
use crate::config::{Config, Kind, Layout, Pattern, Permutation};
use crate::error::{Result, refused};
use crate::size::Size;

/// A zone that is being written.
#[derive(Clone, Copy, Debug)]
struct OpenZone {
    zone: u32,
    /// The next byte to be written, and where writing ends.
    at: u64,
    limit: u64,
    /// Whether writing ends before the zone does.
    is_finished: bool,
    /// Bytes of the last write.
    last: u32,
    /// Whether it has a random write area, and the bytes in it since the last commit.
    has_area: bool,
    uncommitted: u64,
}

/// The generator.
pub(super) struct Zones {
    zone_bytes: u64,
    /// The last zone may be short: where the user capacity ends.
    user_bytes: u64,
    io: u32,
    handles: u8,
    open: Vec<OpenZone>,
    is_open: Vec<bool>,
    /// Share of a zone that is written, and share of writes that repeat the last one.
    finish_at: f64,
    rewrite_share: f64,
    unit: u64,
    kind: Pattern,
    /// The alignment of a log's appends to a zone without an area: whole units on a zoned drive.
    align: u64,
    /// Open zones that get a random write area: the first ones.
    areas: u32,
    granule: u64,
    commit_every: u64,
    /// Changes of zones that are still to come out, before anything else.
    actions: VecDeque<Request>,
    next: ZoneOrder,
    rng: ChaCha8Rng,
}

/// Which zone comes after a full one.
enum ZoneOrder {
    Any,
    /// The zones of this pass in their order, and how many of them are done.
    EachOnce {
        order: Vec<u32>,
        done: usize,
    },
}

impl Zones {
    pub(super) fn new(config: &Config, layout: &Layout, rng: ChaCha8Rng) -> Result<Self> {
        let (workload, user_bytes) = (&config.workload, layout.user_bytes());
        let capacity = config.flash.superblock_bytes() * u64::from(config.zones.superblocks);
        let zone_bytes = if workload.zone.0 == 0 { capacity } else { workload.zone.0 };
        if config.drive.kind == Kind::Zns && zone_bytes != capacity {
            let allowed = format!("on a zoned drive, 0 or its zone capacity {}", Size(capacity));
            return Err(refused("workload.zone", workload.zone, &allowed));
        }
        let is_zoned = config.drive.kind == Kind::Zns;
        let is_log = workload.kind == Pattern::Log;
        if is_zoned && !is_log && !workload.io.0.is_multiple_of(layout.unit) {
            let allowed =
                format!("in zones, a multiple of the mapping unit, {}", Size(layout.unit));
            return Err(refused("workload.io", workload.io, &allowed));
        }
        let areas = if is_zoned { Self::areas(config)? } else { 0 };
        if zone_bytes < workload.io.0 || !zone_bytes.is_multiple_of(layout.unit) {
            let allowed = format!(
                "a multiple of the mapping unit, {}, and at least one write of {}",
                Size(layout.unit),
                workload.io
            );
            return Err(refused("workload.zone", Size(zone_bytes), &allowed));
        }
        let zones = u32::try_from(user_bytes.div_ceil(zone_bytes)).unwrap_or(u32::MAX);
        let mut limit = zones;
        if config.drive.kind == Kind::Zns {
            limit = limit.min(config.zones.max_open).min(config.zones.max_active);
        }
        if workload.open_zones > limit {
            let allowed =
                format!("from 1 to {limit}: there are {zones} zones of {}", { Size(zone_bytes) });
            return Err(refused("workload.open_zones", workload.open_zones, &allowed));
        }
        let io = u32::try_from(workload.io.0).expect("checked: at most 1 GiB");
        let next = match workload.permutation {
            Permutation::Any => ZoneOrder::Any,
            Permutation::EachOnce => {
                ZoneOrder::EachOnce { order: (0..zones).collect(), done: zones as usize }
            }
        };
        let mut made = Self {
            zone_bytes,
            user_bytes,
            io,
            handles: config.handles(),
            open: Vec::new(),
            is_open: vec![false; zones as usize],
            finish_at: workload.finish_at,
            rewrite_share: if is_log { 0.0 } else { workload.rewrite_share },
            unit: layout.unit,
            kind: workload.kind,
            align: if is_zoned { layout.unit } else { 1 },
            areas,
            granule: config.zones.granule(layout.unit),
            commit_every: workload.commit_every.0,
            actions: VecDeque::new(),
            next,
            rng,
        };
        for index in 0..workload.open_zones {
            let opened = made.open_next(index);
            made.open.push(opened);
        }
        Ok(made)
    }

    /// How many open zones get a random write area: none if the host writes nothing again.
    fn areas(config: &Config) -> Result<u32> {
        let (workload, zones) = (&config.workload, &config.zones);
        let fits = zones.zrwa.0 >= workload.io.0.next_multiple_of(config.drive.unit.0);
        if workload.kind == Pattern::Log {
            if zones.zrwa.0 > 0 && !fits {
                let allowed = format!("at most zones.zrwa, {}", zones.zrwa);
                return Err(refused("workload.io", workload.io, &allowed));
            }
            return Ok(zones.areas().min(workload.open_zones));
        }
        if workload.rewrite_share == 0.0 {
            return Ok(0);
        }
        if !fits {
            let allowed = format!("0, unless zones.zrwa is at least {}", workload.io);
            return Err(refused("workload.rewrite_share", workload.rewrite_share, &allowed));
        }
        if zones.areas() < workload.open_zones {
            let allowed = format!("at most zones.zrwa_zones, {}, with rewrites", zones.zrwa_zones);
            return Err(refused("workload.open_zones", workload.open_zones, &allowed));
        }
        Ok(workload.open_zones)
    }

    /// Opens a zone that is not open, as the open one of this number, and queues its reset.
    fn open_next(&mut self, index: u32) -> OpenZone {
        let has_area = index < self.areas;
        let zone = self.find_next();
        assert!(!self.is_open[zone as usize], "zone {zone} is open already");
        self.is_open[zone as usize] = true;
        let start = u64::from(zone) * self.zone_bytes;
        let end = self.user_bytes.min(start + self.zone_bytes);
        let bytes = u32::try_from(end - start).unwrap_or(u32::MAX);
        let reset = Request { at_ns: 0, offset: start, bytes, op: Op::Reset, handle: 0 };
        self.actions.push_back(reset);
        if has_area {
            self.actions.push_back(Request { bytes: 0, op: Op::OpenArea, ..reset });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a zone"
        )]
        let share = ((end - start) as f64 * self.finish_at).ceil() as u64;
        let limit = end.min(start + share.next_multiple_of(self.unit));
        let is_finished = limit < end;
        OpenZone { zone, at: start, limit, is_finished, last: 0, has_area, uncommitted: 0 }
    }

    fn find_next(&mut self) -> u32 {
        let zones = u32::try_from(self.is_open.len()).expect("counted in u32");
        match &mut self.next {
            ZoneOrder::Any => loop {
                let zone = self.rng.random_range(0..zones);
                if !self.is_open[zone as usize] {
                    return zone;
                }
            },
            ZoneOrder::EachOnce { order, done } => loop {
                // A zone that the last pass has open still waits its turn.
                let free = order[*done..].iter().position(|zone| !self.is_open[*zone as usize]);
                if let Some(ahead) = free {
                    order.swap(*done, *done + ahead);
                    *done += 1;
                    return order[*done - 1];
                }
                order.shuffle(&mut self.rng);
                *done = 0;
            },
        }
    }

    /// The next write of one of the open zones.
    fn write(&mut self) -> Request {
        let index = self.rng.random_range(0..u32::try_from(self.open.len()).expect("at most 4096"));
        let handle = (index % u32::from(self.handles)).to_le_bytes()[0];
        let open = &mut self.open[index as usize];
        if self.rewrite_share > 0.0
            && open.last > 0
            && self.rng.random::<f64>() < self.rewrite_share
        {
            let (offset, bytes) = (open.at - u64::from(open.last), open.last);
            return Request { at_ns: 0, offset, bytes, op: Op::Write, handle };
        }
        let bytes = u32::try_from(open.limit - open.at).map_or(self.io, |left| left.min(self.io));
        let offset = open.at;
        open.at += u64::from(bytes);
        open.last = bytes;
        open.uncommitted += u64::from(bytes);
        let write = Request { at_ns: 0, offset, bytes, op: Op::Write, handle };
        if self.kind == Pattern::Log && !open.has_area {
            open.at = open.at.next_multiple_of(self.align).min(open.limit);
        }
        let is_due = self.kind == Pattern::Log
            && self.commit_every > 0
            && open.uncommitted >= self.commit_every;
        let is_over = open.at == open.limit;
        if open.has_area && (is_over || is_due) && !(is_over && open.is_finished) {
            let last = open.at - 1;
            let commit =
                Request { offset: last - last % self.unit, bytes: 0, op: Op::Commit, ..write };
            self.actions.push_back(commit);
            let start = u64::from(open.zone) * self.zone_bytes;
            let behind = (open.at - start).next_multiple_of(self.granule);
            open.at = (start + behind).min(open.limit);
            open.uncommitted = 0;
        }
        if open.at == open.limit {
            self.end_zone(index, write);
        }
        write
    }

    /// Replaces an open zone after its last write.
    fn end_zone(&mut self, index: u32, last: Request) {
        let OpenZone { zone, is_finished, .. } = self.open[index as usize];
        self.is_open[zone as usize] = false;
        if is_finished {
            let offset = u64::from(zone) * self.zone_bytes;
            self.actions.push_back(Request { offset, bytes: 0, op: Op::Finish, ..last });
        }
        self.open[index as usize] = self.open_next(index);
    }
}

impl Workload for Zones {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        while batch.len() < room {
            let request = match self.actions.pop_front() {
                Some(action) => action,
                None => self.write(),
            };
            batch.push(request);
        }
        Ok(())
    }
}
