//! Copies that share blocks with their originals, within one Furrow: of a drive, or of a mount.
//!
//! Furrow shares all blocks of a file with an empty one: also the last, which may be short.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use zonal_fs::vfs::FileKind;
use zonal_fs::volume::{Links, Stats};

use super::host::HostSpot;
use super::side::Side;
use super::spot::Spot;
use super::{Copier, Item};
use crate::args::files::Reflink;
use crate::mounts;

/// How a file gets the content of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It shares the blocks, or the copy fails.
    Share,
    /// It shares the blocks, or gets a copy of the data if it cannot.
    Try,
    /// It gets a copy of the data.
    Copy,
}

/// Which file systems are Furrow, by number.
#[derive(Default)]
pub(super) struct Sharing(BTreeMap<u64, bool>);

impl Copier<'_> {
    /// How the copy of a file is made. `--reflink=always` fails here, before anything is written.
    pub(super) fn way(&mut self, item: Item<'_>) -> Result<Way> {
        let when = self.args.reflink.unwrap_or(Reflink::Auto);
        if when == Reflink::Never {
            return Ok(Way::Copy);
        }
        let Item { from, found, to, .. } = item;
        let is_file = |kind| kind == FileKind::Regular;
        let can_share = is_file(found.kind)
            && to.facts(Links::Follow)?.is_none_or(|there| is_file(there.kind))
            && to.file_system()? == found.id.0
            && self.is_furrow(found.id.0)?;
        match (when, can_share) {
            (Reflink::Always, true) => Ok(Way::Share),
            (Reflink::Always, false) => bail!(
                "{} and {} cannot share blocks, as --reflink=always demands: only files of one Furrow can",
                from.shown(),
                to.shown()
            ),
            (Reflink::Auto, true) => Ok(Way::Try),
            (Reflink::Auto, false) | (Reflink::Never, _) => Ok(Way::Copy),
        }
    }

    fn is_furrow(&mut self, number: u64) -> Result<bool> {
        if let Some(known) = self.sharing.0.get(&number) {
            return Ok(*known);
        }
        let is_furrow = match self.drives.iter().find(|drive| drive.number == number) {
            Some(drive) => matches!(drive.volume.stats()?, Some(Stats::Furrow(_))),
            None => mounts::is_furrow(number),
        };
        self.sharing.0.insert(number, is_furrow);
        Ok(is_furrow)
    }
}

/// Refuses a stream with `--reflink=always`, and two files of this machine unless one mount of
/// Furrow has both: cp(1) copies such files.
pub(super) fn check_pair(source: &Side, target: &Side, reflink: Option<Reflink>) -> Result<()> {
    let is_stream = matches!(source, Side::Stream) || matches!(target, Side::Stream);
    if is_stream {
        let always = reflink == Some(Reflink::Always);
        ensure!(!always, "-: a stream cannot share blocks, as --reflink=always demands");
    }
    let (Side::Here(from), Side::Here(to), Some(_)) = (source, target, reflink) else {
        return super::side::check_pair(source, target);
    };
    let number = HostSpot::new(from)?.file_system()?;
    if HostSpot::new(to)?.file_system()? == number && mounts::is_furrow(number) {
        return Ok(());
    }
    bail!(
        "{} and {} are not in one mount of Furrow, where files can share blocks: cp(1) copies files of \
         this machine",
        source.shown(),
        target.shown()
    )
}
