//! The result of one look: plain data, from which a screen is drawn without further requests.
//!
//! A look at a mount costs its drive nothing. A look at a drive is a zone report; the difference of
//! two reports shows writes and resets in between ([`Moves`]).

use zonal::{LbaCount, Zone, ZoneCond};
use zonal_fuse::control::Report;
use zonal_fuse::control::map::Line;

/// One look.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The mount point, or the device.
    pub(crate) name: String,
    /// When, on a clock that never goes back.
    pub(crate) at_ns: u64,
    pub(crate) zones: Vec<Spot>,
    pub(crate) what: What,
}

/// The target of a look, with its report.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Mount(Box<Report>),
    Drive(Drive),
}

/// A drive without a file system of ours.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drive {
    pub(crate) block_bytes: u64,
    pub(crate) report: Vec<Zone>,
    pub(crate) max_open: Option<u32>,
    pub(crate) max_active: Option<u32>,
}

/// A zone as the picture shows it. Shares are in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) sign: Sign,
    pub(crate) written: u8,
    /// The share of the whole zone; `None` if it is unknown.
    pub(crate) used: Option<u8>,
}

/// Declares the signs: variant, letter, rank, name. A group of zones shows its highest rank, and of
/// that the commonest sign.
macro_rules! signs {
    ($($variant:ident $letter:literal $rank:literal $name:literal,)*) => {
        /// The use or the condition of a zone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Sign {
            $($variant,)*
        }

        impl Sign {
            /// All of them, in the order of the legend.
            pub(crate) const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The letter for it, where there is no colour.
            pub(crate) const fn letter(self) -> char {
                match self {
                    $(Self::$variant => $letter,)*
                }
            }

            pub(crate) const fn rank(self) -> u8 {
                match self {
                    $(Self::$variant => $rank,)*
                }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

signs! {
    Free '.' 0 "free",
    Data 'd' 0 "data",
    Open 'o' 3 "open",
    OpenShort 'S' 3 "short",
    OpenMedium 'M' 3 "medium",
    OpenLong 'L' 3 "long",
    OpenExtreme 'E' 3 "extreme",
    OpenReclaim 'g' 4 "reclaim",
    ReclaimShort 'A' 4 "reclaim-short",
    ReclaimMedium 'B' 4 "reclaim-medium",
    ReclaimLong 'C' 4 "reclaim-long",
    ReclaimExtreme 'D' 4 "reclaim-extreme",
    Victim 'v' 5 "victim",
    PendingReset 'p' 1 "reset",
    Metadata 'm' 0 "metadata",
    Superblock 's' 2 "super",
    Failed 'x' 6 "failed",
    Unknown '?' 0 "other",
    Conventional '=' 0 "conventional",
    Empty '.' 0 "empty",
    ImplicitOpen 'o' 3 "implicit-open",
    ExplicitOpen 'O' 4 "explicit-open",
    Closed 'c' 2 "closed",
    Full '#' 0 "full",
    ReadOnly 'r' 5 "read-only",
    Offline 'x' 6 "offline",
}

impl Sign {
    /// The sign of an open zone, by the words of [`OpenZone`](zonal_fs::furrow::stats::OpenZone).
    pub(crate) fn of_open(class: &str, life: &str) -> Self {
        match (class, life) {
            ("reclaim", "short") => Self::ReclaimShort,
            ("reclaim", "medium") => Self::ReclaimMedium,
            ("reclaim", "long") => Self::ReclaimLong,
            ("reclaim", "extreme") => Self::ReclaimExtreme,
            ("reclaim", _) => Self::OpenReclaim,
            (_, "short") => Self::OpenShort,
            (_, "medium") => Self::OpenMedium,
            (_, "long") => Self::OpenLong,
            (_, "extreme") => Self::OpenExtreme,
            _ => Self::Open,
        }
    }

    /// Whether data is written to it.
    pub(crate) const fn is_open(self) -> bool {
        matches!(
            self,
            Self::Open
                | Self::OpenShort
                | Self::OpenMedium
                | Self::OpenLong
                | Self::OpenExtreme
                | Self::OpenReclaim
                | Self::ReclaimShort
                | Self::ReclaimMedium
                | Self::ReclaimLong
                | Self::ReclaimExtreme
        )
    }
}

impl Spot {
    /// From the map in a control directory.
    pub(crate) fn of_line(line: Line) -> Self {
        let sign = match line.role {
            b'.' => Sign::Free,
            b'd' => Sign::Data,
            b'o' => Sign::Open,
            b'g' => Sign::OpenReclaim,
            b'S' => Sign::OpenShort,
            b'M' => Sign::OpenMedium,
            b'L' => Sign::OpenLong,
            b'E' => Sign::OpenExtreme,
            b'A' => Sign::ReclaimShort,
            b'B' => Sign::ReclaimMedium,
            b'C' => Sign::ReclaimLong,
            b'D' => Sign::ReclaimExtreme,
            b'v' => Sign::Victim,
            b'p' => Sign::PendingReset,
            b'm' => Sign::Metadata,
            b's' => Sign::Superblock,
            b'x' => Sign::Failed,
            _ => Sign::Unknown,
        };
        let used = match sign {
            // Files have no share of these zones.
            Sign::Metadata | Sign::Superblock => None,
            _ => Some(line.used),
        };
        Self { sign, written: line.written, used }
    }

    /// From a zone report.
    pub(crate) fn of_zone(zone: &Zone) -> Self {
        let sign = sign_of(zone.cond);
        Self::of_shares(sign, zone.written().map(LbaCount::get), zone.capacity.get())
    }

    /// From a line of a zone report in a control directory; `None` if the line has another form.
    pub(crate) fn of_report_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, cond, _, _, capacity, written] = words[..] else { return None };
        let cond = ZoneCond::ALL.into_iter().find(|other| other.name() == cond)?;
        Some(Self::of_shares(sign_of(cond), written.parse().ok(), capacity.parse().ok()?))
    }

    /// A zone without a write pointer counts as written.
    fn of_shares(sign: Sign, written: Option<u64>, capacity: u64) -> Self {
        let capacity = capacity.max(1);
        let written = written.unwrap_or(capacity).min(capacity);
        let percent = match u128::from(written) * 100 / u128::from(capacity) {
            0 if written > 0 => 1,
            percent => percent,
        };
        Self { sign, written: u8::try_from(percent).unwrap_or(100), used: None }
    }
}

fn sign_of(cond: ZoneCond) -> Sign {
    match cond {
        ZoneCond::NotWp => Sign::Conventional,
        ZoneCond::Empty => Sign::Empty,
        ZoneCond::ImplicitOpen => Sign::ImplicitOpen,
        ZoneCond::ExplicitOpen => Sign::ExplicitOpen,
        ZoneCond::Closed => Sign::Closed,
        ZoneCond::Full => Sign::Full,
        ZoneCond::ReadOnly => Sign::ReadOnly,
        ZoneCond::Offline => Sign::Offline,
    }
}

/// Writes and resets of a drive between two reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) written_bytes: u64,
    pub(crate) resets: u64,
    /// Zones that were written, with the bytes, most first.
    pub(crate) busiest: Vec<(u32, u64)>,
}

impl Moves {
    /// A write pointer that went back was reset, and the zone was written up to the new one since.
    /// The reports do not show blocks that were written and reset between them.
    pub(crate) fn between(before: &Drive, now: &Drive) -> Self {
        let mut moves = Self::default();
        for (was, is) in before.report.iter().zip(&now.report) {
            let (Some(was), Some(blocks)) = (was.written(), is.written()) else { continue };
            let (was, blocks) = (was.get(), blocks.get());
            let new = if blocks < was {
                moves.resets += 1;
                blocks
            } else {
                blocks - was
            };
            if new > 0 {
                moves.written_bytes += new * now.block_bytes;
                moves.busiest.push((is.id.get(), new * now.block_bytes));
            }
        }
        moves.busiest.sort_by_key(|(zone, bytes)| (std::cmp::Reverse(*bytes), *zone));
        moves
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use zonal::{Lba, ZoneId, ZoneKind};

    use super::*;

    pub(crate) fn zone(id: u32, cond: ZoneCond, written: u64) -> Zone {
        let start = Lba::new(u64::from(id) * 100);
        Zone {
            id: ZoneId::new(id),
            kind: ZoneKind::SequentialRequired,
            non_sequential: false,
            cond,
            start,
            size: LbaCount::new(100),
            capacity: LbaCount::new(80),
            wp: Some(start + LbaCount::new(written)),
        }
    }

    fn drive(zones: &[(ZoneCond, u64)]) -> Drive {
        let zones = (0..).zip(zones);
        let report = zones.map(|(id, (cond, written))| zone(id, *cond, *written)).collect();
        Drive { block_bytes: 4096, report, ..Drive::default() }
    }

    #[test]
    fn moves_between_reports_count_writes_and_resets() {
        let open = ZoneCond::ImplicitOpen;
        let before = drive(&[(open, 10), (ZoneCond::Full, 80), (open, 5), (ZoneCond::Empty, 0)]);
        let now = drive(&[(open, 30), (open, 7), (open, 5), (ZoneCond::Full, 80)]);
        let moves = Moves::between(&before, &now);
        assert_eq!(moves.written_bytes, (20 + 7 + 80) * 4096);
        assert_eq!(moves.resets, 1);
        assert_eq!(moves.busiest, [(3, 80 * 4096), (0, 20 * 4096), (1, 7 * 4096)]);
        assert_eq!(Moves::between(&now, &now), Moves::default());
    }

    #[test]
    fn spot_has_sign_for_every_map_letter() {
        let mut signs = BTreeSet::new();
        for (name, role, _) in zonal_fuse::control::map::ROLES {
            let spot = Spot::of_line(Line { role, written: 100, used: 40 });
            assert_ne!(spot.sign, Sign::Unknown, "{name}");
            assert_eq!(spot.sign.letter(), char::from(role), "{name}");
            assert!(signs.insert(spot.sign), "{name} has a sign of its own");
        }
    }

    #[test]
    fn spot_has_sign_and_shares_of_zone_condition() {
        let spot = |cond, written| Spot::of_zone(&zone(0, cond, written));
        assert_eq!(
            spot(ZoneCond::Closed, 40),
            Spot { sign: Sign::Closed, written: 50, used: None }
        );
        assert_eq!(spot(ZoneCond::ImplicitOpen, 1).written, 1);
        assert_eq!(spot(ZoneCond::Empty, 0).written, 0);
        let conventional =
            Zone { kind: ZoneKind::Conventional, wp: None, ..zone(0, ZoneCond::NotWp, 0) };
        assert_eq!(Spot::of_zone(&conventional).sign, Sign::Conventional);
        for cond in ZoneCond::ALL {
            let zone = zone(3, cond, 40);
            let line = zonal_fuse::zone_report::line(&zone);
            assert_eq!(Spot::of_report_line(&line), Some(Spot::of_zone(&zone)), "{line}");
        }
        assert_eq!(Spot::of_report_line(zonal_fuse::zone_report::HEAD), None);
        assert_eq!(Spot::of_report_line("1 empty 0 0 0"), None);
    }
}
