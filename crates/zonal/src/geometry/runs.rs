//! A few runs of neighbouring zones, such as the conventional zones of a drive.

use std::fmt;
use std::iter::successors;
use std::str::FromStr;

use crate::{DeviceError, ZoneId};

/// Zones that lie next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRun {
    /// Number of the first zone.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

impl ZoneRun {
    const EMPTY: Self = Self { first: 0, count: 0 };

    /// Number of the zone behind it.
    pub const fn end(self) -> u32 {
        self.first + self.count
    }
}

/// A set of zones in at most [`RUNS_MAX`](Self::RUNS_MAX) runs.
///
/// As text: `3` are the first three zones, `0-2,7-7` or `0-2,7` zones 0 to 2 and zone 7.
///
/// ```
/// use zonal::{ZoneId, ZoneRuns};
/// let zones: ZoneRuns = "0-2,7".parse()?;
/// assert!(zones.contains(ZoneId::new(7)) && !zones.contains(ZoneId::new(3)));
/// assert_eq!(zones.zone_count(), 4);
/// assert_eq!("3".parse(), Ok(ZoneRuns::leading(3)));
/// # Ok::<(), zonal::ZoneRunsError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ZoneRuns {
    /// Sorted, with a zone or more between two of them; behind the last one only empty ones.
    runs: [ZoneRun; Self::RUNS_MAX],
    len: u32,
}

/// Zones that cannot be a [`ZoneRuns`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct ZoneRunsError {
    /// Which zones, and why they cannot be.
    pub what: String,
}

impl From<ZoneRunsError> for DeviceError {
    fn from(error: ZoneRunsError) -> Self {
        Self::Geometry { what: error.what }
    }
}

impl ZoneRuns {
    /// Most runs. Drives have one or two.
    pub const RUNS_MAX: usize = 8;

    /// No zones.
    pub const NONE: Self = Self { runs: [ZoneRun::EMPTY; Self::RUNS_MAX], len: 0 };

    /// The first `count` zones of a device.
    pub const fn leading(count: u32) -> Self {
        let mut zones = Self::NONE;
        if count > 0 {
            zones.runs[0] = ZoneRun { first: 0, count };
            zones.len = 1;
        }
        zones
    }

    /// The zones of `runs`, which are in order and have no zone twice. Neighbours become one run.
    pub fn new(runs: impl IntoIterator<Item = ZoneRun>) -> Result<Self, ZoneRunsError> {
        let mut zones = Self::NONE;
        for run in runs {
            zones.push(run)?;
        }
        Ok(zones)
    }

    /// Some zones, in order.
    pub fn of(zones: impl IntoIterator<Item = ZoneId>) -> Result<Self, ZoneRunsError> {
        Self::new(zones.into_iter().map(|zone| ZoneRun { first: zone.get(), count: 1 }))
    }

    /// With a run behind the others. `None` if it is not behind them, or there are too many.
    pub const fn and(mut self, run: ZoneRun) -> Option<Self> {
        let (len, end) = (self.len as usize, self.end());
        if run.count == 0 {
            return Some(self);
        }
        if run.first < end || run.first.checked_add(run.count).is_none() {
            return None;
        }
        if len > 0 && run.first == end {
            self.runs[len - 1].count += run.count;
        } else if len < Self::RUNS_MAX {
            self.runs[len] = run;
            self.len += 1;
        } else {
            return None;
        }
        Some(self)
    }

    fn push(&mut self, run: ZoneRun) -> Result<(), ZoneRunsError> {
        let ZoneRun { first, count } = run;
        match self.and(run) {
            Some(zones) => {
                *self = zones;
                Ok(())
            }
            None => Err(ZoneRunsError {
                what: match (first.checked_add(count), self.end()) {
                    (None, _) => format!("{count} zones from zone {first} on: too large a number"),
                    (Some(_), end) if first < end => {
                        format!("zone {first} after zone {}: zones stand in order", end - 1)
                    }
                    (Some(_), _) => format!("more than {} runs of zones", Self::RUNS_MAX),
                },
            }),
        }
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[ZoneRun] {
        &self.runs[..self.len as usize]
    }

    /// Whether a zone is one of them.
    #[inline]
    pub const fn contains(&self, zone: ZoneId) -> bool {
        let mut at = 0;
        while at < self.len as usize {
            let run = self.runs[at];
            if zone.get() < run.end() {
                return zone.get() >= run.first;
            }
            at += 1;
        }
        false
    }

    /// How many zones there are.
    pub fn zone_count(&self) -> u32 {
        self.runs().iter().map(|run| run.count).sum()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of the zone behind the last one; 0 if there are none.
    pub const fn end(&self) -> u32 {
        if self.len == 0 { 0 } else { self.runs[self.len as usize - 1].end() }
    }

    /// How many zones from zone 0 on are among them.
    pub const fn leading_count(&self) -> u32 {
        if self.len > 0 && self.runs[0].first == 0 { self.runs[0].count } else { 0 }
    }

    /// The zones of the set from `first` to `last`, renumbered so that `first` is zone 0.
    #[must_use]
    pub fn within(&self, first: ZoneId, last: ZoneId) -> Self {
        let mut zones = Self::NONE;
        for run in self.runs() {
            let begin = run.first.max(first.get());
            let end = run.end().min(last.get().saturating_add(1));
            if begin < end {
                zones.runs[zones.len as usize] =
                    ZoneRun { first: begin - first.get(), count: end - begin };
                zones.len += 1;
            }
        }
        zones
    }

    /// All zones up to `zone_count` in stretches that are in the set or not, in order.
    pub fn stretches(&self, zone_count: u32) -> impl Iterator<Item = Stretch> + '_ {
        let from = move |first: u32| {
            let next = self.runs().iter().find(|run| run.end() > first);
            let (is_in, end) = match next {
                Some(run) if run.first <= first => (true, run.end()),
                Some(run) => (false, run.first),
                None => (false, zone_count),
            };
            let count = end.min(zone_count) - first;
            Stretch { run: ZoneRun { first, count }, is_in }
        };
        let first = (zone_count > 0).then(|| from(0));
        successors(first, move |last| {
            let next = last.run.end();
            (next < zone_count).then(|| from(next))
        })
    }
}

/// Neighbouring zones that are all in a set, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The zones.
    pub run: ZoneRun,
    /// Whether they are in the set.
    pub is_in: bool,
}

impl fmt::Display for ZoneRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.runs().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (run.count, self.len) {
                // Alone it would be so many zones.
                (1, 2..) => write!(f, "{comma}{}", run.first)?,
                _ => write!(f, "{comma}{}-{}", run.first, run.end() - 1)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ZoneRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

impl FromStr for ZoneRuns {
    type Err = ZoneRunsError;

    fn from_str(text: &str) -> Result<Self, ZoneRunsError> {
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| ZoneRunsError { what: format!("{text:?} is not a number of zones") })
        };
        if !text.contains([',', '-']) {
            return number(text).map(Self::leading);
        }
        let mut zones = Self::NONE;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            let Some(count) = last.checked_sub(first).and_then(|more| more.checked_add(1)) else {
                return Err(ZoneRunsError { what: format!("{part:?} is no range of zones") });
            };
            zones.push(ZoneRun { first, count })?;
        }
        Ok(zones)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any set of few zones comes back from its zones, from its text and from its stretches.
        #[test]
        fn runs_are_the_zones_they_are_made_of(chosen in prop::collection::vec(any::<bool>(), 1..30)) {
            let is_in = |zone: u32| chosen[zone as usize];
            let count = u32::try_from(chosen.len()).unwrap();
            let runs = (0..count).filter(|&zone| is_in(zone) && (zone == 0 || !is_in(zone - 1))).count();
            let made = ZoneRuns::of((0..count).filter(|&zone| is_in(zone)).map(ZoneId::new));
            prop_assert_eq!(made.is_ok(), runs <= ZoneRuns::RUNS_MAX);
            let Ok(made) = made else { return Ok(()) };
            for zone in 0..count {
                prop_assert_eq!(made.contains(ZoneId::new(zone)), is_in(zone), "{}", zone);
            }
            prop_assert!(!made.contains(ZoneId::new(count)));
            prop_assert_eq!(made.runs().len(), runs);
            if !made.is_empty() {
                prop_assert_eq!(made.to_string().parse(), Ok(made));
            }
            let mut next = 0;
            for stretch in made.stretches(count) {
                prop_assert_eq!(stretch.run.first, next);
                prop_assert!(stretch.run.count > 0);
                next = stretch.run.end();
                let zones = stretch.run.first..next;
                prop_assert!(zones.clone().all(|zone| is_in(zone) == stretch.is_in), "{:?}", stretch);
                prop_assert!(next == count || is_in(next) != stretch.is_in, "{:?}", stretch);
            }
            prop_assert_eq!(next, count);
        }
    }

    #[test]
    fn runs_invalid_say_why() {
        for (text, why) in [
            ("x", "\"x\" is not a number"),
            ("0-", "\"\" is not a number"),
            ("3-1", "\"3-1\" is no range"),
            ("0-4294967295", "\"0-4294967295\" is no range"),
            ("4-6,5", "zone 5 after zone 6"),
            ("4294967295-4294967295,1", "too large"),
        ] {
            let error = text.parse::<ZoneRuns>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let many: Vec<String> = (0..9).map(|run| (2 * run).to_string()).collect();
        let error = many.join(",").parse::<ZoneRuns>().unwrap_err().to_string();
        assert!(error.contains("more than 8 runs"), "{error}");
    }
}
