//! A mounted zonefs, the kernel's or ours: zone files filled, emptied, written anew and read back.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::contents::{bytes_of, first_difference};
use super::mounted::Mounted;
use super::side;

/// How much is written at first.
const FILL_MAX: u64 = 120 << 20;

/// How much is written at once.
const PART: usize = 128 << 10;

/// The unit of `st_blocks`.
const SECTOR: u64 = 512;

/// Flag of `open`.
const O_DIRECT: i32 = 0o40000;

/// The content of a zone file: bytes that follow from a seed.
struct ZoneFile {
    seed: u64,
    length: u64,
}

/// Uses the zonefs that `mount` mounts, which is empty. It has nothing that could be checked but
/// the zones: they are read again after it was mounted anew.
pub(super) fn exercise(mount: impl Fn(&Path) -> Result<Mounted>) -> Result<()> {
    let place = side::mount_point()?;
    let mounted = mount(&place)?;
    let mut files = fill(&place)?;
    for (number, file) in files.iter_mut().enumerate().filter(|(number, _)| number % 3 != 0) {
        let path = place.join(format!("seq/{number}"));
        OpenOptions::new().write(true).open(path)?.set_len(0).context("emptying a zone")?;
        file.seed += 1000;
        // Few stay active: there is a limit.
        file.length = match number % 3 {
            1 => 0,
            _ if number < 18 => file.length / 2,
            _ => file.length,
        };
        write(&place, number, file)?;
    }
    verify(&place, &files)?;
    mounted.unmount()?;
    let mounted = mount(&place)?;
    verify(&place, &files).context("after it was mounted again")?;
    mounted.unmount()
}

/// Fills zones to their capacities.
fn fill(place: &Path) -> Result<Vec<ZoneFile>> {
    let mut files = Vec::new();
    let mut bytes = 0;
    for number in 0..fs::read_dir(place.join("seq"))?.count() {
        let length = fs::metadata(place.join(format!("seq/{number}")))?.blocks() * SECTOR;
        bytes += length;
        if bytes > FILL_MAX {
            break;
        }
        let file = ZoneFile { seed: bytes, length };
        write(place, number, &file)?;
        files.push(file);
    }
    Ok(files)
}

fn write(place: &Path, number: usize, content: &ZoneFile) -> Result<()> {
    let path = place.join(format!("seq/{number}"));
    let file = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(path)?;
    // Direct writes are from memory that is aligned.
    let mut memory = vec![0_u8; PART + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let bytes = bytes_of(content.seed, content.length);
    for (at, part) in (0_u64..).step_by(PART).zip(bytes.chunks(PART)) {
        let buffer = &mut memory[start..start + part.len()];
        buffer.copy_from_slice(part);
        file.write_all_at(buffer, at).with_context(|| format!("zone file {number} at {at}"))?;
    }
    Ok(())
}

fn verify(place: &Path, files: &[ZoneFile]) -> Result<()> {
    for (number, ZoneFile { seed, length }) in files.iter().enumerate() {
        let bytes = fs::read(place.join(format!("seq/{number}")))?;
        if let Some(at) = first_difference(&bytes, &bytes_of(*seed, *length)) {
            bail!("zone file {number} is wrong from byte {at} of {length}");
        }
    }
    Ok(())
}
