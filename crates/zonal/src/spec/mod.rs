//! Device specifications: a device and the layers on it, as one word of a command line.
//!
//! A specification is a path, or a scheme with its text: `mem:zones=10`, `po2:DEVICE`. Layers stack
//! from left to right, the outermost first: `po2:meter:drive.zns`. A [`Scheme`] says everything
//! about one of them: its name, how it is written, what it is, and how it is opened. [`Openers`] is
//! the list of those that a program knows; parsing, help and errors go by it. This crate has
//! [`file`](Openers::builtin), `mem`, and the layers; other crates and programs add theirs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::layer::meter::Counters;
use crate::{
    Clock, DeviceError, FailZone, FileDrive, ManualClock, MemoryDrive, OpenMode, ZonedDevice,
};
use read_only::ReadOnly;

mod builtin;
mod read_only;

/// Result of opening a device.
pub type Result<T> = std::result::Result<T, OpenError>;

/// Why a specification opens no device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be understood.
    #[error("device {spec:?}: {what}")]
    Spec {
        /// The part that is wrong.
        spec: String,
        /// What is wrong with it.
        what: String,
    },
    /// The device cannot be opened.
    #[error("{0}")]
    Device(
        #[from]
        #[source]
        DeviceError,
    ),
}

/// The error of the device, with its errno; a specification that cannot be understood is invalid
/// input, which no system call refused and which has no errno.
impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Device(error) => error.into(),
            error @ OpenError::Spec { .. } => Self::new(io::ErrorKind::InvalidInput, error),
        }
    }
}

/// An open device and what can be asked of its layers.
pub struct Stack {
    /// The outermost layer.
    pub device: Arc<dyn ZonedDevice>,
    /// What the `meter:` layers measure, innermost first.
    pub counters: Vec<Arc<Counters>>,
    /// The innermost device, if its zones can be made to fail.
    pub failing: Option<Arc<dyn FailZone>>,
    /// What the innermost device is made of.
    pub base: Base,
    /// The files that are read and written where this device is used: another output is none of
    /// them.
    pub files: Vec<PathBuf>,
}

/// What the innermost device of a stack is made of.
#[derive(Clone, Debug)]
pub enum Base {
    /// Memory.
    Memory,
    /// A drive file.
    File(PathBuf),
    /// A model, whose operations move this clock.
    Simulated(Arc<ManualClock>),
    /// A device of the kernel, with zones of its own or virtual ones.
    Device,
}

impl Stack {
    /// A device of the kernel, without layers.
    pub fn of_device(device: Arc<dyn ZonedDevice>) -> Self {
        Self { device, counters: Vec::new(), failing: None, base: Base::Device, files: Vec::new() }
    }

    /// An emulated drive, made of `base`: one device under two traits.
    pub fn emulated<D: ZonedDevice + FailZone + 'static>(drive: D, base: Base) -> Self {
        let drive = Arc::new(drive);
        let files = match &base {
            Base::File(path) => vec![path.clone()],
            Base::Memory | Base::Simulated(_) | Base::Device => Vec::new(),
        };
        Self { device: drive.clone(), counters: Vec::new(), failing: Some(drive), base, files }
    }

    /// The clock that shows the device's time: a model's own, or else `clock`.
    fn clock(&self, clock: &Arc<dyn Clock>) -> Arc<dyn Clock> {
        match &self.base {
            Base::Simulated(virtual_time) => virtual_time.clone(),
            Base::Memory | Base::File(_) | Base::Device => Arc::clone(clock),
        }
    }
}

impl From<MemoryDrive> for Stack {
    fn from(drive: MemoryDrive) -> Self {
        Self::emulated(drive, Base::Memory)
    }
}

/// A kind of device or layer, by name.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// What stands before the colon or the parenthesis.
    pub name: &'static str,
    /// How it is written: `trace(FILE):DEVICE`.
    pub form: &'static str,
    /// What it is, in one line.
    pub help: &'static str,
    /// A device specification with it.
    pub example: &'static str,
    /// How it is opened.
    pub opener: Opener,
}

/// How a scheme is opened.
#[derive(Clone, Copy, Debug)]
pub enum Opener {
    /// What follows the colon is a path, whatever it looks like.
    Path,
    /// A device, from what follows the colon. What was not opened for writing is kept from changes,
    /// whether it knows of modes itself or not.
    Device(fn(&str, OpenMode) -> Result<Stack>),
    /// A layer on the device that follows the colon.
    Layer(Wrap),
    /// The same, after arguments in parentheses. They are parsed before anything is opened.
    LayerWith(fn(&str) -> std::result::Result<Layer, String>),
}

/// Puts a layer on a device. The clock is for what measures time.
type Wrap = fn(Stack, &Arc<dyn Clock>) -> Result<Stack>;

/// A layer that is parsed, and not yet on a device.
pub type Layer = Box<dyn FnOnce(Stack, &Arc<dyn Clock>) -> Result<Stack>>;

/// Opens the device that a path names; `None` if it is none that this opener knows.
pub type PathOpener =
    fn(&Path, OpenMode) -> std::result::Result<Option<Arc<dyn ZonedDevice>>, DeviceError>;

/// The schemes that a program knows, and what opens its paths.
#[derive(Clone, Debug)]
pub struct Openers {
    schemes: Vec<Scheme>,
    paths: Vec<PathOpener>,
    inputs: Vec<PathBuf>,
}

impl Openers {
    /// Drive files, drives in memory, and the layers of this crate.
    pub fn builtin() -> Self {
        Self { schemes: builtin::SCHEMES.to_vec(), paths: Vec::new(), inputs: Vec::new() }
    }

    /// The same with more schemes.
    ///
    /// # Panics
    /// If one of them is there already.
    #[must_use]
    pub fn with_schemes(mut self, schemes: &[Scheme]) -> Self {
        for scheme in schemes {
            assert!(self.find(scheme.name).is_none(), "two schemes {:?}", scheme.name);
            self.schemes.push(*scheme);
        }
        self
    }

    /// The same with devices that are named by a path, and are no drive files.
    #[must_use]
    pub fn with_paths(mut self, opener: PathOpener) -> Self {
        self.paths.push(opener);
        self
    }

    /// The same where these files are read meanwhile: no layer writes to them.
    #[must_use]
    pub fn with_inputs(mut self, inputs: &[PathBuf]) -> Self {
        self.inputs.extend_from_slice(inputs);
        self
    }

    /// Every scheme.
    pub fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    fn find(&self, name: &str) -> Option<&Scheme> {
        self.schemes.iter().find(|scheme| scheme.name == name)
    }

    /// Opens the device that `spec` describes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use zonal::spec::Openers;
    /// use zonal::{ManualClock, OpenMode};
    /// let clock = Arc::new(ManualClock::new(0));
    /// let stack = Openers::builtin().open("meter:mem:zones=10", OpenMode::ReadWrite, clock)?;
    /// assert_eq!(stack.device.geometry().zone_count(), 10);
    /// assert_eq!(stack.counters.len(), 1);
    /// # Ok::<(), zonal::spec::OpenError>(())
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "as a constructor takes it")]
    pub fn open(&self, spec: &str, mode: OpenMode, clock: Arc<dyn Clock>) -> Result<Stack> {
        let mut layers = Vec::new();
        let mut rest = spec;
        // All of them are parsed first, so that a bad specification opens nothing.
        while let Some((layer, below)) = self.split_layer(rest)? {
            layers.push(layer);
            rest = below;
        }
        let mut stack = self.open_innermost(rest, mode)?;
        stack.files.extend_from_slice(&self.inputs);
        layers.into_iter().rev().try_fold(stack, |stack, layer| layer(stack, &clock))
    }

    /// Takes the outermost layer off `spec`; `None` if there is none.
    fn split_layer<'a>(&self, spec: &'a str) -> Result<Option<(Layer, &'a str)>> {
        let (name, after) = spec.split_at(spec.find([':', '(']).unwrap_or(spec.len()));
        let Some(scheme) = self.find(name).filter(|_| !after.is_empty()) else { return Ok(None) };
        match scheme.opener {
            Opener::Path | Opener::Device(_) => Ok(None),
            Opener::Layer(wrap) => {
                let below = after.strip_prefix(':').ok_or_else(|| {
                    bad(spec, format!("{name} takes no arguments: {}", scheme.form))
                })?;
                Ok(Some((Box::new(wrap), below)))
            }
            Opener::LayerWith(parse) => {
                let inside = after.strip_prefix('(').ok_or_else(|| {
                    bad(spec, format!("{name} needs arguments in parentheses: {}", scheme.form))
                })?;
                let end = closing(inside)
                    .ok_or_else(|| bad(spec, "a parenthesis is not closed".into()))?;
                let below = inside[end + 1..]
                    .strip_prefix(':')
                    .ok_or_else(|| bad(spec, "after the parenthesis comes :DEVICE".into()))?;
                let inside = &inside[..end];
                let layer =
                    parse(inside).map_err(|what| bad(&format!("{name}({inside})"), what))?;
                Ok(Some((layer, below)))
            }
        }
    }

    fn open_innermost(&self, spec: &str, mode: OpenMode) -> Result<Stack> {
        let scheme = spec.split_once(':').and_then(|(name, rest)| Some((self.find(name)?, rest)));
        match scheme.map(|(scheme, rest)| (scheme.opener, rest)) {
            Some((Opener::Device(open), rest)) => open(rest, mode).map(|stack| match mode {
                OpenMode::ReadWrite => stack,
                OpenMode::ReadOnly | OpenMode::ReadLocked => ReadOnly::put_on(stack),
            }),
            Some((Opener::Path, path)) => self.open_path(path, mode),
            // Layers are off already.
            Some((Opener::Layer(_) | Opener::LayerWith(_), _)) | None => self.open_path(spec, mode),
        }
    }

    fn open_path(&self, path: &str, mode: OpenMode) -> Result<Stack> {
        if path.is_empty() {
            return Err(bad(path, "a device is missing: a path, or mem:".into()));
        }
        for opener in &self.paths {
            if let Some(device) = opener(Path::new(path), mode)? {
                return Ok(Stack::of_device(device));
            }
        }
        match FileDrive::open(path, mode) {
            Ok(drive) => {
                let is_file = Path::new(path).is_file();
                let base = if is_file { Base::File(path.into()) } else { Base::Device };
                Ok(Stack::emulated(drive, base))
            }
            // A misspelt scheme is taken for a file name.
            Err(DeviceError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound && path.contains(':') =>
            {
                let names: Vec<&str> = self.schemes.iter().map(|scheme| scheme.name).collect();
                let names = names.join(", ");
                let what = format!("no such file, and what is before the colon is none of {names}");
                Err(bad(path, what))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the device that `spec` describes, with the [built-in](Openers::builtin) schemes.
///
/// ```
/// use std::sync::Arc;
/// use zonal::{ManualClock, OpenMode, spec};
/// let clock = Arc::new(ManualClock::new(0));
/// let device = spec::open("po2:mem:zone=96M,zones=10", OpenMode::ReadWrite, clock)?;
/// assert_eq!(device.geometry().zone_size().get(), 32_768); // 128 MiB
/// # Ok::<(), zonal::spec::OpenError>(())
/// ```
pub fn open(spec: &str, mode: OpenMode, clock: Arc<dyn Clock>) -> Result<Arc<dyn ZonedDevice>> {
    open_stack(spec, mode, clock).map(|stack| stack.device)
}

/// The same, with what can be asked of its layers.
pub fn open_stack(spec: &str, mode: OpenMode, clock: Arc<dyn Clock>) -> Result<Stack> {
    Openers::builtin().open(spec, mode, clock)
}

/// Where the parenthesis that is open at the start of `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bad(spec: &str, what: String) -> OpenError {
    OpenError::Spec { spec: spec.into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::meter::OpKind;
    use proptest::prelude::*;

    fn stack(spec: &str) -> Result<Stack> {
        open_stack(spec, OpenMode::ReadWrite, Arc::new(ManualClock::new(0)))
    }

    #[test]
    fn open_error_becomes_io_error_with_device_errno() {
        let errno = |spec: &str| io::Error::from(stack(spec).err().unwrap());
        assert_eq!(errno("/nowhere/at/all").raw_os_error(), Some(2));
        let unclear = errno("mem:zone=3");
        assert_eq!((unclear.raw_os_error(), unclear.kind()), (None, io::ErrorKind::InvalidInput));
        assert!(unclear.to_string().contains("mem:zone=3"), "{unclear}");
    }

    #[test]
    fn layers_stack_from_left_to_right() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("trace");
        let spec =
            format!("meter:trace({},data):po2:fault():meter:mem:zone=3M,zones=4", trace.display());
        let stack = stack(&spec).unwrap();
        assert_eq!(stack.device.geometry().zone_size().get(), 1024);
        stack.device.write(crate::Lba::ZERO, &[1; 4096]).unwrap();
        assert_eq!(stack.counters.len(), 2);
        for counters in &stack.counters {
            assert_eq!(counters.of(OpKind::Write).count, 1);
        }
        drop(stack.device);
        assert!(trace.metadata().unwrap().len() > 4096);
    }

    #[test]
    fn zones_below_layers_can_be_failed() {
        let stack = stack("po2:meter:mem:zone=3M,zones=4").unwrap();
        let zone = crate::ZoneId::new(2);
        stack.failing.unwrap().fail_zone(zone, crate::ZoneFailure::Offline).unwrap();
        assert_eq!(stack.device.zone(zone).unwrap().cond, crate::ZoneCond::Offline);
    }

    #[test]
    fn memory_device_opened_read_only_takes_no_writes() {
        for mode in [OpenMode::ReadOnly, OpenMode::ReadLocked] {
            let clock = Arc::new(ManualClock::new(0));
            let Stack { device, failing, .. } =
                open_stack("meter:mem:zone=3M,zones=4", mode, clock).unwrap();
            let (zone, block) = (crate::ZoneId::new(1), [1; 4096]);
            for refused in [
                device.write(crate::Lba::ZERO, &block),
                device.append(zone, &block).map(drop),
                device.manage(crate::Select::One(zone), crate::ZoneAction::Finish),
            ] {
                assert!(matches!(refused, Err(DeviceError::OpenedReadOnly)), "{refused:?}");
            }
            device.flush().unwrap();
            assert_eq!(device.zone(zone).unwrap().cond, crate::ZoneCond::Empty);
            assert!(failing.is_none());
        }
    }

    #[test]
    fn spec_errors_are_named() {
        for (spec, what) in [
            ("", "a device is missing"),
            ("po2:", "a device is missing"),
            ("file:", "a device is missing"),
            ("mem:zoen=3M", "\"zoen\""),
            ("mem:zone=3", "zone of 3 bytes"),
            ("trace:mem:", "trace needs arguments in parentheses: trace(FILE):DEVICE"),
            ("trace(x:mem:", "not closed"),
            ("trace(x)mem:", "comes :DEVICE"),
            ("trace():mem:", "needs a file"),
            ("trace(x,dta):mem:", "not \"dta\""),
            ("po2(3):mem:", "takes no arguments: po2:DEVICE"),
            ("p02:mem:", "none of file, mem, po2, meter, trace, delay, fault"),
            ("fault(explode):mem:", "fault(explode)"),
            ("delay(1s):mem:", "a number of microseconds, not \"1s\""),
            ("/nowhere/drive.zns", "opening /nowhere/drive.zns"),
        ] {
            let error = stack(spec).err().expect(spec).to_string();
            assert!(error.contains(what), "{spec}: {error}");
        }
    }

    /// A program's own device: the list of names, and so errors and help, has it too.
    #[test]
    fn openers_accept_schemes_of_program() {
        fn ram(text: &str, _: OpenMode) -> Result<Stack> {
            let zones = text.parse().map_err(|_| bad(text, "not a number of zones".into()))?;
            let changes = crate::profile::Changes { zones: Some(zones), ..Default::default() };
            Ok(MemoryDrive::new(changes.geometry()?)?.into())
        }
        const RAM: Scheme = Scheme {
            name: "ram",
            form: "ram:ZONES",
            help: "so many zones of memory",
            example: "ram:7",
            opener: Opener::Device(ram),
        };
        fn by_path(
            path: &Path,
            _: OpenMode,
        ) -> std::result::Result<Option<Arc<dyn ZonedDevice>>, DeviceError> {
            if path != Path::new("/dev/ours") {
                return Ok(None);
            }
            let drive = MemoryDrive::new(crate::Profile::Small.geometry())?;
            Ok(Some(Arc::new(drive)))
        }
        let openers = Openers::builtin().with_schemes(&[RAM]).with_paths(by_path);
        let open = |spec| openers.open(spec, OpenMode::ReadWrite, Arc::new(ManualClock::new(0)));
        assert_eq!(open("po2:ram:7").unwrap().device.geometry().zone_count(), 7);
        assert!(matches!(open("po2:/dev/ours").unwrap().base, Base::Device));
        assert!(matches!(open("file:/dev/ours").unwrap().base, Base::Device));
        let error = open("rom:7").err().unwrap().to_string();
        assert!(
            error.contains("none of file, mem, po2, meter, trace, delay, fault, ram"),
            "{error}"
        );
        assert!(open("ram:many").is_err());
    }

    #[test]
    fn scheme_examples_belong_to_their_scheme() {
        for scheme in Openers::builtin().schemes() {
            assert!(scheme.form.starts_with(scheme.name), "{scheme:?}");
            assert!(scheme.example.starts_with(scheme.name), "{scheme:?}");
        }
    }

    proptest! {
        #[test]
        fn spec_parse_handles_any_text(
            text in "(po2:|meter:|fault\\([a-z,=0-9]*\\):|mem:|[a-z(),=:]{0,6}){0,4}",
        ) {
            // A file name would make files; without `trace` nothing can be made.
            prop_assume!(!text.contains("trace"));
            let _ = stack(&text);
        }
    }
}
