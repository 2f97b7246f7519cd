//! Direct writes and the page cache: when a write has returned, no reader sees the old data, even
//! if it read the file during the write.
//!
//! The drive is held back at the moments that matter, so that nothing here depends on time.
//! The programs are Python, with asynchronous I/O by `aio.py`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::mounted;
use crate::mounted::content::{O_DIRECT, aligned, open};
use crate::mounted::held::{held, hold, until_or_still};
use crate::mounted::{Mounted, mapped, tools};
use rustix::fs::{OFlags, fcntl_setfl};

/// Bytes of the file, written and read whole: one request each.
const BYTES: usize = 256 << 10;

/// Runs `body`, Python, with these names: `path`, a file full of `a`; `hold(what)`, `wait(what)`
/// and `release(what)` for reads and writes of the drive; `start()`, which starts a direct write of
/// `b` over the whole file, and `end(seconds)`, which waits for the end of this write, without
/// limit or for this time, and tells whether it came.
fn run(mounted: &Mounted, body: &str) {
    let path = mounted.path("file");
    fs::write(&path, vec![b'a'; BYTES]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    // A reader that is held back cannot be killed, so the script releases it after any failure.
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
    wait_until(lambda: os.path.exists(files[what][1]))

def release(what):
    os.unlink(files[what][0])

direct = os.open(path, os.O_WRONLY | os.O_DIRECT)
context = setup(1)
new = mmap.mmap(-1, size)
new.write(b'b' * size)
request = control(0, PWRITE, direct, address(new), size, 0)

def start():
    submit(context, [request])

def end(seconds=None):
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
fn direct_write_drops_old_pages_of_passing_reader() {
    let Some(mounted) = mounted::mount() else { return };
    run(
        &mounted,
        r"
hold('write')
start()
wait('write')
assert content() == b'a', 'nothing is written yet'
release('write')
assert end()
assert content() == b'b', 'old pages after the write has returned'
",
    );
}

#[test]
fn direct_write_returns_after_reads_of_old_pages() {
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
assert end()
assert content() == b'b'
reader.join()
",
    );
}

/// How often a file is written while its descriptor is changed.
const WRITES: u64 = 20_000;

#[test]
fn buffered_write_returns_when_descriptor_gets_o_direct() {
    let Some(mut mounted) = mounted::mount() else { return };
    let file = open(&mounted.path("file"), 0);
    file.write_all_at(&[7; 4096], 0).unwrap();
    let (written, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                fcntl_setfl(&file, OFlags::DIRECT).unwrap();
                fcntl_setfl(&file, OFlags::empty()).unwrap();
            }
        });
        let writer = scope.spawn(|| {
            // A part of a page: it is locked until the write is answered, unless its content is
            // known.
            let writes = (0..WRITES).try_for_each(|_| {
                file.write_all_at(&[8; 512], 512)?;
                written.fetch_add(1, Ordering::Relaxed);
                Ok::<(), std::io::Error>(())
            });
            ended.store(true, Ordering::Relaxed);
            writes
        });
        let done = || ended.load(Ordering::Relaxed);
        if !until_or_still(|| written.load(Ordering::Relaxed), done) {
            // Nothing else would end the writer.
            mounted.abort();
        }
        writer.join().unwrap()
    });
    assert!(outcome.is_ok(), "{outcome:?} after {written:?} writes");
    let mut content = [0; 4096];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content[..512] == [7; 512] && content[512..1024] == [8; 512]);
    drop(file);
    mounted.unmount();
}

#[test]
fn request_is_taken_while_every_thread_is_blocked() {
    let Some(mut mounted) = mounted::mount_with("threads=1,nouring") else { return };
    let path = mounted.path("file");
    fs::write(&path, vec![7; 65536]).unwrap();
    let direct = open(&path, O_DIRECT);
    direct.sync_all().unwrap();
    let (hold, held) = (hold(mounted.drive(), "read"), held(mounted.drive(), "read"));
    fs::write(&hold, "").unwrap();
    let asked = AtomicBool::new(false);
    let (mut buffer, range) = aligned(4096, 0);
    let answered = thread::scope(|scope| {
        let reader = scope.spawn(|| direct.read_exact_at(&mut buffer[range.clone()], 0));
        let is_held = until_or_still(|| 0, || held.exists());
        scope.spawn(|| {
            assert!(!mounted.path("nothing").exists());
            asked.store(true, Ordering::Relaxed);
        });
        let answered = until_or_still(|| 0, || asked.load(Ordering::Relaxed));
        fs::remove_file(&hold).unwrap();
        reader.join().unwrap().unwrap();
        is_held && answered
    });
    assert!(answered);
    assert!(buffer[range].iter().all(|&byte| byte == 7));
    drop(direct);
    mounted.unmount();
}

#[test]
fn direct_reads_into_own_mapping_end() {
    let Some(mut mounted) = mounted::mount_with("threads=1,nouring") else { return };
    mapped::read_into_a_mapping(&mounted);
    mounted.unmount();
}
