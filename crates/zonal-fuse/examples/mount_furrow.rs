//! Mounts Furrow from a drive file, in the background, in the order that mount(8) hands over:
//!
//! ```text
//! mount_furrow DRIVE DIRECTORY [-o OPTIONS]
//! ```
//!
//! A drive file that does not exist is made and formatted first: 4 GiB, zones of 96 MiB. The
//! `zonal` command does all of this with more care; here it is in one piece.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::{getegid, geteuid};
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::profile::Changes;
use zonal::{Rules, SystemClock};
use zonal_fs::furrow::{self, Furrow, MkfsOptions, MountOptions, Owner, mkfs};
use zonal_fuse::MountContent;
use zonal_fuse::daemon::{self, Parent};
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::{Access, MountConfig};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let Some(parent) = Parent::inherited()? else {
        daemon::spawn(daemon::this_program("mount_furrow").args(env::args_os().skip(1)))?;
        return Ok(());
    };
    let (drive, config) = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => return Ok(parent.failed(&error.to_string())?),
    };
    let mut parent = Some(parent);
    let served = open(&drive, config.access).and_then(|fs| {
        let ready = |_| {
            let parent = parent.take().expect("ready is said once");
            parent.ready(None).expect("the parent waits");
        };
        let latencies = Arc::new(Latencies::new(Arc::new(SystemClock::new())));
        let content = MountContent { fs: Arc::new(fs), control: None, latencies };
        Ok(zonal_fuse::serve(content, &config, ready)?)
    });
    match (served, parent) {
        (Err(error), Some(parent)) => Ok(parent.failed(&error.to_string())?),
        (served, _) => served,
    }
}

fn arguments() -> Outcome<(PathBuf, MountConfig)> {
    let mut plain = Vec::new();
    let mut options = String::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "-o" {
            options = arguments.next().ok_or("-o needs options")?;
        } else {
            plain.push(argument);
        }
    }
    let [drive, point] = &plain[..] else {
        return Err("usage: mount_furrow DRIVE DIRECTORY [-o OPTIONS]".into());
    };
    let mut config = MountConfig::new(drive, Path::new(point));
    config.apply(&options)?;
    Ok((PathBuf::from(drive), config))
}

fn open(path: &Path, access: Access) -> Outcome<Furrow> {
    if !path.exists() {
        format(path)?;
    }
    let (mode, access) = match access {
        Access::ReadWrite => (OpenMode::ReadWrite, furrow::Access::ReadWrite),
        Access::ReadOnly => (OpenMode::ReadLocked, furrow::Access::ReadOnly),
    };
    let device = Arc::new(FileDrive::open(path, mode)?);
    let options = MountOptions { access, ..MountOptions::default() };
    Ok(Furrow::mount(device, Arc::new(SystemClock::new()), options)?)
}

fn format(path: &Path) -> Outcome<()> {
    let geometry = "zone=96M,size=4G,open=14,active=28".parse::<Changes>()?.geometry()?;
    let overwrite = Overwrite::Refuse;
    let options = CreateOptions { geometry, rules: Rules::Zns, uuid: [1; 16], overwrite };
    FileDrive::create(path, &options)?;
    let drive = Arc::new(FileDrive::open(path, OpenMode::ReadWrite)?);
    let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    let options = MkfsOptions { owner, ..MkfsOptions::default() };
    mkfs(drive, &SystemClock::new(), &options, &mut |_| ())?;
    Ok(())
}
