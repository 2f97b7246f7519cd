//! Arguments of `zonal disk`.

use clap::{Args, Subcommand};
use zonal::{BlockSize, ByteCount, size};
use zonal_fs::disk::{DiskName, DiskSpace};

#[derive(Subcommand)]
pub(crate) enum DiskCommand {
    /// Make a disk that reads as zeroes
    Create(CreateDisk),
    /// List the disks on a drive
    List(ListDisks),
    /// Print size, space and settings of a disk
    Info(OneDisk),
    /// Change the size of a disk; one that is served can only grow
    Resize(ResizeDisk),
    /// Keep the present content of a disk as a read-only disk NAME@SNAPSHOT
    Snapshot(SnapshotDisk),
    /// Make a disk with the present content of another one, or of a snapshot
    Clone(CloneDisk),
    /// Remove a disk or a snapshot, with its content
    Rm(OneDisk),
}

/// The help of the device.
const DEVICE: &str =
    "Device with a Furrow file system that is not mounted; its disks may be served";

#[derive(Args)]
pub(crate) struct CreateDisk {
    #[arg(help = DEVICE)]
    pub(crate) device: String,
    /// Name of the disk: letters, digits, `_`, `-`, `.`
    pub(crate) name: DiskName,
    /// Size, a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) size: ByteCount,
    #[command(flatten)]
    pub(crate) provisioning: Provisioning,
    /// Block size: 4096, or 512 for programs that need it
    #[arg(long, value_name = "SIZE", default_value = "4096", value_parser = block_size)]
    pub(crate) block_size: BlockSize,
}

fn block_size(text: &str) -> Result<BlockSize, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    BlockSize::from_bytes(bytes.get()).ok_or_else(|| "give 4096 or 512".to_owned())
}

/// When a disk takes its space.
#[derive(Args)]
pub(crate) struct Provisioning {
    /// Take space as blocks are written: writes fail when the drive is full
    #[arg(long)]
    thin: bool,
}

impl Provisioning {
    pub(crate) const fn space(&self) -> DiskSpace {
        if self.thin { DiskSpace::Thin } else { DiskSpace::Thick }
    }
}

#[derive(Args)]
pub(crate) struct ListDisks {
    #[arg(help = DEVICE)]
    pub(crate) device: String,
}

#[derive(Args)]
pub(crate) struct OneDisk {
    #[arg(help = DEVICE)]
    pub(crate) device: String,
    /// Name of the disk, or NAME@SNAPSHOT
    pub(crate) name: DiskName,
}

#[derive(Args)]
pub(crate) struct ResizeDisk {
    #[arg(help = DEVICE)]
    pub(crate) device: String,
    /// Name of the disk
    pub(crate) name: DiskName,
    /// New size, a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) size: ByteCount,
    /// Make it smaller, although the data behind the new end is lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct SnapshotDisk {
    #[arg(help = DEVICE)]
    pub(crate) device: String,
    /// Name of the disk
    pub(crate) name: DiskName,
    /// Name of the snapshot
    pub(crate) snapshot: String,
}

#[derive(Args)]
pub(crate) struct CloneDisk {
    #[arg(help = DEVICE)]
    pub(crate) device: String,
    /// Name of the original, or NAME@SNAPSHOT
    pub(crate) name: DiskName,
    /// Name of the new disk
    pub(crate) new: DiskName,
    #[command(flatten)]
    pub(crate) provisioning: Provisioning,
}
