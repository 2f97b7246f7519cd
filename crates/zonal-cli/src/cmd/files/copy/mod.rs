//! `zonal cp` and `zonal cat`: files between this machine and drives, in every direction.
//!
//! It does as cp(1) of coreutils does, which a test compares; docs/semantics.md has the rules as
//! a table. Two rules differ. A copy of a tree follows no link that stands where it writes, so
//! that it writes nothing outside its target. The command reports each attribute that `-p` cannot
//! keep, and fails.

mod drive;
mod host;
mod share;
mod side;
mod spot;

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use zonal_fs::FsError;
use zonal_fs::vfs::{Access, FileKind};
use zonal_fs::volume::Links;

use self::drive::{Drive, DriveSpot};
use self::host::{HostContent, HostSpot};
use self::share::{Sharing, Way, check_pair};
use self::side::{Side, is_same_device};
use self::spot::{EmptyFile, FileAttributes, FileContent, Spot};
use super::{open, umask};
use crate::advice;
use crate::args::files::{Cat, Copy};
use crate::interrupt;
use crate::output::progress;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Permission bits without setuid, setgid and sticky.
const PERM: u16 = 0o777;

/// The same of directories, whose sticky bit lets users delete only files of their own.
const DIR_PERM: u16 = 0o1777;

/// Setuid and setgid.
const SETID: u16 = 0o6000;

/// Copies.
pub(crate) fn run(args: &Copy) -> Result<()> {
    let target = Side::of(&args.target)?;
    let sources = args.sources.iter().map(|source| Side::of(source)).collect::<Result<Vec<_>>>()?;
    sources.iter().try_for_each(|source| check_pair(source, &target, args.reflink))?;
    let mut copier = Copier::new(args, &target)?;
    let mut last = None;
    for source in &sources {
        if interrupt::is_pending() {
            break;
        }
        if let Err(error) = copier.copy_operand(source) {
            // The command copies the other operands even if one fails.
            if let Some(before) = last.replace(error) {
                copier.report(&before);
            }
        }
    }
    // Files that were copied before a failure stay.
    let (failures, closed) = (copier.failures, copier.close());
    closed?;
    match last {
        Some(error) => Err(error),
        None if failures > 0 => bail!("not everything was copied, or kept: {failures} failures"),
        None => Ok(()),
    }
}

/// Prints contents of files of drives.
pub(crate) fn cat(args: &Cat) -> Result<()> {
    run(&Copy { sources: args.places.clone(), target: "-".into(), ..Copy::default() })
}

/// Where in a copy a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// It is an operand.
    Operand,
    /// It is in a directory that is copied.
    Inside,
}

/// A file, and the place of its copy.
#[derive(Clone, Copy)]
struct Item<'a> {
    from: &'a dyn Spot,
    found: &'a FileAttributes,
    to: &'a dyn Spot,
    /// The file that stands at the place of the copy.
    there: Option<&'a FileAttributes>,
    depth: Depth,
}

struct Copier<'a> {
    args: &'a Copy,
    target: &'a Side,
    /// Drives that are open, by the name under which each was opened.
    drives: Vec<Rc<Drive>>,
    /// First copies of files with several links.
    linked: BTreeMap<(u64, u64), Rc<dyn Spot>>,
    sharing: Sharing,
    /// The directories whose copying has begun, each in the one before.
    above: Vec<(u64, u64)>,
    umask: u16,
    buffer: Vec<u8>,
    bar: ProgressBar,
    /// How many failures the command has reported.
    failures: usize,
}

impl<'a> Copier<'a> {
    fn new(args: &'a Copy, target: &'a Side) -> Result<Self> {
        let (drives, linked, sharing) = (Vec::new(), BTreeMap::new(), Sharing::default());
        let bar = progress::bar(0, progress::Unit::Bytes, "copying");
        let (above, buffer, umask, failures) = (Vec::new(), vec![0; PIECE], umask(), 0);
        let mut copier =
            Self { args, target, drives, linked, sharing, above, umask, buffer, bar, failures };
        if let Side::Drive(place) = target {
            copier.drive(&place.device, Access::ReadWrite)?;
            // A signal stops the copy, and the files that were copied before it become durable.
            interrupt::hold()?;
        }
        Ok(copier)
    }

    fn close(self) -> Result<()> {
        let Self { drives, linked, bar, .. } = self;
        bar.finish_and_clear();
        drop(linked);
        drives.into_iter().try_for_each(|drive| {
            let drive = Rc::into_inner(drive).expect("nothing is copied any more");
            let durable = || format!("making changes of {} durable", drive.device);
            drive.volume.close().with_context(durable)
        })
    }

    /// Reports a failure that does not end the copy.
    fn report(&mut self, error: &anyhow::Error) {
        self.failures += 1;
        self.bar.suspend(|| advice::print(error));
    }

    fn drive(&mut self, device: &str, access: Access) -> Result<Rc<Drive>> {
        let known = self.drives.iter().find(|drive| is_same_device(&drive.device, device));
        if let Some(drive) = known {
            return Ok(Rc::clone(drive));
        }
        let volume = open(device, access)?;
        // No device of this machine has such a number.
        let number = u64::MAX - self.drives.len() as u64;
        let drive = Rc::new(Drive { device: device.to_owned(), volume, number });
        self.drives.push(Rc::clone(&drive));
        Ok(drive)
    }

    fn spot(&mut self, side: &Side) -> Result<Option<Box<dyn Spot>>> {
        Ok(match side {
            Side::Drive(place) => {
                let drive = self.drive(&place.device, Access::ReadOnly)?;
                Some(Box::new(DriveSpot::new(drive, place.path.clone())))
            }
            Side::Here(path) => Some(Box::new(HostSpot::new(path)?)),
            Side::Stream => None,
        })
    }

    fn copy_operand(&mut self, source: &Side) -> Result<()> {
        let from = self.spot(source)?;
        let target = self.target;
        let Some(to) = self.spot(target)? else {
            return self.print_content(&*from.context("from a drive")?);
        };
        let is_directory =
            to.facts(Links::Follow)?.is_some_and(|found| found.kind == FileKind::Directory);
        if !is_directory && self.args.sources.len() > 1 {
            bail!("{} is not a directory", to.shown());
        }
        let Some(from) = from else {
            ensure!(!is_directory, "{} is a directory", to.shown());
            return self.take_content(&*to);
        };
        match source.last_name().filter(|_| is_directory) {
            Some(name) => {
                let to = to.enter(Links::Follow)?.child(name);
                self.copy(&*from, to, Depth::Operand)
            }
            // The root of a drive, or `.`, has no name: its copy is the directory itself.
            None => self.copy(&*from, to, Depth::Operand),
        }
    }

    fn print_content(&mut self, from: &dyn Spot) -> Result<()> {
        let found = facts_of(from, Links::Follow)?;
        ensure!(found.kind != FileKind::Directory, "{} is a directory", from.shown());
        self.copy_content(&mut *from.open(Links::Follow)?, &mut HostContent::stdout()?)
    }

    fn take_content(&mut self, to: &dyn Spot) -> Result<()> {
        let mut input = HostContent::stdin()?;
        let there = to.facts(Links::Keep)?;
        let mut output = writer(to, there.as_ref(), 0o666, Depth::Operand)?;
        self.copy_content(&mut input, &mut *output)
    }

    /// Whether a link that is to be copied is followed.
    fn links(&self, depth: Depth) -> Links {
        let keeps = self.args.no_dereference || self.is_recursive();
        let follows = self.args.dereference || (depth == Depth::Operand && !keeps);
        if follows { Links::Follow } else { Links::Keep }
    }

    fn is_recursive(&self) -> bool {
        self.args.recursive || self.args.archive
    }

    fn copy(&mut self, from: &dyn Spot, to: Box<dyn Spot>, depth: Depth) -> Result<()> {
        interrupt::check()?;
        let found = facts_of(from, self.links(depth))?;
        tracing::info!(from = from.shown(), to = to.shown(), "copying");
        let there = to.facts(Links::Keep)?;
        for seen in [there.clone(), to.facts(Links::Follow).unwrap_or(None)].into_iter().flatten() {
            if seen.id == found.id {
                bail!("{} and {} are the same file", from.shown(), to.shown());
            }
        }
        let is_linked = self.args.archive && found.has_links && found.kind != FileKind::Directory;
        if is_linked && let Some(first) = self.linked.get(&found.id) {
            if there.is_some() {
                to.remove()?;
            }
            return to.link(&**first);
        }
        let item = Item { from, found: &found, to: &*to, there: there.as_ref(), depth };
        match found.kind {
            FileKind::Directory => self.copy_directory(item)?,
            FileKind::Regular => self.copy_file(item)?,
            FileKind::Symlink => {
                self.make(item, &EmptyFile::Symlink { target: from.read_link()? })?;
            }
            kind if self.is_recursive() => {
                let (perm, rdev) = (found.perm & DIR_PERM, found.rdev);
                self.make(item, &EmptyFile::Special { kind, perm, rdev })?;
            }
            FileKind::Fifo | FileKind::CharDevice | FileKind::BlockDevice | FileKind::Socket => {
                self.copy_file(item)?;
            }
        }
        if is_linked {
            self.linked.insert(found.id, Rc::from(to));
        }
        Ok(())
    }

    /// Makes a file without content.
    fn make(&mut self, item: Item<'_>, made: &EmptyFile) -> Result<()> {
        item.remove_other()?;
        item.to.make(made)?;
        self.keep(item);
        Ok(())
    }

    fn copy_directory(&mut self, item: Item<'_>) -> Result<()> {
        let Item { from, found, to, there, depth } = item;
        if !self.is_recursive() {
            bail!("{} is a directory: --recursive copies it", from.shown());
        }
        if self.above.contains(&found.id) {
            bail!(
                "{} leads back to a directory that it is in: its copy would never end",
                from.shown()
            );
        }
        let can_be_above = depth == Depth::Operand || self.links(depth) == Links::Follow;
        if can_be_above && to.is_below(found.id)? {
            bail!("{} would be copied into itself", from.shown());
        }
        // A link that the user names is followed, others are not.
        let (links, stands) = match (there, depth) {
            (Some(there), Depth::Operand) if there.kind == FileKind::Symlink => {
                (Links::Follow, to.facts(Links::Follow)?)
            }
            (there, _) => (Links::Keep, there.cloned()),
        };
        match stands {
            None if there.is_some() => bail!("{} is a link that leads nowhere", to.shown()),
            None => to.make(&EmptyFile::Directory { perm: (found.perm & DIR_PERM) | 0o700 })?,
            Some(stands) if stands.kind == FileKind::Directory => {}
            Some(_) => bail!("{} is no directory, and {} is one", to.shown(), from.shown()),
        }
        self.above.push(found.id);
        let copied = self.copy_entries(from, to, (self.links(depth), links));
        self.above.pop();
        copied?;
        if there.is_none() && found.perm & 0o700 != 0o700 && !self.keeps_all() {
            to.set_perm(found.perm & DIR_PERM & !self.umask)?;
        }
        self.keep(item);
        Ok(())
    }

    /// Copies the entries of a directory. `links` says of either side whether a link to it is
    /// followed.
    fn copy_entries(
        &mut self,
        from: &dyn Spot,
        to: &dyn Spot,
        links: (Links, Links),
    ) -> Result<()> {
        let (inside, into) = (from.enter(links.0)?, to.enter(links.1)?);
        for name in inside.names()? {
            let (from, to) = (inside.child(&name), into.child(&name));
            match self.copy(&*from, to, Depth::Inside) {
                Err(error) if interrupt::is_pending() => return Err(error),
                Err(error) => self.report(&error),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, item: Item<'_>) -> Result<()> {
        let Item { from, found, to, there, depth } = item;
        let way = self.way(item)?;
        let mut source = from.open(self.links(depth))?;
        // No other user reads the copy before it has its owner.
        let perm = if self.keeps_all() { found.perm & 0o700 } else { found.perm & PERM };
        let mut copy = writer(to, there, perm, depth)?;
        self.bar.inc_length(found.bytes);
        self.fill(&mut *copy, &mut *source, way)
            .with_context(|| format!("copying {} to {}", from.shown(), to.shown()))?;
        drop(copy);
        if there.is_none_or(|there| there.kind == FileKind::Regular) {
            self.keep(item);
        }
        Ok(())
    }

    fn fill(
        &mut self,
        copy: &mut dyn FileContent,
        source: &mut dyn FileContent,
        way: Way,
    ) -> Result<()> {
        let shared = match way {
            Way::Share | Way::Try => copy.share(source),
            Way::Copy => return self.copy_content(source, copy),
        };
        match shared {
            Err(error) if way == Way::Try => {
                tracing::debug!("no blocks are shared: {error:#}");
                self.copy_content(source, copy)
            }
            outcome => {
                self.bar.inc(source.length()?);
                outcome
            }
        }
    }

    fn copy_content(
        &mut self,
        source: &mut dyn FileContent,
        copy: &mut dyn FileContent,
    ) -> Result<()> {
        let mut at = 0;
        let whole = Some((0, u64::MAX));
        let has_holes = copy.is_file();
        while let Some((start, end)) = if has_holes { source.data(at)? } else { whole } {
            at = at.max(start);
            while at < end {
                let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
                interrupt::check()?;
                let read = source.read(&mut self.buffer[..most], at)?;
                if read == 0 {
                    break;
                }
                copy.write(&self.buffer[..read], at)?;
                tracing::debug!(at, bytes = read, "copied");
                self.bar.inc(read as u64);
                at += read as u64;
            }
            // The end of the file, which may have become shorter.
            if at < end {
                break;
            }
        }
        // A hole at the end has no data that would give the file its length.
        if has_holes { copy.set_len(at.max(source.length()?)) } else { Ok(()) }
    }

    /// Whether everything is to be kept.
    fn keeps_all(&self) -> bool {
        self.args.preserve || self.args.archive
    }

    /// Gives a copy owner, attributes, mode and times of its original if the user wants that, and
    /// reports each that it cannot have.
    fn keep(&mut self, Item { from, found, to, .. }: Item<'_>) {
        if !self.keeps_all() {
            return;
        }
        let owner = to.set_owner(found.uid, found.gid);
        let has_owner = owner.is_ok();
        self.kept(to, "its owner", owner);
        if found.kind != FileKind::Symlink {
            match from.xattrs() {
                Ok(xattrs) => {
                    for (name, value) in xattrs {
                        let what = format!("its attribute {}", zonal::shown(&name));
                        let set = to.set_xattr(&name, &value);
                        self.kept(to, &what, set);
                    }
                }
                Err(error) => self.kept(to, "its attributes", Err(error)),
            }
            // A setuid file of another owner would give that owner's rights away.
            let perm = if has_owner { found.perm } else { found.perm & !SETID };
            let set = to.set_perm(perm);
            self.kept(to, "its mode", set);
        }
        let set = to.set_times(found.accessed, found.modified);
        self.kept(to, "its times", set);
    }

    fn kept(&mut self, to: &dyn Spot, what: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.report(&error.context(format!("{} has not kept {what}", to.shown())));
        }
    }
}

impl Item<'_> {
    /// Removes the file at the place of a copy without content, as cp(1) does.
    fn remove_other(&self) -> Result<()> {
        let Self { from, to, there, .. } = self;
        match there.map(|there| there.kind) {
            None => Ok(()),
            Some(FileKind::Directory) => {
                bail!("{} is a directory, and {} is none", to.shown(), from.shown())
            }
            Some(FileKind::CharDevice | FileKind::BlockDevice) => {
                bail!("{} is a device, and is not replaced", to.shown())
            }
            Some(_) => to.remove(),
        }
    }
}

/// The attributes of the file at a spot; an error if there is none.
fn facts_of(spot: &dyn Spot, links: Links) -> Result<FileAttributes> {
    spot.facts(links)?.ok_or(FsError::NotFound).with_context(|| spot.shown())
}

/// Makes a file, or opens the existing one for writing, which keeps its kind and its mode.
fn writer(
    to: &dyn Spot,
    there: Option<&FileAttributes>,
    perm: u16,
    depth: Depth,
) -> Result<Box<dyn FileContent>> {
    match there.map(|there| there.kind) {
        None => to.create(perm),
        Some(FileKind::Directory) => bail!("{} is a directory", to.shown()),
        Some(FileKind::Symlink) if depth == Depth::Inside => {
            bail!("{} is a symbolic link, and is not followed", to.shown())
        }
        Some(FileKind::Symlink) if to.facts(Links::Follow)?.is_none() => {
            bail!("{} is a link that leads nowhere", to.shown())
        }
        Some(FileKind::Symlink) => to.replace(Links::Follow),
        Some(_) => to.replace(Links::Keep),
    }
}
