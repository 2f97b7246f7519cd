//! `zonal top`: a mount or a drive as a live picture on a terminal.
//!
//! - `source`: takes looks. `snapshot`: the result of a look, plain data.
//! - `screen`, `picture`, `panels`, `drive`: a screen from two looks, drawn without more requests.
//! - `keys`: the effects of keys.
//!
//! The terminal is given back as it was when the program ends, also by an error, a panic or a
//! signal.

mod drive;
mod keys;
mod panels;
mod picture;
mod screen;
mod snapshot;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use self::snapshot::Spot;
pub(crate) use self::source::zones_of_mount;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use zonal::{Clock, SystemClock};

use crate::args::{Global, Top};
use keys::{Action, Controls};
use picture::Ink;
use screen::View;
use snapshot::Snapshot;
use source::WatchedTarget;

/// Time between checks for signals.
const SIGNALS: Duration = Duration::from_millis(200);

/// Looks until the user quits.
pub(crate) fn run(global: &Global, args: &Top) -> Result<()> {
    if global.json {
        bail!("`zonal top` draws on a terminal: `zonal stats DIR --json` prints JSON");
    }
    let ink = check_terminal()?;
    let mut source = WatchedTarget::open(&args.what)?;
    let clock = SystemClock::new();
    // Before the screen is cleared, so that the user can read why a look fails.
    let first = source.look(clock.monotonic_ns())?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("waiting for signals")?;
    }
    let controls = Controls::new(args.interval, ink)?;
    // Also restores the terminal after a panic.
    let terminal = ratatui::try_init().context("preparing the terminal")?;
    let mut session =
        Session { source, clock, ended, controls, now: first, before: None, failure: None };
    let outcome = session.run(terminal);
    ratatui::restore();
    outcome
}

/// The ink for the terminal; the error for an unsuitable terminal names other commands.
fn check_terminal() -> Result<Ink> {
    let instead = "`zonal stats DIR --watch` and `zonal zones DEVICE` print without one";
    if !rustix::stdio::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("`zonal top` needs a terminal; {instead}");
    }
    match std::env::var("TERM") {
        Ok(term) if term != "dumb" && !term.is_empty() => {}
        _ => bail!(
            "`zonal top` needs a terminal that can move its cursor, and TERM names none; {instead}"
        ),
    }
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Ok(if no_colour { Ink::Letters } else { Ink::Colour })
}

/// Waits for a key, a signal, or the end of the time. Returns whether the terminal is gone: reading
/// keys from it would never end.
fn is_hung_up(patience: Duration) -> Result<bool> {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let patience = Timespec::try_from(patience).context("waiting for keys")?;
    match rustix::event::poll(&mut fds, Some(&patience)) {
        Ok(_) => Ok(fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        // The terminal may have another size.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("waiting for keys"),
    }
}

struct Session {
    source: WatchedTarget,
    clock: SystemClock,
    /// A signal has come.
    ended: Arc<AtomicBool>,
    controls: Controls,
    now: Snapshot,
    before: Option<Snapshot>,
    failure: Option<String>,
}

impl Session {
    fn run(&mut self, mut terminal: DefaultTerminal) -> Result<()> {
        let mut looked_ns = self.clock.monotonic_ns();
        loop {
            self.draw(&mut terminal)?;
            let due_ns = looked_ns.saturating_add(self.controls.interval_ns());
            match self.wait(due_ns)? {
                Action::Quit => return Ok(()),
                Action::Draw => {}
                Action::Look => {
                    looked_ns = self.clock.monotonic_ns();
                    self.look();
                }
            }
        }
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> Result<()> {
        let view = View {
            now: &self.now,
            before: self.before.as_ref(),
            ink: self.controls.ink,
            pace: self.controls.pace,
            overlay: self.controls.overlay,
            interval_s: self.controls.interval_s,
            failure: self.failure.as_deref(),
        };
        terminal.draw(|frame| screen::draw(frame, &view)).context("drawing")?;
        Ok(())
    }

    /// After a failed look the last one stays on the screen, with the reason: the file system may
    /// be mounted again.
    fn look(&mut self) {
        match self.source.look(self.clock.monotonic_ns()) {
            Ok(now) => {
                let before = std::mem::replace(&mut self.now, now);
                // Another mount has a clock of its own.
                self.before = Some(before).filter(|before| before.at_ns < self.now.at_ns);
                self.failure = None;
            }
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self, due_ns: u64) -> Result<Action> {
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Action::Quit);
            }
            let left = Duration::from_nanos(due_ns.saturating_sub(self.clock.monotonic_ns()));
            if left.is_zero() && self.controls.pace == screen::Pace::Running {
                return Ok(Action::Look);
            }
            let patience = match self.controls.pace {
                screen::Pace::Running => left.min(SIGNALS),
                screen::Pace::Paused => SIGNALS,
            };
            if is_hung_up(patience)? {
                return Ok(Action::Quit);
            }
            if !event::poll(Duration::ZERO).context("waiting for keys")? {
                continue;
            }
            match event::read().context("reading keys")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if let Some(action) = self.controls.press(key) {
                        return Ok(action);
                    }
                }
                Event::Resize(..) => return Ok(Action::Draw),
                _ => {}
            }
        }
    }
}
