//! SCSI commands through the kernel without a copy: the ioctl `SG_IO`, version 4, of the node in
//! `/dev/bsg` that a drive has beside its SCSI generic node (`include/uapi/linux/bsg.h`).
//!
//! `/dev/sgN` copies all data through pages that it allocates for each command. This node gives the
//! adapter our memory (`blk_rq_map_user`, `drivers/scsi/scsi_bsg.c`). The call returns when the
//! kernel has completed the command, and no signal ends the wait.
#![expect(unsafe_code, reason = "what the kernel reads and writes in an ioctl is declared by hand")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, major, minor};
use rustix::ioctl::ioctl;

use super::sense::Sense;
use super::sg::{Argument, Outcome};
use super::transport::{Reply, Request};
use crate::data::Data;

/// `BSG_FLAG_Q_AT_TAIL`: the command waits for its turn.
const AT_TAIL: u32 = 0x10;

/// `struct sg_io_v4`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct IoHeader {
    guard: i32,
    protocol: u32,
    subprotocol: u32,
    command_len: u32,
    command: u64,
    tag: u64,
    attribute: u32,
    priority: u32,
    extra: u32,
    sense_len_max: u32,
    sense: u64,
    out_parts: u32,
    out_len: u32,
    in_parts: u32,
    in_len: u32,
    out_data: u64,
    in_data: u64,
    timeout_ms: u32,
    flags: u32,
    user: u64,
    spare_in: u32,
    driver_status: u32,
    host_status: u32,
    status: u32,
    retry_delay: u32,
    info: u32,
    duration_ms: u32,
    sense_len: u32,
    in_residual: i32,
    out_residual: i32,
    generated_tag: u64,
    spare_out: u32,
    padding: u32,
}

const _: () = assert!(size_of::<IoHeader>() == 160);
const _: () = assert!(std::mem::offset_of!(IoHeader, driver_status) == 108);

/// An open node of `/dev/bsg`.
pub(super) struct BlockNode {
    file: File,
}

impl BlockNode {
    /// The node of the drive that `generic`, its open SCSI generic node, leads to, opened with the
    /// same access. `None` if the kernel has none, or this user may not open it.
    pub(super) fn beside(generic: &File) -> Option<Self> {
        let flags = fcntl_getfl(generic).ok()?;
        let number = generic.metadata().ok()?.rdev();
        let (path, number) = place_of(Path::new("/sys"), number)?;
        let writes = flags.contains(OFlags::RDWR);
        let file = OpenOptions::new().read(true).write(writes).open(path).ok()?;
        // The kernel's name may be another device's in this /dev.
        (file.metadata().ok()?.rdev() == number).then_some(Self { file })
    }

    /// Runs a command. EINVAL means that the kernel could not map the memory and the drive has
    /// not seen the command.
    pub(super) fn run(&self, request: &mut Request<'_>) -> io::Result<Reply> {
        let mut sense = [0_u8; Sense::BYTES_MAX];
        let command = request.cdb.as_bytes();
        let len = request.data.len();
        let len_u32 = u32::try_from(len).expect("a command moves less than 4 GiB");
        let mut header = IoHeader {
            guard: i32::from(b'Q'),
            command_len: u32::try_from(command.len()).expect("at most 16"),
            command: command.as_ptr() as u64,
            sense_len_max: u32::try_from(sense.len()).expect("at most 252"),
            sense: sense.as_mut_ptr() as u64,
            timeout_ms: request.timeout_ms,
            flags: AT_TAIL,
            ..IoHeader::default()
        };
        match &mut request.data {
            Data::Nothing => {}
            Data::Fill(bytes) => {
                (header.in_len, header.in_data) = (len_u32, bytes.as_mut_ptr() as u64);
            }
            Data::Take(bytes) => {
                (header.out_len, header.out_data) = (len_u32, bytes.as_ptr() as u64);
            }
        }
        // SAFETY: the command, the data and the sense buffer live until the call returns, have the
        // lengths in the header, and the kernel moves data only in the direction that it states.
        let argument = unsafe { Argument::new(header) };
        // SAFETY: as above.
        let done = unsafe { ioctl(&self.file, argument) }?;
        let written =
            usize::try_from(done.sense_len).map_or(sense.len(), |len| len.min(sense.len()));
        let residual = done.in_residual.max(done.out_residual);
        let outcome = Outcome {
            status: u8::try_from(done.status & 0xff).expect("a byte"),
            host: u16::try_from(done.host_status & 0xffff).expect("two bytes"),
            driver: u16::try_from(done.driver_status & 0xffff).expect("two bytes"),
        };
        Ok(outcome.reply(&sense[..written], usize::try_from(residual).unwrap_or(0).min(len)))
    }
}

/// The path and the number of the node of the drive whose SCSI generic node has `number`.
fn place_of(sys: &Path, number: u64) -> Option<(PathBuf, u64)> {
    let generic = sys.join(format!("dev/char/{}:{}", major(number), minor(number)));
    let entry = fs::read_dir(generic.join("device/bsg")).ok()?.next()?.ok()?;
    let said = fs::read_to_string(entry.path().join("dev")).ok()?;
    let (major, minor) = said.trim().split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some((Path::new("/dev/bsg").join(entry.file_name()), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_copies_is_found_beside_generic_one() {
        let sys = tempfile::tempdir().unwrap();
        let entry = sys.path().join("dev/char/21:3/device/bsg/2:0:1:0");
        fs::create_dir_all(&entry).unwrap();
        fs::write(entry.join("dev"), "252:7\n").unwrap();
        let number = rustix::fs::makedev(21, 3);
        let found = place_of(sys.path(), number);
        assert_eq!(found, Some(("/dev/bsg/2:0:1:0".into(), rustix::fs::makedev(252, 7))));
        assert_eq!(place_of(sys.path(), rustix::fs::makedev(21, 4)), None);
    }
}
