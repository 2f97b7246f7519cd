//! The panels of a drive without a file system: lines of text from a report, and from the one
//! before for rates.

use ratatui::text::{Line, Span};
use zonal::{Zone, ZoneCond};
use zonal_fuse::control::page::{count, percent};

use super::panels::{bar, head, in_room, painted, short_count, short_rate};
use super::picture::{Ink, colour};
use super::snapshot::{Drive, Moves, Spot};
use crate::output::{per_second, size};

/// Two looks at a drive.
#[derive(Clone, Copy)]
pub(crate) struct Looks<'a> {
    pub(crate) now: &'a Drive,
    pub(crate) before: Option<&'a Drive>,
    /// Seconds between the two.
    pub(crate) seconds: f64,
    pub(crate) ink: Ink,
}

impl Looks<'_> {
    fn moves(&self) -> Option<Moves> {
        self.before.map(|before| Moves::between(before, self.now))
    }

    /// Zones by their conditions.
    pub(crate) fn conditions(&self, width: usize) -> Vec<Line<'static>> {
        let all = self.now.report.len() as u64;
        let bar_width = width.saturating_sub(28).min(40);
        let mut lines = Vec::new();
        for cond in ZoneCond::ALL {
            let zones = self.now.report.iter().filter(|zone| zone.cond == cond);
            let number = zones.clone().count() as u64;
            let Some(first) = zones.clone().next() else { continue };
            let sign = Spot::of_zone(first).sign;
            lines.push(Line::from(vec![
                Span::raw(format!("{:<13} ", cond.name())),
                painted(bar(number, all, bar_width, self.ink), colour(sign), self.ink),
                Span::raw(format!(" {:>7} {:>5}", count(number), percent(number, all))),
            ]));
        }
        lines
    }

    /// Writes and resets since the last report.
    pub(crate) fn rates(&self, width: usize) -> Vec<Line<'static>> {
        let moves = self.moves();
        let value = |of: &dyn Fn(&Moves) -> String| moves.as_ref().map_or("-".to_owned(), of);
        let written = value(&|moves| short_rate(per_second(moves.written_bytes, self.seconds)));
        let resets = value(&|moves| short_count(per_second(moves.resets, self.seconds)));
        let zones = value(&|moves| count(moves.busiest.len() as u64));
        let value_width = width.saturating_sub(17).min(15);
        let line =
            |name: &str, value: String| Line::raw(format!("{name:<17}{value:>value_width$}"));
        vec![
            line("written", written),
            line("resets per second", resets),
            line("zones written to", zones),
        ]
    }

    /// Zones with the most writes, then others that are open or closed.
    pub(crate) fn busiest(&self, width: usize) -> Vec<Line<'static>> {
        let bar_width = width.saturating_sub(28).min(40);
        let over_bar = if bar_width < 7 { "" } else { "written" };
        let mut lines =
            vec![head(format!("{:>6} {:<8} {over_bar:<bar_width$} {:>11}", "zone", "", "now"))];
        let moves = self.moves().unwrap_or_default();
        let busy: Vec<u32> = moves.busiest.iter().map(|(zone, _)| *zone).collect();
        for (zone, bytes) in &moves.busiest {
            let zone = self.now.report.iter().find(|other| other.id.get() == *zone);
            let rate = short_rate(per_second(*bytes, self.seconds));
            lines.extend(zone.map(|zone| self.zone(zone, &rate, bar_width)));
        }
        let active = |zone: &&Zone| zone.cond.is_active() && !busy.contains(&zone.id.get());
        let others = self.now.report.iter().filter(active).take(64);
        lines.extend(others.map(|zone| self.zone(zone, "", bar_width)));
        lines
    }

    fn zone(&self, zone: &Zone, rate: &str, bar_width: usize) -> Line<'static> {
        let written = zone.written().map_or(0, zonal::LbaCount::get);
        let name = match zone.cond {
            ZoneCond::ImplicitOpen | ZoneCond::ExplicitOpen => "open",
            ZoneCond::Empty
            | ZoneCond::Closed
            | ZoneCond::Full
            | ZoneCond::ReadOnly
            | ZoneCond::Offline
            | ZoneCond::NotWp => zone.cond.name(),
        };
        let bar = bar(written, zone.capacity.get(), bar_width, self.ink);
        Line::from(vec![
            Span::raw(format!("{:>6} {name:<8.8} ", zone.id.get())),
            painted(bar, colour(Spot::of_zone(zone).sign), self.ink),
            Span::raw(format!(" {rate:>11}")),
        ])
    }

    /// The limits of the drive in one line, as far as there is room.
    pub(crate) fn status(&self, width: usize) -> String {
        let zones = |of: &dyn Fn(ZoneCond) -> bool| {
            self.now.report.iter().filter(|zone| of(zone.cond)).count()
        };
        let limit = |limit: Option<u32>| {
            limit.map_or("no limit".to_owned(), |limit| format!("at most {limit}"))
        };
        let open = zones(&ZoneCond::is_open);
        let active = zones(&ZoneCond::is_active);
        let written = self.now.report.iter().filter_map(Zone::written);
        let written: u64 = written.map(zonal::LbaCount::get).sum();
        let parts = [
            format!("{open} open, {}", limit(self.now.max_open)),
            format!("{active} active, {}", limit(self.now.max_active)),
            format!("{} written", size(written * self.now.block_bytes)),
        ];
        in_room(&parts, width)
    }
}
