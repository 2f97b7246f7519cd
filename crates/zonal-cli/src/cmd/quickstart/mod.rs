//! `zonal quickstart`: everything once, on this machine, in under a minute.
//!
//! Creates a drive, makes a file system, mounts it, copies a real tree into it, runs a database,
//! git, SQLite and Python on it, unmounts, checks, mounts again and compares every byte. Without
//! /dev/fuse the same work runs on the file system as a library.

mod place;
mod plan;
mod programs;
pub(crate) mod report;
mod session;
mod stop;
mod verify;
mod volume;
mod work;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use zonal::file::{CreateOptions, FileDrive};
use zonal::profile::Changes;
use zonal::{ByteCount, Profile, SystemClock};
use zonal_fs::furrow::{self, DataCheck, MkfsOptions, Overwrite};

use self::place::Place;
use self::plan::Plan;
use self::programs::PROGRAMS;
use self::report::Story;
use self::session::Session;
use self::stop::Stop;
use self::verify::Sums;
use crate::args::{Global, Quickstart};
use crate::cmd::mkfs;
use crate::device::{self, OpenMode};
use crate::{interrupt, output};

/// Room on the drive in addition to the tree: for the programs, and for the file system itself.
const ROOM_BYTES: u64 = 2 << 30;

/// How long, and how often at most, the database commits.
const DATABASE_TIME: Duration = Duration::from_secs(4);
const DATABASE_TRANSACTIONS: u64 = 1000;

/// Number of small files that are made, moved and removed.
const MAILS: u64 = 3000;

/// Runs all of it; after a failure, ^C or a closed pipe it removes all that it made.
pub(crate) fn run(global: &Global, args: &Quickstart) -> Result<()> {
    let stop = Stop::on_signals()?;
    // Messages without a reader must not end it half-way.
    interrupt::note_server();
    let plan = Plan::new(args.dir.as_deref())?;
    let place = Place::new(args)?;
    let outcome = story(global, args, &plan, &place, &stop);
    if let Err(error) = &outcome {
        place.clear();
        output::end_if_unread(error);
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
    let way = &place.way;
    let mut story = Story::new(global, plan, place)?;
    story.step("create and format", || {
        create(&place.drive, plan, args)?;
        Ok(String::new())
    })?;
    let session = story.step_with(way.opening(), || {
        Session::start(place).map(|session| (session, String::new()))
    })?;
    let copied = copy(&mut story, plan, &session, stop)?;
    work(&mut story, &session, stop)?;
    let before = scan(&mut story, "read all, checksums", 0, &session, stop)?;
    compare("the copy and its source", &copied, &tree_of(&before))?;
    let counts = story.step_with(way.closing(), || {
        session.end().map(|counts| (counts, "the drive is clean".to_owned()))
    })?;
    story.step("check", || check(&place.drive))?;
    stop.check()?;
    let session = story.step_with("open again", || {
        Session::start(place).map(|session| (session, String::new()))
    })?;
    let after = scan(&mut story, "verify every byte", verify::totals(&before).1, &session, stop)?;
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
        // The file is the empty one that this run has made.
        overwrite: zonal::file::Overwrite::Replace,
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
            story.note(program.name, 0.0, "not installed, left out".to_owned())?;
        }
    }
    Ok(())
}

/// Reads everything; `total` is the expected number of bytes, 0 if it is unknown.
fn scan(
    story: &mut Story,
    name: &'static str,
    total: u64,
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
