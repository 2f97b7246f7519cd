//! `fusermount3`, which mounts and unmounts for users without privileges.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::Errno;
use crate::device::Device;
use crate::program;

const PROGRAM: &str = "fusermount3";

/// Environment variable that names the socket on which it sends the connection.
const SOCKET: &str = "_FUSE_COMMFD";

/// Mounts with these options.
pub(crate) fn mount(point: &Path, options: &str) -> io::Result<Device> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut helper = program::command(PROGRAM);
    helper.args(["-o", options, "--"]).arg(point).env(SOCKET, "0");
    // As standard input the socket is inherited, and no other descriptor is.
    helper.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = helper.spawn().map_err(|error| missing(&error))?;
    // Closes our copy of its end of the socket, so that `receive` sees end of file.
    drop(helper);
    let received = receive(&ours);
    drop(ours);
    let output = child.wait_with_output()?;
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let refused = said.contains("user_allow_other");
            let kind = if refused { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
            Err(io::Error::new(kind, said))
        }
        Err(error) => Err(error),
    }
}

/// Unmounts lazily: the directory is free at once, open files stay usable.
pub(crate) fn unmount(point: &Path) -> io::Result<()> {
    let mut helper = program::command(PROGRAM);
    helper.args(["-u", "-q", "-z", "--"]).arg(point).stdin(Stdio::null());
    let output = helper.output().map_err(|error| missing(&error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn missing(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{PROGRAM}: {error}"))
}

/// Receives the connection; `None` if fusermount3 ends without sending it.
fn receive(socket: &UnixStream) -> io::Result<Option<Device>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptor.map(Device::from))
}
