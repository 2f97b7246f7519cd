//! A device that was opened read-only by a scheme that ignores the mode: `mem:` and others.

use std::sync::Arc;

use super::Stack;
use crate::device::batch::{Io, Op, Part};
use crate::error::Result;
use crate::{DeviceError, Lba, LbaCount, Select, ZoneAction, ZoneId, ZonedDevice};

/// Reports and reads; refuses all changes.
pub(super) struct ReadOnly {
    below: Arc<dyn ZonedDevice>,
}

impl ReadOnly {
    /// Keeps the device of a stack without layers from changes.
    pub(super) fn put_on(stack: Stack) -> Stack {
        let plain = Arc::new(Self { below: stack.plain });
        Stack { device: Arc::new(Self { below: stack.device }), plain, failing: None, ..stack }
    }
}

impl ZonedDevice for ReadOnly {
    crate::pass_on!(below: geometry, report, read, identity, rotates);

    fn write(&self, _lba: Lba, _data: &[u8]) -> Result<()> {
        Err(DeviceError::OpenedReadOnly)
    }
    fn append(&self, _zone: ZoneId, _data: &[u8]) -> Result<Lba> {
        Err(DeviceError::OpenedReadOnly)
    }
    fn manage(&self, _zones: Select, _action: ZoneAction) -> Result<()> {
        Err(DeviceError::OpenedReadOnly)
    }
    fn deallocate(&self, _lba: Lba, _blocks: LbaCount) -> Result<()> {
        Err(DeviceError::OpenedReadOnly)
    }
    /// There is nothing to flush.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn submit(&self, batch: &mut [Io<'_>]) {
        let mut reads = Part::default();
        for Io { op, result } in batch {
            match op {
                Op::Read { .. } => reads.push(op.reborrow(), result),
                Op::Write { .. } | Op::Append { .. } | Op::Flush => {
                    *result = Some(op.perform(self));
                }
            }
        }
        reads.submit(&*self.below);
    }
}
