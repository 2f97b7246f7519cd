//! Traces: the requests of each format, refused input, and the requests that reach a drive.

mod recorded;

use std::io::{Cursor, Write as _};
use std::path::PathBuf;

use super::*;
use crate::config::{Config, Pattern};
use crate::load::{self, Request};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name)
}

fn records(source: impl Into<Vec<u8>>, options: &Trace) -> Result<(Vec<Record>, u64)> {
    let mut reader = Reader::from_source("it", Cursor::new(source.into()), options)?;
    let mut records = Vec::new();
    while let Some(record) = reader.record()? {
        records.push(record);
    }
    Ok((records, reader.bad_lines()))
}

fn refused(text: &str) -> String {
    records(text, &Trace::default()).expect_err(text).to_string()
}

const fn record(at_us: u64, volume: u32, op: Op, offset: u64, bytes: u64) -> Record {
    Record { at_ns: at_us * 1000, volume, op, offset, bytes }
}

#[test]
fn trace_formats_are_detected_and_read() {
    use Op::{Read, Trim, Write};
    let (gib, first) = (1 << 30, 12_816_637_200_000_000);
    let days = 1_577_808_000_000_000;
    let s = 1_538_323_200_000_000;
    let far = record(2000, 0, Write, 1 << 50, 512);
    let fio = [
        record(0, 0, Write, 0, 65536),
        record(500, 0, Read, 4096, 4096),
        record(500, 0, Trim, 65536, 1 << 20),
        far,
    ];
    let sys = 1_455_523_261_000_000;
    let expected: [(&str, Vec<Record>); 7] = [
        ("fio-v2.log", fio.to_vec()),
        ("fio-v3.log", fio.map(|fio| Record { at_ns: fio.at_ns + 100_000, ..fio }).to_vec()),
        (
            "blkparse.txt",
            vec![
                record(0, 0, Write, 1 << 20, 65536),
                Record { at_ns: 1_000_500, ..record(0, 0, Read, 2 << 20, 4096) },
                record(1500, 1, Read, 2 << 20, 4096),
                record(2000, 0, Trim, 4 << 20, 1 << 20),
                record(3000, 0, Write, 8 << 20, 4096),
            ],
        ),
        (
            "msr.csv",
            vec![
                record(first, 0, Write, 0, 65536),
                record(first + 500, 0, Read, 4096, 4096),
                record(first + 400, 1, Write, gib, 8192),
                record(first + 2000, 0, Write, 1 << 40, 512),
            ],
        ),
        (
            "alibaba.csv",
            vec![
                record(days + 100, 0, Write, 0, 65536),
                record(days + 600, 0, Read, 4096, 4096),
                record(days + 700, 1, Write, gib, 8192),
                record(days + 2100, 0, Write, 1 << 40, 512),
            ],
        ),
        (
            "tencent.csv",
            vec![
                record(s, 0, Write, 0, 65536),
                record(s, 0, Read, 4096, 4096),
                record(s + 1_000_000, 1, Write, gib, 8192),
                record(s + 2_000_000, 0, Write, 1 << 40, 512),
            ],
        ),
        (
            "systor.csv",
            vec![
                record(sys + 100, 0, Write, 0, 65536),
                record(sys + 600, 0, Read, 4096, 4096),
                record(sys + 700, 1, Write, gib, 8192),
                record(sys + 2100, 0, Write, 1 << 40, 512),
            ],
        ),
    ];
    for (name, expected) in expected {
        let text = std::fs::read(fixture(name)).expect("a fixture");
        let (found, bad) = records(text, &Trace::default()).expect(name);
        assert_eq!((found, bad), (expected, 0), "{name}");
    }
}

#[test]
fn trace_compression_is_known_by_first_bytes() {
    let text = std::fs::read(fixture("msr.csv")).expect("a fixture");
    let plain = records(text.clone(), &Trace::default()).expect("plain").0;
    let (one, two) =
        text.split_at(text.iter().position(|byte| *byte == b'\n').expect("a head") + 1);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("in memory");
        encoder.finish().expect("in memory")
    };
    // Members and frames one after the other, as parallel compressors write them.
    let members = [gzip(one), gzip(two)].concat();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).expect("in memory");
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &zstd(two)].concat();
    let frames = [zstd(one), skippable.clone()].concat();
    for compressed in [gzip(&text), members.clone(), zstd(&text), frames] {
        assert_eq!(records(compressed, &Trace::default()).expect("compressed").0, plain);
    }
    let wanted = Trace { format: Some(Format::Msr), ..Trace::default() };
    assert_eq!(records(skippable, &wanted).expect("compressed").0, plain);
    let torn = members[..members.len() - 9].to_vec();
    assert!(matches!(records(torn, &Trace::default()), Err(SimError::Io { .. })));
}

#[test]
fn trace_line_unreadable_is_named_or_counted() {
    for (text, said) in [
        ("", "it, line 1: of no known format"),
        ("hello\n", "it, line 1: of no known format"),
        ("fio version 9 iolog\n", "line 1: \"fio version 9 iolog\" is no"),
        ("fio version 2 iolog\nf write 1\n", "line 2: the length is missing"),
        ("fio version 2 iolog\nf write 1 -1\n", "line 2: \"-1\" is no length"),
        ("fio version 2 iolog\n\nf fly 1 1\n", "line 3: \"fly\" is no action"),
        ("fio version 3 iolog\n99999999999999999999 f add\n", "is no time"),
        ("fio version 3 iolog\n9999999999999999999 f write 0 1\n", "beyond 2^64 ns"),
        ("1,W,0,1,1\n1,W,9223372036854775807,1,1\n", "line 2: it ends beyond"),
        ("1,W,0,1,1\n1,X,0,1,1\n", "line 2: \"X\" is not R or W"),
        ("1,W,0,1,1\n1,W,0,1\n", "line 2: fewer than 5 columns"),
        ("1,W,0,1,1\n1,W,0,1,1,1\n", "line 2: more than 5 columns"),
        ("1,a,0,Read,0,1,1\n1,a,0,Reed,0,1,1\n", "line 2: \"Reed\" is not"),
        ("1.5,,R,0,0,512\n1.6,,R,0,0\n", "line 2: fewer than 6 columns"),
        ("1.5,,R,0,0,512\n1.6,,T,0,0,512\n", "line 2: \"T\" is not R or W"),
        ("ZONTRACE and then nothing", "it: no header"),
        ("1.5,0,1,1,9\n1..5,0,1,1,9\n", "line 2: \"1..5\" is no time in seconds"),
        ("8,0 1 1 0.0 7 Q W 8 + 8 [a]\n8 1\n", "line 2: no device"),
        ("8,0 1 1 0.0 7 Q W 8 + 8 [a]\n8,0 1 1 0.0 7 Q W 8\n", "line 2: no sector + count"),
    ] {
        assert!(refused(text).contains(said), "{text:?}: {}", refused(text));
    }
    let skip = Trace { bad_lines: BadLines::Skip, ..Trace::default() };
    let long = format!("1,W,0,512,1\n{}\nnonsense\n1,W,512,512,2\n", "x".repeat(200_000));
    let (found, bad) = records(long.clone(), &skip).expect("bad lines are passed over");
    assert_eq!((found.len(), bad), (2, 2));
    assert!(refused(&long).contains("it, line 2: longer than 64 KiB"));
    let (_, bad) = records(&b"1,W,0,512,1\n\xff\xfe\n"[..], &skip).expect("passed over");
    assert_eq!(bad, 1);
    // The last line may lack its end.
    assert_eq!(records("1,W,0,512,1\n1,W,0,512,1", &skip).expect("read").0.len(), 2);
}

#[test]
fn trace_volume_is_selected_of_several() {
    for (name, volume, count) in [
        ("msr.csv", "lab_1", 1),
        ("msr.csv", "lab_0", 3),
        ("alibaba.csv", "7", 1),
        ("tencent.csv", "1283", 3),
        ("systor.csv", "4", 3),
        ("blkparse.txt", "259,2", 1),
        ("msr.csv", "lab", 0),
    ] {
        let options = Trace { volume: volume.to_owned(), ..Trace::default() };
        let text = std::fs::read(fixture(name)).expect("a fixture");
        assert_eq!(records(text, &options).expect(name).0.len(), count, "{name} {volume}");
    }
}

#[test]
fn trace_blkparse_events_are_detected() {
    let text = std::fs::read_to_string(fixture("blkparse.txt")).expect("a fixture");
    let without = text.lines().filter(|line| !line.contains(" Q ")).collect::<Vec<_>>().join("\n");
    let format = Format::detect(without.as_bytes());
    assert_eq!(format, Some(Format::Blkparse(Event::Issued)));
    let (found, _) = records(without, &Trace::default()).expect("read");
    assert_eq!(found, [record(4, 0, Op::Write, 1 << 20, 65536)]);
    for (name, format) in Format::ALL {
        assert_eq!((name.parse(), format.to_string()), (Ok(format), name.to_owned()));
    }
}

/// A drive of 96 superblocks of 384 KiB that replays this text.
fn replayed(text: &str, options: &str) -> Result<(Vec<Request>, Option<Seen>)> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("written");
    let path = file.path().display();
    let config = Config::parse(&format!(
        "[flash]\nchannels = 2\ndies_per_channel = 1\nprograms_per_block = 2\nsuperblocks = 96\n\
         [drive]\nkind = \"fdp\"\nuser = \"16MiB\"\n\
         [workload]\nkind = \"trace\"\ntrace = \"{path}\"\n[trace]\n{options}"
    ))?;
    assert_eq!(config.workload.kind, Pattern::Trace);
    let mut workload = load::build(&config, &config.layout()?)?;
    let (mut all, mut batch) = (Vec::new(), Vec::with_capacity(7));
    while all.len() < 1000 {
        workload.fill(&mut batch)?;
        all.extend_from_slice(&batch);
        if batch.is_empty() {
            break;
        }
    }
    for request in &all {
        assert!(request.bytes > 0 && request.offset + u64::from(request.bytes) <= 16 << 20);
    }
    Ok((all, workload.seen()))
}

fn offsets(requests: &[Request]) -> Vec<(u64, u32)> {
    requests.iter().map(|request| (request.offset, request.bytes)).collect()
}

#[test]
fn trace_addresses_fit_on_drive() {
    let text = "a,W,1099511627776,8192,0\nb,W,1099511627776,512,1\na,W,1050624,4096,2\n\
                a,R,1099511629824,1048576,3\n";
    let (compact, seen) = replayed(text, "loops = 1").expect("replayed");
    let kib = |kib: u64| kib << 10;
    assert_eq!(
        offsets(&compact),
        [
            (0, 8192),
            (kib(1024), 512),
            // The second volume's region, and then the third: 1050624 is 2 KiB into its region.
            (kib(2048) + 2048, 4096),
            // Over the end of a region: the rest is in the next new one.
            (2048, (1 << 20) - 2048),
            (kib(3072), 2048),
        ]
    );
    assert_eq!(compact.iter().map(|request| request.handle).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
    let seen = seen.expect("a trace");
    assert_eq!((seen.requests, seen.reads, seen.read_bytes), (4, 1, 1 << 20));
    assert_eq!((seen.reached_bytes, seen.shared, seen.loops), (4 << 20, 0, 1));
    let text = "a,W,16777215,2,0\na,W,33554432,512,0\n";
    let (modulo, _) = replayed(text, "fit = \"modulo\"\nloops = 1").expect("replayed");
    assert_eq!(offsets(&modulo), [((16 << 20) - 1, 1), (0, 1), (0, 512)]);
    // 20 regions in 16.
    let lines: Vec<String> = (0..20).map(|mib| format!("a,W,{},512,0", mib << 20)).collect();
    let text = lines.join("\n");
    let (_, seen) = replayed(&text, "loops = 1").expect("replayed");
    let seen = seen.expect("a trace");
    assert_eq!((seen.reached_bytes, seen.shared, seen.touched_bytes), (16 << 20, 4, 20 << 20));
    let (_, seen) = replayed(&text, "fit = \"modulo\"\nloops = 1").expect("replayed");
    let seen = seen.expect("a trace");
    assert_eq!((seen.reached_bytes, seen.shared, seen.touched_bytes), (0, 0, 20 << 20));
}

#[test]
fn trace_times_follow_speed_and_loops() {
    let text = "a,W,0,512,5000\na,W,512,512,5010\na,W,0,512,5005\na,W,0,512,5040\n";
    let times = |options: &str| -> Vec<u64> {
        let (requests, _) = replayed(text, options).expect("replayed");
        requests.iter().map(|request| request.at_ns).collect()
    };
    assert_eq!(times("loops = 1"), [0, 10_000, 10_000, 40_000]);
    assert_eq!(times("loops = 1\nspeed = 4"), [0, 2500, 2500, 10_000]);
    assert_eq!(times("loops = 1\nspeed = 0.5"), [0, 20_000, 20_000, 80_000]);
    assert_eq!(times("loops = 1\ntimes = \"closed\""), [0, 0, 0, 0]);
    assert_eq!(times("loops = 2")[4..], [40_000, 50_000, 50_000, 80_000]);
    // As often as it takes.
    assert_eq!(replayed(text, "").expect("replayed").1.map(|seen| seen.loops), Some(251));
    let (_, seen) = replayed(&format!("{text}?\n"), "loops = 3\nbad_lines = \"skip\"").expect("ok");
    assert_eq!(seen.map(|seen| (seen.bad_lines, seen.requests)), Some((3, 12)));
}

/// Simulated seconds of a timed replay: 200 writes, one each millisecond.
fn seconds(options: &str, run: &str) -> f64 {
    let lines: Vec<String> =
        (0..200).map(|ms| format!("a,W,{},4096,{}", ms << 12, 7_000_000 + ms * 1000)).collect();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), lines.join("\n")).expect("written");
    let path = file.path().display();
    let config = Config::parse(&format!(
        "[flash]\nchannels = 2\ndies_per_channel = 1\nprograms_per_block = 2\nsuperblocks = 96\n\
         [drive]\nuser = \"16MiB\"\n[workload]\nkind = \"trace\"\ntrace = \"{path}\"\n\
         [trace]\n{options}\n[run]\nmode = \"timed\"\n{run}"
    ));
    let outcome = crate::timed::run(&config.expect("a config")).expect("runs").outcome;
    assert!(outcome.written_bytes > 0);
    outcome.seconds
}

#[test]
fn trace_timed_replay_keeps_its_times() {
    let once = "drive_writes = 9\nwarm_up = 0";
    let near = |seconds: f64, wanted: f64| (seconds / wanted - 1.0).abs() < 0.05;
    let own = seconds("loops = 1", once);
    assert!(near(own, 0.199), "{own}");
    let fast = seconds("loops = 1\nspeed = 4", once);
    assert!(near(fast, 0.199 / 4.0), "{fast}");
    let closed = seconds("loops = 1\ntimes = \"closed\"", once);
    assert!(closed < 0.02, "{closed}");
    // After a warm-up the clock begins with the first request that is left: 1024 writes are 5 loops
    // of the trace and a bit, of 199 ms each, without the time of the counted requests.
    let later = seconds("", "drive_writes = 0.5\nwarm_up = 0.25");
    assert!(near(later, 0.25 * 4096.0 / 200.0 * 0.199), "{later}");
}

#[test]
fn trace_leading_nowhere_is_refused() {
    for (text, options, said) in [
        ("a,R,0,512,0\n", "", "line 2: the trace ends and writes nothing"),
        ("a,R,0,512,0\n", "volume = \"b\"", "without a request of volume b"),
        ("fio version 2 iolog\n", "", "the trace ends without a request"),
    ] {
        let error = replayed(text, options).expect_err(text).to_string();
        assert!(error.contains(said), "{error}");
    }
    let config = Config::parse("[workload]\nkind = \"trace\"").expect("a config");
    let layout = config.layout().expect("a layout");
    let error = load::build(&config, &layout).err().expect("no path").to_string();
    assert!(error.contains("workload.trace"), "{error}");
}

proptest::proptest! {
    /// Any bytes, under any format, end in requests or in an error: no panic, and no request
    /// beyond 2^63.
    #[test]
    fn trace_readers_survive_any_bytes(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        lines in proptest::collection::vec("[0-9RWQDC,. +a-z]{0,60}", 0..8),
        format in 0..Format::ALL.len(),
    ) {
        let options = Trace {
            format: Some(Format::ALL[format].1),
            bad_lines: BadLines::Skip,
            ..Trace::default()
        };
        for source in [bytes.clone(), lines.join("\n").into_bytes(), [
            b"fio version 3 iolog\n".to_vec(), lines.join("\n").into_bytes()].concat()]
        {
            if let Ok((records, _)) = records(source.clone(), &options) {
                for record in records {
                    proptest::prop_assert!(record.bytes > 0);
                    proptest::prop_assert!(record.offset + record.bytes < 1 << 63);
                }
            }
            let _ = records(source, &Trace::default());
        }
    }
}
