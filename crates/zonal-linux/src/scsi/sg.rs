//! SCSI commands through the kernel: the ioctl `SG_IO`, version 3 (`include/scsi/sg.h`).
//!
//! The kernel copies the data here (no `SG_FLAG_DIRECT_IO`), so commands go to the
//! [node beside it](super::bsg) where there is one. A signal would end the wait and let the kernel
//! start the same command again, while the first one is still at the drive: so signals wait until a
//! command has returned.
#![expect(unsafe_code, reason = "what the kernel reads and writes in an ioctl is declared by hand")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rustix::ioctl::{Getter, Ioctl, IoctlOutput, Opcode, Setter, ioctl};

use super::bsg::BlockNode;
use super::sense::Sense;
use super::transport::{Reply, Request, Transport, host, status};
use crate::data::Data;

/// `SG_IO`.
const IO: Opcode = 0x2285;
/// `SG_GET_VERSION_NUM`.
const VERSION: Opcode = 0x2282;
/// `SG_GET_SG_TABLESIZE`: parts of memory that the adapter takes for one command.
const TABLE_SIZE: Opcode = 0x227f;
/// `SG_SET_RESERVED_SIZE`: memory that the kernel keeps for commands of this descriptor.
const SET_RESERVED: Opcode = 0x2275;
/// `BLKSECTGET`, here in bytes (`drivers/scsi/sg.c`).
const BYTES_MAX: Opcode = 0x1267;

/// Bytes of each part (`SG_SCATTER_SZ`, `drivers/scsi/sg.c`).
const PART_BYTES: u64 = 32 << 10;
/// Most bytes of a command: more needs much memory in one piece, and is hardly faster.
const MOST_BYTES: u64 = 512 << 10;
/// The same without a copy.
const MOST_BYTES_DIRECT: u64 = 1 << 20;
/// The smallest page of memory that Linux has.
const PAGE_BYTES: u64 = 4 << 10;
/// Bytes of a command if the kernel reports no limit.
const FEW_BYTES: u64 = 64 << 10;

/// `struct sg_io_hdr`.
#[derive(Clone, Copy)]
#[repr(C)]
struct IoHeader {
    interface_id: c_int,
    direction: c_int,
    command_len: u8,
    sense_len_max: u8,
    iovec_count: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: c_int,
    duration_ms: u32,
    info: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<IoHeader>() == 88 && std::mem::offset_of!(IoHeader, status) == 64);

/// `SG_DXFER_NONE`, `SG_DXFER_TO_DEV`, `SG_DXFER_FROM_DEV`.
const NO_DATA: c_int = -1;
const TO_DRIVE: c_int = -2;
const FROM_DRIVE: c_int = -3;

/// `DRIVER_TIMEOUT` and `DRIVER_SENSE`, as older kernels report them.
const DRIVER_TIMEOUT: u16 = 6;
const DRIVER_SENSE: u16 = 8;

/// The argument of `SG_IO`: a header of the version that the node takes, whose pointers borrow the
/// memory that the kernel uses.
pub(super) struct Argument<'a, H> {
    header: H,
    memory: PhantomData<&'a mut [u8]>,
}

impl<H> Argument<'_, H> {
    /// # Safety
    /// The header is the structure that `SG_IO` of the node takes; all that it points to lives as
    /// long as the argument, has the lengths in the header, and may be written where it states so.
    pub(super) unsafe fn new(header: H) -> Self {
        Self { header, memory: PhantomData }
    }
}

// SAFETY: `SG_IO` takes a pointer to the header and changes nothing of it but its results; `as_ptr`
// gives one. `new` demands the right structure.
unsafe impl<H: Copy> Ioctl for Argument<'_, H> {
    type Output = H;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        IO
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.header).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, header: *mut c_void) -> rustix::io::Result<H> {
        // SAFETY: `header` is the pointer from `as_ptr`: ours, alive and initialised.
        Ok(unsafe { *header.cast::<H>() })
    }
}

/// The status of a completed command: the drive's, the adapter's and the kernel's.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) status: u8,
    pub(super) host: u16,
    pub(super) driver: u16,
}

impl Outcome {
    /// The reply. Kernels before 5.14 say only by the driver's status that a command timed out or
    /// that there is sense data.
    pub(super) fn reply(self, sense: &[u8], residual: usize) -> Reply {
        let driver = self.driver & 0xf;
        let has_sense = self.status == status::GOOD && driver == DRIVER_SENSE && !sense.is_empty();
        let timed_out = self.host == 0 && driver == DRIVER_TIMEOUT;
        Reply {
            status: if has_sense { status::CHECK_CONDITION } else { self.status },
            sense: Sense::decode(sense),
            host: if timed_out { host::TIME_OUT } else { self.host },
            residual,
        }
    }
}

/// An open SCSI generic node.
pub(super) struct Node {
    file: File,
    /// The node that copies no data, if the drive has one.
    direct: Option<BlockNode>,
    bytes_max: u64,
}

impl Node {
    /// The node that `file` is; `ENOTTY` or `EINVAL` if it is none.
    pub(super) fn new(file: File) -> rustix::io::Result<Self> {
        number::<VERSION>(&file)?;
        let bytes = |number: c_int| u64::try_from(number).ok().filter(|bytes| *bytes > 0);
        let queue = number::<BYTES_MAX>(&file).ok().and_then(bytes).unwrap_or(FEW_BYTES);
        let parts = number::<TABLE_SIZE>(&file).ok().and_then(bytes);
        let table = parts.map_or(FEW_BYTES, |parts| parts.saturating_mul(PART_BYTES));
        let direct = BlockNode::beside(&file);
        let bytes_max = match &direct {
            None => queue.min(table).min(MOST_BYTES),
            // Memory lies in pages, and begins inside of one.
            Some(_) => {
                let pages = parts.map_or(FEW_BYTES, |parts| (parts.max(2) - 1) * PAGE_BYTES);
                queue.min(pages).min(MOST_BYTES_DIRECT)
            }
        };
        if direct.is_none() {
            let reserved = c_int::try_from(bytes_max).expect("at most half a MiB");
            // SAFETY: SG_SET_RESERVED_SIZE takes an `int` and only reads it.
            let set = unsafe { Setter::<SET_RESERVED, c_int>::new(reserved) };
            // The kernel reserves some memory or none: this only saves most commands an allocation.
            // SAFETY: as above.
            let _ = unsafe { ioctl(&file, set) };
        }
        Ok(Self { file, direct, bytes_max })
    }
}

/// A number that the kernel reports of a node.
fn number<const OPCODE: Opcode>(file: &File) -> rustix::io::Result<c_int> {
    // SAFETY: the opcodes that this file uses here write one `int`.
    let get = unsafe { Getter::<OPCODE, c_int>::new() };
    // SAFETY: as above.
    unsafe { ioctl(file, get) }
}

impl Transport for Node {
    fn run(&self, request: &mut Request<'_>) -> io::Result<Reply> {
        if let Some(direct) = &self.direct {
            match direct.run(request) {
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                done => return done,
            }
        }
        let mut sense = [0; Sense::BYTES_MAX];
        let command = request.cdb.as_bytes();
        let len = request.data.len();
        let (direction, data) = match &mut request.data {
            Data::Nothing => (NO_DATA, std::ptr::null_mut()),
            Data::Fill(bytes) => (FROM_DRIVE, bytes.as_mut_ptr().cast()),
            // With this direction the kernel only reads.
            Data::Take(bytes) => (TO_DRIVE, bytes.as_ptr().cast_mut().cast()),
        };
        let header = IoHeader {
            interface_id: c_int::from(b'S'),
            direction,
            command_len: u8::try_from(command.len()).expect("at most 16"),
            sense_len_max: u8::try_from(sense.len()).expect("at most 252"),
            iovec_count: 0,
            data_len: u32::try_from(len).expect("a command moves less than 4 GiB"),
            data,
            command: command.as_ptr(),
            sense: sense.as_mut_ptr(),
            timeout_ms: request.timeout_ms,
            flags: 0,
            pack_id: 0,
            user: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            message_status: 0,
            sense_len: 0,
            host_status: 0,
            driver_status: 0,
            residual: 0,
            duration_ms: 0,
            info: 0,
        };
        let signals = BlockedSignals::new();
        // SAFETY: the command, the data and the sense buffer live until the call returns, have the
        // lengths in the header, and the kernel moves data only in the direction that it states.
        let argument = unsafe { Argument::new(header) };
        // SAFETY: as above.
        let done = unsafe { ioctl(&self.file, argument) };
        drop(signals);
        let done = done?;
        let written = usize::from(done.sense_len).min(sense.len());
        let outcome =
            Outcome { status: done.status, host: done.host_status, driver: done.driver_status };
        Ok(outcome.reply(&sense[..written], usize::try_from(done.residual).unwrap_or(0).min(len)))
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

/// Keeps signals from this thread until it is dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` initialises the set that it gets.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: both sets are ours; the first one is initialised.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: `pthread_sigmask` fails only for an unknown first argument: it stored the mask.
        Self { before: unsafe { before.assume_init() } }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that this thread had; nothing is stored in the null pointer.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn node_of_other_kind_is_refused() {
        let null = File::open("/dev/null").unwrap();
        let errno = Node::new(null).err().unwrap();
        assert!(matches!(errno, Errno::NOTTY | Errno::INVAL), "{errno}");
    }

    #[test]
    fn status_of_driver_tells_timeout_and_sense_of_old_kernels() {
        let reply = |status, host, driver, sense: &[u8]| {
            let reply = Outcome { status, host, driver }.reply(sense, 0);
            (reply.status, reply.host)
        };
        let sense = Sense::new(6, 0x29, 0).encode_fixed();
        assert_eq!(reply(0, 0, 0, &[]), (status::GOOD, 0));
        assert_eq!(reply(0, 0, DRIVER_TIMEOUT, &[]), (status::GOOD, host::TIME_OUT));
        assert_eq!(reply(0, 0, DRIVER_SENSE, &sense), (status::CHECK_CONDITION, 0));
        assert_eq!(reply(2, 7, DRIVER_SENSE, &sense), (status::CHECK_CONDITION, 7));
    }
}
