//! The power of a mounted drive fails: `zonal mount "fault(…power-cut):DRIVE"`.
//!
//! A trace above the faults records the requests to the drive. Replayed in memory, it shows which
//! data each zone may hold after the cut. Then the drive is mounted again, and every synced file
//! must be there.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;
use zonal::image::Image;
use zonal::layer::record::{Recorder, Step};
use zonal::layer::trace::{TraceError, TraceReader, replay};
use zonal::{FileDrive, Geometry, OpenMode, ZoneAction, ZoneId, ZonedDevice};
use zonal_fuse::unmount::daemon_of;

const FILES: u8 = 24;

/// Every fourth file is synced.
const FILES_PER_SYNC: u8 = 4;

/// Large enough to be written to the drive without waiting in a buffer.
const FILE_BYTES: usize = 120 << 10;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn zonal(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "zonal {arguments:?}: {output:?}");
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn content_of(number: u8) -> Vec<u8> {
        (0..=u8::MAX).cycle().map(|byte| byte ^ number).take(FILE_BYTES).collect()
    }

    fn mount(&self, device: &str) {
        zonal(&["mount", device, text(&self.path("mnt")), "--log", text(&self.path("log"))]);
    }

    fn file(&self, number: u8) -> PathBuf {
        self.path("mnt").join(format!("file {number}"))
    }

    /// Whether the kernel passes syncfs(2) on.
    fn passes_syncfs(&self) -> bool {
        let found = zonal::mounts::all().unwrap();
        let mount = found.iter().find(|mount| mount.point == self.path("mnt")).unwrap();
        mount.kind == "fuseblk.furrow"
    }

    /// Writes files until the drive fails. Returns how many were synced.
    fn write_files(&self, sync: fn(&File) -> io::Result<()>) -> u8 {
        let mut synced = 0;
        for number in 0..FILES {
            let write = || -> io::Result<bool> {
                let mut file = File::create(self.file(number))?;
                file.write_all(&Self::content_of(number))?;
                let syncs = number % FILES_PER_SYNC == FILES_PER_SYNC - 1;
                if syncs {
                    sync(&file)?;
                }
                Ok(syncs)
            };
            match write() {
                Ok(true) => synced = number + 1,
                Ok(false) => {}
                Err(_) => return synced,
            }
        }
        panic!("the power was not cut");
    }

    /// The requests to the drive, from its beginning to the cut.
    fn given(&self) -> Recorder {
        let open = |name: &str| TraceReader::open(self.path(name)).unwrap();
        let mut mkfs = open("mkfs.trace");
        let recorder = Recorder::new(Image::empty(&Geometry::new(*mkfs.geometry()).unwrap()));
        replay(&mut mkfs, &recorder).unwrap();
        // The write at which the power was cut failed, but the drive may have performed it.
        let outcome = replay(&mut open("mount.trace"), &recorder);
        assert!(matches!(outcome, Err(TraceError::Different { .. })), "{outcome:?}");
        recorder
    }
}

/// The contents that a sequential zone may have after a power cut.
struct Lives {
    /// Its data at the last flush and the writes since, then the writes after each later reset.
    held: Vec<Vec<u8>>,
    /// Bytes of the first entry that were flushed.
    durable: usize,
}

impl Default for Lives {
    fn default() -> Self {
        Self { held: vec![Vec::new()], durable: 0 }
    }
}

impl Lives {
    fn of_zones(given: Recorder) -> BTreeMap<ZoneId, Self> {
        let mut zones = BTreeMap::<ZoneId, Self>::new();
        for step in given.finish().steps {
            match step {
                Step::Store { zone, data, .. } => {
                    zones.entry(zone).or_default().held.last_mut().unwrap().extend(&*data);
                }
                Step::Manage { zone, action: ZoneAction::Reset } => {
                    zones.entry(zone).or_default().held.push(Vec::new());
                }
                Step::Manage { .. } | Step::Deallocate { .. } => {}
                Step::Flush => {
                    for lives in zones.values_mut() {
                        lives.held.drain(..lives.held.len() - 1);
                        lives.durable = lives.held[0].len();
                    }
                }
            }
        }
        zones
    }

    fn can_leave(&self, found: &[u8]) -> bool {
        let mut held = self.held.iter();
        let first = held.next().unwrap();
        (found.len() >= self.durable && first.starts_with(found))
            || held.any(|later| later.starts_with(found))
    }
}

/// Cuts the power at a write. Returns how many zones have lost data.
fn cut_at(write: usize) -> usize {
    let place = Place { folder: tempfile::tempdir().unwrap() };
    let drive = place.path("drive.zns");
    let (drive, dir) = (text(&drive), place.path("mnt"));
    fs::create_dir(&dir).unwrap();
    zonal(&["create", drive, "--zones", "40", "--zone-size", "1MiB"]);
    let traced = |trace| format!("trace({},data):", text(&place.path(trace)));
    zonal(&["mkfs", &format!("{}{drive}", traced("mkfs.trace"))]);
    let rules = format!("write,nth={write},power-cut;seed={write}");
    place.mount(&format!("{}fault({rules}):{drive}", traced("mount.trace")));
    // Two calls with the same promise, where the kernel passes both on.
    let sync: fn(&File) -> io::Result<()> = if write.is_multiple_of(2) && place.passes_syncfs() {
        |file| Ok(rustix::fs::syncfs(file)?)
    } else {
        File::sync_all
    };
    let synced = place.write_files(sync);
    let daemon = Pid::from_raw(daemon_of(&dir).unwrap().cast_signed()).unwrap();
    let ended = pidfd_open(daemon, PidfdFlags::empty()).unwrap();
    // Without --force the unmount fails, since the drive cannot be synced.
    zonal(&["umount", "--force", text(&dir)]);
    poll(&mut [PollFd::new(&ended, PollFlags::IN)], None).unwrap();

    let mut lost = 0;
    let left = FileDrive::open(drive, OpenMode::ReadOnly).unwrap();
    for (zone, lives) in Lives::of_zones(place.given()) {
        let written = left.zone(zone).unwrap().written().unwrap();
        let mut found = vec![0; usize::try_from(left.geometry().bytes(written).get()).unwrap()];
        left.read(left.geometry().zone_start(zone), &mut found).unwrap();
        assert!(lives.can_leave(&found), "write {write}, zone {zone}: {written} blocks");
        lost += usize::from(lives.held.last() != Some(&found));
    }
    drop(left);

    place.mount(drive);
    let mut there = 0;
    for number in 0..FILES {
        match fs::read(place.file(number)) {
            Ok(content) if content == Place::content_of(number) => there = number + 1,
            // A file may exist without the content that was written after its creation.
            Ok(content) if content.is_empty() && there == number => {}
            Ok(content) => panic!("write {write}, file {number}: {} wrong bytes", content.len()),
            Err(_) => {}
        }
        assert!(there == number + 1 || number >= synced, "write {write}: file {number} is lost");
    }
    zonal(&["umount", text(&dir)]);
    zonal(&["check", drive, "--data"]);
    lost
}

#[test]
fn power_cut_under_mount_keeps_synced_data() {
    if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
        println!("SKIP: mounting needs root and /dev/fuse");
        return;
    }
    let lost: Vec<usize> = [1, 4, 6, 9, 11, 14, 17, 20, 22, 25].map(cut_at).to_vec();
    assert!(lost.iter().any(|&zones| zones > 0), "no cut took anything away: {lost:?}");
}
