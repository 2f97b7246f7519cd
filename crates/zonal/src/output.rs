//! Files that a program writes where its user says so: one rule for all of them.
//!
//! An output replaces a file, or is appended to it, and a wrong name must not destroy anything. So
//! an output may not be a file that the program reads, by any name, nor a drive file, nor a device.
//! Devices that only take data are allowed: `/dev/null`, a terminal, and the standard output and
//! standard error of this process.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::file::format;

/// The fate of the content that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is lost.
    Replace,
    /// It stays in front.
    Append,
    /// It stays in front, and is read.
    Resume,
}

/// The reason why an output is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is one of the files that are read.
    #[error("it is read as well, and writing would destroy it")]
    Input,
    /// It is a drive file.
    #[error("it is a zoned drive, and writing would destroy what it holds")]
    Drive,
    /// It is a block device.
    #[error("it is a block device, and writing would destroy what it holds")]
    BlockDevice,
    /// It is a character device that does more than take data.
    #[error("it is a device, not a file")]
    CharDevice,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::new(io::ErrorKind::InvalidInput, refused)
    }
}

/// Opens an output, made if it is not there. Where it is [`Refused`], nothing has changed.
pub fn open(path: &Path, existing: Existing, inputs: &[PathBuf]) -> io::Result<File> {
    // To open a device can do something to it already.
    check(path, inputs)?;
    let mut options = OpenOptions::new();
    match existing {
        Existing::Replace => options.write(true).truncate(false),
        Existing::Append => options.append(true),
        Existing::Resume => options.read(true).append(true),
    };
    let file = options.create(true).open(path)?;
    // Another file may have got the name meanwhile.
    let found = file.metadata()?;
    check_found(path, &found, inputs)?;
    if existing == Existing::Replace && found.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Writes an output as a whole.
pub fn write(path: &Path, content: impl AsRef<[u8]>, inputs: &[PathBuf]) -> io::Result<()> {
    open(path, Existing::Replace, inputs)?.write_all(content.as_ref())
}

/// Whether an output would be [`Refused`], for a program that writes it only after long work.
pub fn check(path: &Path, inputs: &[PathBuf]) -> io::Result<()> {
    match path.metadata() {
        Ok(found) => check_found(path, &found, inputs),
        // It is made, or opening it fails.
        Err(_) => Ok(()),
    }
}

fn check_found(path: &Path, found: &Metadata, inputs: &[PathBuf]) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_block_device() {
        return Err(Refused::BlockDevice.into());
    }
    if kind.is_char_device() && !only_takes(found) {
        return Err(Refused::CharDevice.into());
    }
    if !kind.is_file() {
        return Ok(());
    }
    let is_found = |input: &PathBuf| {
        let input = input.metadata();
        input.is_ok_and(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()))
    };
    if is_drive(path) {
        return Err(Refused::Drive.into());
    }
    if inputs.iter().any(is_found) {
        return Err(Refused::Input.into());
    }
    Ok(())
}

/// Whether a character device takes data and does nothing else with it.
fn only_takes(found: &Metadata) -> bool {
    let number = found.rdev();
    // null, zero, full and tty, as Documentation/admin-guide/devices.txt of Linux has them.
    let known = [(1, 3), (1, 5), (1, 7), (5, 0)];
    let own = [rustix::fs::fstat(io::stdout()), rustix::fs::fstat(io::stderr())];
    known.contains(&(major(number), minor(number)))
        || own.into_iter().flatten().any(|own| {
            rustix::fs::FileType::from_raw_mode(own.st_mode).is_char_device()
                && own.st_rdev == number
        })
}

/// Whether a file has one of the two headers of a drive; `false` if the caller may not read it.
pub fn is_drive(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| format::has_header(&file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, symlink};

    use super::*;
    use crate::file::{CreateOptions, Overwrite};
    use crate::{FileDrive, Profile, Rules};

    /// The reason of a refusal.
    fn refused(outcome: io::Result<File>) -> Option<Refused> {
        let error = outcome.err()?;
        error.get_ref().and_then(|cause| cause.downcast_ref()).copied()
    }

    #[test]
    fn output_refuses_what_it_would_destroy_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let options = CreateOptions {
            geometry: Profile::Small.geometry(),
            rules: Rules::Zns,
            uuid: [1; 16],
            overwrite: Overwrite::Refuse,
        };
        FileDrive::create(at("drive"), &options).unwrap();
        // A drive whose first header is damaged is worth as much.
        FileDrive::create(at("damaged"), &options).unwrap();
        let damaged = File::options().write(true).open(at("damaged")).unwrap();
        damaged.write_all_at(&[0; 512], 0).unwrap();
        std::fs::write(at("input"), "input").unwrap();
        for name in ["drive", "damaged", "input"] {
            std::fs::hard_link(at(name), at(&format!("{name}.hard"))).unwrap();
            symlink(at(name), at(&format!("{name}.soft"))).unwrap();
        }
        let inputs = [at("missing"), at("input")];
        for existing in [Existing::Replace, Existing::Append, Existing::Resume] {
            for (name, why) in
                [("drive", Refused::Drive), ("damaged", Refused::Drive), ("input", Refused::Input)]
            {
                let before = std::fs::read(at(name)).unwrap();
                for ending in ["", ".hard", ".soft"] {
                    let path = at(&format!("{name}{ending}"));
                    assert_eq!(refused(open(&path, existing, &inputs)), Some(why), "{name}");
                    assert!(check(&path, &inputs).is_err(), "{name}{ending}");
                }
                assert!(std::fs::read(at(name)).unwrap() == before, "{name}");
            }
            let random = open(Path::new("/dev/random"), existing, &[]);
            assert_eq!(refused(random), Some(Refused::CharDevice));
            open(Path::new("/dev/null"), existing, &inputs).unwrap();
        }
    }

    #[test]
    fn output_creates_replaces_or_appends_to_ordinary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        check(&path, &[]).unwrap();
        assert!(!path.exists(), "looking makes nothing");
        for (existing, content) in [
            (Existing::Append, "x"),
            (Existing::Append, "xx"),
            (Existing::Resume, "xxx"),
            (Existing::Replace, "x"),
        ] {
            open(&path, existing, &[]).unwrap().write_all(b"x").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        write(&path, "all", &[]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all");
    }
}
