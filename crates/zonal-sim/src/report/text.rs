//! Width of a text in pixels. The viewer's font is unknown while drawing, so widths are the ones of
//! a wide font (`DejaVu` Sans), rounded up: a text may be narrower, and is never cut.

/// Sizes in pixels: of most texts, of a picture's title, of the numbers above bars.
pub(super) const NORMAL: f64 = 13.0;
pub(super) const TITLE: f64 = 15.0;
pub(super) const SMALL: f64 = 11.0;

/// Between two lines of a text, as parts of its size.
const LINE: f64 = 1.25;

/// Room of a text that is not bold.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|char| em(char) * size).sum()
}

/// Room of lines one below the other.
pub(super) fn height(lines: usize, size: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a few lines")]
    let lines = lines as f64;
    lines * line_height(size)
}

/// From one line to the next.
pub(super) fn line_height(size: f64) -> f64 {
    size * LINE
}

/// The lines of a text, broken at spaces too where it is wider than `room`. A word is not broken,
/// nor is a number parted from its `%`.
pub(super) fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let first = lines.len();
        let line = line.replace(" %", "\u{a0}%");
        for word in line.split(' ').map(|word| word.replace('\u{a0}', " ")) {
            let fits =
                |line: &String| width(line, size) + width(" ", size) + width(&word, size) <= room;
            match lines[first..].last_mut().filter(|line| fits(line)) {
                Some(line) => line.extend([" ", &word]),
                None => lines.push(word),
            }
        }
    }
    lines
}

/// The widest of some texts.
pub(super) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, size: f64) -> f64 {
    texts.into_iter().map(|text| width(text, size)).fold(0.0, f64::max)
}

/// Width of a letter as part of the size of its font.
fn em(char: char) -> f64 {
    match char {
        'i' | 'j' | 'l' | '\'' | 'I' | 'J' => 0.3,
        ' ' | '.' | ',' | ':' | ';' | '/' | '|' | '-' | '(' | ')' | '[' | ']' | '!' | 'f' | 't'
        | 'r' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        'A'..='Z' | '+' | '=' | '<' | '>' | '~' | '^' | '#' | '&' | '×' | '÷' => 0.84,
        char if char.is_ascii() || matches!(char, 'µ' | '–' | '·' | '²' | '’') => 0.65,
        _ => 1.05,
    }
}

/// Where a text is in a picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) text: String,
    /// Corners: the upper left one, and the lower right one.
    pub(super) from: (f64, f64),
    pub(super) to: (f64, f64),
}

impl Place {
    /// Whether two texts lie over each other.
    fn is_over(&self, other: &Self) -> bool {
        self.from.0 < other.to.0
            && other.from.0 < self.to.0
            && self.from.1 < other.to.1
            && other.from.1 < self.to.1
    }
}

/// Texts that leave a picture which ends at `corner`, or overlap another text.
pub(super) fn faults(places: &[Place], corner: (f64, f64)) -> Vec<String> {
    let mut found = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let Place { text, from, to } = place;
        if from.0 < 0.0 || from.1 < 0.0 || to.0 > corner.0 || to.1 > corner.1 {
            found.push(format!("{text:?} is cut: {from:?} to {to:?} of {corner:?}"));
        }
        let over = places[..at].iter().filter(|other| place.is_over(other));
        found.extend(over.map(|other| format!("{text:?} lies over {:?}", other.text)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_to_room() {
        let lines = |text, room| wrapped(text, NORMAL, room);
        assert_eq!(lines("FDP\npersistently isolated", 100.0), ["FDP", "persistently", "isolated"]);
        assert_eq!(lines("host log\n8 streams", 94.0), ["host log", "8 streams"]);
        assert_eq!(lines("a verylongword", 20.0), ["a", "verylongword"]);
        assert_eq!(lines("sold as 7 %", 62.0), ["sold as", "7 %"]);
    }

    #[test]
    fn texts_cut_or_over_each_other_are_found() {
        let place = |text: &str, x: f64, y: f64| Place {
            text: text.to_owned(),
            from: (x, y),
            to: (x + width(text, NORMAL), y + NORMAL),
        };
        let found = |places: &[Place]| faults(places, (100.0, 40.0));
        assert_eq!(found(&[place("a", 0.0, 0.0), place("b", 20.0, 0.0)]), [""; 0]);
        assert!(found(&[place("abc", 0.0, 0.0), place("b", 10.0, 5.0)])[0].contains("lies over"));
        for (x, y) in [(-1.0, 0.0), (95.0, 0.0), (0.0, -1.0), (0.0, 30.0)] {
            assert!(found(&[place("abc", x, y)])[0].contains("is cut"), "{x} {y}");
        }
    }
}
