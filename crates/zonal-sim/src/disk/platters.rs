//! The place of a byte on the platters, and the time to get there.
//!
//! A zone is a band of neighbouring tracks on one surface. Zones of the same number modulo `heads`
//! are on the same surface, so the zones of one *row* lie at the same radius on all surfaces.
//! Tracks get shorter from the outer edge to the inner one, in steps. Each track is turned against
//! the one before it by the time of a change of tracks, so a transfer loses just that time.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a zone and tracks are below 2^53"
)]

use crate::config::Disk;

/// Parts of a turn that count as none: a transfer that goes on does not wait for a turn because of
/// a rounded time.
const NO_TURN: f64 = 1e-5;

/// The place of a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    head: u32,
    track: u64,
    /// Its part of a turn.
    angle: f64,
}

impl Place {
    /// The place of the arm before the first command: the outer edge.
    pub(super) const START: Self = Self { head: 0, track: 0, angle: 0.0 };
}

/// The way from a place to another one, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Moving and settling.
    pub(super) seek_ns: u64,
    /// Waiting for the turn of the platter.
    pub(super) turn_ns: u64,
}

impl Way {
    pub(super) const fn ns(self) -> u64 {
        self.seek_ns + self.turn_ns
    }
}

/// The zones at one radius.
#[derive(Clone, Copy, Debug)]
struct Row {
    first_track: u64,
    track_bytes: u64,
    /// The part of a turn at which the first zone of the row begins, and the next ones after it.
    angle: f64,
    step: f64,
}

/// The platters of a disk.
pub(super) struct Platters {
    heads: u32,
    zone_bytes: u64,
    /// Rows, from the outer edge to the inner one.
    rows: Vec<Row>,
    conventional: u32,
    /// The first row of the conventional zones, and their number of rows.
    hole: (u32, u32),
    turn_ns: f64,
    switch_ns: f64,
    seek: Seek,
    tracks: u64,
}

/// The curve of seek times, in nanoseconds, by distance, as a share of all tracks. It rises with
/// the square root up to a third, where the arm speeds up and brakes, and linearly from there,
/// where it coasts (Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer
/// 27(3), 1994).
struct Seek {
    track: f64,
    average: f64,
    full: f64,
    settle: f64,
}

impl Seek {
    fn ns(&self, share: f64) -> f64 {
        let rise = self.average - self.track;
        if share <= 1.0 / 3.0 {
            self.track + rise * (3.0 * share).sqrt()
        } else {
            self.average + (self.full - self.average) * (share - 1.0 / 3.0) * 1.5
        }
    }
}

impl Platters {
    pub(super) fn new(disk: &Disk, zone_bytes: u64) -> Self {
        let heads = disk.heads;
        let hole_rows = disk.conventional.div_ceil(heads);
        let row_count = hole_rows + (disk.zones - disk.conventional).div_ceil(heads);
        let outside = (0..row_count - hole_rows)
            .take_while(|row| way(disk, *row, row_count) < disk.conventional_at)
            .count();
        let mut platters = Self {
            heads,
            zone_bytes,
            rows: Vec::with_capacity(row_count as usize),
            conventional: disk.conventional,
            hole: (outside as u32, hole_rows),
            turn_ns: 60e9 / disk.rpm,
            switch_ns: disk.switch_ms * 1e6,
            seek: Seek {
                track: disk.track_seek_ms * 1e6,
                average: disk.average_seek_ms * 1e6,
                full: disk.full_seek_ms * 1e6,
                settle: disk.write_settle_ms * 1e6,
            },
            tracks: 0,
        };
        platters.tracks = platters.lay_out(disk, row_count);
        platters.align_rows();
        platters
    }

    /// Lays out the rows from the outer edge on; returns the number of tracks.
    fn lay_out(&mut self, disk: &Disk, row_count: u32) -> u64 {
        let (outer, inner) = (disk.outer_mb_s, disk.inner_mb_s);
        let steps = f64::from(disk.recording_zones);
        let mut track = 0;
        for row in 0..row_count {
            let at = way(disk, row, row_count);
            let step = (at * steps).floor() / (steps - 1.0).max(1.0);
            let rate = outer - (outer - inner) * step.min(1.0);
            let bytes = (rate * (self.turn_ns + self.switch_ns) / 1e3) as u64;
            let track_bytes = (bytes / 4096 * 4096).max(4096);
            self.rows.push(Row { first_track: track, track_bytes, angle: 0.0, step: 0.0 });
            track += self.zone_bytes.div_ceil(track_bytes) + u64::from(disk.guard_tracks);
        }
        track
    }

    /// Turns the rows against each other, so that a transfer that goes on in the next zone waits
    /// for no turn.
    fn align_rows(&mut self) {
        let mut angle = 0.0;
        for number in 0..self.rows.len() {
            let row = self.rows[number];
            let (last, skew) = (self.zone_bytes - 1, self.skew());
            let tracks = last / row.track_bytes;
            let rest = (last % row.track_bytes + 1) as f64 / row.track_bytes as f64;
            let end = row.first_track + tracks;
            let zone = tracks as f64 * skew + rest;
            // To the next zone the arm moves back over the band, on another surface.
            let back = self.skew_over(end - row.first_track);
            self.rows[number].angle = angle;
            self.rows[number].step = (zone + back).fract();
            let next = self.rows.get(number + 1).map_or(0, |next| next.first_track);
            let on = self.skew_over(end.abs_diff(next));
            angle = (angle + (zone + back) * f64::from(self.heads) - back + on).fract();
        }
    }

    /// The part of a turn that a change of tracks takes.
    fn skew(&self) -> f64 {
        self.switch_ns / self.turn_ns
    }

    /// The part of a turn that a change of heads and a move over some tracks take, before a write.
    fn skew_over(&self, tracks: u64) -> f64 {
        (self.seek_ns(tracks).max(self.switch_ns) + self.seek.settle) / self.turn_ns
    }

    fn seek_ns(&self, tracks: u64) -> f64 {
        self.seek.ns(tracks as f64 / self.tracks.max(1) as f64)
    }

    fn row(&self, zone: u32) -> (Row, u32) {
        let (first, count) = self.hole;
        let (row, head) = match zone.checked_sub(self.conventional) {
            None => (first + zone / self.heads, zone % self.heads),
            Some(zone) => {
                let row = zone / self.heads;
                (if row < first { row } else { row + count }, zone % self.heads)
            }
        };
        (self.rows[row as usize], head)
    }

    /// The place of a byte of a zone.
    pub(super) fn place(&self, zone: u32, offset: u64) -> Place {
        let (row, head) = self.row(zone);
        let (track, within) = (offset / row.track_bytes, offset % row.track_bytes);
        let turns = row.angle
            + row.step * f64::from(head)
            + track as f64 * self.skew()
            + within as f64 / row.track_bytes as f64;
        Place { head, track: row.first_track + track, angle: turns.fract() }
    }

    /// The way of the arm from one place to another, from `now` on.
    pub(super) fn way(&self, now: u64, from: Place, to: Place, kind: Access) -> Way {
        let seek = if from.track == to.track && from.head == to.head {
            0.0
        } else if from.track.abs_diff(to.track) <= 1 {
            self.switch_ns
        } else {
            let settle = if kind == Access::Write { self.seek.settle } else { 0.0 };
            self.seek_ns(from.track.abs_diff(to.track)).max(self.switch_ns) + settle
        };
        let at = (now as f64 + seek) / self.turn_ns;
        let wait = (to.angle - at.fract()).rem_euclid(1.0);
        let turn = if wait > 1.0 - NO_TURN { 0.0 } else { wait * self.turn_ns };
        Way { seek_ns: seek.round() as u64, turn_ns: turn.round() as u64 }
    }

    /// The time to transfer bytes of a zone from an offset on, with its changes of tracks.
    pub(super) fn transfer_ns(&self, zone: u32, offset: u64, bytes: u64) -> u64 {
        let Some(last) = (offset + bytes).checked_sub(1).filter(|_| bytes > 0) else { return 0 };
        let (row, _) = self.row(zone);
        let changes = last / row.track_bytes - offset / row.track_bytes;
        let turns = bytes as f64 / row.track_bytes as f64;
        (turns * self.turn_ns + changes as f64 * self.switch_ns).round() as u64
    }

    /// Bytes that pass below the head of a zone in a time.
    pub(super) fn passed_bytes(&self, zone: u32, ns: u64) -> u64 {
        let (row, _) = self.row(zone);
        (ns as f64 / (self.turn_ns + self.switch_ns) * row.track_bytes as f64) as u64
    }

    /// The share of the way from the outer edge to the inner one.
    pub(super) fn share(&self, place: Place) -> f64 {
        place.track as f64 / self.tracks.max(1) as f64
    }
}

/// The way to a row from the outer edge, as a share of the way to the inner one. The rate falls
/// linearly with the track, and the tracks outside of a row hold its share of all bytes.
fn way(disk: &Disk, row: u32, row_count: u32) -> f64 {
    let (outer, inner) = (disk.outer_mb_s, disk.inner_mb_s);
    let share = (f64::from(row) + 0.5) / f64::from(row_count);
    if outer > inner {
        let left = outer * outer - (outer * outer - inner * inner) * share;
        (outer - left.sqrt()) / (outer - inner)
    } else {
        share
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: u64 = 256 << 20;

    fn platters() -> Platters {
        Platters::new(&Disk::default(), ZONE)
    }

    /// Moves zones from their start to their end, one after the other; returns MB/s.
    fn rate(zones: std::ops::Range<u32>, access: Access) -> f64 {
        let platters = platters();
        let (mut now, mut arm) = (0, platters.place(zones.start, 0));
        let start = now;
        let count = zones.len() as u64;
        for zone in zones {
            now += platters.way(now, arm, platters.place(zone, 0), access).ns();
            now += platters.transfer_ns(zone, 0, ZONE);
            arm = platters.place(zone, ZONE - 1);
        }
        (count * ZONE) as f64 * 1e3 / (now - start) as f64
    }

    #[test]
    fn rates_of_long_transfers_are_those_of_the_config() {
        for access in [Access::Read, Access::Write] {
            let (outer, inner) = (rate(600..664, access), rate(52_000..52_064, access));
            assert!((outer / 243.5 - 1.0).abs() < 0.01, "{access:?}: {outer}");
            assert!((inner / 116.0 - 1.0).abs() < 0.01, "{access:?}: {inner}");
        }
    }

    #[test]
    fn seeks_take_the_times_of_the_config() {
        let platters = platters();
        let ms = |share: f64| platters.seek.ns(share) / 1e6;
        assert!((ms(0.0) - 0.5).abs() < 0.01, "{}", ms(0.0));
        assert!((ms(1.0 / 3.0) - 7.7).abs() < 0.01, "{}", ms(1.0 / 3.0));
        assert!((ms(1.0) - 15.0).abs() < 0.01, "{}", ms(1.0));
        let steps: Vec<f64> = (0..=100).map(|step| ms(f64::from(step) / 100.0)).collect();
        assert!(steps.is_sorted(), "{steps:?}");
    }

    #[test]
    fn transfers_that_go_on_wait_for_no_turn() {
        let platters = platters();
        for (zone, piece) in [(0, 4096), (700, 1 << 20), (52_155, 3 << 20)] {
            let (mut now, mut offset, mut arm) = (77, 0, Place::START);
            while offset + piece <= ZONE.min(piece * 200) {
                let way = platters.way(now, arm, platters.place(zone, offset), Access::Write);
                let limit = if offset == 0 { 40_000_000 } else { 900_000 };
                assert!(way.ns() <= limit, "zone {zone}, {offset}: {way:?}");
                now += way.ns() + platters.transfer_ns(zone, offset, piece);
                offset += piece;
                arm = platters.place(zone, offset - 1);
            }
        }
    }

    #[test]
    fn conventional_zones_lie_where_the_config_says() {
        let disk = Disk { conventional_at: 0.5, ..Disk::default() };
        let platters = Platters::new(&disk, ZONE);
        let share = |zone| platters.share(platters.place(zone, 0));
        assert!((0.49..0.51).contains(&share(0)), "{}", share(0));
        assert!(share(524) < 0.01 && share(52_155) > 0.99);
        let mut tracks: Vec<_> = (0..52_156).map(|zone| platters.place(zone, 0)).collect();
        tracks.sort_by_key(|place| (place.head, place.track));
        tracks.dedup_by_key(|place| (place.head, place.track));
        assert_eq!(tracks.len(), 52_156, "two zones have one place");
    }
}
