//! Lines of the kernel's log that tell of trouble with a disk.
//!
//! A record of `/dev/kmsg` is `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, and further lines of it begin with
//! a blank (`Documentation/ABI/testing/dev-kmsg`).

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Longest record (`CONSOLE_EXT_LOG_MAX` is 8 KiB).
const RECORD_BYTES: usize = 16 << 10;

/// Most records that are looked at: a log has some thousands.
const RECORDS_MAX: usize = 200_000;

/// Words of lines that tell of trouble, in lower case.
const TROUBLE: [&str; 10] = [
    "unsupported",
    "error",
    "fail",
    "ncq disabled",
    "zone size",
    "timeout",
    "timed out",
    "resetting",
    "offlined",
    "blocked for more than",
];

/// The lines; `None` if this user cannot read the log.
pub(super) fn lines(root: &Path) -> Option<Vec<String>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
    let mut log =
        OpenOptions::new().read(true).custom_flags(flags).open(root.join("dev/kmsg")).ok()?;
    let (mut record, mut found) = (vec![0; RECORD_BYTES], Vec::new());
    for _ in 0..RECORDS_MAX {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(bytes) => found.extend(troubles(&String::from_utf8_lossy(&record[..bytes]))),
            // The kernel has overwritten records since the last read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Some(found)
}

/// The texts in records that tell of trouble.
fn troubles(records: &str) -> Vec<String> {
    let texts = records.lines().filter_map(|line| line.split_once(';').map(|(_, text)| text));
    let is_trouble = |text: &&str| {
        let text = text.to_lowercase();
        TROUBLE.iter().any(|word| text.contains(word))
    };
    texts.filter(is_trouble).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_texts_of_trouble_only() {
        let records = "6,1,5,-;sd 0:0:0:0: [sda] Attached SCSI disk\n SUBSYSTEM=scsi\n\
                       5,2,6,-;sd 0:0:0:0: Unsupported ZBC host-managed device.\n";
        assert_eq!(troubles(records), ["sd 0:0:0:0: Unsupported ZBC host-managed device."]);
    }
}
