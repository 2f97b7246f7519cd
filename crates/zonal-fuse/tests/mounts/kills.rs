//! Which write(2) is whole after the daemon was killed, in every way to mount and to open: the
//! table of docs/semantics.md.
//!
//! One thread writes, with pauses for fsync where the mode needs it. Another one syncs a file of
//! its own all the time, so that commits come between any two requests. After some writes the
//! daemon is killed. `SEED` and `COUNT` choose the rounds.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::mounted;
use crate::mounted::Mounted;
use crate::mounted::content::{O_DIRECT, O_DSYNC, O_SYNC, aligned, open};
use zonal::repeat;
use zonal::wait::wait_until;

const O_APPEND: i32 = 0o2000;
const PAGE: u64 = 4096;
const REQUEST: u64 = 1 << 20;

/// Numbers that are the same in each run with a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A way to mount and to open.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    options: &'static str,
    flags: i32,
}

impl Mode {
    const fn new(name: &'static str, options: &'static str, flags: i32) -> Self {
        Self { name, options, flags }
    }

    fn collects(self) -> bool {
        self.options == "writeback" && self.flags & O_DIRECT == 0
    }

    /// Whether each write is durable when it returns.
    fn syncs(self) -> bool {
        self.options == "sync" || self.flags & (O_DSYNC | O_SYNC) != 0
    }

    fn appends(self) -> bool {
        self.flags & O_APPEND != 0
    }

    /// Where a write from `start` to `end` may be cut, in bytes of the file.
    fn cuts(self, start: u64, end: u64) -> Vec<u64> {
        let boundary = (start / PAGE + 1) * PAGE;
        if self.collects() {
            (boundary..end).step_by(usize::try_from(PAGE).unwrap()).collect()
        } else if self.flags & O_DIRECT != 0 || start.is_multiple_of(PAGE) || end <= boundary {
            Vec::new()
        } else {
            // The page that it begins in is not cached, and sent alone.
            vec![boundary]
        }
    }
}

/// A write(2) that fills its range with a byte.
#[derive(Clone, Copy, Debug)]
struct Planned {
    start: u64,
    end: u64,
    byte: u8,
}

/// Writes to parts of a file of which no two have a page in common, unless they are appended.
fn plan(mode: Mode, dice: &mut Dice, count: usize) -> Vec<Planned> {
    let mut end = 0_u64;
    let mut plan = Vec::new();
    for number in 0..count {
        let start = if mode.appends() {
            end
        } else {
            let page = end.next_multiple_of(PAGE) + dice.below(3) * PAGE;
            if dice.below(2) == 0 { page } else { page + dice.below(PAGE) }
        };
        let within = start % PAGE;
        let len = match dice.below(4) {
            // Within one page.
            0 => 1 + dice.below(PAGE - within),
            1 => 4000,
            // To the end of a page.
            2 => (1 + dice.below(8)) * PAGE - within,
            // About the pages of one request.
            _ => REQUEST - within - dice.below(2) * dice.below(REQUEST / 2),
        };
        end = start + len;
        plan.push(Planned { start, end, byte: u8::try_from(number % 255 + 1).unwrap() });
    }
    plan
}

/// How far the writer has come.
#[derive(Default)]
struct Progress {
    /// Writes that have returned.
    returned: AtomicUsize,
    /// Of these, the writes that are acknowledged as durable.
    durable: AtomicUsize,
    /// The daemon is dead.
    is_over: AtomicBool,
}

/// Whether all of it was taken, in one call.
fn write(mut file: &File, mode: Mode, planned: Planned) -> bool {
    let len = usize::try_from(planned.end - planned.start).unwrap();
    let (buffer, range) = aligned(len, planned.byte);
    let data = &buffer[range];
    let outcome =
        if mode.appends() { file.write(data) } else { file.write_at(data, planned.start) };
    outcome.is_ok_and(|written| written == len)
}

/// Makes the planned writes until the daemon is dead.
fn run(file: &File, mode: Mode, plan: &[Planned], progress: &Progress) {
    for (number, &planned) in plan.iter().enumerate() {
        if progress.is_over.load(Ordering::SeqCst) || !write(file, mode, planned) {
            return;
        }
        let is_durable = mode.syncs() || (number % 7 == 6 && file.sync_all().is_ok());
        if is_durable {
            progress.durable.store(number + 1, Ordering::SeqCst);
        }
        progress.returned.store(number + 1, Ordering::SeqCst);
    }
}

/// Commits again and again until the daemon is dead.
fn keep_committing(file: &File, progress: &Progress) {
    for turn in 0_u64.. {
        let written = file.write_all_at(&turn.to_le_bytes(), 0);
        let outcome = written.and_then(|()| file.sync_all());
        if outcome.is_err() || progress.is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Whether a write is there as a whole, not at all, or in a part that this mode allows.
fn check(mode: Mode, planned: Planned, content: &[u8]) -> Result<Found, String> {
    let at = |place: u64| usize::try_from(place).unwrap();
    let mut edges = vec![planned.start];
    edges.extend(mode.cuts(planned.start, planned.end));
    edges.push(planned.end);
    let mut parts = Vec::new();
    for piece in edges.windows(2) {
        let bytes: Vec<u8> =
            (at(piece[0])..at(piece[1])).map(|at| content.get(at).copied().unwrap_or(0)).collect();
        if bytes.iter().all(|&byte| byte == planned.byte) {
            parts.push(true);
        } else if bytes.iter().all(|&byte| byte == 0) {
            parts.push(false);
        } else {
            return Err(format!("{planned:?}: a part of {piece:?} is there"));
        }
    }
    // Requests come in order, unless the kernel has collected them.
    if !mode.collects() && !parts.is_sorted_by(|left, right| left >= right) {
        return Err(format!("{planned:?}: its end is there and its beginning is not"));
    }
    match (parts.iter().all(|&is| is), parts.iter().any(|&is| is)) {
        (true, _) => Ok(Found::Whole),
        (false, true) => Ok(Found::Part),
        (false, false) => Ok(Found::Nothing),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Whole,
    Part,
    Nothing,
}

/// One life of a daemon; returns how many writes were found in part.
fn round(mounted: &mut Mounted, mode: Mode, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let plan = plan(mode, &mut dice, 40);
    let kill_after = usize::try_from(dice.below(36)).unwrap();
    let name = format!("file {seed}");
    let file = open(&mounted.path(&name), mode.flags);
    let other = open(&mounted.path("other"), 0);
    other.sync_all().unwrap();
    let progress = Progress::default();
    thread::scope(|scope| {
        let writer = scope.spawn(|| run(&file, mode, &plan, &progress));
        scope.spawn(|| keep_committing(&other, &progress));
        wait_until(|| {
            progress.returned.load(Ordering::SeqCst) >= kill_after || writer.is_finished()
        });
        mounted.kill_daemon();
        progress.is_over.store(true, Ordering::SeqCst);
    });
    let returned = progress.returned.into_inner();
    assert!(returned >= kill_after, "{}: write {returned} failed before the kill", mode.name);
    drop((file, other));
    mounted.clear_away();
    mounted.start(mode.options);

    let content = fs::read(mounted.path(&name)).unwrap_or_default();
    let found: Vec<Found> = plan
        .iter()
        .map(|&planned| check(mode, planned, &content))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{}, seed {seed}: {error}", mode.name));
    let durable = progress.durable.into_inner();
    let lost = found[..durable].iter().position(|&found| found != Found::Whole);
    assert_eq!(lost, None, "{}, seed {seed}: of {durable} acknowledged: {found:?}", mode.name);
    // Without a writeback cache, a later write is there only if all earlier ones are.
    if !mode.collects() {
        assert!(found.is_sorted(), "{}, seed {seed}: {found:?}", mode.name);
    }
    found.iter().filter(|&&found| found == Found::Part).count()
}

fn rounds(modes: &[Mode]) {
    let (seed, count) = (repeat::seed(27), repeat::count(3));
    for &mode in modes {
        println!("{}", mode.name);
        let Some(mut mounted) = mounted::mount_with(mode.options) else { return };
        let parts: usize = (seed..seed + count).map(|seed| round(&mut mounted, mode, seed)).sum();
        println!("{}: {parts} writes were there in part, as they may be", mode.name);
        mounted.unmount();
    }
}

#[test]
fn kill_leaves_whole_single_request_writes() {
    rounds(&[
        Mode::new("default", "", 0),
        Mode::new("append", "", O_APPEND),
        Mode::new("O_DSYNC", "", O_DSYNC),
        Mode::new("sync", "sync", 0),
        Mode::new("sync, append", "sync", O_APPEND),
    ]);
}

#[test]
fn kill_leaves_whole_direct_writes() {
    rounds(&[
        Mode::new("O_DIRECT", "", O_DIRECT),
        Mode::new("O_DIRECT, O_DSYNC", "", O_DIRECT | O_DSYNC),
        Mode::new("O_DIRECT, append", "", O_DIRECT | O_APPEND),
        Mode::new("writeback, O_DIRECT", "writeback", O_DIRECT),
    ]);
}

#[test]
fn kill_leaves_whole_pages_with_writeback() {
    rounds(&[
        Mode::new("writeback", "writeback", 0),
        Mode::new("writeback, append", "writeback", O_APPEND),
        Mode::new("writeback, O_SYNC", "writeback", O_SYNC),
    ]);
}
