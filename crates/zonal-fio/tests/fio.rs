//! Debian's fio on drives of ours, with the library as its engine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use zonal::file::{CreateOptions, Overwrite};
use zonal::layer::trace::{TraceReader, replay};
use zonal::profile::Changes;
use zonal::{FileDrive, MemoryDrive, OpenMode, Rules, ZoneCond, ZoneId, ZonedDevice};

/// A drive with zones that are no power of two, of which fio may use less than the whole.
const SHAPE: &str = "zone=3M,capacity=2M,zones=24,conventional=2,open=4,active=4";

/// How a run has ended, and all that fio has printed.
struct Ran {
    is_well: bool,
    text: String,
}

impl Ran {
    #[track_caller]
    fn succeeds(self) -> String {
        assert!(self.is_well, "{}", self.text);
        self.text
    }

    /// It has failed, and says why.
    #[track_caller]
    fn fails_with(&self, why: &str) {
        assert!(!self.is_well, "{}", self.text);
        assert!(self.text.contains(why), "{why}: {}", self.text);
    }
}

struct Place {
    folder: TempDir,
    library: PathBuf,
    /// Set for fio.
    environment: Option<(&'static str, &'static str)>,
}

impl Place {
    /// `None` where there is no fio that the engine knows, after saying so.
    fn new() -> Option<Self> {
        let version = Command::new("fio").arg("--version").output();
        let Ok(version) = version else {
            println!("SKIP: there is no fio");
            return None;
        };
        let version = String::from_utf8(version.stdout).unwrap();
        if let Err(error) = zonal_fio::abi::release(version.trim()) {
            println!("SKIP: {error}");
            return None;
        }
        // cargo puts the library next to the tests.
        let test = std::env::current_exe().unwrap();
        let library = test.parent().unwrap().join("libzonal_fio.so");
        Some(Self { folder: tempfile::tempdir().unwrap(), library, environment: None })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn create(&self, shape: &str) {
        let options = CreateOptions {
            geometry: shape.parse::<Changes>().unwrap().geometry().unwrap(),
            rules: Rules::Zns,
            uuid: [1; 16],
            overwrite: Overwrite::Replace,
        };
        FileDrive::create(self.path("drive.zns"), &options).unwrap();
    }

    fn drive(&self) -> FileDrive {
        FileDrive::open(self.path("drive.zns"), OpenMode::ReadWrite).unwrap()
    }

    /// Runs fio on a device, with options that stand in one text.
    fn fio(&self, device: &str, options: &str) -> Ran {
        self.fio_on(&device.replace(':', "\\:"), options)
    }

    /// The same with the device as fio wants it.
    fn fio_on(&self, filename: &str, options: &str) -> Ran {
        let engine = format!("--ioengine=external:{}", self.library.display());
        let device = format!("--filename={filename}");
        let mut command = Command::new("fio");
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.args([&*engine, &device, "--direct=1", "--randseed=1"]);
        command.envs(self.environment);
        let output = command.args(options.split_whitespace()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        Ran { is_well: output.status.success(), text: String::from_utf8(text).unwrap() }
    }
}

/// The number before a word in fio's output.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap();
    before.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn random_writes_verify_on_any_device() {
    let Some(place) = Place::new() else { return };
    place.create(SHAPE);
    let memory = format!("mem:{SHAPE}");
    let host_aware = "mem:profile=host-aware,zone=3M,zones=24,conventional=2";
    let devices = ["drive.zns", "meter:po2:mem:zone=3M,zones=9", &memory, host_aware, "sim:"];
    for device in devices {
        for depth in [1, 16] {
            let options = format!(
                "--zonemode=zbd --name=job --rw=randwrite --bs=16k --size=100% --io_size=12M \
                 --verify=crc32c --iodepth={depth}"
            );
            let text = place.fio(device, &options).succeeds();
            assert!(text.contains("(12.0MiB/"), "{device}: {text}");
        }
    }
}

#[test]
fn verify_finds_changed_bit() {
    let Some(place) = Place::new() else { return };
    place.create(SHAPE);
    let options = "--zonemode=zbd --name=job --rw=write --bs=16k --size=30M --offset=6M \
                   --verify=crc32c --iodepth=4";
    place.fio("fault(read,nth=50,flip):drive.zns", options).fails_with("crc32c");
    place.fio("drive.zns", options).succeeds();
}

#[test]
fn zones_full_are_reset_before_rewrite() {
    let Some(place) = Place::new() else { return };
    place.create("zone=3M,zones=10,open=none,active=none");
    let options = "--zonemode=zbd --name=job --rw=write --bs=64k --size=100% --iodepth=4";
    let first = place.fio("drive.zns", options).succeeds();
    assert_eq!(number_before(&first, " zone resets"), 0, "{first}");
    let zones = place.drive().report_all().unwrap();
    assert!(zones.iter().all(|zone| zone.cond == ZoneCond::Full), "{zones:?}");
    let second = place.fio("drive.zns", options).succeeds();
    assert_eq!(number_before(&second, " zone resets"), 10, "{second}");
}

#[test]
fn open_zones_stay_within_drive_limit() {
    let Some(place) = Place::new() else { return };
    place.create("zone=1M,zones=32,open=2,active=2");
    // One zone more that is active would fail a write.
    let job = "--zonemode=zbd --name=job --rw=randwrite --bs=16k --size=100%";
    place.fio("drive.zns", &format!("{job} --iodepth=8 --verify=crc32c")).succeeds();
    place.fio("drive.zns", &format!("{job} --max_open_zones=3")).fails_with("max_open_zones");
}

#[test]
fn reads_stay_below_write_pointer_by_default() {
    let Some(place) = Place::new() else { return };
    place.create(SHAPE);
    place.drive().append(ZoneId::new(5), &vec![7; 64 << 10]).unwrap();
    let job = "--zonemode=zbd --name=job --rw=randread --bs=16k --io_size=4M --iodepth=4";
    let of_zone = format!("{job} --offset=15M --size=3M");
    place.fio("drive.zns", &format!("{of_zone} --verify=pattern --verify_pattern=7")).succeeds();
    let beyond = place.fio("drive.zns", &format!("{job} --read_beyond_wp=1")).succeeds();
    assert!(beyond.contains("(4096KiB/"), "{beyond}");
    let nothing = place.fio("drive.zns", &format!("{job} --offset=18M --size=3M"));
    assert!(!nothing.text.contains("(4096KiB/"), "{}", nothing.text);
}

#[test]
fn trim_resets_zones_in_every_zone_mode() {
    let Some(place) = Place::new() else { return };
    let write = "--zonemode=zbd --name=job --rw=write --bs=64k --size=100%";
    for mode in ["zbd", "none"] {
        place.create("zone=3M,zones=4,open=none,active=none");
        place.fio("drive.zns", write).succeeds();
        let trim = format!("--zonemode={mode} --name=job --rw=trim --bs=3M --size=6M --iodepth=4");
        place.fio("drive.zns", &trim).succeeds();
        let conds: Vec<_> =
            place.drive().report_all().unwrap().iter().map(|zone| zone.cond).collect();
        let (empty, full) = (ZoneCond::Empty, ZoneCond::Full);
        assert_eq!(conds, [empty, empty, full, full], "{mode}");
    }
    let part = "--name=job --rw=trim --bs=1M --size=3M";
    place.fio("drive.zns", part).fails_with("sequential zones are trimmed as a whole");
}

#[test]
fn sync_flushes_drive_and_fails_job_on_error() {
    let Some(place) = Place::new() else { return };
    let job = "--zonemode=zbd --name=job --rw=write --bs=64k --size=6M --offset=6M";
    for options in ["--fsync=1", "--fdatasync=4 --iodepth=4", "--end_fsync=1"] {
        let options = format!("{job} {options}");
        place.fio(&format!("mem:{SHAPE}"), &options).succeeds();
        let bad = place.fio(&format!("fault(flush,medium):mem:{SHAPE}"), &options);
        bad.fails_with("zonal: syncing: medium error");
    }
}

#[test]
fn jobs_share_drive_as_threads_but_not_processes() {
    let Some(place) = Place::new() else { return };
    // On a drive with limits the first jobs would take all zones that may be open.
    place.create("zone=3M,capacity=2M,zones=24,open=none,active=none");
    let jobs = "--zonemode=zbd --name=job --rw=randwrite --bs=16k --size=15M --offset=6M \
                --offset_increment=15M --numjobs=4 --iodepth=4";
    let text = place.fio("drive.zns", &format!("{jobs} --thread --verify=crc32c")).succeeds();
    assert_eq!(text.matches("err= 0").count(), 4, "{text}");
    // fio lets the jobs do something when all of them have begun.
    let refused = place.fio("drive.zns", jobs);
    refused.fails_with("jobs share a drive as threads: add `thread`");
    let readers = "--zonemode=zbd --name=job --rw=randread --bs=16k --size=60M --offset=6M \
                   --io_size=1M --numjobs=4";
    let text = place.fio("drive.zns", readers).succeeds();
    assert_eq!(text.matches("err= 0").count(), 4, "{text}");
}

#[test]
fn memory_drive_keeps_data_between_threads() {
    let Some(place) = Place::new() else { return };
    let both = "--thread --zonemode=zbd --bs=16k --size=100% --verify=crc32c --iodepth=2";
    let text = place.fio(
        "mem:zone=1M,zones=8",
        &format!("{both} --name=w --rw=write --do_verify=0 --name=r --stonewall --rw=read"),
    );
    let text = text.succeeds();
    assert_eq!(text.matches("(8192KiB/").count(), 2, "{text}");
}

#[test]
fn open_failure_fails_run_with_reason() {
    let Some(place) = Place::new() else { return };
    let job = "--zonemode=zbd --name=job --rw=randwrite --bs=16k --size=100%";
    place.fio("none.zns", job).fails_with("zonal: none.zns: opening none.zns: No such file");
    assert!(!place.path("none.zns").exists());
    place.fio("mem:zoen=3M", job).fails_with("no option \"zoen\"");
    place.fio_on("mem:zones=9", job).fails_with("fio ends a name at a colon: write `\\:`");
    place.create(SHAPE);
    let drive = place.drive();
    let busy = place.fio("drive.zns", job);
    busy.fails_with(&format!("drive.zns is in use by another process, {}", std::process::id()));
    drop(drive);
    std::fs::write(place.path("text"), "no drive").unwrap();
    place.fio("text", job).fails_with("zonal: text: ");
    assert_eq!(std::fs::read(place.path("text")).unwrap(), b"no drive");
}

#[test]
fn file_system_is_kept_from_writing_jobs_without_force() {
    let Some(place) = Place::new() else { return };
    place.create(SHAPE);
    let options = zonal_fs::zonefs::MkfsOptions::default();
    zonal_fs::zonefs::mkfs(&place.drive(), &options, &mut |_| ()).unwrap();
    let job = "--zonemode=zbd --name=job --rw=write --bs=16k --size=30M --offset=6M";
    place.fio("drive.zns", job).fails_with("drive.zns holds zonefs, which the job would destroy");
    let zones = place.drive().report_all().unwrap();
    assert!(zones[2..].iter().all(|zone| zone.cond == ZoneCond::Empty), "{zones:?}");
    let forced = Place { environment: Some(("ZONAL_FIO_FORCE", "1")), ..place };
    forced.fio("drive.zns", job).succeeds();
}

#[test]
fn zone_failure_is_named_beside_request() {
    let Some(place) = Place::new() else { return };
    place.create(SHAPE);
    let job = "--zonemode=zbd --name=job --rw=write --bs=16k --size=30M --offset=6M";
    for depth in [1, 4] {
        let options = format!("{job} --iodepth={depth}");
        let bad = place.fio("fault(write,zone=4,readonly):drive.zns", &options);
        bad.fails_with("Input/output error: write offset=12582912, buflen=16384");
        bad.fails_with("fio: zone 4 is read-only");
    }
    place.fio("drive.zns", job).succeeds();
}

#[test]
fn drive_is_neither_removed_nor_laid_out() {
    let Some(place) = Place::new() else { return };
    place.create(SHAPE);
    let length = |path: &Path| std::fs::metadata(path).unwrap().len();
    let before = length(&place.path("drive.zns"));
    let job = "--zonemode=zbd --name=job --rw=randrw --bs=16k --size=12M --offset=6M --unlink=1 \
               --overwrite=1 --fallocate=posix";
    place.fio("drive.zns", job).succeeds();
    assert_eq!(length(&place.path("drive.zns")), before);
    place.drive();
}

#[test]
fn trace_of_run_is_complete() {
    let Some(place) = Place::new() else { return };
    let job = "--zonemode=zbd --name=job --rw=randwrite --bs=16k --size=100% --iodepth=4";
    for mode in ["", "--thread"] {
        let device = "trace(run.trace):mem:zone=1M,zones=8";
        place.fio(device, &format!("{job} {mode}")).succeeds();
        let path = place.path("run.trace");
        let file = std::fs::File::open(&path).unwrap();
        let mut trace = TraceReader::new(file, &path).unwrap();
        let shape = "zone=1M,zones=8".parse::<Changes>().unwrap().geometry().unwrap();
        let drive = MemoryDrive::new(shape).unwrap();
        assert!(replay(&mut trace, &drive).unwrap().operations >= 512, "{mode}");
        let zones = drive.report_all().unwrap();
        assert!(zones.iter().all(|zone| zone.cond == ZoneCond::Full), "{mode}: {zones:?}");
    }
}
