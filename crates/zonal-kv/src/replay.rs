//! Writes unsynced changes of a killed process again, unless they are old.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use zonal_fs::FsError;
use zonal_fs::vfs::{Attr, Caller, FileKind, FileSystem, Ino, SetAttr, WriteFlags};

use crate::mount::Files;
use crate::unsynced::{Change, Times, Unsynced, plain_name};
use crate::{Error, Result};

/// The `ctime` of a file, by the clock of the file system that changed it.
pub(crate) fn changed_ns(attr: &Attr) -> i64 {
    attr.ctime.as_ns()
}

/// Opens the memory that outlives the process, and writes the changes noted there again.
pub(crate) fn open_unsynced(files: &Files, folder: &Path) -> Result<Unsynced> {
    let uuid = uuid::Uuid::from_bytes(files.uuid()).to_string();
    let failed = |source| {
        let path = folder.join(plain_name(&uuid));
        Error::Unsynced { path, source }
    };
    let created_ns = files.created_ns().map_err(replaying)?;
    let mut unsynced = Unsynced::open(folder, &uuid, created_ns).map_err(failed)?;
    if let Some(batch) = unsynced.left() {
        if let Some(why) = is_old(files, &unsynced, batch)? {
            tracing::warn!("what a killed process has written is not written again: {why}");
        } else {
            let count = write_again(files, &mut unsynced)?;
            tracing::info!(count, "wrote again what a killed process had written and not synced");
        }
        files.fs().sync().map_err(replaying)?;
    }
    unsynced.begin(files.commits());
    Ok(unsynced)
}

fn replaying(source: FsError) -> Error {
    Error::Mount { device: "writing again what a killed process had written".into(), source }
}

/// The reason why the notes are too old to be written again, if they are. `batch` was durable when
/// the notes began.
fn is_old(files: &Files, unsynced: &Unsynced, batch: u64) -> Result<Option<String>> {
    if files.commits() < batch {
        return Ok(Some("the drive is as it was before that".to_owned()));
    }
    let pending: BTreeSet<u64> = unsynced.pending().collect();
    let mut known: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
    for note in unsynced.notes().filter(|note| !pending.contains(&note.ino)) {
        known.entry(note.ino).or_default().extend([note.times.before_ns, note.times.after_ns]);
    }
    for (ino, times) in known {
        let Some(attr) = attributes(files.fs(), ino)? else { continue };
        if !times.contains(&changed_ns(&attr)) {
            return Ok(Some(format!("inode {ino} was changed since")));
        }
    }
    Ok(None)
}

/// Writes the noted changes again. Deleted files stay deleted. Each note then gets the new times of
/// its file, so that the notes do not look old if this process is killed as well.
fn write_again(files: &Files, unsynced: &mut Unsynced) -> Result<u64> {
    let fs = files.fs();
    let mut count = 0;
    for place in unsynced.places() {
        let ino = unsynced.note_at(place).ino;
        let Some(attr) = attributes(fs, ino)? else { continue };
        let pending = unsynced.begin_change(ino, 0);
        let change = unsynced.note_at(place).change;
        let change = match files {
            Files::Furrow(_) => Some(change),
            Files::Zones(_) => beyond(change, attr.size),
        };
        match change {
            Some(Change::Bytes { offset, data }) => {
                fs.write(Ino::new(ino), offset, data, WriteFlags::empty()).map(drop)
            }
            Some(Change::Size(size)) => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(&Caller::ROOT, Ino::new(ino), &set).map(drop)
            }
            Some(Change::Attributes) | None => Ok(()),
        }
        .map_err(replaying)?;
        if let Some(now) = attributes(fs, ino)? {
            let times = Times { before_ns: changed_ns(&attr), after_ns: changed_ns(&now) };
            unsynced.set_times(place, times);
        }
        unsynced.end_change(pending);
        count += 1;
    }
    Ok(count)
}

/// The rest of a change of a file with `size` bytes that can only grow: the bytes it already has
/// are as they were written. Bytes behind a gap belong to a file that was emptied since, as a later
/// note tells.
fn beyond(change: Change<'_>, size: u64) -> Option<Change<'_>> {
    match change {
        Change::Bytes { offset, data } => {
            let there = usize::try_from(size.checked_sub(offset)?).ok()?;
            let data = data.get(there..).filter(|data| !data.is_empty())?;
            Some(Change::Bytes { offset: size, data })
        }
        Change::Size(new) => (new < size).then_some(change),
        Change::Attributes => None,
    }
}

/// The attributes of a regular file; `None` if there is none.
fn attributes(fs: &dyn FileSystem, ino: u64) -> Result<Option<Attr>> {
    match fs.getattr(Ino::new(ino)) {
        Ok(attr) if attr.kind == FileKind::Regular => Ok(Some(attr)),
        Ok(_) | Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(replaying(error)),
    }
}
