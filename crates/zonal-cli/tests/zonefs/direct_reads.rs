//! Files that a direct reader has open together with others: through the hidden mount, and in turn
//! without it, with the same answers. The crate zonal-fuse tests that many reads run at once, on a
//! drive that can be held back.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, ftruncate};
use rustix::io::{Errno, pread, pwrite};

use crate::drive::{Drive, ONE, PLAIN, SEPARATE, Shape};
use crate::io::{self, Aligned, append, open, open_direct, read_at, size, truncate};
use crate::programs::python;

/// By the hidden mount, and without it.
const WAYS: [(&str, &str); 2] = [("", "together"), ("noasync-dio", "in turn")];

/// Mounts both ways, with these options too.
fn in_both_ways(shape: &'static Shape, options: &str, check: impl Fn(&Drive)) {
    for (way, reads) in WAYS {
        let Some(drive) = Drive::formatted(shape, SEPARATE) else { return };
        drive.mount(&[options, way].join(","));
        let stats = fs::read_to_string(drive.root().join(".zonal/stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let shown = stats["async_direct_reads"].as_str().unwrap();
        if shown != reads {
            return println!("SKIP: this kernel has no passthrough for FUSE: {shown}");
        }
        check(&drive);
        drive.unmount();
    }
}

fn direct_reader(drive: &Drive) -> OwnedFd {
    open(&drive.seq(0), OFlags::RDONLY | OFlags::DIRECT).unwrap()
}

/// Reads a block. Returns the bytes that were read, and the first byte.
fn read(file: &OwnedFd, offset: u64) -> Result<(usize, u8), Errno> {
    let mut buffer = Aligned::new(4096);
    pread(file, &mut *buffer, offset).map(|len| (len, buffer[0]))
}

/// Writes a block of one byte at the end.
fn write(drive: &Drive, byte: u8) {
    let mut buffer = Aligned::new(4096);
    buffer.fill(byte);
    assert_eq!(pwrite(open_direct(&drive.seq(0)), &buffer, size(&drive.seq(0))), Ok(4096));
}

#[test]
fn direct_reader_sees_file_grow_and_truncate() {
    in_both_ways(&PLAIN, "", |drive| {
        let reader = direct_reader(drive);
        assert_eq!(read(&reader, 0), Ok((0, 0)));
        for byte in [1, 2] {
            write(drive, byte);
        }
        assert_eq!([read(&reader, 0), read(&reader, 4096)], [Ok((4096, 1)), Ok((4096, 2))]);
        // A read across the end of the file is short; one of a part of a block is refused.
        let mut buffer = Aligned::new(8192);
        assert_eq!(pread(&reader, &mut *buffer, 4096), Ok(4096));
        assert_eq!(pread(&reader, &mut buffer[..100], 0), Err(Errno::INVAL));
        truncate(&drive.seq(0), 0).unwrap();
        assert_eq!(read(&reader, 0), Ok((0, 0)));
        write(drive, 3);
        assert_eq!(read(&reader, 0), Ok((4096, 3)));
        truncate(&drive.seq(0), PLAIN.capacity).unwrap();
        assert_eq!(read(&reader, 8192), Ok((4096, 0)), "finished");
        assert_eq!(read(&reader, PLAIN.capacity), Ok((0, 0)));
    });
}

#[test]
fn direct_and_cached_readers_agree_in_any_order() {
    in_both_ways(&PLAIN, "", |drive| {
        write(drive, 1);
        // Each reader alone, and each before the other.
        let cached = || open(&drive.seq(0), OFlags::RDONLY).unwrap();
        let mut files = vec![direct_reader(drive), cached(), direct_reader(drive)];
        drop(files.remove(0));
        drop(files.remove(0));
        files.extend([cached(), open_direct(&drive.seq(0)), direct_reader(drive)]);
        files.remove(2);
        for number in 2..20_u8 {
            write(drive, number);
            let offset = u64::from(number - 1) * 4096;
            for file in &files {
                assert_eq!(read(file, offset), Ok((4096, number)));
            }
        }
        drop(files);
        let files = [cached(), direct_reader(drive)];
        write(drive, 99);
        assert_eq!(files.each_ref().map(|file| read(file, 19 * 4096)), [Ok((4096, 99)); 2]);
        // Reads of parts of blocks work as through the page cache.
        let mut some = [0; 10];
        assert_eq!(pread(&files[0], &mut some, 4090), Ok(10));
        assert_eq!(some, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
    });
}

#[test]
fn direct_reader_leaves_results_of_writer_unchanged() {
    in_both_ways(&PLAIN, "", |drive| {
        let reader = direct_reader(drive);
        let writer = open_direct(&drive.seq(0));
        let data = Aligned::content(0, 8192);
        assert_eq!(pwrite(&writer, &data, 4096), Err(Errno::INVAL));
        let buffered = open(&drive.seq(0), OFlags::WRONLY).unwrap();
        assert_eq!(pwrite(&buffered, &data, 0), Err(Errno::IO));
        for offset in (0..PLAIN.capacity - 4096).step_by(4096) {
            assert_eq!(pwrite(&writer, &data[..4096], offset), Ok(4096));
        }
        assert_eq!(pwrite(&writer, &data, PLAIN.capacity - 4096), Ok(4096), "cut at the end");
        assert_eq!(pwrite(&writer, &data, PLAIN.capacity), Err(Errno::FBIG));
        assert_eq!(read(&reader, PLAIN.capacity - 4096), Ok((4096, data[0])));
        ftruncate(&writer, 0).unwrap();
        assert_eq!(read(&reader, 0), Ok((0, 0)));
    });
}

#[test]
fn direct_reader_leaves_explicit_opens_counted_once() {
    in_both_ways(&ONE, "explicit-open", |drive| {
        let reader = direct_reader(drive);
        let writer = open_direct(&drive.seq(0));
        assert_eq!(drive.count("nr_wro_seq_files"), 1);
        drop(writer);
        drive.await_count("nr_wro_seq_files", 0);
        drop(reader);
    });
}

/// The answers to a reader before and after it notices that its zone has failed.
fn check_failing(condition: &str, errors: &str, expected: [Result<(usize, u8), Errno>; 2]) {
    in_both_ways(&PLAIN, &format!("errors={errors}"), |drive| {
        write(drive, 1);
        let reader = direct_reader(drive);
        assert_eq!(read(&reader, 0), Ok((4096, 1)));
        drive.order(&format!("{condition} {}", PLAIN.first_seq()));
        let answers = [read(&reader, 0), read(&reader, 0)];
        assert_eq!(answers, expected, "{condition}, errors={errors}");
        let again = open(&drive.seq(0), OFlags::RDONLY | OFlags::DIRECT);
        let again = again.and_then(|file| read(&file, 0));
        assert_eq!(again, expected[1], "{condition}, errors={errors}, opened again");
    });
}

#[test]
fn direct_reader_sees_zone_fail() {
    for errors in ["remount-ro", "zone-ro", "zone-offline", "repair"] {
        check_failing("offline", errors, [Err(Errno::IO), Err(Errno::PERM)]);
        check_failing("read-only", errors, [Ok((4096, 1)); 2]);
    }
}

#[test]
fn direct_reader_and_writer_see_zone_become_read_only() {
    in_both_ways(&PLAIN, "errors=zone-ro", |drive| {
        write(drive, 1);
        let reader = direct_reader(drive);
        let writer = open_direct(&drive.seq(0));
        drive.order(&format!("read-only {}", PLAIN.first_seq()));
        let data = Aligned::content(0, 4096);
        assert_eq!(pwrite(&writer, &data, 4096), Err(Errno::IO));
        assert_eq!(pwrite(&writer, &data, 4096), Err(Errno::PERM));
        assert_eq!(read(&reader, 0), Ok((4096, 1)));
        assert_eq!(append(&drive.seq(0), 4096), Err(Errno::ACCESS).or(Err(Errno::PERM)));
    });
}

/// A mapping of a file that was opened directly before a direct reader came.
const MAPPED_BEFORE: &str = r"
import mmap, os, sys
path = sys.argv[1]
data = mmap.mmap(-1, 4096)
data[:] = b'a' * 4096
before = os.open(path, os.O_RDWR | os.O_DIRECT)
assert os.pwrite(before, data, 0) == 4096
reader = os.open(path, os.O_RDONLY | os.O_DIRECT)
assert mmap.mmap(before, 4096, mmap.MAP_PRIVATE)[:] == data[:]
assert os.preadv(reader, [data], 0) == 4096
";

#[test]
fn direct_reader_leaves_mmap_to_earlier_opener() {
    in_both_ways(&PLAIN, "", |drive| python(MAPPED_BEFORE, &drive.seq(0)));
}

/// Mappings of a reader through the page cache that came after a direct reader.
const MAPPED: &str = r"
import ctypes, mmap, os, signal, sys
path = sys.argv[1]
block = 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]

# All of the zone, though the file is shorter.
class Mapping:
    def __init__(self, file, how, protection=mmap.PROT_READ):
        size = os.fstat(file).st_blocks * 512
        self.address = libc.mmap(None, size, protection, how, file, 0)
        assert self.address != 2 ** 64 - 1, os.strerror(ctypes.get_errno())

    def __getitem__(self, at):
        return ctypes.string_at(self.address + at * block, block)

direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
cached = os.open(path, os.O_RDONLY)
data = mmap.mmap(-1, block)

def write(at, byte):
    writer = os.open(path, os.O_WRONLY | os.O_DIRECT)
    data[:] = byte * block
    assert os.pwrite(writer, data, at * block) == block
    os.close(writer)

def sent(at):
    into, out = os.pipe()
    assert os.sendfile(out, cached, at * block, block) == block
    return os.read(into, block)

write(0, b'a')
write(1, b'b')
shared, private = Mapping(cached, mmap.MAP_SHARED), Mapping(cached, mmap.MAP_PRIVATE)
# A mapping holds its file.
os.close(direct)
for mapping in shared, private:
    assert mapping[0] + mapping[1] == b'a' * block + b'b' * block
write(2, b'c')
assert shared[2] == b'c' * block
assert sent(2) == b'c' * block
os.truncate(path, 0)
write(0, b'd')
write(1, b'e')
assert shared[0] + shared[1] == b'd' * block + b'e' * block
assert sent(1) == b'e' * block
child = os.fork()
if child == 0:
    shared[100]
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGBUS
os.close(cached)
write(2, b'f')
assert shared[2] == b'f' * block
assert os.pread(os.open(path, os.O_RDONLY), block, 2 * block) == b'f' * block
os.truncate(path, 0)
write(0, b'g')
assert shared[0] == b'g' * block
try:
    Mapping(os.open(path, os.O_RDWR), mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
except AssertionError:
    sys.exit()
sys.exit('a shared mapping that can be written')
";

#[test]
fn direct_reader_leaves_mappings_current() {
    in_both_ways(&PLAIN, "", |drive| python(MAPPED, &drive.seq(0)));
}

#[test]
fn direct_reader_never_exposes_old_pages() {
    in_both_ways(&PLAIN, "warm-cache", |drive| {
        for round in 1..20 {
            truncate(&drive.seq(0), 0).unwrap();
            let reader = (round % 2 == 0).then(|| direct_reader(drive));
            write(drive, round);
            let read = read_at(&drive.seq(0), OFlags::empty(), 0, 8192).unwrap();
            assert_eq!((read.len(), read[4095]), (4096, round));
            drop(reader);
            let read = read_at(&drive.seq(0), OFlags::empty(), 0, 8192).unwrap();
            assert_eq!((read.len(), read[0]), (4096, round));
        }
    });
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    append(&drive.seq(1), 65536).unwrap();
    io::assert_content(&drive.seq(1), 65536);
}
