//! The control device `/dev/ublk-control`: creates, starts, stops and removes ublk devices.
//!
//! Commands go through `io_uring`, one at a time. The kernel reads or writes the payload of a
//! command until it completes.
#![expect(unsafe_code, reason = "a command carries the address of its payload")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{self, ControlCommand, DeviceInfo, Params};
use super::error::{Error, Result};

const PATH: &str = "/dev/ublk-control";

/// Connection to the driver.
pub(super) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128>,
}

/// How a command that may take long has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Yes,
    /// Not within the timeout; it continues.
    NotYet,
}

impl Control {
    pub(super) fn open() -> Result<Self> {
        let file =
            File::options().read(true).write(true).open(PATH).map_err(|source| {
                match source.kind() {
                    io::ErrorKind::NotFound => Error::NoDriver,
                    io::ErrorKind::PermissionDenied => Error::Denied,
                    _ => Error::refused("opening /dev/ublk-control", source),
                }
            })?;
        let ring = IoUring::builder()
            .build(2)
            .map_err(|source| Error::refused("setting up io_uring", source))?;
        Ok(Self { file, ring })
    }

    /// Creates a device. The driver fills in `info`.
    pub(super) fn add(&mut self, info: &mut DeviceInfo) -> Result<(), Errno> {
        self.run(abi::ADD_DEV, info.id, 0, info.as_mut_bytes())
    }

    pub(super) fn info(&mut self, id: u32) -> Result<DeviceInfo, Errno> {
        let mut info = DeviceInfo::default();
        self.run(abi::GET_DEV_INFO, id, 0, info.as_mut_bytes())?;
        Ok(info)
    }

    pub(super) fn set_params(&mut self, id: u32, mut params: Params) -> Result<(), Errno> {
        self.run(abi::SET_PARAMS, id, 0, params.as_mut_bytes())
    }

    pub(super) fn params(&mut self, id: u32) -> Result<Params, Errno> {
        let len = u32::try_from(size_of::<Params>()).expect("small");
        let mut params = Params { len, ..Params::default() };
        self.run(abi::GET_PARAMS, id, 0, params.as_mut_bytes())?;
        Ok(params)
    }

    /// Starts the block device, or starts it again. Returns when the driver has read a zone report,
    /// so requests have to be served already.
    pub(super) fn start(&mut self, id: u32, start: Start) -> Result<(), Errno> {
        let command = match start {
            Start::New => abi::START_DEV,
            Start::Recovered => abi::END_USER_RECOVERY,
        };
        self.run(command, id, u64::from(std::process::id()), &mut [])
    }

    pub(super) fn start_recovery(&mut self, id: u32) -> Result<(), Errno> {
        self.run(abi::START_USER_RECOVERY, id, 0, &mut [])
    }

    /// Gives the block device another size.
    pub(super) fn update_size(&mut self, id: u32, sectors: u64) -> Result<(), Errno> {
        self.run(abi::UPDATE_SIZE, id, sectors, &mut [])
    }

    /// Stops the block device, after the running requests.
    pub(super) fn stop(&mut self, id: u32) -> Result<(), Errno> {
        self.run(abi::STOP_DEV, id, 0, &mut [])
    }

    /// Removes the device, and waits up to `timeout` until no program uses it any more.
    pub(super) fn delete(mut self, id: u32, timeout: Duration) -> Result<Ended, Errno> {
        self.push(abi::DEL_DEV, id, 0, &mut []);
        let time = Timespec::from(timeout);
        loop {
            let arguments = SubmitArgs::new().timespec(&time);
            match self.ring.submitter().submit_with_args(1, &arguments) {
                Ok(_) => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::TIME) => return Ok(Ended::NotYet),
                    Some(Errno::INTR) => {}
                    _ => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
                },
            }
            if let Some(end) = self.ring.completion().next() {
                return outcome(&end).map(|()| Ended::Yes);
            }
        }
    }

    /// Runs a command and waits for its completion.
    fn run(&mut self, op: u32, id: u32, data: u64, payload: &mut [u8]) -> Result<(), Errno> {
        self.push(op, id, data, payload);
        loop {
            if let Err(error) = self.ring.submit_and_wait(1) {
                let errno = Errno::from_io_error(&error);
                assert!(
                    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY | Errno::NOMEM)),
                    "the kernel may still use the payload, and cannot be asked: {error}"
                );
            }
            if let Some(end) = self.ring.completion().next() {
                return outcome(&end);
            }
        }
    }

    /// The caller keeps `payload` alive until the command has completed.
    fn push(&mut self, op: u32, id: u32, data: u64, payload: &mut [u8]) {
        let len = u16::try_from(payload.len()).expect("at most a struct of the header");
        let address = if payload.is_empty() { 0 } else { payload.as_mut_ptr().expose_provenance() };
        let command = ControlCommand {
            id,
            queue: u16::MAX,
            len,
            address: address as u64,
            data,
            path_len: 0,
            pad: 0,
            reserved: 0,
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), op).cmd(bytes).build();
        // SAFETY: the driver takes a `struct ublksrv_ctrl_cmd`, whose address and length are those
        // of `payload`. `run` returns only when the command has ended; `delete` has no payload. The
        // file is open as long as the ring.
        unsafe { self.ring.submission().push(&entry) }.expect("one command at a time");
    }
}

/// The kind of device to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A new device.
    New,
    /// A device whose server is gone.
    Recovered,
}

fn outcome(end: &cqueue::Entry) -> Result<(), Errno> {
    match end.result() {
        result if result < 0 => Err(Errno::from_raw_os_error(-result)),
        _ => Ok(()),
    }
}
