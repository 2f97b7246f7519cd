//! The panels of a mount: lines of text from a report, and from the one before for rates. A narrow
//! panel leaves out columns; it cuts no number.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use zonal_fs::furrow::Live;
use zonal_fs::furrow::stats::{OpenZone, Traffic};
use zonal_fuse::control::Report;
use zonal_fuse::control::page::{count, percent, time};
use zonal_fuse::latency::Latency;

use super::picture::{Ink, colour};
use super::snapshot::Sign;
use crate::output::per_second;

/// Two looks at a mount.
#[derive(Clone, Copy)]
pub(crate) struct Looks<'a> {
    pub(crate) now: &'a Report,
    pub(crate) before: Option<&'a Report>,
    pub(crate) ink: Ink,
}

/// A bar of `width` characters.
pub(crate) fn bar(part: u64, whole: u64, width: usize, ink: Ink) -> String {
    let (full, rest) = match ink {
        Ink::Colour => ('━', '─'),
        Ink::Letters => ('#', '-'),
    };
    let scaled = u128::from(part.min(whole)) * width as u128;
    let filled = usize::try_from(scaled.div_ceil(u128::from(whole.max(1)))).unwrap_or(width);
    (0..width).map(|index| if index < filled { full } else { rest }).collect()
}

/// Text in a colour, if there is any.
pub(crate) fn painted(text: String, colour: Color, ink: Ink) -> Span<'static> {
    match ink {
        Ink::Colour => Span::styled(text, Style::new().fg(colour)),
        Ink::Letters => Span::raw(text),
    }
}

/// The head of a table.
pub(crate) fn head(text: String) -> Line<'static> {
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

impl Looks<'_> {
    fn seconds(&self) -> Option<f64> {
        self.before.and_then(|before| self.now.seconds_since(before))
    }

    /// Space by its use.
    pub(crate) fn space(&self, live: &Live, width: usize) -> Vec<Line<'static>> {
        let blocks = live.blocks;
        let bar_width = width.saturating_sub(29).min(40);
        let line = |(name, part, sign): (&str, u64, Sign)| {
            let bytes = short_size(part * live.block_bytes);
            Line::from(vec![
                Span::raw(format!("{name:<11} ")),
                painted(bar(part, blocks.capacity, bar_width, self.ink), colour(sign), self.ink),
                Span::raw(format!(" {bytes:>9} {:>5}", percent(part, blocks.capacity))),
            ])
        };
        let held = live.reservations;
        [
            ("used", blocks.used, Sign::Data),
            ("reclaimable", blocks.reclaimable, Sign::Victim),
            ("free", blocks.free, Sign::Open),
            ("available", blocks.available, Sign::OpenReclaim),
            ("metadata", blocks.metadata, Sign::Metadata),
            ("reserved", blocks.reserved, Sign::Superblock),
            ("room", held.room, Sign::Superblock),
            ("low mark", held.low_mark, Sign::Superblock),
            ("pending", held.pending, Sign::Superblock),
        ]
        .map(line)
        .into()
    }

    /// Writes by kind of data: now, in the last minute and, in 38 columns, since the mount.
    pub(crate) fn traffic(&self, live: &Live, width: usize) -> Vec<Line<'static>> {
        let name_width = if width >= 38 { 10 } else { 9 };
        let row = |name: &str, [now, minute, mount]: [String; 3]| {
            let mount = if width >= 38 { format!("{mount:>9}") } else { String::new() };
            format!("{name:<name_width$}{now:>10}{minute:>9}{mount}")
        };
        let before = self.before.and_then(|before| before.live.as_ref());
        let now = before.map(|before| &before.since_mount).zip(self.seconds());
        let heads = ["now", "minute", "mount"].map(str::to_owned);
        let mut lines = vec![head(row("", heads))];
        for (name, of) in [
            ("user", (|traffic| traffic.user) as fn(&Traffic) -> u64),
            ("reclaim", |traffic| traffic.reclaim),
            ("metadata", |traffic| traffic.meta),
        ] {
            let all = of(&live.since_mount);
            let rate = now.map_or("-".to_owned(), |(before, seconds)| {
                short_rate(per_second(all.saturating_sub(of(before)), seconds))
            });
            let sizes = [rate, short_size(of(&live.minute)), short_size(all)];
            lines.push(Line::raw(row(name, sizes)));
        }
        let since = now.map(|(before, _)| {
            let Traffic { user, reclaim, meta, .. } = live.since_mount;
            Traffic {
                ns: 0,
                user: user.saturating_sub(before.user),
                reclaim: reclaim.saturating_sub(before.reclaim),
                meta: meta.saturating_sub(before.meta),
            }
        });
        let ratio = |traffic: Option<&Traffic>| {
            traffic.and_then(Traffic::amplification).map_or("-".to_owned(), |ratio| {
                if ratio < 1000.0 { format!("{ratio:.2}") } else { "> 999".to_owned() }
            })
        };
        let ratios = [since.as_ref(), Some(&live.minute), Some(&live.since_mount)].map(ratio);
        lines.push(Line::raw(row("amplific.", ratios)));
        lines
    }

    /// Victims, and zones that take writes.
    pub(crate) fn open_zones(&self, live: &Live, width: usize) -> Vec<Line<'static>> {
        let bar_width = width.saturating_sub(28).min(40);
        // The word stands over the bar, or over the share where there is no bar.
        let (over_bar, over_share) = if bar_width < 7 { ("", "wrote") } else { ("written", "") };
        let mut lines = vec![head(format!(
            "{:>6} {:<9} {over_bar:<bar_width$} {over_share:>5} {:>4}",
            "zone", "class", "used"
        ))];
        for victim in &live.victims {
            let (used, whole) = (u64::from(victim.used), u64::from(victim.capacity));
            lines.push(Line::from(vec![
                Span::raw(format!("{:>6} {:<9} ", victim.zone, "victim")),
                painted(bar(used, whole, bar_width, self.ink), colour(Sign::Victim), self.ink),
                Span::raw(format!(" {:>5} {:>4}", "", short_percent(used, whole))),
            ]));
        }
        for OpenZone { zone, class, life, hint, capacity, write_pointer, used, .. } in
            &live.open_zones
        {
            let [written, used, whole] = [*write_pointer, *used, *capacity].map(u64::from);
            let sign = Sign::of_open(class, life);
            // A hint is the expected life of the data, so `!` marks it and needs no second word.
            let mark = if hint.is_empty() { "" } else { "!" };
            let class = match (class.as_str(), life.as_str()) {
                (class, "") => class.to_owned(),
                ("reclaim", life) => format!("r {life}"),
                (_, life) => format!("{life}{mark}"),
            };
            lines.push(Line::from(vec![
                Span::raw(format!("{zone:>6} {class:<9} ")),
                painted(bar(written, whole, bar_width, self.ink), colour(sign), self.ink),
                Span::raw(format!(
                    " {:>5} {:>4}",
                    short_percent(written, whole),
                    short_percent(used, whole)
                )),
            ]));
        }
        lines
    }

    /// How long operations took in the last minute.
    pub(crate) fn latencies(&self, width: usize) -> Vec<Line<'static>> {
        let name_width = match width {
            54.. => 16,
            38.. => 8,
            _ => 6,
        };
        // The columns behind p99.
        let last = |p999: &str, max: &str| match width {
            54.. => format!("{p999:>8}{max:>8}"),
            38.. => format!("{max:>8}"),
            _ => String::new(),
        };
        let all = last("p99.9", "max");
        let mut lines =
            vec![head(format!("{:<name_width$}{:>6}{:>8}{:>8}{all}", "", "/s", "p50", "p99"))];
        let earlier = |name: &str| {
            let before = self.before?.operations.iter().find(|other| other.operation == name)?;
            Some(before.count)
        };
        for latency in &self.now.operations {
            let new = latency.count - earlier(&latency.operation).unwrap_or(0).min(latency.count);
            let rate = self
                .seconds()
                .map_or("-".to_owned(), |seconds| short_count(per_second(new, seconds)));
            let minute = self.now.minute_of(&latency.operation);
            let shown = |of: fn(&Latency) -> u64| minute.map(of).map_or("-".to_owned(), time);
            let [p50, p99] = [shown(|minute| minute.p50_ns), shown(|minute| minute.p99_ns)];
            let [p999, max] = [shown(|minute| minute.p999_ns), shown(|minute| minute.max_ns)];
            let name: String = latency.operation.chars().take(name_width).collect();
            let last = last(&p999, &max);
            lines.push(Line::raw(format!("{name:<name_width$}{rate:>6}{p50:>8}{p99:>8}{last}")));
        }
        lines
    }

    /// How many zones have which share in use.
    pub(crate) fn shares(&self, live: &Live, width: usize) -> Vec<Line<'static>> {
        let most = live.used_tenths.iter().copied().max().unwrap_or(0);
        let bar_width = width.saturating_sub(18).min(40);
        let lines = live.used_tenths.iter().enumerate().map(|(tenth, zones)| {
            let bar = bar(*zones, most, bar_width, self.ink);
            let last = if tenth == 9 { 100 } else { 10 * tenth + 9 };
            let share = format!("{}-{last} %", 10 * tenth);
            Line::from(vec![
                Span::raw(format!("{share:>8} ")),
                painted(bar, colour(Sign::Data), self.ink),
                Span::raw(format!(" {:>7}", count(*zones))),
            ])
        });
        lines.collect()
    }

    /// Reclaim, waits and cache in one line, as far as there is room.
    pub(crate) fn status(&self, live: &Live, width: usize) -> String {
        let ratio = live.reclaimed.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let hits = self.now.counter("cache_hits");
        let lookups = hits + self.now.counter("cache_misses");
        let waits = self.now.counter("waits");
        let waited = time(self.now.counter("wait_ns"));
        let waiting = live.reservations.waiting;
        let parts = [
            format!("moved/freed {ratio}"),
            format!("{} waits, {waited}, {waiting} now", count(waits)),
            format!("cache hits {}", percent(hits, lookups)),
        ];
        in_room(&parts, width)
    }
}

/// The first of these parts, with bars between them, as many as there is room for.
pub(crate) fn in_room(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let bar = if line.is_empty() { " " } else { " | " };
        if line.chars().count() + bar.len() + part.chars().count() > width {
            break;
        }
        line.extend([bar, part]);
    }
    line
}

/// A percentage in four characters.
fn short_percent(part: u64, whole: u64) -> String {
    percent(part, whole).replace(' ', "")
}

/// A size in at most eight characters: three digits, or four before the next unit.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn short_size(bytes: u64) -> String {
    short_bytes(bytes as f64)
}

fn short_bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A rate of bytes in at most ten characters.
pub(crate) fn short_rate(bytes: f64) -> String {
    format!("{}/s", short_bytes(bytes))
}

/// A rate in at most five characters.
pub(crate) fn short_count(rate: f64) -> String {
    match rate {
        ..9.95 => format!("{rate:.1}"),
        ..99_999.5 => format!("{rate:.0}"),
        ..9_999_500.0 => format!("{:.0}k", rate / 1e3),
        _ => format!("{:.0}M", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_fill_matches_its_ratio() {
        assert_eq!(bar(0, 10, 4, Ink::Letters), "----");
        assert_eq!(bar(1, 1000, 4, Ink::Letters), "#---", "something shows");
        assert_eq!(bar(10, 10, 4, Ink::Letters), "####");
        assert_eq!(bar(99, 10, 4, Ink::Letters), "####");
        assert_eq!(bar(1, 0, 4, Ink::Letters), "----");
        assert_eq!(bar(u64::MAX, u64::MAX, 0, Ink::Colour), "");
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(
            [0.0, 9.94, 42.4, 99_999.0, 1e6, 9_999_499.0, 9_999_500.0].map(short_count),
            ["0.0", "9.9", "42", "99999", "1000k", "9999k", "10M"]
        );
        let rates = [0.0, 1023.4, 1023.6, 1_234_567.0, 1e9, 1e12].map(short_rate);
        let expected = ["0 B/s", "1023 B/s", "1.00 KiB/s", "1.18 MiB/s", "954 MiB/s", "931 GiB/s"];
        assert_eq!(rates, expected);
        assert!(short_size(u64::MAX).len() <= 8);
    }
}
