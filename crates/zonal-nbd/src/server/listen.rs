//! Where a server listens: TCP, and Unix sockets.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::socket::Transport;
use crate::{Error, Result};

/// Where clients reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP port; port 0 is any free one.
    Tcp(SocketAddr),
    /// A Unix socket. The permissions of its file say who may connect.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that clients connect to.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A client that has connected.
pub(super) struct Accepted {
    pub(super) fd: OwnedFd,
    pub(super) transport: Transport,
    /// A name of the client, for the log.
    pub(super) name: String,
}

impl Listener {
    /// Listens at an address.
    pub(super) fn bind(address: &Address) -> Result<Self> {
        let failed = |source| Error::Listen { address: address.to_string(), source };
        match address {
            Address::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).map_err(failed)?)),
            Address::Unix(path) => {
                let listener = bind_unix(path).map_err(failed)?;
                let file = SocketFile::of(path).map_err(failed)?;
                Ok(Self::Unix(listener, file))
            }
        }
    }

    /// The address, with the port that was free.
    pub(super) fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Self::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            Self::Unix(_, file) => Address::Unix(file.path.clone()),
        })
    }

    /// Waits for a client.
    pub(super) fn accept(&self) -> io::Result<Accepted> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Accepted { fd: stream.into(), transport: Transport::Tcp, name: peer.to_string() }
            }
            Self::Unix(listener, file) => {
                let (stream, _) = listener.accept()?;
                let name = format!("unix:{}", file.path.display());
                Accepted { fd: stream.into(), transport: Transport::Unix, name }
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// Listens at a path. Replaces a socket that a killed server left there, and no other file.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let in_use = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => error,
        bound => return bound,
    };
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
        Ok(_) | Err(_) => return Err(in_use),
    }
    fs::remove_file(path)?;
    UnixListener::bind(path)
}

/// The file of a Unix socket; it is removed with this, unless another has taken its place.
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // Without this it is a stale socket, which the next server replaces.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_socket_file_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        assert!(path.exists());
        let second = Listener::bind(&Address::Unix(path.clone()));
        assert!(second.is_err(), "a server listens there");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn unix_stale_socket_is_replaced_and_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a killed server leaves its socket");
        drop(Listener::bind(&Address::Unix(path.clone())).unwrap());
        fs::write(&path, "precious").unwrap();
        let refused = Listener::bind(&Address::Unix(path.clone())).err().unwrap();
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
