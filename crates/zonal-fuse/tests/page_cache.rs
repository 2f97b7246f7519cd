//! Direct writes and the page cache: when a write has returned, no reader sees what was there before,
//! whoever read the file while the write was under way.
//!
//! The drive is held back at the moments that matter, so that nothing here depends on time.
//! The programs are Python, with asynchronous I/O by `aio.py`.

#![expect(clippy::unwrap_used, reason = "a test")]

mod mounted;

use std::fs;

use mounted::held::{held, hold};
use mounted::{Mounted, tools};

#[test]
#[ignore = "the daemon of the other tests"]
fn daemon() {
    mounted::daemon();
}

/// Bytes of the file, written and read whole: one request each.
const BYTES: usize = 256 << 10;

/// Runs `body`, Python, with these at hand: `path`, a file full of `a`; `hold(what)`, `wait(what)` and
/// `release(what)` for reads and writes of the drive; `start()`, which starts a direct write of `b`
/// over the whole file, and `end(seconds)`, which waits for its end and tells whether it came.
fn run(mounted: &Mounted, body: &str) {
    let path = mounted.path("file");
    fs::write(&path, vec![b'a'; BYTES]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    // A reader that is held back cannot be killed: whatever fails, it is released.
    let body = body.replace('\n', "\n    ");
    let end = "for what in files:\n        if os.path.exists(files[what][0]): release(what)\n";
    let script = format!("{PRELUDE}try:{body}\nfinally:\n    {end}");
    let Some(mut python) = tools::aio(&script) else { return };
    python.arg(&path).arg(BYTES.to_string());
    for what in ["read", "write"] {
        python.arg(hold(mounted.drive(), what)).arg(held(mounted.drive(), what));
    }
    tools::run(&mut python);
}

const PRELUDE: &str = r"
path, size = sys.argv[1], int(sys.argv[2])
files = {'read': sys.argv[3:5], 'write': sys.argv[5:7]}

def hold(what):
    open(files[what][0], 'x').close()

def wait(what):
    while not os.path.exists(files[what][1]):
        time.sleep(0.001)

def release(what):
    os.unlink(files[what][0])

direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
context = setup(1)
new = mmap.mmap(-1, size)
new.write(b'b' * size)
request = control(0, PWRITE, direct, address(new), size, 0)

def start():
    submit(context, [request])

def end(seconds):
    result = results(context, 1, 1, seconds)
    assert result in ({}, {0: size}), result
    return bool(result)

def content():
    with open(path, 'rb', buffering=0) as file:
        data = file.read(size)
    assert data in (b'a' * size, b'b' * size), 'a mixture'
    return data[:1]
";

#[test]
fn a_reader_that_came_and_went_during_a_direct_write_leaves_no_old_pages() {
    let Some(mounted) = mounted::mount() else { return };
    run(
        &mounted,
        r"
hold('write')
start()
wait('write')
assert content() == b'a', 'nothing is written yet'
release('write')
assert end(60)
assert content() == b'b', 'old pages after the write has returned'
",
    );
}

#[test]
fn a_direct_write_returns_after_the_reads_that_would_leave_old_pages() {
    let Some(mounted) = mounted::mount() else { return };
    run(
        &mounted,
        r"
hold('write')
start()
wait('write')
hold('read')
reader = threading.Thread(target=content)
reader.start()
wait('read')
release('write')
assert not end(0.3), 'the reader still has old bytes in its hands, for the page cache'
release('read')
assert end(60)
assert content() == b'b'
reader.join()
",
    );
}
