//! The use of each zone, as text of one short line per zone: half a megabyte for 50,000 zones,
//! without a request to the drive.
//!
//! A line has a letter of [`ROLES`], the percentage of the zone that is written, and the percentage
//! that files use, such as `d 100  42`. All lines have the same length.

use std::fmt::Write;

use zonal_fs::furrow::stats::ZoneUse;

/// Bytes of a line.
pub const LINE_BYTES: usize = 10;

/// Uses of a zone: name, letter and meaning.
pub const ROLES: [(&str, u8, &str); 17] = [
    ("superblock", b's', "superblock log"),
    ("metadata", b'm', "journal and table"),
    ("free", b'.', "empty"),
    ("open", b'o', "files are written to it"),
    ("open-reclaim", b'g', "reclaim writes to it"),
    ("data", b'd', "holds data"),
    ("victim", b'v', "reclaim empties it"),
    ("pending-reset", b'p', "nothing lives in it; to be reset"),
    ("failed", b'x', "cannot be written any more"),
    ("open-short", b'S', "data of files that dies soon is written to it"),
    ("open-medium", b'M', "data of files that lives longer"),
    ("open-long", b'L', "data of files that lives long"),
    ("open-extreme", b'E', "data of files that lives longest"),
    ("reclaim-short", b'A', "reclaim writes what dies soon to it"),
    ("reclaim-medium", b'B', "reclaim writes what lives longer"),
    ("reclaim-long", b'C', "reclaim writes what lives long"),
    ("reclaim-extreme", b'D', "reclaim writes what lives longest"),
];

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Use of the zone: a letter of [`ROLES`].
    pub role: u8,
    /// Percentage of the zone that is written.
    pub written: u8,
    /// Percentage of the zone that files use.
    pub used: u8,
}

impl Line {
    /// The line for a zone.
    pub fn of(zone: &ZoneUse) -> Self {
        let role = ROLES.iter().find(|(name, _, _)| *name == zone.role);
        let role = role.map_or(b'?', |(_, letter, _)| *letter);
        let [written, used] =
            [zone.written, zone.used].map(|blocks| percent(blocks, zone.capacity));
        Self { role, written, used }
    }
}

/// Lines for zones.
pub(super) fn text(uses: &[ZoneUse]) -> String {
    let mut text = String::with_capacity(uses.len() * LINE_BYTES);
    for Line { role, written, used } in uses.iter().map(Line::of) {
        writeln!(text, "{} {written:>3} {used:>3}", char::from(role)).expect("a string takes all");
    }
    text
}

/// Percentage: 0 only for nothing, 100 only for all.
fn percent(part: u32, whole: u32) -> u8 {
    let (part, whole) = (u64::from(part), u64::from(whole.max(1)));
    match 100 * part / whole {
        0 if part > 0 => 1,
        percent => u8::try_from(percent.min(100)).expect("at most 100"),
    }
}

/// Parses lines, and skips malformed ones.
pub fn parse(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let &[role] = words.next()?.as_bytes() else { return None };
        let mut percent = || words.next()?.parse().ok().filter(|percent| *percent <= 100);
        Some(Line { role, written: percent()?, used: percent()? })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_lines_have_stated_length_and_parse_back() {
        let zone = |role, written, used| ZoneUse { role, capacity: 1000, written, used };
        let mut uses: Vec<ZoneUse> =
            ROLES.iter().map(|(name, _, _)| zone(*name, 1000, 999)).collect();
        uses.extend([zone("free", 0, 0), zone("open", 1, 1), zone("something else", 1000, 1000)]);
        let text = text(&uses);
        assert!(text.lines().all(|line| line.len() + 1 == LINE_BYTES), "{text}");
        let lines = parse(&text);
        assert_eq!(lines.len(), uses.len());
        assert_eq!(lines[5], Line { role: b'd', written: 100, used: 99 });
        let last = |role, written, used| Line { role, written, used };
        assert_eq!(
            lines[ROLES.len()..],
            [last(b'.', 0, 0), last(b'o', 1, 1), last(b'?', 100, 100)]
        );
    }

    #[test]
    fn map_parse_skips_invalid_lines() {
        let text = "d 100  42\n\nd\nd 1\nd x 1\ndd 1 1\nd 101 1\nd 1 -1\no   0   0\n";
        assert_eq!(parse(text).len(), 2);
    }

    /// Every role that a Furrow reports has a letter.
    #[test]
    fn map_has_letter_for_every_role() {
        use std::sync::Arc;
        use zonal::{ManualClock, OpenMode, spec};
        use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};

        let clock = Arc::new(ManualClock::new(0));
        let shape = "mem:zones=40,zone=1M,conventional=0";
        let device = spec::open_stack(shape, OpenMode::ReadWrite, clock.clone()).unwrap().device;
        mkfs(device.clone(), &*clock, &MkfsOptions::default(), &mut |_| ()).unwrap();
        let fs = Furrow::mount(device, clock, MountOptions::default()).unwrap();
        let text = text(&fs.zone_uses(0, 100));
        assert!(!text.contains('?') && text.contains('s') && text.contains('.'), "{text}");
    }
}
