//! Opening the device that a command line names.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow};
pub(crate) use zonal::OpenMode;
use zonal::spec::Stack;
use zonal::{Clock, DeviceError, ManualClock, SystemClock, Zone, ZonedDevice};
use zonal_fs::FsError;
use zonal_fs::signature::{self, Content};
use zonal_sim::{Config, SimSsd};

/// Opens `spec`.
pub(crate) fn open(spec: &str, mode: OpenMode) -> Result<Arc<dyn ZonedDevice>> {
    open_stack(spec, mode).map(|stack| stack.device)
}

/// Opens `spec`, and keeps hold of what can be asked of its layers.
pub(crate) fn open_stack(spec: &str, mode: OpenMode) -> Result<Stack> {
    zonal::spec::open_stack_with(spec, mode, Arc::new(SystemClock::new()), &open_other)
        .with_context(|| format!("opening {spec}"))
}

/// An open device, and what it takes to measure it.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn ZonedDevice>,
    pub(crate) time: Time,
    pub(crate) base: Base,
}

/// What the innermost device of a stack is made of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Memory,
    Simulated,
    /// A drive file.
    File(PathBuf),
    /// A device of the kernel, with zones of its own or virtual ones.
    Device,
}

/// Opens `spec` to be measured.
pub(crate) fn open_timed(spec: &str, mode: OpenMode) -> Result<Opened> {
    let (simulated, base) = (OnceCell::new(), OnceCell::new());
    // Asked for all but drives in memory.
    let other = |path: &Path, mode| {
        if let Some(drive) = simulated_at(path)? {
            simulated.get_or_init(|| drive.clock());
            base.get_or_init(|| Base::Simulated);
            return Ok(Some(drive as Arc<dyn ZonedDevice>));
        }
        let device = zonal_linux::open(path, mode)?;
        let is_file = device.is_none() && path.is_file();
        base.get_or_init(|| if is_file { Base::File(path.to_owned()) } else { Base::Device });
        Ok(device)
    };
    let stack = zonal::spec::open_stack_with(spec, mode, Arc::new(SystemClock::new()), &other)
        .with_context(|| format!("opening {spec}"))?;
    Ok(Opened {
        device: stack.device,
        time: simulated.into_inner().map_or(Time::Real(SystemClock::new()), Time::Virtual),
        base: base.into_inner().unwrap_or(Base::Memory),
    })
}

/// The time in which a device's operations take place.
pub(crate) enum Time {
    /// That of the machine.
    Real(SystemClock),
    /// That of a simulated drive.
    Virtual(Arc<ManualClock>),
}

impl Time {
    /// What shows it.
    pub(crate) fn clock(&self) -> &dyn Clock {
        match self {
            Self::Real(clock) => clock,
            Self::Virtual(clock) => &**clock,
        }
    }
}

/// What is no drive file: a simulated SSD, or a device of the kernel.
fn open_other(path: &Path, mode: OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>, DeviceError> {
    match simulated_at(path)? {
        Some(drive) => Ok(Some(drive)),
        None => zonal_linux::open(path, mode),
    }
}

/// The simulated drive that a path stands for, if it stands for one.
fn simulated_at(path: &Path) -> Result<Option<Arc<SimSsd>>, DeviceError> {
    path.to_str().and_then(|path| path.strip_prefix("sim:")).map(simulated).transpose()
}

/// `sim:`, with the config of a file or the default one.
fn simulated(path: &str) -> Result<Arc<SimSsd>, DeviceError> {
    let bad = |what: String| DeviceError::Spec { spec: format!("sim:{path}"), what };
    let config = if path.is_empty() {
        Config::default()
    } else {
        let text = std::fs::read_to_string(path)
            .map_err(|source| DeviceError::Io { what: format!("opening {path}"), source })?;
        Config::parse(&text).map_err(|error| bad(error.to_string()))?
    };
    SimSsd::new(&config).map(Arc::new).map_err(|error| bad(error.to_string()))
}

/// The device as the mount table shows it: a plain file by its absolute path.
pub(crate) fn source(spec: &str) -> String {
    let path: PathBuf = spec.into();
    path.canonicalize().map_or_else(|_| spec.to_owned(), |path| path.display().to_string())
}

/// Why no Furrow was found on a device: where it holds something else, that.
pub(crate) fn without_furrow(device: &dyn ZonedDevice, error: FsError) -> Error {
    match (&error, signature::find(device)) {
        (FsError::Missing { .. }, Ok(Some(found))) if found.kind != Content::Furrow => {
            anyhow!("it holds {found}, not Furrow")
        }
        _ => error.into(),
    }
}

/// Every zone.
pub(crate) fn report(device: &dyn ZonedDevice) -> Result<Vec<Zone>> {
    device.report_all().context("reporting the zones")
}

#[cfg(test)]
mod tests {
    use zonal::file::{CreateOptions, Overwrite};
    use zonal::{FileDrive, Rules};

    use super::*;

    #[test]
    fn what_is_below_the_layers_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a:mem:b.zns");
        let geometry = zonal::Profile::Small.geometry();
        let options = CreateOptions {
            geometry,
            rules: Rules::Zns,
            uuid: [1; 16],
            overwrite: Overwrite::Refuse,
        };
        FileDrive::create(&path, &options).unwrap();
        let base = |spec: &str| open_timed(spec, OpenMode::ReadOnly).unwrap().base;
        assert_eq!(base(&format!("po2:{}", path.display())), Base::File(path.clone()));
        assert_eq!(base("po2:mem:zones=9"), Base::Memory);
        assert_eq!(base("meter:sim:"), Base::Simulated);
    }

    #[test]
    fn a_simulated_drive_is_a_device() {
        let drive = open("po2:sim:", OpenMode::ReadWrite).unwrap();
        assert_eq!(drive.geometry().zone_count(), 1947);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive.toml");
        let spec = format!("sim:{}", path.display());
        assert!(open(&spec, OpenMode::ReadWrite).is_err(), "no such file");
        std::fs::write(&path, "[zones]\nsuperblocks = 3").unwrap();
        assert_eq!(open(&spec, OpenMode::ReadWrite).unwrap().geometry().zone_count(), 649);
        std::fs::write(&path, "[zones]\nsuperblocks = 0").unwrap();
        let error = format!("{:#}", open(&spec, OpenMode::ReadWrite).err().unwrap());
        assert!(error.contains("zones.superblocks = 0 is not possible"), "{error}");
    }
}
