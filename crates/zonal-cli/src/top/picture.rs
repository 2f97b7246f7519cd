//! The zones as a picture: one sign for each zone, or for equally many.
//!
//! In colour, a sign's colour is the use of the zone, and its height the share in use, or the
//! written share if the used one is unknown; grey behind it is written space that is not in use any
//! more. Without colour, letters name the use, and digits how many tenths of a zone with data are
//! in use.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::snapshot::{Sign, Spot};

const HEIGHTS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// How the picture is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Colour,
    Letters,
}

/// Zones in a rectangle.
pub(crate) struct Picture<'a> {
    pub(crate) zones: &'a [Spot],
    pub(crate) ink: Ink,
}

/// How zones are laid out in a rectangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grid {
    per_sign: usize,
    /// Columns of a sign, a gap included if there are several.
    sign_width: usize,
    per_row: usize,
}

/// Columns that a sign may have. Letters do not get wider.
const SIGN_WIDTHS: [usize; 5] = [8, 6, 4, 3, 2];
const LETTER_WIDTHS: [usize; 1] = [2];

impl Grid {
    fn new(zones: usize, area: Rect, ink: Ink) -> Self {
        let widths = match ink {
            Ink::Colour => &SIGN_WIDTHS[..],
            Ink::Letters => &LETTER_WIDTHS,
        };
        let (width, rows) = (usize::from(area.width).max(1), usize::from(rows(area)));
        let fits = |sign_width: &usize| zones.div_ceil((width / sign_width).max(1)) <= rows;
        let wide = widths.iter().copied().filter(|sign_width| *sign_width <= width).find(fits);
        match wide {
            Some(sign_width) => Self { per_sign: 1, sign_width, per_row: width / sign_width },
            None => {
                let per_sign = zones.div_ceil(width * rows).max(1);
                Self { per_sign, sign_width: 1, per_row: width }
            }
        }
    }
}

impl Picture<'_> {
    /// Zones for each sign.
    pub(crate) fn per_sign(&self, area: Rect) -> usize {
        Grid::new(self.zones.len(), area, self.ink).per_sign
    }

    /// Rows that the picture takes of an area, with the legend.
    pub(crate) fn rows(&self, area: Rect) -> u16 {
        let grid = Grid::new(self.zones.len(), area, self.ink);
        let rows = self.zones.len().div_ceil(grid.per_sign).div_ceil(grid.per_row);
        u16::try_from(rows + 1).unwrap_or(u16::MAX).min(area.height)
    }
}

/// Rows for zones.
fn rows(area: Rect) -> u16 {
    area.height.saturating_sub(1).max(1)
}

impl Widget for Picture<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        if area.is_empty() {
            return;
        }
        let Grid { per_sign, sign_width, per_row } = Grid::new(self.zones.len(), area, self.ink);
        for (index, zones) in self.zones.chunks(per_sign).enumerate() {
            let (row, column) = (index / per_row, index % per_row * sign_width);
            let (Ok(row), Ok(column)) = (u16::try_from(row), u16::try_from(column)) else { break };
            if row >= area.height {
                break;
            }
            let spot = combined(zones);
            let drawn = if sign_width == 1 { 1 } else { sign_width - 1 };
            let text = symbol(spot, self.ink).repeat(drawn);
            buffer.set_string(area.x + column, area.y + row, text, style(spot, self.ink));
        }
        if area.height > 1 {
            let at = Rect { y: area.y + area.height - 1, height: 1, ..area };
            legend(self.zones, self.ink, area.width.into()).render(at, buffer);
        }
    }
}

/// One spot for several zones: the most notable sign, with the mean of the shares.
fn combined(zones: &[Spot]) -> Spot {
    let many = |sign: Sign| zones.iter().filter(|zone| zone.sign == sign).count();
    let mut signs: Vec<Sign> = zones.iter().map(|zone| zone.sign).collect();
    signs.sort_unstable();
    signs.dedup();
    let sign = signs.into_iter().max_by_key(|sign| (sign.rank(), many(*sign)));
    let mean = |share: &dyn Fn(&Spot) -> Option<u8>| {
        let shares: Vec<u64> = zones.iter().filter_map(share).map(u64::from).collect();
        let sum: u64 = shares.iter().sum();
        let mean = sum.div_ceil((shares.len() as u64).max(1));
        (!shares.is_empty()).then(|| u8::try_from(mean).unwrap_or(100))
    };
    Spot {
        sign: sign.unwrap_or(Sign::Unknown),
        written: mean(&|zone| Some(zone.written)).unwrap_or(0),
        used: mean(&|zone| zone.used),
    }
}

/// The share that a sign's height shows.
fn shown(spot: Spot) -> u8 {
    // In an open zone, the written share is the one that changes.
    if spot.sign.is_open() { spot.written } else { spot.used.unwrap_or(spot.written) }
}

fn symbol(spot: Spot, ink: Ink) -> String {
    match (ink, spot.sign) {
        (Ink::Colour, Sign::Free | Sign::Empty) => "·".to_owned(),
        (Ink::Colour, _) => {
            HEIGHTS[usize::from(shown(spot)).saturating_mul(8).div_ceil(100).min(8)].to_owned()
        }
        (Ink::Letters, Sign::Data) => match spot.used.unwrap_or(0) {
            100.. => "#".to_owned(),
            used => (used / 10).to_string(),
        },
        (Ink::Letters, sign) => sign.letter().to_string(),
    }
}

/// The colour of a sign: one of the terminal's 16, so that its theme decides.
pub(crate) fn colour(sign: Sign) -> Color {
    match sign {
        Sign::Free | Sign::Empty => Color::DarkGray,
        Sign::Data | Sign::Full => Color::Blue,
        Sign::Open | Sign::ImplicitOpen => Color::Green,
        // From data that dies first to data that lives longest.
        Sign::OpenShort => Color::LightRed,
        Sign::OpenLong => Color::LightGreen,
        Sign::OpenExtreme => Color::LightBlue,
        Sign::ReclaimShort | Sign::ReclaimMedium => Color::LightCyan,
        Sign::OpenReclaim | Sign::ReclaimLong | Sign::ReclaimExtreme | Sign::ExplicitOpen => {
            Color::Cyan
        }
        Sign::Victim | Sign::Closed => Color::Yellow,
        Sign::OpenMedium | Sign::PendingReset => Color::LightYellow,
        Sign::Metadata | Sign::Conventional => Color::Gray,
        Sign::Superblock => Color::White,
        Sign::ReadOnly => Color::Magenta,
        Sign::Failed | Sign::Offline => Color::Red,
        Sign::Unknown => Color::LightMagenta,
    }
}

fn style(spot: Spot, ink: Ink) -> Style {
    match ink {
        Ink::Letters => Style::new(),
        Ink::Colour => {
            let style = Style::new().fg(colour(spot.sign));
            match spot.sign {
                Sign::Free | Sign::Empty => style,
                _ => style.bg(Color::DarkGray),
            }
        }
    }
}

/// The signs that occur, with their numbers of zones, as far as there is room.
fn legend(zones: &[Spot], ink: Ink, width: usize) -> Line<'static> {
    let mut spans = Vec::new();
    let mut used = 0;
    for sign in Sign::ALL {
        let count = zones.iter().filter(|zone| zone.sign == sign).count();
        if count == 0 {
            continue;
        }
        let (mark, style) = match (ink, sign) {
            (Ink::Letters, Sign::Data) => ("0-#".to_owned(), Style::new()),
            (Ink::Letters, _) => (sign.letter().to_string(), Style::new()),
            (Ink::Colour, Sign::Free | Sign::Empty) => ("·".to_owned(), Style::new()),
            (Ink::Colour, _) => ("█".to_owned(), Style::new().fg(colour(sign))),
        };
        let text = format!(" {count} {}  ", sign.name());
        used += mark.chars().count() + text.len();
        if used > width + 2 {
            break;
        }
        spans.extend([Span::styled(mark, style), Span::raw(text)]);
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(sign: Sign, written: u8, used: u8) -> Spot {
        Spot { sign, written, used: Some(used) }
    }

    fn drawn(zones: &[Spot], (width, height): (u16, u16), ink: Ink) -> Buffer {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        Picture { zones, ink }.render(area, &mut buffer);
        buffer
    }

    fn line(buffer: &Buffer, row: u16) -> String {
        (0..buffer.area.width).map(|column| buffer[(column, row)].symbol()).collect()
    }

    #[test]
    fn picture_shows_state_by_letters_without_colour() {
        let zones = [
            spot(Sign::Superblock, 100, 0),
            spot(Sign::Data, 100, 100),
            spot(Sign::Data, 100, 99),
            spot(Sign::Data, 100, 0),
            spot(Sign::Open, 20, 20),
            spot(Sign::Free, 0, 0),
        ];
        let buffer = drawn(&zones, (44, 2), Ink::Letters);
        assert_eq!(line(&buffer, 0).trim_end(), "s # 9 0 o .");
        assert_eq!(line(&buffer, 1).trim_end(), ". 1 free  0-# 3 data  o 1 open  s 1 super");
        for cell in buffer.content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
    }

    #[test]
    fn picture_shows_state_by_height_and_colour() {
        let zones =
            [spot(Sign::Data, 100, 50), spot(Sign::Open, 100, 3), spot(Sign::Victim, 100, 1)];
        let buffer = drawn(&zones, (5, 2), Ink::Colour);
        assert_eq!(line(&buffer, 0).trim_end(), "▄█▁");
        assert_eq!(buffer[(0, 0)].fg, Color::Blue);
        assert_eq!(buffer[(0, 0)].bg, Color::DarkGray, "what is written and not in use");
        assert_eq!(buffer[(2, 0)].fg, Color::Yellow);
    }

    #[test]
    fn picture_draws_few_zones_wide() {
        let zones = [spot(Sign::Data, 100, 50), spot(Sign::Free, 0, 0), spot(Sign::Full, 100, 100)];
        let buffer = drawn(&zones, (10, 2), Ink::Colour);
        assert_eq!(line(&buffer, 0).trim_end(), "▄▄ ·· ██");
        let picture = Picture { zones: &[zones[0]; 200], ink: Ink::Colour };
        assert_eq!(picture.rows(Rect::new(0, 0, 198, 30)), 10, "24 in a row, and the legend");
        assert_eq!(picture.rows(Rect::new(0, 0, 78, 5)), 4);
        assert_eq!(picture.rows(Rect::new(0, 0, 20, 5)), 5, "no more than there are");
    }

    #[test]
    fn picture_shows_rare_zones_among_fifty_thousand() {
        let mut zones = vec![spot(Sign::Data, 100, 70); 50_000];
        zones[31_234] = spot(Sign::Open, 10, 10);
        zones[49_999] = spot(Sign::Failed, 100, 10);
        for size in [(78, 6), (198, 30), (38, 3), (1, 2), (1, 1)] {
            let buffer = drawn(&zones, size, Ink::Letters);
            let rows = (0..size.1.max(2) - 1).map(|row| line(&buffer, row)).collect::<String>();
            assert!(rows.contains('x'), "{size:?}: {rows}");
            if size.0 > 1 {
                assert_eq!(rows.matches('o').count(), 1, "{size:?}: {rows}");
                assert_eq!(rows.matches('x').count(), 1, "{size:?}: {rows}");
            }
        }
    }

    #[test]
    fn picture_is_empty_without_zones_or_room() {
        drawn(&[], (10, 3), Ink::Colour);
        drawn(&[spot(Sign::Free, 0, 0)], (0, 0), Ink::Colour);
    }
}
