//! A limit for warnings and errors that repeat themselves: a failing drive would fill the disk with
//! its log before logrotate looks at it.
//!
//! A kind is a place in the source that logs. The log gets the first ten messages of a kind within
//! five seconds. One line counts the others, before the next message or when the program ends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;
use zonal::Clock;

/// The log gets this many messages of a kind within a window.
const WRITTEN_MAX: u64 = 10;

/// How long a window is.
const WINDOW_NS: u64 = 5_000_000_000;

/// The target of lines that count omitted messages: they have no limit.
const COUNTS: &str = "counts";

/// Where a message comes from: file and line.
type Kind = (Option<&'static str>, Option<u32>);

/// The messages of one kind since its window began.
#[derive(Debug)]
struct Window {
    since_ns: u64,
    written: u64,
    left_out: u64,
    level: Level,
    message: String,
}

/// Messages of one kind that the log did not get.
type LeftOut = (Level, String);

/// Counts messages.
#[derive(Debug, Default)]
struct Windows(BTreeMap<Kind, Window>);

impl Windows {
    /// Counts one message of a kind. Returns whether the log gets it.
    fn take(&mut self, kind: Kind, level: Level, message: &str, now_ns: u64) -> bool {
        let message = message.to_owned();
        let new = Window { since_ns: now_ns, written: 0, left_out: 0, level, message };
        let window = self.0.entry(kind).or_insert(new);
        let is_written = window.written < WRITTEN_MAX;
        *if is_written { &mut window.written } else { &mut window.left_out } += 1;
        is_written
    }

    /// Ends the windows that are over at this time.
    fn end(&mut self, now_ns: u64) -> Vec<LeftOut> {
        let mut all = Vec::new();
        self.0.retain(|_, window| {
            let is_over = now_ns.saturating_sub(window.since_ns) >= WINDOW_NS;
            let Window { left_out, level, message, .. } = window;
            if is_over && *left_out > 0 {
                all.push((*level, format!("{left_out} more of these within 5 s: {message}")));
            }
            !is_over
        });
        all
    }
}

/// Whether lines begin with the time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    Shown,
    Hidden,
}

/// The limit of a program's log.
pub(super) struct Limit {
    clock: Arc<dyn Clock>,
    times: Times,
    windows: Mutex<Windows>,
}

impl Limit {
    pub(super) fn new(clock: Arc<dyn Clock>, times: Times) -> Arc<Self> {
        Arc::new(Self { clock, times, windows: Mutex::default() })
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs the omitted messages: the program logs nothing more.
    pub(super) fn finish(&self) {
        let rest = self.windows().end(u64::MAX);
        for (level, line) in rest {
            if level == Level::WARN {
                tracing::warn!(target: COUNTS, "{line}");
            } else {
                tracing::error!(target: COUNTS, "{line}");
            }
        }
    }
}

/// Formats the messages that the limit lets through.
pub(super) struct Limited<F> {
    pub(super) inner: F,
    pub(super) limit: Arc<Limit>,
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (limit, metadata) = (&self.limit, event.metadata());
        let level = *metadata.level();
        if level <= Level::WARN && metadata.target() != COUNTS {
            let now_ns = limit.clock.monotonic_ns();
            let mut windows = limit.windows();
            for (level, line) in windows.end(now_ns) {
                if limit.times == Times::Shown {
                    SystemTime.format_time(&mut writer)?;
                    writer.write_char(' ')?;
                }
                writeln!(writer, "{level:>5} {line}")?;
            }
            let mut message = Message::default();
            event.record(&mut message);
            if !windows.take((metadata.file(), metadata.line()), level, &message.0, now_ns) {
                // An empty text writes nothing.
                return Ok(());
            }
        }
        self.inner.format_event(context, writer, event)
    }
}

/// The message of an event, without its fields.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use zonal::ManualClock;

    use super::*;

    #[test]
    fn limit_passes_slow_messages() {
        let mut windows = Windows::default();
        for number in 0..100 {
            let now_ns = number * WINDOW_NS / 9;
            assert_eq!(windows.end(now_ns), [], "{number}");
            assert!(windows.take((None, None), Level::WARN, "slow", now_ns), "{number}");
        }
    }

    /// The content of a log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_writes_ten_repeats_then_counts_rest() {
        let (log, clock) = (Log::default(), Arc::new(ManualClock::new(0)));
        let (written, limit) = (log.clone(), Limit::new(clock.clone(), Times::Hidden));
        let limited = Arc::clone(&limit);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || written.clone())
            .map_event_format(|inner| Limited { inner, limit: limited })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let fail = |number: u32| tracing::error!(number, "it failed");
            (0..15).for_each(fail);
            tracing::warn!("another kind");
            (0..20).for_each(|number| tracing::info!(number, "no failure"));
            clock.advance_ns(WINDOW_NS);
            fail(99);
            (100..120).for_each(fail);
            limit.finish();
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!((count("no failure"), count("another kind")), (20, 1), "{text}");
        assert_eq!(count("ERROR it failed number="), 20, "{text}");
        assert_eq!(count("ERROR 5 more of these within 5 s: it failed"), 1, "{text}");
        assert!(text.ends_with("ERROR 11 more of these within 5 s: it failed\n"), "{text}");
    }
}
