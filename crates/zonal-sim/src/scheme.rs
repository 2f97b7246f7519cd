//! The scheme `sim:`, which opens a simulated SSD by name.

use zonal::spec::{Base, OpenError, Opener, Scheme, Stack};
use zonal::{DeviceError, OpenMode};

use crate::config::Config;
use crate::ssd::SimSsd;

/// A simulated zoned SSD, by the config of a file or by the default one.
pub const SCHEME: Scheme = Scheme {
    name: "sim",
    form: "sim:[CONFIG.toml]",
    help: "a simulated ZNS SSD in memory, gone when the command ends",
    example: "sim:",
    opener: Opener::Device(open),
};

fn open(path: &str, _: OpenMode) -> Result<Stack, OpenError> {
    let bad = |what: String| OpenError::Spec { spec: format!("sim:{path}"), what };
    let config = if path.is_empty() {
        Config::default()
    } else {
        let text = std::fs::read_to_string(path)
            .map_err(|source| DeviceError::Io { what: format!("opening {path}"), source })?;
        Config::parse(&text).map_err(|error| bad(error.to_string()))?
    };
    let drive = SimSsd::new(&config).map_err(|error| bad(error.to_string()))?;
    let base = Base::Simulated(drive.clock());
    let mut stack = Stack::emulated(drive, base);
    stack.files.extend((!path.is_empty()).then(|| path.into()));
    Ok(stack)
}
