//! The control directory of a mount: commands read the counters and the options of the mount there,
//! and send it commands.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use zonal::shown;
use zonal_fuse::ServeError;
use zonal_fuse::control::Report;
use zonal_fuse::names::CONTROL_DIR;
use zonal_fuse::options::Options;
use zonal_fuse::unmount::is_dead;

/// Largest read of FUSE.
const READ_BYTES: usize = 1 << 20;

/// All counters of a mount.
pub(crate) fn report(dir: &Path) -> Result<Report> {
    serde_json::from_str(&read(dir, "stats")?).context("the counters are not valid JSON")
}

/// The options in force of a mount.
pub(crate) fn options(dir: &Path) -> Result<Options> {
    serde_json::from_str(&read(dir, "options")?).context("the options in force are not known")
}

/// A file of the control directory. In few reads, since another reader may begin in between.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    tracing::debug!(file = shown(path), "reading from the mount");
    let (mut file, mut text) = (fs::File::open(path)?, Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Writes a line to the control directory's file for commands.
pub(crate) fn command(dir: &Path, line: &str) -> io::Result<()> {
    let path = dir.join(CONTROL_DIR).join("command");
    tracing::debug!(file = shown(&path), line, "sending a command to the mount");
    fs::OpenOptions::new().write(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}

/// A file of the control directory, by its name.
pub(crate) fn read(dir: &Path, name: &str) -> Result<String> {
    match read_file(&dir.join(CONTROL_DIR).join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && dir.exists() => {
            Err(ServeError::NotServed { point: dir.to_owned() }.into())
        }
        Err(error) if is_dead(&error) => Err(ServeError::Dead { point: dir.to_owned() }.into()),
        read => read.with_context(|| format!("reading the {name} of {}", dir.display())),
    }
}
