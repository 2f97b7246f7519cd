//! Device specifications: a device and the layers on it, as one word of a command line.
//!
//! | specification | device |
//! | --- | --- |
//! | `drive.zns`, `file:drive.zns` | a drive file |
//! | `/dev/nvme0n1`, `/dev/ng0n1` | what another crate opens by its path: [`OpenOther`] |
//! | `mem:`, `mem:size=1G,zone=96M,open=4` | a drive in memory; options as in [`Changes`] |
//! | `po2:SPEC` | zones rounded up to a power of two |
//! | `meter:SPEC` | measured |
//! | `trace(FILE):SPEC`, `trace(FILE,data):SPEC` | recorded into FILE, without or with the data |
//! | `fault(RULES):SPEC` | failing as [`FaultPlan`] says |
//!
//! Layers stack from left to right, the outermost first: `po2:meter:drive.zns`. A file whose name
//! looks like one of these is reached with `file:`.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::error::Result;
use crate::layer::fault::{Fault, FaultPlan};
use crate::layer::meter::{Counters, Meter};
use crate::layer::po2::PowerOfTwo;
use crate::layer::trace::{Trace, TraceContent};
use crate::profile::Changes;
use crate::{Clock, DeviceError, FailZone, FileDrive, MemoryDrive, OpenMode, ZonedDevice};

/// An open device and what can be asked of its layers.
pub struct Stack {
    /// The outermost layer.
    pub device: Arc<dyn ZonedDevice>,
    /// What the `meter:` layers measure, innermost first.
    pub counters: Vec<Arc<Counters>>,
    /// The innermost device, if its zones can be made to fail.
    pub failing: Option<Arc<dyn FailZone>>,
}

/// An emulated drive: one device under two traits.
impl<D: ZonedDevice + FailZone + 'static> From<D> for Stack {
    fn from(drive: D) -> Self {
        let drive = Arc::new(drive);
        Self { device: drive.clone(), counters: Vec::new(), failing: Some(drive) }
    }
}

/// Opens the device that `spec` describes.
///
/// ```
/// use std::sync::Arc;
/// use zonal::{ManualClock, OpenMode, spec};
/// let clock = Arc::new(ManualClock::new(0));
/// let device = spec::open("po2:mem:zone=96M,zones=10", OpenMode::ReadWrite, clock)?;
/// assert_eq!(device.geometry().zone_size().get(), 32_768); // 128 MiB
/// # Ok::<(), zonal::DeviceError>(())
/// ```
pub fn open(spec: &str, mode: OpenMode, clock: Arc<dyn Clock>) -> Result<Arc<dyn ZonedDevice>> {
    open_stack(spec, mode, clock).map(|stack| stack.device)
}

/// Opens the device that `spec` describes, and keeps hold of what its layers count.
pub fn open_stack(spec: &str, mode: OpenMode, clock: Arc<dyn Clock>) -> Result<Stack> {
    open_stack_with(spec, mode, clock, &|_, _| Ok(None))
}

/// Opens what a path names if it is no drive file, but a device that this crate does not know.
pub type OpenOther<'a> = &'a dyn Fn(&Path, OpenMode) -> Result<Option<Arc<dyn ZonedDevice>>>;

/// The same, with devices of other crates below the layers.
#[expect(clippy::needless_pass_by_value, reason = "as a constructor takes it")]
pub fn open_stack_with(
    spec: &str,
    mode: OpenMode,
    clock: Arc<dyn Clock>,
    other: OpenOther<'_>,
) -> Result<Stack> {
    let mut layers = Vec::new();
    let mut rest = spec;
    while let Some((layer, below)) = split_layer(rest)? {
        layers.push(layer);
        rest = below;
    }
    let mut stack = open_base(rest, mode, other)?;
    for layer in layers.into_iter().rev() {
        let below = stack.device;
        stack.device = match layer {
            Layer::PowerOfTwo => Arc::new(PowerOfTwo::new(below)?),
            Layer::Meter => {
                let meter = Meter::new(below, Arc::clone(&clock));
                stack.counters.push(Arc::clone(meter.counters()));
                Arc::new(meter)
            }
            Layer::Trace(path, content) => {
                let file = File::create(path).map_err(|source| DeviceError::Io {
                    what: format!("creating {path}"),
                    source,
                })?;
                Arc::new(Trace::new(below, file, content)?)
            }
            Layer::Fault(plan) => Arc::new(Fault::new(below, plan)),
        };
    }
    Ok(stack)
}

/// One layer, parsed and not yet made, so that a bad specification opens nothing.
enum Layer<'a> {
    PowerOfTwo,
    Meter,
    Trace(&'a str, TraceContent),
    Fault(FaultPlan),
}

/// Takes the outermost layer off `spec`; `None` if there is none.
fn split_layer(spec: &str) -> Result<Option<(Layer<'_>, &str)>> {
    let (word, after) = spec.split_at(spec.find([':', '(']).unwrap_or(spec.len()));
    let arguments = || {
        let inside = after.strip_prefix('(').ok_or_else(|| {
            bad(spec, format!("{word} needs arguments in parentheses: {word}(...):DEVICE"))
        })?;
        let end = closing(inside).ok_or_else(|| bad(spec, "a parenthesis is not closed".into()))?;
        let below = inside[end + 1..]
            .strip_prefix(':')
            .ok_or_else(|| bad(spec, "after the parenthesis comes :DEVICE".into()))?;
        Ok((&inside[..end], below))
    };
    match (word, after.strip_prefix(':')) {
        ("po2", Some(below)) => Ok(Some((Layer::PowerOfTwo, below))),
        ("meter", Some(below)) => Ok(Some((Layer::Meter, below))),
        ("po2" | "meter", None) if after.starts_with('(') => {
            Err(bad(spec, format!("{word} takes no arguments: {word}:DEVICE")))
        }
        ("trace", _) if !after.is_empty() => {
            let (inside, below) = arguments()?;
            let (path, content) = match inside.rsplit_once(',') {
                Some((path, "data")) => (path, TraceContent::Data),
                Some((_, other)) => {
                    return Err(bad(spec, format!("trace has an option data, not {other:?}")));
                }
                None => (inside, TraceContent::Checksums),
            };
            if path.is_empty() {
                return Err(bad(spec, "trace needs a file: trace(FILE):DEVICE".into()));
            }
            Ok(Some((Layer::Trace(path, content), below)))
        }
        ("fault", _) if !after.is_empty() => {
            let (inside, below) = arguments()?;
            let plan = inside
                .parse::<FaultPlan>()
                .map_err(|error| bad(&format!("fault({inside})"), error.to_string()))?;
            Ok(Some((Layer::Fault(plan), below)))
        }
        _ => Ok(None),
    }
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

/// Opens the innermost device.
fn open_base(spec: &str, mode: OpenMode, other: OpenOther<'_>) -> Result<Stack> {
    if let Some(options) = spec.strip_prefix("mem:") {
        let changes = options.parse::<Changes>().map_err(|error| bad(spec, error.to_string()))?;
        let shape = changes.geometry().map_err(|error| bad(spec, error.to_string()))?;
        return Ok(MemoryDrive::with_rules(shape, changes.profile.rules())?.into());
    }
    let path = spec.strip_prefix("file:").unwrap_or(spec);
    if path.is_empty() {
        return Err(bad(spec, "a device is missing: a drive file or mem:".into()));
    }
    if let Some(device) = other(Path::new(path), mode)? {
        return Ok(Stack { device, counters: Vec::new(), failing: None });
    }
    match FileDrive::open(path, mode) {
        Ok(drive) => Ok(drive.into()),
        // A misspelt layer is taken for a file name.
        Err(DeviceError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound && path.contains(':') =>
        {
            let what = "no such file, and the part before the colon is none of \
                        file, mem, po2, meter, trace, fault";
            Err(bad(path, what.into()))
        }
        Err(error) => Err(error),
    }
}

fn bad(spec: &str, what: String) -> DeviceError {
    DeviceError::Spec { spec: spec.into(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::layer::meter::OpKind;
    use proptest::prelude::*;

    fn stack(spec: &str) -> Result<Stack> {
        open_stack(spec, OpenMode::ReadWrite, Arc::new(ManualClock::new(0)))
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
    fn zones_below_the_layers_can_be_made_to_fail() {
        let stack = stack("po2:meter:mem:zone=3M,zones=4").unwrap();
        let zone = crate::ZoneId::new(2);
        stack.failing.unwrap().fail_zone(zone, crate::ZoneFailure::Offline).unwrap();
        assert_eq!(stack.device.zone(zone).unwrap().cond, crate::ZoneCond::Offline);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (spec, what) in [
            ("", "a device is missing"),
            ("po2:", "a device is missing"),
            ("mem:zoen=3M", "\"zoen\""),
            ("mem:zone=3", "zone of 3 bytes"),
            ("trace:mem:", "trace needs arguments"),
            ("trace(x:mem:", "not closed"),
            ("trace(x)mem:", "comes :DEVICE"),
            ("trace():mem:", "needs a file"),
            ("trace(x,dta):mem:", "not \"dta\""),
            ("po2(3):mem:", "takes no arguments"),
            ("p02:mem:", "none of file, mem, po2"),
            ("fault(explode):mem:", "fault(explode)"),
            ("/nowhere/drive.zns", "opening /nowhere/drive.zns"),
        ] {
            let error = stack(spec).err().expect(spec).to_string();
            assert!(error.contains(what), "{spec}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_device_or_an_error(
            text in "(po2:|meter:|fault\\([a-z,=0-9]*\\):|mem:|[a-z(),=:]{0,6}){0,4}",
        ) {
            // A file name would make files; without `trace` nothing can be made.
            prop_assume!(!text.contains("trace"));
            let _ = stack(&text);
        }
    }
}
