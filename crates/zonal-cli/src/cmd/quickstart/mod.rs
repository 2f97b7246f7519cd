//! `zonal quickstart`: everything once, on this machine, in under a minute.
//!
//! Creates a drive, makes a file system, mounts it, copies a real tree into it, runs a database,
//! git, SQLite and Python on it, unmounts, checks, mounts again and compares every byte. Without
//! /dev/fuse the same work runs on the file system as a library.

mod plan;
mod programs;
mod report;
mod session;
mod stop;
mod verify;
mod volume;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;
use zonal::file::{CreateOptions, FileDrive};
use zonal::profile::Changes;
use zonal::{ByteCount, Profile, SystemClock};
use zonal_fs::furrow::{self, DataCheck, MkfsOptions, Overwrite};
use zonal_fuse::unmount::detach;

use self::plan::Plan;
use self::programs::PROGRAMS;
use self::report::Story;
use self::session::{Session, Way};
use self::stop::Stop;
use self::verify::Sums;
use crate::args::{Global, Quickstart};
use crate::cmd::mkfs;
use crate::device::{self, OpenMode};

/// Room on the drive beside the tree: what the programs write, and what a file system keeps.
const ROOM_BYTES: u64 = 2 << 30;

/// How long, and how often at most, the database commits.
const DATABASE_TIME: Duration = Duration::from_secs(4);
const DATABASE_TRANSACTIONS: u64 = 1000;

/// Small files that come and go.
const MAILS: u64 = 3000;

/// Runs it all; on failure or ^C nothing stays behind.
pub(crate) fn run(global: &Global, args: &Quickstart) -> Result<()> {
    let stop = Stop::on_signals()?;
    let place = Place::new(args.place.as_deref())?;
    let outcome =
        Plan::new(args.dir.as_deref()).and_then(|plan| story(global, args, &plan, &place, &stop));
    if outcome.is_err() {
        place.clear();
        // An operation that ^C broke off fails with an error of its own.
        stop.check()?;
    }
    outcome
}

fn story(
    global: &Global,
    args: &Quickstart,
    plan: &Plan,
    place: &Place,
    stop: &Stop,
) -> Result<()> {
    let way = place.way(args);
    let mut story = Story::new(global, plan, &place.drive, &way);
    story.step("create and format", || {
        create(&place.drive, plan, args)?;
        Ok(String::new())
    })?;
    let session = story.step_with(way.opening(), || {
        Session::start(&place.drive, &way).map(|session| (session, String::new()))
    })?;
    let copied = copy(&mut story, plan, &session, stop)?;
    work(&mut story, &session, stop)?;
    let before = scan(&mut story, ("read all, checksums", 0), &session, stop)?;
    compare("the copy and its source", &copied, &tree_of(&before))?;
    let counts = story.step_with(way.closing(), || {
        session.end().map(|counts| (counts, "the drive is clean".to_owned()))
    })?;
    story.step("check", || check(&place.drive))?;
    stop.check()?;
    let session = story.step_with("open again", || {
        Session::start(&place.drive, &way).map(|session| (session, String::new()))
    })?;
    let after = scan(&mut story, ("verify every byte", verify::totals(&before).1), &session, stop)?;
    session.end()?;
    compare("the tree before and after", &before, &after)?;
    story.finish(&after, &counts, &zones(&place.drive)?)
}

/// Makes the drive and the file system.
fn create(path: &Path, plan: &Plan, args: &Quickstart) -> Result<()> {
    let bytes = plan.bytes.saturating_mul(2).saturating_add(ROOM_BYTES);
    let changes = Changes {
        profile: Profile::ZnsNpo2,
        size: Some(ByteCount::new(bytes)),
        capacity: args.zone_capacity,
        ..Changes::default()
    };
    let shape = CreateOptions {
        geometry: changes.geometry()?,
        rules: Profile::ZnsNpo2.rules(),
        uuid: uuid::Uuid::new_v4().into_bytes(),
        overwrite: zonal::file::Overwrite::Refuse,
    };
    FileDrive::create(path, &shape)?;
    let device = device::open(&path.display().to_string(), OpenMode::ReadWrite)?;
    let options = MkfsOptions {
        label: "quickstart".to_owned(),
        uuid: uuid::Uuid::new_v4().into_bytes(),
        overwrite: Overwrite::Refuse,
        owner: mkfs::user(),
        ..MkfsOptions::default()
    };
    furrow::mkfs(device, &SystemClock::new(), &options, &mut |_| ())
        .with_context(|| format!("making a file system on {}", path.display()))?;
    Ok(())
}

fn copy(story: &mut Story, plan: &Plan, session: &Session, stop: &Stop) -> Result<Sums> {
    let volume = session.volume();
    let bar = Story::bar(plan.bytes, "copy");
    story.timed(
        "copy",
        |seconds, sums: &Sums| report::moved(sums, seconds),
        || {
            work::copy(plan, &*volume, stop, &|bytes| bar.inc(bytes))
                .inspect(|_| bar.finish_and_clear())
        },
    )
}

/// The database, the small files, and the programs.
fn work(story: &mut Story, session: &Session, stop: &Stop) -> Result<()> {
    let volume = session.volume();
    story.timed(
        "database",
        |seconds, done| report::per_second(*done, seconds, "transactions/s, 2 fsyncs each"),
        || work::database(&*volume, DATABASE_TRANSACTIONS, DATABASE_TIME, stop),
    )?;
    story.timed(
        "small files",
        |seconds, done| report::per_second(*done, seconds, "files/s written and renamed"),
        || work::churn(&*volume, MAILS, stop),
    )?;
    let Some(point) = session.mount_point() else { return Ok(()) };
    for program in PROGRAMS {
        stop.check()?;
        if program.is_installed() {
            story.step(program.name, || program.run(point, &point.join(work::TREE)))?;
        } else {
            story.note(program.name, 0.0, "not installed, left out".to_owned());
        }
    }
    Ok(())
}

/// Reads everything; `total` bytes are expected, 0 if nobody knows.
fn scan(
    story: &mut Story,
    (name, total): (&'static str, u64),
    session: &Session,
    stop: &Stop,
) -> Result<Sums> {
    let volume = session.volume();
    let bar = Story::bar(total, name);
    story.timed(
        name,
        |seconds, sums: &Sums| report::moved(sums, seconds),
        || {
            verify::scan(&*volume, stop, &|bytes| bar.inc(bytes))
                .inspect(|_| bar.finish_and_clear())
        },
    )
}

/// The part of a scan that was copied.
fn tree_of(sums: &Sums) -> Sums {
    sums.iter()
        .filter(|(path, _)| path.starts_with(work::TREE))
        .map(|(path, content)| (path.clone(), content.clone()))
        .collect()
}

fn compare(what: &str, expected: &Sums, found: &Sums) -> Result<()> {
    let differences = verify::differences(expected, found);
    if differences.is_empty() {
        return Ok(());
    }
    bail!("{what} differ, which must not happen: {}", differences.join(", "));
}

fn check(drive: &Path) -> Result<String> {
    let device = device::open(&drive.display().to_string(), OpenMode::ReadOnly)?;
    let report = furrow::check(device, DataCheck::Skip, &mut |_| ())
        .with_context(|| format!("checking {}", drive.display()))?;
    match report.problems.first() {
        None => Ok("no problem found".to_owned()),
        Some(problem) => bail!("the check found {}: {}", problem.invariant.id, problem.what),
    }
}

fn zones(drive: &Path) -> Result<Vec<zonal::Zone>> {
    device::report(&device::open(&drive.display().to_string(), OpenMode::ReadOnly)?)
}

/// Where the drive file and the mount point are.
struct Place {
    folder: PathBuf,
    drive: PathBuf,
    mount: PathBuf,
}

impl Place {
    /// A fresh place: what an earlier quickstart left there is removed.
    fn new(folder: Option<&Path>) -> Result<Self> {
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => {
                let user = rustix::process::getuid().as_raw();
                PathBuf::from(format!("/var/tmp/zonal-quickstart-{user}"))
            }
        };
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let folder =
            folder.canonicalize().with_context(|| format!("finding {}", folder.display()))?;
        let place = Self { drive: folder.join("drive.zns"), mount: folder.join("mnt"), folder };
        if place.drive.exists() {
            // Locked while mounted: then this fails, and the mount stays as it is.
            device::open(&place.drive.display().to_string(), OpenMode::ReadWrite)?;
        }
        place.clear();
        fs::create_dir_all(&place.mount)
            .with_context(|| format!("creating {}", place.mount.display()))?;
        Ok(place)
    }

    /// Mounted, if this user can mount here; the reason if not.
    fn way(&self, args: &Quickstart) -> Way {
        if args.no_mount {
            return Way::Library("as asked for".to_owned());
        }
        match cannot_mount() {
            Some(why) => Way::Library(why),
            None => Way::Mount(self.mount.clone()),
        }
    }

    /// Removes the drive, the mount point, and the folder if nothing else is in it.
    fn clear(&self) {
        // Each of these may be absent; what cannot be removed will be named by the next step.
        let _ = detach(&self.mount, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.mount);
        for ending in ["zns", "log", "counts.json"] {
            let _ = fs::remove_file(self.drive.with_extension(ending));
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Why this user cannot mount here, if so.
fn cannot_mount() -> Option<String> {
    const FUSE: &str = "/dev/fuse";
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(FUSE) {
        return Some(match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no {FUSE} here"),
            _ => format!("{FUSE} cannot be opened: {error}"),
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper = std::env::split_paths(&path).any(|folder| folder.join("fusermount3").is_file());
    if helper || rustix::process::geteuid().is_root() {
        return None;
    }
    Some("to mount as an ordinary user, install the package fuse3".to_owned())
}
