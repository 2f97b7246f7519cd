//! Programs from outside: fio, and Python for mappings, which Rust has only as `unsafe`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::drive::{self, Drive, must, output, text};

/// Has fio write at the end of a file, instead of making the file anew.
pub(crate) const APPEND: &str = "--file_append=1";

/// fio, if there is one.
pub(crate) struct Fio(PathBuf);

impl Fio {
    /// Finds fio, or prints that it is missing.
    pub(crate) fn find() -> Option<Self> {
        drive::find("fio").map(Self)
    }

    /// Runs one job on a file of `drive`. The file is neither made, nor laid out, nor removed.
    pub(crate) fn try_run(&self, drive: &Drive, file: &Path, options: &[&str]) -> Output {
        output(
            Command::new(&self.0)
                .args(["--name=job", "--allow_file_create=0", "--create_on_open=0"])
                .args(["--unlink=0", "--verify_state_save=0", "--continue_on_error=none"])
                .arg(drive::argument("--filename=", file))
                .args(options)
                .current_dir(drive.outside("")),
        )
    }

    /// The same; fio must succeed.
    pub(crate) fn run(&self, drive: &Drive, file: &Path, options: &[&str]) {
        must(&self.try_run(drive, file, options));
    }

    /// The same; fio must fail with this message of an errno.
    pub(crate) fn fail(&self, drive: &Drive, file: &Path, options: &[&str], message: &str) {
        let output = self.try_run(drive, file, options);
        let text = text(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(message), "not {message}: {text}");
    }
}

/// Runs a Python script with a path as its argument, or prints that there is no Python.
pub(crate) fn python(script: &str, path: &Path) {
    if let Some(python) = drive::find("python3") {
        must(&output(Command::new(python).args(["-c", script]).arg(path)));
    }
}

/// Direct asynchronous writes (`io_submit`) to the end of a file until it is full.
pub(crate) struct Aio {
    /// `offset`, `append`, `each-append`, `dsync` or `each-dsync`: of the file or of each write.
    pub(crate) mode: &'static str,
    /// Pieces of each write.
    pub(crate) vectors: u64,
    /// Bytes of a write: a multiple of 4096.
    pub(crate) bytes: u64,
    /// Writes in flight.
    pub(crate) depth: u64,
}

impl Aio {
    /// Writes as much as the zone can hold, then reads and compares: every write is there, once, in
    /// the order of submission.
    pub(crate) fn fill(&self, file: &Path) {
        self.run(file, "exact");
    }

    /// The same, but the last write has the length of the others and ends short.
    pub(crate) fn overfill(&self, file: &Path) {
        self.run(file, "over");
    }

    /// Writes from 4096 bytes beyond the end on: the file takes none of it.
    pub(crate) fn miss(&self, file: &Path) {
        self.run(file, "missed");
    }

    fn run(&self, file: &Path, end: &str) {
        if !cfg!(target_arch = "x86_64") {
            println!("SKIP: the system call numbers are of another machine");
            return;
        }
        let Some(python) = drive::find("python3") else { return };
        let numbers = [self.vectors, self.bytes, self.depth].map(|number| number.to_string());
        let mut script = Command::new(python);
        script.arg("-c").arg(format!("{ASYNCHRONOUS}{AIO}"));
        must(&output(script.arg(file).args([self.mode, end]).args(numbers)));
    }
}

/// The beginning of programs with asynchronous I/O.
const ASYNCHRONOUS: &str = include_str!("../../../zonal-fuse/tests/mounts/mounted/aio.py");

/// The rest of it.
const AIO: &str = r"
path, mode, end = sys.argv[1:4]
vectors, size, depth = map(int, sys.argv[4:7])
RWF_DSYNC, RWF_APPEND = 2, 16

flags = {'append': os.O_APPEND, 'dsync': os.O_DSYNC}.get(mode, 0)
each = {'each-append': RWF_APPEND, 'each-dsync': RWF_DSYNC}.get(mode, 0)
fd = os.open(path, os.O_WRONLY | os.O_DIRECT | flags)
start, room = os.fstat(fd).st_size, os.fstat(fd).st_blocks * 512
if end == 'missed':
    start += 4096
context = setup(depth)
buffers = [mmap.mmap(-1, 2 * size) for _ in range(depth)]

def request(number, offset):
    # Every 4096 bytes of a write carry its number and their place in the write.
    buffer = buffers[number % depth]
    length = min(size, room - offset) if end == 'exact' else size
    count = vectors if length % (4096 * vectors) == 0 else 1
    part = length // count
    pieces = bytearray()
    for vector in range(count):
        place = 2 * vector * part
        for block in range(0, part, 4096):
            tag = struct.pack('<QQ', number, vector * part + block) * 256
            buffer[place + block:place + block + 4096] = tag
        pieces += struct.pack('<QQ', address(buffer) + place, part)
    how, where = (PWRITEV, address(pieces)) if count > 1 else (PWRITE, address(buffer))
    at = 0 if 'append' in mode else offset
    return control(number, how, fd, where, count if count > 1 else length, at, each), pieces

sent, done, lengths = 0, 0, {}
total = (room - start + size - 1) // size
while done < total:
    batch = [request(number, start + number * size) for number in range(sent, min(total, done + depth))]
    if batch:
        submit(context, [one for one, _ in batch])
        sent += len(batch)
    # All of them: each buffer is free again then.
    ended = results(context, sent - done, depth)
    for number, result in ended.items():
        if end == 'missed':
            assert result == -errno.EINVAL, (number, result)
            continue
        assert result > 0, (number, os.strerror(-result))
        lengths[number] = result
    done += len(ended)

if end == 'missed':
    sys.exit()
for number in range(total):
    expected = min(size, room - start - number * size)
    assert lengths[number] == expected, (number, lengths[number], expected)
assert os.fstat(fd).st_size == room
with open(path, 'rb') as file:
    file.seek(start)
    for number in range(total):
        content = file.read(lengths[number])
        for block in range(0, len(content), 4096):
            tag = struct.pack('<QQ', number, block) * 256
            assert content[block:block + 4096] == tag, (number, block, content[block:block + 16])
";
