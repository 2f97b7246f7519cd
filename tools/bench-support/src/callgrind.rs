//! Instructions in user space, counted by valgrind: the count needs no counters of the processor,
//! which a virtual machine rarely has, and it does not depend on other load.
//!
//! The benchmark starts itself under callgrind with a request in the environment, and `main` hands
//! that to [`requested`]. The cost of one operation is the difference between a long run and a
//! short one, per operation. A counted process must not read rustix's clocks: valgrind does not map
//! the kernel's fast ones.

use std::process::Command;

/// The request to a counted process: the operation, and how often.
const REQUEST: &str = "ZONAL_BENCH_COUNT";

/// The operation that this process has to repeat while its instructions are counted, and how often;
/// `None` in a process that is not counted.
pub fn requested() -> Option<(String, u64)> {
    let request = std::env::var(REQUEST).ok()?;
    let (what, times) = request.rsplit_once(' ').expect("a request and a number");
    Some((what.to_owned(), times.parse().expect("a number")))
}

/// Instructions of one operation of `what`; `None` without valgrind.
#[expect(clippy::cast_precision_loss, reason = "a count for people")]
pub fn per_operation(what: &str, (short, long): (u64, u64)) -> Option<f64> {
    let (less, more) = (count(what, short)?, count(what, long)?);
    Some((more as f64 - less as f64) / (long - short) as f64)
}

fn count(what: &str, times: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .env(REQUEST, format!("{what} {times}"))
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}");
    let (_, count) = text.split_once("Collected : ")?;
    count.split_whitespace().next()?.parse().ok()
}
