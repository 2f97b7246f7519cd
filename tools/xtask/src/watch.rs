//! Ends a program that is stuck, and no other.
//!
//! On a busy machine a program that makes progress may take any time. So this watches the output of
//! the program, and the processor time of it and its children. A program that was asked to end
//! within a time, as in a soak, is ended when that is over.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::run;
use crate::tally::now;

/// The time between two looks at a program.
const LOOK: Duration = Duration::from_secs(2);

/// The unit of times in proc(5): a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);

/// When a program is stuck.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A program that prints nothing for this time,
    pub quiet: Duration,
    /// and uses less processor time than this meanwhile, is stuck. A polling loop uses less than
    /// this, and a program that works uses more, even on a very busy machine.
    pub idle: Duration,
    /// A program that uses this much processor time in all does not come to its end.
    pub processor: Duration,
    /// The end of the time that it was given; it has not failed by that.
    pub until: Option<Instant>,
}

impl Limits {
    /// Limits of a test program.
    pub const TESTS: Self = Self {
        quiet: Duration::from_mins(20),
        idle: Duration::from_secs(10),
        processor: Duration::from_mins(40),
        until: None,
    };

    /// Limits of a virtual machine, whose kernel uses the processor while it waits.
    pub const MACHINE: Self = Self {
        quiet: Duration::from_hours(1),
        idle: Duration::from_mins(3),
        processor: Duration::from_hours(2),
        until: None,
    };
}

/// Why a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// It has made no progress.
    Idle,
    /// It has used too much processor time.
    Spent,
    /// Its time was up.
    TimeIsUp,
}

impl Stuck {
    /// For people.
    pub fn why(self) -> &'static str {
        match self {
            Self::Idle => "it made no progress: it printed nothing and used no processor time",
            Self::Spent => "it used more processor time than it may",
            Self::TimeIsUp => "time is up",
        }
    }
}

/// The progress of a program so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    printed: u64,
    processor: Duration,
}

/// The looks at one program.
struct Watch {
    limits: Limits,
    /// The progress at the last look that found any, and the time of that look.
    last: Done,
    at: Instant,
}

impl Watch {
    fn new(limits: Limits, at: Instant) -> Self {
        Self { limits, last: Done { printed: 0, processor: Duration::ZERO }, at }
    }

    fn look(&mut self, at: Instant, done: Done) -> Option<Stuck> {
        let Limits { quiet, idle, processor, until } = self.limits;
        if until.is_some_and(|until| at >= until) {
            return Some(Stuck::TimeIsUp);
        }
        if done.processor >= processor {
            return Some(Stuck::Spent);
        }
        let used = done.processor.saturating_sub(self.last.processor);
        if done.printed != self.last.printed || used >= idle {
            (self.last, self.at) = (done, at);
        }
        (at.saturating_duration_since(self.at) >= quiet).then_some(Stuck::Idle)
    }
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// Why it was told to end, if it was.
    pub stuck: Option<Stuck>,
    /// The processor time that it had used two seconds before its end, or later.
    pub processor: Duration,
}

/// A command that ends when this program does, and that SIGTERM ends with all that it started, by
/// force after ten seconds.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = run::ends_with_us("timeout");
    // timeout(1) makes the group and passes the signal on; it knows no time here.
    command.args(["--kill-after=10", "0"]).arg(program);
    command
}

/// Waits for the end of `child`, and brings it about if it is stuck. `printed` says how much it has
/// printed.
pub fn wait(
    child: &mut Child,
    limits: Limits,
    printed: &(dyn Fn() -> u64 + Sync),
) -> io::Result<Ended> {
    let pid = child.id();
    let (ends, has_ended) = channel();
    thread::scope(|scope| {
        let watching = scope.spawn(move || watch(pid, limits, printed, &has_ended));
        let status = child.wait();
        drop(ends);
        let (stuck, processor) = watching.join().expect("it does not panic");
        if stuck.is_some() {
            // timeout(1) that gets the signal before it knows its child ends alone: the rest of its
            // group.
            terminate(&format!("-{pid}"));
        }
        Ok(Ended { status: status?, stuck, processor })
    })
}

/// Looks until the program has ended. Returns why it was ended, and its processor time.
fn watch(
    pid: u32,
    limits: Limits,
    printed: &dyn Fn() -> u64,
    has_ended: &Receiver<()>,
) -> (Option<Stuck>, Duration) {
    let mut watch = Watch::new(limits, now());
    let (mut stuck, mut processor) = (None, Duration::ZERO);
    loop {
        if stuck.is_none() {
            // Less at the end, when children have ended that nothing waited for.
            processor = processor.max(processor_time(pid));
            let done = Done { printed: printed(), processor };
            stuck = watch.look(now(), done);
            if stuck.is_some() {
                terminate(&pid.to_string());
            }
        }
        let left = limits.until.map_or(LOOK, |until| until.saturating_duration_since(now()));
        // After the end of its time it is only waited for.
        let pause = if stuck.is_some() { LOOK } else { LOOK.min(left) };
        match has_ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return (stuck, processor),
        }
    }
}

/// Ends a process by its number, or a group by its number behind a minus sign.
fn terminate(target: &str) {
    // A target that has ended by itself is an error of kill(1).
    let mut kill = Command::new("kill");
    if let Err(error) = kill.args(["-TERM", "--", target]).stderr(Stdio::null()).status() {
        println!("process {target} cannot be ended: {error}");
    }
}

/// The times in a line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Of the process, and of its children that have ended and were waited for.
    processor: Duration,
}

impl Stat {
    /// The name of the program, in parentheses, may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u32>().ok());
        let ticks = ticks.sum::<Option<u32>>()?;
        Some(Self { parent, processor: TICK * ticks })
    }
}

/// The processor time of a process and of all its descendants. A daemon is the child of no other
/// process.
fn processor_time(pid: u32) -> Duration {
    let stat = |pid: u32| Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut children: BTreeMap<u32, Vec<(u32, Duration)>> = BTreeMap::new();
    for pid in pids {
        if let Some(Stat { parent, processor }) = stat(pid) {
            children.entry(parent).or_default().push((pid, processor));
        }
    }
    let own = stat(pid).map_or(Duration::ZERO, |stat| stat.processor);
    let (mut sum, mut next) = (own, vec![pid]);
    while let Some(parent) = next.pop() {
        for (child, processor) in children.remove(&parent).unwrap_or_default() {
            sum += processor;
            next.push(child);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn done(printed: u64, seconds: u32) -> Done {
        Done { printed, processor: SECOND * seconds }
    }

    #[test]
    fn program_that_prints_or_works_is_never_stuck() {
        let start = now();
        let mut watch = Watch::new(Limits::TESTS, start);
        for minute in 0..10_000 {
            let at = start + 60 * SECOND * minute;
            // A minute of the processor in two hours.
            let prints = u64::from(minute / 15);
            assert_eq!(watch.look(at, done(prints, minute / 120)), None, "minute {minute}");
        }
        let mut watch = Watch::new(Limits::TESTS, start);
        for minute in 0..2000 {
            let at = start + 60 * SECOND * minute;
            assert_eq!(watch.look(at, done(0, minute)), None, "minute {minute}");
        }
    }

    #[test]
    fn program_that_only_polls_is_stuck_after_while() {
        let start = now();
        let mut watch = Watch::new(Limits::TESTS, start);
        let looks = (0..).map(|minute| (minute, done(7, minute / 6)));
        let stuck =
            looks.map(|(minute, done)| (minute, watch.look(start + 60 * SECOND * minute, done)));
        let found = stuck.into_iter().find(|(_, stuck)| stuck.is_some());
        assert_eq!(found, Some((20, Some(Stuck::Idle))));
    }

    #[test]
    fn time_limits_cover_processor_and_given_time() {
        let start = now();
        let mut watch = Watch::new(Limits::TESTS, start);
        assert_eq!(watch.look(start, done(1, 2399)), None);
        assert_eq!(watch.look(start, done(2, 2400)), Some(Stuck::Spent));
        let mut watch = Watch::new(Limits { until: Some(start + SECOND), ..Limits::TESTS }, start);
        assert_eq!(watch.look(start, done(0, 0)), None);
        assert_eq!(watch.look(start + SECOND, done(0, 0)), Some(Stuck::TimeIsUp));
    }

    #[test]
    fn stat_parses_times_of_proc() {
        let line = "7 (a ) b) S 5 7 7 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0";
        assert_eq!(Stat::parse(line), Some(Stat { parent: 5, processor: SECOND }));
        assert_eq!(Stat::parse("7 (a) S"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn program_is_ended_with_its_children() {
        let mut endless = command("sh");
        endless.args(["-c", "sh -c 'while :; do :; done'; echo not here"]);
        let mut child = endless.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let limits = Limits { processor: SECOND / 10, ..Limits::TESTS };
        let ended = wait(&mut child, limits, &|| 0).unwrap();
        assert_eq!((ended.status.success(), ended.stuck), (false, Some(Stuck::Spent)));
    }

    #[test]
    fn program_that_ends_without_its_children_leaves_none() {
        let mut careless = Command::new("sh");
        careless.args(["-c", "trap 'exit 1' TERM; sh -c 'while :; do :; done' & wait"]);
        let mut child = careless.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let limits = Limits { processor: SECOND / 10, ..Limits::TESTS };
        let ended = wait(&mut child, limits, &|| 0).unwrap();
        assert_eq!((ended.status.code(), ended.stuck), (Some(1), Some(Stuck::Spent)));
        // The end of the last process that has this pipe.
        assert_eq!(child.stdout.unwrap().read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn program_that_ends_is_left_alone() {
        let mut child = command("true").spawn().unwrap();
        let ended = wait(&mut child, Limits::TESTS, &|| 0).unwrap();
        assert_eq!((ended.status.success(), ended.stuck), (true, None));
    }
}
