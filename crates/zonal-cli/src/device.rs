//! Opening the device that a command line names.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
pub(crate) use zonal::OpenMode;
use zonal::spec::Openers;
pub(crate) use zonal::spec::{Base, Stack};
use zonal::{SystemClock, Zone, ZonedDevice, shown};

use crate::mounts;

/// Everything that can be opened by name.
pub(crate) fn openers() -> Openers {
    Openers::builtin()
        .with_schemes(&[zonal_sim::SCHEME])
        .with_schemes(&zonal_linux::SCHEMES)
        .with_paths(zonal_linux::open)
}

/// What a DEVICE on the command line can be, for `--help`.
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

/// Opens `spec` where these files are read meanwhile, so that none of its layers writes to them.
pub(crate) fn open_beside(
    inputs: &[PathBuf],
    spec: &str,
    mode: OpenMode,
) -> Result<Arc<dyn ZonedDevice>> {
    open_with(&openers().with_inputs(inputs), spec, mode).map(|stack| stack.device)
}

/// Opens `spec`, and keeps hold of what can be asked of its layers.
pub(crate) fn open_stack(spec: &str, mode: OpenMode) -> Result<Stack> {
    open_with(&openers(), spec, mode)
}

fn open_with(openers: &Openers, spec: &str, mode: OpenMode) -> Result<Stack> {
    mounts::refuse_dir(spec)?;
    tracing::debug!(device = shown(spec), how = mode_name(mode), "opening a device");
    let stack = openers
        .open(spec, mode, Arc::new(SystemClock::new()))
        .with_context(|| format!("opening {spec}"))?;
    let geometry = stack.device.geometry();
    let (zones, block) = (geometry.zone_count(), geometry.block_size().bytes());
    tracing::info!(device = shown(spec), how = mode_name(mode), zones, block, "opened a device");
    Ok(stack)
}

/// What a device is opened for, in the log.
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

    /// A simulated drive has times of its own, and a meter on it counts those.
    #[test]
    fn meter_on_simulated_drive_uses_its_clock() {
        let stack = open_stack("meter:sim:", OpenMode::ReadWrite).unwrap();
        stack.device.append(zonal::ZoneId::ZERO, &[1; 4096]).unwrap();
        let appends = stack.counters[0].of(zonal::layer::meter::OpKind::Append);
        assert!((6_000..100_000).contains(&appends.latency_ns.max()), "{:?}", appends.latency_ns);
        let Base::Simulated(clock) = stack.base else { panic!("not simulated") };
        assert!(zonal::Clock::monotonic_ns(&*clock) >= appends.latency_ns.max());
    }

    /// The table of the guide, the list in --help and what opens a device are one list.
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
