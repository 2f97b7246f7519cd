//! The scheme `sim:`, which opens a simulated drive by name.

use std::io::ErrorKind;
use std::path::Path;

use zonal::spec::{Base, OpenError, Opener, Scheme, Stack};
use zonal::{DeviceError, OpenMode};

use crate::config::Config;
use crate::disk::SimDisk;
use crate::error::SimError;
use crate::preset::Preset;
use crate::ssd::SimSsd;

/// A simulated zoned drive, by a preset, by the config of a file or by the default one.
pub const SCHEME: Scheme = Scheme {
    name: "sim",
    form: "sim:[CONFIG]",
    help: "a simulated ZNS SSD or SMR disk in memory, by a preset or a file, gone when the command ends",
    example: "sim:",
    opener: Opener::Device(open),
};

fn open(path: &str, _: OpenMode) -> Result<Stack, OpenError> {
    let bad = |what: String| OpenError::Spec { spec: format!("sim:{path}"), what };
    let preset = Preset::find(path).filter(|_| !Path::new(path).exists());
    let config = if path.is_empty() {
        Config::default()
    } else if let Some(preset) = preset {
        Config::parse(preset.text).map_err(|error| bad(error.to_string()))?
    } else {
        let text = std::fs::read_to_string(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                let presets = Preset::ALL.map(|preset| preset.name).join(", ");
                bad(format!("there is no such file, and the presets are {presets}"))
            }
            _ => DeviceError::Io { what: format!("opening {path}"), source }.into(),
        })?;
        Config::parse(&text).map_err(|error| bad(error.to_string()))?
    };
    let mut stack = stack(&config).map_err(|error| bad(error.to_string()))?;
    let is_file = !path.is_empty() && preset.is_none();
    stack.files.extend(is_file.then(|| path.into()));
    Ok(stack)
}

fn stack(config: &Config) -> Result<Stack, SimError> {
    if config.disk.is_some() {
        let disk = SimDisk::new(config)?;
        let base = Base::Simulated(disk.clock());
        return Ok(Stack::emulated(disk, base));
    }
    let drive = SimSsd::new(config)?.side_by_side();
    let base = Base::Simulated(drive.clock());
    Ok(Stack::emulated(drive, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_names_presets_for_unknown_name() {
        let error = open("zn541", OpenMode::ReadOnly).err().expect("no preset").to_string();
        assert!(error.contains("no such file, and the presets are"), "{error}");
        assert!(error.contains(" zn540,"), "{error}");
    }
}
