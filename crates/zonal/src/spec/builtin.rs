//! The schemes of this crate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Base, Layer, OpenError, Opener, Result, Scheme, Stack, bad};
use crate::layer::concat::Concat;
use crate::layer::delay::Delay;
use crate::layer::fault::{Fault, FaultPlan};
use crate::layer::limited::{Limited, ZoneLimits};
use crate::layer::meter::Meter;
use crate::layer::po2::PowerOfTwo;
use crate::layer::slice::{Slice, ZoneRange};
use crate::layer::trace::{Trace, TraceContent};
use crate::output::{self, Existing};
use crate::profile::Changes;
use crate::{Clock, DeviceError, FailZone, MemoryDrive, OpenMode, ZoneId, ZonedDevice};

pub(super) const SCHEMES: [Scheme; 9] = [
    Scheme {
        name: "file",
        form: "file:PATH",
        help: "what a path names, even if the path looks like one of these",
        example: "file:drive.zns",
        opener: Opener::Path,
    },
    Scheme {
        name: "mem",
        form: "mem:[OPTION=VALUE,...]",
        help: "a drive in memory, gone when the command ends",
        example: "mem:profile=smr,zones=100",
        opener: Opener::Device(memory),
    },
    Scheme {
        name: "po2",
        form: "po2:DEVICE",
        help: "the zone size rounded up to a power of two, the capacity unchanged",
        example: "po2:drive.zns",
        opener: Opener::Layer(power_of_two),
    },
    Scheme {
        name: "slice",
        form: "slice(FIRST-LAST):DEVICE",
        help: "these zones as a drive, with open=N,active=N: its part of the limits",
        example: "slice(4-19,open=7):drive.zns",
        opener: Opener::LayerWith(slice),
    },
    Scheme {
        name: "concat",
        form: "concat(DEVICE,...)",
        help: "several drives as one, each that has a comma in parentheses",
        example: "concat(a.zns,(mem:zone=96M,zones=9))",
        opener: Opener::Members(concat),
    },
    Scheme {
        name: "meter",
        form: "meter:DEVICE",
        help: "counts operations, bytes, errors and time",
        example: "meter:drive.zns",
        opener: Opener::Layer(meter),
    },
    Scheme {
        name: "trace",
        form: "trace(FILE):DEVICE",
        help: "records every operation to FILE, with trace(FILE,data): the data too",
        example: "trace(run.trace):drive.zns",
        opener: Opener::LayerWith(trace),
    },
    Scheme {
        name: "delay",
        form: "delay(MICROSECONDS):DEVICE",
        help: "lets each call take longer, however many requests it has",
        example: "delay(100):drive.zns",
        opener: Opener::LayerWith(delay),
    },
    Scheme {
        name: "fault",
        form: "fault(RULES):DEVICE",
        help: "fails as the rules say",
        example: "fault(write,nth=3):drive.zns",
        opener: Opener::LayerWith(fault),
    },
];

fn memory(options: &str, _: OpenMode) -> Result<Stack> {
    let spec = || format!("mem:{options}");
    let changes = options.parse::<Changes>().map_err(|error| bad(&spec(), error.to_string()))?;
    let shape = changes.geometry().map_err(|error| bad(&spec(), error.to_string()))?;
    Ok(Stack::emulated(MemoryDrive::with_rules(shape, changes.profile.rules())?, Base::Memory))
}

fn power_of_two(stack: Stack, _: &Arc<dyn Clock>) -> Result<Stack> {
    let device = PowerOfTwo::new(stack.device)?;
    let plain = Arc::new(PowerOfTwo::new(stack.plain)?);
    let failing = stack.failing.map(|below| device.failing(below));
    Ok(Stack { device: Arc::new(device), plain, failing, ..stack })
}

/// The text in the parentheses of `slice`, parsed.
struct SliceText {
    range: ZoneRange,
    limits: ZoneLimits,
}

fn slice_text(text: &str) -> std::result::Result<SliceText, String> {
    let mut words = text.split(',');
    let zones = words.next().unwrap_or_default();
    let no_zones = || format!("slice takes zones, as in 4-7 or 4-, not {zones:?}");
    let number = |text: &str| text.parse().map(ZoneId::new).map_err(|_| no_zones());
    let (first, last) = zones.split_once('-').ok_or_else(no_zones)?;
    let last = if last.is_empty() { None } else { Some(number(last)?) };
    let range = ZoneRange { first: number(first)?, last };
    let mut limits = ZoneLimits::default();
    for word in words {
        let unknown = || format!("slice has options open=N and active=N, not {word:?}");
        let (name, value) = word.split_once('=').ok_or_else(unknown)?;
        let limit = match name {
            "open" => &mut limits.open,
            "active" => &mut limits.active,
            _ => return Err(unknown()),
        };
        *limit = Some(value.parse().map_err(|_| unknown())?);
    }
    Ok(SliceText { range, limits })
}

fn slice(text: &str) -> std::result::Result<Layer, String> {
    let SliceText { range, limits } = slice_text(text)?;
    Ok(Box::new(move |stack, _| {
        let slice = Slice::new(stack.device, range)?;
        let plain = Arc::new(Slice::new(stack.plain, range)?);
        let failing = stack.failing.map(|below| slice.failing(below));
        let device: Arc<dyn ZonedDevice> = if limits == ZoneLimits::default() {
            Arc::new(slice)
        } else {
            let active = limits.active.or(slice.geometry().max_active());
            // Open zones are active: that limit bounds an open limit not asked for.
            let of_drive = slice.geometry().max_open().into_iter().chain(limits.active).min();
            let open = limits.open.or(of_drive);
            Arc::new(Limited::new(slice, ZoneLimits { open, active })?)
        };
        Ok(Stack { device, plain, failing, ..stack })
    }))
}

fn concat(members: Vec<Stack>) -> Result<Stack> {
    let mut base = Base::Memory;
    let (mut counters, mut files) = (Vec::new(), Vec::new());
    let mut failing: Option<Vec<Arc<dyn FailZone>>> = Some(Vec::new());
    let (mut devices, mut plain) = (Vec::new(), Vec::new());
    for (number, member) in (1..).zip(members) {
        match member.base {
            Base::Memory => {}
            Base::File(_) | Base::Device => base = Base::Device,
            Base::Simulated(_) => {
                let what = "a simulated drive has a clock of its own, and joins no other";
                return Err(bad(&format!("concat, member {number}"), what.into()));
            }
        }
        failing = failing.zip(member.failing).map(|(mut all, one)| {
            all.push(one);
            all
        });
        counters.extend(member.counters);
        files.extend(member.files);
        devices.push(member.device);
        plain.push(member.plain);
    }
    let (device, plain) = (Concat::new(devices)?, Arc::new(Concat::new(plain)?));
    let failing = failing.map(|members| device.failing(members));
    Ok(Stack { device: Arc::new(device), plain, counters, failing, base, files })
}

#[expect(clippy::unnecessary_wraps, reason = "as the openers of layers that can fail")]
fn meter(mut stack: Stack, clock: &Arc<dyn Clock>) -> Result<Stack> {
    let meter = Meter::new(Arc::clone(&stack.device), stack.clock(clock));
    stack.counters.push(Arc::clone(meter.counters()));
    stack.device = Arc::new(meter);
    Ok(stack)
}

fn trace(arguments: &str) -> std::result::Result<Layer, String> {
    let (path, content) = match arguments.rsplit_once(',') {
        Some((path, "data")) => (path, TraceContent::Data),
        Some((_, other)) => return Err(format!("trace has an option data, not {other:?}")),
        None => (arguments, TraceContent::Checksums),
    };
    if path.is_empty() {
        return Err("trace needs a file: trace(FILE):DEVICE".into());
    }
    let path = PathBuf::from(path);
    Ok(Box::new(move |mut stack, _| {
        let file = output::open(&path, Existing::Replace, &stack.files).map_err(|source| {
            let what = format!("creating {}", path.display());
            OpenError::from(DeviceError::Io { what, source })
        })?;
        stack.files.push(path);
        Ok(Stack { device: Arc::new(Trace::new(stack.device, file, content)?), ..stack })
    }))
}

fn delay(time: &str) -> std::result::Result<Layer, String> {
    let latency = time
        .parse()
        .map(Duration::from_micros)
        .map_err(|_| format!("delay takes a number of microseconds, not {time:?}"))?;
    Ok(Box::new(move |stack, _| {
        Ok(Stack { device: Arc::new(Delay::new(stack.device, latency)), ..stack })
    }))
}

fn fault(rules: &str) -> std::result::Result<Layer, String> {
    let plan = rules.parse::<FaultPlan>().map_err(|error| error.to_string())?;
    Ok(Box::new(move |stack, _| {
        Ok(Stack { device: Arc::new(Fault::new(stack.device, plan)), ..stack })
    }))
}
