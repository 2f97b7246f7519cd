//! Signals that end the command.
//!
//! Most commands end at once, by the kernel's default. A command that changes files of a drive
//! holds the signals: it stops at its next file or piece, makes its changes durable, and then ends
//! by the signal. So the parent process sees which signal that was.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use zonal::{Clock, SystemClock};

/// The signal that arrived while signals were held; 0 for none.
static PENDING: AtomicI32 = AtomicI32::new(0);

/// Readable from the first held signal on.
static ARRIVED: OnceLock<UnixStream> = OnceLock::new();

/// Whether this process serves clients, which need it even after the reader of its messages has
/// gone.
static IS_SERVER: AtomicBool = AtomicBool::new(false);

/// timeout(1) sends its signal twice. A signal this soon after the first expresses the same wish.
const SAME_WISH_NS: u64 = 1_000_000_000;

/// The command stopped because of a signal.
#[derive(Debug)]
struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted; changes that were made before stay")
    }
}

impl std::error::Error for Interrupted {}

/// Notes that this process serves others.
pub(crate) fn note_server() {
    IS_SERVER.store(true, Ordering::Relaxed);
}

/// From here on SIGINT, SIGTERM and SIGHUP wait until the command looks with [`check`], and
/// [`end_if_pending`] ends it. Another signal a second later or more ends the command at once.
pub(crate) fn hold() -> Result<()> {
    if ARRIVED.get().is_some() {
        return Ok(());
    }
    let (arrived, sender) = UnixStream::pair().context("listening for signals")?;
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listening for signals")?;
    ARRIVED.get_or_init(|| arrived);
    std::thread::Builder::new()
        .name("zonal-signals".to_owned())
        .spawn(move || watch(signals, sender))
        .context("listening for signals")?;
    Ok(())
}

/// Notes the first signal. Dropping the sender wakes the threads that wait for input.
fn watch(mut signals: Signals, sender: UnixStream) {
    let clock = SystemClock::new();
    let mut first = signals.forever();
    let Some(signal) = first.next() else { return };
    PENDING.store(signal, Ordering::Relaxed);
    drop(sender);
    let noted_ns = clock.monotonic_ns();
    for signal in first {
        if clock.monotonic_ns() >= noted_ns + SAME_WISH_NS {
            die_of(signal);
        }
    }
}

/// Whether a held signal has come.
pub(crate) fn is_pending() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// An error once a held signal has come.
pub(crate) fn check() -> Result<()> {
    if is_pending() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Waits until there is input, or its end, or a held signal, which is an error. A blocking read
/// would go on after a signal.
pub(crate) fn wait_for_input(input: &impl AsFd) -> Result<()> {
    let Some(arrived) = ARRIVED.get() else { return Ok(()) };
    loop {
        let mut fds = [PollFd::new(input, PollFlags::IN), PollFd::new(arrived, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for input"),
        }
    }
    check()
}

/// Ends the process by the signal that was held, if one was.
pub(crate) fn end_if_pending() {
    match PENDING.load(Ordering::Relaxed) {
        0 => {}
        signal => die_of(signal),
    }
}

/// Handles the loss of the reader of standard error.
pub(crate) fn on_broken_pipe() {
    if ARRIVED.get().is_some() {
        // The command makes its changes durable before it ends.
        let _ = PENDING.compare_exchange(0, SIGPIPE, Ordering::Relaxed, Ordering::Relaxed);
    } else if !IS_SERVER.load(Ordering::Relaxed) {
        die_of(SIGPIPE);
    }
}

/// Ends the process as an unhandled signal does.
pub(crate) fn die_of(signal: i32) -> ! {
    // If that fails, the exit code is the one that a shell would report for the signal.
    let _ = emulate_default_handler(signal);
    std::process::exit(128 + signal)
}
