//! Behaviour of the kernel's zonefs that ours deliberately does not copy: each shown on both.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Result, ensure};

use super::shape::SSD;
use super::side::Drive;
use xtask::tally::Tally;

/// Flag of `open`.
const O_DIRECT: i32 = 0o40000;

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    tally.check("zonefs, a write from a misaligned buffer", || {
        let theirs = after_misaligned_write(&Drive::kernel(&SSD)?)?;
        ensure!(
            theirs == ReadOnly::Yes,
            "the kernel's zonefs is as before, and is no exception any more"
        );
        let ours = after_misaligned_write(&Drive::here(&SSD)?)?;
        ensure!(ours == ReadOnly::No, "ours is read-only");
        Ok(())
    });
}

/// Whether a file system takes no changes.
#[derive(PartialEq, Eq)]
enum ReadOnly {
    Yes,
    No,
}

/// Writes from memory that direct I/O of a drive with blocks of 4 KiB cannot take.
fn after_misaligned_write(drive: &Drive) -> Result<ReadOnly> {
    drive.format(&[])?;
    let mount = drive.mount("errors=remount-ro")?;
    let path = mount.path().join("seq/0");
    // The write itself fails with EINVAL in the kernel. FUSE copies the buffer, so ours takes it.
    let _ = misaligned_write(&path);
    let outcome = match std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)) {
        Ok(()) => ReadOnly::No,
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => ReadOnly::Yes,
        Err(error) => return Err(error.into()),
    };
    mount.unmount()?;
    Ok(outcome)
}

fn misaligned_write(path: &Path) -> io::Result<usize> {
    let file: File = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path)?;
    let memory = vec![0_u8; 3 * 4096];
    let start = memory.as_ptr().align_offset(4096) + 1;
    file.write_at(&memory[start..start + 4096], 0)
}
