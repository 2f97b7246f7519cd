//! The two zonefs that are compared, each on a drive of the same shape: how to make and mount them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use super::null_blk::NullBlk;
use super::shape::Shape;
use xtask::run;

/// Where the guest finds the `zonal` of this build.
pub(super) const ZONAL: &str = "/share/zonal";

/// Bytes of a super block.
pub(super) const SUPER_BLOCK: usize = 4096;

/// Runs the `zonal` of this build, and returns its output.
pub(super) fn zonal(arguments: &[&str]) -> Result<String> {
    run::quietly(Command::new(ZONAL).args(arguments))
}

/// A number that no other drive or mount of this boot has, so that leftovers of a failed check do
/// no harm.
pub(super) fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An empty directory that nothing else of this boot uses.
pub(super) fn mount_point() -> Result<PathBuf> {
    let place = PathBuf::from(format!("/tmp/mount{}", next_number()));
    fs::create_dir_all(&place)?;
    Ok(place)
}

/// A drive of one side.
pub(super) enum Drive {
    /// The kernel's, for the kernel's zonefs and Debian's zonefs-tools.
    Kernel(NullBlk),
    /// Ours.
    Here { file: PathBuf, shape: Shape },
}

impl Drive {
    /// An empty drive of the kernel.
    pub(super) fn kernel(shape: &Shape) -> Result<Self> {
        NullBlk::new(shape).map(Self::Kernel)
    }

    /// An empty drive of ours.
    pub(super) fn here(shape: &Shape) -> Result<Self> {
        let file = PathBuf::from(format!("/tmp/drive{}.zns", next_number()));
        let mut command = Command::new(ZONAL);
        command.arg("create").arg(&file).arg("--force").args(shape.create_options());
        run::quietly(&mut command)?;
        Ok(Self::Here { file, shape: *shape })
    }

    /// The side's name for its drive.
    pub(super) fn name(&self) -> &Path {
        match self {
            Self::Kernel(device) => device.path(),
            Self::Here { file, .. } => file,
        }
    }

    /// Makes a zonefs with the side's own tool.
    pub(super) fn format(&self, options: &[&str]) -> Result<String> {
        let mut command = match self {
            Self::Kernel(_) => Command::new("mkzonefs"),
            Self::Here { .. } => {
                let mut command = Command::new(ZONAL);
                command.arg("mkzonefs");
                command
            }
        };
        run::quietly(command.arg("-f").args(options).arg(self.name()))
    }

    /// The first bytes of the drive.
    pub(super) fn super_block(&self) -> Result<Vec<u8>> {
        match self {
            Self::Kernel(device) => {
                let mut bytes = vec![0; SUPER_BLOCK];
                let file = fs::File::open(device.path())?;
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0)?;
                Ok(bytes)
            }
            Self::Here { file, shape } => {
                let blocks = SUPER_BLOCK / usize::try_from(shape.block)?;
                let output = Path::new("/tmp/superblock");
                let mut command = Command::new(ZONAL);
                command.args(["read", "--lba=0"]).arg(format!("--blocks={blocks}"));
                run::quietly(command.arg("--output").arg(output).arg(file))?;
                Ok(fs::read(output)?)
            }
        }
    }

    /// Replaces the super block by one that another tool made.
    pub(super) fn set_super_block(&self, bytes: &[u8]) -> Result<()> {
        let input = Path::new("/tmp/superblock");
        fs::write(input, bytes)?;
        match self {
            Self::Kernel(device) => {
                let device = device.path();
                let zone = |action: &str| {
                    let mut command = Command::new("blkzone");
                    command.args([action, "--offset=0", "--count=1"]).arg(device);
                    run::quietly(&mut command)
                };
                let sequential = zone("reset").is_ok();
                run::quietly(
                    Command::new("dd")
                        .arg("if=/tmp/superblock")
                        .arg(format!("of={}", device.display()))
                        .args(["bs=4096", "oflag=direct"]),
                )?;
                if sequential {
                    zone("finish")?;
                }
            }
            Self::Here { file, shape } => {
                let zonal = |arguments: &[&str]| {
                    run::quietly(Command::new(ZONAL).args(arguments).arg(file))
                };
                let sequential = shape.conventional == 0;
                let zone = |action: &str| {
                    run::quietly(
                        Command::new(ZONAL).args(["zone", action, "--force"]).arg(file).arg("0"),
                    )
                };
                if sequential {
                    zone("reset")?;
                }
                zonal(&["write", "--force", "--lba=0", "--input=/tmp/superblock"])?;
                if sequential {
                    zone("finish")?;
                }
            }
        }
        Ok(())
    }

    /// Mounts it; `options` as both sides know them.
    pub(super) fn mount(&self, options: &str) -> Result<Mount<'_>> {
        let place = mount_point()?;
        let mut command = match self {
            Self::Kernel(_) => Command::new("mount"),
            Self::Here { .. } => {
                let mut command = Command::new(ZONAL);
                // Like the kernel, which gathers no writes for a disk: it reports a refused one at
                // once.
                command.args(["mount", "-o", "allow_other,norotational"]);
                command
            }
        };
        command.args(["-t", "zonefs", "-o", options]).arg(self.name()).arg(&place);
        run::quietly(&mut command)?;
        Ok(Mount { drive: self, place })
    }
}

/// A mount that ends with this.
pub(super) struct Mount<'a> {
    drive: &'a Drive,
    place: PathBuf,
}

impl Mount<'_> {
    /// The mount point.
    pub(super) fn path(&self) -> &Path {
        &self.place
    }

    /// Unmounts and waits until the drive is free.
    pub(super) fn unmount(self) -> Result<()> {
        self.end().context("unmounting")
    }

    fn end(&self) -> Result<()> {
        let mut command = match self.drive {
            Drive::Kernel(_) => Command::new("umount"),
            Drive::Here { .. } => {
                let mut command = Command::new(ZONAL);
                command.arg("umount");
                command
            }
        };
        run::quietly(command.arg(&self.place)).map(|_| ())
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if let Self::Here { file, .. } = self {
            // The guest's memory is small.
            let _ = fs::remove_file(file);
        }
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Only after a failed check is it still mounted, and then its data does not matter.
        let _ = run::quietly(Command::new("umount").arg("-l").arg(&self.place));
    }
}
