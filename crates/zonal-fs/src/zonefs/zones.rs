//! Opening, closing, resetting and finishing zones, and counts of files in use.
//!
//! The counts are those of Linux: files open for writing, each once, and files with an active zone,
//! which is partly written or explicitly open.

use std::sync::atomic::{AtomicU32, Ordering};

use zonal::{Select, ZoneAction};

use super::file::{Group, Health, Held, Writer, ZoneFile};
use super::{OpenPolicy, ZoneFs};
use crate::FsError;
use crate::vfs::{Access, OpenFor, Result};

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
        let mut writer = file.settled();
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
                self.find_out(file, writer, super::recover::Failed::Read);
                if writer.held == Held::Open {
                    // Zones that stay open would keep others from being written.
                    self.become_read_only();
                }
            }
        }
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
        let mut writer = file.settled();
        if size == file.size() {
            return Ok(());
        }
        self.act(file, action)?;
        if writer.held == Held::Open {
            // The device has closed the zone. Open an empty one again for its writers.
            match action {
                ZoneAction::Reset => self.act(file, ZoneAction::Open)?,
                _ => writer.held = Held::No,
            }
        }
        file.set_size(&mut writer, size);
        self.in_use.account(file, &mut writer);
        Ok(())
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
