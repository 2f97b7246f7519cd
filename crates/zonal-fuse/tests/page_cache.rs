//! Direct writes and the page cache: when a write has returned, no reader sees what was there before,
//! whoever read the file while the write was under way.
//!
//! The drive is held back at the moments that matter, so that nothing here depends on time.
//! Asynchronous I/O needs `unsafe` from Rust, so the programs are Python.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod mounted;

use std::fs;
use std::process::Command;

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
/// `release(what)` for reads and writes of the drive; `submit()`, which starts a direct write of `b`
/// over the whole file, and `end(seconds)`, which waits for its end and tells whether it came.
fn run(mounted: &Mounted, body: &str) {
    if !cfg!(target_arch = "x86_64") {
        println!("SKIP: the system call numbers are of another machine");
        return;
    }
    let path = mounted.path("file");
    fs::write(&path, vec![b'a'; BYTES]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    // A reader that is held back cannot be killed: whatever fails, it is released.
    let body = body.replace('\n', "\n    ");
    let end = "for what in files:\n        if os.path.exists(files[what][0]): release(what)\n";
    let script = format!("{PRELUDE}try:{body}\nfinally:\n    {end}");
    let mut python = Command::new("python3");
    python.args(["-c", &script]).arg(&path).arg(BYTES.to_string());
    for what in ["read", "write"] {
        python.arg(hold(mounted.drive(), what)).arg(held(mounted.drive(), what));
    }
    tools::run(&mut python);
}

const PRELUDE: &str = r"
import ctypes, mmap, os, struct, sys, threading, time
path, size = sys.argv[1], int(sys.argv[2])
files = {'read': sys.argv[3:5], 'write': sys.argv[5:7]}
IO_SETUP, IO_GETEVENTS, IO_SUBMIT, PWRITE = 206, 208, 209, 1
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(number, *[ctypes.c_long(one) for one in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def address(buffer):
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))

def hold(what):
    open(files[what][0], 'x').close()

def wait(what):
    while not os.path.exists(files[what][1]):
        time.sleep(0.001)

def release(what):
    os.unlink(files[what][0])

direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
context = ctypes.c_ulong(0)
call(IO_SETUP, 1, ctypes.addressof(context))
new = mmap.mmap(-1, size)
new.write(b'b' * size)
control = bytearray()

def submit():
    control[:] = struct.pack('<QIiHhIQQqQII', 0, 0, 0, PWRITE, 0, direct, address(new), size, 0, 0, 0, 0)
    pointers = (ctypes.c_ulong * 1)(address(control))
    assert call(IO_SUBMIT, context.value, 1, ctypes.addressof(pointers)) == 1

def end(seconds):
    event = ctypes.create_string_buffer(32)
    limit = (ctypes.c_long * 2)(int(seconds), int(seconds % 1 * 1e9))
    if call(IO_GETEVENTS, context.value, 1, 1, ctypes.addressof(event), ctypes.addressof(limit)) == 0:
        return False
    result = struct.unpack('<QQqq', event.raw)[2]
    assert result == size, result
    return True

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
submit()
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
submit()
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
