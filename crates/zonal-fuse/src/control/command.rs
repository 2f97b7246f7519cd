//! Commands of the control directory: one line per write(2) to the file `command`.
//!
//! | command | effect |
//! | --- | --- |
//! | `read-only ZONE`, `offline ZONE` | makes the zone fail for good; emulated drives only |
//! | `write ZONE BYTES` | writes zeroes at the write pointer, past the file system |
//! | `open ZONE`, `close ZONE`, `finish ZONE`, `reset ZONE` | zone action, past the file system |
//! | `remount JSON` | changes the options in force to these, which are like the file `options` |
//! | `reclaim` | moves up to 1 MiB, or resets an empty zone; EAGAIN if no zone is worth it |
//! | `reclaim pause`, `reclaim resume` | stops reclaim in the background, or starts it again |
//!
//! An unknown command fails with EINVAL, one that the drive lacks with EOPNOTSUPP, and one that the
//! drive refuses with the errno of its refusal.

use zonal::{DeviceError, Select, ZoneAction, ZoneFailure, ZoneId, ZoneKind};
use zonal_fs::FsError;
use zonal_fs::vfs::{Access, Ino, Result};

use super::files::ControlFile;
use super::{Control, Options, ReclaimOrder};

/// Bytes of one append.
const CHUNK_BYTES: u64 = 1 << 20;

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command<'a> {
    Fail(ZoneId, ZoneFailure),
    Write(ZoneId, u64),
    Manage(ZoneId, ZoneAction),
    Remount(&'a str),
    Reclaim(ReclaimOrder),
}

impl Control {
    /// Runs the command that a program writes to a file of the directory.
    pub fn write(&self, ino: Ino, line: &[u8]) -> Result<()> {
        if self.file(ino)? != ControlFile::Command {
            return Err(FsError::NotPermitted {
                what: "writing this file of the control directory",
            });
        }
        let command = parse(line).ok_or(FsError::Invalid { what: "no such command" })?;
        match command {
            // `zonal reclaim` sends many of these, and a remount logs its changes itself.
            Command::Reclaim(ReclaimOrder::Step) | Command::Remount(_) => {
                tracing::debug!(?command, "commanded");
            }
            _ => tracing::info!(?command, "commanded"),
        }
        let outcome = match command {
            Command::Fail(zone, failure) => match &self.failing {
                Some(drive) => drive.fail_zone(zone, failure),
                None => {
                    return Err(FsError::Unsupported { what: "failing a zone of a real drive" });
                }
            },
            Command::Write(zone, bytes) => self.write_behind(zone, bytes),
            Command::Manage(zone, action) => self.device.manage(Select::One(zone), action),
            Command::Remount(options) => return self.remount(options),
            Command::Reclaim(order) => return self.inspected.reclaim(order),
        };
        outcome.map_err(refused)
    }

    fn remount(&self, json: &str) -> Result<()> {
        let new: Options = serde_json::from_str(json).map_err(|error| {
            tracing::warn!(%error, "not the options of a mount");
            FsError::Invalid { what: "not the options of a mount" }
        })?;
        let now = self.options();
        if !now.can_become(&new) {
            tracing::warn!(?now, ?new, "an option cannot be changed while it is mounted");
            return Err(FsError::Invalid { what: "an option that stays until the unmount" });
        }
        if new.mount.access == Access::ReadWrite && now.device == Access::ReadOnly {
            return Err(FsError::ReadOnly);
        }
        tracing::info!(access = ?new.mount.access, kind = ?new.kind, "remounting");
        self.inspected.set_options(&new)
    }

    /// Writes zeroes at the write pointer of a zone.
    fn write_behind(&self, zone: ZoneId, bytes: u64) -> std::result::Result<(), DeviceError> {
        let geometry = self.device.geometry();
        let block_size = geometry.block_size().bytes();
        let known = zone.get() < geometry.zone_count();
        if known && geometry.kind(zone) == ZoneKind::Conventional {
            return Err(DeviceError::Conventional { zone });
        }
        let remaining = geometry.bytes(self.device.zone(zone)?.remaining()).get();
        if bytes == 0 || !bytes.is_multiple_of(block_size) {
            return Err(DeviceError::Unaligned { bytes, block_size });
        }
        // Without room for all bytes, write none.
        if bytes > remaining {
            return Err(DeviceError::ZoneFull { zone });
        }
        let chunk = geometry.bytes(geometry.max_append()).get().min(CHUNK_BYTES);
        let zeroes = vec![0; usize::try_from(chunk.min(bytes)).expect("1 MiB at most")];
        let mut left = bytes;
        while left > 0 {
            let part = usize::try_from(left.min(chunk)).expect("1 MiB at most");
            self.device.append(zone, &zeroes[..part])?;
            left -= part as u64;
        }
        Ok(())
    }
}

/// Parses a line.
fn parse(line: &[u8]) -> Option<Command<'_>> {
    let line = str::from_utf8(line).ok()?;
    if let Some(options) = line.strip_prefix("remount ") {
        return Some(Command::Remount(options));
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let zone = |word: &str| number(word).and_then(|zone| u32::try_from(zone).ok()).map(ZoneId::new);
    match words[..] {
        ["reclaim"] => Some(Command::Reclaim(ReclaimOrder::Step)),
        ["reclaim", "pause"] => Some(Command::Reclaim(ReclaimOrder::Pause)),
        ["reclaim", "resume"] => Some(Command::Reclaim(ReclaimOrder::Resume)),
        ["write", at, bytes] => Some(Command::Write(zone(at)?, number(bytes)?)),
        ["read-only", at] => Some(Command::Fail(zone(at)?, ZoneFailure::ReadOnly)),
        ["offline", at] => Some(Command::Fail(zone(at)?, ZoneFailure::Offline)),
        [name, at] => {
            let action = ZoneAction::ALL.into_iter().find(|action| action.name() == name)?;
            Some(Command::Manage(zone(at)?, action))
        }
        _ => None,
    }
}

/// Parses a number: digits only.
fn number(word: &str) -> Option<u64> {
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}

/// The error of the drive, with the errno that it has for a block device.
fn refused(error: DeviceError) -> FsError {
    match error {
        DeviceError::NoSuchZone { .. } => FsError::Invalid { what: "no such zone" },
        DeviceError::Conventional { .. } => FsError::Invalid { what: "a conventional zone" },
        DeviceError::Unaligned { .. } => FsError::Invalid { what: "not a number of whole blocks" },
        other => FsError::of_zone(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_parse() {
        let zone = ZoneId::new(12);
        for (line, command) in [
            ("read-only 12\n", Command::Fail(zone, ZoneFailure::ReadOnly)),
            (" offline  12 ", Command::Fail(zone, ZoneFailure::Offline)),
            ("write 12 4096", Command::Write(zone, 4096)),
            ("open 12", Command::Manage(zone, ZoneAction::Open)),
            ("close 12", Command::Manage(zone, ZoneAction::Close)),
            ("finish 12", Command::Manage(zone, ZoneAction::Finish)),
            ("reset 12", Command::Manage(zone, ZoneAction::Reset)),
            ("remount {\"a\": 1}", Command::Remount("{\"a\": 1}")),
            ("reclaim", Command::Reclaim(ReclaimOrder::Step)),
            ("reclaim pause", Command::Reclaim(ReclaimOrder::Pause)),
            ("reclaim resume\n", Command::Reclaim(ReclaimOrder::Resume)),
        ] {
            assert_eq!(parse(line.as_bytes()), Some(command), "{line}");
        }
        for line in [
            "",
            "\n",
            "open",
            "open x",
            "open -1",
            "open +1",
            "open 4294967296",
            "open 1 2",
            "write 1",
            "write 1 x",
            "write 1 18446744073709551616",
            "explode 1",
            "remount",
            "reclaim 12",
            "reset 1\nreset 2",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(parse(b"open \xff"), None);
    }
}
