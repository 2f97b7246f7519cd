//! `zonal stats`: the counters of a mounted file system, from its control directory, once or at an
//! interval.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use zonal::shown;
use zonal_fuse::control::Report;
use zonal_fuse::control::page::page;

use crate::args::{Global, Stats};
use crate::control::{read, report};
use crate::mounts;

/// Bounds of the interval: with a shorter one, the looks would cause most of the counted
/// operations.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Prints the counters.
pub(crate) fn run(global: &Global, args: &Stats) -> Result<()> {
    let dir = mounts::dir_of(&args.dir)?;
    tracing::info!(mount = shown(&dir), "asking for what is counted");
    match args.watch {
        Some(seconds) => watch(global, &dir, seconds),
        None if global.json => {
            say!("{}", read(&dir, "stats")?);
            Ok(())
        }
        None => {
            say!("{}", page(&report(&dir)?, None));
            Ok(())
        }
    }
}

/// Prints the counters until the mount ends, or until the user interrupts.
fn watch(global: &Global, dir: &Path, seconds: f64) -> Result<()> {
    if !SECONDS.contains(&seconds) {
        bail!("--watch: {seconds} is not from {} to {} seconds", SECONDS.start(), SECONDS.end());
    }
    let pause = Duration::from_secs_f64(seconds);
    let mut before = None;
    loop {
        let now = report(dir)?;
        if global.json {
            crate::output::json::line(&now)?;
        } else {
            show(&now, before.as_ref(), seconds);
        }
        before = Some(now);
        wait(pause)?;
    }
}

/// Shows a page in place of the one before, or below it on a terminal that cannot do that.
fn show(now: &Report, before: Option<&Report>, seconds: f64) {
    let (page, is_first) = (page(now, before), before.is_none());
    let terminal = console::Term::stdout();
    let can_move =
        terminal.is_term() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    if !can_move {
        let gap = if is_first { "" } else { "\n" };
        say!("{gap}{page}");
        return;
    }
    let (rows, columns) = terminal.size_checked().unwrap_or((24, 80));
    let (clear, end) = (if is_first { "\x1b[2J" } else { "" }, "\x1b[J");
    let text = fitted(&page, (rows.into(), columns.into()), seconds);
    // Line by line, so that nothing flickers.
    say!("{clear}\x1b[H{}{end}", text.replace('\n', "\x1b[K\n"));
}

/// The part of a page that fits a terminal of so many rows and columns, with a last line about the
/// interval.
fn fitted(page: &str, (rows, columns): (usize, usize), seconds: f64) -> String {
    let fit = |line: &str| line.chars().take(columns).collect::<String>();
    let room = rows.saturating_sub(1);
    let lines: Vec<String> = page.lines().take(room).map(fit).collect();
    let missing = page.lines().count() - lines.len();
    let more = if missing > 0 { format!("; {missing} lines more than fit") } else { String::new() };
    format!("{}\n{}", lines.join("\n"), fit(&format!("every {seconds} s, Ctrl-C ends{more}")))
}

/// Waits for the time only, not for an event.
fn wait(pause: Duration) -> Result<()> {
    let pause = pause.try_into().context("the interval")?;
    match rustix::event::poll(&mut [], Some(&pause)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("waiting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_page_is_cut_to_terminal_with_notice() {
        let page = "one\ntwo is long\nthree\nfour\n";
        assert_eq!(
            fitted(page, (24, 80), 2.0),
            "one\ntwo is long\nthree\nfour\nevery 2 s, Ctrl-C ends"
        );
        let cut = fitted(page, (3, 40), 0.5);
        assert_eq!(cut, "one\ntwo is long\nevery 0.5 s, Ctrl-C ends; 2 lines more t");
        assert_eq!(fitted(page, (3, 5), 2.0), "one\ntwo i\nevery");
        assert_eq!(fitted(page, (0, 0), 2.0), "\n");
    }
}
