//! The NVMe ioctls: `include/uapi/linux/nvme_ioctl.h`.
#![expect(unsafe_code, reason = "what the kernel reads and writes in an ioctl is declared by hand")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use zonal::nvme::Nsid;

use super::command::{Command, Failure, Queue, RawCommand};

/// `NVME_IOCTL_ID`.
const ID: Opcode = 0x4e40;
/// `NVME_IOCTL_ADMIN64_CMD`.
const ADMIN64_CMD: Opcode = 0xc050_4e47;
/// `NVME_IOCTL_IO64_CMD`.
const IO64_CMD: Opcode = 0xc050_4e48;

/// A command being submitted. It borrows the command, and with it the memory that the kernel uses.
struct Request<'a> {
    opcode: Opcode,
    command: RawCommand,
    memory: PhantomData<&'a mut ()>,
}

// SAFETY: both opcodes take a `struct nvme_passthru_cmd64` and change nothing of it but its result;
// `as_ptr` gives one. They return a status, or -1 with errno, which is no output.
unsafe impl Ioctl for Request<'_> {
    type Output = (i32, u64);
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(
        status: IoctlOutput,
        command: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        // SAFETY: `command` is the pointer from `as_ptr`: ours, alive and initialised.
        let command = unsafe { &*command.cast::<RawCommand>() };
        Ok((status, command.result))
    }
}

/// `NVME_IOCTL_ID` takes nothing and returns a number.
struct IdOf;

// SAFETY: the kernel reads and writes no memory for this opcode.
unsafe impl Ioctl for IdOf {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        ID
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(id: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(id.cast_unsigned())
    }
}

/// The NSID of the namespace of a node; [`Errno::NOTTY`] if it is not the node of a namespace.
pub(super) fn namespace_id(device: &File) -> rustix::io::Result<Nsid> {
    // SAFETY: it moves no memory.
    unsafe { ioctl(device, IdOf) }.map(Nsid::new)
}

/// Runs one command, waits for it and returns its result.
pub(super) fn run(device: &File, queue: Queue, command: &mut Command) -> Result<u64, Failure> {
    let raw = RawCommand::of(command);
    let opcode = match queue {
        Queue::Admin => ADMIN64_CMD,
        Queue::Io => IO64_CMD,
    };
    let request = Request { opcode, command: raw, memory: PhantomData };
    // SAFETY: the kernel moves `data_len` bytes at `address`, in the direction that the opcode
    // says, and no longer than the call lasts: `Command::memory` lent them for it.
    let outcome = unsafe { ioctl(device, request) };
    match outcome {
        Ok((status, result)) => Failure::check(status, result),
        Err(errno) => Err(failed(errno)),
    }
}

fn failed(errno: Errno) -> Failure {
    Failure::Kernel(io::Error::from(errno))
}
