//! SCSI generic nodes by device number, and by the serial number of the drive behind them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use zonal::DeviceError;

use super::channel::Channel;
use super::discover;
use super::inquiry::{content_of, page, text};
use super::sg::Node;
use crate::Result;

/// Major number of the nodes (`SCSI_GENERIC_MAJOR`, `include/uapi/linux/major.h`).
const MAJOR: u32 = 21;

/// Where the kernel lists them.
const CLASS: &str = "/sys/class/scsi_generic";

/// Whether a character device with this number is such a node.
pub fn is_node(number: u64) -> bool {
    rustix::fs::major(number) == MAJOR
}

/// The node that `name` stands for: a path, or the serial number of a drive.
///
/// # Errors
/// No drive has the serial number; the error lists the numbers of the drives that are there.
pub fn find(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        return Ok(name.into());
    }
    find_in(Path::new(CLASS), Path::new("/dev"), name)
}

fn find_in(class: &Path, nodes: &Path, serial: &str) -> Result<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(class)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let node = nodes.join(&name);
        // The kernel keeps the page of most drives. To ask the others needs permission.
        let kept = fs::read(class.join(&name).join("device/vpd_pg80")).ok();
        let number = kept
            .and_then(|answer| content_of(page::SERIAL, &answer).and_then(text))
            .or_else(|| ask(&node));
        match number {
            Some(number) if number == serial => return Ok(node),
            Some(number) => found.push(number),
            None => {}
        }
    }
    let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
    let why = format!("no SCSI generic node has it; serial numbers found: {found}");
    Err(DeviceError::Io {
        what: format!("finding the drive with serial number {serial}"),
        source: io::Error::new(io::ErrorKind::NotFound, why),
    })
}

/// The serial number that a drive reports.
fn ask(node: &Path) -> Option<String> {
    let channel = Channel::new(Box::new(Node::new(File::open(node).ok()?).ok()?));
    discover::content(&channel, page::SERIAL).ok()?.and_then(|content| text(&content))
}

#[cfg(test)]
mod tests {
    use super::super::inquiry::encode_page;
    use super::*;

    #[test]
    fn drive_is_found_by_serial_number() {
        let class = tempfile::tempdir().unwrap();
        for (name, serial) in [("sg0", " 9JG1WXYZ"), ("sg1", "2CG0ABCD"), ("sg2", "")] {
            let device = class.path().join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            let answer = encode_page(0x14, page::SERIAL, serial.as_bytes());
            fs::write(device.join("vpd_pg80"), answer).unwrap();
        }
        let find = |serial| find_in(class.path(), Path::new("/nowhere"), serial);
        assert_eq!(find("2CG0ABCD").unwrap(), Path::new("/nowhere/sg1"));
        let error = find("other").unwrap_err().to_string();
        assert!(error.contains("9JG1WXYZ, 2CG0ABCD"), "{error}");
        assert!(error.contains("serial number other"), "{error}");
    }

    #[test]
    fn path_is_taken_as_it_is() {
        assert_eq!(super::find("/dev/sg7").unwrap(), Path::new("/dev/sg7"));
        assert!(is_node(rustix::fs::makedev(21, 7)) && !is_node(rustix::fs::makedev(1, 3)));
    }
}
