//! Opening the device that a command line names, and protecting its file system from commands that
//! write below it.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
pub(crate) use zonal::OpenMode;
pub(crate) use zonal::spec::{Base, Stack};
use zonal::spec::{OpenError, Openers};
use zonal::{DeviceError, SystemClock, Zone, ZonedDevice, shown};
use zonal_fs::FsError;
use zonal_fs::furrow::{self, Overwrite};
use zonal_fs::signature::{self, Content, Signature};

use crate::mounts;

/// Everything that can be opened by name.
pub(crate) fn openers() -> Openers {
    Openers::builtin()
        .with_schemes(&[zonal_sim::SCHEME])
        .with_schemes(&zonal_linux::SCHEMES)
        .with_paths(zonal_linux::open)
}

/// The forms that a DEVICE on the command line can have, for `--help`.
pub(crate) fn help() -> String {
    let openers = openers();
    let schemes = openers.schemes();
    let width = schemes.iter().map(|scheme| scheme.form.len()).max().unwrap_or(0);
    let line = |form: &str, help: &str| format!("  {form:width$}  {help}\n");
    let mut text = String::from("A DEVICE is one of these; layers stack, the outermost first:\n");
    text += &line("PATH", "a drive file, a zoned block device, an NVMe namespace (/dev/ngXnY)");
    text.extend(schemes.iter().map(|scheme| line(scheme.form, scheme.help)));
    text
}

/// Opens `spec`.
pub(crate) fn open(spec: &str, mode: OpenMode) -> Result<Arc<dyn ZonedDevice>> {
    open_stack(spec, mode).map(|stack| stack.device)
}

/// Opens `spec` for a command that writes blocks or acts on zones. A device that holds a file
/// system is refused unless `overwrite` allows it. `inputs` are read meanwhile: no layer writes to
/// them.
pub(crate) fn open_to_change(
    spec: &str,
    overwrite: Overwrite,
    inputs: &[PathBuf],
) -> Result<Stack> {
    let stack = open_with(&openers().with_inputs(inputs), spec, OpenMode::ReadWrite)?;
    match stack.base {
        // A new device holds nothing.
        Base::Memory | Base::Simulated(_) => {}
        Base::File(_) | Base::Device => {
            keep_file_system(&*stack.plain, spec, overwrite)?;
            keep_whole_drives(&stack, spec, overwrite)?;
        }
    }
    Ok(stack)
}

/// Refuses to change a device that holds a file system, unless `overwrite` allows it.
pub(crate) fn keep_file_system(
    device: &dyn ZonedDevice,
    spec: &str,
    overwrite: Overwrite,
) -> Result<()> {
    if overwrite == Overwrite::Force {
        return Ok(());
    }
    match signature::find(device).with_context(|| format!("looking at what {spec} holds"))? {
        Some(held) => Err(Holds { device: shown(spec), held }.into()),
        None => Ok(()),
    }
}

/// Refuses to change a part of a drive if the whole drive has a file system that the part does not
/// show: a slice lies in the middle of it, or the drive is a later member of a concat. A file
/// system that was made on a part does not count here.
fn keep_whole_drives(stack: &Stack, spec: &str, overwrite: Overwrite) -> Result<()> {
    if overwrite == Overwrite::Force || stack.files.iter().any(|file| file.as_os_str() == spec) {
        return Ok(());
    }
    let names = stack.files.iter().filter_map(|file| file.to_str());
    for name in names {
        let below = format!("file:{name}");
        // Files that a layer writes, or a command reads, are no drives.
        let opened = openers().open(&below, OpenMode::ReadOnly, Arc::new(SystemClock::new()));
        let Ok(Stack { device, .. }) = opened else { continue };
        let is_whole = |held: &Signature| match held.kind {
            Content::Furrow => {
                let division = furrow::division(Arc::clone(&device));
                !matches!(division, Err(FsError::OtherShape { .. }))
            }
            // A zonefs does not say on how many zones it was made.
            Content::Zonefs => true,
            Content::Foreign(_) => false,
        };
        if let Some(held) = signature::find(&*device).ok().flatten().filter(is_whole) {
            return Err(Holds { device: shown(name), held }.into());
        }
    }
    Ok(())
}

/// A device that a command was to change holds a file system.
#[derive(Debug)]
pub(crate) struct Holds {
    device: String,
    held: Signature,
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, held } = self;
        write!(f, "{device} holds {held}, which this could destroy")
    }
}

impl std::error::Error for Holds {}

/// Opens `spec`, with the handles by which callers query its layers.
pub(crate) fn open_stack(spec: &str, mode: OpenMode) -> Result<Stack> {
    open_with(&openers(), spec, mode)
}

fn open_with(openers: &Openers, spec: &str, mode: OpenMode) -> Result<Stack> {
    mounts::refuse_dir(spec)?;
    tracing::debug!(device = shown(spec), how = mode_name(mode), "opening a device");
    let opened = openers.open(spec, mode, Arc::new(SystemClock::new()));
    let stack = opened.map_err(what_it_is).with_context(|| format!("opening {spec}"))?;
    let geometry = stack.device.geometry();
    let (zones, block) = (geometry.zone_count(), geometry.block_size().bytes());
    tracing::info!(device = shown(spec), how = mode_name(mode), zones, block, "opened a device");
    Ok(stack)
}

/// The failure to open a device. If the file or disk has other content, the error names it.
fn what_it_is(error: OpenError) -> anyhow::Error {
    let OpenError::Device(DeviceError::Malformed { path, .. }) = &error else {
        return error.into();
    };
    match kind_of_file(path) {
        Some(kind) => NotADrive { path: path.clone(), kind }.into(),
        None => error.into(),
    }
}

/// The kind of content of a file or a disk, by its first bytes; `None` for a drive or if unknown.
fn kind_of_file(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let looked_at = signature::LOOKED_AT as u64;
    File::open(path).and_then(|file| file.take(looked_at).read_to_end(&mut start)).ok()?;
    if zonal::output::is_drive(path) {
        return None;
    }
    signature::of_file(&start).map(|found| found.to_string())
}

/// A file or a disk that is to be opened as a drive has other content.
#[derive(Debug)]
struct NotADrive {
    path: PathBuf,
    kind: String,
}

impl fmt::Display for NotADrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a zoned drive: it holds {}", shown(&self.path), self.kind)
    }
}

impl std::error::Error for NotADrive {}

/// The access to a device, as the log names it.
const fn mode_name(mode: OpenMode) -> &'static str {
    match mode {
        OpenMode::ReadOnly => "reading, beside others",
        OpenMode::ReadLocked => "reading alone",
        OpenMode::ReadWrite => "writing",
    }
}

/// The device as the mount table shows it: a plain file by its absolute path.
pub(crate) fn source(spec: &str) -> String {
    let path: PathBuf = spec.into();
    path.canonicalize().map_or_else(|_| spec.to_owned(), |path| path.display().to_string())
}

/// Every zone.
pub(crate) fn report(device: &dyn ZonedDevice) -> Result<Vec<Zone>> {
    let zones = device.report_all().context("reporting the zones")?;
    tracing::debug!(zones = zones.len(), "reported the zones");
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use zonal::file::{CreateOptions, Overwrite};
    use zonal::{FileDrive, Rules};

    use super::*;

    #[test]
    fn device_base_below_layers_is_known() {
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
        let base = |spec: &str| open_stack(spec, OpenMode::ReadOnly).unwrap().base;
        let found = base(&format!("po2:{}", path.display()));
        assert!(matches!(found, Base::File(found) if found == path));
        assert!(matches!(base("po2:mem:zones=9"), Base::Memory));
        assert!(matches!(base("meter:sim:"), Base::Simulated(_)));
    }

    /// A simulated drive has a clock of its own, and a meter on it counts the time of that clock.
    #[test]
    fn meter_on_simulated_drive_uses_its_clock() {
        let stack = open_stack("meter:sim:", OpenMode::ReadWrite).unwrap();
        stack.device.append(zonal::ZoneId::ZERO, &[1; 4096]).unwrap();
        let appends = stack.counters[0].of(zonal::layer::meter::OpKind::Append);
        assert!((6_000..100_000).contains(&appends.latency_ns.max()), "{:?}", appends.latency_ns);
        let Base::Simulated(clock) = stack.base else { panic!("not simulated") };
        assert!(zonal::Clock::monotonic_ns(&*clock) >= appends.latency_ns.max());
    }

    /// The guide's table, the list in --help and the openers name the same schemes.
    #[test]
    fn device_guide_lists_every_scheme() {
        let guide = include_str!("../../../docs/guide/use/devices.md");
        let row = |scheme: &zonal::spec::Scheme| {
            format!("| `{}` | {} | `{}` |\n", scheme.form, scheme.help, scheme.example)
        };
        let table = openers().schemes().iter().map(row).collect::<Vec<_>>().concat();
        assert!(guide.contains(&table), "docs/guide/use/devices.md should have:\n{table}");
        for scheme in openers().schemes() {
            assert!(help().contains(scheme.form), "{}", scheme.form);
        }
    }

    #[test]
    fn device_spec_opens_simulated_drive() {
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
