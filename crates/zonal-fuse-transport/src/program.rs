//! System programs that this process runs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories of system programs.
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// A command by its name. Root ignores `PATH`, which another user may have set, and runs the
/// program of the system.
pub fn command(name: &str) -> Command {
    Command::new(if rustix::process::geteuid().is_root() { of_system(name) } else { name.into() })
}

fn of_system(name: &str) -> PathBuf {
    let mut places = PLACES.iter().map(|place| Path::new(place).join(name));
    // The error for a missing program then names this path.
    places.find(|path| path.exists()).unwrap_or_else(|| Path::new(PLACES[0]).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_for_root_come_from_system() {
        assert_eq!(of_system("no-such-program"), Path::new("/usr/bin/no-such-program"));
        assert!(of_system("sh").is_absolute());
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(Path::new(command("sh").get_program()).is_absolute(), is_root);
    }
}
