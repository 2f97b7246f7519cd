//! Device specifications: a device and the layers on it, as one word of a command line.
//!
//! A specification is a path, or a scheme with its text: `mem:zones=10`, `po2:DEVICE`. Layers stack
//! from left to right, the outermost first: `po2:meter:drive.zns`. A [`Scheme`] has everything
//! about one of them: its name, its form, its description, and its opener. [`Openers`] is the list
//! of the schemes that a program knows; parsing, help and errors go by it. This crate has
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
        /// The reason.
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

/// An open device, and access to its layers.
pub struct Stack {
    /// The outermost layer.
    pub device: Arc<dyn ZonedDevice>,
    /// The same without the layers that count, record, delay or fail requests: for a look at its
    /// content that leaves no trace.
    pub plain: Arc<dyn ZonedDevice>,
    /// The counters of the `meter:` layers, innermost first.
    pub counters: Vec<Arc<Counters>>,
    /// The innermost device, if its zones can be made to fail.
    pub failing: Option<Arc<dyn FailZone>>,
    /// The base of the innermost device.
    pub base: Base,
    /// The files and nodes that this device reads and writes, the innermost first: no other output
    /// may be one of them.
    pub files: Vec<PathBuf>,
}

/// The base of the innermost device of a stack.
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
        let (plain, base) = (Arc::clone(&device), Base::Device);
        Self { device, plain, counters: Vec::new(), failing: None, base, files: Vec::new() }
    }

    /// An emulated drive, made of `base`: one device under two traits.
    pub fn emulated<D: ZonedDevice + FailZone + 'static>(drive: D, base: Base) -> Self {
        let drive = Arc::new(drive);
        let (counters, files, plain) = (Vec::new(), Vec::new(), drive.clone());
        Self { device: drive.clone(), plain, counters, failing: Some(drive), base, files }
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
    /// The word before the colon or the parenthesis.
    pub name: &'static str,
    /// How it is written: `trace(FILE):DEVICE`.
    pub form: &'static str,
    /// A description, in one line.
    pub help: &'static str,
    /// A device specification with it.
    pub example: &'static str,
    /// How it is opened.
    pub opener: Opener,
}

/// How a scheme is opened.
#[derive(Clone, Copy, Debug)]
pub enum Opener {
    /// The text after the colon is a path, whatever it looks like.
    Path,
    /// A device, from the text after the colon. A device that was not opened for writing is kept
    /// from changes, whether it knows of modes itself or not.
    Device(fn(&str, OpenMode) -> Result<Stack>),
    /// A layer on the device that follows the colon.
    Layer(Wrap),
    /// The same, after arguments in parentheses. They are parsed before anything is opened.
    LayerWith(fn(&str) -> std::result::Result<Layer, String>),
    /// A device made of the devices in parentheses, which commas separate. One that has a comma
    /// stands in parentheses of its own.
    Members(fn(Vec<Stack>) -> Result<Stack>),
}

/// Puts a layer on a device. The clock is for layers that measure time.
type Wrap = fn(Stack, &Arc<dyn Clock>) -> Result<Stack>;

/// How many devices made of devices may be inside each other.
const DEPTH_MAX: usize = 8;

/// A specification that is understood, and of which nothing is open.
struct Parsed<'a> {
    /// Outermost first.
    layers: Vec<Layer>,
    innermost: Innermost<'a>,
}

enum Innermost<'a> {
    Single(&'a str),
    Joined { join: fn(Vec<Stack>) -> Result<Stack>, members: Vec<Parsed<'a>> },
}

/// A layer that is parsed, and not yet on a device.
pub type Layer = Box<dyn FnOnce(Stack, &Arc<dyn Clock>) -> Result<Stack>>;

/// Opens the device that a path names; `None` if it is none that this opener knows.
pub type PathOpener =
    fn(&Path, OpenMode) -> std::result::Result<Option<Arc<dyn ZonedDevice>>, DeviceError>;

/// The schemes that a program knows, and the openers of its paths.
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
        // All of it is parsed first, so that a bad specification opens nothing.
        let parsed = self.parse(spec, DEPTH_MAX)?;
        self.open_parsed(parsed, mode, &clock)
    }

    /// A device with its layers, and no more than `depth` devices around each other in it.
    fn parse<'a>(&self, spec: &'a str, depth: usize) -> Result<Parsed<'a>> {
        let mut layers = Vec::new();
        let mut rest = spec;
        while let Some((layer, below)) = self.split_layer(rest)? {
            layers.push(layer);
            rest = below;
        }
        Ok(Parsed { layers, innermost: self.parse_innermost(rest, depth)? })
    }

    fn parse_innermost<'a>(&self, spec: &'a str, depth: usize) -> Result<Innermost<'a>> {
        let (name, after) = spec.split_at(spec.find([':', '(']).unwrap_or(spec.len()));
        let scheme = self.find(name).filter(|_| !after.is_empty());
        let Some(Scheme { opener: Opener::Members(join), form, .. }) = scheme else {
            return Ok(Innermost::Single(spec));
        };
        let inside = after
            .strip_prefix('(')
            .ok_or_else(|| bad(spec, format!("{name} needs drives in parentheses: {form}")))?;
        let inside = match closing(inside) {
            Some(end) if end + 1 == inside.len() => &inside[..end],
            Some(_) => return Err(bad(spec, "nothing may follow the last parenthesis".into())),
            None => return Err(bad(spec, "a parenthesis is not closed".into())),
        };
        let Some(depth) = depth.checked_sub(1) else {
            return Err(bad(spec, format!("over {DEPTH_MAX} levels of {name}")));
        };
        let members = split_members(inside).map(|member| self.parse(member, depth));
        Ok(Innermost::Joined { join: *join, members: members.collect::<Result<_>>()? })
    }

    fn open_parsed(
        &self,
        parsed: Parsed<'_>,
        mode: OpenMode,
        clock: &Arc<dyn Clock>,
    ) -> Result<Stack> {
        let mut stack = match parsed.innermost {
            Innermost::Single(spec) => self.open_innermost(spec, mode)?,
            Innermost::Joined { join, members } => {
                let open = |member| self.open_parsed(member, mode, clock);
                join(members.into_iter().map(open).collect::<Result<_>>()?)?
            }
        };
        stack.files.extend_from_slice(&self.inputs);
        parsed.layers.into_iter().rev().try_fold(stack, |stack, layer| layer(stack, clock))
    }

    /// Takes the outermost layer off `spec`; `None` if there is none.
    fn split_layer<'a>(&self, spec: &'a str) -> Result<Option<(Layer, &'a str)>> {
        let (name, after) = spec.split_at(spec.find([':', '(']).unwrap_or(spec.len()));
        let Some(scheme) = self.find(name).filter(|_| !after.is_empty()) else { return Ok(None) };
        match scheme.opener {
            Opener::Path | Opener::Device(_) | Opener::Members(_) => Ok(None),
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
            // Layers are off already, and members are parsed.
            Some((Opener::Layer(_) | Opener::LayerWith(_) | Opener::Members(_), _)) | None => {
                self.open_path(spec, mode)
            }
        }
    }

    fn open_path(&self, path: &str, mode: OpenMode) -> Result<Stack> {
        if path.is_empty() {
            return Err(bad(path, "a device is missing: a path, or mem:".into()));
        }
        for opener in &self.paths {
            if let Some(device) = opener(Path::new(path), mode)? {
                return Ok(Stack { files: vec![path.into()], ..Stack::of_device(device) });
            }
        }
        match FileDrive::open(path, mode) {
            Ok(drive) => {
                let is_file = Path::new(path).is_file() || Path::new(path).is_dir();
                let base = if is_file { Base::File(path.into()) } else { Base::Device };
                Ok(Stack { files: vec![path.into()], ..Stack::emulated(drive, base) })
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

/// The same, with access to its layers.
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

/// The parts between commas outside of parentheses, each without parentheses around it.
fn split_members(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let parts = text.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(|part| match part.strip_prefix('(') {
        Some(inside) if closing(inside) == Some(inside.len() - 1) => &inside[..inside.len() - 1],
        Some(_) | None => part,
    })
}

fn bad(spec: &str, what: String) -> OpenError {
    OpenError::Spec { spec: spec.into(), what }
}

#[cfg(test)]
mod tests;
