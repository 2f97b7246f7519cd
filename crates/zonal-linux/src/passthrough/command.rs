//! NVMe commands as the kernel takes them, and their outcomes.

use std::io;
use std::mem::offset_of;

use zerocopy::{Immutable, IntoBytes};
use zonal::nvme::NvmeStatus;
use zonal::nvme::command::{Opcode, SubmissionEntry};

use crate::data::Data;

/// Which queue a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// The admin queue.
    Admin,
    /// An I/O queue.
    Io,
}

/// A command and its data.
pub(super) struct Command<'a> {
    entry: SubmissionEntry,
    data: Data<'a>,
    linked: bool,
}

impl<'a> Command<'a> {
    /// A command with its data.
    ///
    /// # Panics
    /// If the direction of the data differs from that of the opcode (Base, figure 88: bits 0 and
    /// 1), so that no command can write to memory that was borrowed for reading; or if the length
    /// has more than 32 bits.
    pub(super) fn new(entry: SubmissionEntry, data: Data<'a>) -> Self {
        let direction = match &data {
            Data::Nothing => 0,
            Data::Take(_) => 1,
            Data::Fill(_) => 2,
        };
        let len = data.len();
        let Opcode(opcode) = entry.opcode();
        assert!(
            len == 0 || opcode & 3 == direction,
            "opcode {opcode:02x}h transfers data the other way"
        );
        assert!(u32::try_from(len).is_ok(), "a command transfers less than 4 GiB");
        Self { entry, data, linked: false }
    }

    /// The same command, linked: the next one submitted with it starts when it has completed.
    pub(super) fn linked(self) -> Self {
        Self { linked: true, ..self }
    }

    /// Whether the next one waits for it.
    pub(super) fn is_linked(&self) -> bool {
        self.linked
    }

    /// The submission queue entry.
    pub(super) fn entry(&self) -> &SubmissionEntry {
        &self.entry
    }

    /// Address and length of the data.
    fn memory(&mut self) -> (u64, u32) {
        let len = u32::try_from(self.data.len()).expect("checked when the command was made");
        let address = match &mut self.data {
            Data::Nothing => 0,
            Data::Fill(bytes) => bytes.as_mut_ptr().expose_provenance(),
            Data::Take(bytes) => bytes.as_ptr().expose_provenance(),
        };
        (address as u64, len)
    }
}

/// A command as the kernel takes it: `struct nvme_passthru_cmd64` of the ioctl.
/// `struct nvme_uring_cmd` is the same without the result, and is passed in a queue entry of the
/// same size.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RawCommand {
    opcode: u8,
    flags: u8,
    reserved_1: u16,
    nsid: u32,
    dwords_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    dwords_10_15: [u32; 6],
    timeout_ms: u32,
    reserved_2: u32,
    /// The result from the ioctl.
    pub(super) result: u64,
}

const _: () = assert!(size_of::<RawCommand>() == 80);
const _: () = assert!(offset_of!(RawCommand, result) == 72);

impl RawCommand {
    /// `command`. The kernel uses its memory from the submission until the completion.
    pub(super) fn of(command: &mut Command) -> Self {
        let (address, data_len) = command.memory();
        let entry = command.entry();
        Self {
            opcode: entry.opcode().0,
            flags: 0,
            reserved_1: 0,
            nsid: entry.nsid().get(),
            dwords_2_3: [0; 2],
            metadata: 0,
            address,
            metadata_len: 0,
            data_len,
            dwords_10_15: [10, 11, 12, 13, 14, 15].map(|number| entry.dword(number)),
            // The default of the kernel.
            timeout_ms: 0,
            reserved_2: 0,
            result: 0,
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The kernel rejected it.
    Kernel(io::Error),
    /// The drive completed it with an error status.
    Drive(NvmeStatus),
}

impl Failure {
    /// Checks the kernel's return value for a command: a negative errno, or the status of its
    /// completion without the phase tag (`include/uapi/linux/nvme_ioctl.h`).
    pub(super) fn check(returned: i32, result: u64) -> Result<u64, Self> {
        match u16::try_from(returned) {
            Ok(0) => Ok(result),
            Ok(status) => Err(Self::Drive(NvmeStatus::from_field(status << 1))),
            Err(_) => Err(Self::Kernel(io::Error::from_raw_os_error(returned.saturating_neg()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal::nvme::{Nsid, status};

    #[test]
    fn kernel_result_is_status_or_errno() {
        assert_eq!(Failure::check(0, 7).unwrap(), 7);
        // With "do not retry".
        let refused = Failure::check(0x41bc, 0).unwrap_err();
        assert!(matches!(refused, Failure::Drive(status::ZONE_INVALID_WRITE)), "{refused:?}");
        for told in [-22, i32::MIN, i32::MAX] {
            assert!(matches!(Failure::check(told, 0), Err(Failure::Kernel(_))), "{told}");
        }
    }

    #[test]
    #[should_panic(expected = "transfers data the other way")]
    fn read_command_refuses_immutable_memory() {
        let entry = SubmissionEntry::new(Opcode::READ, Nsid::new(1));
        Command::new(entry, Data::Take(&[0; 512]));
    }
}
