//! Reading, writing and appending.
//!
//! A sequential file takes direct writes of whole blocks at its end, one after the other, or
//! appends, many at a time, for each of which the device returns its place. A conventional file can
//! be written anywhere; a write of a part of a block reads the block first.

use std::sync::MutexGuard;

use zonal::DeviceError;

use super::file::{Group, Health, Held, Landed, Writer, ZoneFile};
use super::recover::Failed;
use super::{DeviceResult, ZoneFs};
use crate::FsError;
use crate::vfs::{Result, WriteFlags, Written};

/// Whether a read must be of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alignment {
    Any,
    Blocks,
}

impl ZoneFs {
    pub(super) fn read_file(
        &self,
        file: &ZoneFile,
        offset: u64,
        buffer: &mut [u8],
        alignment: Alignment,
    ) -> Result<usize> {
        loop {
            if file.owed_report().is_some() {
                self.make_owed_report(file, &mut file.settled())?;
            }
            if file.health() == Health::Offline {
                return Err(FsError::NotPermitted { what: "the zone is offline" });
            }
            let resets = file.resets();
            let size = file.size();
            if offset >= size {
                return Ok(0);
            }
            let len = bytes(size - offset).min(buffer.len());
            let aligned = self.is_aligned(offset | len as u64);
            if !aligned && alignment == Alignment::Blocks {
                return Err(FsError::Invalid { what: "a direct read of parts of blocks" });
            }
            let part = &mut buffer[..len];
            let read = if aligned {
                self.read_blocks(file, offset, part)
            } else {
                self.read_parts(file, offset, part)
            };
            if let Err(error) = read {
                if file.group == Group::Sequential {
                    self.find_out(file, &mut file.settled(), Failed::Read);
                }
                return Err(error.into());
            }
            // If the zone was reset meanwhile, the data read may be neither the old nor the new.
            if resets == file.resets() {
                return Ok(len);
            }
        }
    }

    fn read_blocks(&self, file: &ZoneFile, offset: u64, buffer: &mut [u8]) -> DeviceResult<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (lba, left) = file.locate(self.device.geometry(), at);
            let len = bytes(left).min(rest.len());
            let (head, tail) = rest.split_at_mut(len);
            self.device.read(lba, head)?;
            (at, rest) = (at + len as u64, tail);
        }
        Ok(())
    }

    /// Reads the whole blocks around a range.
    fn read_parts(&self, file: &ZoneFile, offset: u64, buffer: &mut [u8]) -> DeviceResult<()> {
        let start = offset & !self.block_mask();
        let end = (offset + buffer.len() as u64).next_multiple_of(self.block_mask() + 1);
        let mut blocks = vec![0; bytes(end - start)];
        self.read_blocks(file, start, &mut blocks)?;
        let skip = bytes(offset - start);
        buffer.copy_from_slice(&blocks[skip..skip + buffer.len()]);
        Ok(())
    }

    pub(super) fn write_file(
        &self,
        file: &ZoneFile,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        self.check_writable(file)?;
        let append = flags.contains(WriteFlags::APPEND);
        if !append && offset >= file.capacity {
            return Err(FsError::FileTooLarge);
        }
        let written = match file.group {
            Group::Conventional if append => {
                Err(FsError::Invalid { what: "an append to a conventional zone file" })
            }
            Group::Conventional => self.write_anywhere(file, offset, data, flags),
            Group::Sequential if !flags.contains(WriteFlags::DIRECT) => Err(FsError::NotDirect),
            Group::Sequential if append => self.append_at_end(file, data),
            Group::Sequential => self.write_at_end(file, offset, data),
        }?;
        if flags.contains(WriteFlags::DURABLE) {
            self.flush()?;
        }
        Ok(written)
    }

    /// Writes at the end of a sequential file, which must be at `offset`.
    fn write_at_end(&self, file: &ZoneFile, offset: u64, data: &[u8]) -> Result<Written> {
        let writer = self.known(file)?;
        let len = (data.len() as u64).min(file.capacity - offset);
        self.check_blocks(offset | len)?;
        if offset != file.size() {
            return Err(FsError::Invalid { what: "a write that is not at the write pointer" });
        }
        self.write_in_turn(file, writer, &data[..bytes(len)])
    }

    /// Writes at the end of a sequential file, with its lock held.
    fn write_in_turn(
        &self,
        file: &ZoneFile,
        mut writer: MutexGuard<'_, Writer>,
        data: &[u8],
    ) -> Result<Written> {
        let (offset, len) = (file.size(), data.len() as u64);
        if data.is_empty() {
            return Ok(Written { offset, len });
        }
        let (lba, _) = file.locate(self.device.geometry(), offset);
        if let Err(error) = self.device.write(lba, data) {
            return Err(self.write_failed(file, &mut writer, error));
        }
        file.grow(&mut writer, offset + len);
        self.grown(file, &mut writer);
        Ok(Written { offset, len })
    }

    /// Appends to a sequential file. Other threads may append meanwhile.
    fn append_at_end(&self, file: &ZoneFile, data: &[u8]) -> Result<Written> {
        let geometry = self.device.geometry();
        if file.owed_report().is_some() {
            drop(self.known(file)?);
        }
        let mut writer = file.writer();
        let mut len = file.room(&writer).min(data.len() as u64);
        if len > geometry.bytes(geometry.max_append()).get() {
            writer = file.settle(writer);
            len = file.room(&writer).min(data.len() as u64);
            self.check_append(file, &writer, len)?;
            return self.write_in_turn(file, writer, &data[..bytes(len)]);
        }
        self.check_append(file, &writer, len)?;
        if len == 0 {
            return Ok(Written { offset: file.size(), len });
        }
        file.start_append(&mut writer, len);
        drop(writer);
        let appended = self.device.append(file.zone, &data[..bytes(len)]);
        let mut writer = file.writer();
        let start = geometry.zone_start(file.zone);
        let landed = appended.as_ref().ok().map(|lba| geometry.bytes(*lba - start).get());
        match (file.end_append(&mut writer, landed, len), landed, appended) {
            (Landed::InPlace, Some(offset), _) => {
                self.grown(file, &mut writer);
                Ok(Written { offset, len })
            }
            (_, _, appended) => {
                let mut writer = file.settle(writer);
                let error = match appended {
                    Ok(wp) => {
                        let (lba, _) = file.locate(geometry, file.size());
                        DeviceError::NotAtWritePointer { zone: file.zone, wp, lba }
                    }
                    Err(error) => error,
                };
                Err(self.write_failed(file, &mut writer, error))
            }
        }
    }

    fn check_append(&self, file: &ZoneFile, writer: &Writer, len: u64) -> Result<()> {
        if file.room(writer) == 0 {
            return Err(FsError::FileTooLarge);
        }
        self.check_blocks(len)
    }

    /// Writes to a conventional file.
    fn write_anywhere(
        &self,
        file: &ZoneFile,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        let len = (data.len() as u64).min(file.capacity - offset);
        let data = &data[..bytes(len)];
        if flags.contains(WriteFlags::DIRECT) {
            self.check_blocks(offset | len)?;
            self.write_blocks(file, offset, data)?;
            return Ok(Written { offset, len });
        }
        // Two writers of parts of one block must not undo each other.
        let mut writer = file.writer();
        let written = if self.is_aligned(offset | len) {
            self.write_blocks(file, offset, data)
        } else {
            self.write_parts(file, offset, data)
        };
        match written {
            Ok(()) => Ok(Written { offset, len }),
            Err(error) => Err(self.write_failed(file, &mut writer, error)),
        }
    }

    fn write_blocks(&self, file: &ZoneFile, offset: u64, data: &[u8]) -> DeviceResult<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (lba, left) = file.locate(self.device.geometry(), at);
            let (head, tail) = rest.split_at(bytes(left).min(rest.len()));
            self.device.write(lba, head)?;
            (at, rest) = (at + head.len() as u64, tail);
        }
        Ok(())
    }

    /// Writes a range by reading and writing the whole blocks around it.
    fn write_parts(&self, file: &ZoneFile, offset: u64, data: &[u8]) -> DeviceResult<()> {
        let block = bytes(self.block_mask() + 1);
        let start = offset & !self.block_mask();
        let skip = bytes(offset - start);
        let mut blocks = vec![0; (skip + data.len()).next_multiple_of(block)];
        let last = blocks.len() - block;
        self.read_blocks(file, start, &mut blocks[..block])?;
        if last > 0 {
            self.read_blocks(file, start + last as u64, &mut blocks[last..])?;
        }
        blocks[skip..skip + data.len()].copy_from_slice(data);
        self.write_blocks(file, start, &blocks)
    }

    /// Updates the accounts of a file that has grown.
    fn grown(&self, file: &ZoneFile, writer: &mut Writer) {
        if file.size() == file.capacity {
            // The device has closed it.
            writer.held = Held::No;
        }
        self.in_use.account(file, writer);
    }

    fn write_failed(&self, file: &ZoneFile, writer: &mut Writer, error: DeviceError) -> FsError {
        let name = self.tree.path(file);
        tracing::error!(file = name, zone = file.zone.get(), %error, "writing failed");
        self.find_out(file, writer, Failed::Write);
        FsError::of_zone(error)
    }

    fn check_blocks(&self, position: u64) -> Result<()> {
        if self.is_aligned(position) {
            Ok(())
        } else {
            Err(FsError::Invalid { what: "a direct write of parts of blocks" })
        }
    }

    fn is_aligned(&self, position: u64) -> bool {
        position & self.block_mask() == 0
    }
}

/// A length in memory.
fn bytes(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
