//! Files as streams: compared with a file of the host, and with the promises of `std::io`.

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, IoSlice, IoSliceMut};
use std::io::{Read, Seek, SeekFrom, Write};

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::repeat;
use zonal_fs::FsError;
use zonal_fs::volume::{File, OpenFlags};

use super::{drive, mount, volume, zonefs};

/// The result of a call in a form that can be compared: its number, or its errno.
fn told<T>(outcome: io::Result<T>) -> Result<T, Option<i32>> {
    outcome.map_err(|error| error.raw_os_error())
}

/// One random call on a stream, with the bytes that it has read.
fn step(rng: &mut ChaCha8Rng, file: &mut (impl Read + Write + Seek)) -> String {
    let len = rng.random_range(0..20_000);
    let mut bytes = vec![0; len];
    match rng.random_range(0..8) {
        0 | 1 => {
            rng.fill_bytes(&mut bytes);
            format!("write {:?}", told(file.write(&bytes)))
        }
        2 => {
            rng.fill_bytes(&mut bytes);
            let (one, two) = bytes.split_at(len / 3);
            let parts = [IoSlice::new(one), IoSlice::new(two)];
            format!("write_vectored {:?}", told(file.write_vectored(&parts)))
        }
        3 => {
            let read = told(file.read(&mut bytes));
            bytes.truncate(read.unwrap_or(0));
            format!("read {read:?} {bytes:?}")
        }
        4 => {
            let (one, two) = bytes.split_at_mut(len / 3);
            let mut parts = [IoSliceMut::new(one), IoSliceMut::new(two)];
            let read = told(file.read_vectored(&mut parts));
            bytes.truncate(read.unwrap_or(0));
            format!("read_vectored {read:?} {bytes:?}")
        }
        kind => {
            let by = rng.random_range(-30_000..30_000);
            let to = match kind {
                5 => SeekFrom::Start(rng.random_range(0..60_000)),
                6 => SeekFrom::Current(by),
                _ => SeekFrom::End(by / 2),
            };
            format!("seek {to:?} {:?} {:?}", told(file.seek(to)), told(file.stream_position()))
        }
    }
}

#[test]
fn stream_random_calls_match_host_file() {
    let (seed, count) = (repeat::seed(1), repeat::count(20));
    let place = tempfile::tempdir().unwrap();
    for seed in seed..seed + count {
        println!("SEED={seed}");
        let appends = seed % 4 == 0;
        let path = place.path().join(seed.to_string());
        fs::write(&path, b"").unwrap();
        let mut theirs =
            fs::File::options().read(true).write(!appends).append(appends).open(&path).unwrap();
        let volume = volume();
        let way = if appends { OpenFlags::APPEND } else { OpenFlags::WRITE };
        let flags = OpenFlags::READ | OpenFlags::CREATE | way;
        let mut ours = volume.open_with("file", flags, 0o644).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..100 {
            let mut same = rng.clone();
            let expected = step(&mut rng, &mut theirs);
            assert_eq!(step(&mut same, &mut ours), expected, "SEED={seed}");
        }
        assert!(volume.read("file").unwrap() == fs::read(&path).unwrap(), "SEED={seed}");
    }
}

#[test]
fn stream_serves_std_adapters() {
    let volume = volume();
    let mut lines = BufWriter::new(volume.create("lines").unwrap());
    for number in 0..10_000 {
        writeln!(lines, "line {number}").unwrap();
    }
    lines.into_inner().unwrap().sync_data().unwrap();
    let reader = BufReader::new(volume.open("lines").unwrap());
    for (number, line) in reader.lines().enumerate() {
        assert_eq!(line.unwrap(), format!("line {number}"));
    }
    let mut copy = volume.create("copy").unwrap();
    let copied = io::copy(&mut volume.open("lines").unwrap(), &mut copy).unwrap();
    assert_eq!(copied, volume.metadata("lines").unwrap().size);
    copy.rewind().unwrap();
    let mut text = String::new();
    copy.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().last(), Some("line 9999"));
    assert_eq!(copy.stream_position().unwrap(), copied);
}

#[test]
fn stream_position_ignores_offset_calls() {
    let volume = volume();
    let mut file = volume.create("file").unwrap();
    file.write_all(b"0123456789").unwrap();
    file.write_all_at(b"ab", 0).unwrap();
    file.append(b"end").unwrap();
    file.read_exact_at(&mut [0; 4], 2).unwrap();
    assert_eq!(file.stream_position().unwrap(), 10);
    let mut rest = Vec::new();
    Read::read_to_end(&mut file, &mut rest).unwrap();
    assert_eq!(rest, b"end");
    assert_eq!(file.read_to_end().unwrap(), b"ab23456789end");
}

#[test]
fn stream_writes_of_threads_never_overlap() {
    const PIECE: usize = 1000;
    let volume = volume();
    let file = volume.create("file").unwrap();
    std::thread::scope(|scope| {
        for byte in 1..=4 {
            let mut file = &file;
            scope.spawn(move || {
                for _ in 0..50 {
                    file.write_all(&[byte; PIECE]).unwrap();
                }
            });
        }
    });
    let content = file.read_to_end().unwrap();
    assert_eq!(content.len(), 4 * 50 * PIECE);
    assert!(content.chunks(PIECE).all(|piece| piece.iter().all(|byte| *byte == piece[0])));
}

#[test]
fn stream_refuses_impossible_position_and_stays() {
    let volume = volume();
    let mut file = volume.create("file").unwrap();
    file.write_all(b"0123456789").unwrap();
    for to in [
        SeekFrom::Current(-11),
        SeekFrom::End(-11),
        SeekFrom::Start(1 << 63),
        SeekFrom::Current(i64::MAX),
        SeekFrom::End(i64::MIN),
    ] {
        let refused = Seek::seek(&mut file, to).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(22), "{to:?}");
        assert_eq!(file.stream_position().unwrap(), 10, "{to:?}");
    }
}

#[test]
fn stream_error_has_errno_of_mount() {
    fn open(path: &str, flags: OpenFlags) -> io::Result<File> {
        let volume = volume();
        volume.write("file", b"content")?;
        Ok(volume.open_with(path, flags, 0)?)
    }
    let missing = open("missing", OpenFlags::READ).err().unwrap();
    assert_eq!((missing.raw_os_error(), missing.kind()), (Some(2), ErrorKind::NotFound));
    let taken = open("file", OpenFlags::WRITE | OpenFlags::CREATE_NEW).err().unwrap();
    assert_eq!((taken.raw_os_error(), taken.kind()), (Some(17), ErrorKind::AlreadyExists));
    let volume = volume();
    volume.write("file", b"content").unwrap();
    let mut reader = volume.open("file").unwrap();
    assert_eq!(reader.write(b"x").unwrap_err().raw_os_error(), Some(9));
    let damaged = FsError::Corrupt { what: "journal", why: "it is torn".into() };
    assert_eq!(io::Error::from(damaged).raw_os_error(), Some(5));
    volume.close().unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap_err().raw_os_error(), Some(9));
}

#[test]
fn stream_writes_zone_file_in_whole_blocks() {
    let drive = drive();
    zonefs::mkfs(&*drive, &zonefs::MkfsOptions::default(), &mut |_| ()).unwrap();
    let volume = mount(&drive);
    let mut zone = volume.open_with("seq/5", OpenFlags::READ | OpenFlags::WRITE, 0).unwrap();
    let mut writer = BufWriter::with_capacity(8192, &zone);
    for byte in 1..=6 {
        writer.write_all(&[byte; 4096]).unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    assert_eq!(zone.write(&[1; 100]).unwrap_err().raw_os_error(), Some(22), "no whole block");
    assert_eq!(zone.stream_position().unwrap(), 6 * 4096);
    zone.rewind().unwrap();
    let (mut content, mut first) = (Vec::new(), [0; 4096]);
    zone.read_exact(&mut first).unwrap();
    Read::read_to_end(&mut zone, &mut content).unwrap();
    assert_eq!((first[0], content.len(), content.last()), (1, 5 * 4096, Some(&6)));
}
