//! Limits of time in tests: a busy machine misses any. A test waits until a thing happens
//! (`zonal::wait`), counts, or takes a `Clock` that it moves itself; `watch.rs` ends tests that
//! make no progress.
//!
//! Some tests are about time, or check for a moment that a thing does not happen: a busy machine
//! only makes these weaker. They are listed here, each with its number of lines.

use std::path::Path;

use anyhow::{Result, bail};

use super::{by_line, texts};

/// Marks of a limit or a pause. Written in two halves, so that this file passes its own check.
const MARKS: [&str; 9] = [
    concat!("recv_", "timeout("),
    concat!("wait_", "time", "out"),
    concat!("set_read_", "timeout(Some"),
    concat!("set_write_", "timeout(Some"),
    concat!("park_", "timeout("),
    concat!("thread::", "sleep("),
    concat!("time.", "sleep("),
    concat!(".elap", "sed()"),
    concat!("\"time", "out\""),
];

/// A file that may have some.
struct Allowed {
    path: &'static str,
    lines: usize,
    why: &'static str,
}

const fn allowed(path: &'static str, lines: usize, why: &'static str) -> Allowed {
    Allowed { path, lines, why }
}

const ALLOWED: &[Allowed] = &[
    allowed("tools/kernel-tests/src/guest/export.rs", 1, "between two looks, as long as it takes"),
    allowed(
        "tools/kernel-tests/src/host/share.rs",
        1,
        "between two looks for a socket, as long as its daemon lives",
    ),
    allowed("crates/zonal-cli/tests/furrow.rs", 1, "a file is closed while another process waits"),
    allowed(
        "crates/zonal-cli/tests/zonefs/drive.rs",
        1,
        "a moment for pages that may come; tried again",
    ),
    allowed("crates/zonal-fs/tests/space/gate.rs", 1, "whether calls come that must not"),
    allowed("crates/zonal-fuse/src/fuse/tests.rs", 1, "whether an answer comes that must not"),
    allowed(
        "crates/zonal-fuse/tests/mounts/data.rs",
        2,
        "times of files differ by more than a tick of the kernel",
    ),
    allowed(
        "crates/zonal-fuse/tests/mounts/durable.rs",
        2,
        "whether an fsync ends that must not; a mount commits by time",
    ),
    allowed(
        "crates/zonal-fuse/tests/mounts/mounted/aio.py",
        1,
        "`wait_until` of programs in Python",
    ),
    allowed("crates/zonal-fuse/tests/mounts/mounted/held.rs", 1, "between two looks for a step"),
    allowed("crates/zonal-fuse/tests/mounts/posix.rs", 1, "between two looks for a deleted file"),
    allowed(
        "crates/zonal-fuse/tests/mounts/rings.rs",
        1,
        "readers are to be behind writers, and need not be",
    ),
    allowed(
        "crates/zonal-fuse/tests/mounts/write_back.rs",
        1,
        "times of files differ by more than a tick of the kernel",
    ),
    allowed(
        "crates/zonal-fuse/tests/mounts/zone_reads.rs",
        1,
        "a daemon is killed at several moments",
    ),
    allowed(
        "crates/zonal-nvme/tests/nvme_tcp/initiator.rs",
        1,
        "whether a server is silent that must be",
    ),
    allowed(
        "crates/zonal-nvme/tests/nvme_tcp/main.rs",
        1,
        "whether a server ends a controller that must live",
    ),
    allowed("crates/zonal-nvme/tests/nvme_tcp/zones.rs", 1, "whether an event comes that must not"),
    allowed(
        "crates/zonal-nvme/tests/nvme_tcp_hostile/main.rs",
        2,
        "a host keeps its queues for a while; a server takes no more",
    ),
    allowed("tools/xtask/src/libtest.rs", 1, "for people"),
    allowed("tools/xtask/src/tally.rs", 1, "for people"),
    allowed("tools/xtask/src/test.rs", 1, "for people"),
    allowed("tools/xtask/src/vm.rs", 1, "for people"),
    allowed("tools/xtask/src/watch.rs", 2, "it ends what makes no progress"),
];

/// Looks at the tests, and at the programs that run them.
pub(super) fn check(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for (path, text) in texts(root, &[".rs", ".py"])? {
        wrong.extend(too_many(&path, &found(&path, &text), ALLOWED));
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// The lines with a mark in the test code of a file.
fn found(path: &str, text: &str) -> Vec<String> {
    let is_test = ["/tests/", "/tests.rs", "xtask/", "packaging/", "kernel-tests/"]
        .iter()
        .any(|part| path.contains(part));
    let begins = if is_test { 0 } else { text.find("#[cfg(test)]\nmod ").unwrap_or(text.len()) };
    let before = text[..begins].lines().count();
    let marked = |line: &str| {
        let is_comment = line.trim_start().starts_with("//");
        let mark = MARKS.iter().find(|mark| line.contains(**mark)).filter(|_| !is_comment);
        mark.map(|_| line.trim().to_owned())
    };
    let blank = "\n".repeat(before);
    by_line(&format!("{blank}{}", &text[begins..]), marked)
}

/// The errors about these lines in a file.
fn too_many(path: &str, found: &[String], allowed: &[Allowed]) -> Vec<String> {
    let entry = allowed.iter().find(|allowed| allowed.path == path);
    let lines = entry.map_or(0, |allowed| allowed.lines);
    if found.len() == lines {
        return Vec::new();
    }
    let why = entry.map_or_else(String::new, |allowed| format!(" ({})", allowed.why));
    let count = found.len();
    let head = format!(
        "{path} has {count} limits or pauses of time; tools/xtask/src/check/clocks.rs allows {lines}{why}"
    );
    std::iter::once(head).chain(found.iter().map(|line| format!("{path}{line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line that is refused.
    const LINE: &str = concat!("    inbox.recv_", "timeout(limit);\n");

    #[test]
    fn clocks_are_looked_for_in_tests_only() {
        let text = format!("//! a\n{LINE}\n#[cfg(test)]\nmod tests {{\n{LINE}}}\n");
        assert_eq!(found("crates/a/src/b.rs", &text).len(), 1);
        assert!(found("crates/a/src/b.rs", &text)[0].starts_with(":6: "));
        assert_eq!(found("crates/a/tests/b.rs", &text).len(), 2);
        assert_eq!(found("crates/a/src/b.rs", LINE), Vec::<String>::new());
        assert_eq!(found("crates/a/tests/b.rs", &format!("// {LINE}")), Vec::<String>::new());
    }

    #[test]
    fn clocks_count_must_equal_list() {
        let listed = [allowed("a", 1, "it is about time")];
        let line = [String::from(":1: x")];
        assert!(too_many("a", &line, &listed).is_empty());
        assert_eq!(too_many("b", &line, &listed).len(), 2);
        assert_eq!(too_many("a", &[], &listed).len(), 1);
    }
}
