//! Direct reads into a mapping of a file of the same mount: when the kernel takes their answers, it
//! waits for pages.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::held::until_or_still;
use super::{Mounted, tools};

/// Asynchronous direct reads of one file into a shared mapping of another, while threads write that
/// one directly: to drop its pages, the kernel locks them while it writes their content.
const SCRIPT: &str = r"
target, source, rounds = sys.argv[1:]
PIECES, SIZE, ROUNDS = 32, 32 << 10, 20
for name in (target, source):
    with open(name, 'wb') as file:
        file.write(b'a' * (PIECES * SIZE))
        file.flush()
        os.fsync(file.fileno())
mapping = mmap.mmap(os.open(target, os.O_RDWR), PIECES * SIZE)
start = address(mapping)
reads, writes = os.open(source, os.O_RDONLY | os.O_DIRECT), os.open(target, os.O_WRONLY | os.O_DIRECT)
block = mmap.mmap(-1, SIZE)
over = False

def write():
    at = 0
    while not over:
        os.pwritev(writes, [block], at % PIECES * SIZE)
        at += 7

writers = [threading.Thread(target=write) for _ in range(2)]
for writer in writers:
    writer.start()
context = setup(PIECES)
try:
    for _ in range(ROUNDS):
        submit(context, [control(at, PREAD, reads, start + at * SIZE, SIZE, at * SIZE) for at in range(PIECES)])
        assert results(context, PIECES, PIECES) == {at: SIZE for at in range(PIECES)}
        with open(rounds, 'ab') as file:
            file.write(b'.')
finally:
    over = True
    for writer in writers:
        writer.join()
";

/// Makes such reads, and fails if they do not come to an end.
pub(crate) fn read_into_a_mapping(mounted: &Mounted) {
    let Some(mut python) = tools::aio(SCRIPT) else { return };
    let rounds = mounted.outside("rounds");
    python.arg(mounted.path("target")).arg(mounted.path("source")).arg(&rounds);
    let mut child = python.spawn().unwrap();
    let has_ended = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let ended = child.wait();
            has_ended.store(true, Ordering::Relaxed);
            ended
        });
        let steps = || fs::metadata(&rounds).map_or(0, |rounds| rounds.len());
        if !until_or_still(steps, || has_ended.load(Ordering::Relaxed)) {
            // Nothing else would end them.
            mounted.abort();
        }
        ended.join().unwrap().unwrap()
    });
    assert!(ended.success(), "{ended}");
}
