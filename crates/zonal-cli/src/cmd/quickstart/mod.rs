//! `zonal quickstart`: everything once, on this machine, in under a minute.
//!
//! Creates a drive, makes a file system, mounts it, copies a real tree into it, runs a database,
//! git, SQLite and Python on it, unmounts, checks, mounts again and compares every byte. Without
//! /dev/fuse the same work runs on the file system as a library.

mod place;
mod plan;
mod programs;
pub(crate) mod report;
mod tree;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use zonal::file::{CreateOptions, FileDrive};
use zonal::profile::Changes;
use zonal::{ByteCount, Profile, SystemClock, ZonedDevice};
use zonal_fs::furrow::stats::Traffic;
use zonal_fs::furrow::{self, DataCheck, Furrow, MkfsOptions, MountOptions, Overwrite};
use zonal_fs::volume::{Volume, VolumeOptions};
use zonal_fuse::daemon;
use zonal_fuse::unmount::unmount_and_wait;

use self::place::Place;
use self::plan::Plan;
use self::report::Story;
use self::tree::{Sums, Tree};
use crate::args::{Global, Quickstart};
use crate::cmd::mkfs;
use crate::device::{self, OpenMode};
use crate::{interrupt, output};

/// Directory that the tree is copied to.
const TREE: &str = "tree";

/// Room on the drive in addition to the tree: for the programs, and for the file system itself.
const ROOM_BYTES: u64 = 2 << 30;

/// How long the drive may take to become clean.
const UNMOUNT_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs all of it; after a failure, ^C or a closed pipe it removes all that it made.
pub(crate) fn run(global: &Global, args: &Quickstart) -> Result<()> {
    interrupt::hold()?;
    let plan = Plan::new(args.dir.as_deref())?;
    let place = Place::new(args)?;
    let outcome = story(global, args, &plan, &place);
    if let Err(error) = &outcome {
        place.clear();
        output::end_if_unread(error);
        // An operation that ^C broke off fails with an error of its own.
        ensure!(!interrupt::is_pending(), "stopped on request");
    }
    outcome
}

fn story(global: &Global, args: &Quickstart, plan: &Plan, place: &Place) -> Result<()> {
    let (opening, closing) = match place.mount {
        Ok(_) => ("mount", "unmount"),
        Err(_) => ("open", "close"),
    };
    let mut story = Story::new(global, plan, place)?;
    story.plain("create and format", "", || create(&place.drive, plan, args))?;
    let session = story.plain(opening, "", || Session::start(place))?;
    let tree = &session.tree;
    let copy = |bar: &_| {
        tree.make_dir(Path::new(TREE))?;
        Tree::new(&plan.source, None).read(&plan.entries, Some(&tree.below(TREE)), bar)
    };
    let copied = story.step("copy", plan.bytes, copy, report::moved)?;
    work(&mut story, tree, place)?;
    let before = story.step("read all, checksums", 0, |bar| tree.sums(bar), report::moved)?;
    let in_tree = before.iter().filter_map(|(path, sum)| {
        let path = path.strip_prefix(TREE).ok().filter(|path| !path.as_os_str().is_empty())?;
        Some((path.to_owned(), sum.clone()))
    });
    tree::compare("the copy and its source", &copied, &in_tree.collect::<Sums>())?;
    let traffic = story.plain(closing, "the drive is clean", || session.end(place))?;
    story.plain("check", "no problem found", || check(&place.drive))?;
    let session = story.plain("open again", "", || Session::start(place))?;
    let (_, bytes) = tree::totals(&before);
    let after =
        story.step("verify every byte", bytes, |bar| session.tree.sums(bar), report::moved)?;
    session.end(place)?;
    tree::compare("the tree before and after", &before, &after)?;
    story.finish(&after, &traffic, &device::report(&*open(&place.drive, OpenMode::ReadOnly)?)?)
}

fn open(drive: &Path, mode: OpenMode) -> Result<Arc<dyn ZonedDevice>> {
    device::open(&drive.display().to_string(), mode)
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
    let options = MkfsOptions {
        label: "quickstart".to_owned(),
        uuid: uuid::Uuid::new_v4().into_bytes(),
        overwrite: Overwrite::Refuse,
        owner: mkfs::user(),
        ..MkfsOptions::default()
    };
    let device = open(path, OpenMode::ReadWrite)?;
    furrow::mkfs(device, &SystemClock::new(), &options, &mut |_| ())
        .with_context(|| format!("making a file system on {}", path.display()))?;
    Ok(())
}

/// The file system in use.
struct Session {
    tree: Tree,
    /// Without a mount.
    library: Option<(Arc<Furrow>, Volume)>,
}

impl Session {
    /// Mounts it as users do, by another process: in one, both would wait for each other.
    fn start(place: &Place) -> Result<Self> {
        let Ok(point) = &place.mount else {
            let device = open(&place.drive, OpenMode::ReadWrite)?;
            let clock = Arc::new(SystemClock::new());
            let fs = Furrow::mount(device, clock, MountOptions::default())
                .with_context(|| format!("opening the file system on {}", place.drive.display()))?;
            let fs = Arc::new(fs);
            let volume = Volume::new(Arc::clone(&fs) as _, &VolumeOptions::default());
            let tree = Tree::new("/", Some(volume.clone()));
            return Ok(Self { tree, library: Some((fs, volume)) });
        };
        let mut command = daemon::this_program("zonal");
        command.args(["mount", "--foreground", "--log"]).arg(place.log());
        command.arg("--counts").arg(place.counts()).arg(&place.drive).arg(point);
        daemon::spawn(&mut command).with_context(|| format!("mounting at {}", point.display()))?;
        Ok(Self { tree: Tree::new(point, None), library: None })
    }

    /// Makes everything durable, unmounts, and returns the traffic of this session.
    fn end(self, place: &Place) -> Result<Traffic> {
        if let Some((fs, volume)) = self.library {
            volume.close()?;
            return Ok(fs.live().since_mount);
        }
        if let Ok(point) = &place.mount {
            unmount_and_wait(point, UNMOUNT_TIMEOUT)?;
        }
        let counts = place.counts();
        Traffic::load(&counts).with_context(|| format!("reading {}", counts.display()))
    }
}

/// The database, the small files, and the programs.
fn work(story: &mut Story<'_>, tree: &Tree, place: &Place) -> Result<()> {
    story.step(
        "database",
        0,
        |_| work::database(tree),
        |done, seconds| report::per_second(*done, seconds, "transactions/s, 2 fsyncs each"),
    )?;
    story.step(
        "small files",
        0,
        |_| work::churn(tree),
        |done, seconds| report::per_second(*done, seconds, "files/s written and renamed"),
    )?;
    let Ok(point) = &place.mount else { return Ok(()) };
    for (name, script) in programs::PROGRAMS {
        let run = |_: &_| {
            if place::is_installed(name) {
                return programs::run(name, script, point);
            }
            Ok("not installed, left out".to_owned())
        };
        story.step(name, 0, run, |note, _| note.clone())?;
    }
    Ok(())
}

fn check(drive: &Path) -> Result<()> {
    let report = furrow::check(open(drive, OpenMode::ReadOnly)?, DataCheck::Skip, &mut |_| ())
        .with_context(|| format!("checking {}", drive.display()))?;
    match report.problems.first() {
        None => Ok(()),
        Some(problem) => bail!("the check found {}: {}", problem.invariant.id, problem.what),
    }
}
