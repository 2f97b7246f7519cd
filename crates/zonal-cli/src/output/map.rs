//! The zones of a device as a picture: one cell for each zone, or for equally many.
//!
//! In colour, a cell's colour is the condition and its height how full it is. Without colour, a
//! cell is a letter that names the condition.

use std::fmt::Write;

use console::Style;
use zonal::{Zone, ZoneCond};

/// Rows that a picture may have: they fit on a terminal with room for the legend.
const ROWS_MAX: usize = 16;

/// Most zones with cells wider than one character: users look at so small a drive zone by zone.
const WIDE_MAX: usize = 160;

/// Columns in front of a row: the number of its first zone.
const MARGIN: usize = 8;

const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How a picture is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Colour,
    Letters,
}

/// Colour where standard output takes it.
pub(crate) fn ink() -> Ink {
    if console::colors_enabled() { Ink::Colour } else { Ink::Letters }
}

/// Width of the terminal, or 80 characters.
pub(crate) fn terminal_width() -> usize {
    let columns = console::Term::stdout().size_checked().map_or(80, |(_, columns)| columns);
    usize::from(columns)
}

/// One cell: one zone or several.
struct Cell {
    cond: ZoneCond,
    written: u64,
    capacity: u64,
}

impl Cell {
    fn of(zones: &[Zone]) -> Self {
        let cond = |zone: &Zone| zone.cond;
        Self {
            cond: zones
                .iter()
                .map(cond)
                .max_by_key(|cond| notable(*cond, zones))
                .map_or(ZoneCond::Empty, |c| c),
            written: zones.iter().map(filled).sum(),
            capacity: zones.iter().map(|zone| zone.capacity.get()).sum(),
        }
    }

    fn height(&self) -> char {
        let full = u128::from(self.capacity.max(1));
        let eighths = (u128::from(self.written) * 8).div_ceil(full);
        match usize::try_from(eighths).unwrap_or(8) {
            0 => ' ',
            eighths => HEIGHTS[eighths.min(8) - 1],
        }
    }
}

/// Blocks that hold, or may hold, data.
fn filled(zone: &Zone) -> u64 {
    match zone.cond {
        ZoneCond::NotWp | ZoneCond::ReadOnly | ZoneCond::Offline => zone.capacity.get(),
        ZoneCond::Empty
        | ZoneCond::ImplicitOpen
        | ZoneCond::ExplicitOpen
        | ZoneCond::Closed
        | ZoneCond::Full => zone.written().map_or(0, zonal::LbaCount::get),
    }
}

/// Which condition a cell of several zones shows: a failed zone before an open one, an open one
/// before the commonest of the other conditions.
fn notable(cond: ZoneCond, zones: &[Zone]) -> (u8, usize) {
    let rank = match cond {
        ZoneCond::Offline => 5,
        ZoneCond::ReadOnly => 4,
        ZoneCond::ExplicitOpen => 3,
        ZoneCond::ImplicitOpen => 2,
        ZoneCond::Closed => 1,
        ZoneCond::NotWp | ZoneCond::Empty | ZoneCond::Full => 0,
    };
    (rank, zones.iter().filter(|zone| zone.cond == cond).count())
}

fn letter(cond: ZoneCond) -> char {
    match cond {
        ZoneCond::NotWp => '=',
        ZoneCond::Empty => '.',
        ZoneCond::ImplicitOpen => 'o',
        ZoneCond::ExplicitOpen => 'O',
        ZoneCond::Closed => 'c',
        ZoneCond::Full => '#',
        ZoneCond::ReadOnly => 'r',
        ZoneCond::Offline => 'x',
    }
}

fn style(cond: ZoneCond) -> Style {
    let tank = Style::new().force_styling(true).on_color256(237);
    match cond {
        ZoneCond::NotWp => tank.white(),
        ZoneCond::Empty => tank.black(),
        ZoneCond::ImplicitOpen => tank.green(),
        ZoneCond::ExplicitOpen => tank.cyan(),
        ZoneCond::Closed => tank.yellow(),
        ZoneCond::Full => tank.blue(),
        ZoneCond::ReadOnly => tank.magenta(),
        ZoneCond::Offline => tank.red(),
    }
}

/// Draws `zones` in at most `width` characters a line, with a legend below.
pub(crate) fn draw(zones: &[Zone], width: usize, ink: Ink) -> String {
    let columns = width.clamp(MARGIN + 16, 200) - MARGIN;
    let per_cell = zones.len().div_ceil(columns / 10 * 10 * ROWS_MAX).max(1);
    let cell_width = if zones.len() <= WIDE_MAX { 3 } else { 1 };
    // Rows begin at round numbers where there is room for ten cells.
    let fit = columns / cell_width;
    let per_row = if fit >= 10 { fit / 10 * 10 } else { fit };
    let mut picture = String::new();
    for (row, chunk) in zones.chunks(per_row * per_cell).enumerate() {
        let mut line = format!("{:>6}  ", row * per_row * per_cell);
        for cell in chunk.chunks(per_cell).map(Cell::of) {
            line.push_str(&paint(&cell, cell_width, ink));
        }
        picture.push_str(line.trim_end());
        picture.push('\n');
    }
    picture.push_str(&legend(zones, per_cell, ink));
    picture
}

fn paint(cell: &Cell, width: usize, ink: Ink) -> String {
    let gap = if width > 1 { " " } else { "" };
    match ink {
        Ink::Letters => format!("{}{}", letter(cell.cond), " ".repeat(width - 1)),
        Ink::Colour => {
            let tank = cell.height().to_string().repeat(width - gap.len());
            format!("{}{gap}", style(cell.cond).apply_to(tank))
        }
    }
}

fn legend(zones: &[Zone], per_cell: usize, ink: Ink) -> String {
    let mut text = " ".repeat(MARGIN);
    for cond in ZoneCond::ALL {
        let count = zones.iter().filter(|zone| zone.cond == cond).count();
        if count > 0 {
            let sign = match ink {
                Ink::Letters => letter(cond).to_string(),
                Ink::Colour => style(cond)
                    .apply_to(if cond == ZoneCond::Empty { " " } else { "█" })
                    .to_string(),
            };
            write!(text, "{sign} {count} {}   ", cond.name()).expect("a string takes all");
        }
    }
    let mut text = format!("{}\n", text.trim_end());
    if per_cell > 1 {
        let margin = " ".repeat(MARGIN);
        writeln!(text, "{margin}one sign for {per_cell} zones: what is rarest in them decides")
            .expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use zonal::{Lba, LbaCount, ZoneId, ZoneKind};

    use super::*;

    fn zone(id: u32, cond: ZoneCond, written: u64) -> Zone {
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

    #[test]
    fn map_letters_name_zone_conditions() {
        let zones = [
            zone(0, ZoneCond::Full, 80),
            zone(1, ZoneCond::ImplicitOpen, 3),
            zone(2, ZoneCond::Empty, 0),
        ];
        let picture = draw(&zones, 80, Ink::Letters);
        assert_eq!(picture, "     0  #  o  .\n        . 1 empty   o 1 implicit-open   # 1 full\n");
    }

    #[test]
    fn map_fits_large_drive_to_any_terminal() {
        let mut zones: Vec<Zone> = (0..55_880).map(|id| zone(id, ZoneCond::Empty, 0)).collect();
        zones[40_000] = zone(40_000, ZoneCond::Offline, 0);
        for width in [0, 24, 80, 237] {
            let picture = draw(&zones, width, Ink::Letters);
            assert!(picture.lines().count() <= ROWS_MAX + 2, "{picture}");
            assert!(picture.lines().take(ROWS_MAX).all(|line| line.len() <= width.clamp(24, 200)));
            assert_eq!(picture.matches('x').count(), 2, "the picture and the legend show it");
        }
    }

    #[test]
    fn map_cell_height_is_fill() {
        let height = |written| Cell::of(&[zone(0, ZoneCond::Closed, written)]).height();
        assert_eq!(height(0), ' ');
        assert_eq!(height(1), '▁');
        assert_eq!(height(40), '▄');
        assert_eq!(height(80), '█');
    }

    #[test]
    fn map_without_zones_is_empty() {
        assert_eq!(draw(&[], 80, Ink::Letters).trim(), "");
    }
}
