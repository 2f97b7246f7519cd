//! A controller at work: when a command reaches the flash, and when its end reaches the host.
//!
//! Commands go through one processor, in the order in which they arrive, and their data over a link
//! with one direction each. Calls come in the order of time. Both the drive as a device and timed
//! mode use it.

use std::collections::VecDeque;

use crate::config::{Config, Controller};
use crate::flash::Flash;

/// A time or a span, in nanoseconds.
type Ns = u64;

/// Draws of numbers that look random, from a seed: the same ones in each run (S1).
#[derive(Clone, Debug)]
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to 1, by `splitmix64` (Steele, Lea, Flood 2014).
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub(crate) const fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A time that is longer or shorter by at most a share.
    pub(crate) fn spread_ns(&mut self, mean_us: f64, spread: f64) -> Ns {
        self.stretch_ns(ns(mean_us), spread)
    }

    /// The same of nanoseconds.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "far below 2^53"
    )]
    pub(crate) fn stretch_ns(&mut self, mean: Ns, spread: f64) -> Ns {
        if spread == 0.0 {
            return mean;
        }
        (mean as f64 * (1.0 + spread * (2.0 * self.share() - 1.0))).round() as Ns
    }

    /// How long the planes of a die take for a program, the slowest one last.
    pub(crate) fn planes_ns(&mut self, flash: &Flash, spread: f64) -> Vec<Ns> {
        let draw = |_| self.spread_ns(flash.program_us, spread);
        let mut planes_ns: Vec<Ns> = (0..flash.planes).map(draw).collect();
        planes_ns.sort_unstable();
        planes_ns
    }

    /// A time of an exponential distribution; nothing is drawn for a mean of nothing.
    pub(crate) fn exponential_ns(&mut self, mean_us: f64) -> Ns {
        if mean_us > 0.0 { ns(-mean_us * (1.0 - self.share()).ln()) } else { 0 }
    }
}

/// Nanoseconds of some microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, below 1e10")]
pub(crate) fn ns(us: f64) -> Ns {
    (us * 1e3).round() as Ns
}

/// A resource that does one thing at a time, and the spans for which it is taken: a later call may
/// find a gap before one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    busy: VecDeque<(Ns, Ns)>,
}

impl Line {
    /// Takes the first span of this length from `from_ns` on; returns its end. No later call asks
    /// for a span before `now_ns`.
    pub(crate) fn take(&mut self, now_ns: Ns, from_ns: Ns, length_ns: Ns) -> Ns {
        while self.busy.front().is_some_and(|&(_, end)| end <= now_ns) {
            self.busy.pop_front();
        }
        let (mut start, mut at) = (from_ns, self.busy.len());
        for (index, &(begin, end)) in self.busy.iter().enumerate() {
            if start + length_ns <= begin {
                at = index;
                break;
            }
            start = start.max(end);
        }
        self.busy.insert(at, (start, start + length_ns));
        start + length_ns
    }
}

/// How a write reaches its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// At the write pointer that the host names.
    Write,
    /// At the write pointer that the drive knows.
    Append,
}

/// A write on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// When its data is at the write buffer.
    pub(crate) buffer_ns: Ns,
    /// Time from the buffer taking the write to the host hearing of it.
    pub(crate) rest_ns: Ns,
}

/// A processor and a link.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    times: Controller,
    read_firmware_us: f64,
    draws: Draws,
    /// When the processor has done all commands that have arrived.
    free_ns: Ns,
    /// When the link from the host is free.
    in_ns: Ns,
    out: Line,
    /// A reset: its begin and its end.
    reset: (Ns, Ns),
}

impl Processor {
    /// The controller of a config, if it has one.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        config.controller.clone().map(|times| Self {
            times,
            read_firmware_us: config.drive.read_firmware_us,
            draws: Draws::new(config.seed),
            free_ns: 0,
            in_ns: 0,
            out: Line::default(),
            reset: (0, 0),
        })
    }

    /// A write of so many bytes arrives.
    pub(crate) fn write(&mut self, now: Ns, kind: WriteKind, bytes: u64, first: First) -> Arrival {
        let times = &self.times;
        let (busy_us, total_us, first_us) = match kind {
            WriteKind::Write => (times.write_busy_us, times.write_us, times.first_write_us),
            WriteKind::Append => (times.append_busy_us, times.append_us, times.first_append_us),
        };
        let first_us = if first == First::OfZone { first_us } else { 0.0 };
        let taken_ns = self.occupy(now, busy_us);
        self.in_ns = self.in_ns.max(taken_ns) + transfer_ns(bytes, self.times.link_in_mb_s);
        Arrival { buffer_ns: self.in_ns, rest_ns: ns(total_us - busy_us + first_us) }
    }

    /// A read arrives; returns when the flash sees it.
    pub(crate) fn read(&mut self, now: Ns) -> Ns {
        let busy_us = self.times.read_busy_us;
        let mut taken_ns = self.occupy(now, busy_us);
        let (begin, end) = self.reset;
        if (begin..begin + ns(self.times.reset_lock_us)).contains(&now) {
            taken_ns = taken_ns.max(end);
        }
        taken_ns + ns((self.read_firmware_us - busy_us).max(0.0))
    }

    /// The flash has read so many bytes at `end`; returns when the host has them.
    pub(crate) fn deliver(&mut self, now: Ns, end: Ns, bytes: u64) -> Ns {
        self.out.take(now, end, transfer_ns(bytes, self.times.link_out_mb_s))
    }

    /// Opens a zone; returns when it is open.
    pub(crate) fn open(&mut self, now: Ns) -> Ns {
        self.short(now, self.times.open_us)
    }

    /// Closes a zone; returns when it is closed.
    pub(crate) fn close(&mut self, now: Ns) -> Ns {
        self.short(now, self.times.close_us)
    }

    /// Finishes a zone, without the time to program its padding.
    pub(crate) fn finish(&mut self, now: Ns) -> Ns {
        self.short(now, self.times.finish_us)
    }

    /// Resets a zone from `now` on, of which the host has written `superblocks`. A program that is
    /// under way until `programs_ns` ends first.
    pub(crate) fn reset(&mut self, now: Ns, superblocks: f64, programs_ns: Ns) -> Ns {
        let begun = self.short(now, 0.0);
        let mean_us = self.times.reset_us + superblocks * self.times.reset_superblock_us;
        let spread = self.times.reset_spread;
        let end = begun.max(programs_ns) + self.draws.spread_ns(mean_us, spread);
        self.reset = (now, end.max(self.reset.1));
        end
    }

    /// A command that takes a constant time, and the processor as long as a write does.
    fn short(&mut self, now: Ns, total_us: f64) -> Ns {
        let begun = now.max(self.free_ns);
        self.free_ns = begun + ns(self.times.write_busy_us.min(total_us));
        begun + ns(total_us)
    }

    /// Occupies the processor as soon as it is free. While a reset goes on, it works in turns.
    fn occupy(&mut self, now: Ns, busy_us: f64) -> Ns {
        let jitter_us = self.times.jitter_us.min(busy_us);
        let busy = ns(busy_us - jitter_us) + self.draws.exponential_ns(jitter_us);
        let mut begun = now.max(self.free_ns);
        if (self.reset.0..self.reset.1).contains(&begun) {
            begun += self.draws.exponential_ns(self.times.reset_slice_us);
        }
        self.free_ns = begun + busy;
        self.free_ns
    }
}

/// Counts programs of the host: after every so many, the drive programs a stripe of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnStripes {
    /// Programs of the host to each stripe; 0: the drive programs none.
    every: u32,
    since: u32,
}

impl OwnStripes {
    pub(crate) fn new(config: &Config) -> Self {
        let stripes = config.controller.as_ref().map_or(0, |times| times.own_stripe_every);
        Self { every: stripes * config.flash.dies(), since: 0 }
    }

    /// Counts a program of the host; returns whether the drive's own stripe is due.
    pub(crate) const fn is_due_after_program(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.since = (self.since + 1) % self.every;
        self.since == 0
    }
}

/// Whether a write is the first of an empty zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// It is.
    OfZone,
    /// The zone holds something.
    No,
}

/// The time of so many bytes at so many 10^6 bytes a second.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn transfer_ns(bytes: u64, mb_s: f64) -> Ns {
    ns(bytes as f64 / mb_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_uses_gap_before_later_span() {
        let mut line = Line::default();
        assert_eq!(line.take(0, 100, 10), 110);
        assert_eq!(line.take(0, 50, 10), 60, "the gap before it");
        assert_eq!(line.take(0, 45, 20), 80, "behind the one that begins at 50");
        assert_eq!(line.take(0, 55, 30), 140, "no gap is long enough");
        assert_eq!(line.take(115, 115, 5), 145);
    }

    #[test]
    fn draws_have_their_means() {
        let mut draws = Draws::new(7);
        let mut mean = |draw: &mut dyn FnMut(&mut Draws) -> f64| {
            (0..20_000).map(|_| draw(&mut draws)).sum::<f64>() / 20_000.0
        };
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let exponential = mean(&mut |draws| draws.exponential_ns(2.0) as f64);
        assert!((1_940.0..2_060.0).contains(&exponential), "{exponential}");
        let share = mean(&mut Draws::share);
        assert!((0.49..0.51).contains(&share), "{share}");
    }

    #[test]
    fn processor_limits_writes_and_appends() {
        let config = Config { controller: Some(Controller::default()), ..Config::default() };
        for (kind, limit) in [(WriteKind::Write, 5.4), (WriteKind::Append, 7.4)] {
            let mut processor = Processor::new(&config).expect("it has a controller");
            let last = (0..10_000).map(|_| processor.write(0, kind, 4096, First::No)).last();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let each_us = last.expect("some").buffer_ns as f64 / 1e7;
            assert!((each_us / limit - 1.0).abs() < 0.02, "{each_us} µs");
        }
    }
}
