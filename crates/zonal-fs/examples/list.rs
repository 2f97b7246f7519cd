//! Lists the files of a volume and the space that they use: `cargo run --example list DEVICE`.

#![allow(clippy::print_stdout, reason = "it is an example")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use zonal::{OpenMode, SystemClock, spec};
use zonal_fs::vfs::{Access, FileKind};
use zonal_fs::volume::{Stats, Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).ok_or("usage: list DEVICE")?;
    print!("{}", run(&device)?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) fn run(device: &str) -> Result<String, Box<dyn Error>> {
    let clock = Arc::new(SystemClock::new());
    let drive = spec::open(device, OpenMode::ReadLocked, clock.clone())?;
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let volume = Volume::mount(drive, clock, &options)?;

    let mut out = String::new();
    let mut waiting = vec![PathBuf::from("/")];
    while let Some(dir) = waiting.pop() {
        let mut entries = volume.read_dir(&dir)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let path = dir.join(&entry.name);
            let size = volume.symlink_metadata(&path)?.size;
            match entry.kind {
                FileKind::Directory => waiting.push(path),
                FileKind::Symlink => {
                    writeln!(out, "{} -> {}", path.display(), volume.read_link(&path)?.display())?;
                }
                _ => writeln!(out, "{} {size}", path.display())?,
            }
        }
    }

    let space = volume.space()?;
    let used = (space.blocks - space.blocks_free) * u64::from(space.block_size);
    writeln!(out, "{used} bytes used by {} inodes", space.inodes)?;
    if let Some(Stats::Furrow(stats)) = volume.stats()? {
        writeln!(out, "{} zones hold data, {} are free", stats.zones_sealed, stats.zones_free)?;
    }
    volume.close()?;
    Ok(out)
}
