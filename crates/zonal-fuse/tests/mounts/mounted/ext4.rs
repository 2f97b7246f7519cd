//! An ext4 of a file, mounted for as long as the value lives.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

pub(crate) struct Ext4 {
    dir: TempDir,
    root: PathBuf,
}

impl Ext4 {
    /// Makes and mounts one, or says why this machine cannot.
    pub(crate) fn mount() -> Result<Self, String> {
        let dir = TempDir::with_prefix("zonal-ext4-").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (image, root) = (dir.path().join("image"), dir.path().join("mnt"));
        fs::create_dir(&root).unwrap();
        File::create_new(&image).unwrap().set_len(256 << 20).unwrap();
        let run = |program: &mut Command| {
            let output = program.output().map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success().then_some(()).ok_or(said)
        };
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-b", "4096", "-I", "256"]).arg(&image);
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,relatime"]).arg(&image).arg(&root);
        run(&mut make).and_then(|()| run(&mut mount)).map_err(|why| why.trim().to_owned())?;
        Ok(Ext4 { dir, root })
    }

    /// The directory it is mounted on.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.root, UnmountFlags::DETACH) {
            println!("{} stays mounted: {error}", self.dir.path().display());
        }
    }
}
