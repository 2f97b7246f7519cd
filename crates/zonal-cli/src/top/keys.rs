//! The effects of keys.

use anyhow::{Result, bail};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::picture::Ink;
use super::screen::{Overlay, Pace};

/// Intervals that `+` and `-` go through, in seconds.
const INTERVALS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The action that a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Draw,
    Look,
}

/// The user's settings.
#[derive(Clone, Debug)]
pub(crate) struct Controls {
    pub(crate) interval_s: f64,
    pub(crate) ink: Ink,
    pub(crate) pace: Pace,
    pub(crate) overlay: Overlay,
}

impl Controls {
    /// Settings of the command line.
    pub(crate) fn new(interval_s: f64, ink: Ink) -> Result<Self> {
        let (least, most) = (INTERVALS[0], INTERVALS[INTERVALS.len() - 1]);
        if !(least..=most).contains(&interval_s) {
            bail!("--interval: {interval_s} is not from {least} to {most} seconds");
        }
        Ok(Self { interval_s, ink, pace: Pace::Running, overlay: Overlay::Nothing })
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0.1 s to 60 s")]
    pub(crate) fn interval_ns(&self) -> u64 {
        (self.interval_s * 1e9) as u64
    }

    /// Handles a key; `None` if it has no effect.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Option<Action> {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Some(Action::Quit);
            }
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc if self.overlay == Overlay::Nothing => return Some(Action::Quit),
            KeyCode::Char('r') => return Some(Action::Look),
            KeyCode::Esc => self.overlay = Overlay::Nothing,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                self.overlay = match self.overlay {
                    Overlay::Nothing => Overlay::Help,
                    Overlay::Help => Overlay::Nothing,
                };
            }
            KeyCode::Char(' ' | 'p') => {
                self.pace = match self.pace {
                    Pace::Running => Pace::Paused,
                    Pace::Paused => Pace::Running,
                };
            }
            KeyCode::Char('c') => {
                self.ink = match self.ink {
                    Ink::Colour => Ink::Letters,
                    Ink::Letters => Ink::Colour,
                };
            }
            KeyCode::Char('+' | '=') => self.slower(),
            KeyCode::Char('-') => self.faster(),
            _ => return None,
        }
        Some(Action::Draw)
    }

    fn slower(&mut self) {
        let next = INTERVALS.into_iter().find(|interval| *interval > self.interval_s);
        self.interval_s = next.unwrap_or(self.interval_s);
    }

    fn faster(&mut self) {
        let next = INTERVALS.into_iter().rev().find(|interval| *interval < self.interval_s);
        self.interval_s = next.unwrap_or(self.interval_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(controls: &mut Controls, key: char) -> Option<Action> {
        controls.press(KeyEvent::from(KeyCode::Char(key)))
    }

    #[test]
    fn keys_match_their_help() {
        let mut controls = Controls::new(1.0, Ink::Colour).unwrap();
        for (key, action) in [('q', Some(Action::Quit)), ('r', Some(Action::Look)), ('x', None)] {
            assert_eq!(press(&mut controls, key), action, "{key}");
        }
        assert_eq!(press(&mut controls, ' '), Some(Action::Draw));
        assert_eq!(controls.pace, Pace::Paused);
        press(&mut controls, 'c');
        assert_eq!(controls.ink, Ink::Letters);
        press(&mut controls, '?');
        assert_eq!(controls.overlay, Overlay::Help);
        let escape = KeyEvent::from(KeyCode::Esc);
        assert_eq!(controls.press(escape), Some(Action::Draw), "the help first");
        assert_eq!(controls.press(escape), Some(Action::Quit));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(controls.press(interrupt), Some(Action::Quit));
    }

    #[test]
    fn controls_limit_interval_to_tenth_to_sixty_seconds() {
        let mut controls = Controls::new(3.0, Ink::Colour).unwrap();
        press(&mut controls, '-');
        assert_eq!(controls.interval_ns(), 2_000_000_000);
        for _ in 0..20 {
            press(&mut controls, '-');
        }
        assert_eq!(controls.interval_ns(), 100_000_000);
        for _ in 0..20 {
            press(&mut controls, '+');
        }
        assert_eq!(controls.interval_ns(), 60_000_000_000);
        for bad in [0.0, -1.0, 61.0, f64::NAN] {
            assert!(Controls::new(bad, Ink::Colour).is_err(), "{bad}");
        }
    }
}
