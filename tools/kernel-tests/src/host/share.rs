//! The directory that host and guest share: virtiofs, served by the daemon of Debian's QEMU.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use xtask::tools;

/// Where the packages put it, the one in C first: it is the one of the older releases.
const PLACES: [(&str, Dialect); 2] =
    [("/usr/lib/qemu/virtiofsd", Dialect::C), ("/usr/libexec/virtiofsd", Dialect::Rust)];

/// Two programs of one name, with different options.
#[derive(Clone, Copy)]
enum Dialect {
    C,
    Rust,
}

/// Installs the daemon if it is absent.
pub(crate) fn require() -> Result<()> {
    if program().is_err() {
        // Debian 12 has it in a package of QEMU, later ones by itself.
        tools::install(&["virtiofsd"]).or_else(|_| tools::install(&["qemu-system-common"]))?;
        program()?;
    }
    Ok(())
}

fn program() -> Result<(&'static str, Dialect)> {
    let found = PLACES.into_iter().find(|(path, _)| Path::new(path).is_file());
    found.context("virtiofsd is not installed")
}

/// A daemon that serves one directory to one machine.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Serves `shared`; the socket and the log lie in `folder`.
    pub(crate) fn start(shared: &Path, folder: &Path) -> Result<Self> {
        let (path, dialect) = program()?;
        let socket = folder.join("share.socket");
        let log_path = folder.join("share.log");
        let log = File::create(&log_path).context("writing the log of virtiofsd")?;
        let sandbox = if rustix::process::geteuid().is_root() { "chroot" } else { "none" };
        let mut command = Command::new(path);
        command.arg(format!("--socket-path={}", socket.display()));
        match dialect {
            Dialect::C => {
                command.arg("-o").arg(format!("source={}", shared.display()));
                command.arg("-o").arg(format!("sandbox={sandbox}"));
            }
            Dialect::Rust => {
                command.arg("--shared-dir").arg(shared);
                command.arg("--sandbox").arg(sandbox);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("starting virtiofsd")?;
        let mut daemon = Self { child, socket };
        daemon.wait_for_socket(&log_path)?;
        Ok(daemon)
    }

    /// Where QEMU finds it.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn wait_for_socket(&mut self, log: &Path) -> Result<()> {
        while !self.socket.exists() {
            if let Some(status) = self.child.try_wait().context("looking at virtiofsd")? {
                let log = std::fs::read_to_string(log).unwrap_or_default();
                bail!("virtiofsd ended with {status}\n{log}");
            }
            pause();
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already if the machine was there.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing tells when a socket appears")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}
