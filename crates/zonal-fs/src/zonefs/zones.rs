//! Opening, closing, resetting and finishing zones, and counts of files in use.
//!
//! The counts are those of Linux: files open for writing, each once, and files with an active zone,
//! which is partly written or explicitly open.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{MutexGuard, PoisonError};

use zonal::retry::Retries;
use zonal::{Select, ZoneAction};

use super::file::{Group, Health, Held, Writer, ZoneFile};
use super::recover::Failed;
use super::{OpenPolicy, ZoneFs};
use crate::FsError;
use crate::vfs::{Access, Ino, OpenFor, Result};

/// Counts of files in use.
#[derive(Default)]
pub(super) struct InUse {
    /// Sequential files open for writing.
    pub(super) writing: AtomicU32,
    /// Sequential files whose zone is active.
    pub(super) active: AtomicU32,
}

impl InUse {
    /// Updates the count of active files after a change of a file.
    pub(super) fn account(&self, file: &ZoneFile, writer: &mut Writer) {
        let partly = (1..file.capacity).contains(&file.size());
        let good = file.health() == Health::Good;
        let active = good && (writer.held == Held::Open || partly);
        if active == writer.active {
            return;
        }
        writer.active = active;
        if active {
            self.active.fetch_add(1, Ordering::Relaxed);
        } else {
            self.active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Files without a writer whose zone the device has refused to close. It is tried again after
/// pauses, and when another zone cannot be opened.
#[derive(Default)]
pub(super) struct Unclosed {
    files: BTreeSet<Ino>,
    retries: Retries<()>,
}

impl Unclosed {
    fn is_due(&self, now_ns: u64) -> bool {
        !self.files.is_empty() && self.retries.is_due((), now_ns)
    }

    /// All were tried, now: the others have to wait.
    fn put_off(&mut self, now_ns: u64) {
        if self.files.is_empty() {
            self.retries.settle(());
        } else {
            self.retries.put_off((), now_ns);
        }
    }
}

impl ZoneFs {
    /// Opens a file. With explicit open, the first writer opens the zone.
    pub(super) fn open_file(&self, file: &ZoneFile, purpose: OpenFor) -> Result<()> {
        if purpose == OpenFor::Reading {
            return Ok(());
        }
        self.check_writable(file)?;
        if file.group == Group::Conventional {
            return Ok(());
        }
        let opened = self.open_for_writing(file);
        // A zone that the device did not close takes the place of this one.
        if opened.is_err() && self.close_again() > 0 {
            return self.open_for_writing(file);
        }
        opened
    }

    fn open_for_writing(&self, file: &ZoneFile) -> Result<()> {
        let mut writer = self.known(file)?;
        if writer.opens == 0 {
            let writing = self.in_use.writing.fetch_add(1, Ordering::Relaxed) + 1;
            let held = match self.options().open {
                OpenPolicy::Implicit => Ok(()),
                OpenPolicy::Explicit => self.hold(file, &mut writer, writing),
            };
            if let Err(error) = held {
                self.in_use.writing.fetch_sub(1, Ordering::Relaxed);
                return Err(error);
            }
        }
        writer.opens += 1;
        Ok(())
    }

    /// Opens the zone of a file, the `writing`-th that is open for writing.
    fn hold(&self, file: &ZoneFile, writer: &mut Writer, writing: u32) -> Result<()> {
        if let Some(limit) = self.device.geometry().max_open()
            && writing > limit
        {
            return Err(FsError::TooManyOpen { limit });
        }
        if file.size() < file.capacity {
            self.act(file, ZoneAction::Open)?;
            writer.held = Held::Open;
            self.in_use.account(file, writer);
        }
        Ok(())
    }

    /// Closes a file once.
    pub(super) fn close_file(&self, file: &ZoneFile, purpose: OpenFor) {
        if purpose == OpenFor::Reading || file.group == Group::Conventional {
            return;
        }
        let mut writer = file.settled();
        writer.opens = writer.opens.checked_sub(1).expect("as often closed as opened");
        if writer.opens == 0 {
            self.let_go(file, &mut writer);
            // Last: an open that finds room within the limit needs the zone to be closed.
            self.in_use.writing.fetch_sub(1, Ordering::Release);
        }
    }

    /// Closes the zone of a file if it is held open.
    pub(super) fn let_go(&self, file: &ZoneFile, writer: &mut Writer) {
        if writer.held == Held::No {
            return;
        }
        // A closed zone without data would stay active, and the device may limit active zones.
        let action = if file.size() == 0 { ZoneAction::Reset } else { ZoneAction::Close };
        match self.act(file, action) {
            Ok(()) => {
                writer.held = Held::No;
                self.in_use.account(file, writer);
            }
            Err(error) => {
                let (name, zone) = (self.tree.path(file), file.zone.get());
                tracing::error!(file = name, zone, %error, "closing the zone failed");
                self.find_out(file, writer, Failed::Read);
                if writer.held == Held::Open {
                    self.unclosed().files.insert(file.ino());
                }
            }
        }
    }

    /// Closes zones that the device has refused to close, if it is time to ask it again.
    pub(super) fn close_when_due(&self) {
        if self.unclosed().is_due(self.clock.monotonic_ns()) {
            self.close_again();
        }
    }

    /// Asks the device again to close zones that it has refused to close. Returns how many are
    /// closed now.
    fn close_again(&self) -> u32 {
        let files = self.unclosed().files.clone();
        let mut closed = 0;
        for ino in files {
            let Ok(file) = self.tree.file(ino) else { continue };
            let mut writer = file.settled();
            if writer.opens == 0 {
                self.let_go(file, &mut writer);
                closed += u32::from(writer.held == Held::No);
            }
            if writer.opens > 0 || writer.held == Held::No {
                self.unclosed().files.remove(&ino);
            }
        }
        self.unclosed().put_off(self.clock.monotonic_ns());
        closed
    }

    fn unclosed(&self) -> MutexGuard<'_, Unclosed> {
        self.unclosed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Truncates a file to 0 or to its capacity, the only sizes that can be set.
    pub(super) fn truncate(&self, file: &ZoneFile, size: u64) -> Result<()> {
        let action = match size {
            _ if size > self.capacity_max => return Err(FsError::FileTooLarge),
            _ if file.group == Group::Conventional => {
                let what = "the size of a conventional zone file is fixed";
                return Err(FsError::NotPermitted { what });
            }
            0 => ZoneAction::Reset,
            _ if size == file.capacity => ZoneAction::Finish,
            _ => {
                let what = "a sequential zone file can only be emptied or filled up";
                return Err(FsError::NotPermitted { what });
            }
        };
        let mut writer = self.known(file)?;
        if size == file.size() {
            return Ok(());
        }
        let mut outcome = self.act(file, action);
        if outcome.is_err() {
            match self.look(file) {
                // The device has done it all the same.
                Ok((Health::Good, data)) if data == size => {}
                // As in Linux, the next read or write finds out if the zone has failed.
                Ok(_) => return outcome,
                Err(_) => {
                    file.owe_report(Failed::Read);
                    return outcome;
                }
            }
        }
        if writer.held == Held::Open {
            // The device has closed the zone. Open an empty one again for its writers.
            match action {
                ZoneAction::Reset => outcome = outcome.and(self.act(file, ZoneAction::Open)),
                _ => writer.held = Held::No,
            }
        }
        // Also if it could not be opened: without its size, readers would get zeroes for data.
        file.set_size(&mut writer, size);
        self.in_use.account(file, &mut writer);
        outcome
    }

    /// Performs an action on the zone of a sequential file.
    fn act(&self, file: &ZoneFile, action: ZoneAction) -> Result<()> {
        self.device.manage(Select::One(file.zone), action).map_err(FsError::of_zone)
    }

    /// Fails if the file or the file system is not writable.
    pub(super) fn check_writable(&self, file: &ZoneFile) -> Result<()> {
        if file.health() != Health::Good {
            return Err(FsError::NotPermitted { what: "the zone is read-only or offline" });
        }
        match self.access.get() {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(FsError::ReadOnly),
        }
    }
}
