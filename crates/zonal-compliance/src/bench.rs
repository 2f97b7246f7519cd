//! A bench on which rules try a device: it notes requests, so that a failure can say how to repeat
//! it, and makes data that it can recognise.

use std::cell::{Cell, RefCell};

use zonal::nvme::NvmeStatus;
use zonal::{
    AlignedBytes, DeviceError, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind,
    ZonedDevice,
};

use crate::target::{Interface, Target};

/// One block.
pub(crate) const ONE: LbaCount = LbaCount::new(1);

/// A request that the device refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) status: NvmeStatus,
    pub(crate) errno: i32,
    pub(crate) text: String,
}

impl From<DeviceError> for Refused {
    fn from(error: DeviceError) -> Self {
        let (status, errno) = (error.nvme_status(), error.errno().raw_os_error());
        Self { status, errno, text: error.to_string() }
    }
}

/// The outcome of a request.
pub(crate) type Answer<T> = Result<T, Refused>;

/// `"succeeded"`, or the refusal.
pub(crate) fn told<T>(answer: &Answer<T>) -> String {
    match answer {
        Ok(_) => "it succeeded".to_owned(),
        Err(refused) => format!("it was refused: {}", refused.text),
    }
}

/// Why a check ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The device breaks the rule.
    Fail { expected: String, found: String },
    /// The rule cannot be tried.
    Skip(String),
}

/// The end of a check.
pub(crate) type Checked = Result<(), Stop>;

/// A failure if something does not hold.
#[expect(clippy::fn_params_excessive_bools, reason = "it is a condition, as of an assertion")]
pub(crate) fn require(
    holds: bool,
    expected: impl Into<String>,
    found: impl FnOnce() -> String,
) -> Checked {
    if holds { Ok(()) } else { Err(Stop::Fail { expected: expected.into(), found: found() }) }
}

/// A rule that cannot be tried.
pub(crate) fn skip<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Skip(reason.into()))
}

/// Data that one write left.
#[derive(Clone, Copy)]
struct Written {
    lba: Lba,
    blocks: LbaCount,
    version: u64,
}

/// A device while its rules are tried.
pub(crate) struct Bench<'a> {
    pub(crate) target: &'a Target<'a>,
    /// Every zone, as reported at the start.
    pub(crate) all: Vec<Zone>,
    /// Sequential write required zones that may be written, and can be.
    pub(crate) zones: Vec<Zone>,
    /// Conventional zones that may be written.
    pub(crate) conventional: Vec<Zone>,
    /// Sequential write preferred zones that may be written.
    pub(crate) preferred: Vec<Zone>,
    steps: RefCell<Vec<String>>,
    written: RefCell<Vec<Written>>,
    version: Cell<u64>,
}

/// Steps that a failure tells at most: the last ones.
const STEPS_MAX: usize = 40;

impl<'a> Bench<'a> {
    /// A bench on a device; it may write the zones for which `may_write` is true.
    pub(crate) fn new(
        target: &'a Target<'a>,
        all: Vec<Zone>,
        may_write: impl Fn(ZoneId) -> bool,
    ) -> Self {
        let usable = |zone: &&Zone| {
            may_write(zone.id) && !matches!(zone.cond, ZoneCond::ReadOnly | ZoneCond::Offline)
        };
        let of = |kind| {
            let usable = all.iter().filter(usable);
            usable.filter(|zone| zone.kind == kind).copied().collect()
        };
        let (zones, conventional) = (of(ZoneKind::SequentialRequired), of(ZoneKind::Conventional));
        let preferred = of(ZoneKind::SequentialPreferred);
        let (steps, written) = (RefCell::default(), RefCell::default());
        Self { target, all, zones, conventional, preferred, steps, written, version: Cell::new(1) }
    }

    pub(crate) fn device(&self) -> &'a dyn ZonedDevice {
        self.target.device
    }

    /// The steps since the last call.
    pub(crate) fn take_steps(&self) -> Vec<String> {
        let mut steps = self.steps.take();
        steps.drain(..steps.len().saturating_sub(STEPS_MAX));
        steps
    }

    fn note(&self, step: String) {
        self.steps.borrow_mut().push(step);
    }

    pub(crate) fn block_bytes(&self) -> usize {
        usize::try_from(self.device().geometry().block_size().bytes()).expect("a block is small")
    }

    fn bytes(&self, blocks: LbaCount) -> usize {
        usize::try_from(blocks.get()).expect("blocks of one request") * self.block_bytes()
    }

    /// Blocks that say where they belong and by which write they came.
    fn pattern(&self, lba: Lba, blocks: LbaCount, version: u64) -> Vec<u8> {
        let words = self.block_bytes() / 16;
        let mut data = Vec::with_capacity(self.bytes(blocks));
        for lba in lba.get()..lba.get() + blocks.get() {
            let mut word = [0; 16];
            word[..8].copy_from_slice(&lba.to_le_bytes());
            word[8..].copy_from_slice(&version.to_le_bytes());
            data.extend_from_slice(&word.repeat(words));
        }
        data
    }

    fn next_version(&self) -> u64 {
        self.version.set(self.version.get() + 1);
        self.version.get()
    }

    /// Data for a request that stores nothing, or whose place is not known yet.
    pub(crate) fn data(&self, lba: Lba, blocks: LbaCount) -> Vec<u8> {
        self.pattern(lba, blocks, self.next_version())
    }

    /// One write.
    pub(crate) fn write(&self, lba: Lba, blocks: LbaCount) -> Answer<()> {
        self.note(format!("write {blocks} blocks at {lba}"));
        let version = self.next_version();
        let data = self.pattern(lba, blocks, version);
        self.device().write(lba, &data)?;
        self.written.borrow_mut().push(Written { lba, blocks, version });
        Ok(())
    }

    /// Writes in as many requests as it needs.
    pub(crate) fn fill(&self, lba: Lba, blocks: LbaCount) -> Answer<()> {
        let (mut at, mut left) = (lba, blocks);
        while left > LbaCount::ZERO {
            let part = left.min(self.target.transfer);
            self.write(at, part)?;
            at += part;
            left -= part;
        }
        Ok(())
    }

    /// One append.
    pub(crate) fn append(&self, zone: ZoneId, blocks: LbaCount) -> Answer<Lba> {
        self.note(format!("append {blocks} blocks to zone {zone}"));
        let version = self.next_version();
        // The place is known only afterwards: the data names the zone's start.
        let start = self.device().geometry().zone_start(zone);
        let data = self.pattern(start, blocks, version);
        let lba = self.device().append(zone, &data)?;
        Ok(lba)
    }

    /// An action for one zone.
    pub(crate) fn act(&self, zone: ZoneId, action: ZoneAction) -> Answer<()> {
        self.note(format!("{} zone {zone}", action.name()));
        if action == ZoneAction::Reset {
            self.forget(zone);
        }
        Ok(self.device().manage(Select::One(zone), action)?)
    }

    /// An action for all zones.
    pub(crate) fn act_all(&self, action: ZoneAction) -> Answer<()> {
        self.note(format!("{} all zones", action.name()));
        if action == ZoneAction::Reset {
            self.written.borrow_mut().clear();
        }
        Ok(self.device().manage(Select::All, action)?)
    }

    fn forget(&self, zone: ZoneId) {
        let geometry = self.device().geometry();
        self.written.borrow_mut().retain(|part| geometry.locate(part.lba).0 != zone);
    }

    pub(crate) fn read(&self, lba: Lba, blocks: LbaCount) -> Answer<Vec<u8>> {
        self.note(format!("read {blocks} blocks at {lba}"));
        Ok(read(self.device(), lba, self.bytes(blocks))?)
    }

    pub(crate) fn flush(&self) -> Answer<()> {
        self.note("flush".to_owned());
        Ok(self.device().flush()?)
    }

    /// Reports one zone.
    pub(crate) fn report(&self, zone: ZoneId) -> Result<Zone, Stop> {
        match self.device().zone(zone) {
            Ok(found) => Ok(found),
            Err(error) => Err(Stop::Fail {
                expected: format!("a report of zone {zone}"),
                found: error.to_string(),
            }),
        }
    }

    /// Reports the zones of the range.
    pub(crate) fn report_range(&self) -> Result<Vec<Zone>, Stop> {
        self.zones.iter().map(|zone| self.report(zone.id)).collect()
    }

    /// Empties a zone, before a rule is tried.
    pub(crate) fn reset(&self, zone: &Zone) -> Result<(), Stop> {
        self.ready(self.act(zone.id, ZoneAction::Reset))
    }

    /// Empties every zone of the range that is not empty.
    pub(crate) fn reset_range(&self) -> Result<(), Stop> {
        for zone in self.report_range()? {
            if zone.cond != ZoneCond::Empty {
                self.reset(&zone)?;
            }
        }
        self.steps.take();
        Ok(())
    }

    /// A step that prepares a rule: if it fails, the rule cannot be tried.
    pub(crate) fn ready<T>(&self, answer: Answer<T>) -> Result<T, Stop> {
        match answer {
            Ok(value) => Ok(value),
            Err(refused) => {
                let step = self.steps.borrow().last().cloned().unwrap_or_default();
                skip(format!("preparing it failed: {step}: {}", refused.text))
            }
        }
    }

    /// Whether the first and last block of everything written to a zone is still there.
    pub(crate) fn verify(&self, zone: ZoneId) -> Result<(), Stop> {
        let geometry = self.device().geometry();
        let parts = self.written.borrow().clone();
        for part in parts.iter().filter(|part| geometry.locate(part.lba).0 == zone) {
            let last = Lba::new(part.lba.get() + part.blocks.get() - 1);
            for lba in [part.lba, last] {
                let one = LbaCount::new(1);
                let expected = self.pattern(lba, one, part.version);
                let what = format!("block {lba} reads as it was written");
                match self.read(lba, one) {
                    Ok(found) if found == expected => {}
                    Ok(_) => {
                        let found = "it reads as other data".to_owned();
                        return Err(Stop::Fail { expected: what, found });
                    }
                    Err(refused) => {
                        return Err(Stop::Fail { expected: what, found: refused.text });
                    }
                }
            }
        }
        Ok(())
    }

    /// A sequential zone of the range with room for the usual steps, by its place in the range.
    pub(crate) fn zone(&self, place: usize) -> Result<Zone, Stop> {
        let needed = LbaCount::new(8);
        match self.zones.get(place) {
            Some(zone) if zone.capacity >= needed => Ok(*zone),
            Some(zone) => skip(format!("zone {} holds fewer than {needed} blocks", zone.id)),
            None => skip(format!("it needs {} sequential zones in the range", place + 1)),
        }
    }

    /// Whether the interface has appends.
    pub(crate) fn needs_appends(&self) -> Result<(), Stop> {
        match self.target.interface {
            Interface::Block => skip("a block device has no appends for programs"),
            Interface::Scsi => skip("SCSI has no appends"),
            Interface::Library | Interface::Nvme => Ok(()),
        }
    }

    /// Zones outside the range that are open, and that are active.
    pub(crate) fn outside(&self, count: fn(ZoneCond) -> bool) -> u32 {
        let inside = |zone: &&Zone| !self.zones.iter().any(|own| own.id == zone.id);
        let counted = self.all.iter().filter(inside).filter(|zone| count(zone.cond)).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }
}

/// Reads `bytes` bytes, whole blocks.
pub(crate) fn read(
    device: &dyn ZonedDevice,
    lba: Lba,
    bytes: usize,
) -> zonal::error::Result<Vec<u8>> {
    // If the device moves no data, the caller must find none of its own: no block that it writes
    // has these bytes, and direct I/O copies only unaligned memory, from a buffer that may still
    // hold the last write.
    let mut memory = AlignedBytes::zeroed(bytes);
    memory.fill(0xa5);
    let buffer = &mut memory[..bytes];
    device.read(lba, buffer)?;
    Ok(buffer.to_vec())
}
