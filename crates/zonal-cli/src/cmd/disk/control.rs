//! How `zonal disk` reaches disks that are served.
//!
//! A server holds its drive, so no other process can open it. It listens on a Unix socket instead
//! and performs what `zonal disk` asks for. The socket has the numbers of the file or node that the
//! server has locked, so a process that finds it locked finds the socket. Only the user of the
//! server and root can connect.
//!
//! A process connects, sends a [`Call`] as JSON and closes its side; the server sends an
//! [`Answer`].

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};
use serde::{Deserialize, Serialize};
use zonal::listen::Listeners;
use zonal::{DeviceError, shown};
use zonal_fs::disk::{Disks, ListedDisk};

use super::request::Request;
use crate::advice::{self, Reported};

/// How long a process may take to send its call, and to receive the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a call.
const CALL_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Call {
    /// The layers through which the process looks at the drive: see [`layers`].
    layers: String,
    request: Request,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Done(Vec<ListedDisk>),
    Failed { message: String, errno: Option<i32> },
}

/// The socket of a server, and the thread that performs the calls of other processes.
pub(crate) struct Control {
    path: PathBuf,
    listeners: Listeners<UnixStream>,
}

impl Control {
    /// Listens for calls about the disks of `spec`. This process has locked `held`.
    pub(crate) fn start(disks: Arc<Disks>, spec: &str, held: &Path) -> Result<Self> {
        let dir = runtime_dir(geteuid());
        make_private(&dir).with_context(|| format!("making {}", dir.display()))?;
        let path = dir.join(socket_name(held)?);
        let failed = || format!("listening on {}", path.display());
        // This process holds the drive, so a killed server has left any socket of this name.
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.with_context(failed)?,
        }
        let listener = UnixListener::bind(&path).with_context(failed)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).with_context(failed)?;
        let server = Server { disks, spec: spec.to_owned(), layers: layers(spec, held) };
        let take = move |accepted: io::Result<(UnixStream, _)>| match accepted {
            Ok((stream, _)) => {
                if let Err(error) = server.serve(stream) {
                    tracing::warn!("a call about disks: {error:#}");
                }
            }
            Err(error) => tracing::warn!(%error, "a call about disks could not be accepted"),
        };
        let mut listeners = Listeners::default();
        let started = listeners.start("disk-control", listener, UnixListener::accept, take);
        started.with_context(failed)?;
        Ok(Self { path, listeners })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.listeners.end();
        // The next server replaces a socket that stays.
        let _ = fs::remove_file(&self.path);
    }
}

struct Server {
    disks: Arc<Disks>,
    spec: String,
    layers: String,
}

impl Server {
    fn serve(&self, mut stream: UnixStream) -> Result<()> {
        let (caller, own) = (socket_peercred(&stream)?.uid, geteuid());
        ensure!(caller.is_root() || caller == own, "user {} may not call", caller.as_raw());
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut call = Vec::new();
        (&mut stream).take(CALL_MAX).read_to_end(&mut call)?;
        let outcome = serde_json::from_slice(&call)
            .context("reading a call of another version of zonal")
            .and_then(|call| self.perform(&call));
        let answer = match outcome {
            Ok(disks) => Answer::Done(disks),
            Err(error) => {
                Answer::Failed { message: advice::text(&error), errno: advice::errno(&error) }
            }
        };
        Ok(stream.write_all(&serde_json::to_vec(&answer)?)?)
    }

    fn perform(&self, call: &Call) -> Result<Vec<ListedDisk>> {
        if call.layers != self.layers {
            bail!("it is served as {}: name it so", shown(&self.spec));
        }
        call.request.perform(&self.disks)
    }
}

/// A connection to the server that holds a drive.
pub(super) struct Connection {
    stream: UnixStream,
    /// The file or node that the server has locked.
    held: PathBuf,
}

impl Connection {
    /// The server that holds the drive, when opening that failed with `error`; `None` if no server
    /// of this user does.
    pub(super) fn to_holder(error: &anyhow::Error) -> Option<Self> {
        let locked = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(DeviceError::Locked { path, by }) => Some((path, *by)),
            _ => None,
        });
        let (held, process) = locked?;
        let proc = |process| fs::metadata(format!("/proc/{process}"));
        let uid = process.and_then(|process| proc(process).ok());
        let uid = uid.map_or_else(geteuid, |found| Uid::from_raw(found.uid()));
        let stream = UnixStream::connect(runtime_dir(uid).join(socket_name(held).ok()?)).ok()?;
        // The socket is of the process that holds the drive, as far as that one is known.
        let server = u32::try_from(socket_peercred(&stream).ok()?.pid.as_raw_nonzero().get());
        let is_holder = process.is_none_or(|process| server == Ok(process));
        is_holder.then(|| Self { stream, held: held.clone() })
    }

    /// Has the server perform a request on the drive, which the command line calls `spec`.
    pub(super) fn ask(mut self, spec: &str, request: Request) -> Result<Vec<ListedDisk>> {
        let call = Call { layers: layers(spec, &self.held), request };
        let asking = "asking the server of its disks";
        self.stream.write_all(&serde_json::to_vec(&call)?).context(asking)?;
        self.stream.shutdown(Shutdown::Write).context(asking)?;
        let mut answer = Vec::new();
        self.stream.read_to_end(&mut answer).context(asking)?;
        if answer.is_empty() {
            bail!("the server of its disks has ended without an answer");
        }
        match serde_json::from_slice(&answer).context("reading the answer of its server")? {
            Answer::Done(disks) => Ok(disks),
            Answer::Failed { message, errno } => Err(Reported { message, errno }.into()),
        }
    }
}

/// Where the processes of a user have their sockets.
fn runtime_dir(user: Uid) -> PathBuf {
    if user.is_root() {
        return "/run/zonal".into();
    }
    let user = user.as_raw();
    let own = PathBuf::from(format!("/run/user/{user}"));
    if own.is_dir() { own.join("zonal") } else { format!("/tmp/zonal-{user}").into() }
}

/// Makes a directory that only this user can enter, unless it is there.
fn make_private(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return Ok(made?),
    }
    let found = fs::symlink_metadata(dir)?;
    let is_own = found.is_dir() && found.uid() == geteuid().as_raw();
    ensure!(is_own && found.mode() & 0o777 == 0o700, "it is there, and others can change it");
    Ok(())
}

/// The name of the socket of the process that has locked a file or a node.
fn socket_name(held: &Path) -> io::Result<String> {
    let found = fs::metadata(held)?;
    Ok(format!("disks-{:x}-{}", found.dev(), found.ino()))
}

/// A device as a command line names it, without the path of the file or node below its layers. Two
/// processes that look through the same layers at the same file see the same drive.
fn layers(spec: &str, held: &Path) -> String {
    let held = held.to_str().and_then(|held| spec.strip_suffix(held));
    held.unwrap_or(spec).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_spec_without_path() {
        for (spec, held, found) in [
            ("drive.zns", "drive.zns", ""),
            ("po2:/a/drive.zns", "/a/drive.zns", "po2:"),
            ("concat(a,b):", "a", "concat(a,b):"),
        ] {
            assert_eq!(layers(spec, Path::new(held)), found);
        }
    }

    #[test]
    fn directory_of_sockets_is_private_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zonal");
        make_private(&path).unwrap();
        make_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, Permissions::from_mode(0o770)).unwrap();
        assert!(make_private(&path).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(make_private(&link).is_err());
    }
}
