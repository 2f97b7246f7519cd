//! Tells systemd that a server is ready: a unit of `Type=notify` counts as started from then on,
//! and units that systemd orders after it find the mount or the device. `sd_notify(3)` is the
//! protocol.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notifies systemd, if it started this process and asks for that.
pub(crate) fn ready() {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket) {
        tracing::warn!(%error, "telling systemd that this is ready");
    }
}

/// A name that starts with `@` belongs to the abstract namespace.
fn send(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(systemd: &UnixDatagram, socket: &OsStr) -> String {
        send(socket).unwrap();
        let mut message = [0; 64];
        let length = systemd.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[test]
    fn notify_reaches_systemd_at_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        assert_eq!(told(&systemd, path.as_os_str()), "READY=1");
    }

    #[test]
    fn notify_reaches_systemd_at_abstract_name() {
        let name = format!("zonal-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let systemd = UnixDatagram::bind_addr(&address).unwrap();
        assert_eq!(told(&systemd, format!("@{name}").as_ref()), "READY=1");
    }
}
