//! A limit for warnings and errors that repeat themselves: a failing drive would fill the disk with
//! its log.
//!
//! A kind is a place in the source that logs. The log gets the first ten messages of a kind within
//! five seconds; one line then counts the others, when the five seconds are over or the program
//! ends. [`Limit`] only counts, by the time that callers pass; [`Limited`] writes.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;
use zonal::Clock;

/// The log gets this many messages of a kind within a window.
const WRITTEN_MAX: u64 = 10;

/// How long a window is.
const WINDOW: Duration = Duration::from_secs(5);
const WINDOW_NS: u64 = 5_000_000_000;

/// Where a message comes from: file and line.
type Kind = (&'static str, u32);

/// The messages of one kind since its window began.
#[derive(Debug)]
struct Window {
    since_ns: u64,
    written: u64,
    left_out: u64,
    level: Level,
    message: String,
}

/// A number of messages of one kind that the log did not get.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    level: Level,
    count: u64,
    message: String,
}

/// Whether the log gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Write,
    LeaveOut,
}

/// Counts messages.
#[derive(Debug, Default)]
pub(super) struct Limit {
    windows: BTreeMap<Kind, Window>,
}

impl Limit {
    /// Counts one message of a kind.
    pub(super) fn take(&mut self, kind: Kind, level: Level, message: &str, now_ns: u64) -> Verdict {
        let message = || message.to_owned();
        let window = self.windows.entry(kind).or_insert_with(|| Window {
            since_ns: now_ns,
            written: 0,
            left_out: 0,
            level,
            message: message(),
        });
        if window.left_out == 0 && now_ns.saturating_sub(window.since_ns) >= WINDOW_NS {
            (window.since_ns, window.written) = (now_ns, 0);
        }
        if window.written < WRITTEN_MAX {
            window.written += 1;
            return Verdict::Write;
        }
        window.left_out += 1;
        window.message = message();
        Verdict::LeaveOut
    }

    /// The omitted messages of windows that are over.
    pub(super) fn due(&mut self, now_ns: u64) -> Vec<LeftOut> {
        self.end(|window| now_ns.saturating_sub(window.since_ns) >= WINDOW_NS)
    }

    /// All messages omitted so far.
    pub(super) fn rest(&mut self) -> Vec<LeftOut> {
        self.end(|_| true)
    }

    fn end(&mut self, is_over: impl Fn(&Window) -> bool) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        self.windows.retain(|_, window| {
            if !is_over(window) {
                return true;
            }
            let Window { level, left_out: count, ref message, .. } = *window;
            if count > 0 {
                left_out.push(LeftOut { level, count, message: message.clone() });
            }
            false
        });
        left_out
    }

    fn has_left_out(&self) -> bool {
        self.windows.values().any(|window| window.left_out > 0)
    }
}

/// Opens the output of the log.
pub(super) type Output = Box<dyn Fn() -> Box<dyn io::Write> + Send + Sync>;

/// Whether lines begin with the time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    Shown,
    Hidden,
}

/// The limit of a program's log.
pub(super) struct Shared {
    clock: Arc<dyn Clock>,
    times: Times,
    output: Output,
    counted: Mutex<Counted>,
    /// Something was counted, or the program ends.
    changed: Condvar,
}

#[derive(Default)]
struct Counted {
    limit: Limit,
    /// Whether a thread waits for the end of windows.
    has_thread: bool,
}

impl Shared {
    pub(super) fn new(clock: Arc<dyn Clock>, times: Times, output: Output) -> Arc<Self> {
        let (counted, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { clock, times, output, counted, changed })
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the omitted messages: the program logs nothing more.
    pub(super) fn finish(&self) {
        let rest = self.counted().limit.rest();
        self.write(&rest);
        self.changed.notify_all();
    }

    fn write(&self, all: &[LeftOut]) {
        for left_out in all {
            let mut line = String::new();
            if self.line(left_out, &mut Writer::new(&mut line)).is_ok() {
                // A logger has no place to report a failure of its own.
                let _ = (self.output)().write_all(line.as_bytes());
            }
        }
    }

    fn line(&self, left_out: &LeftOut, writer: &mut Writer<'_>) -> fmt::Result {
        let LeftOut { level, count, message } = left_out;
        if self.times == Times::Shown {
            SystemTime.format_time(writer)?;
            writer.write_char(' ')?;
        }
        let seconds = WINDOW.as_secs();
        writeln!(writer, "{level:>5} {count} more of these within {seconds} s: {message}")
    }

    /// Has a thread write the omitted messages, once their window is over.
    fn watch(self: &Arc<Self>, counted: &mut Counted) {
        if counted.has_thread {
            return;
        }
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("log".to_owned());
        // Without a thread, the next message writes them.
        counted.has_thread = thread.spawn(move || shared.write_when_due()).is_ok();
    }

    fn write_when_due(&self) {
        let mut counted = self.counted();
        while counted.limit.has_left_out() {
            let waited = self.changed.wait_timeout(counted, WINDOW);
            counted = waited.unwrap_or_else(PoisonError::into_inner).0;
            let due = counted.limit.due(self.clock.monotonic_ns());
            self.write(&due);
        }
        counted.has_thread = false;
    }
}

/// Formats the messages that the limit lets through.
pub(super) struct Limited<F> {
    pub(super) inner: F,
    pub(super) shared: Arc<Shared>,
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
        let (shared, metadata) = (&self.shared, event.metadata());
        if *metadata.level() <= Level::WARN {
            let now_ns = shared.clock.monotonic_ns();
            let mut counted = shared.counted();
            for left_out in counted.limit.due(now_ns) {
                shared.line(&left_out, &mut writer)?;
            }
            let message = Message::of(event);
            let verdict = counted.limit.take(kind(metadata), *metadata.level(), &message, now_ns);
            if verdict == Verdict::LeaveOut {
                shared.watch(&mut counted);
                // An empty text writes nothing.
                return Ok(());
            }
        }
        self.inner.format_event(context, writer, event)
    }
}

fn kind(metadata: &'static Metadata<'static>) -> Kind {
    (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default())
}

/// The message of an event, without its fields.
#[derive(Default)]
struct Message(String);

impl Message {
    fn of(event: &Event<'_>) -> String {
        let mut message = Self::default();
        event.record(&mut message);
        message.0
    }
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use zonal::ManualClock;

    use super::*;

    const A: Kind = ("a.rs", 1);
    const B: Kind = ("b.rs", 2);

    fn left_out(count: u64, message: &str) -> LeftOut {
        LeftOut { level: Level::ERROR, count, message: message.to_owned() }
    }

    #[test]
    fn limit_writes_first_ten_of_kind_per_window() {
        let mut limit = Limit::default();
        let mut take = |kind, at_ns| limit.take(kind, Level::ERROR, "it failed", at_ns);
        for number in 0..25 {
            let expected = if number < 10 { Verdict::Write } else { Verdict::LeaveOut };
            assert_eq!(take(A, number), expected, "{number}");
        }
        assert_eq!(take(B, 30), Verdict::Write, "another kind");
        assert_eq!(limit.due(WINDOW_NS - 1), []);
        assert_eq!(limit.due(WINDOW_NS), [left_out(15, "it failed")]);
        assert_eq!(limit.due(2 * WINDOW_NS), [], "once");
        let again = limit.take(A, Level::ERROR, "it failed", 2 * WINDOW_NS);
        assert_eq!(again, Verdict::Write, "in a new window");
    }

    #[test]
    fn limit_passes_slow_messages() {
        let mut limit = Limit::default();
        for number in 0..100 {
            let at_ns = number * WINDOW_NS / 9;
            assert_eq!(limit.take(A, Level::WARN, "slow", at_ns), Verdict::Write, "{number}");
        }
        assert_eq!(limit.rest(), []);
    }

    #[test]
    fn limit_reports_omitted_lines_at_end() {
        let mut limit = Limit::default();
        for _ in 0..12 {
            limit.take(B, Level::ERROR, "b", 0);
        }
        for _ in 0..11 {
            limit.take(A, Level::ERROR, "a", 0);
        }
        assert_eq!(limit.rest(), [left_out(1, "a"), left_out(2, "b")]);
        assert_eq!(limit.rest(), []);
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

    impl Log {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn log_writes_ten_repeats_then_counts_rest() {
        let (log, clock) = (Log::default(), Arc::new(ManualClock::new(0)));
        let (output, written) = (log.clone(), log.clone());
        let output: Output = Box::new(move || Box::new(output.clone()));
        let shared = Shared::new(clock.clone(), Times::Hidden, output);
        let limited = Arc::clone(&shared);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || written.clone())
            .map_event_format(|inner| Limited { inner, shared: limited })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let fail = |number: u32| tracing::error!(number, "it failed");
            (0..15).for_each(fail);
            (0..20).for_each(|number| tracing::info!(number, "no failure"));
            clock.advance_ns(WINDOW_NS);
            fail(99);
            (100..120).for_each(fail);
        });
        shared.finish();
        let text = log.text();
        let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!(count("no failure"), 20, "{text}");
        assert_eq!(count("ERROR it failed number="), 20, "{text}");
        assert_eq!(count("ERROR 5 more of these within 5 s: it failed"), 1, "{text}");
        assert!(text.ends_with("ERROR 11 more of these within 5 s: it failed\n"), "{text}");
    }
}
